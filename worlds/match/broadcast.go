package match

import (
	"sort"

	"touchline/worlds/paint"
)

const (
	rampMS     = 600 // of a light
	slowMotion = 0.75
)

// broadcast is the script of the camera and the light, and the record of the match.
type broadcast struct {
	shots  []shotSpan
	lights []lightSpan
	events []Event
}

// shotSpan is one camera shot, until the next begins.
type shotSpan struct {
	start  int64
	shot   Shot
	replay int64 // the moment that it shows at its start; 0 = live
	phase  Phase // how long the crowd is shown
}

// lightSpan is a state of the lights until the next.
type lightSpan struct {
	start    int64
	from, to paint.Light
}

func newBroadcast() broadcast {
	return broadcast{shots: []shotSpan{{}}, lights: []lightSpan{{from: paint.Daylight(), to: paint.Daylight()}}}
}

// shot returns the last shot.
func (b *broadcast) shot() Shot { return b.shots[len(b.shots)-1].shot }

func (b *broadcast) event(e Event) { b.events = append(b.events, e) }

func (b *broadcast) cut(at int64, to Shot) { b.show(shotSpan{start: at, shot: to}) }

func (b *broadcast) show(span shotSpan) {
	b.shots = append(b.shots, span)
	b.event(Event{At: ms(span.start), Kind: Cut, Camera: new(span.shot), Text: "cut to the " + span.shot.String() + " shot"})
}

// crowd shows the crowd during a phase.
func (b *broadcast) crowd(at int64, phase Phase) {
	b.show(shotSpan{start: at, shot: ShotCrowd, phase: phase})
	b.event(Event{At: ms(at), Kind: Crowd, Text: "the camera shows the crowd"})
}

// showing is the camera's state at a moment.
type showing struct {
	shot   Shot
	moment int64 // moment of the match that is shown
	live   bool  // not a replay, not the crowd
	phase  Phase // how long the crowd is shown
	light  paint.Light
}

func (b *broadcast) showing(t int64) showing {
	i := sort.Search(len(b.shots), func(i int) bool { return b.shots[i].start > t }) - 1
	span := b.shots[max(i, 0)]
	out := showing{shot: span.shot, moment: t, live: span.shot != ShotCrowd, phase: span.phase}
	if span.replay > 0 {
		out.live = false
		out.moment = span.replay + int64(float64(t-span.start)*slowMotion)
	}
	j := sort.Search(len(b.lights), func(i int) bool { return b.lights[i].start > t }) - 1
	l := b.lights[max(j, 0)]
	out.light = l.to
	if since := t - l.start; since < rampMS {
		// In eight steps, so that the lit background is redrawn eight times only.
		out.light = l.from.Towards(l.to, since*8/rampMS, 8)
	}
	return out
}
