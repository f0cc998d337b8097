//go:build integration

package ingest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// TestDiscardable: frames that the source marks as unreferenced are Discardable.
func TestDiscardable(t *testing.T) {
	t.Parallel()
	t.Run("VP8", func(t *testing.T) {
		t.Parallel()
		frames := packetise(media.VP8, encode(t, media.VP8, 320, 180, 20), 1, 1, 500)
		for i, f := range frames {
			for j, p := range f.packets {
				if i%2 == 1 || i == 0 || i == 4 && j > 0 { // a key frame and one marked in part are needed
					p.Payload[0] |= 0x20 // N, RFC 7741 section 4.2
				}
			}
		}
		out := pushAll(ingest.New(ingest.Options{Codec: media.VP8}), frames)
		require.Len(t, out, 20)
		for i, f := range out {
			require.Equal(t, i%2 == 1 && !f.KeyFrame, f.Discardable, "frame %d", i)
		}
	})
	t.Run("H264", func(t *testing.T) {
		t.Parallel()
		units := encode(t, media.H264, 320, 180, 20, "-x264-params", "aud=1:bframes=1:b-pyramid=none:b-adapt=0:sync-lookahead=0")
		out := pushAll(ingest.New(ingest.Options{Codec: media.H264}), packetise(media.H264, units, 1, 1, 500))
		require.Len(t, out, 20)
		found := 0
		for i, f := range out {
			reference := false
			for _, nal := range splitNAL(f.Data) {
				if nalType := nal[0] & 0x1f; nalType >= 1 && nalType <= 5 && nal[0]&0x60 != 0 {
					reference = true
				}
			}
			require.Equal(t, !reference, f.Discardable, "frame %d", i)
			if f.Discardable {
				found++
			}
		}
		require.Greater(t, found, 5)
	})
}
