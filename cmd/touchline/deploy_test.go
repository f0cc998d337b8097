//go:build !nodemo

package main

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/livekit/livekit-server/pkg/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
	"touchline/configs"
)

// deployed are the texts of deploy/, by path below it.
func deployed(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join(moduleRoot(t), "deploy")
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

// TestDeployedMetricsExist holds the names of metrics in dashboard, alerts and autoscaling against those of a
// worker with a model, a room and a history.
func TestDeployedMetricsExist(t *testing.T) {
	t.Parallel()
	_, flags := onTiny(t)
	h := newAgentHouse(t)
	file := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(file, []byte("inference: {voice: {max_tokens: 12}}\nagent: {history: {store: file, path: "+
		filepath.Join(t.TempDir(), "history")+"}}\n"), 0o600))
	p := h.start(append([]string{"--config", file}, flags...)...)
	h.ask(agentRoom, "")
	names := map[string]bool{}
	add := func(name string, histogram bool) {
		names[name] = true
		if histogram {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	require.Eventually(t, func() bool {
		code, text := p.get("/metrics")
		assert.Equal(t, http.StatusOK, code, text)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		assert.NoError(t, err)
		for name, f := range families {
			add(name, f.GetMetric()[0].GetHistogram() != nil)
		}
		return names["touchline_alignment_error_seconds_bucket"] && names["touchline_cycle_stage_seconds_bucket"] &&
			names["touchline_cycles_total"]
	}, startWait, 200*time.Millisecond)
	// Those of the worker whose labels have had no occasion yet.
	w, err := worker.New(worker.Options{URL: h.url, APIKey: "k", APISecret: "s", Slots: 1, Runner: idleRunner{}, Log: zerolog.Nop()})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 100)
	w.Collector().Describe(descs)
	close(descs)
	for d := range descs {
		add(regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1], true)
	}

	word := regexp.MustCompile(`\b(touchline|lk|process|go)(_[a-z0-9]+)+\b`)
	used := map[string]bool{}
	for path, text := range deployed(t) {
		switch {
		case path == "prometheus/alerts.yml", strings.HasPrefix(path, "grafana/dashboards/"),
			path == "helm/touchline/templates/hpa.yaml", path == "helm/touchline/templates/scaledobject.yaml":
			for _, name := range word.FindAllString(text, -1) {
				require.True(t, names[name], "%s: no worker has %s", path, name)
				used[name] = true
			}
		}
	}
	require.Greater(t, len(used), 40)
	require.Contains(t, used, "lk_agents_worker_load")
	t.Logf("%d of %d names are used", len(used), len(names))
}

// idleRunner takes no job.
type idleRunner struct{ worker.Runner }

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
	require.EqualValues(t, 6789, c.Prometheus.Port)
}

// TestStoppingTakesLongerThanTheDrain: what ends a worker must leave it the time to hand its rooms over. The chart's
// time is computed, and checked where it is rendered.
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
		require.Greater(t, stop, drain+leaving, name)
	}
	unit, env := texts["systemd/touchline-agent.service"], texts["systemd/agent.env.example"]
	require.Contains(t, unit, "TimeoutStopSec=2min\n")
	require.Contains(t, env, "TOUCHLINE_AGENT_WORKER_DRAIN_TIMEOUT=90s\n")
	require.Contains(t, unit, "KillMode=mixed\n", "the codec's processes end after the worker")
}

// TestImagesBuildWithWhatSetupInstalls keeps the Dockerfiles and scripts/setup.sh together.
func TestImagesBuildWithWhatSetupInstalls(t *testing.T) {
	setup, err := os.ReadFile(filepath.Join(moduleRoot(t), "scripts", "setup.sh"))
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
