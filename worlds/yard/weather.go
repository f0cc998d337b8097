package yard

import (
	"math/rand/v2"
	"sort"

	"touchline/worlds/paint"
)

// Lengths in milliseconds.
const (
	twilightMS  = 30_000 // dusk and dawn
	twilightAt  = 5000   // when it begins to show
	dayMS       = 240_000
	dayMoreMS   = 120_000
	rainInMS    = 1500
	rainOutMS   = 2500
	wetInMS     = 12_000
	wetOutMS    = 40_000
	rainShowsMS = 300  // after the first drops
	lampRampMS  = 3000 // a gas lamp warms up
	flickerMS   = 2500 // of the lamp dying
)

// Steps of the light. Each has a background of its own.
const (
	daySteps  = 64
	lampSteps = 4
	wetSteps  = 16
	greySteps = 8
	poolSteps = 64
)

// period is an interval in milliseconds.
type period struct{ start, end int64 }

func (p period) holds(t int64) bool { return t >= p.start && t < p.end }

// phase is a day or a night. It begins with dawn or dusk.
type phase struct {
	period
	night    bool
	failures []period // of the lamp
}

// weather is day and night, rain and the lamp, generated as far as needed.
type weather struct {
	rng    *rand.Rand // for days and nights
	drops  *rand.Rand // for rain
	still  bool
	phases []phase
	rains  []period
	events []Event
}

func newWeather(seed uint64, still bool) *weather {
	w := &weather{rng: rand.New(rand.NewPCG(seed, 0x6c69676874)), drops: rand.New(rand.NewPCG(seed, 0x7261696e)), still: still}
	first := phase{night: w.rng.IntN(2) == 0}
	first.start = -w.between(0.13, 0.6)
	first.end = first.start + dayMS + w.rng.Int64N(dayMoreMS)
	if still {
		first.end = forever
		w.phases = []phase{first}
		return w
	}
	w.add(first)
	return w
}

// between returns a time between two shares of the shortest day.
func (w *weather) between(lo, hi float64) int64 {
	return int64(dayMS * (lo + (hi-lo)*w.rng.Float64()))
}

// until generates the weather to beyond the given time.
func (w *weather) until(t int64) {
	for !w.still && w.phases[len(w.phases)-1].end <= t+2*twilightMS {
		last := w.phases[len(w.phases)-1]
		w.add(phase{night: !last.night, period: period{last.end, last.end + dayMS + w.rng.Int64N(dayMoreMS)}})
	}
	for !w.still && (len(w.rains) == 0 || w.rains[len(w.rains)-1].end <= t+2*wetOutMS) {
		from := int64(0)
		if n := len(w.rains); n > 0 {
			from = w.rains[n-1].end + 90_000
		}
		r := period{start: from + 20_000 + w.drops.Int64N(130_000)}
		r.end = r.start + 40_000 + w.drops.Int64N(50_000)
		w.rains = append(w.rains, r)
		w.event(Event{At: ms(r.start + rainShowsMS), Kind: RainStart, Text: "it starts to rain"})
		w.event(Event{At: ms(r.end), Kind: RainEnd, Text: "the rain stops"})
	}
}

// add adds a day or a night.
func (w *weather) add(p phase) {
	if p.start > 0 {
		e := Event{At: ms(p.start + twilightAt), Kind: Dawn, Text: "day breaks over the yard"}
		if p.night {
			e.Kind, e.Text = Dusk, "dusk falls over the yard"
		}
		w.event(e)
	}
	if p.night {
		on := p.start + twilightMS/2
		if on > 0 {
			w.event(Event{At: ms(on), Kind: LampOn, Place: placeYard, Text: "the lamp comes on"})
		}
		for at := max(on, 0) + w.between(0.1, 0.35); at+60_000 < p.end; at += w.between(0.4, 0.8) {
			f := period{at, at + 18_000 + w.rng.Int64N(18_000)}
			p.failures = append(p.failures, f)
			w.event(Event{At: ms(f.start), Kind: LampFails, Place: placeYard, Text: "the lamp goes out"})
			w.event(Event{At: ms(f.end), Kind: LampOn, Place: placeYard, Text: "the lamp comes back on"})
		}
	}
	w.phases = append(w.phases, p)
}

