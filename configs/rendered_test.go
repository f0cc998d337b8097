//go:build rendered

package configs_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"touchline/configs"
)

// TestRenderedSettings loads the settings file of each rendering of the chart; scripts/deploy-check.sh makes them.
func TestRenderedSettings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("TOUCHLINE_RENDERED"), "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var settings string
		var grace time.Duration
		for docs := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var doc struct {
				Kind string
				Data map[string]string
				Spec struct {
					Template struct {
						Spec struct {
							Grace int `yaml:"terminationGracePeriodSeconds"`
						}
					}
				}
			}
			err := docs.Decode(&doc)
			if err == io.EOF {
				break
			}
			require.NoError(t, err, file)
			switch doc.Kind {
			case "ConfigMap":
				settings = doc.Data["touchline.yaml"]
			case "Deployment":
				grace = time.Duration(doc.Spec.Template.Spec.Grace) * time.Second
			}
		}
		require.NotEmpty(t, settings, file)
		cfg, err := load(t, settings)
		require.NoError(t, err, file)
		require.Greater(t, grace, cfg.Agent.Worker.DrainTimeout, file)
		require.NotEqual(t, configs.Default().Agent.LiveKit.URL, cfg.Agent.LiveKit.URL, file)
	}
	t.Logf("%d files", len(files))
}
