package whep_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/agent/whep"
	"touchline/internal/limit"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/fanout"
	"touchline/media/ingest"
	"touchline/media/signaling"
	"touchline/media/signaling/signalingtest"
	"touchline/media/sound"
	"touchline/media/speech"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// keyEvery is the interval of key frames.
const keyEvery = 120

// clip returns four seconds of pictures for each codec, the first one a key frame.
func clip(t *testing.T) map[media.Codec][]media.EncodedFrame {
	t.Helper()
	out := map[media.Codec][]media.EncodedFrame{}
	for _, c := range []media.Codec{media.H264, media.VP8} {
		units := signalingtest.Clip(t, c)
		for n := range keyEvery {
			data := units[0]
			if n > 0 {
				data = units[1+n%(len(units)-1)]
			}
			out[c] = append(out[c], media.EncodedFrame{
				Codec: c, KeyFrame: n == 0, Data: data, Width: 320, Height: 180, PTS: time.Duration(n) * time.Second / 30,
			})
		}
	}
	return out
}

// stage is a room with a picture and a voice, without LiveKit.
type stage struct {
	*whep.Server

	pictures *fanout.Pictures
	feed     *whep.Feed
	bare     *whep.Feed // the same sound, never a picture
	api      *httptest.Server
	voice    *speech.Writer
	line     *sound.Line
	codec    atomic.Int32
	dark     atomic.Bool // no picture comes
	remove   func()
	stop     func()
}

// empty is a room without a track.
type empty struct{}

func (empty) WriteFrame(delay.OutFrame) (time.Time, error) { return time.Time{}, nil }

type nowhere struct{}

func (nowhere) WriteOpus([]byte, uint32, bool) (time.Time, error) { return time.Now(), nil }

