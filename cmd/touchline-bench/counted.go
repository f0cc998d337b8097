package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/media/ingest"
)

// counted is a viewer of one numbered video that decodes nothing: it records when each access unit was complete.
type counted struct {
	mu   sync.Mutex
	came map[uint32]time.Time // of numbered ones
	all  []time.Time
	lost uint64
	wg   sync.WaitGroup
}

func newCounted() *counted { return &counted{came: map[uint32]time.Time{}} }

// read reads a track until it ends.
func (c *counted) read(track *webrtc.TrackRemote, askKeyFrame func()) {
	codec, err := media.ParseCodec(track.Codec().MimeType)
	if err != nil {
		return
	}
	units := ingest.New(ingest.Options{Codec: codec})
	for {
		p, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		now := time.Now()
		frames := units.Push(p, now)
		if units.WantsKeyFrame(now) {
			askKeyFrame()
		}
		c.mu.Lock()
		c.lost = units.Stats().Lost
		for _, f := range frames {
			c.all = append(c.all, f.Received)
			if n, ok := whipclient.Number(f.Data); ok {
				c.came[n] = f.Received
			}
		}
		c.mu.Unlock()
	}
}

// count returns the number of access units so far.
func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// firstAfter returns the arrival of the first access unit after a moment.
func (c *counted) firstAfter(at time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.all {
		if t.After(at) {
			return t, true
		}
	}
	return time.Time{}, false
}

// numbers returns the arrivals by number.
func (c *counted) numbers() map[uint32]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.came)
}

// joinCounted watches a participant's video in a LiveKit room. leave returns once the viewer has left.
func joinCounted(ctx context.Context, url, token, identity string) (c *counted, leave func(), err error) {
	c = newCounted()
	r := lksdk.NewRoom(&lksdk.RoomCallback{ParticipantCallback: lksdk.ParticipantCallback{
		OnTrackSubscribed: func(t *webrtc.TrackRemote, _ *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
			if t.Kind() == webrtc.RTPCodecTypeVideo && p.Identity() == identity {
				c.wg.Go(func() { c.read(t, func() { p.WritePLI(t.SSRC()) }) })
			}
		},
		OnTrackPublished: func(pub *lksdk.RemoteTrackPublication, p *lksdk.RemoteParticipant) {
			if p.Identity() == identity && pub.Source() == livekit.TrackSource_CAMERA {
				_ = pub.SetSubscribed(true) // shows as a missing picture
			}
		},
	}})
	quiet := lksdk.WithLogger(logger.GetDiscardLogger())
	if err := r.JoinWithContextAndToken(ctx, url, token, lksdk.WithAutoSubscribe(false), quiet); err != nil {
		return nil, nil, fmt.Errorf("join as a viewer: %w", err)
	}
	return c, func() { r.Disconnect(); c.wg.Wait() }, nil
}

// watchWHEP watches a WHEP endpoint as MediaMTX serves it. leave returns once the connection is closed.
func watchWHEP(ctx context.Context, url string) (c *counted, leave func(), err error) {
	c = newCounted()
	m, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	if err := errors.Join(m.RegisterDefaultCodecs(), webrtc.RegisterDefaultInterceptors(m, registry)); err != nil {
		return nil, nil, err
	}
	e := webrtc.SettingEngine{LoggerFactory: &logging.DefaultLoggerFactory{Writer: io.Discard}}
	e.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(e), webrtc.WithInterceptorRegistry(registry)).
		NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, nil, err
	}
	leave = func() {
		_ = pc.GracefulClose() // it is over
		c.wg.Wait()
	}
	pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		c.wg.Go(func() {
			c.read(t, func() {
				_ = pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.SSRC())}}) // repeated until a key frame arrives
			})
		})
	})
	if err := whepOffer(ctx, pc, url); err != nil {
		leave()
		return nil, nil, fmt.Errorf("watch %s: %w", url, err)
	}
	return c, leave, nil
}

func whepOffer(ctx context.Context, pc *webrtc.PeerConnection, url string) error {
	_, err := pc.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly})
	if err != nil {
		return err
	}
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		return err
	}
	<-gathered
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(pc.LocalDescription().SDP))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/sdp")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("expected status 201, got %d: %s", resp.StatusCode, answer)
	}
	return pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)})
}
