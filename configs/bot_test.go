package configs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
	"touchline/configs"
	"touchline/media"
)

func TestMetadataOverSettings(t *testing.T) {
	base := configs.Default()
	base.Agent.LiveKit.Token = "a ready one"
	off := false
	cfg, err := base.Job(worker.Job{
		URL: "wss://x", Room: "match", Identity: "agent-tl", Name: "TL",
		Metadata: worker.Metadata{
			Profile: "sports", Instruction: "Count.", Track: media.WatchConfig{Source: "screen_share"}, Speech: &off, Language: "nl",
		},
	})
	require.NoError(t, err)
	require.Equal(t, "match", cfg.LiveKit.Room)
	require.Equal(t, "agent-tl", cfg.LiveKit.Identity)
	require.Empty(t, cfg.LiveKit.Token)
	require.Equal(t, "sports", cfg.Agent.Profile)
	require.Equal(t, "Count.", cfg.Agent.Instruction)
	require.Equal(t, "screen_share", cfg.Media.Watch.Source)
	require.False(t, cfg.Engine.Voice.Enabled)
	require.Equal(t, "nl", cfg.Engine.Voice.Language)
	require.Equal(t, base.Inference.Engine, cfg.Engine.Engine)

	cfg, err = base.Job(worker.Job{URL: "wss://x", Room: "r", Identity: "agent:vera", Name: "TL", Participant: "vera"})
	require.NoError(t, err)
	require.Equal(t, "vera", cfg.Media.Watch.Identity)

	for _, m := range []worker.Metadata{{Profile: "opera"}, {Engine: "other"}, {Engine: "remote"}} {
		_, err = base.Job(worker.Job{URL: "wss://x", Room: "r", Identity: "agent", Metadata: m})
		require.ErrorContains(t, err, "dispatch metadata: ")
	}
}
