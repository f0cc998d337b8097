//go:build integration

package codec_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/codec"
	"touchline/media/codec/codectest"
)

// TestEncodeSound: frames of each format, and errors that say why.
func TestEncodeSound(t *testing.T) {
	t.Parallel()
	pcm := make([]byte, 2*24000+1)
	for format, sync := range map[codec.SoundFormat][]byte{codec.MP3: {0xff, 0xf3}, codec.AAC: {0xff, 0xf1}} {
		var out bytes.Buffer
		require.NoError(t, codec.EncodeSound(t.Context(), codectest.Program(), format, 24000, bytes.NewReader(pcm), &out))
		require.True(t, bytes.HasPrefix(out.Bytes(), sync), "%s: % x", format, out.Bytes()[:4])
		require.Greater(t, out.Len(), 200)
	}
	err := codec.EncodeSound(t.Context(), codectest.Program(), "flac", 24000, bytes.NewReader(pcm), io.Discard)
	require.ErrorContains(t, err, `libavcodec has no encoder for \"flac\"`)
	err = codec.EncodeSound(t.Context(), codectest.Program(), codec.MP3, 7, bytes.NewReader(pcm), io.Discard)
	require.ErrorContains(t, err, "open the encoder")
	require.ErrorContains(t, codec.EncodeSound(t.Context(), "/nowhere/codec", codec.MP3, 24000, bytes.NewReader(pcm), io.Discard), "find the codec")

	gone := errors.New("the listener went")
	ctx, cancel := context.WithCancelCause(t.Context())
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- codec.EncodeSound(ctx, codectest.Program(), codec.MP3, 24000, read, io.Discard) }()
	_, err = write.Write(pcm)
	require.NoError(t, err)
	cancel(gone)
	_ = write.Close()
	require.ErrorIs(t, <-done, gone)
}
