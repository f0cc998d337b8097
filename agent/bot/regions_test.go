//go:build integration

package bot_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/region"
	"touchline/agent/room/conn"
	"touchline/agent/state"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/remote"
	"touchline/internal/polygon"
)

func corner(kind string) region.Region {
	return region.Region{Kind: kind, Shape: polygon.Shape{Aspect: 16.0 / 9, Points: []polygon.Point{{0, 0}, {0.5, 0}, {0, 0.5}}}}
}

// TestRulesNameRegions: a zone that a rule names stays, and another engine may refuse or take the rule.
func TestRulesNameRegions(t *testing.T) {
	const when = `a person enters the zone "Yard"`
	cfg := configs.Default().Bot()
	cfg.Alert.Rules = []alert.Rule{{When: when, Name: "visitors"}} // those of the settings stay with a problem
	begin(t, bot.OutputSettings{}, cfg, func(b *bot.Bot) {
		require.NoError(t, b.Regions.Put("yard", corner(region.Zone), "ana", time.Now()))
		require.ErrorContains(t, b.Regions.Remove("yard"), `"yard": alert rules name it; change or remove them first: visitors`)
		renamed := corner(region.Zone)
		renamed.Name = "garden"
		require.ErrorIs(t, b.Regions.Put("yard", renamed, "ana", time.Now()), region.ErrInUse)
		require.NoError(t, b.Regions.Put("yard", corner(region.Zone), "ana", time.Now()), "the shape may change")
		require.Contains(t, b.Alerts.List(time.Now())[0].Problem, "the scene engine answers the rules")
		_, err := b.Alerts.Add(alert.RuleText{When: when})
		require.ErrorContains(t, err, "the scene engine answers the rules")
		require.NoError(t, b.Alerts.Remove("r1"))
		require.NoError(t, b.Regions.Remove("yard"))
	})
	cfg.Engine.Engine, cfg.Remote = inference.EngineRemote, remote.DefaultConfig()
	cfg.Remote.URL, cfg.Remote.Model = "http://127.0.0.1:1/v1", "none"
	begin(t, bot.OutputSettings{}, cfg, func(b *bot.Bot) {
		require.Empty(t, b.Alerts.List(time.Now())[0].Problem, "a large model takes any sentence")
	})
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

	// What is too large to hand over leaves the masks; masks that are too large themselves cover the whole picture.
	begin(t, bot.OutputSettings{}, cfg, func(b *bot.Bot) {
		next := func(most int) (masks polygon.Masks, sheet string) {
			kept := map[string]json.RawMessage{}
			state := b.HandOver(most)
			require.LessOrEqual(t, len(state), most)
			require.NoError(t, json.Unmarshal([]byte(state), &kept))
			keys := conn.Keys{APIKey: "key", APISecret: "a secret of at least 32 characters"}
			out, err := bot.New(bot.Options{Settings: cfg, Keys: keys, Kept: kept, Log: zerolog.Nop()})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			defer func() { _ = out.Run(ctx) }()
			return out.Regions.Masks(), out.Background().Text
		}
		_, err := b.SetBackground("facts:\n"+strings.Repeat("- Blue plays at home.\n", 60), "ana")
		require.NoError(t, err)
		require.NoError(t, b.Regions.Put("window", corner(region.Mask), "ana", time.Now()))
		masks, sheet := next(15 << 10)
		require.Len(t, masks.Shapes, 2)
		require.NotEmpty(t, sheet)
		masks, sheet = next(1 << 10)
		require.Len(t, masks.Shapes, 2)
		require.Empty(t, sheet)
		masks, _ = next(200)
		require.True(t, masks.All)
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
	begin(t, to, cfg, func(b *bot.Bot) {
		was := b.Snapshot().RegionsVersion
		require.NoError(t, b.Regions.Clear())
		require.NotEqual(t, was, b.Snapshot().RegionsVersion, "pages read the regions anew")
	})
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Empty(t, b.Snapshot().Covered)
		require.Empty(t, b.Regions.Saved().Regions)
	})
}
