package whip_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/media/signaling/signalingtest"
	"touchline/media/source/whip"
)

var bearer = []string{"Content-Type", "application/sdp", "Authorization", "Bearer " + goodKey}

// RFC 9725 section 4.2: the answer to an offer.
func TestAnswer(t *testing.T) {
	srv := start(t, func(o *whip.Options) {
		o.ICEServers = []webrtc.ICEServer{
			{URLs: []string{"stun:stun.example.net"}},
			{URLs: []string{"turn:turn.example.net?transport=udp"}, Username: "user", Credential: "myPassword"},
		}
	})
	_, offer := newSender(t, senderOptions{codec: h264, sound: true})
	resp, body := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	require.Equal(t, "application/sdp", resp.Header.Get("Content-Type"))
	require.Regexp(t, `^/whip/match/[A-Za-z0-9_-]{22}$`, resp.Header.Get("Location"))
	require.Regexp(t, `^"[A-Za-z0-9_-]+"$`, resp.Header.Get("ETag"), "a strong entity-tag is quoted")
	require.Equal(t, "application/trickle-ice-sdpfrag", resp.Header.Get("Accept-Patch"))
	require.Equal(t, []string{
		`<stun:stun.example.net>; rel="ice-server"`,
		`<turn:turn.example.net?transport=udp>; rel="ice-server"; username="user"; credential="myPassword"; credential-type="password"`,
	}, resp.Header.Values("Link"))
	require.Equal(t, 2, strings.Count(body, "a=recvonly"))
	require.Equal(t, 2, strings.Count(body, "a=rtcp-mux-only"))
	require.Contains(t, body, "a=group:BUNDLE 0 1")
	require.NotContains(t, body, "a=sendrecv")
	require.Contains(t, body, "a=ice-options:trickle")
	require.NotContains(t, body, "a=ice-lite", "full ICE")
	require.Contains(t, body, "a=candidate:", "nothing is trickled to the sender")
	require.Contains(t, body, "a=end-of-candidates")

	// Two sessions have different URLs and entity-tags.
	again, _ := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	require.Equal(t, http.StatusCreated, again.StatusCode)
	require.NotEqual(t, resp.Header.Get("Location"), again.Header.Get("Location"))
	require.NotEqual(t, resp.Header.Get("ETag"), again.Header.Get("ETag"))
}

// An offer is accepted or refused as a whole.
func TestOffersThatAreRefused(t *testing.T) {
	srv := start(t, nil)
	_, good := newSender(t, senderOptions{codec: h264, sound: true})
	replace := func(from, to string) string {
		out := regexp.MustCompile(from).ReplaceAllString(good, to)
		require.NotEqual(t, good, out, from)
		return out
	}
	sections := regexp.MustCompile(`(?m)^m=`).FindAllStringIndex(good, -1)
	video := good[sections[0][0]:sections[1][0]]
	soundAlone := strings.Replace(good[:sections[0][0]], "BUNDLE 0 1", "BUNDLE 1", 1) + good[sections[1][0]:]
	tests := []struct {
		name, body string
		status     int
		says       string
	}{
		{"nothing", "", 400, "media section"},
		{"no SDP", "{}", 400, "SDP"},
		{"no media", good[:sections[0][0]], 400, "media section"},
		{"no credentials", replace(`a=ice-(ufrag|pwd):.*\r\n`, ""), 400, "ice-ufrag"},
		{"no fingerprint", replace(`a=fingerprint:.*\r\n`, ""), 400, "fingerprint"},
		{"no mid", replace(`a=mid:.*\r\n`, ""), 400, "mid"},
		{"two videos", good + strings.Replace(video, "a=mid:0", "a=mid:2", 1), 422, "one video track"},
		{"sound alone", soundAlone, 422, "expected a video section, got sound only"},
		{"two streams", replace(`a=msid:stream audio`, "a=msid:other audio"), 422, "one MediaStream"},
		{"data", good + "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:2\r\na=sctp-port:5000\r\n", 422, "audio and video only"},
		{"receiver", replace(`a=sendonly`, "a=recvonly"), 422, "recvonly"},
		{"inactive", replace(`a=sendonly`, "a=inactive"), 422, "inactive"},
		{"codec", replace(`H264/90000`, "VP7/90000"), 422, "expected H264, VP8"},
		{"sound", replace(`opus/48000/2`, "PCMU/8000"), 422, "expected Opus"},
		{"no bundle", replace(`a=group:BUNDLE.*\r\n`, ""), 422, "BUNDLE"},
		{"no rtcp-mux", replace(`a=rtcp-mux\r\n`, ""), 422, "rtcp-mux"},
		{"unwanted track", replace(`m=audio 9`, "m=audio 0"), 422, "port 0"},
		{"holdconn", replace(`a=setup:actpass`, "a=setup:holdconn"), 422, "holdconn"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := srv.request(t, http.MethodPost, "/whip/match", tt.body, bearer...)
			require.Equal(t, tt.status, resp.StatusCode, body)
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			var p struct {
				Status int
				Detail string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &p))
			require.Equal(t, tt.status, p.Status)
			require.Contains(t, p.Detail, tt.says)
		})
	}
	require.Empty(t, srv.Sessions())
}

