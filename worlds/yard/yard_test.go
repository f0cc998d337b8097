package yard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds/paint"
	"touchline/worlds/yard"
)

const (
	seenWidth  = 448
	seenHeight = 252
)

func draw(y *yard.Yard, at time.Duration, width, height int) []byte {
	buf := make([]byte, paint.I420Size(width, height))
	c := paint.NewCanvas(buf, width, height)
	y.Draw(at, &c)
	return buf
}

func TestSameSeedSamePicture(t *testing.T) {
	a, b := yard.New(4, 320, 180, false), yard.New(4, 320, 180, false)
	// b is asked in another order.
	late, early := draw(b, 200*time.Second, 320, 180), draw(b, 9*time.Second, 320, 180)
	require.Equal(t, a.Events(0, 5*time.Minute), b.Events(0, 5*time.Minute))
	require.True(t, bytes.Equal(draw(a, 9*time.Second, 320, 180), early))
	require.True(t, bytes.Equal(draw(a, 200*time.Second, 320, 180), late))
	for at := time.Duration(0); at < 5*time.Minute; at += 3700 * time.Millisecond {
		a.Truth(at)
		require.Equal(t, a.Truth(5*time.Minute-at), b.Truth(5*time.Minute-at))
	}
	other := yard.New(5, 320, 180, false)
	require.False(t, bytes.Equal(early, draw(other, 9*time.Second, 320, 180)))
	require.NotEqual(t, a.Events(0, 5*time.Minute), other.Events(0, 5*time.Minute))
}

func TestSizeDoesNotChangeTheYard(t *testing.T) {
	a, b := yard.New(4, 640, 360, false), yard.New(4, 1280, 720, false)
	require.Equal(t, a.Events(0, 5*time.Minute), b.Events(0, 5*time.Minute))
	require.Equal(t, a.Truth(31*time.Second), b.Truth(31*time.Second))
}

func TestEveryKindOccurs(t *testing.T) {
	const length = 30 * time.Minute
	for seed := range uint64(20) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		count := map[yard.Kind]int{}
		last := time.Duration(0)
		for _, e := range y.Events(0, length) {
			count[e.Kind]++
			require.NotEmpty(t, e.Text)
			require.GreaterOrEqual(t, e.At, last, "in order")
			last = e.At
		}
		for _, k := range yard.Kinds() {
			require.Positive(t, count[k], "seed %d has no %s", seed, k)
		}
		// A part of the list is a part of the whole.
		all := y.Events(0, length)
		require.Equal(t, all[7:19], y.Events(all[7].At, all[18].At+1))
	}
}

func TestPaceOfTheYard(t *testing.T) {
	const length = 30 * time.Minute
	total := 0
	for seed := range uint64(20) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		events := y.Events(0, length)
		total += len(events)
		for i := 1; i < len(events); i++ {
			require.Less(t, events[i].At-events[i-1].At, 35*time.Second, "seed %d at %v", seed, events[i-1].At)
		}
		day, night := false, false
		for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
			now := y.Weather(at)
			day, night = day || now.Light == 1, night || now.Light == 0
		}
		require.True(t, day && night, "seed %d: ten minutes show both", seed)
	}
	perMinute := float64(total) / 20 / length.Minutes()
	require.InDelta(t, 4.7, perMinute, 0.7)
}

// find returns what has an id, nil for none.
func find[T any](all []T, id func(T) int, want int) *T {
	for i := range all {
		if id(all[i]) == want {
			return &all[i]
		}
	}
	return nil
}

// gone lists the parcels of one moment that are not there at another.
func gone(now, then yard.Truth) []yard.Parcel {
	return slices.DeleteFunc(slices.Clone(now.Parcels), func(p yard.Parcel) bool { return slices.Contains(then.Parcels, p) })
}

