package codec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

const soon = 20 * time.Second // generous: the machine may be busy

func allCodecs() []media.Codec {
	return []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1}
}

// runner is anything with a Run.
type runner interface {
	Run(ctx context.Context) error
}

// start runs r until the test ends.
func start(t testing.TB, r runner) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

// logLines keeps a log for a test to look into.
type logLines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	pids chan int
}

func newLog() *logLines { return &logLines{pids: make(chan int, 100)} }

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal(b, &line) == nil && line.PID != 0 {
		l.pids <- line.PID
	}
	return l.buf.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(t, "waited too long for "+what)
		panic("unreachable")
	}
}

// rig is a running decoder with what it said.
type rig struct {
	*codec.Decoder
	pictures chan media.VideoFrame
	restarts chan struct{}
	troubles chan error
	log      *logLines
}

func newRig(t testing.TB, o codec.Options) *rig {
	t.Helper()
	r := &rig{
		pictures: make(chan media.VideoFrame, 1000), restarts: make(chan struct{}, 100), troubles: make(chan error, 100),
		log: newLog(),
	}
	o.Path = programPath()
	o.OnPicture = func(f media.VideoFrame) { r.pictures <- f }
	o.OnRestart = func() { r.restarts <- struct{}{} }
	o.OnUndecodable = func(err error) { r.troubles <- err }
	o.Log = zerolog.New(r.log)
	d, err := codec.New(o)
	require.NoError(t, err)
	r.Decoder = d
	start(t, d)
	// Run has begun when Latest no longer says that it has not.
	require.Eventually(t, func() bool {
		_, err := d.Latest(t.Context())
		return !errors.Is(err, codec.ErrNotRunning)
	}, soon, time.Millisecond)
	return r
}

// feed decodes all frames as fast as the decoder takes them.
func (r *rig) feed(t testing.TB, frames []media.EncodedFrame, sample func(i int) bool) {
	t.Helper()
	for i, f := range frames {
		require.NoError(t, r.Decode(f, sample(i)))
		if i%20 == 19 { // stay inside the queue's bound
			_, err := r.Latest(t.Context())
			require.NoError(t, err)
		}
	}
}

func always(int) bool { return true }
func never(int) bool  { return false }

func TestDecodeAllSampledPictures(t *testing.T) {
	t.Parallel()
	for _, c := range allCodecs() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, c, 320, 180, 0, 60, 60)
			r := newRig(t, codec.Options{LongSide: 160})
			r.feed(t, clip, func(i int) bool { return i%3 == 0 })
			for i := 0; i < len(clip); i += 3 {
				p := receive(t, r.pictures, "a sampled picture")
				require.Equal(t, [2]int{160, 90}, [2]int{p.Width, p.Height})
				require.Equal(t, i, readBars(t, p))
				require.Equal(t, clip[i].PTS, p.PTS)
				require.Equal(t, clip[i].NTP, p.NTP)
				require.Equal(t, clip[i].Arrival, p.Arrival)
				require.Equal(t, clip[i].Epoch, p.Epoch)
			}
			p, err := r.Latest(t.Context())
			require.NoError(t, err)
			require.Equal(t, len(clip)-1, readBars(t, p), "the latest picture is not the last one handed over")
			require.Equal(t, clip[len(clip)-1].PTS, p.PTS)
			require.Empty(t, r.pictures, "more pictures than were asked for")
			require.Zero(t, r.Stats().Undecodable, r.log.String())
		})
	}
}

func TestKilledProcessIsReplaced(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 320, 180, 0, 40, 20)
	r := newRig(t, codec.Options{LongSide: 320})
	r.feed(t, clip[:10], never)
	_, err := r.Latest(t.Context())
	require.NoError(t, err)

	require.NoError(t, syscall.Kill(receive(t, r.log.pids, "a process"), syscall.SIGKILL))
	receive(t, r.restarts, "the call of OnRestart")
	require.ErrorIs(t, r.Decode(clip[10], true), codec.ErrNeedKeyFrame)
	_, err = r.Latest(t.Context())
	require.ErrorIs(t, err, codec.ErrNoPicture)

	r.feed(t, clip[20:], always)
	for i := 20; i < 40; i++ {
		require.Equal(t, i, readBars(t, receive(t, r.pictures, "a picture from the new process")))
	}
	require.EqualValues(t, 1, r.Stats().Restarts)
}