func TestRequestsThatAreRefused(t *testing.T) {
	srv := start(t, nil)
	_, offer := newSender(t, senderOptions{codec: h264})
	resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	location, etag := resp.Header.Get("Location"), resp.Header.Get("ETag")
	fragment := "a=ice-ufrag:" + signalingtest.Attribute(offer, "ice-ufrag") + "\r\na=ice-pwd:" + signalingtest.Attribute(offer, "ice-pwd") + "\r\nm=video 9 x 0\r\n"
	tests := []struct {
		name, method, path, body string
		headers                  []string
		status                   int
	}{
		{"type", http.MethodPost, "/whip/match", offer, []string{"Content-Type", "application/json", "Authorization", "Bearer " + goodKey}, 415},
		{"no type", http.MethodPost, "/whip/match", offer, []string{"Authorization", "Bearer " + goodKey}, 415},
		{"size", http.MethodPost, "/whip/match", strings.Repeat("v", 65<<10), bearer, 413},
		{"no token", http.MethodPost, "/whip/match", offer, bearer[:2], 401},
		{"bad token", http.MethodPost, "/whip/match", offer, []string{"Content-Type", "application/sdp", "Authorization", "Bearer nonsense"}, 401},
		{"key of another room", http.MethodPost, "/whip/other", offer, bearer, 403},
		{"token of another room", http.MethodPost, "/whip/match", offer, []string{"Content-Type", "application/sdp", "Authorization", "Bearer token-for-x"}, 403},
		{"no room", http.MethodPost, "/whip/", offer, bearer, 404},
		{"elsewhere", http.MethodPost, "/whip", offer, bearer, 404},
		{"long room", http.MethodPost, "/whip/" + strings.Repeat("x", 200), offer, bearer, 404},
		{"PUT", http.MethodPut, "/whip/match", offer, bearer, 405},
		{"PATCH of the endpoint", http.MethodPatch, "/whip/match", fragment, bearer, 405},
		{"POST to a session", http.MethodPost, location, offer, bearer, 405},
		{"no such session", http.MethodPatch, "/whip/match/AAAA", fragment, []string{"Content-Type", signalingtest.FragmentType, "If-Match", "*"}, 404},
		{"session of another room", http.MethodDelete, strings.Replace(location, "match", "other", 1), "", nil, 404},
		{"PATCH type", http.MethodPatch, location, fragment, []string{"Content-Type", "application/sdp", "If-Match", etag}, 415},
		{"PATCH without tag", http.MethodPatch, location, fragment, []string{"Content-Type", signalingtest.FragmentType}, 428},
		{"PATCH with an old tag", http.MethodPatch, location, fragment, []string{"Content-Type", signalingtest.FragmentType, "If-Match", `"old"`}, 412},
		{"PATCH of nonsense", http.MethodPatch, location, "hello", []string{"Content-Type", signalingtest.FragmentType, "If-Match", etag}, 400},
		{"PATCH without credentials", http.MethodPatch, location, "m=video 9 x 0\r\n", []string{"Content-Type", signalingtest.FragmentType, "If-Match", etag}, 400},
		{"PATCH size", http.MethodPatch, location, strings.Repeat("a=x\r\n", 9999), []string{"Content-Type", signalingtest.FragmentType, "If-Match", etag}, 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := srv.request(t, tt.method, tt.path, tt.body, tt.headers...)
			require.Equal(t, tt.status, resp.StatusCode, body)
			switch tt.status {
			case http.StatusUnauthorized, http.StatusForbidden:
				require.Contains(t, resp.Header.Get("WWW-Authenticate"), "Bearer")
			case http.StatusMethodNotAllowed:
				require.NotEmpty(t, resp.Header.Get("Allow"))
			}
		})
	}
	require.Len(t, srv.Sessions(), 1, "none of it hurt the session")
}

