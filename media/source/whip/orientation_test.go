package whip_test

import (
	"strings"
	"testing"

	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/signaling/signalingtest"
)

// turner sends the header extension for orientation, with or without leave.
type turner struct{ interceptor.NoOp }

func (t *turner) NewInterceptor(string) (interceptor.Interceptor, error) { return t, nil }

func (t *turner) BindLocalStream(_ *interceptor.StreamInfo, w interceptor.RTPWriter) interceptor.RTPWriter {
	return interceptor.RTPWriterFunc(func(h *rtp.Header, b []byte, a interceptor.Attributes) (int, error) {
		if err := h.SetExtension(7, []byte{3}); err != nil {
			return 0, err
		}
		return w.Write(h, b, a)
	})
}

// TestOrientation: the extension is not accepted, so that senders turn their pictures, but its value is kept where they send it nevertheless.
func TestOrientation(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	interceptors := &interceptor.Registry{}
	interceptors.Add(&turner{})
	s := srv.connect(t, senderOptions{codec: vp8, interceptors: interceptors, edit: func(sdp string) string {
		return strings.Replace(sdp, "a=mid:0\r\n", "a=mid:0\r\na=extmap:7 urn:3gpp:video-orientation\r\n", 1)
	}})
	require.NotContains(t, s.answer, "orientation")
	s.play(signalingtest.Clip(t, media.VP8))
	require.EqualValues(t, 3, (<-srv.opened).next(t).Turn)
}
