//go:build integration && !nodemo

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/look"
	"touchline/internal/e2e/cutout"
)

// TestSight: a photo of a person walks through a street, in a real room: sight tells it, with the facts and the time of the event.
func TestSight(t *testing.T) {
	const networks = "bin/sight"
	if _, err := os.Stat(filepath.Join(networks, "sight.json")); err != nil {
		t.Skip("no networks of sight here: make sight fetches them")
	}
	clip, store := filepath.Join(t.TempDir(), "clip.mp4"), t.TempDir()
	walk := cutout.Walk{
		Photo: moduleRoot + "/inference/sight/testdata/astronaut.png", Enter: 6 * time.Second, Walk: 2500 * time.Millisecond, Stay: 4 * time.Second,
	}
	require.NoError(t, cutout.Write(t.Context(), clip, walk.End()+5*time.Second, walk))
	p, _ := start(t, []string{
		"TOUCHLINE_INFERENCE_ENGINE=auto", "TOUCHLINE_INFERENCE_SIGHT_BUNDLE=" + networks,
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH=" + store,
	}, "run", "--listen", "127.0.0.1:0", "--source", clip)
	var records []look.Record
	said := func(words ...string) bool {
		return slices.ContainsFunc(records, func(r look.Record) bool {
			text := strings.ToLower(r.Text)
			return r.Engine == "sight" && r.IsComment() && len(r.Facts) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	if !assert.Eventually(t, func() bool {
		records = recordsIn(t, store)
		return said("person", "from the left") && said("on the right")
	}, later, 500*time.Millisecond) {
		for _, r := range records {
			t.Log(r.AnchorPTS, r.Outcome, r.Text, r.Facts)
		}
	}
	p.interrupt(t)
	require.Zero(t, p.exitCode())
	for _, r := range records {
		if r.IsComment() {
			t.Logf("%.1f s, %+.2f s off: %s %v", r.AnchorPTS, r.AlignmentError, r.Text, r.Facts)
		}
	}
}
