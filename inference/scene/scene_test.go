package scene_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/scene"
)

func newSession(tb testing.TB) *scene.Session {
	tb.Helper()
	s, err := scene.Model{}.NewSession()
	require.NoError(tb, err)
	session, ok := s.(*scene.Session)
	require.True(tb, ok)
	return session
}

func generate(tb testing.TB, s inference.Session, p inference.Prompt) string {
	tb.Helper()
	var text strings.Builder
	for chunk, err := range s.Generate(tb.Context(), p) {
		require.NoError(tb, err)
		require.Empty(tb, chunk.Audio)
		text.WriteString(chunk.Text)
	}
	return text.String()
}

// picture describes a frame of 448x252: pattern, light, and a movable block.
type picture struct {
	pattern uint64  // of the scene
	light   float64 // gain
	blue    int     // added to blue, taken from red
	x, y    int     // upper left corner of a group of blocks
	white   float64 // a veil
	noise   uint64  // seed of a little noise
}

func (p picture) frame(at time.Duration) inference.Frame {
	const w, h = 448, 252
	f := inference.Frame{PTS: at, Width: w, Height: h, Pix: make([]byte, w*h*3)}
	rng := rand.New(rand.NewPCG(p.pattern, 9))
	var cells [16 * 9][3]int
	for i := range cells {
		cells[i] = [3]int{40 + rng.IntN(150), 40 + rng.IntN(150), 40 + rng.IntN(150)}
	}
	grain := rand.New(rand.NewPCG(p.noise, 2))
	for y := range h {
		for x := range w {
			c := cells[y/28*16+x/28]
			if dx, dy := x-p.x, y-p.y; dx >= 0 && dx < 160 && dy >= 0 && dy < 60 && dx%40 < 20 && dy%30 < 18 {
				c = [3]int{20 + dx%40*8, 230 - dy%30*6, 120}
			}
			n := grain.IntN(5) - 2
			for i, v := range []int{c[0] - p.blue, c[1], c[2] + p.blue} {
				l := float64(v+n) * p.light
				l += (255 - l) * p.white
				f.Pix[(y*w+x)*3+i] = byte(max(0, min(255, l)))
			}
		}
	}
	return f
}

// film pushes pictures 200 ms apart and returns the statements.
func film(a *scene.Analyzer, from time.Duration, count int, at func(i int) picture) []scene.Statement {
	for i := range count {
		p := at(i)
		p.noise = uint64(from) + uint64(i)
		a.Push(p.frame(from + time.Duration(i)*200*time.Millisecond))
	}
	return a.Take()
}

func kinds(all []scene.Statement) []scene.Kind {
	var out []scene.Kind
	for _, s := range all {
		out = append(out, s.Kind)
	}
	return out
}

const second = time.Second

func TestFindsEachKind(t *testing.T) {
	calm := picture{pattern: 1, light: 1, x: 100, y: 100}
	tests := []struct {
		name string
		then func(i int) picture
		want scene.Statement
	}{
		{"cut", func(int) picture { p := calm; p.pattern = 2; return p }, scene.Statement{Kind: scene.Cut}},
		{"darker", func(i int) picture { p := calm; p.light = max(0.5, 1-0.2*float64(i)); return p }, scene.Statement{Kind: scene.Darker}},
		{"brighter", func(i int) picture { p := calm; p.light = min(1.3, 1+0.1*float64(i)); return p }, scene.Statement{Kind: scene.Brighter}},
		{"slowly darker", func(i int) picture { p := calm; p.light = 1 - 0.012*float64(i); return p }, scene.Statement{Kind: scene.Darker}},
		{"bluer", func(int) picture { p := calm; p.blue = 30; return p }, scene.Statement{Kind: scene.Colour, Hue: "blue"}},
		{"flash", func(i int) picture { p := calm; p.white = max(0, 0.8-0.4*float64(i)); return p }, scene.Statement{Kind: scene.Flash}},
		{
			"movement", func(i int) picture { p := calm; p.x += 8 * i; return p },
			scene.Statement{Kind: scene.Motion, Direction: scene.Right, Pace: scene.Brisk},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := scene.NewAnalyzer()
			require.Empty(t, film(a, 0, 10, func(int) picture { return calm }), "nothing happens")
			found := film(a, 2*second, 18, tt.then)
			require.NotEmpty(t, found)
			got := found[0]
			require.Equal(t, tt.want.Kind, got.Kind, "%v", kinds(found))
			require.Equal(t, tt.want.Direction, got.Direction)
			require.Equal(t, tt.want.Hue, got.Hue)
			if tt.want.Pace != scene.Slow {
				require.Equal(t, tt.want.Pace, got.Pace, "%v", got.Speed)
			}
		})
	}
}