func (w *weather) event(e Event) { w.events = append(w.events, e) }

// sky is the light of a moment, in whole steps.
type sky struct {
	day  int // daySteps = noon
	lamp int // lampSteps = on
	wet  int // wetSteps = soaked
	grey int // greySteps = clouded over
	dawn bool
}

// outlook is the weather at a moment.
type outlook struct {
	sky
	rain  float64 // 0 to 1
	night bool
	lamp  string
}

func (w *weather) at(t int64) outlook {
	i := sort.Search(len(w.phases), func(i int) bool { return w.phases[i].end > t })
	p := &w.phases[min(i, len(w.phases)-1)]
	k := share(t-p.start, twilightMS)
	out := outlook{lamp: "off"}
	day := k
	if p.night {
		day = 1 - k
	}
	out.day = int(smooth(day)*daySteps + 0.5)
	out.night = out.day < daySteps/2
	out.dawn = !p.night && out.day > 0 && out.day < daySteps
	out.sky.lamp, out.lamp = p.lampAt(t)
	if i > 0 && !p.night && t < p.start+twilightMS/2 { // the lamp is still on at dawn
		out.sky.lamp, out.lamp = lampSteps, "on"
	}
	j := sort.Search(len(w.rains), func(i int) bool { return w.rains[i].end+wetOutMS > t })
	if j < len(w.rains) {
		r := w.rains[j]
		out.rain = min(share(t-r.start, rainInMS), share(r.end-t, rainOutMS))
		wet := min(share(t-r.start, wetInMS), share(r.end+wetOutMS-t, wetOutMS))
		out.wet = int(wet*wetSteps + 0.5)
		out.grey = int(min(share(t-r.start, 2*rainInMS), share(r.end+2*rainInMS-t, 2*rainInMS))*greySteps + 0.5)
	}
	return out
}

// lampAt returns the lamp's step and state in this day or night.
func (p *phase) lampAt(t int64) (int, string) {
	on := p.start + twilightMS/2
	if !p.night || t < on {
		return 0, "off"
	}
	since := t - on
	for _, f := range p.failures {
		if f.holds(t) {
			// It flickers before it fails.
			if gone := t - f.start; gone < flickerMS && gone/150%2 == 1 {
				return lampSteps / 2, "broken"
			}
			return 0, "broken"
		}
		if t >= f.end {
			since = t - f.end
		}
	}
	return 1 + int(share(since, lampRampMS)*(lampSteps-1)), "on"
}

// raining reports whether drops are visible.
func (w *weather) raining(t int64) bool {
	j := sort.Search(len(w.rains), func(i int) bool { return w.rains[i].end > t })
	return j < len(w.rains) && t >= w.rains[j].start+rainShowsMS
}

// light returns the light on a place; pool is the lamp's share there, 0 to poolSteps.
func (s sky) light(pool int) paint.Light {
	mix := func(a, b int, k, of int) int { return a + (b-a)*k/of }
	level, du, dv := mix(96, 256, s.day, daySteps), mix(34, 0, s.day, daySteps), mix(-7, 0, s.day, daySteps)
	// Between day and night the light is amber in the evening and pink in the morning.
	switch twilight := min(s.day, daySteps-s.day); {
	case s.dawn:
		du += 14 * twilight / daySteps
		dv += 14 * twilight / daySteps
	default:
		du -= 24 * twilight / daySteps
		dv += 14 * twilight / daySteps
	}
	level -= level * 36 * s.grey / greySteps / 256
	du += 3 * s.grey / greySteps
	k := pool * s.lamp
	return paint.Light{
		Level: int16(mix(level, max(level, 242), k, poolSteps*lampSteps)),
		DU:    int16(mix(du, -12, k, poolSteps*lampSteps)),
		DV:    int16(mix(dv, 7, k, poolSteps*lampSteps)),
	}
}

// share returns the elapsed share of a length, 0 to 1.
func share(passed, length int64) float64 {
	return max(0, min(1, float64(passed)/float64(length)))
}

// smooth goes from 0 to 1 with a soft start and end.
func smooth(k float64) float64 { return k * k * (3 - 2*k) }
