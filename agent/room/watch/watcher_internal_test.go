package watch

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
)

// TestFullQueueAsksForAKeyFrame: the connection is woken at once for a key frame, once for each loss.
func TestFullQueueAsksForAKeyFrame(t *testing.T) {
	t.Parallel()
	woken := 0
	w := newWatcher(media.WatchConfig{}, func() { woken++ }, zerolog.Nop())
	number, _ := w.newReader()
	for range queueLength {
		w.deliver(number, media.EncodedFrame{})
	}
	require.Zero(t, woken)
	w.deliver(number, media.EncodedFrame{})
	w.deliver(number, media.EncodedFrame{})
	require.Equal(t, 1, woken)
	require.EqualValues(t, 2, w.Stats().Dropped)
}