func newStage(t *testing.T, change func(*whep.Options)) *stage {
	t.Helper()
	frames := clip(t)
	s := &stage{}
	s.codec.Store(int32(media.H264))
	o := whep.Options{
		PortOptions: signaling.PortOptions{LoopbackOnly: true}, Bounds: signaling.Bounds{PerMinute: -1}, Now: time.Now,
		Verify: func(token, room string) (_ string, _ signaling.Right, err error) {
			switch {
			case token != "good":
				err = signaling.ErrNoToken
			case room != "match":
				err = signaling.ErrForbidden
			}
			return "", nil, err
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	s.Server, err = whep.New(o)
	require.NoError(t, err)
	voice, err := speech.New(speech.Options{Out: nowhere{}})
	require.NoError(t, err)
	s.line = sound.NewLine(5*time.Second, 12)
	s.voice = voice
	player, err := sound.NewPlayer(sound.PlayerOptions{Voice: voice, Line: s.line})
	require.NoError(t, err)
	s.pictures = fanout.NewPictures(fanout.Options{Room: empty{}})
	s.feed = whep.NewFeed(whep.FeedOptions{Pictures: s.pictures, Mix: player.Mix, Past: 5})
	s.bare = whep.NewFeed(whep.FeedOptions{Pictures: fanout.NewPictures(fanout.Options{Room: empty{}}), Mix: player.Mix})
	s.remove, err = s.Add("match", s.feed)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, s.Run(ctx)) })
	wg.Go(func() { require.NoError(t, player.Run(ctx)) })
	wg.Go(func() { require.NoError(t, voice.Run(ctx)) })
	wg.Go(func() {
		began := time.Now()
		for n := 0; ; n++ {
			due := began.Add(time.Duration(n) * time.Second / 30)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
			}
			if s.dark.Load() {
				continue
			}
			list := frames[media.Codec(s.codec.Load())]
			f := list[n%len(list)]
			f.Epoch = uint32(n/len(list)) + 1
			_, _ = s.pictures.WriteFrame(delay.OutFrame{EncodedFrame: f, Due: due})
		}
	})
	s.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeWHEP(w, r, signaling.Admission{}) }))
	s.stop = sync.OnceFunc(func() {
		s.api.Close()
		cancel()
		wg.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(s.stop)
	require.Eventually(t, func() bool { return s.UDPPort() > 0 && s.feed.Live() }, patience, time.Millisecond)
	return s
}

func (s *stage) request(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.api.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

// player is pion as a WHEP player.
type player struct {
	pc       *webrtc.PeerConnection
	location string
	etag     string
	offer    string

	mu       sync.Mutex
	pictures int
	keys     int
	lost     uint64
	codec    string
	sounds   []*rtp.Packet
	texts    []string
	firstAt  time.Time
	ssrc     uint32
	streams  map[string]bool
}

func newPlayer(t *testing.T, mimes ...string) *player {
	t.Helper()
	return newPlayerWith(t, playerOptions{mimes: mimes})
}

// playerOptions configure a player.
type playerOptions struct {
	mimes    []string
	only     webrtc.RTPCodecType // audio or video, 0 for both
	sendrecv bool
	silent   bool // no section for data channels
	config   webrtc.Configuration
	setting  func(*webrtc.SettingEngine)
}

func newPlayerWith(t *testing.T, o playerOptions) *player {
	t.Helper()
	p := &player{streams: map[string]bool{}}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(net.IP.IsLoopback)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	if o.setting != nil {
		o.setting(&settings)
	}
	m := &webrtc.MediaEngine{}
	for i, mime := range o.mimes {
		c := webrtc.RTPCodecParameters{
			RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: mime, ClockRate: 90000}, PayloadType: webrtc.PayloadType(100 + i),
		}
		if mime == webrtc.MimeTypeH264 {
			c.SDPFmtpLine = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"
		}
		require.NoError(t, m.RegisterCodec(c, webrtc.RTPCodecTypeVideo))
	}
	require.NoError(t, m.RegisterCodec(webrtc.RTPCodecParameters{
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}, PayloadType: 111,
	}, webrtc.RTPCodecTypeAudio))
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(settings)).NewPeerConnection(o.config)
	require.NoError(t, err)
	p.pc = pc
	t.Cleanup(func() { _ = pc.GracefulClose() }) // the server may have closed first
	pc.OnTrack(p.read)
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if o.only != 0 && o.only != kind {
			continue
		}
		way := webrtc.RTPTransceiverDirectionRecvonly
		if o.sendrecv {
			way = webrtc.RTPTransceiverDirectionSendrecv
		}
		_, err = pc.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: way})
		require.NoError(t, err)
	}
	if !o.silent {
		p.listen(t)
	}
	offer, err := pc.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(pc)
	require.NoError(t, pc.SetLocalDescription(offer))
	<-gathered
	p.offer = pc.LocalDescription().SDP
	return p
}

// listen collects texts.
func (p *player) listen(t *testing.T) {
	t.Helper()
	c, err := p.pc.CreateDataChannel("x", nil) // any: the server opens the one with the texts
	require.NoError(t, err)
	c.OnMessage(func(webrtc.DataChannelMessage) { t.Error("a text on another channel") })
	p.pc.OnDataChannel(func(c *webrtc.DataChannel) {
		if c.Label() == "commentary" {
			c.OnMessage(func(msg webrtc.DataChannelMessage) {
				p.mu.Lock()
				p.texts = append(p.texts, string(msg.Data))
				p.mu.Unlock()
			})
		}
	})
}

func (p *player) read(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	p.mu.Lock()
	p.streams[track.StreamID()] = true
	p.mu.Unlock()
	var units *ingest.Assembler
	var kind uint8
	for {
		pkt, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		p.mu.Lock()
		if track.Kind() == webrtc.RTPCodecTypeAudio {
			p.sounds = append(p.sounds, pkt)
			p.mu.Unlock()
			continue
		}
		p.ssrc = uint32(track.SSRC())
		if units == nil || pkt.PayloadType != kind {
			kind = pkt.PayloadType
			c, _ := media.ParseCodec(track.Codec().MimeType)
			units = ingest.New(ingest.Options{Codec: c})
			p.codec = track.Codec().MimeType
		}
		for _, f := range units.Push(pkt, time.Now()) {
			if p.pictures == 0 {
				p.firstAt = time.Now()
			}
			p.pictures++
			if f.KeyFrame {
				p.keys++
			}
		}
		p.lost = units.Stats().Lost
		p.mu.Unlock()
	}
}

