package ingest_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/ingest"
)

// TestDecrypt: access units are decrypted as they came, before parameter sets are added. They have no packets, and those of another key
// are dropped up to the next key frame.
func TestDecrypt(t *testing.T) {
	t.Parallel()
	sealed, opened := []byte("sealed"), []byte("opened")
	var given [][]byte
	decrypt := func(frame []byte) ([]byte, error) {
		given = append(given, bytes.Clone(frame))
		if !bytes.Contains(frame, sealed) {
			return nil, errors.New("another key")
		}
		return bytes.ReplaceAll(frame, sealed, opened), nil
	}
	s := &h264Stream{a: ingest.New(ingest.Options{Codec: media.H264, Decrypt: decrypt})}
	pps := []byte{0x68, 0xce, 0x3c, 0x80}
	idr, delta := append([]byte{0x65, 0x88}, sealed...), append([]byte{0x41, 0x9a}, sealed...)
	got := s.send(h264SPS(), pps, idr)
	require.Len(t, got, 1)
	require.True(t, got[0].KeyFrame)
	require.Nil(t, got[0].Packets)
	require.Equal(t, [][]byte{h264SPS(), pps, append([]byte{0x65, 0x88}, opened...)}, splitNAL(got[0].Data))
	require.Len(t, s.send(delta), 1)

	require.Empty(t, s.send(pps), "parameter sets alone are in the clear")
	given = nil
	got = s.send(idr)
	require.Len(t, got, 1)
	require.Equal(t, [][]byte{idr}, splitNAL(given[0]), "without the sets before")
	require.Equal(t, [][]byte{h264SPS(), pps, append([]byte{0x65, 0x88}, opened...)}, splitNAL(got[0].Data))
	require.Nil(t, got[0].Packets)

	require.Empty(t, s.send([]byte{0x41, 0x9a, 1, 2, 3}))
	require.Empty(t, s.send(delta), "it refers to the unit before")
	require.True(t, s.a.WantsKeyFrame(at(1000)))
	require.Len(t, s.send(h264SPS(), pps, idr), 1)

	// The first bit of an encrypted H265 slice says nothing.
	a := ingest.New(ingest.Options{Codec: media.H265, Decrypt: decrypt})
	var units []media.EncodedFrame
	vps, sps, set := []byte{0x40, 1, 0x0c}, []byte{0x42, 1, 1, 0x60}, []byte{0x44, 1, 0xc1}
	for i, nal := range [][]byte{vps, sps, set, append([]byte{0x26, 1, 0x00}, sealed...)} {
		units = append(units, a.Push(&rtp.Packet{Header: rtp.Header{SequenceNumber: uint16(i), Marker: i == 3}, Payload: nal}, at(0))...)
	}
	require.Len(t, units, 1)
	require.True(t, units[0].KeyFrame)

	given = nil
	a = ingest.New(ingest.Options{Codec: media.VP8, Decrypt: decrypt})
	require.Empty(t, a.Push(&rtp.Packet{Header: rtp.Header{Marker: true}, Payload: []byte{0x10, 0, 0, 0, 0x9d, 1, 0x2a, 64, 0, 64, 0, 1}}, at(0).Add(time.Second)))
	require.Empty(t, given)
	require.EqualValues(t, 1, a.Stats().Broken)
}
