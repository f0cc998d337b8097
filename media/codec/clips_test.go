//go:build integration

package codec_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec/codectest"
)

func TestMain(m *testing.M) { codectest.Main(m) }

// encodeArgs returns ffmpeg's arguments for a codec, and the apt package with the encoder.
func encodeArgs(c media.Codec) (args []string, apt string) {
	switch c {
	case media.VP8:
		return []string{
			"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-auto-alt-ref", "0",
			"-f", "ivf",
		}, "libvpx7"
	case media.VP9:
		return []string{
			"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-auto-alt-ref", "0",
			"-f", "ivf",
		}, "libvpx7"
	case media.H264:
		return []string{
			"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency",
			"-bsf:v", "h264_metadata=aud=insert", "-f", "h264",
		}, "libx264-164"
	case media.H265:
		return []string{
			"-c:v", "libx265", "-preset", "ultrafast", "-tune", "zerolatency", "-x265-params", "log-level=error",
			"-bsf:v", "hevc_metadata=aud=insert", "-f", "hevc",
		}, "libx265-199"
	case media.AV1:
		return []string{"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-f", "ivf"}, "libaom3"
	case media.CodecUnknown:
	}
	return nil, ""
}

// ffmpeg runs the program and returns what it wrote.
func ffmpeg(tb testing.TB, stdin []byte, apt string, args ...string) []byte {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin", "-y"}, args...)...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(tb, cmd.Run(), "ffmpeg %v: %s (apt install ffmpeg %s)", args, &errs, apt)
	require.NotZero(tb, out.Len(), "ffmpeg %v wrote nothing: %s", args, &errs)
	return out.Bytes()
}

// barsClip encodes frames of the test picture, with a key frame every gop.
func barsClip(tb testing.TB, c media.Codec, w, h, from, frames, gop int, extra ...string) []media.EncodedFrame {
	tb.Helper()
	var raw []byte
	for n := range frames {
		raw = append(raw, drawBars(w, h, from+n)...)
	}
	args, apt := encodeArgs(c)
	in := []string{
		"-f", "rawvideo", "-pix_fmt", "rgb24", "-s", fmt.Sprintf("%dx%d", w, h), "-r", strconv.Itoa(clipFPS), "-i", "-",
		"-vf", "scale=out_color_matrix=bt601:out_range=tv", "-pix_fmt", "yuv420p", "-g", strconv.Itoa(gop), "-keyint_min",
		strconv.Itoa(gop), "-b:v", "1M",
	}
	out := ffmpeg(tb, raw, apt, append(append(append(in, args...), extra...), "-")...)
	units := accessUnits(tb, c, out)
	require.Len(tb, units, frames)
	for i := range units {
		units[i].PTS = time.Duration(from+i) * frameGap
	}
	return units
}

// accessUnits splits ffmpeg's output.
func accessUnits(tb testing.TB, c media.Codec, stream []byte) []media.EncodedFrame {
	tb.Helper()
	var parts [][]byte
	switch c {
	case media.VP8, media.VP9, media.AV1:
		parts = readIVF(tb, stream)
	case media.H264:
		parts = splitAnnexB(stream, func(b byte) bool { return b&0x1f == 9 })
	case media.H265:
		parts = splitAnnexB(stream, func(b byte) bool { return b>>1&0x3f == 35 })
	case media.CodecUnknown:
	}
	base := time.Now()
	frames := make([]media.EncodedFrame, len(parts))
	for i, p := range parts {
		pts := time.Duration(i) * frameGap
		frames[i] = media.EncodedFrame{
			Codec: c, KeyFrame: isKey(c, p), PTS: pts, NTP: base.Add(-time.Second + pts), Arrival: base.Add(pts),
			Received: base.Add(pts), Epoch: 1, SpatialLayers: 1, Data: p,
		}
	}
	return frames
}

// readIVF returns the frames of an IVF file: a header of 32 bytes, then frames with headers of
// 12 bytes.
func readIVF(tb testing.TB, b []byte) [][]byte {
	tb.Helper()
	require.True(tb, bytes.HasPrefix(b, []byte("DKIF")))
	b = b[binary.LittleEndian.Uint16(b[6:]):]
	var out [][]byte
	for len(b) > 12 {
		n := int(binary.LittleEndian.Uint32(b))
		out = append(out, b[12:12+n])
		b = b[12+n:]
	}
	return out
}

// splitAnnexB cuts before each access unit delimiter.
func splitAnnexB(b []byte, delimiter func(nalHead byte) bool) [][]byte {
	var starts []int
	for i := 0; i+3 < len(b); i++ {
		if b[i] == 0 && b[i+1] == 0 && b[i+2] == 1 && delimiter(b[i+3]) {
			if i > 0 && b[i-1] == 0 {
				i--
			}
			starts = append(starts, i)
			i += 3
		}
	}
	var out [][]byte
	for i, s := range starts {
		end := len(b)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		out = append(out, b[s:end])
	}
	return out
}

// nalTypes lists the NAL heads of an Annex B access unit.
func nalHeads(b []byte) []byte {
	var heads []byte
	for i := 0; i+3 < len(b); i++ {
		if b[i] == 0 && b[i+1] == 0 && b[i+2] == 1 {
			heads = append(heads, b[i+3])
			i += 3
		}
	}
	return heads
}

func isKey(c media.Codec, b []byte) bool {
	switch c {
	case media.VP8:
		return b[0]&1 == 0
	case media.VP9: // profile 0
		return b[0]&0x0c == 0
	case media.H264:
		return bytes.ContainsFunc(nalHeads(b), func(r rune) bool { return r&0x1f == 5 })
	case media.H265:
		for _, h := range nalHeads(b) {
			if t := h >> 1 & 0x3f; t >= 16 && t <= 21 {
				return true
			}
		}
	case media.AV1:
		return hasSequenceHeader(b)
	case media.CodecUnknown:
	}
	return false
}

// hasSequenceHeader searches the OBUs of a temporal unit.
func hasSequenceHeader(b []byte) bool {
	for len(b) > 1 {
		if b[0]>>3&0xf == 1 {
			return true
		}
		at := 1
		if b[0]&4 != 0 {
			at++
		}
		n, used := binary.Uvarint(b[at:])
		if used <= 0 || at+used+int(n) > len(b) {
			return false
		}
		b = b[at+used+int(n):]
	}
	return false
}