// The same key without the word Bearer, in the URL, and in lower case.
func TestTokens(t *testing.T) {
	srv := start(t, nil)
	_, offer := newSender(t, senderOptions{codec: h264})
	for _, tt := range []struct{ path, authorization string }{
		{"/whip/match", "Bearer " + goodKey},
		{"/whip/match", "bearer  " + goodKey},
		{"/whip/match", goodKey},
		{"/whip/match?key=" + goodKey, ""},
		{"/whip/match", "Bearer token-for-match"},
		{"/whip/any%20room", "Bearer stream-key-any"},
	} {
		headers := []string{"Content-Type", "application/sdp; charset=utf-8"}
		if tt.authorization != "" {
			headers = append(headers, "Authorization", tt.authorization)
		}
		resp, body := srv.request(t, http.MethodPost, tt.path, offer, headers...)
		require.Equal(t, http.StatusCreated, resp.StatusCode, body)
		require.NotContains(t, resp.Header.Get("Location"), goodKey)
		resp, _ = srv.request(t, http.MethodDelete, resp.Header.Get("Location"), "", "If-Match", `"ignored"`)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	for _, p := range srv.places {
		require.NotEmpty(t, p.session.Sender.Identity)
	}
}

// RFC 9725 sections 4.1, 4.2 and 4.6.
func TestOptionsAndGet(t *testing.T) {
	srv := start(t, func(o *whip.Options) {
		o.ICEServers = []webrtc.ICEServer{{URLs: []string{"turn:turn.example.net"}, Username: "u", Credential: "c"}}
	})
	_, offer := newSender(t, senderOptions{codec: h264})
	created, _ := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	for _, path := range []string{"/whip/match", created.Header.Get("Location")} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			resp, body := srv.request(t, method, path, "")
			require.Equal(t, http.StatusNoContent, resp.StatusCode)
			require.Empty(t, body)
		}
		resp, body := srv.request(t, http.MethodOptions, path, "",
			"Origin", "https://example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Empty(t, body)
		require.Equal(t, "application/sdp", resp.Header.Get("Accept-Post"))
		require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "Authorization")
		require.Contains(t, resp.Header.Get("Access-Control-Expose-Headers"), "Location")
		require.Empty(t, resp.Header.Get("Link"), "a preflight learns nothing of relays")
	}
	resp, _ := srv.request(t, http.MethodOptions, "/whip/match", "")
	require.Empty(t, resp.Header.Get("Link"), "nor does an unauthorised client")
	resp, _ = srv.request(t, http.MethodOptions, "/whip/match", "", "Authorization", "Bearer "+goodKey)
	require.Contains(t, resp.Header.Get("Link"), "turn:turn.example.net")

	resp, _ = srv.request(t, http.MethodDelete, created.Header.Get("Location"), "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = srv.request(t, http.MethodDelete, created.Header.Get("Location"), "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestRateLimit(t *testing.T) {
	now := time.Now()
	srv := start(t, func(o *whip.Options) {
		o.PerMinute, o.Burst = 6, 3
		o.Now = func() time.Time { return now }
	})
	many := func(n int, ask func() *http.Response) (statuses map[int]int) { // at once: the refused ones wait
		statuses = map[int]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				resp := ask()
				mu.Lock()
				defer mu.Unlock()
				if statuses[resp.StatusCode]++; resp.StatusCode == http.StatusTooManyRequests {
					assert.InDelta(t, 5, seconds(resp.Header.Get("Retry-After")), 6)
				}
			})
		}
		all.Wait()
		return statuses
	}
	require.Equal(t, map[int]int{http.StatusUnauthorized: 3, http.StatusTooManyRequests: 27}, many(30, func() *http.Response {
		resp, _ := srv.request(t, http.MethodPost, "/whip/match", "x", "Content-Type", "application/sdp", "Authorization", "Bearer wrong")
		return resp
	}))
	require.Equal(t, map[int]int{http.StatusNotFound: 60, http.StatusTooManyRequests: 540}, many(600, func() *http.Response {
		resp, _ := srv.request(t, http.MethodDelete, "/whip/match/guess", "")
		return resp
	}))
}

