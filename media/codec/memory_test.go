//go:build integration

package codec_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/codectest"
)

// TestMemory: decoders share the memory of the program. One that does not fit says so with figures, and works after another has ended.
func TestMemory(t *testing.T) {
	memory := codec.NewMemory(700 << 20)
	small := media.EncodedFrame{Codec: codec.MJPEG, KeyFrame: true, Width: 4000, Height: 3000, Data: []byte{0}}
	large := media.EncodedFrame{Codec: codec.MJPEG, KeyFrame: true, Width: 7680, Height: 4320, Data: []byte{0}}
	start := func() (d *codec.Decoder, stop func()) {
		d, err := codec.New(codec.Options{Path: codectest.Program(), Memory: memory})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		require.Eventually(t, func() bool {
			_, err := d.Latest(ctx)
			return !errors.Is(err, codec.ErrNotRunning)
		}, soon, time.Millisecond)
		return d, func() {
			cancel()
			require.NoError(t, <-done)
		}
	}
	a, stopA := start()
	b, stopB := start()
	require.NoError(t, a.Decode(small, false))
	require.NoError(t, a.Decode(small, false))
	const full = "a picture of 7680 x 4320 pixels needs 569 MB of memory; 205 of the 700 MB of sources.memory are in use"
	require.ErrorContains(t, b.Decode(large, false), full)
	require.Eventually(t, func() bool { return b.Trouble() == full }, soon, 10*time.Millisecond)
	require.NoError(t, b.Decode(small, false))
	stopA()
	require.NoError(t, b.Decode(large, false))
	stopB()
}
