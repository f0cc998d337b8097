package rtsp

import (
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/stretchr/testify/require"
)

// FuzzHeaders repairs the headers of a camera's answers.
func FuzzHeaders(f *testing.F) {
	f.Add("12345678;timeout=60", "RTP/AVP/TCP;unicast;interleaved=0-1;source=0.0.0.0", "rtsp://cam/live", "rtsp://cam/live/")
	f.Add(" ;timeout", "RTP/AVP;interleaved=0-5", "//other:99999999/", "%zz")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, session, transport, location, content string) {
		to, err := base.ParseURL("rtsp://cam/stream")
		require.NoError(t, err)
		for _, asked := range []string{"RTP/AVP/TCP;unicast;interleaved=0-1", "RTP/AVP;unicast;client_port=5000-5001"} {
			res := &base.Response{Header: base.Header{
				"Session": {session}, "Transport": {transport}, "Location": {location}, "Content-Base": {content},
			}}
			repairSession(res.Header)
			repairTransport(base.HeaderValue{asked}, res.Header)
			repairDescription(res)
			(&dialogue{}).redirect(&base.Request{URL: to}, res)
			var got headers.Transport
			require.NoError(t, got.Unmarshal(res.Header["Transport"]))
			var s headers.Session
			require.NoError(t, s.Unmarshal(res.Header["Session"]))
		}
	})
}