func TestBadOptions(t *testing.T) {
	_, err := whip.New(whip.Options{})
	require.Error(t, err)
	srv := start(t, nil)
	_ = srv
	_, err = whip.New(whip.Options{
		Open: srv.open, Now: nil,
	})
	require.Error(t, err)
}

// Candidates outside the allowed networks are ignored: a server on loopback sends nothing to its network.
func TestRemoteAddressesAreJudged(t *testing.T) {
	srv := start(t, nil)
	_, offer := newSender(t, senderOptions{codec: h264})
	var list strings.Builder
	for i, ip := range []string{"10.1.2.3", "192.168.1.1", "169.254.169.254", "224.0.0.1", "8.8.8.8", "fe80::1", "nowhere.invalid"} {
		fmt.Fprintf(&list, "a=candidate:%d 1 udp 2130706431 %s 9 typ host\r\n", 100+i, ip)
	}
	lines := list.String()
	resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer+lines, bearer...)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	p := <-srv.opened
	patch, _ := srv.request(t, http.MethodPatch, resp.Header.Get("Location"), signalingtest.Fragment(offer)+lines,
		"Content-Type", signalingtest.FragmentType, "If-Match", "*")
	require.Equal(t, http.StatusNoContent, patch.StatusCode)
	for _, c := range p.session.RemoteCandidates() {
		require.True(t, c.Addr().IsLoopback(), "%v", c)
	}
	require.Eventually(t, func() bool { return len(p.session.RemoteCandidates()) > 0 }, 2*time.Minute, time.Millisecond)
}

// A session sends checks to a bounded number of addresses, for any number and notation of candidates.
func TestCandidatesAreBounded(t *testing.T) {
	srv := start(t, nil)
	_, offer := newSender(t, senderOptions{codec: h264})
	resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer, bearer...)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	p := <-srv.opened
	patch := func(candidate func(n int) string) {
		t.Helper()
		var body strings.Builder
		body.WriteString(signalingtest.Fragment(offer))
		for n := range 60 {
			body.WriteString("a=candidate:" + candidate(n) + "\r\n")
		}
		resp, text := srv.request(t, http.MethodPatch, resp.Header.Get("Location"), body.String(),
			"Content-Type", signalingtest.FragmentType, "If-Match", "*")
		require.Equal(t, http.StatusNoContent, resp.StatusCode, text)
	}
	patch(func(n int) string {
		return fmt.Sprintf("%d 1 udp 2130706431 127.0.0.1 2001 typ srflx raddr 127.0.0.1 rport %d", n+1, n+1)
	})
	known := len(p.session.RemoteCandidates())
	require.LessOrEqual(t, known, 4, "one address, however it came about: %v", p.session.RemoteCandidates())
	for round := range 3 {
		patch(func(n int) string {
			return fmt.Sprintf("%d 1 udp 2130706431 127.0.0.2 %d typ host", n+1, 3000+100*round+n)
		})
	}
	require.Eventually(t, func() bool { return len(p.session.RemoteCandidates()) == 32 }, 2*time.Minute, time.Millisecond)
}
