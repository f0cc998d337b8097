//go:build integration && !nodemo

package main

import (
	"encoding/json"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/worlds"
	"touchline/worlds/match"
)

// TestNano runs the demo as a stranger does: nano watches the match through a real room until it calls a goal with the right team
// and score.
func TestNano(t *testing.T) {
	seed, goals := goalsBefore(t, 20*time.Second)
	store := t.TempDir()
	p, _ := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=auto", "TOUCHLINE_INFERENCE_MINICPMO_TEMPERATURE=0", "XDG_CACHE_HOME=" + t.TempDir(),
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + store,
	}, "demo", "--listen", "127.0.0.1:0", "--seed", seed)
	var records []look.Record
	require.Eventually(t, func() bool {
		records = recordsIn(t, store)
		return slices.ContainsFunc(goals, func(g goal) bool {
			return slices.ContainsFunc(records, func(r look.Record) bool {
				since := r.AnchorPTS - g.at.Seconds()
				called := r.Aligned && since > -0.5 && since < 5 && strings.Contains(r.Text, g.team) &&
					(strings.Contains(strings.ToLower(r.Text), g.result) || strings.Contains(r.Text, g.both))
				if called {
					t.Logf("%.1f s after the goal: %s", since, r.Text)
				}
				return called
			})
		})
	}, later, 500*time.Millisecond, "goals %+v", goals)
	require.Equal(t, "nano", records[0].Engine)
	p.interrupt(t)
	require.Zero(t, p.exitCode())
}

type goal struct {
	at           time.Duration
	team         string
	result, both string // "two-one" and "Red two, Blue one"
}

// goalsBefore returns the goals of the first ten minutes of a match, and the seed of one with a goal early on.
func goalsBefore(t *testing.T, first time.Duration) (seed string, goals []goal) {
	t.Helper()
	number := strings.Fields("nil one two three four five six seven eight nine")
	for n := uint64(1); n < 200; n++ {
		w, err := worlds.New(worlds.Options{Seed: n})
		require.NoError(t, err)
		teams := w.Truth(0).Match.Teams
		goals = goals[:0]
		for _, e := range w.Events(5*time.Second, 10*time.Minute) {
			if e.Match.Kind != match.Goal {
				continue
			}
			a, b := e.Match.Score[0], e.Match.Score[1]
			if max(a, b) >= len(number) {
				break
			}
			g := goal{
				at: e.At(), team: teams[*e.Match.Team], both: teams[0] + " " + number[a] + ", " + teams[1] + " " + number[b],
				result: number[max(a, b)] + "-" + number[min(a, b)],
			}
			if a == b {
				g.result = number[a] + "-all"
			}
			goals = append(goals, g)
		}
		if len(goals) > 0 && goals[0].at < first {
			return ftoa(float64(n)), goals
		}
	}
	require.FailNow(t, "no seed has an early goal")
	return "", nil
}

func recordsIn(t *testing.T, path string) (out []look.Record) {
	t.Helper()
	r, err := history.OpenReader(t.Context(), path)
	if err != nil {
		return nil // not begun
	}
	defer r.Close()
	for e, err := range r.Entries(t.Context(), history.Query{Everything: true}) {
		if err == nil && e.Record.Cycle > 0 {
			out = append(out, e.Record)
		}
	}
	return out
}

// TestAskNano: the program asks nano about two pictures of the match, and prints the answer with its times.
func TestAskNano(t *testing.T) {
	t.Parallel()
	w, err := worlds.New(worlds.Options{World: worlds.Match, Seed: 3})
	require.NoError(t, err)
	width, height := w.Size()
	args := []string{"--log-level", "error", "ask", "--json", "--repeat", "2"}
	for i, n := range []uint32{200, 210} {
		frame := w.Frame(n)
		luma, chroma := width*height, width*height/4
		path := filepath.Join(t.TempDir(), strconv.Itoa(i)+".png")
		f, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, png.Encode(f, &image.YCbCr{
			Y: frame[:luma], Cb: frame[luma : luma+chroma], Cr: frame[luma+chroma:], YStride: width, CStride: width / 2,
			SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: image.Rect(0, 0, width, height),
		}))
		require.NoError(t, f.Close())
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), "./bin/touchline", append(args, "Say what happens in the match.")...)
	cmd.Env = append(settingless(), "TOUCHLINE_INFERENCE_ENGINE=nano", "XDG_CACHE_HOME="+t.TempDir())
	out, err := cmd.Output()
	require.NoError(t, err)
	var got asked
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	require.Equal(t, "nano", got.Engine)
	require.Len(t, got.Cycles, 2)
	for _, c := range got.Cycles {
		t.Logf("%+v", c)
		require.NotContains(t, c.Answer, "This is not the match")
		require.Contains(t, c.Exchanges[0].Request, "Say what happens in the match.")
		require.Equal(t, c.Answer, c.Exchanges[0].Answer)
		require.Positive(t, c.FirstWordSec)
		require.GreaterOrEqual(t, c.CycleSec, c.FirstWordSec)
		require.Greater(t, c.Tokens, 1)
	}
}