func (p *player) seen() (pictures, keys, sounds, texts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pictures, p.keys, len(p.sounds), len(p.texts)
}

// requestKeyFrame sends a PLI.
func (p *player) requestKeyFrame(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	ssrc := p.ssrc
	p.mu.Unlock()
	require.NoError(t, p.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: ssrc}}))
}

// watch joins the room.
func (p *player) watch(t *testing.T, s *stage) {
	t.Helper()
	resp, body := s.request(t, http.MethodPost, "/whep/match", p.offer, "Content-Type", "application/sdp", "Authorization", "Bearer good")
	require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	p.location, p.etag = resp.Header.Get("Location"), resp.Header.Get("ETag")
	require.NoError(t, p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: body}))
}

// TestPlayer joins late, receives picture, sound and texts, requests a key frame, restarts ICE, and leaves.
func TestPlayer(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.feed.Record(look.Record{Cycle: 1, Text: "before", Outcome: look.OutcomeSpoken})
	s.feed.State(agent.Status{State: "listening"})
	time.Sleep(1500 * time.Millisecond) // in the middle of two key frames
	p := newPlayer(t, webrtc.MimeTypeVP8, webrtc.MimeTypeH264)
	asked := time.Now()
	p.watch(t, s)
	require.Eventually(t, func() bool {
		pictures, _, sounds, texts := p.seen()
		return pictures > 45 && sounds > 20 && texts >= 2
	}, patience, 5*time.Millisecond)
	p.mu.Lock()
	t.Logf("first picture %v after the POST", p.firstAt.Sub(asked))
	require.Equal(t, webrtc.MimeTypeH264, p.codec)
	require.Zero(t, p.lost)
	require.Equal(t, map[string]bool{"touchline": true}, p.streams, "one MediaStream")
	for i, a := range p.sounds[1:] {
		require.Equal(t, p.sounds[i].SequenceNumber+1, a.SequenceNumber)
	}
	var m struct {
		Type   string
		Past   bool
		Record look.Record
	}
	require.NoError(t, json.Unmarshal([]byte(p.texts[0]), &m))
	require.Equal(t, "record", m.Type)
	require.True(t, m.Past)
	require.Equal(t, "before", m.Record.Text)
	require.Contains(t, p.texts[1], `"listening"`)
	p.mu.Unlock()
	s.feed.Caption(agent.Caption{Text: "now"})
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.texts[len(p.texts)-1], `"caption"`)
	}, patience, 5*time.Millisecond)

	// A key frame comes at once, before the source's next.
	_, keys, _, _ := p.seen()
	began := time.Now()
	for range 2 { // as browsers do that wait for one
		p.requestKeyFrame(t)
		time.Sleep(200 * time.Millisecond)
	}
	require.Eventually(t, func() bool { _, k, _, _ := p.seen(); return k > keys }, patience, time.Millisecond)
	t.Logf("key frame %v after it was asked for", time.Since(began))

	// ICE restart (RFC 9725 section 4.3.3, also in WHEP).
	offer, err := p.pc.CreateOffer(&webrtc.OfferOptions{ICERestart: true})
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(p.pc)
	require.NoError(t, p.pc.SetLocalDescription(offer))
	<-gathered
	fresh := p.pc.LocalDescription().SDP
	resp, body := s.request(t, http.MethodPatch, p.location, fragment(fresh), "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", p.etag)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	require.NotEqual(t, p.etag, resp.Header.Get("ETag"))
	stale, _ := s.request(t, http.MethodPatch, p.location, fragment(fresh), "Content-Type", "application/trickle-ice-sdpfrag", "If-Match", p.etag)
	require.Equal(t, http.StatusPreconditionFailed, stale.StatusCode)

	resp, _ = s.request(t, http.MethodDelete, p.location, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Zero(t, s.Players(""))
	resp, _ = s.request(t, http.MethodDelete, p.location, "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// fragment returns the ICE attributes of an offer.
func fragment(offer string) string {
	var out []string
	for line := range strings.Lines(offer) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "m="):
			if len(out) > 0 && strings.HasPrefix(out[0], "m=") {
				return strings.Join(out, "\r\n") + "\r\n"
			}
			out = append([]string{line}, out...)
		case strings.HasPrefix(line, "a=ice-ufrag"), strings.HasPrefix(line, "a=ice-pwd"), strings.HasPrefix(line, "a=mid"),
			strings.HasPrefix(line, "a=candidate"):
			out = append(out, line)
		}
	}
	return strings.Join(out, "\r\n") + "\r\n"
}

