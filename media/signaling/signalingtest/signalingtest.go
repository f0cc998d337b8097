// Package signalingtest has helpers for the tests of WHIP and WHEP: encoded clips, a
// network that can be cut, and SDP parsing.
package signalingtest

import (
	"bytes"
	"embed"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
)

//go:generate testdata/make.sh

//go:embed testdata/*.ivf testdata/h264.264 testdata/h265.265
var files embed.FS

// FragmentType is the Content-Type of a PATCH (RFC 8840).
const FragmentType = "application/trickle-ice-sdpfrag"

// Clip returns ten access units of 320 x 180, the first one a key frame.
func Clip(tb testing.TB, codec media.Codec) [][]byte {
	tb.Helper()
	switch codec {
	case media.H264:
		return split(tb, "h264.264", []byte{0, 0, 0, 1, 9})
	case media.H265:
		return split(tb, "h265.265", []byte{0, 0, 0, 1, 0x46})
	case media.VP8, media.VP9, media.AV1:
		return ivf(tb, strings.ToLower(codec.String())+".ivf")
	case media.CodecUnknown:
	}
	tb.Fatalf("no clip in %v", codec)
	return nil
}

// LargeClip returns the VP8 clip in 640 x 360.
func LargeClip(tb testing.TB) [][]byte {
	tb.Helper()
	return ivf(tb, "vp8-large.ivf")
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := files.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return b
}

// split cuts a byte stream before each access unit delimiter.
func split(tb testing.TB, name string, delimiter []byte) [][]byte {
	tb.Helper()
	var units [][]byte
	for _, u := range bytes.Split(read(tb, name), delimiter)[1:] {
		units = append(units, append(bytes.Clone(delimiter), u...))
	}
	return units
}

// ivf returns the frames of an IVF file.
func ivf(tb testing.TB, name string) [][]byte {
	tb.Helper()
	const head, frameHead = 32, 12
	var units [][]byte
	for rest := read(tb, name)[head:]; len(rest) > frameHead; {
		n := int(binary.LittleEndian.Uint32(rest))
		units = append(units, rest[frameHead:frameHead+n])
		rest = rest[frameHead+n:]
	}
	return units
}

// Cable is a network connection that can be cut: packets are lost both ways,
// without an error on either side.
type Cable struct {
	net.PacketConn
	cut atomic.Bool
}

// NewCable opens a UDP socket on 127.0.0.1, which is closed when the test ends.
func NewCable(tb testing.TB) *Cable {
	tb.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(tb.Context(), "udp4", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return &Cable{PacketConn: conn}
}

// Cut drops all packets from now on.
func (c *Cable) Cut() { c.cut.Store(true) }

// WriteTo implements net.PacketConn.
func (c *Cable) WriteTo(p []byte, to net.Addr) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.PacketConn.WriteTo(p, to)
}

// ReadFrom implements net.PacketConn.
func (c *Cable) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		if n, from, err = c.PacketConn.ReadFrom(p); err != nil || !c.cut.Load() {
			return n, from, err
		}
	}
}

// Attribute returns the value of the first attribute of that name in an SDP text, or "".
func Attribute(sdp, key string) string {
	for line := range strings.Lines(sdp) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "a="+key+":"); ok {
			return v
		}
	}
	return ""
}

// Fragment returns the ICE attributes of an offer as the body of a PATCH, without candidates.
func Fragment(offer string) string {
	media, _, _ := strings.Cut(offer[strings.Index(offer, "\nm=")+1:], "\n")
	return "a=group:BUNDLE 0\r\n" + media + "\na=mid:" + Attribute(offer, "mid") +
		"\r\na=ice-ufrag:" + Attribute(offer, "ice-ufrag") + "\r\na=ice-pwd:" + Attribute(offer, "ice-pwd") + "\r\n"
}

// Candidates returns the candidate lines of an SDP text, each with its line end.
func Candidates(sdp string) string {
	var b strings.Builder
	for line := range strings.Lines(sdp) {
		if strings.HasPrefix(line, "a=candidate:") {
			b.WriteString(line)
		}
	}
	return b.String()
}