func TestStopAndTurn(t *testing.T) {
	a := scene.NewAnalyzer()
	film(a, 0, 5, func(int) picture { return picture{pattern: 1, light: 1, x: 60, y: 80} })
	found := film(a, second, 10, func(i int) picture { return picture{pattern: 1, light: 1, x: 60 + 8*i, y: 80} })
	require.Equal(t, []scene.Kind{scene.Motion}, kinds(found))
	found = film(a, 3*second, 8, func(i int) picture { return picture{pattern: 1, light: 1, x: 132 - 8*i, y: 80} })
	require.Equal(t, []scene.Kind{scene.Turn}, kinds(found))
	require.Equal(t, scene.Left, found[0].Direction)
	found = film(a, 4600*time.Millisecond, 12, func(int) picture { return picture{pattern: 1, light: 1, x: 76, y: 80} })
	require.Equal(t, []scene.Kind{scene.Stop}, kinds(found))
}

// crop returns a part of a wide scene with texture.
func crop(at time.Duration, x int) inference.Frame {
	const w, h = 448, 252
	f := inference.Frame{PTS: at, Width: w, Height: h, Pix: make([]byte, 0, w*h*3)}
	for y := range h {
		for i := range w {
			s := uint64((x+i)/6*7919+y/6*104729) * 2654435761
			f.Pix = append(f.Pix, byte(60+s>>13%128), byte(60+s>>17%128), byte(60+s>>21%128))
		}
	}
	return f
}

// A pan is told apart from things that move and from a cut.
func TestCamera(t *testing.T) {
	a := scene.NewAnalyzer()
	for i := range 12 {
		a.Push(crop(time.Duration(i)*200*time.Millisecond, 8*max(0, i-3)))
		cut, pan := a.Camera()
		require.False(t, cut)
		require.Equal(t, i > 3, pan, "picture %d", i)
	}
	a.Push(picture{pattern: 3, light: 1}.frame(2400 * time.Millisecond))
	cut, pan := a.Camera()
	require.True(t, cut)
	require.False(t, pan)
	for i := range 10 {
		a.Push(picture{pattern: 3, light: 1, x: 60 + 8*i, y: 80}.frame(2600*time.Millisecond + time.Duration(i)*200*time.Millisecond))
		cut, pan := a.Camera()
		require.False(t, cut)
		require.False(t, pan)
	}
	wall := func(i, x int) inference.Frame {
		const w, h = 448, 252
		f := inference.Frame{PTS: time.Duration(i+100) * 200 * time.Millisecond, Width: w, Height: h, Pix: bytes.Repeat([]byte{140}, w*h*3)}
		texture := crop(0, 0)
		for y := 60; y < h; y++ {
			copy(f.Pix[(y*w+x)*3:][:160*3], texture.Pix[y*w*3:][:160*3])
		}
		return f
	}
	a.Push(wall(0, 0))
	for i := range 6 {
		a.Push(wall(i+1, 40*i))
		cut, _ := a.Camera()
		require.False(t, cut, "something that moves fast before a plain wall")
	}
}

// A small flickering area causes no statement.
func TestFlickerIsSilent(t *testing.T) {
	a := scene.NewAnalyzer()
	for i := range 100 {
		f := picture{pattern: 1, light: 1, noise: uint64(i)}.frame(time.Duration(i) * 200 * time.Millisecond)
		for y := 10; y < 30; y++ {
			for x := 300; x < 380; x++ {
				f.Pix[(y*448+x)*3+1] = byte(255 * ((x/5 + y/5 + i*i) % 2))
			}
		}
		a.Push(f)
		require.Empty(t, a.Take())
	}
}

func TestAnswers(t *testing.T) {
	s := newSession(t)
	before := picture{pattern: 1, light: 1}.frame(0)
	after := picture{pattern: 2, light: 1}.frame(200 * time.Millisecond)
	require.Equal(t, inference.Silence, generate(t, s, inference.Prompt{Frames: []inference.Frame{before}}))

	// Without Observe, the prompt's frames suffice.
	text := generate(t, s, inference.Prompt{Frames: []inference.Frame{before, after}})
	require.Contains(t, text, "view")
	require.LessOrEqual(t, strings.Count(text, "."), 2)
	require.Equal(t, scene.Cut, s.Said()[0].Kind)

	// The same frames again cause no statement.
	require.Equal(t, inference.Silence, generate(t, s, inference.Prompt{Frames: []inference.Frame{before, after}}))
	require.Empty(t, s.Said())
}

