//go:build !nodemo

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/livekit/livekit-server/pkg/config"
	"github.com/stretchr/testify/require"

	"touchline/configs"
	"touchline/media/codec/wire"
)

// deployed are the texts of deploy/, by path below it.
func deployed(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join(moduleRoot, "deploy")
	texts := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[strings.TrimPrefix(path, root+"/")] = string(text)
		return err
	}))
	require.Contains(t, texts, "compose.yaml")
	return texts
}

// The alert rules and their tests can be read; promtool runs them in make deploy-check.
func TestAlertRules(t *testing.T) {
	texts := deployed(t)
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(texts["prometheus/alerts.yml"]), &alerts))
	rules := 0
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Expr, r.Alert)
			require.NotEmpty(t, r.Annotations.Summary, r.Alert)
			rules++
		}
	}
	require.Greater(t, rules, 10)
	var tests map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(texts["prometheus/alerts_test.yml"]), &tests))
}

func TestDashboardIsWhole(t *testing.T) {
	var dash struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(deployed(t)["grafana/dashboards/touchline.json"]), &dash))
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range dash.Panels {
		require.False(t, ids[p.ID], "two panels %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s lies on another panel", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" {
			require.NotEmpty(t, p.Targets, p.Title)
		}
	}
	require.Greater(t, len(ids), 30)
}

func TestDeployedVariablesAreSettings(t *testing.T) {
	known := map[string]bool{}
	for _, v := range configs.Variables() {
		known[v.Name], known[v.WellKnown] = true, true
	}
	found := 0
	for path, text := range deployed(t) {
		for _, name := range regexp.MustCompile(`\b(TOUCHLINE|LIVEKIT)(_[A-Z0-9]+)+\b`).FindAllString(text, -1) {
			// LIVEKIT_KEYS is the server's.
			require.True(t, known[name] || name == "LIVEKIT_KEYS", "%s: no setting has %s", path, name)
			found++
		}
	}
	require.Greater(t, found, 20)
}

func TestServerOfComposeReadsItsSettings(t *testing.T) {
	c, err := config.NewConfig(deployed(t)["livekit.yaml"], true, nil, nil)
	require.NoError(t, err)
	require.EqualValues(t, 7880, c.Port)
	require.Equal(t, 7882, c.RTC.UDPPort.Start)
	require.True(t, max(c.PrometheusPort, c.Prometheus.Port) == 0 || c.Prometheus.Password != "", "metrics without a password")
}

// TestStoppingTakesLongerThanTheDrain: each grace period for stopping a worker exceeds its drain timeout. The chart's
// is computed; TestRenderedSettings checks it.
func TestStoppingTakesLongerThanTheDrain(t *testing.T) {
	texts := deployed(t)
	var compose struct {
		Services map[string]struct {
			Stop        string `yaml:"stop_grace_period"`
			Environment map[string]string
		}
	}
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(texts["compose.yaml"]), &compose, yaml.AllowDuplicateMapKey()))
	for _, name := range []string{"agent", "agent-gpu"} {
		s := compose.Services[name]
		stop, err := time.ParseDuration(s.Stop)
		require.NoError(t, err)
		drain, err := time.ParseDuration(s.Environment["TOUCHLINE_AGENT_WORKER_DRAIN_TIMEOUT"])
		require.NoError(t, err)
		require.Greater(t, stop, drain+leaveTimeout, name)
	}
	unit, env := texts["systemd/touchline-agent.service"], texts["systemd/agent.env.example"]
	require.Contains(t, unit, "TimeoutStopSec=2min\n")
	require.Contains(t, env, "TOUCHLINE_AGENT_WORKER_DRAIN_TIMEOUT=90s\n")
	require.Contains(t, unit, "KillMode=mixed\n", "the codec's processes end after the worker")
}

// TestUnitLetsProgramsBeConfined: systemd before 254 ignores the group @sandbox, so that its calls are named.
func TestUnitLetsProgramsBeConfined(t *testing.T) {
	for _, call := range []string{"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} {
		require.Regexp(t, `(?m)^SystemCallFilter=@system-service.* `+call+`\b`, deployed(t)["systemd/touchline-agent.service"])
	}
}

// TestImagesBuildWithWhatSetupInstalls compares the packages of the Dockerfiles with those of scripts/setup.sh.
func TestImagesBuildWithWhatSetupInstalls(t *testing.T) {
	setup, err := os.ReadFile(filepath.Join(moduleRoot, "scripts", "setup.sh"))
	require.NoError(t, err)
	want := regexp.MustCompile(`(?m)^want="([^"]+)"`).FindStringSubmatch(string(setup))
	require.NotNil(t, want)
	texts := deployed(t)
	for _, file := range []string{"Dockerfile", "Dockerfile.cuda"} {
		for _, pkg := range strings.Fields(want[1]) {
			require.Contains(t, texts[file], " "+pkg, file)
		}
		require.Contains(t, texts[file], "USER 10001:10001\n")
		require.Contains(t, texts[file], `CMD ["touchline", "health"]`)
	}
}

// TestMemoryOfPod: the chart's memory limit covers what values.yaml names: the limit of one codec process for each room, with H264 up to
// 720p; recordings and speeches; sources.memory; and the worker itself. Beside the worker it has what all programs of all rooms use normally,
// so that the budget of package child ends none of them.
func TestMemoryOfPod(t *testing.T) {
	var values struct {
		Settings  struct{ Sources struct{ Memory int } }
		Resources struct{ Limits struct{ CPU, Memory string } }
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t)["helm/touchline/values.yaml"]), &values))
	limit, ok := strings.CutSuffix(values.Resources.Limits.Memory, "Gi")
	require.True(t, ok)
	gib, err := strconv.Atoi(limit)
	require.NoError(t, err)
	cores, err := strconv.Atoi(values.Resources.Limits.CPU)
	require.NoError(t, err)
	require.GreaterOrEqual(t, values.Settings.Sources.Memory, 570, "a picture of 7680x4320")
	const (
		mib          = 1 << 20
		roomsPerCore = 4
		speeches     = 2 // at once, of the speech API
		worker       = 512 * mib
	)
	recordings := configs.Default().Agent.Console.Transcription.Parallel
	need := roomsPerCore*cores*wire.PictureMemory + (recordings+speeches)*wire.SoundMemory + values.Settings.Sources.Memory*mib + worker
	require.LessOrEqual(t, need, gib<<30)

	// Of docs/operating.md: AV1 of 1080p for the room and for /api/mjpeg, ffmpeg that converts 1080p and that for AAC, a voice, pocketsphinx.
	const normal = (35 + 35 + 125 + 10 + 10 + 11) * mib
	require.LessOrEqual(t, roomsPerCore*cores*normal+(recordings+speeches)*10*mib, gib<<30-worker)
}
