package watch

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
)

// TestKeyFrameInterval: every 4 s without viewers, every second with one, from the moment when it joins; a wanted one comes
// half a second after the last one at the earliest.
func TestKeyFrameInterval(t *testing.T) {
	t.Parallel()
	var c keyFrameClock
	now := time.Unix(1000, 0)
	count := func(d, every time.Duration, wanted bool) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			if c.due(now, every, wanted) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 10, count(40*time.Second, keyFrameAlone, false))
	require.Equal(t, 10, count(10*time.Second, keyFrameWatched, false))
	require.Equal(t, 10, count(40*time.Second, keyFrameAlone, false))
	require.Equal(t, 20, count(10*time.Second, keyFrameAlone, true))
}

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