func TestSameSeedSameWords(t *testing.T) {
	talk := func() (out []string) {
		s := newSession(t)
		for i := range 20 {
			f := picture{pattern: uint64(i / 3), light: 1}.frame(time.Duration(i) * 200 * time.Millisecond)
			s.Observe(f)
			out = append(out, generate(t, s, inference.Prompt{Frames: []inference.Frame{f}}))
		}
		return out
	}
	first := talk()
	require.Equal(t, first, talk())
	last := ""
	for _, text := range first {
		if text != inference.Silence {
			require.NotEqual(t, last, text, "the same sentence twice in a row")
			last = text
		}
	}
}

func TestAnswerComesInPieces(t *testing.T) {
	s := newSession(t)
	frames := []inference.Frame{picture{pattern: 1, light: 1}.frame(0), picture{pattern: 2, light: 1}.frame(200 * time.Millisecond)}
	n := 0
	for _, err := range s.Generate(t.Context(), inference.Prompt{Frames: frames}) {
		require.NoError(t, err)
		n++
	}
	require.Greater(t, n, 1)
}

func TestGenerateRefuses(t *testing.T) {
	s := newSession(t)
	for _, err := range s.Generate(t.Context(), inference.Prompt{}) {
		require.ErrorContains(t, err, "the prompt has no frame")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.Generate(ctx, inference.Prompt{Frames: []inference.Frame{{}}}) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// A new epoch or size is not a cut.
func TestEpochAndSizeStartAfresh(t *testing.T) {
	a := scene.NewAnalyzer()
	film(a, 0, 10, func(int) picture { return picture{pattern: 1, light: 1} })
	f := picture{pattern: 2, light: 1}.frame(0)
	f.Epoch = 1
	a.Push(f)
	require.Empty(t, a.Take())
	a.Push(inference.Frame{PTS: second, Epoch: 1, Width: 320, Height: 180, Pix: make([]byte, 320*180*3)})
	require.Empty(t, a.Take())
}

func TestObserveBesideGenerate(t *testing.T) {
	s := newSession(t)
	f := picture{pattern: 1, light: 1}.frame(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 20 {
			s.Observe(picture{pattern: uint64(i), light: 1}.frame(time.Duration(i) * 200 * time.Millisecond))
		}
	})
	for range 20 {
		generate(t, s, inference.Prompt{Frames: []inference.Frame{f}})
	}
	wg.Wait()
}

func TestStatusIsPlain(t *testing.T) {
	m := scene.Model{}
	require.Equal(t, inference.Status{
		Phase: inference.PhaseReady, Percent: 100,
		Detail: "scene: no model; it only says what measurably changed in the picture",
	}, m.Status())
	require.Equal(t, "scene", m.Name())
	require.NoError(t, m.Close())
}

func FuzzPush(f *testing.F) {
	f.Add(448, 252, int64(1), []byte{1, 2, 3})
	f.Add(64, 48, int64(200), bytes.Repeat([]byte{7, 200, 31, 90}, 64*48))
	f.Add(33, 47, int64(200), bytes.Repeat([]byte{7, 200, 31, 90, 5}, 64*48))
	f.Add(-1, 1<<40, int64(-5), []byte{})
	f.Fuzz(func(_ *testing.T, width, height int, step int64, pix []byte) {
		a := scene.NewAnalyzer()
		for i := range int64(8) {
			a.Push(inference.Frame{PTS: time.Duration(i * step), Width: width, Height: height, Pix: pix})
			if len(pix) > 0 {
				pix = append(pix[1:len(pix):len(pix)], pix[0])
			}
		}
		a.Take()
	})
}

// BenchmarkObserve pushes pictures of 448x252 with movement in a tenth of the cells.
func BenchmarkObserve(b *testing.B) {
	s := newSession(b)
	var frames []inference.Frame
	for i := range 40 {
		frames = append(frames, picture{pattern: 1, light: 1, x: 40 + 6*i, y: 60, noise: uint64(i)}.frame(0))
	}
	i := 0
	for b.Loop() {
		f := frames[i%len(frames)]
		f.PTS = time.Duration(i) * 200 * time.Millisecond
		s.Observe(f)
		i++
	}
}

// BenchmarkObserveCut pushes a cut each time, the worst case.
func BenchmarkObserveCut(b *testing.B) {
	s := newSession(b)
	frames := []inference.Frame{picture{pattern: 1, light: 1}.frame(0), picture{pattern: 2, light: 1}.frame(0)}
	i := 0
	for b.Loop() {
		f := frames[i%2]
		f.PTS = time.Duration(i) * 200 * time.Millisecond
		s.Observe(f)
		i++
	}
}
