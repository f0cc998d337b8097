package whip_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/signaling/signalingtest"
	"touchline/media/source/whip"
)

func setup(role string) func(string) string {
	return func(sdp string) string { return strings.ReplaceAll(sdp, "a=setup:actpass", "a=setup:"+role) }
}

// Senders with various codecs, DTLS roles and missing attributes.
func TestSenders(t *testing.T) {
	t.Parallel()
	candidates := regexp.MustCompile(`(?m)^a=(candidate|end-of-candidates).*\r\n`)
	declared := regexp.MustCompile(`(?m)^a=ssrc.*\r\n`)
	tests := []struct {
		name  string
		codec media.Codec
		o     senderOptions
	}{
		{"VP8 like a browser", media.VP8, senderOptions{codec: vp8, sound: true}},
		{"VP9", media.VP9, senderOptions{codec: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP9, ClockRate: 90000, SDPFmtpLine: "profile-id=0"}}},
		{"AV1", media.AV1, senderOptions{codec: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeAV1, ClockRate: 90000}}},
		{"H265", media.H265, senderOptions{codec: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH265, ClockRate: 90000}}},
		// OBS: all candidates in the offer, High profile, no PATCH.
		{"H264 like OBS", media.H264, senderOptions{sound: true, codec: webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeH264, ClockRate: 90000,
			SDPFmtpLine: "profile-level-id=640028;packetization-mode=1;level-asymmetry-allowed=1",
		}}},
		// ffmpeg: DTLS server, no candidates of its own, no feedback.
		{"H264 like ffmpeg", media.H264, senderOptions{codec: h264, sound: true, payload: 106, edit: func(sdp string) string {
			return candidates.ReplaceAllString(setup("passive")(sdp), "")
		}}},
		// GStreamer: does not declare its SSRCs in some versions.
		{"VP8 without SSRCs", media.VP8, senderOptions{codec: vp8, sound: true, edit: func(sdp string) string {
			return declared.ReplaceAllString(sdp, "")
		}}},
		// simple-whip-client: one section without a group.
		{"VP8 without BUNDLE", media.VP8, senderOptions{codec: vp8, edit: func(sdp string) string {
			return regexp.MustCompile(`a=group:BUNDLE.*\r\n`).ReplaceAllString(sdp, "")
		}}},
		{"VP8 as DTLS client", media.VP8, senderOptions{codec: vp8, edit: setup("active")}},
		{"VP8 with sendrecv", media.VP8, senderOptions{codec: vp8, edit: func(sdp string) string {
			return strings.ReplaceAll(sdp, "a=sendonly", "a=sendrecv")
		}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := start(t, nil)
			units := signalingtest.Clip(t, tt.codec)
			began := time.Now()
			s := srv.connect(t, tt.o)
			s.play(units)
			p := <-srv.opened
			f := p.next(t)
			t.Logf("first picture %v after the POST", time.Since(began).Round(time.Millisecond))
			require.True(t, f.KeyFrame)
			for i := range 25 {
				require.Equal(t, tt.codec, f.Codec)
				require.Equal(t, [2]int{320, 180}, [2]int{f.Width, f.Height})
				require.EqualValues(t, 1, f.Epoch)
				last := f
				f = p.next(t)
				require.InDelta(t, 20, (f.PTS - last.PTS).Milliseconds(), 1, "picture %d", i)
			}
			if tt.o.sound {
				require.Equal(t, []byte{0xfc, 0xff, 0xfe}, (<-p.sounds).Payload)
			}
			// The answer accepts every section.
			require.NotContains(t, s.answer, "m=video 0 ")
			require.NotContains(t, s.answer, "a=send")
			require.Equal(t, strings.Contains(s.offer, "a=group:"), strings.Contains(s.answer, "a=group:"))
			require.Contains(t, s.answer, "a=rtcp-mux-only")
			require.Less(t, len(s.answer), 8192, "ffmpeg reads no more")
			require.Contains(t, signalingtest.Attribute(s.answer, "candidate"), "127.0.0.1")

			p.session.RequestKeyFrame()
			select {
			case <-s.plis:
			case <-time.After(2 * time.Minute):
				t.Fatal("no PLI")
			}
			resp, _ := srv.request(t, http.MethodDelete, s.location, "")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "the sender ended it", <-p.closed)
		})
	}
}

