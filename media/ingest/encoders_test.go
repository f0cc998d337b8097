//go:build integration

package ingest_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs/av1/obu"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

func TestRealEncoders(t *testing.T) {
	t.Parallel()
	for _, codec := range []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1} {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			const w, h, n = 322, 182, 40 // not multiples of 16: cropping counts
			units := encode(t, codec, w, h, n)
			frames := packetise(codec, units, 65500, 0xffff0000, 500)
			a := ingest.New(ingest.Options{Codec: codec, Epoch: 3})
			var out []media.EncodedFrame
			for i, f := range frames {
				at := start().Add(time.Duration(i) * time.Second / 30)
				for j, p := range f.packets {
					got := a.Push(clone(p), at)
					if j < len(f.packets)-1 {
						require.Empty(t, got)
					} else {
						require.Len(t, got, 1, "frame %d must be complete at its marker", i)
					}
					out = append(out, got...)
				}
			}
			keys := 0
			for i, f := range out {
				require.Equal(t, codec, f.Codec)
				require.Equal(t, uint32(3), f.Epoch)
				require.Equal(t, w, f.Width)
				require.Equal(t, h, f.Height)
				require.Equal(t, 1, f.SpatialLayers)
				require.InDelta(t, float64(time.Duration(i)*time.Second/30), float64(f.PTS), 1)
				require.Len(t, f.Packets, len(frames[i].packets))
				if f.KeyFrame {
					keys++
				}
				switch codec {
				case media.H264, media.H265:
					require.Equal(t, splitNAL(units[i]), splitNAL(f.Data), "frame %d", i)
				case media.AV1:
					require.Equal(t, obus(t, units[i]), obus(t, f.Data), "frame %d", i)
				default:
					require.Equal(t, units[i], f.Data, "frame %d", i)
				}
			}
			require.Equal(t, 3, keys)
			require.True(t, out[0].KeyFrame)
			require.True(t, out[15].KeyFrame)
			require.Equal(t, uint64(n), a.Stats().Frames)
			require.Zero(t, a.Stats().Broken+a.Stats().Gaps+a.Stats().Waiting)
		})
	}
}

// TestMultiSlice: four slices a picture, every one in its own packets.
func TestMultiSlice(t *testing.T) {
	t.Parallel()
	units := encode(t, media.H264, 320, 192, 20, "-slices", "4")
	a := ingest.New(ingest.Options{Codec: media.H264})
	out := pushAll(a, packetise(media.H264, units, 1, 1, 1200))
	require.Len(t, out, 20)
}

func TestBlankH264(t *testing.T) {
	t.Parallel()
	units := encode(t, media.H264, 2, 2, 2, "-g", "1")
	a := ingest.New(ingest.Options{Codec: media.H264})
	require.Empty(t, pushAll(a, packetise(media.H264, units, 1, 1, 1200)))
	require.Equal(t, uint64(2), a.Stats().Blanks)
}

func TestParameterSetsSentOnce(t *testing.T) {
	t.Parallel()
	for _, codec := range []media.Codec{media.H264, media.H265} {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			units := encode(t, codec, 320, 192, 40)
			sets := splitNAL(units[0])
			for i := 1; i < len(units); i++ {
				if i%15 != 0 {
					continue
				}
				var kept []byte
				for _, nal := range splitNAL(units[i]) {
					if codec == media.H264 && (nal[0]&0x1f == 7 || nal[0]&0x1f == 8) ||
						codec == media.H265 && nal[0]>>1&0x3f >= 32 && nal[0]>>1&0x3f <= 34 {
						continue
					}
					kept = append(append(kept, 0, 0, 0, 1), nal...)
				}
				units[i] = kept
			}
			a := ingest.New(ingest.Options{Codec: codec})
			out := pushAll(a, packetise(codec, units, 1, 1, 1200))
			require.Len(t, out, 40)
			for _, i := range []int{15, 30} {
				require.True(t, out[i].KeyFrame)
				require.Equal(t, sets[0], splitNAL(out[i].Data)[0], "a decoder that starts here needs them")
				require.Greater(t, len(out[i].Packets), len(packetise(codec, units[i:i+1], 1, 1, 1200)[0].packets))
			}
		})
	}
}

// encode makes a short clip with the ffmpeg command line and returns its
// access units as the container had them.
func encode(tb testing.TB, codec media.Codec, w, h, frames int, extra ...string) [][]byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "clip")
	args := []string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i",
		"testsrc2=size=" + strconv.Itoa(w) + "x" + strconv.Itoa(h) + ":rate=30", "-frames:v", strconv.Itoa(frames), "-pix_fmt", "yuv420p", "-threads", "2",
	}
	switch codec {
	case media.VP8:
		args = append(args, "-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "800k", "-g", "15", "-f", "ivf")
	case media.VP9:
		args = append(args, "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "800k", "-g", "15",
			"-lag-in-frames", "0", "-f", "ivf")
	case media.H264:
		args = append(args, "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-g", "15", "-b:v", "800k",
			"-x264-params", "aud=1", "-f", "h264")
	case media.H265:
		args = append(args, "-c:v", "libx265", "-preset", "ultrafast", "-tune", "zerolatency", "-g", "15", "-b:v", "800k",
			"-x265-params", "aud=1:repeat-headers=1:bframes=0:keyint=15:log-level=none", "-f", "hevc")
	case media.AV1:
		args = append(args, "-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-g", "15", "-b:v", "800k",
			"-lag-in-frames", "0", "-f", "ivf")
	case media.CodecUnknown:
	}
	args = append(append(args, extra...), path)
	msg, err := exec.CommandContext(tb.Context(), "ffmpeg", args...).CombinedOutput()
	require.NoError(tb, err, "ffmpeg: %s", msg)
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	var units [][]byte
	switch codec {
	case media.H264, media.H265:
		for _, nal := range splitNAL(data) {
			aud := codec == media.H264 && nal[0]&0x1f == 9 || codec == media.H265 && nal[0]>>1&0x3f == 35
			if aud {
				units = append(units, nil)
				continue
			}
			last := len(units) - 1
			units[last] = append(append(units[last], 0, 0, 0, 1), nal...)
		}
	default:
		for rest := data[32:]; len(rest) > 12; {
			n := int(binary.LittleEndian.Uint32(rest))
			units = append(units, rest[12:12+n])
			rest = rest[12+n:]
		}
	}
	require.Len(tb, units, frames)
	return units
}

