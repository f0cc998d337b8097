package camera

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/codec"
	"touchline/media/source"
)

func TestAdviceNamesTheTrouble(t *testing.T) {
	t.Parallel()
	slow := source.Status{Slow: true, KeyEvery: 10 * time.Second}
	lossy := source.Status{Lossy: true, Missing: 42}
	both := source.Status{Slow: true, Lossy: true, Missing: 3}
	require.Empty(t, advice(source.RTSP, source.Status{Missing: 2}), "a packet or two are no trouble")
	require.Contains(t, advice(source.RTSP, slow), "10.0 s apart")
	require.NotContains(t, advice(source.RTSP, slow), "TCP")
	require.Empty(t, advice(source.HTTP, source.Status{Slow: true, Codec: codec.MJPEG}), "each JPEG is a key frame")
	require.Contains(t, advice(source.RTSP, lossy), "TCP")
	require.Contains(t, advice(source.RTSP, lossy), "42 so far")
	require.NotContains(t, advice(source.RTSP, lossy), "I-frame")
	require.NotContains(t, advice(whipKind, lossy), "TCP")
	require.Contains(t, advice(source.RTSP, both), "TCP")
	require.Contains(t, advice(source.RTSP, both), "I-frame interval")
}