// A sender that crashed can return with its key at once.
func TestSameKeyTakesOver(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	units := signalingtest.Clip(t, media.H264)
	first := srv.connect(t, senderOptions{codec: h264})
	first.play(units)
	one := <-srv.opened
	one.next(t)
	began := time.Now()
	second := srv.connect(t, senderOptions{codec: h264})
	second.play(units)
	require.Equal(t, "the same key came again", <-one.closed)
	two := <-srv.opened
	two.next(t)
	took := time.Since(began)
	t.Logf("first picture %v after the new POST", took.Round(time.Millisecond))
	require.Len(t, srv.Sessions(), 1)

	// Another key is another sender.
	third := srv.connect(t, senderOptions{codec: vp8, headers: []string{"Authorization", "Bearer stream-key-any"}})
	third.play(signalingtest.Clip(t, media.VP8))
	(<-srv.opened).next(t)
	require.Len(t, srv.Sessions(), 2)
}

// A session that is slow to end delays only its successor.
func TestSlowEndBlocksItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	var first sync.Once
	closing, release := make(chan struct{}), make(chan struct{})
	srv := start(t, func(o *whip.Options) {
		open := o.Open
		o.Open = func(x *whip.Session) (whip.Place, error) {
			p, err := open(x)
			if x.Sender.Identity == "camera" {
				p.Close = func(string) { first.Do(func() { close(closing); <-release }) }
			}
			return p, err
		}
	})
	_, offer := newSender(t, senderOptions{codec: vp8})
	post := func(key string) int {
		resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer, "Content-Type", "application/sdp", "Authorization", "Bearer "+key)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusCreated, post(goodKey))
	again, other := make(chan int, 1), make(chan int, 1)
	go func() { again <- post(goodKey) }()
	<-closing
	go func() { other <- post("stream-key-any") }()
	select {
	case status := <-other:
		require.Equal(t, http.StatusCreated, status)
	case <-time.After(2 * time.Minute):
		t.Error("another key waits as well")
	}
	require.Empty(t, again, "the place is not free yet")
	close(release)
	require.Equal(t, http.StatusCreated, <-again)
}

// TestManyWithOneKey: of ten times as many senders as there may be, the first ones are received.
func TestManyWithOneKey(t *testing.T) {
	srv := start(t, func(o *whip.Options) { o.Many, o.MaxSessions = true, 2 })
	for range 2 {
		srv.connect(t, senderOptions{codec: vp8})
	}
	require.Len(t, srv.Sessions(), 2)
	_, offer := newSender(t, senderOptions{codec: vp8})
	for range 18 {
		resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer, "Content-Type", "application/sdp", "Authorization", "Bearer "+goodKey)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Positive(t, seconds(resp.Header.Get("Retry-After")))
	}
	require.Len(t, srv.Sessions(), 2)
}

