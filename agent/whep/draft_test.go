package whep_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/media/signaling/signalingtest"
)

var (
	// good are the headers of an accepted offer.
	good       = []string{"Content-Type", "application/sdp", "Authorization", "Bearer good"}
	candidates = regexp.MustCompile(`a=(candidate|end-of-candidates).*\r\n`)
)

// answer posts an offer and applies the edited answer.
func (p *player) answer(t *testing.T, s *stage, offer string, edit func(string) string) {
	t.Helper()
	resp, body := s.request(t, http.MethodPost, "/whep/match", offer, good...)
	require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	p.location, p.etag = resp.Header.Get("Location"), resp.Header.Get("ETag")
	require.NoError(t, p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: edit(body)}))
}

func same(s string) string { return s }

// TestTrickle sends a player's candidates by PATCH and removes the server's, so that only the player's connect.
func TestTrickle(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.answer(t, s, candidates.ReplaceAllString(p.offer, ""), func(a string) string {
		require.Contains(t, a, "a=candidate:")
		require.Contains(t, a, "a=end-of-candidates", "all candidates of the server are in the answer")
		return candidates.ReplaceAllString(a, "")
	})
	patch := func(fragment string, headers ...string) *http.Response {
		t.Helper()
		resp, body := s.request(t, http.MethodPatch, p.location, fragment, append([]string{"Content-Type", signalingtest.FragmentType}, headers...)...)
		if resp.StatusCode == http.StatusNoContent {
			require.Empty(t, body)
			require.Empty(t, resp.Header.Get("ETag"))
		}
		return resp
	}
	mine := fragment(p.offer)
	other := regexp.MustCompile(`a=ice-(ufrag|pwd):`).ReplaceAllString(mine, "${0}x")
	require.Equal(t, http.StatusPreconditionRequired, patch(other).StatusCode, "a restart")
	require.Equal(t, http.StatusPreconditionFailed, patch(mine, "If-Match", `"another"`).StatusCode)
	resp, _ := s.request(t, http.MethodPatch, p.location, mine, "Content-Type", "application/sdp", "If-Match", p.etag)
	require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode)
	require.Equal(t, http.StatusBadRequest, patch("a=ice-ufrag:abcd\r\n", "If-Match", p.etag).StatusCode)
	useless := candidates.ReplaceAllString(mine, "") +
		"a=candidate:1 1 TCP 1015021823 127.0.0.1 9 typ host tcptype active\r\n" +
		"a=candidate:2 1 UDP 2015363327 nobody.invalid 4 typ host\r\n"
	require.Equal(t, http.StatusNoContent, patch(useless, "If-Match", p.etag).StatusCode)
	pictures, _, _, _ := p.seen()
	require.Zero(t, pictures)
	for range 2 { // known candidates are ignored
		require.Equal(t, http.StatusNoContent, patch(mine+"a=end-of-candidates\r\n", "If-Match", p.etag).StatusCode)
	}
	require.Eventually(t, func() bool { pictures, _, sounds, _ := p.seen(); return pictures > 5 && sounds > 5 }, patience, 5*time.Millisecond)
	resp, _ = s.request(t, http.MethodDelete, p.location, "", "If-Match", `"whatever"`)
	require.Equal(t, http.StatusOK, resp.StatusCode, "a DELETE needs no entity-tag")
	require.Equal(t, http.StatusNotFound, patch(mine, "If-Match", p.etag).StatusCode)

	// Without an entity-tag, ufrag and pwd identify the ICE session.
	p = newPlayer(t, webrtc.MimeTypeH264)
	p.answer(t, s, candidates.ReplaceAllString(p.offer, ""), func(a string) string { return candidates.ReplaceAllString(a, "") })
	require.Equal(t, http.StatusNoContent, patch(fragment(p.offer)+"a=\r\n").StatusCode)
	require.Eventually(t, func() bool { pictures, _, _, _ := p.seen(); return pictures > 5 }, patience, 5*time.Millisecond)
}