func TestEventsAgreeWithTheTruth(t *testing.T) {
	for seed := range uint64(8) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		if seed%2 == 1 {
			y.Hurry()
		}
		for _, e := range y.Events(3*time.Second, 20*time.Minute) {
			before, soon, later := y.Truth(e.At-400*time.Millisecond), y.Truth(e.At+500*time.Millisecond), y.Truth(e.At+4*time.Second)
			person := func(tr yard.Truth) *yard.Person {
				return find(tr.People, func(p yard.Person) int { return p.ID }, e.ID)
			}
			car := func(tr yard.Truth) *yard.Car { return find(tr.Cars, func(c yard.Car) int { return c.ID }, e.ID) }
			what := fmt.Sprintf("seed %d: %s at %v", seed, e.Text, e.At)
			switch e.Kind {
			case yard.Arrive:
				require.Nil(t, person(before), what)
				require.NotNil(t, person(soon), what)
				require.Equal(t, e.Coat, person(soon).Coat)
				if e.Place == "gate" {
					require.Equal(t, "open", soon.Gate, what)
				}
				if e.Place == "door" {
					require.Equal(t, "open", soon.Door, what)
				}
			case yard.Leave:
				require.NotNil(t, person(before), what)
				require.Equal(t, e.Place, person(before).Place, what)
				require.Nil(t, person(later), what)
			case yard.ParcelLeft:
				require.True(t, person(before).Parcel, what)
				require.False(t, person(soon).Parcel, what)
				require.Equal(t, "leaving_parcel", person(soon).Doing, what)
				require.NotEmpty(t, gone(soon, before), what)
			case yard.ParcelTaken:
				require.False(t, person(before).Parcel, what)
				require.True(t, person(soon).Parcel, what)
				require.Equal(t, "taking_parcel", person(soon).Doing, what)
				require.NotEmpty(t, gone(before, soon), what)
			case yard.CarArrive:
				require.Nil(t, car(before), what)
				require.Equal(t, "arriving", car(soon).Doing, what)
				require.Equal(t, e.Colour, car(soon).Colour, what)
				require.Equal(t, "parked", car(y.Truth(e.At+9*time.Second)).Doing, what)
			case yard.CarLeave:
				require.Equal(t, "parked", car(before).Doing, what)
				require.Equal(t, "leaving", car(soon).Doing, what)
				require.Nil(t, car(y.Truth(e.At+9*time.Second)), what)
			case yard.Dog, yard.Cat:
				animal := find(y.Truth(e.At+time.Second).Animals, func(a yard.Animal) int { return a.ID }, e.ID)
				require.NotNil(t, animal, what)
				require.Equal(t, e.Animal, animal.Kind)
			case yard.RainStart, yard.RainEnd:
				require.Equal(t, e.Kind == yard.RainStart, y.Weather(e.At+100*time.Millisecond).Rain, what)
				require.Equal(t, e.Kind != yard.RainStart, y.Weather(e.At-100*time.Millisecond).Rain, what)
			case yard.LampFails:
				require.Equal(t, "on", before.Lamp, what)
				require.Equal(t, "broken", later.Lamp, what)
			case yard.LampOn:
				require.NotEqual(t, "on", before.Lamp, what)
				require.Equal(t, "on", soon.Lamp, what)
			case yard.Dusk, yard.Dawn:
				require.Equal(t, e.Kind == yard.Dusk, y.Weather(e.At+time.Minute).Night, what)
				require.NotEqual(t, e.Kind == yard.Dusk, y.Weather(e.At).Night, what)
			}
		}
	}
}

// Everything is large enough for a small picture, and no more than three people are about.
func TestSizes(t *testing.T) {
	for seed := range uint64(20) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		for at := time.Duration(0); at < 20*time.Minute; at += 1300 * time.Millisecond {
			now := y.Truth(at)
			require.LessOrEqual(t, len(now.People), 3)
			for _, p := range now.People {
				if p.Box[3] < 1 {
					require.GreaterOrEqual(t, (p.Box[3]-p.Box[1])*seenHeight, 39.95, "%+v", p)
				}
			}
			for _, p := range now.Parcels {
				require.GreaterOrEqual(t, (p.Box[3]-p.Box[1])*seenHeight, 9.0)
				require.GreaterOrEqual(t, (p.Box[2]-p.Box[0])*seenWidth, 9.0)
			}
		}
	}
}

// In a yard that hurries several people are about much more often, and no two of them in the same coat.
func TestHurry(t *testing.T) {
	company := func(hurry bool) (share float64) {
		const looks = 2000
		for seed := range uint64(4) {
			y := yard.New(seed, seenWidth, seenHeight, false)
			if hurry {
				y.Hurry()
			}
			for n := range looks / 4 {
				people := y.Truth(time.Duration(n) * time.Second).People
				coats := map[string]bool{}
				for _, p := range people {
					require.False(t, coats[p.Coat], "seed %d at %d s: two in %s", seed, n, p.Coat)
					coats[p.Coat] = true
				}
				if len(people) > 1 {
					share += 1.0 / looks
				}
			}
		}
		return share
	}
	require.Less(t, company(false), 0.1)
	require.Greater(t, company(true), 0.2)
}

