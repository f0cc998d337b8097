package whip_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/signaling/signalingtest"
)

// fragmentOf returns the ICE attributes of an offer (RFC 8840).
func fragmentOf(offer string, candidates bool) string {
	var b strings.Builder
	b.WriteString("a=group:BUNDLE 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n")
	b.WriteString("a=ice-ufrag:" + signalingtest.Attribute(offer, "ice-ufrag") + "\r\na=ice-pwd:" + signalingtest.Attribute(offer, "ice-pwd") + "\r\n")
	if candidates {
		for line := range strings.Lines(offer) {
			if strings.HasPrefix(line, "a=candidate") {
				b.WriteString(line)
			}
		}
		b.WriteString("a=candidate:9 1 udp 1 nowhere.invalid 9 typ host\r\na=candidate:8 1 tcp 1 127.0.0.1 9 typ host tcptype active\r\n")
		b.WriteString("a=end-of-candidates\r\n")
	}
	return b.String()
}

// A sender that trickles: its offer has no candidates, they come by PATCH (RFC 9725 section 4.3.2).
func TestTrickle(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	var full string
	s, offer := newSender(t, senderOptions{codec: vp8, edit: func(sdp string) string {
		full = sdp
		return regexp.MustCompile(`a=(candidate|end-of-candidates).*\r\n`).ReplaceAllString(sdp, "")
	}})
	resp, answer := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	location, etag := resp.Header.Get("Location"), resp.Header.Get("ETag")
	// The server's candidates are removed, so that only the sender's connect.
	deaf := regexp.MustCompile(`a=(candidate|end-of-candidates).*\r\n`).ReplaceAllString(answer, "")
	require.NoError(t, s.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: deaf}))
	for range 2 { // known candidates are ignored
		resp, body := srv.request(t, http.MethodPatch, location, fragmentOf(full, true), "Content-Type", signalingtest.FragmentType, "If-Match", etag)
		require.Equal(t, http.StatusNoContent, resp.StatusCode, body)
		require.Empty(t, body)
		require.Empty(t, resp.Header.Get("ETag"))
	}
	select {
	case <-s.up:
	case <-time.After(2 * time.Minute):
		t.Fatal("the candidates did not connect")
	}
	s.play(signalingtest.Clip(t, media.VP8))
	(<-srv.opened).next(t)
}

// RFC 9725 section 4.3.3: new credentials restart ICE, and the pictures continue.
func TestICERestart(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	s := srv.connect(t, senderOptions{codec: vp8})
	s.play(signalingtest.Clip(t, media.VP8))
	p := <-srv.opened
	p.next(t)

	oldTag := s.etag
	for round := range 2 {
		offer, err := s.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: true})
		require.NoError(t, err)
		gathered := webrtc.GatheringCompletePromise(s.pc)
		require.NoError(t, s.pc.SetLocalDescription(offer))
		<-gathered
		mine := s.pc.LocalDescription().SDP
		resp, body := srv.request(t, http.MethodPatch, s.location, fragmentOf(mine, true), "Content-Type", signalingtest.FragmentType, "If-Match", "*")
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Equal(t, signalingtest.FragmentType, resp.Header.Get("Content-Type"))
		newTag := resp.Header.Get("ETag")
		require.NotEmpty(t, newTag)
		require.NotEqual(t, oldTag, newTag)
		require.NotEqual(t, signalingtest.Attribute(s.answer, "ice-ufrag"), signalingtest.Attribute(body, "ice-ufrag"))
		require.Contains(t, body, "a=ice-options:trickle")
		require.Contains(t, body, "a=candidate:")

		// A PATCH for the previous ICE session is out of date.
		stale, _ := srv.request(t, http.MethodPatch, s.location, fragmentOf(mine, false), "Content-Type", signalingtest.FragmentType, "If-Match", oldTag)
		require.Equal(t, http.StatusPreconditionFailed, stale.StatusCode)
		fresh, _ := srv.request(t, http.MethodPatch, s.location, fragmentOf(mine, false), "Content-Type", signalingtest.FragmentType, "If-Match", newTag)
		require.Equal(t, http.StatusNoContent, fresh.StatusCode)
		oldTag = newTag

		s.answer = withICE(s.answer, body)
		require.NoError(t, s.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: s.answer}))
		for len(p.frames) > 0 {
			<-p.frames
		}
		for range 20 {
			require.EqualValues(t, 1, p.next(t).Epoch, "round %d: the stream goes on as it was", round)
		}
	}

	// A failed restart leaves the session unchanged.
	resp, _ := srv.request(t, http.MethodPatch, s.location,
		"a=ice-ufrag:\x01\x02\x03\x04\r\na=ice-pwd:short\r\nm=video 9 x 96\r\n", "Content-Type", signalingtest.FragmentType, "If-Match", "*")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	for range 20 {
		p.next(t)
	}
	require.Len(t, srv.Sessions(), 1)
}

// withICE replaces the ICE attributes of an answer.
func withICE(answer, fragment string) string {
	for _, key := range []string{"ice-ufrag", "ice-pwd"} {
		answer = regexp.MustCompile(`a=`+key+`:.*\r\n`).ReplaceAllLiteralString(answer, "a="+key+":"+signalingtest.Attribute(fragment, key)+"\r\n")
	}
	answer = regexp.MustCompile(`a=(candidate|end-of-candidates).*\r\n`).ReplaceAllString(answer, "")
	var b strings.Builder
	b.WriteString(answer)
	for line := range strings.Lines(fragment) {
		if strings.HasPrefix(line, "a=candidate") {
			b.WriteString(line)
		}
	}
	return b.String()
}
