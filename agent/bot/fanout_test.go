package bot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/media"
	"touchline/media/delay"
)

// nowhere is a room that takes every picture.
type nowhere struct{}

func (nowhere) WriteFrame(delay.OutFrame) (time.Time, error) { return time.Time{}, nil }

func TestSlowReaderGoesOnAtAKeyFrame(t *testing.T) {
	asked := 0
	fanout := bot.NewFanout(nowhere{}, func() { asked++ })
	frames, stop := bot.Subscribe(fanout)
	defer stop()
	require.Equal(t, 1, asked, "a new reader needs a key frame")
	write := func(n int, key bool) {
		f := delay.OutFrame{EncodedFrame: media.EncodedFrame{PTS: time.Duration(n), KeyFrame: key}}
		_, err := fanout.WriteFrame(f)
		require.NoError(t, err)
	}
	write(-1, false)
	require.Empty(t, frames, "nothing before the first key frame")
	for n := range 100 {
		write(n, n == 0)
	}
	require.Equal(t, 2, asked, "one request for the lost frames")
	for n := range cap(frames) {
		require.Equal(t, time.Duration(n), (<-frames).PTS)
	}
	write(100, false)
	require.Empty(t, frames, "what follows a gap cannot be decoded")
	write(101, true)
	write(102, false)
	require.Equal(t, time.Duration(101), (<-frames).PTS)
	require.Equal(t, time.Duration(102), (<-frames).PTS)
}

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