// A shifted clock changes the clock only.
func TestShiftClock(t *testing.T) {
	plain, shifted := yard.New(2, seenWidth, seenHeight, false), yard.New(2, seenWidth, seenHeight, false)
	shifted.ShiftClock(20 * time.Minute)
	for at := time.Duration(0); at < 5*time.Minute; at += 3100 * time.Millisecond {
		a, b := plain.Truth(at), shifted.Truth(at)
		shows := func(tr yard.Truth) time.Time {
			clock, err := time.Parse(time.DateTime, tr.Clock)
			require.NoError(t, err)
			return clock
		}
		require.Equal(t, 20*time.Minute, shows(b).Sub(shows(a)))
		b.Clock = a.Clock
		require.Equal(t, a, b)
	}
}

func TestTruthRoundTrip(t *testing.T) {
	y := yard.New(2, seenWidth, seenHeight, false)
	empty, err := json.Marshal(yard.New(1, seenWidth, seenHeight, true).Truth(0))
	require.NoError(t, err)
	require.Contains(t, string(empty), `"people":[]`)
	for at := time.Duration(0); at < 3*time.Minute; at += 1700 * time.Millisecond {
		want := y.Truth(at)
		line, err := json.Marshal(want)
		require.NoError(t, err)
		var got yard.Truth
		require.NoError(t, json.Unmarshal(line, &got))
		require.Equal(t, want, got)
	}
}

// mean colour of a part of the picture.
func mean(pic []byte, x0, y0, x1, y1 float64) (y, u, v float64) {
	n, half := seenWidth*seenHeight, seenWidth/2
	count := 0.0
	for py := int(y0 * seenHeight); py < int(y1*seenHeight); py++ {
		for px := int(x0 * seenWidth); px < int(x1*seenWidth); px++ {
			y += float64(pic[py*seenWidth+px])
			u += float64(pic[n+py/2*half+px/2])
			v += float64(pic[n+n/4+py/2*half+px/2])
			count++
		}
	}
	return y / count, u / count, v / count
}

// By day a coat has its colour on the picture; a person who is alone is where the truth says.
func TestCoatsShowTheirColour(t *testing.T) {
	isColour := func(coat string, y, u, v float64) bool {
		switch coat {
		case "red":
			return v > 165 && u < 128
		case "blue":
			return u > 150 && v < 128
		case "green":
			return u < 122 && v < 112
		case "yellow":
			return u < 85 && y > 120
		case "white":
			return y > 165
		case "black":
			return y < 75
		case "orange":
			return v > 150 && u < 105
		}
		return false
	}
	seen := map[string]int{}
	for seed := range uint64(6) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		for at := time.Duration(0); at < 10*time.Minute; at += 2300 * time.Millisecond {
			now := y.Truth(at)
			if w := y.Weather(at); w.Light < 1 || len(now.People) != 1 {
				continue
			}
			p := now.People[0]
			wide, tall := p.Box[2]-p.Box[0], p.Box[3]-p.Box[1]
			driving := slices.ContainsFunc(now.Cars, func(c yard.Car) bool { return c.Doing != "parked" })
			atLamp := math.Abs((p.Box[0]+p.Box[2])/2-0.49) < 0.03
			if p.Place != "path" || p.Parcel || driving || atLamp {
				continue
			}
			l, u, v := mean(draw(y, at, seenWidth, seenHeight), p.Box[0]+0.4*wide, p.Box[1]+0.25*tall, p.Box[0]+0.6*wide, p.Box[1]+0.5*tall)
			require.True(t, isColour(p.Coat, l, u, v), "seed %d at %v: a %s coat is %.0f %.0f %.0f", seed, at, p.Coat, l, u, v)
			seen[p.Coat]++
		}
	}
	require.GreaterOrEqual(t, len(seen), 5)
}

