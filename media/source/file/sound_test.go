package file_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// The AAC of a file comes as Opus, in step with its pictures: it sounds from the second second on.
func TestSoundComesAsOpus(t *testing.T) {
	path := make2s(t, "sound.mp4", append(append([]string{
		"-f", "lavfi", "-i", "aevalsrc='if(gte(t,1),sin(2*PI*440*t),0)':s=44100:d=2", "-c:a", "aac",
	}, x264...), "-shortest")...)
	a, err := source.ParseAddress(path)
	require.NoError(t, err)
	clip, err := file.New(file.Options{Address: a, Allow: source.AllowEverything(), Now: time.Now})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	dec, err := opus.NewDecoder(48000, 2)
	require.NoError(t, err)
	var packets, loudAt int
	var first, last uint32
	pictures := 0
	pcm := make([]int16, 5760*2)
	err = clip.Pull(ctx, source.Sink{
		Frame: func(media.EncodedFrame) { pictures++ },
		Opus: func(o source.Opus) {
			if packets == 0 {
				first = o.Timestamp
			} else {
				require.Equal(t, last+960, o.Timestamp, "20 ms each, without a gap")
			}
			packets, last = packets+1, o.Timestamp
			n, err := dec.Decode(o.Payload, pcm)
			require.NoError(t, err)
			peak := int16(0)
			for _, v := range pcm[:2*n] {
				peak = max(peak, v)
			}
			if loudAt == 0 && peak > 8000 {
				loudAt = int(o.Timestamp) / 48
			}
		},
	})
	require.ErrorIs(t, err, source.ErrEnded)
	require.Equal(t, 50, pictures)
	require.Greater(t, packets, 85)
	require.Less(t, first, uint32(9600))
	require.InDelta(t, 1000, loudAt, 80, "ms")
	t.Logf("%d packets, sound from %d ms on", packets, loudAt)
}
