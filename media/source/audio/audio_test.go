package audio_test

import (
	"math"
	"testing"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/g711"
	"github.com/stretchr/testify/require"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/media/source"
	"touchline/media/source/audio"
)

// tone is n samples of 400 Hz at 8 kHz, big endian.
func tone(n int) []byte {
	out := make([]byte, 2*n)
	for i := range n {
		v := uint16(int16(12000 * math.Sin(2*math.Pi*400*float64(i)/8000)))
		out[2*i], out[2*i+1] = byte(v>>8), byte(v)
	}
	return out
}

func encode(t *testing.T, mulaw bool, n int) []byte {
	t.Helper()
	if mulaw {
		b, err := g711.Mulaw(tone(n)).Marshal()
		require.NoError(t, err)
		return b
	}
	b, err := g711.Alaw(tone(n)).Marshal()
	require.NoError(t, err)
	return b
}

func TestG711BecomesOpus(t *testing.T) {
	for name, mulaw := range map[string]bool{"PCMU": true, "PCMA": false} {
		t.Run(name, func(t *testing.T) {
			var got []source.Opus
			g, err := audio.NewG711(mulaw, 8000, 1, func(o source.Opus) { got = append(got, o) })
			require.NoError(t, err)
			all := encode(t, mulaw, 8000)
			start := uint32(1<<32 - 1000)           // it wraps on the way
			for at := 0; at < len(all); at += 240 { // 30 ms a packet, as some cameras send
				g.Write(all[at:min(at+240, len(all))], start+uint32(at), time.Unix(1, 0))
			}
			require.Len(t, got, 50)
			require.True(t, got[0].Marker)
			for i, o := range got {
				require.Equal(t, start*6+uint32(960*i), o.Timestamp)
				require.Equal(t, i == 0, o.Marker)
			}
			dec, err := opus.NewDecoder(48000, 1)
			require.NoError(t, err)
			pcm := make([]int16, 5760)
			crossings, samples := 0, 0
			for i, o := range got {
				n, err := dec.Decode(o.Payload, pcm)
				require.NoError(t, err)
				if i < 10 {
					continue
				}
				samples += n
				for k := 1; k < n; k++ {
					if pcm[k-1] < 0 && pcm[k] >= 0 {
						crossings++
					}
				}
			}
			require.InDelta(t, 400, float64(crossings)/float64(samples)*48000, 15, "Hz")

			// After a gap the timestamp is the new one.
			got = nil
			g.Write(encode(t, mulaw, 320), start+80000, time.Unix(2, 0))
			require.Len(t, got, 2)
			require.True(t, got[0].Marker)
			require.Equal(t, (start+80000)*6, got[0].Timestamp)
		})
	}
	_, err := audio.NewG711(true, 11025, 1, nil)
	require.Error(t, err)
}

func FuzzG711(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint32(7), true)
	f.Add(make([]byte, 481), uint32(math.MaxUint32), false)
	f.Fuzz(func(t *testing.T, payload []byte, timestamp uint32, mulaw bool) {
		n := 0
		g, err := audio.NewG711(mulaw, 8000, 2, func(source.Opus) { n++ })
		require.NoError(t, err)
		g.Write(payload, timestamp, time.Time{})
		g.Write(payload, timestamp+uint32(len(payload)), time.Time{})
		require.LessOrEqual(t, n, 2*len(payload)/320+2)
	})
}

// TestWithoutFFmpeg: the error names the source and the package to install.
func TestWithoutFFmpeg(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := audio.NewAAC(48000, time.Now, nil)
	require.ErrorContains(t, err, "AAC sound of an RTSP camera needs the program ffmpeg")
	require.ErrorContains(t, err, "apt-get install ffmpeg")
}
