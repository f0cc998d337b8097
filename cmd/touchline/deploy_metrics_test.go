//go:build integration && !nodemo

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
)

// TestDeployedMetricsExist compares the metrics in dashboard, alerts and autoscaling with those of a worker with a
// model, a room and a history.
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
	// Metrics whose labels have no value yet.
	w, err := worker.New(worker.Options{URL: h.url, APIKey: "k", APISecret: "s", Slots: 1, Runner: idleRunner{}, Log: zerolog.Nop()})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 100)
	w.Collector().Describe(descs)
	close(descs)
	for d := range descs {
		add(regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1], true)
	}
	add("touchline_tls_expires_timestamp_seconds", false) // of a page with a certificate

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
