package facts

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// SureScore is the least score of a box that begins a track; a lower one only continues it.
const SureScore = 0.5

// Constants of the tracker. They hold at 1.7 to 5 looks a second; with fewer, boxes are sought farther away and fewer are enough.
const (
	faintScore   = 0.3                     // continues one
	believeHits  = 3                       // sure boxes until a track is believed
	believeGap   = 1600 * time.Millisecond // the longest gap between them
	clearScore   = 0.7                     // of a box that counts for two after a gap of rareLooks
	usualLooks   = 400 * time.Millisecond  // between looks
	rareLooks    = 800 * time.Millisecond
	rarestLooks  = 2500 * time.Millisecond // no longer gap counts
	keepLost     = 2 * time.Second         // without a box until a track ends
	keepHidden   = 5 * time.Second         // the same while another track covers it
	keepLeaving  = 700 * time.Millisecond  // the same at the edge that it moves to
	coverShare   = 0.25                    // of a track that another one covers
	matchReach   = 0.7                     // share by which boxes grow on every side to meet
	matchLeast   = 0.12                    // overlap of the grown boxes
	matchHeights = 0.5                     // the smaller height over the larger
	touchEdge    = 0.025                   // gap of a side that touches the picture's edge
	keepPath     = 12 * time.Second
	nameShare    = 0.6 // of the votes for a class
	animalShare  = 0.8
	animalScore  = 0.85 // mean, and of the animals for which others are taken:
	doubtedScore = 0.95
)

// The groups of classes. Boxes are matched within a group: a detector calls one thing a car and a truck in turns.
const (
	person  = "person"
	vehicle = "vehicle"
	bicycle = "bicycle"
	animal  = "animal"
	thing   = "thing" // all others, which are not followed
)

func groupOf(class string) string {
	switch class {
	case person, bicycle:
		return class
	case vehicle, "car", "motorcycle", "bus", "truck", "train", "boat", "airplane":
		return vehicle
	case animal, "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe":
		return animal
	}
	return thing
}

// track is one thing that is followed.
type track struct {
	id     int // also of the track that it continues
	group  string
	at     time.Duration // of the last box
	box    area
	speed  area // a second
	score  float32
	votes  map[string]float64 // sums of the scores of sure boxes
	looks  map[string]int     // numbers of sure boxes
	hits   int
	sure   bool // believed
	sureAt time.Duration
	born   time.Duration
	first  area
	path   []point
	hidden bool

	pace  pace
	stood stand
	wears worn
	// passages are where it is, by region.
	passages map[*ground]*passage
	// crossed and told are set when the facts say so.
	crossed bool
	told    bool
}

type point struct {
	at  time.Duration
	box area
}

// name returns the class if its votes are clear, else the group.
func (t *track) name() string {
	best, total := "", 0.0
	for _, name := range slices.Sorted(maps.Keys(t.votes)) {
		total += t.votes[name]
		if best == "" || t.votes[name] > t.votes[best] {
			best = name
		}
	}
	share := nameShare
	if t.group == animal {
		share = animalShare
		least := animalScore
		if best == "sheep" || best == "cow" || best == "bear" {
			least = doubtedScore
		}
		if t.votes[best] < least*float64(t.looks[best]) {
			return animal
		}
	}
	if t.votes[best] < share*total {
		return t.group
	}
	return best
}

// expected returns the predicted box. The speed counts for one second at most.
func (t *track) expected(now time.Duration) area {
	return t.box.plus(min(now-t.at, time.Second).Seconds(), t.speed)
}

// since returns the newest point that is at least so old; false if the track is younger.
func (t *track) since(age time.Duration) (point, bool) {
	for _, p := range slices.Backward(t.path) {
		if p.at <= t.at-age+time.Microsecond {
			return p, true
		}
	}
	return point{}, false
}

// startSpeed and endSpeed return mean speeds over the first and last part of the path, a second.
func (t *track) startSpeed() area {
	late := t.path[min(1, len(t.path)-1)]
	for _, p := range t.path[1:] {
		if p.at-t.path[0].at <= speedSpan {
			late = p
		}
	}
	return meanSpeed(t.path[0], late)
}

func (t *track) endSpeed() area {
	last := t.path[len(t.path)-1]
	for _, p := range t.path[:len(t.path)-1] {
		if last.at-p.at <= speedSpan {
			return meanSpeed(p, last)
		}
	}
	return meanSpeed(t.path[max(0, len(t.path)-2)], last)
}

func meanSpeed(a, b point) area {
	if b.at <= a.at {
		return area{}
	}
	return area{}.plus(1/(b.at-a.at).Seconds(), b.box.plus(-1, a.box))
}

// touches reports whether an area is at a side of the picture, and leaves for it if the speed is given.
func touches(a, v area, leaving float64, sides ...side) bool {
	for _, g := range a.gaps(v) {
		if g.size < touchEdge && -g.departing >= leaving && (len(sides) == 0 || slices.Contains(sides, g.side)) {
			return true
		}
	}
	return false
}

