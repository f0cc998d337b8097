//go:build integration

package bot_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/room"
	"touchline/agent/state"
	"touchline/configs"
)

// begin runs f with a bot that keeps its state in a folder, and returns the log.
func begin(t *testing.T, to bot.OutputSettings, cfg bot.Settings, f func(*bot.Bot)) string {
	t.Helper()
	var said bytes.Buffer
	log := zerolog.New(zerolog.SyncWriter(&said))
	require.NoError(t, bot.WithOutputs(t.Context(), to, log, func(out *bot.Outputs) error {
		b, err := bot.New(bot.Options{Settings: cfg, Keys: room.Keys{APIKey: "key", APISecret: "a secret of at least 32 characters"}, Outputs: out, Log: log})
		if err != nil {
			return err
		}
		f(b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = b.Run(ctx) // closes the engine
		return nil
	}))
	return said.String()
}

func change(t *testing.T, b *bot.Bot, c agent.Change) {
	t.Helper()
	_, err := b.Change(c, "ana")
	require.NoError(t, err)
}

// TestKept: a bot begins with what people changed in the room of an earlier one, and with the settings for everything else.
func TestKept(t *testing.T) {
	to := bot.OutputSettings{State: state.Config{Path: t.TempDir()}}
	cfg := configs.Default().Bot()
	begin(t, to, cfg, func(b *bot.Bot) {
		require.True(t, b.Snapshot().Kept)
		change(t, b, agent.Change{Instruction: new("Follow the ball."), Profile: new("sports"), Settings: agent.Settings{Frames: new(8), MinInterval: new(2.0)}})
		change(t, b, agent.Change{Settings: agent.Settings{Stride: new(2), Speech: new(false)}})
		id, err := b.Alerts.Add(agent.AlertRule{When: "motion in left"})
		require.NoError(t, err)
		require.NoError(t, b.Alerts.Remove(id))
		_, err = b.Alerts.Add(agent.AlertRule{When: "dark", Days: []string{"mon"}, Zone: "UTC"})
		require.NoError(t, err)
		_, err = b.PutProfile(agent.Profile{Name: "sports", Label: "Our club", Prompt: "You call our match."}, false, "ana")
		require.NoError(t, err)
		_, err = b.SetSheet("facts: [It rains]", "ana")
		require.NoError(t, err)
		for _, phase := range []string{agent.AlertNew, agent.AlertCleared} {
			b.Hub.Alert(agent.Alert{ID: "r1-x", Phase: phase, Reason: phase}, nil)
		}
		b.Leave("the program ends")
		require.Empty(t, b.Snapshot().Instruction)
	})

	cfg.Pacing.PauseAfter *= 2 // another default
	said := begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, "Follow the ball.", s.Instruction)
		require.Equal(t, "ana", s.InstructionBy)
		require.Equal(t, "ACTIVE", s.MonitorMode)
		require.Equal(t, "sports", s.Profile)
		require.Equal(t, []any{8, 2, 2.0, false}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval, *s.Settings.Speech})
		require.Equal(t, cfg.Pacing.PauseAfter.Seconds(), *s.Settings.PauseAfter)
		require.Equal(t, agent.Profile{Name: "sports", Label: "Our club", Prompt: "You call our match.", Kind: agent.ProfileChanged}, s.Profiles[1])
		require.Equal(t, "facts: [It rains]", b.Sheet().Text)
		rules := b.Alerts.Kept()
		require.Equal(t, 2, rules.Last)
		require.Len(t, b.Hub.Alerts(), 1)
		require.Equal(t, []string{agent.AlertNew, agent.AlertCleared}, []string{b.Hub.Alerts()[0].Reason, b.Hub.Alerts()[0].Phase})
		require.Len(t, rules.Rules, 1)
		require.Equal(t, "r2", rules.Rules[0].ID)
		require.Equal(t, []string{"mon"}, rules.Rules[0].Days)
	})
	require.NotContains(t, said, "not restored")

	other := cfg
	other.LiveKit.Room = "final"
	begin(t, to, other, func(b *bot.Bot) { require.Empty(t, b.Snapshot().Instruction, "another room") })

	// What is not valid today is left out, and stays in the file.
	small := cfg
	small.Media.WindowSize = 10
	said = begin(t, to, small, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{4, 2, 2.0}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval})
		require.Equal(t, "Follow the ball.", s.Instruction)
		change(t, b, agent.Change{Settings: agent.Settings{MinInterval: new(3.0)}})
	})
	require.Contains(t, said, "kept value not restored")
	require.Contains(t, said, "frame_stride")
	begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{8, 2, 3.0, "sports"}, []any{*s.Settings.Frames, *s.Settings.Stride, *s.Settings.MinInterval, s.Profile})
		b.Stop("ana")
	})

	// An instruction that people ended stays ended; a new one of the settings holds.
	begin(t, to, cfg, func(b *bot.Bot) {
		require.Empty(t, b.Snapshot().Instruction)
		change(t, b, agent.Change{Instruction: new("Follow the referee.")})
	})
	asked := cfg
	asked.Agent.Instruction = "Count the people."
	begin(t, to, asked, func(b *bot.Bot) {
		require.Equal(t, "Count the people.", b.Snapshot().Instruction)
		b.Stop("ana")
	})
	begin(t, to, asked, func(b *bot.Bot) { require.Equal(t, "IDLE", b.Snapshot().MonitorMode) })

	to.Forget = true
	said = begin(t, to, cfg, func(b *bot.Bot) {
		s := b.Snapshot()
		require.Equal(t, []any{"default", cfg.Agent.Frames}, []any{s.Profile, *s.Settings.Frames})
		require.Empty(t, b.Alerts.Kept().Rules)
	})
	require.Contains(t, said, `"rooms":1`)
	require.Contains(t, said, "state of all rooms forgotten")
	err := bot.WithOutputs(t.Context(), bot.OutputSettings{Forget: true}, zerolog.Nop(), nil)
	require.ErrorContains(t, err, "--forget: nothing is kept; name the folder with --state DIR")
}
