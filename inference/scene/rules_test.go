package scene_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/scene"
)

func TestRules(t *testing.T) {
	calm := picture{pattern: 1, light: 1, x: 100, y: 100}
	walk := func(i int) picture { p := calm; p.x += 8 * i; return p }
	all := []string{
		"cut", "still", "Dark", " bright", "motion  in left", "motion in right", "motion in top", "motion in bottom", "motion in centre",
		"motion in 50, 50, 50, 50", "a goal is scored",
	}
	tests := []struct {
		name string
		then func(i int) picture
		want []int // numbers of the rules
	}{
		{"nothing moves", func(int) picture { return calm }, []int{2}},
		{"movement", walk, []int{5, 6, 7, 8, 9, 10}},
		{"movement on the left", func(i int) picture { p := calm; p.x = 100 + 4*i - 8*max(0, i-5); p.x -= 80; return p }, []int{5, 7, 8, 9}},
		{"a cut", func(int) picture { p := calm; p.pattern = 2; return p }, []int{1, 2}},
		{"dark", func(int) picture { p := calm; p.light = 0.15; return p }, []int{2, 3}},
		{"bright", func(i int) picture { p := calm; p.white = min(0.7, 0.05*float64(i)); return p }, []int{2, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := scene.Model{}.NewSession()
			require.NoError(t, err)
			at := time.Duration(0)
			push := func(p picture) inference.Frame {
				f := p.frame(at)
				at += 200 * time.Millisecond
				s.Observe(f)
				return f
			}
			for range 20 {
				push(calm)
			}
			var last inference.Frame
			for i := range 12 {
				last = push(tt.then(i))
			}
			answer := generate(t, s, inference.Prompt{Frames: []inference.Frame{last}, Rules: all})
			t.Log(answer)
			require.Equal(t, tt.want, numbers(t, answer))
		})
	}
}

// numbers returns the rules that fired.
func numbers(t *testing.T, answer string) (out []int) {
	t.Helper()
	var a struct {
		Fired []struct {
			Rule   int
			Reason string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &a))
	for _, f := range a.Fired {
		require.NotEmpty(t, f.Reason)
		out = append(out, f.Rule)
	}
	return out
}

func TestCheckRule(t *testing.T) {
	for _, when := range append(scene.RuleNames(), "CUT", "motion in 0,0,100,100", " motion in  12.5, 0,1 ,1 ") {
		require.NoError(t, scene.CheckRule(when), when)
	}
	for _, when := range []string{
		"", "a cut", "motion", "motion in", "motion in the left", "motion in 1,2,3", "motion in 0,0,0,10", "motion in 50,0,51,10",
		"motion in NaN,0,1,1", "motion in -1,0,1,1", "a goal is scored",
	} {
		require.ErrorContains(t, scene.CheckRule(when), `the scene engine answers the rules cut, still, dark, bright, motion in left`, when)
	}
}

func FuzzCheckRule(f *testing.F) {
	for _, when := range append(scene.RuleNames(), "motion in 1,2,3,4", "motion in Inf,0,1,1", "") {
		f.Add(when)
	}
	f.Fuzz(func(t *testing.T, when string) {
		s, err := scene.Model{}.NewSession()
		require.NoError(t, err)
		p := picture{pattern: 1, light: 1, x: 100, y: 100}
		require.Contains(t, generate(t, s, inference.Prompt{Frames: []inference.Frame{p.frame(0)}, Rules: []string{when}}), `{"fired":[`)
		_ = scene.CheckRule(when)
	})
}
