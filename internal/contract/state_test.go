package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/state"
	"touchline/internal/contract"
)

// TestOldState: what a bot has of the state that 9b77654 kept, for each way to change something.
func TestOldState(t *testing.T) {
	dir := contract.Unpack(t, "testdata/9b77654.tar.gz")
	rooms := []string{
		"untouched", "everything", "preset", "preset, then one of its settings", "preset, then another setting",
		"one of its settings, then preset", "auto", "no preset", "stopped", "paused", "engine",
	}
	var out strings.Builder
	var plain map[string]json.RawMessage // the settings of a room where nothing is kept
	to := bot.OutputSettings{State: state.Config{Path: dir}}
	require.NoError(t, bot.WithOutputs(t.Context(), to, zerolog.Nop(), func(outputs *bot.Outputs) error {
		for _, room := range rooms {
			cfg := botSettings()
			cfg.Agent.LiveKit.Room = room
			p := open(t, cfg, outputs)
			s := p.bot.Snapshot()
			fmt.Fprintf(&out, "%s: engine %s, %s, instruction %q by %q, profile %s\n", room, s.Engine, s.MonitorMode, s.Instruction, s.InstructionBy, s.Profile)
			for _, profile := range s.Profiles {
				if profile.Kind != "built-in" {
					fmt.Fprintf(&out, "  profile %s", contract.JSON(marshal(t, profile)))
				}
			}
			if sheet := p.bot.Background().Text; sheet != "" {
				fmt.Fprintf(&out, "  sheet %q\n", sheet)
			}
			if kept := p.bot.Alerts.Saved(); kept.Last > 0 {
				fmt.Fprintf(&out, "  rules %s", contract.JSON(marshal(t, kept)))
			}
			for _, a := range p.bot.Hub.Alerts() {
				fmt.Fprintf(&out, "  alert %s", contract.JSON(marshal(t, a)))
			}
			var values map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(marshal(t, s.Settings), &values))
			if plain == nil {
				plain = values
			}
			for _, name := range slices.Sorted(maps.Keys(values)) {
				if string(values[name]) != string(plain[name]) {
					fmt.Fprintf(&out, "  %s = %s\n", name, values[name])
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = p.bot.Run(ended) // closes the engine
		}
		return nil
	}))
	contract.Compare(t, "testdata/old-state.txt", contract.Scrub(out.String()))
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}
