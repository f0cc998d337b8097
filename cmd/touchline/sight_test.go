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
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/cutout"
)

// startSight runs the program with sight on a clip in which a photo of a person comes, stays and goes, again and again.
func startSight(t *testing.T, env ...string) (p *program, url string) {
	t.Helper()
	const networks = "bin/sight"
	if _, err := os.Stat(filepath.Join(networks, "sight.json")); err != nil {
		t.Skip("no networks of sight here: make sight fetches them")
	}
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	walk := cutout.Walk{
		Photo: moduleRoot + "/inference/sight/testdata/astronaut.png", Enter: 6 * time.Second, Walk: 2500 * time.Millisecond, Stay: 4 * time.Second,
	}
	require.NoError(t, cutout.Write(t.Context(), clip, walk.End()+5*time.Second, walk))
	env = append(env, "TOUCHLINE_INFERENCE_ENGINE=auto", "TOUCHLINE_INFERENCE_SIGHT_BUNDLE="+networks)
	return start(t, env, "run", "--listen", "127.0.0.1:0", "--source", clip)
}

// TestSight: a photo of a person walks through a street, in a real room: sight tells it, with the facts and the time of the event.
func TestSight(t *testing.T) {
	store := t.TempDir()
	p, _ := startSight(t, "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store)
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

// TestSightPage: the page draws the boxes over the picture on request, and shows a comment's facts.
func TestSightPage(t *testing.T) {
	_, url := startSight(t)
	b := open(t, url, browser.Options{})
	require.NoError(t, b.Until(later, "!document.getElementById('boxes').hidden"))
	_, err := browser.Eval[bool](b, soon, "document.getElementById('boxes').click(), true")
	require.NoError(t, err)
	require.NoError(t, b.Until(later, `(() => { const c = document.getElementById('sight');
		return c.width > 0 && c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0) })()`), "no box was drawn")
	require.NoError(t, b.Until(later, "document.getElementById('sight-facts').textContent.includes('enter')"), "no fact is shown")
	shoot(t, b, "sight")
	require.NoError(t, b.Until(later, "document.querySelector('#list .facts')"), "no comment has facts")
}
