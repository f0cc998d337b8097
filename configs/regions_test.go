package configs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/region"
	"touchline/configs"
	"touchline/internal/polygon"
)

// TestRegions: regions come from the file and from the environment.
func TestRegions(t *testing.T) {
	t.Parallel()
	c, err := configs.Load("", []string{"TOUCHLINE_AGENT_REGIONS_LIST=line 1.5 0.5:1 0.5:0 gate"})
	require.NoError(t, err)
	require.Equal(t, []region.Item{{Name: "gate", Kind: region.Line, Shape: polygon.Shape{
		Aspect: 1.5, Points: []polygon.Point{{0.5, 1}, {0.5, 0}},
	}}}, c.Agent.Regions.List)

	file := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
agent:
  regions:
    list:
      - {name: gate, kind: line, aspect: 1.5, points: [[0.5, 1], [0.5, 0]]}
`), 0o600))
	again, err := configs.Load(file, nil)
	require.NoError(t, err)
	require.Equal(t, c.Agent.Regions, again.Agent.Regions)
}