// TestCodecChange changes the codec of the picture for a player that offered both codecs, and for one that did not.
func TestCodecChange(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	both, one := newPlayer(t, webrtc.MimeTypeVP8, webrtc.MimeTypeH264), newPlayer(t, webrtc.MimeTypeH264)
	require.Eventually(t, func() bool {
		resp, _ := s.request(t, http.MethodPost, "/whep/match", newPlayer(t, webrtc.MimeTypeVP8).offer, "Content-Type", "application/sdp", "Authorization", "Bearer good")
		return resp.StatusCode == http.StatusUnprocessableEntity
	}, patience, 50*time.Millisecond, "the picture is H264, the player takes VP8")
	both.watch(t, s)
	one.watch(t, s)
	shows := func(p *player, mime string) {
		t.Helper()
		require.Eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.codec == mime && p.pictures > 5
		}, patience, 5*time.Millisecond)
	}
	shows(both, webrtc.MimeTypeH264)
	shows(one, webrtc.MimeTypeH264)
	s.codec.Store(int32(media.VP8))
	shows(both, webrtc.MimeTypeVP8)
	require.Eventually(t, func() bool { return s.Players("match") == 1 }, patience, 5*time.Millisecond, "the other's session has ended")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *whep.Options) { o.MaxSessions = 1 })
	good := newPlayer(t, webrtc.MimeTypeVP8, webrtc.MimeTypeH264)
	sdp := []string{"Content-Type", "application/sdp", "Authorization", "Bearer good"}
	tests := []struct {
		name, path, body string
		headers          []string
		status           int
	}{
		{"no token", "/whep/match", good.offer, sdp[:2], 401},
		{"bad token", "/whep/match", good.offer, []string{"Content-Type", "application/sdp", "Authorization", "Bearer bad"}, 401},
		{"another room's token", "/whep/other", good.offer, sdp, 403},
		{"type", "/whep/match", good.offer, []string{"Content-Type", "text/plain", "Authorization", "Bearer good"}, 415},
		{"no SDP", "/whep/match", "{}", sdp, 400},
		{"size", "/whep/match", strings.Repeat("v", 65<<10), sdp, 413},
		{"ten times that size", "/whep/match", strings.Repeat("v", 640<<10), sdp, 413},
		{"sender", "/whep/match", strings.ReplaceAll(good.offer, "a=recvonly", "a=sendonly"), sdp, 422},
		{"codec", "/whep/match", strings.NewReplacer("VP8/90000", "VP7/90000", "H264/90000", "H263/90000").Replace(good.offer), sdp, 422},
		{"no bundle", "/whep/match", strings.Replace(good.offer, "a=group:BUNDLE", "a=group:LS", 1), sdp, 422},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := s.request(t, http.MethodPost, tt.path, tt.body, tt.headers...)
			require.Equal(t, tt.status, resp.StatusCode, body)
			require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
		})
	}
	resp, _ := s.request(t, http.MethodOptions, "/whep/match", "", "Origin", "http://x", "Access-Control-Request-Method", "POST")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Contains(t, resp.Header.Get("Access-Control-Expose-Headers"), "Location")

	good.watch(t, s)
	resp, _ = s.request(t, http.MethodPost, "/whep/match", newPlayer(t, webrtc.MimeTypeH264).offer, sdp...)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "one player is the bound here")
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	s.remove()
	require.Zero(t, s.Players(""))
	resp, _ = s.request(t, http.MethodPost, "/whep/match", good.offer, sdp...)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestRounds connects and leaves repeatedly without leaking goroutines.
