package whip_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	pionmedia "github.com/pion/webrtc/v4/pkg/media"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/whip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodKey = "stream-key-one"

// server is a WHIP server with recorded places.
type server struct {
	*whip.Server
	url string // of the HTTP server

	mu     sync.Mutex
	places []*place
	opened chan *place
}

// place records its input.
type place struct {
	session *whip.Session
	frames  chan media.EncodedFrame
	sounds  chan source.Opus
	closed  chan string
}

func start(t *testing.T, change func(*whip.Options)) *server {
	t.Helper()
	s := &server{opened: make(chan *place, 1024)}
	o := whip.Options{
		Keys: []whip.StreamKey{
			{Key: goodKey, Room: "match", Identity: "camera"},
			{Key: "stream-key-any", Identity: "anywhere"},
		},
		Authorize: func(token, room string) (whip.Sender, error) {
			switch {
			case token == "token-for-"+room:
				return whip.Sender{Key: token, Identity: "sender"}, nil
			case strings.HasPrefix(token, "token-for-"):
				return whip.Sender{}, fmt.Errorf("%w: %w", signaling.ErrForbidden, io.EOF)
			}
			return whip.Sender{}, signaling.ErrNoToken
		},
		Open:   s.open,
		Bounds: signaling.Bounds{PerMinute: -1}, PortOptions: signaling.PortOptions{LoopbackOnly: true}, Now: time.Now,
	}
	if change != nil {
		change(&o)
	}
	var err error
	s.Server, err = whip.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	web := httptest.NewServer(s)
	s.url = web.URL
	t.Cleanup(func() {
		web.Close()
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(2 * time.Minute):
			t.Error("the server does not stop")
		}
	})
	require.Eventually(t, func() bool { return s.UDPPort() > 0 }, 2*time.Minute, time.Millisecond)
	return s
}

func (s *server) open(x *whip.Session) (whip.Place, error) {
	p := &place{
		session: x, frames: make(chan media.EncodedFrame, 4096), sounds: make(chan source.Opus, 4096), closed: make(chan string, 1),
	}
	s.mu.Lock()
	s.places = append(s.places, p)
	s.mu.Unlock()
	s.opened <- p
	return whip.Place{
		Sink: source.Sink{
			Frame: func(f media.EncodedFrame) { p.frames <- f },
			Opus:  func(o source.Opus) { p.sounds <- o },
		},
		Close: func(reason string) { p.closed <- reason },
	}, nil
}

// request is one HTTP exchange; headers are pairs.
func (s *server) request(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(got)
}

// sender is a WHIP client.
type sender struct {
	pc       *webrtc.PeerConnection
	video    *webrtc.TrackLocalStaticSample
	audio    *webrtc.TrackLocalStaticSample
	location string
	etag     string
	offer    string
	answer   string
	up       chan struct{}
	down     chan struct{}
	plis     chan struct{}
	stop     chan struct{}
	wg       sync.WaitGroup
	once     sync.Once
}

// senderOptions configure a sender.
type senderOptions struct {
	codec   webrtc.RTPCodecCapability
	payload webrtc.PayloadType
	sound   bool
	edit    func(sdp string) string // of the offer, on its way
	headers []string
	path    string
	setting func(*webrtc.SettingEngine)

	interceptors *interceptor.Registry // of the sender
}

var (
	vp8  = webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000}
	h264 = webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeH264, ClockRate: 90000,
		SDPFmtpLine: "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42c01f",
	}
)

