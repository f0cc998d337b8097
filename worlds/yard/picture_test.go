package yard_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds/yard"
)

// thing is what moves in the yard, with its place on the picture.
type thing struct {
	name string
	box  yard.Box
}

// things lists what moves at a moment, and describes all the rest.
func things(now yard.Truth) (moving []thing, rest string) {
	var parked []yard.Car
	for _, p := range now.People {
		moving = append(moving, thing{fmt.Sprintf("person %s, parcel %t", p.Doing, p.Parcel), p.Box})
	}
	for _, a := range now.Animals {
		moving = append(moving, thing{fmt.Sprintf("%s, moving %t", a.Kind, a.Moving), a.Box})
	}
	for _, c := range now.Cars {
		if c.Doing == "parked" {
			parked = append(parked, c)
		} else {
			moving = append(moving, thing{"car " + c.Doing, c.Box})
		}
	}
	return moving, fmt.Sprint(parked, now.Parcels, now.Lamp, now.Gate, now.Door)
}

// without returns the nearest moment that differs only in that nothing moves.
func without(y *yard.Yard, at time.Duration) (time.Duration, bool) {
	_, rest := things(y.Truth(at))
	for d := 500 * time.Millisecond; d < 40*time.Second; d += 500 * time.Millisecond {
		for _, other := range []time.Duration{max(0, at-d), at + d} {
			moving, r := things(y.Truth(other))
			if len(moving) == 0 && r == rest && y.Weather(other) == y.Weather(at) {
				return other, true
			}
		}
	}
	return 0, false
}

// changes returns the shares of pixels inside and outside of a box by which two
// pictures differ, below the camera's line of text.
func changes(a, b []byte, box yard.Box) (in, out float64) {
	differs := func(i int) bool { return max(a[i], b[i])-min(a[i], b[i]) > 8 }
	var pixels, changed [2]float64
	for py := seenHeight / 9; py < seenHeight; py++ {
		for px := range seenWidth {
			x, y := (float64(px)+0.5)/seenWidth, (float64(py)+0.5)/seenHeight
			part := 1
			if x >= box[0] && x < box[2] && y >= box[1] && y < box[3] {
				part = 0
			}
			pixels[part]++
			u := seenWidth*seenHeight + py/2*(seenWidth/2) + px/2
			if differs(py*seenWidth+px) || differs(u) || differs(u+seenWidth*seenHeight/4) {
				changed[part]++
			}
		}
	}
	return changed[0] / max(1, pixels[0]), changed[1] / pixels[1]
}

// By day and at night, whatever moves is on the picture where the truth says, and nothing else is.
func TestWhatMovesIsInItsBox(t *testing.T) {
	const samples = 7
	want := []string{
		"person coming, parcel false", "person coming, parcel true", "person going, parcel false", "person going, parcel true",
		"person standing, parcel false", "person walking, parcel false", "person walking, parcel true",
		"person leaving_parcel, parcel true", "person leaving_parcel, parcel false", "person taking_parcel, parcel false",
		"person taking_parcel, parcel true", "car arriving", "car leaving", "dog, moving true", "dog, moving false", "cat, moving true",
		"cat, moving false",
	}
	in, out := map[string][]float64{}, map[string][]float64{}
	for _, what := range want {
		in[what+", night true"], in[what+", night false"] = nil, nil
	}
	missing := len(in) * samples
	for seed := uint64(0); seed < 12 && missing > 0; seed++ {
		y := yard.New(seed, seenWidth, seenHeight, false)
		for at := time.Duration(0); at < 20*time.Minute; at += 500 * time.Millisecond {
			moving, _ := things(y.Truth(at))
			w := y.Weather(at)
			if len(moving) != 1 || w.Rain || w.Light != 0 && w.Light != 1 {
				continue
			}
			name := fmt.Sprintf("%s, night %t", moving[0].name, w.Night)
			if have, wanted := in[name]; !wanted || len(have) == samples {
				continue
			}
			if other, ok := without(y, at); ok {
				inside, outside := changes(draw(y, at, seenWidth, seenHeight), draw(y, other, seenWidth, seenHeight), moving[0].box)
				in[name], out[name] = append(in[name], inside), append(out[name], outside)
				missing--
			}
		}
	}
	for name := range in {
		require.Len(t, in[name], samples, name)
		slices.Sort(in[name])
		slices.Sort(out[name])
		require.Greater(t, in[name][samples/2], 0.35, "%s: %.2f", name, in[name])
		// In some of the samples the gate slides or the ground dries.
		require.Less(t, out[name][samples/4], 0.05, "%s: %.3f", name, out[name])
	}
}