func TestRounds(t *testing.T) {
	s := newStage(t, nil)
	const rounds = 25
	before := 0
	for n := range rounds {
		p := newPlayer(t, webrtc.MimeTypeH264)
		p.watch(t, s)
		require.Eventually(t, func() bool { pictures, _, sounds, _ := p.seen(); return pictures > 0 && sounds > 0 }, patience, time.Millisecond)
		resp, _ := s.request(t, http.MethodDelete, p.location, "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_ = p.pc.GracefulClose() // the server has ended the session, so there may be nothing left to close
		if n == 4 {
			before = runtime.NumGoroutine()
		}
	}
	require.Zero(t, s.Players(""))
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 }, patience, 50*time.Millisecond)
	t.Logf("goroutines: %d after 5 rounds, %d after %d", before, runtime.NumGoroutine(), rounds)
}

// TestPlayerVanishes never connects.
func TestPlayerVanishes(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *whep.Options) { o.ConnectTime = 300 * time.Millisecond })
	resp, _ := s.request(t, http.MethodPost, "/whep/match", newPlayer(t, webrtc.MimeTypeH264).offer, "Content-Type", "application/sdp", "Authorization", "Bearer good")
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.Eventually(t, func() bool { return s.Players("") == 0 }, patience, 5*time.Millisecond, "it never connected")
}

func FuzzOffer(f *testing.F) {
	f.Add("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n" +
		"m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n" +
		"a=fingerprint:sha-256 AA:BB\r\na=setup:actpass\r\na=recvonly\r\na=rtcp-mux\r\na=rtpmap:96 H264/90000\r\n" +
		"a=fmtp:96 packetization-mode=1;profile-level-id=42e01f\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n" +
		"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=ice-ufrag:abcd\r\n" +
		"a=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-256 AA:BB\r\na=setup:actpass\r\na=sctp-port:5000\r\n")
	f.Add("v=0\r\n")
	f.Fuzz(func(_ *testing.T, text string) { _ = whep.CheckOffer(text) })
}

// TestLinkExpires: the sessions of an expired link end, whether the link or its LiveKit token opened them. That of the operator goes on.
func TestLinkExpires(t *testing.T) {
	t.Parallel()
	ends := make(chan func(string), 2)
	until := func(over func(string)) (stop func()) {
		ends <- over
		return func() {}
	}
	s := newStage(t, func(o *whep.Options) {
		o.ConnectTime = patience
		o.Verify = func(string, string) (string, signaling.Right, error) { return "", until, nil }
	})
	var expired atomic.Int32
	var admission signaling.Admission
	s.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := admission
		a.Expired = func() { expired.Add(1) }
		s.ServeWHEP(w, r, a)
	})
	var players []*player
	for _, admission = range []signaling.Admission{{Admitted: true, Right: until}, {}, {Admitted: true}} {
		p := newPlayer(t, webrtc.MimeTypeH264)
		p.watch(t, s)
		players = append(players, p)
	}
	operator := players[2]
	s.feed.Record(look.Record{Cycle: 1, Text: "before", Outcome: look.OutcomeSpoken})
	for _, p := range players { // its channel is open
		require.Eventually(t, func() bool { _, _, _, texts := p.seen(); return texts > 0 }, patience, 10*time.Millisecond)
	}
	require.Len(t, ends, cap(ends), "both rights of links are watched")
	for range cap(ends) {
		(<-ends)("this link has expired")
	}
	require.Eventually(t, func() bool { return expired.Load() == 2 && len(s.Sessions()) == 1 }, patience, 10*time.Millisecond)
	told := func(p *player) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Contains(p.texts, `{"type":"expired","reason":"this link has expired"}`)
	}
	require.Eventually(t, func() bool { return told(players[0]) && told(players[1]) }, patience, 10*time.Millisecond)
	require.False(t, told(operator))
	before, _, _, _ := operator.seen()
	require.Eventually(t, func() bool { now, _, _, _ := operator.seen(); return now > before }, patience, 10*time.Millisecond)
}