// update continues the track with a box.
func (t *track) update(now, gap time.Duration, b Box) {
	box, dt := areaOf(b), (now - t.at).Seconds()
	v := area{}.plus(1/max(dt, 1e-3), box.plus(-1, t.box))
	expected := t.expected(now)
	if t.hits > 1 {
		v = t.speed.mixed(0.4, v)
	}
	t.speed = v.limited(1)
	if b.Score >= SureScore {
		if now-t.sureAt > max(believeGap, 2*gap) {
			t.hits = 0
		}
		if t.hits++; gap >= rareLooks && b.Score >= clearScore {
			t.hits++ // for the looks that were left out
		}
		t.sureAt = now
		t.votes[b.Class] += float64(b.Score)
		t.looks[b.Class]++
	}
	t.box, t.at, t.score = expected.mixed(0.75, box), now, b.Score // detectors shake
	t.path = slices.DeleteFunc(t.path, func(p point) bool { return p.at <= now-keepPath })
	t.path = append(t.path, point{now, t.box})
}

// continues takes over from a track that was lost a moment ago.
func (t *track) continues(old *track) {
	t.id, t.born, t.first, t.pace, t.stood, t.crossed, t.told = old.id, old.born, old.first, old.pace, old.stood, old.crossed, old.told
	t.passages = old.passages
	for name, v := range old.votes {
		t.votes[name] += v
		t.looks[name] += old.looks[name]
	}
	t.wears.add(old.wears)
}

// tracker follows boxes from look to look.
type tracker struct {
	tracks []*track
	last   int           // number of the newest track
	at     time.Duration // of the last look
	gap    time.Duration // before it
}

// push takes the boxes of a look and returns the tracks that are believed now for the first time, and those that ended.
func (k *tracker) push(now time.Duration, boxes []Box) (began, ended []*track) {
	k.gap, k.at = min(now-k.at, rarestLooks), now
	free := slices.DeleteFunc(slices.Clone(boxes), func(b Box) bool { return groupOf(b.Class) == thing })
	for _, level := range [][2]float32{{SureScore, 2}, {faintScore, SureScore}} {
		for _, p := range k.pairs(now, free, level[0], level[1]) {
			p.track.update(now, k.gap, free[p.box])
			free[p.box].Score = -1 // taken
			if !p.track.sure && p.track.hits >= believeHits {
				p.track.sure = true
				began = append(began, p.track)
			}
		}
	}
	for _, b := range free {
		if b.Score >= SureScore {
			k.begin(now, b)
		}
	}
	k.tracks = slices.DeleteFunc(k.tracks, func(t *track) bool {
		gone := now-t.at > k.patience(t, now)
		if gone && t.sure {
			ended = append(ended, t)
		}
		return gone
	})
	return began, ended
}

func (k *tracker) begin(now time.Duration, b Box) {
	k.last++
	k.tracks = append(k.tracks, &track{
		id: k.last, group: groupOf(b.Class), at: now, box: areaOf(b), first: areaOf(b), born: now, score: b.Score, hits: 1, sureAt: now,
		votes: map[string]float64{b.Class: float64(b.Score)}, looks: map[string]int{b.Class: 1}, path: []point{{now, areaOf(b)}},
	})
}

// patience returns how long a track lives without a box.
func (k *tracker) patience(t *track, now time.Duration) time.Duration {
	t.hidden = false
	if !t.sure {
		return max(believeGap/2, k.gap)
	}
	b := t.expected(now)
	for _, o := range k.tracks {
		covers := o != t && o.at == now && o.sure && (o.group == person || o.group == vehicle)
		if covers && b.common(o.box) > coverShare*max(b.size(), 1e-6) {
			t.hidden = true
			return keepHidden
		}
	}
	if touches(b, t.speed, 0.01) || touches(t.box, t.speed, 0.01) {
		return keepLeaving
	}
	return max(keepLost, k.gap)
}

type pair struct {
	track *track
	box   int
	fit   float64
}

// pairs matches the tracks without a box of now with boxes of the scores from least to below most, the best pair first.
func (k *tracker) pairs(now time.Duration, boxes []Box, least, most float32) []pair {
	var all []pair
	reach := matchReach * max(1, k.gap.Seconds()/usualLooks.Seconds())
	for _, t := range k.tracks {
		if t.at >= now {
			continue
		}
		expected := t.expected(now)
		for i, b := range boxes {
			if b.Score < least || b.Score >= most || groupOf(b.Class) != t.group {
				continue
			}
			box := areaOf(b)
			near := expected.grown(reach).iou(box.grown(reach))
			if near >= matchLeast && expected.alike(box) >= matchHeights {
				all = append(all, pair{t, i, expected.iou(box) + near/2})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int { return cmp.Compare(b.fit, a.fit) })
	tracks, taken := map[*track]bool{}, map[int]bool{}
	return slices.DeleteFunc(all, func(p pair) bool {
		if tracks[p.track] || taken[p.box] {
			return true
		}
		tracks[p.track], taken[p.box] = true, true
		return false
	})
}

// places returns where a track is: left, middle, right. They overlap, so that a step does not end a rule.
func (t *track) places() []string {
	var out []string
	x, _ := t.box.centre()
	for _, p := range []struct {
		name     string
		from, to float64
	}{{"left", 0, 0.4}, {"middle", 0.3, 0.7}, {"right", 0.6, 1}} {
		if x >= p.from && x <= p.to {
			out = append(out, p.name)
		}
	}
	return out
}
