package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/polygon"
)

// Constants of zones and lines.
const (
	passHolds = 500 * time.Millisecond // beyond an edge, before it counts
	edgeBand  = 0.05                   // around an edge, in heights of the thing, where it is on neither side
	edgeMost  = 0.02                   // the largest band, in heights of the picture
	nearFrame = 0.01                   // of the picture's edge: boxes end there, and zones are drawn to about there
)

// ground is a zone or line that rules and sentences can name.
type ground struct {
	inference.Region

	shape polygon.Shape
	since time.Duration // the look after which it is followed
}

// The sides of a zone; those of a line are polygon's.
const (
	outside = -1
	inside  = 1
)

// passage is where a track is, seen from a region. A side is 0 before it is known.
type passage struct {
	first, side int
	from        polygon.Point // the last place on that side
	turned      time.Duration // when it was first beyond the edge; never if it is not
	to          polygon.Point // its place then
	seen        time.Duration // the newest box that was taken
}

// SetRegions sets the zones and lines that rules and sentences can name from now on.
func (w *Watcher) SetRegions(all []inference.Region) {
	before := w.regions
	w.regions = make([]*ground, len(all))
	for i, r := range all {
		same := slices.IndexFunc(before, func(o *ground) bool {
			return o.Name == r.Name && o.Line == r.Line && slices.Equal(o.Corners, r.Corners)
		})
		if same >= 0 {
			w.regions[i] = before[same]
			continue
		}
		added := &ground{Region: r, since: w.now}
		for _, c := range r.Corners {
			added.shape.Points = append(added.shape.Points, c)
		}
		w.regions[i] = added
		for key := range w.counters {
			if strings.HasSuffix(key, "@"+added.place()) {
				delete(w.counters, key)
			}
		}
	}
}

// place is the key of the counters of a zone; see counter.
func (r *ground) place() string { return placeOfZone(r.Name) }

func placeOfZone(name string) string { return fmt.Sprintf("%q", plainName(name)) }

// plainName returns a name as rules have it: in lower case, with single spaces.
func plainName(name string) string { return strings.Join(strings.Fields(strings.ToLower(name)), " ") }

// ground returns the region with a name, as rules have it; nil for none.
func (w *watch) ground(name string) *ground {
	for _, r := range w.regions {
		if plainName(r.Name) == name {
			return r
		}
	}
	return nil
}

// foot returns the middle of a box's lower edge, where a thing stands.
func (a area) foot() polygon.Point {
	x, _ := a.centre()
	return polygon.Point{min(max(x, nearFrame), 1-nearFrame), min(max(a.y1, nearFrame), 1-nearFrame)}
}

// sideOf returns the side of a region on which a thing is; 0 near an edge.
func (r *ground) sideOf(a area) int {
	foot, band := a.foot(), min(edgeBand*a.height(), edgeMost)
	side := 0
	for i, d := range []polygon.Point{{band / r.shape.Aspect, 0}, {-band / r.shape.Aspect, 0}, {0, band}, {0, -band}} {
		p := polygon.Point{min(max(foot[0]+d[0], nearFrame), 1-nearFrame), min(max(foot[1]+d[1], nearFrame), 1-nearFrame)}
		now := outside
		switch {
		case r.Line:
			now = r.shape.Side(p)
		case r.shape.Contains(p):
			now = inside
		}
		if i > 0 && now != side {
			return 0
		}
		side = now
	}
	return side
}

// pass notes where a track is, and the edges that it has passed. It takes all boxes since the last time.
func (w *watch) pass(t *track) {
	if !w.steady() {
		return
	}
	for _, r := range w.regions {
		r.shape.Aspect = w.aspect
		p := t.passages[r]
		if p == nil {
			p = &passage{turned: never, seen: r.since - 1}
			if t.passages == nil {
				t.passages = map[*ground]*passage{}
			}
			t.passages[r] = p
		}
		if p.seen <= w.shaken { // the camera moved
			p.side, p.turned, p.seen = 0, never, w.shaken
		}
		for _, at := range t.path {
			if at.at > p.seen && p.step(r, at) {
				w.passed(t, r, p)
			}
		}
		p.seen = t.at
	}
}