// TestOptionsAreLimited: OPTIONS that check a token have the limit of offers; those of browsers before other requests do not.
func TestOptionsAreLimited(t *testing.T) {
	t.Parallel()
	o := whep.Options{Bounds: signaling.Bounds{PerMinute: 1, Burst: 5}, Now: func() time.Time { return time.Unix(1000, 0) }}
	s, err := whep.New(o)
	require.NoError(t, err)
	status := func(headers ...string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/whep/match", http.NoBody)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		s.ServeWHEP(w, r, signaling.Admission{})
		return w.Code
	}
	for range 5 {
		require.Equal(t, http.StatusOK, status("Authorization", "Bearer guess"))
	}
	require.Equal(t, http.StatusTooManyRequests, status("Authorization", "Bearer guess"))
	require.Equal(t, http.StatusOK, status("Access-Control-Request-Method", "POST"))
}

// TestPlacesOfPlayers: a link and an address have a part of the places, however often they ask, and the operator finds one in any case.
func TestPlacesOfPlayers(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *whep.Options) {
		o.MaxSessions, o.PerMinute, o.ConnectTime = 18, -1, time.Hour
		o.Verify = func(token, _ string) (link string, _ signaling.Right, _ error) {
			link, _, _ = strings.Cut(token, "/")
			return link, nil, nil
		}
	})
	var who limit.Client
	minted := func() string { return "" } // the next token; "" for a page's visitor
	s.api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = netip.AddrPortFrom(who.From, 1).String()
		s.ServeWHEP(w, r.WithContext(limit.WithClient(r.Context(), who)), signaling.Admission{Admitted: signaling.Token(r) == ""})
	})
	offer := newPlayer(t, webrtc.MimeTypeH264).offer
	seated := func(n int, c limit.Client) (got int) {
		who = c
		for range n {
			resp, body := s.request(t, http.MethodPost, "/whep/match", offer, "Content-Type", "application/sdp", "Authorization", minted())
			if resp.StatusCode == http.StatusCreated {
				got++
				continue
			}
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, body)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
		}
		return got
	}
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	tokens := 0
	minted = func() string { tokens++; return fmt.Sprintf("Bearer a-link/%d", tokens) }
	require.Equal(t, 8, seated(80, limit.Client{Token: "of another each", From: here}), "with LiveKit tokens of one link")
	minted = func() string { return "" }
	require.Zero(t, seated(8, limit.Client{Token: "its own token", Link: "a-link", From: there}))
	require.Equal(t, 1, seated(10, limit.Client{Token: "its second link", From: here}), "half of them for an address")
	require.Equal(t, 1, seated(1, limit.Client{Token: "another link", From: there}))
	require.Equal(t, 8, seated(10, limit.Client{Token: "and another", From: there}))
	require.Len(t, s.Sessions(), 18)
	require.Equal(t, 10, seated(10, limit.Client{Operator: true, From: here}))
	require.Eventually(t, func() bool { return len(s.Sessions()) == 18 }, patience, time.Millisecond, "those of others have ended")
}