// TestPlacesOfSenders: of ten times as many senders as a link may have, its part is received, whatever their identities; others are not
// affected. A configured key finds a place for one session, which it keeps when it comes again; it ends no other sender for more.
func TestPlacesOfSenders(t *testing.T) {
	t.Parallel()
	_, offer := newSender(t, senderOptions{codec: vp8})
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprintf("many=%v", many), func(t *testing.T) {
			holder, n := "a link", 0
			srv := start(t, func(o *whip.Options) {
				o.MaxSessions, o.ConnectTime, o.Many = 20, time.Hour, many
				o.Authorize = func(string, string) (whip.Sender, error) {
					n++
					return whip.Sender{Key: fmt.Sprint(n), Holder: holder, Identity: fmt.Sprint(n)}, nil
				}
			})
			post := func(room, token, from string) bool {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/whip/"+room, strings.NewReader(offer))
				r.Header.Set("Content-Type", "application/sdp")
				r.Header.Set("Authorization", "Bearer "+token)
				r.RemoteAddr = from + ":9"
				w := httptest.NewRecorder()
				srv.ServeHTTP(w, r)
				if w.Code != http.StatusCreated {
					require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body)
				}
				return w.Code == http.StatusCreated
			}
			received := func(asked int, from string) (n int) {
				for range asked {
					if post("match", "token", from) {
						n++
					}
				}
				return n
			}
			require.Equal(t, 4, received(4, "127.0.0.1"), "cameras of one link")
			require.Equal(t, 4, received(76, "127.0.0.1"))
			holder = "another link"
			require.Equal(t, 2, received(20, "127.0.0.1"), "half of all for an address")
			require.Len(t, srv.Sessions(), 10)
			if many {
				keyed := 0
				for range 20 {
					if post("match", goodKey, "127.0.0.2") {
						keyed++
					}
				}
				require.Equal(t, 8, keyed, "a key has the part of a token")
				require.Equal(t, 2, received(20, "127.0.0.3"))
				require.False(t, post("match", "stream-key-any", "127.0.0.3"))
				require.Zero(t, srv.pushedOut(t))
				return
			}
			require.Equal(t, 6, received(20, "127.0.0.2"))
			holder = "a third link"
			require.Equal(t, 4, received(20, "127.0.0.2"), "all places are taken")
			for range 3 {
				require.True(t, post("match", goodKey, "127.0.0.1"), "a configured key has the operator's place")
				require.Equal(t, 1, srv.pushedOut(t), "it replaces its own session")
			}
			require.True(t, post("match", "stream-key-any", "127.0.0.1"))
			require.Equal(t, 2, srv.pushedOut(t))
			for i := range 20 {
				require.False(t, post(fmt.Sprint("another", i), "stream-key-any", "127.0.0.3"), "one place for each key")
			}
			require.True(t, post("match", "stream-key-any", "127.0.0.1"))
			require.Equal(t, 2, srv.pushedOut(t))
		})
	}
}

// pushedOut is the number of senders whose place the operator got.
func (s *server) pushedOut(t *testing.T) int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(s.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == "pushed_out" {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	require.Fail(t, "no metric")
	return 0
}

func TestSilenceAndAbsenceEndASession(t *testing.T) {
	t.Parallel()
	srv := start(t, func(o *whip.Options) { o.Silence, o.ConnectTime = time.Second, time.Second })
	srv.connect(t, senderOptions{codec: vp8})
	require.Equal(t, "no packets for 1s", <-(<-srv.opened).closed)

	_, offer := newSender(t, senderOptions{codec: vp8})
	resp, _ := srv.request(t, http.MethodPost, "/whip/match", offer, "Content-Type", "application/sdp", "Authorization", "Bearer "+goodKey)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.Contains(t, <-(<-srv.opened).closed, "no connection within 1s")
	require.Eventually(t, func() bool { return len(srv.Sessions()) == 0 }, time.Minute, time.Millisecond)
}

// The largest layer of simulcast is used.
func TestSimulcast(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	small, large := signalingtest.Clip(t, media.VP8), signalingtest.LargeClip(t)
	m := &webrtc.MediaEngine{}
	require.NoError(t, m.RegisterDefaultCodecs())
	require.NoError(t, webrtc.ConfigureSimulcastExtensionHeaders(m))
	e := webrtc.SettingEngine{}
	e.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(e)).NewPeerConnection(webrtc.Configuration{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pc.GracefulClose()) }()
	layer := func(rid string) *webrtc.TrackLocalStaticRTP {
		track, err := webrtc.NewTrackLocalStaticRTP(vp8, "video", "stream", webrtc.WithRTPStreamID(rid))
		require.NoError(t, err)
		return track
	}
	q, f := layer("q"), layer("f")
	sender, err := pc.AddTrack(q)
	require.NoError(t, err)
	require.NoError(t, sender.AddEncoding(f))
	offer, err := pc.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(pc)
	require.NoError(t, pc.SetLocalDescription(offer))
	<-gathered
	resp, body := srv.request(t, http.MethodPost, "/whip/match", pc.LocalDescription().SDP,
		"Content-Type", "application/sdp", "Authorization", "Bearer "+goodKey)
	require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	require.Contains(t, body, "a=simulcast:recv")
	require.NoError(t, pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: body}))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sendLayers(stop, sender, map[*webrtc.TrackLocalStaticRTP][][]byte{q: small, f: large})
	}()
	p := <-srv.opened
	require.Eventually(t, func() bool { return p.next(t).Width == 640 }, 2*time.Minute, time.Microsecond)
	for range 25 {
		require.Equal(t, 640, p.next(t).Width)
	}
	close(stop)
	<-done
}

