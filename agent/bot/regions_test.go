//go:build integration

package bot_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/region"
	"touchline/agent/state"
	"touchline/configs"
	"touchline/internal/polygon"
)

func corner(kind string) region.Region {
	return region.Region{Kind: kind, Shape: polygon.Shape{Aspect: 16.0 / 9, Points: []polygon.Point{{0, 0}, {0.5, 0}, {0, 0.5}}}}
}

// TestKeptRegions: regions survive a restart and a hand-over; those that cannot be read cover the whole picture and stay in the file.
func TestKeptRegions(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	cfg := configs.Default().Bot()
	cfg.Regions.List = []region.Item{region.Item(corner(region.Mask))}
	cfg.Regions.List[0].Name = "door"
	var handed map[string]json.RawMessage
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Len(t, b.Regions.Masks().Shapes, 1)
		require.NoError(t, b.Regions.Put("yard", corner(region.Zone), "ana", time.Now()))
		require.NoError(t, b.Regions.Remove("door"))
		handed = b.Kept()
	})
	require.Contains(t, string(handed["regions"]), `"yard"`)
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Equal(t, "yard", b.Regions.Saved().Regions[0].Name)
		require.False(t, b.Regions.Masks().Any(), "the mask of the settings stays removed")

		_, err := b.Alerts.Add(alert.RuleText{When: "still", Name: "gate"})
		require.NoError(t, err)
		require.NoError(t, b.Regions.Put("still", corner(region.Line), "ana", time.Now()))
		require.NoError(t, b.Regions.Remove("still"), "a rule names a region in quotes")
	})

	store, err := state.Open(to.State, zerolog.Nop())
	require.NoError(t, err)
	_, err = store.DB().ExecContext(t.Context(), `UPDATE room_values SET value = '{"regions":[{"name":"door","kind":"hole"}]}' WHERE name = 'regions'`)
	require.NoError(t, err)
	require.NoError(t, store.Close())
	for range 2 {
		said := begin(t, to, cfg, func(b *bot.Bot) {
			require.True(t, b.Regions.Masks().All, "in force before the first picture")
			require.Contains(t, b.Snapshot().Covered, "cannot be read")
			require.Contains(t, string(b.Kept()["regions"]), `"hole"`, "the next bot covers everything too")
			b.Stop("ana") // a change of something else
		})
		require.Contains(t, said, "kept masks not read")
	}
	begin(t, to, cfg, func(b *bot.Bot) { require.NoError(t, b.Regions.Clear()) })
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Empty(t, b.Snapshot().Covered)
		require.Empty(t, b.Regions.Saved().Regions)
	})
}
