package signaling //nolint:testpackage // the bounds are not exported

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
)

// offered is an offer of one section with a number of payload types and of attributes.
func offered(formats, attributes int) string {
	var b strings.Builder
	b.WriteString("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF")
	for i := range formats {
		fmt.Fprintf(&b, " %d", i)
	}
	b.WriteString("\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" +
		"a=fingerprint:sha-256 AA:BB\r\na=sendonly\r\na=rtcp-mux\r\n")
	for i := range attributes - 6 {
		fmt.Fprintf(&b, "a=rtpmap:%d VP8/90000\r\n", i%128)
	}
	return b.String()
}

// TestWorkForAnOfferIsBounded: an offer may have as many payload types and attributes as browsers send, twice over; the work does not grow
// with the product of both.
func TestWorkForAnOfferIsBounded(t *testing.T) {
	terms := Terms{Receive: true, Video: func(media.Codec, string) bool { return true }}
	o, err := ReadOffer(offered(MaxFormats, maxAttributes), terms)
	require.NoError(t, err)
	require.NotEmpty(t, o.Codecs)
	for _, n := range []int{maxAttributes + 1, 2700} {
		require.Less(t, len(offered(1, n)), maxOffer)
		_, err = ReadOffer(offered(1, n), terms)
		require.ErrorIs(t, err, ErrMalformed)
		require.ErrorContains(t, err, "at most 512 attributes")
	}
	_, err = ReadOffer(offered(10*MaxFormats, 6), terms)
	require.ErrorContains(t, err, "at most 64 codecs")
	work := func(formats int) float64 {
		text := offered(formats, maxAttributes)
		return testing.AllocsPerRun(1, func() { _, _ = ReadOffer(text, terms) })
	}
	require.Less(t, work(MaxFormats), 2*work(1))
}