// newSender makes a sender and its offer.
func newSender(t *testing.T, o senderOptions) (*sender, string) {
	t.Helper()
	m := &webrtc.MediaEngine{}
	if o.payload == 0 {
		o.payload = 96
	}
	require.NoError(t, m.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: o.codec, PayloadType: o.payload}, webrtc.RTPCodecTypeVideo))
	opus := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}
	require.NoError(t, m.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: opus, PayloadType: 111}, webrtc.RTPCodecTypeAudio))
	e := webrtc.SettingEngine{}
	e.SetIncludeLoopbackCandidate(true)
	e.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	e.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	if o.setting != nil {
		o.setting(&e)
	}
	if o.interceptors == nil {
		o.interceptors = &interceptor.Registry{}
	}
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(e), webrtc.WithInterceptorRegistry(o.interceptors)).
		NewPeerConnection(webrtc.Configuration{})
	require.NoError(t, err)
	s := &sender{
		pc: pc, up: make(chan struct{}), down: make(chan struct{}), plis: make(chan struct{}, 1024), stop: make(chan struct{}),
	}
	var up, down sync.Once
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			up.Do(func() { close(s.up) })
		case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed, webrtc.PeerConnectionStateDisconnected:
			down.Do(func() { close(s.down) })
		default:
		}
	})
	t.Cleanup(s.close)
	s.video, err = webrtc.NewTrackLocalStaticSample(o.codec, "video", "stream")
	require.NoError(t, err)
	tv, err := pc.AddTransceiverFromTrack(s.video, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
	require.NoError(t, err)
	s.wg.Go(func() { s.readRTCP(tv.Sender()) })
	if o.sound {
		s.audio, err = webrtc.NewTrackLocalStaticSample(opus, "audio", "stream")
		require.NoError(t, err)
		ta, err := pc.AddTransceiverFromTrack(s.audio, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
		require.NoError(t, err)
		s.wg.Go(func() { s.readRTCP(ta.Sender()) })
	}
	offer, err := pc.CreateOffer(nil)
	require.NoError(t, err)
	gathered := webrtc.GatheringCompletePromise(pc)
	require.NoError(t, pc.SetLocalDescription(offer))
	<-gathered
	text := pc.LocalDescription().SDP
	if o.edit != nil {
		text = o.edit(text)
	}
	return s, text
}

func (s *sender) readRTCP(from *webrtc.RTPSender) {
	for {
		packets, _, err := from.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			if _, ok := p.(*rtcp.PictureLossIndication); ok {
				s.plis <- struct{}{}
			}
		}
	}
}

func (s *sender) close() {
	s.once.Do(func() {
		close(s.stop)
		_ = s.pc.GracefulClose()
		s.wg.Wait()
		s.pc, s.video, s.audio = nil, nil, nil // t.Cleanup keeps s
	})
}

// connect posts the offer and applies the answer.
func (s *server) connect(t *testing.T, o senderOptions) *sender {
	t.Helper()
	x, offer := newSender(t, o)
	if o.path == "" {
		o.path = "/whip/match"
	}
	if o.headers == nil {
		o.headers = []string{"Authorization", "Bearer " + goodKey}
	}
	resp, body := s.request(t, http.MethodPost, o.path, offer, append([]string{"Content-Type", "application/sdp"}, o.headers...)...)
	require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	x.offer = offer
	x.location, x.etag, x.answer = resp.Header.Get("Location"), resp.Header.Get("ETag"), body
	require.NoError(t, x.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: body}))
	select {
	case <-x.up:
	case <-time.After(2 * time.Minute):
		t.Fatal("no connection")
	}
	return x
}

// play sends units in a loop, 50 a second, until the sender closes.
func (s *sender) play(units [][]byte) {
	s.wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			_ = s.video.WriteSample(pionmedia.Sample{Data: units[i%len(units)], Duration: 20 * time.Millisecond})
			if s.audio != nil {
				_ = s.audio.WriteSample(pionmedia.Sample{Data: []byte{0xfc, 0xff, 0xfe}, Duration: 20 * time.Millisecond})
			}
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	})
}

// next waits for a frame.
func (p *place) next(t *testing.T) media.EncodedFrame {
	t.Helper()
	select {
	case f := <-p.frames:
		return f
	case <-time.After(2 * time.Minute):
		t.Fatal("no picture")
		return media.EncodedFrame{}
	}
}

func seconds(header string) int {
	n, _ := strconv.Atoi(header)
	return n
}
