package room

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
	"touchline/media/packet"
)

const (
	soundName = "touchline-sound"
	// audioTimeout is the time without a packet after which a subscription to sound is repeated.
	audioTimeout = 4 * time.Second
)

// SoundSink takes the packets of the watched participant's sound, Opus only. It
// must not block for long.
type SoundSink interface {
	// Begin precedes the packets of another track.
	Begin()
	// WriteRTP takes ownership of a packet, with its arrival.
	WriteRTP(p *rtp.Packet, at time.Time)
	// SenderReport takes the two clocks of an RTCP sender report.
	SenderReport(ntp time.Time, timestamp uint32)
}

// SoundTrack is the camera's sound, republished beside the voice: front ends use
// the voice for speaking indicators and captions, and viewers can mute either.
// Its source is screen share audio, which front ends play without taking it for
// the agent's voice. It is published at the first packet.
type SoundTrack struct {
	VoiceTrack

	hasSound atomic.Bool
	wake     func()
}

// WriteOpus is VoiceTrack.WriteOpus.
func (t *SoundTrack) WriteOpus(packet []byte, timestamp uint32, marker bool) (written time.Time, err error) {
	if !t.hasSound.Swap(true) {
		t.wake()
	}
	return t.VoiceTrack.WriteOpus(packet, timestamp, marker)
}

// ensure publishes the track once it has packets. It runs in the connection's goroutine.
func (t *SoundTrack) ensure(ses *session) error {
	if track, _, _ := t.published(); track != nil || !t.hasSound.Load() {
		return nil
	}
	if err := t.publish(ses); err != nil {
		return fmt.Errorf("publish the camera's sound: %w", err)
	}
	return nil
}

// audioSubscription is the subscription to the watched participant's sound.
type audioSubscription struct {
	session *session
	pub     *lksdk.RemoteTrackPublication
	sid     string
	since   time.Time
	again   time.Time // when to subscribe again; zero when not pending

	mu     sync.Mutex
	reader *audioReader
	over   bool
}

// followAudio keeps a subscription to the sound that belongs to the watched picture.
func (s *Supervisor) followAudio(ses *session, sub *subscription, now time.Time) {
	var pub *lksdk.RemoteTrackPublication
	if sub != nil && s.opts.Sound != nil {
		pub = soundOf(sub)
	}
	h := s.audio.Load()
	if h != nil && h.pub != pub {
		s.dropAudio()
		h = nil
	}
	switch {
	case pub == nil:
	case h == nil:
		h = &audioSubscription{session: ses, pub: pub, sid: pub.SID(), since: now}
		s.audio.Store(h)
		s.opts.Log.Info().Str("participant", sub.who.Identity()).Str("track", h.sid).Msg("listening to the camera")
		h.subscribe(s.opts.Log)
	case !h.again.IsZero() && !now.Before(h.again):
		h.again, h.since = time.Time{}, now
		h.subscribe(s.opts.Log)
	case h.again.IsZero() && h.broken() && now.Sub(h.since) > audioTimeout && !pub.IsMuted():
		_ = pub.SetSubscribed(false)
		h.again = now.Add(resubscribePause)
	}
}

// soundOf finds the sound of a picture: the microphone of a camera's participant, the sound of a shared screen.
func soundOf(sub *subscription) *lksdk.RemoteTrackPublication {
	want := livekit.TrackSource_MICROPHONE
	if sub.pub.Source() == livekit.TrackSource_SCREEN_SHARE {
		want = livekit.TrackSource_SCREEN_SHARE_AUDIO
	}
	for _, p := range sub.who.TrackPublications() {
		if pub, ok := p.(*lksdk.RemoteTrackPublication); ok && pub.Kind() == lksdk.TrackKindAudio && pub.Source() == want && pub.SID() != "" {
			return pub
		}
	}
	return nil
}

func (h *audioSubscription) subscribe(log zerolog.Logger) {
	if err := h.pub.SetSubscribed(true); err != nil {
		log.Warn().Err(err).Msg("sound subscription failed")
	}
}

// broken reports whether nothing is read.
func (h *audioSubscription) broken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reader == nil || h.reader.ended.Load()
}

// start reads a track that the library has subscribed to.
func (h *audioSubscription) start(track *webrtc.TrackRemote, sink SoundSink, fail func(error), log zerolog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if h.reader != nil {
		h.reader.stop()
	}
	h.reader = startAudioReader(track, sink, fail, log)
	h.pub.OnRTCP(h.reader.rtcp)
}

// stop ends the reading.
func (h *audioSubscription) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.reader != nil {
		h.reader.stop()
	}
}

// dropAudio ends the present subscription.
func (s *Supervisor) dropAudio() {
	h := s.audio.Swap(nil)
	if h == nil {
		return
	}
	if !h.session.over.Load() {
		_ = h.pub.SetSubscribed(false) // fails only without a connection
	}
	h.stop()
}

// audioReader reads one subscription's packets, in one goroutine.
type audioReader struct {
	track  *webrtc.TrackRemote
	sink   SoundSink
	fail   func(err error) // takes a panic
	cancel context.CancelFunc
	done   chan struct{}
	ended  atomic.Bool
}

// startAudioReader reads track until stop. fail receives its panics.
func startAudioReader(track *webrtc.TrackRemote, sink SoundSink, fail func(error), log zerolog.Logger) *audioReader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &audioReader{track: track, sink: sink, fail: fail, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer r.ended.Store(true)
		defer rescue.Guard(fail)
		if track.Codec().MimeType != webrtc.MimeTypeOpus {
			log.Warn().Str("codec", track.Codec().MimeType).Msg("camera sound ignored: not Opus")
			<-ctx.Done()
			return
		}
		sink.Begin()
		err := readPackets(ctx, track, func(p *rtp.Packet, at time.Time) {
			if !hasMedia(p) {
				p.Payload = nil
			}
			sink.WriteRTP(p, at)
		})
		if err != nil {
			log.Warn().Err(err).Msg("camera sound unreadable")
		}
	}()
	return r
}

func (r *audioReader) stop() {
	r.cancel()
	<-r.done
}

func (r *audioReader) rtcp(p rtcp.Packet) {
	defer rescue.Guard(r.fail)
	if sr, ok := p.(*rtcp.SenderReport); ok && sr.SSRC == uint32(r.track.SSRC()) && !r.ended.Load() {
		r.sink.SenderReport(packet.NTPTime(sr.NTPTime), sr.RTPTime)
	}
}