// TestRestart restarts ICE twice; the pictures continue.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := newPlayer(t, webrtc.MimeTypeH264)
	var first string
	p.answer(t, s, p.offer, func(a string) string { first = a; return a })
	more := func() {
		t.Helper()
		from, _, _, _ := p.seen()
		require.Eventually(t, func() bool { now, _, _, _ := p.seen(); return now > from+10 }, patience, 5*time.Millisecond)
	}
	more()
	ufrag := regexp.MustCompile(`a=ice-ufrag:(\S+)`)
	before, tag := ufrag.FindString(first), p.etag
	for range 2 {
		offer, err := p.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: true})
		require.NoError(t, err)
		gathered := webrtc.GatheringCompletePromise(p.pc)
		require.NoError(t, p.pc.SetLocalDescription(offer))
		<-gathered
		resp, body := s.request(t, http.MethodPatch, p.location, fragment(p.pc.LocalDescription().SDP), "Content-Type", signalingtest.FragmentType, "If-Match", "*")
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.Equal(t, signalingtest.FragmentType, resp.Header.Get("Content-Type"))
		require.NotEqual(t, tag, resp.Header.Get("ETag"))
		require.NotEqual(t, before, ufrag.FindString(body))
		require.Contains(t, body, "a=candidate:")
		before, tag = ufrag.FindString(body), resp.Header.Get("ETag")

		// Only the ICE attributes of the answer are new.
		pwd := regexp.MustCompile(`a=ice-pwd:(\S+)`)
		var all []string
		for _, line := range strings.Split(candidates.ReplaceAllString(first, ""), "\r\n") {
			switch {
			case strings.HasPrefix(line, "a=ice-ufrag:"):
				line = before
			case strings.HasPrefix(line, "a=ice-pwd:"):
				line = pwd.FindString(body)
			}
			all = append(all, line)
			if strings.HasPrefix(line, "a=mid:0") {
				all = append(all, strings.Split(strings.TrimSpace(strings.Join(candidates.FindAllString(body, -1), "")), "\r\n")...)
			}
		}
		require.NoError(t, p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: strings.Join(all, "\r\n")}))
		more()
	}
	require.Equal(t, 1, s.Players("match"))
}

// TestOffers checks that various players receive what they offered.
func TestOffers(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	h264 := []string{webrtc.MimeTypeH264}
	tests := []struct {
		name                    string
		player                  playerOptions
		edit                    func(string) string
		pictures, sounds, texts bool
		not                     []string
	}{
		{"picture, sound and texts", playerOptions{mimes: h264}, same, true, true, true, nil},
		{"no sound", playerOptions{mimes: h264, only: webrtc.RTPCodecTypeVideo}, same, true, false, true, []string{"m=audio"}},
		{"no picture", playerOptions{only: webrtc.RTPCodecTypeAudio}, same, false, true, true, []string{"m=video"}},
		{"no texts", playerOptions{mimes: h264, silent: true}, same, true, true, false, []string{"m=application"}},
		{"picture alone, no BUNDLE group", playerOptions{mimes: h264, only: webrtc.RTPCodecTypeVideo, silent: true}, func(o string) string {
			return regexp.MustCompile(`a=group:BUNDLE.*\r\n`).ReplaceAllString(o, "")
		}, true, false, false, []string{"a=group"}},
		{"sendrecv", playerOptions{mimes: h264, sendrecv: true}, same, true, true, true, nil},
		{"max-bundle", playerOptions{mimes: h264, config: webrtc.Configuration{BundlePolicy: webrtc.BundlePolicyMaxBundle}}, func(o string) string {
			return regexp.MustCompile(`m=(audio|application) 9(.*)\r\n`).ReplaceAllString(o, "m=$1 0$2\r\na=bundle-only\r\n")
		}, true, true, true, nil},
		{"the player begins DTLS", playerOptions{mimes: h264}, func(o string) string {
			return strings.ReplaceAll(o, "a=setup:actpass", "a=setup:active")
		}, true, true, true, []string{"a=setup:active"}},
		{"two codecs, the other one first", playerOptions{mimes: []string{webrtc.MimeTypeVP8, webrtc.MimeTypeH264}}, same, true, true, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlayerWith(t, tt.player)
			p.answer(t, s, tt.edit(p.offer), func(a string) string {
				sections := strings.Count(p.offer, "\nm=audio") + strings.Count(p.offer, "\nm=video")
				require.Equal(t, sections, strings.Count(a, "a=sendonly"), "every section is sendonly")
				require.Equal(t, sections, strings.Count(a, "a=rtcp-mux-only"))
				require.Equal(t, sections, strings.Count(a, "a=msid:touchline "), "one MediaStream")
				for _, no := range tt.not {
					require.NotContains(t, a, no)
				}
				return strings.ReplaceAll(a, "a=rtcp-mux-only\r\n", "")
			})
			require.Eventually(t, func() bool {
				s.feed.Caption(agent.Caption{Text: "now"})
				pictures, _, sounds, texts := p.seen()
				return (pictures > 5) == tt.pictures && (sounds > 5) == tt.sounds && (texts > 0) == tt.texts
			}, patience, 20*time.Millisecond)
			resp, _ := s.request(t, http.MethodDelete, p.location, "")
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
	other := newPlayer(t, webrtc.MimeTypeVP8)
	split := strings.Replace(newPlayer(t, h264...).offer, "a=group:BUNDLE 0 1 2", "a=group:BUNDLE 0 1", 1)
	_, data, _ := strings.Cut(other.offer, "m=application")
	onlyData := "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=application" + data
	fingerprint := regexp.MustCompile(`a=fingerprint:.*\r\n`).FindString(other.offer)
	alone := newPlayerWith(t, playerOptions{mimes: h264, only: webrtc.RTPCodecTypeVideo, silent: true}).offer
	_, picture, _ := strings.Cut(alone, "m=video")
	twoPictures := strings.Replace(alone, "a=group:BUNDLE 0", "a=group:BUNDLE 0 1", 1) + strings.Replace("m=video"+picture, "a=mid:0", "a=mid:1", 1)
	refused := []struct {
		name, offer, kind string
		status            int
		words             string
	}{
		{"the picture's codec is not there", other.offer, good[1], 422, "H264, the codec of the picture, got VP8"},
		{"sections outside the group", split, good[1], 422, "one BUNDLE group"},
		{"data alone", strings.Replace(onlyData, "t=0 0\r\n", "t=0 0\r\n"+fingerprint, 1), good[1], 422, "got data only"},
		{"two pictures", twoPictures, good[1], 422, "one video track at most"},
		{"a player that lets the server offer", "", good[1], 400, "expected a media section"},
		{"the same, in JSON", "{}", "application/json", 415, "application/sdp"},
	}
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := s.request(t, http.MethodPost, "/whep/match", tt.offer, "Content-Type", tt.kind, "Authorization", "Bearer good")
			require.Equal(t, tt.status, resp.StatusCode, body)
			require.Contains(t, body, tt.words)
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			require.Empty(t, resp.Header.Get("Location"))
		})
	}
	require.Zero(t, s.Players(""))
}

