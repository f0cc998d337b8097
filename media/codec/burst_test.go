//go:build integration

package codec_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

// decoded returns the number of access units sent to the process.
func decoded(s codec.Stats) uint64 { return s.Units - s.Dropped - s.Skipped }

// There is one write for each sample, and units that no sample needs are not decoded;
// the pictures are the same as when everything is decoded.
func TestUnitsAreHeldForTheSample(t *testing.T) {
	t.Parallel()
	for _, c := range allCodecs() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			const frames, gop = 120, 30
			clip := barsClip(t, c, 320, 180, 0, frames, gop)
			sampled := func(i int) bool { return i%gop == 4 || i%gop == 19 }
			pictures := func(all bool) (pix [][]byte, stats codec.Stats) {
				r := newRig(t, codec.Options{LongSide: 160})
				for i, f := range clip {
					require.NoError(t, r.Decode(f, all || sampled(i)))
					if all || sampled(i) { // one at a time, so that each has its own write
						p := receive(t, r.pictures, "a sampled picture")
						require.Equal(t, f.PTS, p.PTS)
						if sampled(i) {
							pix = append(pix, p.Pix)
						}
					}
				}
				return pix, r.Stats()
			}
			every, stats := pictures(true)
			require.EqualValues(t, frames, stats.Bursts)
			require.EqualValues(t, frames, decoded(stats))

			some, stats := pictures(false)
			require.Equal(t, every, some)
			require.EqualValues(t, len(some), stats.Bursts)
			require.Zero(t, stats.Dropped)
			// The units after the last sample are still held.
			want := uint64(frames/gop*20 + 10)
			if c == media.H265 { // its key frames may be followed by pictures that refer across them
				want = frames
			}
			require.Equal(t, want, decoded(stats))
		})
	}
}

// Latest decodes all held units at once.
func TestLatestDecodesWhatIsHeld(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 320, 180, 0, 40, 20)
	r := newRig(t, codec.Options{})
	for i, f := range clip {
		require.NoError(t, r.Decode(f, false))
		if i == 12 || i == 35 {
			before := r.Stats().Bursts
			p, err := r.Latest(t.Context())
			require.NoError(t, err)
			require.Equal(t, i, readBars(t, p))
			require.Equal(t, before+1, r.Stats().Bursts)
		}
	}
	require.EqualValues(t, 7, r.Stats().Skipped, "13 to 19 are not needed")
}

// Held units are bounded in number, media time and bytes; beyond a bound they are
// decoded without loss.
func TestHeldUnitsAreBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(i int, f *media.EncodedFrame)
		held   int // at most
	}{
		{"number", func(int, *media.EncodedFrame) {}, 45},
		{"time", func(i int, f *media.EncodedFrame) { f.PTS = time.Duration(i) * 150 * time.Millisecond }, 15},
		// Zeros after a VP8 picture are ignored.
		{"bytes", func(_ int, f *media.EncodedFrame) { f.Data = append(bytes.Clone(f.Data), make([]byte, 150_000)...) }, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			clip := barsClip(t, media.VP8, 64, 36, 0, 60, 60)
			r := newRig(t, codec.Options{})
			for i := range tt.held {
				require.Zero(t, r.Stats().Bursts, "sent with %d held", i)
				tt.change(i, &clip[i])
				require.NoError(t, r.Decode(clip[i], false))
			}
			require.Eventually(t, func() bool { return r.Stats().Bursts == 1 }, soon, time.Millisecond)
			f := clip[tt.held]
			tt.change(tt.held, &f)
			require.NoError(t, r.Decode(f, true))
			require.Equal(t, tt.held, readBars(t, receive(t, r.pictures, "the picture after it")))
			require.Zero(t, r.Stats().Skipped+r.Stats().Dropped+r.Stats().Undecodable, r.log.String())
		})
	}
}

// A decoder that delays pictures, as with B frames, receives the units after a sample at
// once until the picture has come.
func TestLatePictureIsNotHeldUp(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.H264, 320, 180, 0, 60, 60, "-tune", "animation", "-bf", "2", "-b_strategy", "0")
	r := newRig(t, codec.Options{})
	for i, f := range clip[:21] {
		require.NoError(t, r.Decode(f, i == 20))
	}
	_, err := r.Latest(t.Context()) // the process has done its work
	require.NoError(t, err)
	require.Empty(t, r.pictures, "the clip has no reordering to test")
	for _, f := range clip[21:27] {
		require.NoError(t, r.Decode(f, false))
	}
	require.Equal(t, 20*frameGap, receive(t, r.pictures, "the sampled picture").PTS)
}

// A process that ends within a burst loses that burst, but no held units: the next one
// begins with their key frame.
func TestProcessKilledInABurst(t *testing.T) {
	t.Parallel()
	clip := barsClip(t, media.VP8, 320, 180, 0, 60, 20)
	r := newRig(t, codec.Options{LongSide: 320})
	pid := receive(t, r.log.pids, "a process")
	signalled(t, pid, syscall.SIGSTOP)
	for i, f := range clip[:16] {
		require.NoError(t, r.Decode(f, i == 15))
	}
	require.Eventually(t, func() bool { return r.Stats().Bursts == 1 }, soon, time.Millisecond)
	for _, f := range clip[16:26] { // 16 to 19 go when the key frame comes
		require.NoError(t, r.Decode(f, false))
	}
	signalled(t, pid, syscall.SIGKILL)
	receive(t, r.restarts, "the call of OnRestart")
	require.NoError(t, r.Decode(clip[26], true))
	require.Equal(t, 26, readBars(t, receive(t, r.pictures, "a picture of the new process")))
	require.Empty(t, r.pictures, "the sample of the lost burst is lost")
	stats := r.Stats()
	require.EqualValues(t, 1, stats.Restarts)
	require.EqualValues(t, 4, stats.Skipped)
	require.Zero(t, stats.Dropped, "only what the process had is lost")

	r.feed(t, clip[27:], func(i int) bool { return (27+i)%10 == 0 })
	for _, want := range []int{30, 40, 50} {
		require.Equal(t, want, readBars(t, receive(t, r.pictures, "a picture")))
	}
	require.Zero(t, r.Stats().Undecodable, r.log.String())
}
