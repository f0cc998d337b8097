package signaling //nolint:testpackage // the parsers are not exported

import (
	"testing"

	"touchline/media/source"
)

// FuzzFragment parses the body of a PATCH.
func FuzzFragment(f *testing.F) {
	f.Add([]byte("a=group:BUNDLE 0\r\nm=audio 9 x 111\r\na=mid:0\r\na=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\n" +
		"a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0\r\na=end-of-candidates\r\n"))
	f.Add([]byte("a=ice-ufrag\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := readFragment(body)
		if n := len(got.Candidates); err == nil && (len(got.Ufrag) < 4 || len(got.Pwd) < 22 || n > 64) {
			t.Errorf("accepted %q %q %d", got.Ufrag, got.Pwd, n)
		}
	})
}

// FuzzSDP rewrites any text that parses as SDP.
func FuzzSDP(f *testing.F) {
	f.Add("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n" +
		"m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" +
		"a=rtcp-mux\r\na=candidate:1 1 udp 2130706431 192.168.1.2 5000 typ host\r\na=end-of-candidates\r\n")
	f.Add("v=0\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		newDestinations(source.Allow{Loopback: true}).filter(text)
		_, restartErr := restarted(text, fragment{Ufrag: "abcd", Pwd: "0123456789012345678901"})
		_, polishErr := polished(text, true)
		_, answerErr := answerFragment(text)
		if (restartErr == nil) != (polishErr == nil) || (restartErr == nil) != (answerErr == nil) {
			t.Errorf("errors differ: %v, %v, %v", restartErr, polishErr, answerErr)
		}
	})
}
