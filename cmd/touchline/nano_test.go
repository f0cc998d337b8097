//go:build integration && !nodemo

package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/media/toyworld"
	"touchline/media/toyworld/match"
)

// TestNano runs the demo as a stranger does: nano watches a minute of the match through a real room, and calls its goals
// with the right team and score.
func TestNano(t *testing.T) {
	const length = time.Minute
	seed, goals := goalsWithin(t, 5*time.Second, length-10*time.Second)
	store := t.TempDir()
	p, _ := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=auto", "TOUCHLINE_INFERENCE_MINICPMO_TEMPERATURE=0", "XDG_CACHE_HOME=" + t.TempDir(),
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + store,
	}, "demo", "--listen", "127.0.0.1:0", "--seed", seed)
	var records []agent.Record
	require.Eventually(t, func() bool {
		records = recordsIn(t, filepath.Join(store, "history.jsonl"))
		return len(records) > 0 && records[len(records)-1].AnchorPTS > length.Seconds()
	}, 2*length, time.Second)

	require.Equal(t, "nano", records[0].Engine)
	called := 0
	var off []float64
	for _, r := range records {
		if r.Aligned {
			off = append(off, math.Abs(r.AlignmentError))
		}
	}
	for _, g := range goals {
		for _, r := range records {
			since := r.AnchorPTS - g.at.Seconds()
			if since > -0.5 && since < 5 && strings.Contains(r.Text, g.team) && (strings.Contains(strings.ToLower(r.Text), g.result) || strings.Contains(r.Text, g.both)) {
				t.Logf("%.1f s after the goal: %s", since, r.Text)
				called++
				break
			}
		}
	}
	require.Positive(t, called, "%d goals, %+v", len(goals), texts(records))
	slices.Sort(off)
	require.NotEmpty(t, off)
	require.Less(t, off[len(off)/2], 0.25, "median alignment error, s")
	p.interrupt(t)
	require.Zero(t, p.exitCode())
}

type calledGoal struct {
	at           time.Duration
	team         string
	result, both string // "two-one" and "Red two, Blue one"
}

// goalsWithin finds a seed with two goals in a span of the match.
func goalsWithin(t *testing.T, from, to time.Duration) (seed string, goals []calledGoal) {
	t.Helper()
	number := strings.Fields("nil one two three four five six seven eight nine")
	for n := uint64(1); n < 200; n++ {
		w, err := toyworld.New(toyworld.Options{Seed: n})
		require.NoError(t, err)
		teams := w.Truth(0).Match.Teams
		goals = goals[:0]
		for _, e := range w.Events(from, to) {
			if e.Match.Kind != match.Goal {
				continue
			}
			a, b := e.Match.Score[0], e.Match.Score[1]
			g := calledGoal{
				at: e.At(), team: teams[*e.Match.Team], both: teams[0] + " " + number[a] + ", " + teams[1] + " " + number[b],
				result: number[max(a, b)] + "-" + number[min(a, b)],
			}
			if a == b {
				g.result = number[a] + "-all"
			}
			goals = append(goals, g)
		}
		if len(goals) >= 2 {
			return ftoa(float64(n)), goals
		}
	}
	require.FailNow(t, "no seed has two goals in a minute")
	return "", nil
}

func recordsIn(t *testing.T, path string) (out []agent.Record) {
	t.Helper()
	f, err := os.Open(path) //nolint:gosec // a test's folder
	if err != nil {
		return nil // not begun
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Record *agent.Record `json:"record"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Record != nil {
			out = append(out, *line.Record)
		}
	}
	return out
}

func texts(records []agent.Record) (out []string) {
	for _, r := range records {
		if r.Text != "" {
			out = append(out, r.Text)
		}
	}
	return out
}
