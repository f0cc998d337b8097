//go:build integration

package judge_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media/codec/codectest"
	"touchline/worlds/judge"
)

// TestMain puts the codec program on the PATH.
func TestMain(m *testing.M) { os.Exit(codectest.OnPath(m.Run)) }

// judged runs the command and reads its figures.
func judged(t *testing.T, c judge.Command) (out judge.Result) {
	t.Helper()
	// The tests' own variable is no setting, and the command reads the environment.
	t.Setenv("TOUCHLINE_BIN", "")
	require.NoError(t, os.Unsetenv("TOUCHLINE_BIN"))
	c.JSON = filepath.Join(t.TempDir(), "truth.json")
	c.Seeds, c.Minutes, c.Parallel = 1, 1, 1
	require.NoError(t, c.Run(t.Context(), zerolog.Nop()))
	text, err := os.ReadFile(c.JSON)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// TestTruth lets nano watch a minute of the match, encoded and decoded: it calls the goals, with the score.
func TestTruth(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TOUCHLINE_INFERENCE_MINICPMO_RUNTIME", filepath.Join("..", "..", "bin", "runtime"))
	cold := 0.0
	r := judged(t, judge.Command{Engine: "nano", World: "match", FirstSeed: 1000, Temperature: &cold, Orders: 1, Strangers: 5, Alerts: true, Letterbox: 10})
	require.Equal(t, "nano", r.Engine)
	require.InDelta(t, 1, r.Report.Minutes, 0.01)
	require.Greater(t, r.Report.Looks, 25)
	require.Equal(t, r.Report.Looks, r.Report.Silent+r.Report.Comments)
	require.Less(t, r.Report.Unjudged, r.Report.Comments/4)
	require.Less(t, r.Report.Wrong, r.Report.Comments/3)
	goals := r.Report.Events["goal"]
	require.Positive(t, goals.Of)
	require.Equal(t, goals.Of, goals.Right, "goals that were told")
	require.Positive(t, r.Report.GoalScore.Right)
	require.GreaterOrEqual(t, len(r.Orders), 25, "every kind of order was given")
	require.Positive(t, r.Alerts.Looks)
	require.Equal(t, 5, r.Strangers.Of)
}

// TestTruthOfTheYard lets the scene engine watch the yard: it tells of changes in the picture, and of nobody.
func TestTruthOfTheYard(t *testing.T) {
	r := judged(t, judge.Command{Engine: "scene", World: "yard", FirstSeed: 1000, NoCodec: true})
	require.Positive(t, r.Report.Comments)
	require.Contains(t, r.Report.Events, "arrive")
	require.Zero(t, r.Report.Events["arrive"].Right)
}