// TestNotLive posts an offer before the first picture: 503, as otherwise some players would play sound alone.
func TestNotLive(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.remove()
	remove, err := s.Add("match", s.bare)
	require.NoError(t, err)
	defer remove()
	resp, body := s.request(t, http.MethodPost, "/whep/match", newPlayer(t, webrtc.MimeTypeH264).offer, good...)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, body)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	sound := newPlayerWith(t, playerOptions{only: webrtc.RTPCodecTypeAudio})
	sound.watch(t, s)
	require.Eventually(t, func() bool { _, _, sounds, _ := sound.seen(); return sounds > 5 }, patience, 5*time.Millisecond)
}

// TestDiscovery sends GET, HEAD and OPTIONS.
func TestDiscovery(t *testing.T) {
	s := newStage(t, nil)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		resp, body := s.request(t, method, "/whep/match", "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "application/sdp", resp.Header.Get("Content-Type"))
		require.Empty(t, body)
	}
	resp, _ := s.request(t, http.MethodOptions, "/whep/match", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "application/sdp", resp.Header.Get("Accept-Post"))
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	require.Eventually(t, func() bool { pictures, _, _, _ := p.seen(); return pictures > 0 }, patience, time.Millisecond)
	resp, body := s.request(t, http.MethodGet, p.location, "")
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Empty(t, body)
	resp, _ = s.request(t, http.MethodOptions, p.location, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, signalingtest.FragmentType, resp.Header.Get("Accept-Patch"))
	for _, path := range []string{"/whep/match", p.location} {
		resp, _ = s.request(t, http.MethodPut, path, "")
		require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
		require.NotEmpty(t, resp.Header.Get("Allow"))
	}
}

// TestKeyFrames requests key frames as waiting decoders do, and gets a replay since the last key frame. TestKeyFrameRequests has
// the requests of media servers.
func TestKeyFrames(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	require.Eventually(t, func() bool { pictures, keys, _, _ := p.seen(); return pictures > 20 && keys > 0 }, patience, time.Millisecond)
	s.dark.Store(true) // only replays are sent
	_, before, _, _ := p.seen()
	require.Eventually(t, func() bool {
		p.requestKeyFrame(t)
		_, keys, _, _ := p.seen()
		return keys > before
	}, patience, 100*time.Millisecond)
}

// TestDTLSTeardown closes the player without a DELETE: its session ends at once.
func TestDTLSTeardown(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	require.Eventually(t, func() bool { pictures, _, _, _ := p.seen(); return pictures > 5 }, patience, 5*time.Millisecond)
	_ = p.pc.GracefulClose() // the other side may have closed first
	require.Eventually(t, func() bool { return s.Players("") == 0 }, patience, time.Millisecond)
}