// A panic in the consumer of one session ends only that session.
func TestCrashEndsOneSession(t *testing.T) {
	t.Parallel()
	srv := start(t, func(o *whip.Options) {
		open := o.Open
		o.Open = func(x *whip.Session) (whip.Place, error) {
			p, err := open(x)
			if x.Sender.Identity == "anywhere" {
				p.Sink.Frame = func(media.EncodedFrame) { panic("a strange picture") }
			}
			return p, err
		}
	})
	good := srv.connect(t, senderOptions{codec: h264})
	good.play(signalingtest.Clip(t, media.H264))
	one := <-srv.opened
	one.next(t)
	bad := srv.connect(t, senderOptions{codec: vp8, headers: []string{"Authorization", "Bearer stream-key-any"}})
	bad.play(signalingtest.Clip(t, media.VP8))
	two := <-srv.opened
	select {
	case reason := <-two.closed:
		require.Equal(t, "internal error", reason)
	case <-time.After(2 * time.Minute):
		t.Fatal("the session that crashed is not over")
	}
	require.Eventually(t, func() bool { return len(srv.Sessions()) == 1 }, 2*time.Minute, 10*time.Millisecond)
	for range 50 { // more than were waiting
		one.next(t)
	}
}

// A panic while a session is made is answered with 500. It takes no place, not the operator's either, and the server can stop.
func TestCrashAtTheStartOfASession(t *testing.T) {
	t.Parallel()
	_, offer := newSender(t, senderOptions{codec: vp8})
	var crash atomic.Bool
	srv := start(t, func(o *whip.Options) {
		o.MaxSessions, o.ConnectTime = 1, time.Hour
		open := o.Open
		o.Open = func(x *whip.Session) (whip.Place, error) {
			if crash.Load() {
				panic("a strange sender")
			}
			return open(x)
		}
	})
	post := func(token string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/whip/match", strings.NewReader(offer))
		r.Header.Set("Content-Type", "application/sdp")
		r.Header.Set("Authorization", "Bearer "+token)
		r.RemoteAddr = "127.0.0.1:9"
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		require.NotContains(t, w.Body.String(), "strange")
		return w.Code
	}
	crash.Store(true)
	for range 3 {
		require.Equal(t, http.StatusInternalServerError, post("token-for-match"))
		require.Equal(t, http.StatusInternalServerError, post(goodKey))
	}
	crash.Store(false)
	require.Equal(t, http.StatusCreated, post("token-for-match"), "the only place is free")
	require.Equal(t, http.StatusCreated, post(goodKey), "the key has the operator's place")
	require.Equal(t, 1, srv.pushedOut(t))
}

// RFC 9725 section 4.2: the end of DTLS ends the session at once, and a DELETE for it finds nothing.
func TestDTLSTeardown(t *testing.T) {
	srv := start(t, nil)
	s := srv.connect(t, senderOptions{codec: vp8})
	s.play(signalingtest.Clip(t, media.VP8))
	p := <-srv.opened
	p.next(t)
	location := s.location
	s.close()
	select {
	case reason := <-p.closed:
		require.Equal(t, "the other side closed the connection", reason)
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	resp, _ := srv.request(t, http.MethodDelete, location, "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestSessionEndsWithItsLink: the session of a token with an end is over then. Another one goes on.
func TestSessionEndsWithItsLink(t *testing.T) {
	t.Parallel()
	srv := start(t, func(o *whip.Options) {
		authorize := o.Authorize
		o.Authorize = func(token, room string) (whip.Sender, error) {
			s, err := authorize(token, room)
			s.Right = func(over func(string)) (stop func()) {
				end := time.AfterFunc(2*time.Second, func() { over("its link has expired") })
				return func() { end.Stop() }
			}
			return s, err
		}
	})
	guest := srv.connect(t, senderOptions{codec: h264, headers: []string{"Authorization", "Bearer token-for-match"}})
	guest.play(signalingtest.Clip(t, media.H264))
	one := <-srv.opened
	own := srv.connect(t, senderOptions{codec: h264})
	own.play(signalingtest.Clip(t, media.H264))
	two := <-srv.opened
	select {
	case reason := <-one.closed:
		require.Equal(t, "its link has expired", reason)
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	two.next(t)
	require.Len(t, srv.Sessions(), 1)
}
