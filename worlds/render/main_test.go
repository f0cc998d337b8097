package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/worlds"
)

func render(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, run(t.Context(), append([]string{"-out", dir}, args...), t.Output()))
	return dir
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

// truths reads the records of a seed.
func truths(t *testing.T, name string) []worlds.Truth {
	t.Helper()
	var out []worlds.Truth
	for s := bufio.NewScanner(bytes.NewReader(read(t, name))); s.Scan(); {
		var x worlds.Truth
		require.NoError(t, json.Unmarshal(s.Bytes(), &x))
		out = append(out, x)
	}
	return out
}

func TestRender(t *testing.T) {
	small := []string{"-first", "7", "-seeds", "2", "-seconds", "2", "-source", "320x180", "-size", "224x126"}
	a, b := render(t, small...), render(t, small...)
	for _, name := range []string{"7.i420", "7.jsonl", "8.i420", "8.jsonl"} {
		require.Equal(t, read(t, filepath.Join(a, name)), read(t, filepath.Join(b, name)), name)
	}
	files, err := os.ReadDir(a)
	require.NoError(t, err)
	require.Len(t, files, 4)
	require.Len(t, read(t, filepath.Join(a, "7.i420")), 10*224*126*3/2)
	lines := truths(t, filepath.Join(a, "7.jsonl"))
	require.Len(t, lines, 10)
	for i := 1; i < len(lines); i++ {
		require.Equal(t, lines[i-1].Frame+6, lines[i].Frame)
	}
	require.NotEqual(t, lines[0].Frame, truths(t, filepath.Join(a, "8.jsonl"))[0].Frame)

	third := render(t, append(small, "-every", "3")...)
	require.Equal(t, lines, truths(t, filepath.Join(third, "7-3.jsonl")))
	dense, sparse := read(t, filepath.Join(a, "7.i420")), read(t, filepath.Join(third, "7-3.i420"))
	size := len(dense) / 10
	require.Len(t, sparse, 4*size)
	for i := range 4 {
		require.Equal(t, dense[3*i*size:][:size], sparse[i*size:][:size])
	}
}

// Pictures of full size are the world's own.
func TestRenderInFullSize(t *testing.T) {
	dir := render(t, "-first", "3", "-seeds", "1", "-seconds", "1", "-source", "320x180", "-size", "320x180", "-fps", "2", "-counter", "1")
	film, lines := read(t, filepath.Join(dir, "3.i420")), truths(t, filepath.Join(dir, "3.jsonl"))
	w, err := worlds.New(worlds.Options{Seed: 3, Width: 320, Height: 180, Counter: true})
	require.NoError(t, err)
	for i, line := range lines {
		require.Equal(t, w.Frame(line.Frame), film[i*w.I420Size():(i+1)*w.I420Size()])
	}
}

// A shifted clock is all that differs; the events are complete.
func TestRenderTruth(t *testing.T) {
	common := []string{"-first", "5", "-seeds", "1", "-seconds", "120", "-pixels=false"}
	plain := truths(t, filepath.Join(render(t, common...), "5.jsonl"))
	shifted := truths(t, filepath.Join(render(t, append(common, "-clock-every", "4")...), "5.jsonl"))
	require.Len(t, plain, 600)
	clocks, early, events := 0, 0, 0
	for i := range plain {
		if plain[i].Match.Clock != shifted[i].Match.Clock {
			clocks++
			if shifted[i].Match.Clock%(45*60) < 10*60 {
				early++
			}
		}
		a, b := plain[i].Match, shifted[i].Match
		b.Clock, b.Score, b.Shots, b.Plate = a.Clock, a.Score, a.Shots, a.Plate
		require.Equal(t, plain[i], shifted[i])
		events += len(plain[i].Events)
	}
	require.Greater(t, clocks, 100)
	require.InDelta(t, 0.48, float64(early)/float64(clocks), 0.1)
	w, err := worlds.New(worlds.Options{Seed: 5})
	require.NoError(t, err)
	step := 200 * time.Millisecond
	require.Len(t, w.Events(plain[0].At-step+1, plain[len(plain)-1].At+1), events)
}

func TestScalerKeepsFlatPicturesFlat(t *testing.T) {
	from, to := size{640, 360}, size{448, 252}
	for _, v := range []byte{0, 1, 127, 254, 255} {
		dst := make([]byte, to.width*to.height*3/2)
		newScaler(from, to).scale(dst, bytes.Repeat([]byte{v}, from.width*from.height*3/2))
		require.Equal(t, bytes.Repeat([]byte{v}, len(dst)), dst)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "-out: must name a folder"},
		{[]string{"-out", "x", "-fps", "7"}, "-fps: must be a divisor of 30, is 7"},
		{[]string{"-out", "x", "-size", "800x600"}, "-size: must not be larger than -source 640x360, is 800x600"},
		{[]string{"-out", "x", "-size", "wide"}, `size "wide": must be WIDTHxHEIGHT`},
		{[]string{"-out", "x", "-seeds", "0"}, "-seeds, -seconds and -every: must be positive"},
		{[]string{"-out", "x", "more"}, `unexpected argument "more"`},
	}
	for _, tt := range tests {
		require.ErrorContains(t, run(t.Context(), tt.args, t.Output()), tt.want)
	}
}