func TestAV1SpatialLayersAreOneUnit(t *testing.T) {
	t.Parallel()
	units := encode(t, media.AV1, 320, 192, 4)
	var frames []truth
	seq := uint16(1)
	for i, u := range units {
		tr := truth{ts: uint32(i) * 3000}
		for sid := range byte(2) {
			var elements [][]byte
			for _, o := range obus(t, u) {
				if sid > 0 && obu.Type(o[0]) == obu.OBUSequenceHeader {
					continue
				}
				elements = append(elements, append([]byte{o[0]<<3 | 4, sid << 3}, o[1:]...))
			}
			for k, e := range elements {
				head := byte(0x10)
				tr.packets = append(tr.packets, &rtp.Packet{
					Header: rtp.Header{
						SequenceNumber: seq, Timestamp: tr.ts, SSRC: 7, Marker: sid == 1 && k == len(elements)-1,
					},
					Payload: append([]byte{head}, e...),
				})
				seq++
			}
		}
		frames = append(frames, tr)
	}
	a := ingest.New(ingest.Options{Codec: media.AV1})
	out := pushAll(a, frames)
	require.Len(t, out, 4, "%+v", a.Stats())
	require.True(t, out[0].KeyFrame)
	require.False(t, out[1].KeyFrame)
	require.Equal(t, 2, out[3].SpatialLayers)
	require.Equal(t, 320, out[3].Width)
}

// TestLossWithEveryCodec drops packets at random and requires complete, decodable
// units.
func TestLossWithEveryCodec(t *testing.T) {
	t.Parallel()
	for _, codec := range []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1} {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			units := encode(t, codec, 320, 192, 60)
			for drop := range 12 {
				frames := packetise(codec, units, 1, 1, 300)
				// The first, the second, the last packet of a key frame and of others.
				i := []int{15, 20, 30, 44}[drop%4]
				k := []int{0, 1, len(frames[i].packets) - 1}[drop/4]
				k = min(k, len(frames[i].packets)-1)
				frames[i].packets = append(frames[i].packets[:k:k], frames[i].packets[k+1:]...)
				a := ingest.New(ingest.Options{Codec: codec})
				out := pushAll(a, frames)
				out = append(out, a.Tick(at(100))...)
				next := (i/15 + 1) * 15
				require.Len(t, out, i+60-next, "frame %d packet %d lost: %+v", i, k, a.Stats())
				require.True(t, next == 60 || out[i].KeyFrame)
				require.True(t, next == 60 || out[i].PTS > out[i-1].PTS+time.Second/30)
			}
		})
	}
}

func BenchmarkAssembler(b *testing.B) {
	for _, codec := range []media.Codec{media.VP8, media.VP9, media.H264, media.H265, media.AV1} {
		b.Run(codec.String(), func(b *testing.B) {
			// 640x360 at 800 kbit/s, packets of 1200 bytes as a browser sends.
			frames := packetise(codec, encode(b, codec, 640, 360, 30, "-b:v", "2M"), 0, 0, 1200)
			a := ingest.New(ingest.Options{Codec: codec})
			seq, ts, now, n := uint16(0), uint32(0), start(), 0
			var packets []*rtp.Packet
			for _, f := range frames {
				packets = append(packets, f.packets...)
			}
			b.ReportAllocs()
			for b.Loop() {
				src := packets[n%len(packets)]
				n++
				p := &rtp.Packet{Header: src.Header, Payload: src.Payload}
				p.SequenceNumber, p.Timestamp = seq, ts
				seq++
				if p.Marker {
					ts += 3000
					now = now.Add(time.Second / 30)
				}
				a.Push(p, now)
			}
			s := a.Stats()
			if s.Broken+s.Waiting > 0 {
				b.Fatalf("expected a clean stream, got %+v", s)
			}
			b.ReportMetric(float64(s.Packets)/float64(s.Frames), "packets/frame")
		})
	}
}

func TestMarkerOnEverySlice(t *testing.T) {
	t.Parallel()
	units := encode(t, media.H264, 320, 192, 60, "-slices", "4")
	frames := packetise(media.H264, units, 1, 1, 1200)
	a := ingest.New(ingest.Options{Codec: media.H264})
	var out []media.EncodedFrame
	for i, f := range frames {
		out = append(out, pushFrame(a, f, at(i), func(p *rtp.Packet) { p.Marker = true })...)
	}
	// Then units are completed by the next timestamp.
	require.GreaterOrEqual(t, len(out), 29)
	for _, f := range out[len(out)-20:] {
		i := int((f.PTS + time.Second/60) * 30 / time.Second)
		require.Equal(t, splitNAL(units[i]), splitNAL(f.Data))
	}
}
