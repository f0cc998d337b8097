package bot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
)

func TestSizeOfAnotherTrackIsNotTold(t *testing.T) {
	pictures := agent.SourceInfo{Codec: "VP8", Width: 1280, Height: 720, FPS: 30, Epoch: 4}
	chosen := agent.SourceInfo{Identity: "ann", Track: "TR_1", Muted: true, Epoch: 5}
	require.Equal(t, agent.SourceInfo{Identity: "ann", Track: "TR_1", Muted: true}, bot.Described(pictures, chosen),
		"these pictures are of the track before")
	require.Empty(t, bot.Described(pictures, agent.SourceInfo{}), "the track is gone")
	pictures.Epoch = 6 // its timestamps started again once
	require.Equal(t, agent.SourceInfo{Identity: "ann", Track: "TR_1", Muted: true, Codec: "VP8", Width: 1280, Height: 720, FPS: 30},
		bot.Described(pictures, chosen))
}