// A night is darker than a day, a lamp that fails makes it darker still, and rain moves.
func TestWeatherShows(t *testing.T) {
	bright := map[string]float64{}
	for seed := range uint64(4) {
		y := yard.New(seed, seenWidth, seenHeight, false)
		for at := time.Duration(0); at < 15*time.Minute; at += 5 * time.Second {
			now, w := y.Truth(at), y.Weather(at)
			if w.Light != 0 && w.Light != 1 || w.Rain {
				continue
			}
			name := fmt.Sprintf("%v %s", w.Night, now.Lamp)
			if _, done := bright[name]; !done {
				bright[name], _, _ = mean(draw(y, at, seenWidth, seenHeight), 0, 0, 1, 1)
			}
		}
	}
	require.Greater(t, bright["false off"], 1.4*bright["true on"])
	require.Greater(t, bright["true on"], 1.2*bright["true broken"])
}

// A lamp that fails flickers long enough for two looks.
// The lamp flickers as it dies, and warms up as it comes on: for longer than a look lasts.
func TestLampFlickers(t *testing.T) {
	y := yard.New(2, seenWidth, seenHeight, false)
	count := map[yard.Kind]int{}
	for _, e := range y.Events(10*time.Second, time.Hour) {
		if e.Kind != yard.LampFails && e.Kind != yard.LampOn || y.Weather(e.At).Light > 0 {
			continue
		}
		count[e.Kind]++
		levels := map[int]bool{}
		for at := 1200 * time.Millisecond; at < 2400*time.Millisecond; at += 100 * time.Millisecond {
			level, _, _ := mean(draw(y, e.At+at, seenWidth, seenHeight), 0.35, 0.3, 0.65, 0.6)
			levels[int(level+0.5)] = true
		}
		require.Greater(t, len(levels), 1, "%v", e)
	}
	require.Greater(t, count[yard.LampFails], 1)
	require.Greater(t, count[yard.LampOn], 1)
}

func TestStillYardNeverMoves(t *testing.T) {
	y := yard.New(3, seenWidth, seenHeight, true)
	below := func(at time.Duration) []byte {
		return draw(y, at, seenWidth, seenHeight)[seenWidth*28 : seenWidth*seenHeight]
	}
	require.True(t, bytes.Equal(below(0), below(17*time.Minute)))
	require.False(t, bytes.Equal(draw(y, 0, seenWidth, seenHeight), draw(y, time.Second, seenWidth, seenHeight)), "the clock goes on")
	require.Empty(t, y.Events(0, time.Hour))
}

func TestSoundIsTheSameHoweverItIsAsked(t *testing.T) {
	a, b := yard.New(4, seenWidth, seenHeight, false), yard.New(4, seenWidth, seenHeight, false)
	whole := make([]int16, 30*yard.SoundRate)
	a.Sound(0, whole)
	for _, from := range []int{20 * yard.SoundRate, 12345, 1001 * 960} { // also backwards
		piece := make([]int16, 960)
		b.Sound(int64(from), piece)
		require.Equal(t, whole[from:from+960], piece)
	}
	require.NotEqual(t, make([]int16, 960), whole[:960])
}

// A car and a dog are louder than the wind.
func TestSoundTellsWhatHappens(t *testing.T) {
	y := yard.New(4, seenWidth, seenHeight, false)
	level := func(from time.Duration) float64 {
		pcm := make([]int16, yard.SoundRate)
		y.Sound(int64(from*yard.SoundRate/time.Second), pcm)
		sum := 0.0
		for _, v := range pcm {
			sum += float64(v) * float64(v)
		}
		return math.Sqrt(sum / float64(len(pcm)))
	}
	heard := map[yard.Kind]bool{}
	for _, e := range y.Events(20*time.Second, 15*time.Minute) {
		if e.Kind == yard.CarArrive || e.Kind == yard.Dog {
			require.Greater(t, level(e.At+500*time.Millisecond), 1.3*level(e.At-time.Second), "%s at %v", e.Text, e.At)
			heard[e.Kind] = true
		}
	}
	require.Len(t, heard, 2)
}

// BenchmarkRender720p draws a minute with rain and people in it. The metric is
// the share of one core that 30 frames a second take.
func BenchmarkRender720p(b *testing.B) {
	y := yard.New(1, 1280, 720, false)
	buf := make([]byte, paint.I420Size(1280, 720))
	c := paint.NewCanvas(buf, 1280, 720)
	y.Draw(0, &c)
	n := 0
	for b.Loop() {
		y.Draw(time.Duration(n)*time.Second/30, &c)
		n++
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Second)*30*100, "%core@30fps")
}