// step takes a box, and reports whether the thing has passed the edge.
func (p *passage) step(r *ground, now point) bool {
	side := r.sideOf(now.box)
	switch {
	case side == 0:
		return false
	case p.side == 0:
		p.first, p.side = cmp.Or(p.first, side), side
	case side != p.side && p.turned == never:
		p.turned, p.to = now.at, now.box.foot()
	}
	if side == p.side {
		p.from, p.turned = now.box.foot(), never
		return false
	}
	if now.at-p.turned < passHolds {
		return false
	}
	p.side = side
	return !r.Line || r.shape.Crosses(p.from, p.to) // else it went around an end of the line
}

// passed logs the fact that a thing has passed the edge of a region.
func (w *watch) passed(t *track, r *ground, p *passage) {
	f := &fact{kind: zoneOutFact, at: p.turned, due: w.now, tracks: []*track{t}, region: r, text: fmt.Sprintf("%q", r.Name)}
	switch {
	case r.Line:
		f.kind, f.side, f.way = lineFact, rightSide, downWay
		if p.side < 0 {
			f.side = leftSide
		}
		if p.to[1] < p.from[1] {
			f.way = upWay
		}
	case p.side == inside:
		f.kind = zoneInFact
	}
	w.log = append(w.log, f)
}

// places returns where a track is: parts of the picture, and zones.
func (w *watch) places(t *track) []string {
	out := t.places()
	for _, r := range w.zonesOf(t) {
		out = append(out, r.place())
	}
	return out
}

// zonesOf returns the zones in which a track is.
func (w *watch) zonesOf(t *track) (in []*ground) {
	for _, r := range w.regions {
		if p := t.passages[r]; !r.Line && p != nil && p.seen > w.shaken && p.side == inside {
			in = append(in, r)
		}
	}
	return in
}

// within reports whether what a track did concerns the zone or line of a rule. What comes into the picture in a zone enters it.
func (w *watch) within(r rule, f *fact, t *track) bool {
	if r.region == "" {
		return f.region == nil
	}
	g := w.ground(r.region)
	p := t.passages[g]
	switch {
	case f.region != nil || g.Line || p == nil:
		return f.region == g
	case f.kind == leaveFact:
		return p.side == inside
	}
	return p.first == inside
}

// where returns the zone of a rule as the end of a sentence.
func (r rule) where() string {
	if r.region == "" {
		return ""
	}
	return fmt.Sprintf(" in the zone %q", r.region)
}

// regionReason returns a sentence in English about a fact of a zone or line.
func (w *Watcher) regionReason(f *fact) string {
	text := map[kind]string{
		zoneInFact:  "{who} enters the zone {name}.",
		zoneOutFact: "{who} leaves the zone {name}.",
		lineFact:    "{who} crosses the line {name} to the {side}.",
	}[f.kind]
	return sentence(fill(text, 1, values{"who": w.name(languageOf(english), f, f.tracks, false), "name": f.text, "side": string(f.side)}))
}

// checkRegion returns an error if a rule names a zone or line that the room does not have.
func (r rule) checkRegion(regions []inference.Region) error {
	want := zoneArea
	if r.form == "crosses" {
		want = lineArea
	}
	var names []string
	for _, have := range regions {
		is := zoneArea
		if have.Line {
			is = lineArea
		}
		if plainName(have.Name) == r.region {
			switch {
			case is != want:
				return fmt.Errorf("%q is a %s, and the rule needs a %s", have.Name, is, want)
			case r.area != want:
				return fmt.Errorf("%q is a %s: write the %s %q", have.Name, is, is, have.Name)
			}
			return nil
		}
		if is == want {
			names = append(names, fmt.Sprintf("%q", have.Name))
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("the room has no %s %q, and no other; draw it first", want, r.region)
	}
	return fmt.Errorf("the room has no %s %q; it has %s", want, r.region, strings.Join(names, ", "))
}
