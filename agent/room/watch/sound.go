package watch

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/backoff"
	"touchline/internal/limit"
	"touchline/internal/rescue"
	"touchline/media/packet"
)

const (
	// audioTimeout is the time without a packet after which a subscription to sound is repeated. It doubles each time, up to
	// maxAudioTimeout, because an open microphone may send nothing.
	audioTimeout    = 4 * time.Second
	maxAudioTimeout = time.Minute
	// soundRate and soundBurst bound the packets of one track. Opus has 400 a second at most.
	soundRate, soundBurst = 500, 500
)

// SoundSink receives the Opus packets of one audio track at a time. Its methods are not called concurrently. They must not block
// for long.
type SoundSink interface {
	// Begin precedes the packets of another track.
	Begin()
	// WriteRTP takes ownership of a packet; arrival is its arrival time.
	WriteRTP(p *rtp.Packet, at time.Time)
	// SenderReport receives the two clocks of an RTCP sender report.
	SenderReport(ntp time.Time, timestamp uint32)
}

// sinkSlot is one of the sinks of a subscription.
type sinkSlot struct {
	sink  SoundSink // nil for none
	begun *audioReader
}

// audioSubscription is the subscription to one audio track. It serves up to two sinks: the camera's sound and a microphone.
type audioSubscription struct {
	session *conn.Session
	sid     string
	log     zerolog.Logger
	fail    func(error)    // receives a panic
	lost    *atomic.Uint64 // packets beyond the bounds

	// Used by the connection's goroutine only.
	pub   *lksdk.RemoteTrackPublication
	since time.Time
	again time.Time // when to subscribe; zero when not pending
	stale bool      // the library has reconnected, which may drop subscriptions
	tries int       // repeated subscriptions in a row
	quit  bool      // unsubscribed permanently: the track is not usable

	mu     sync.Mutex // guards the two below
	reader *audioReader
	over   bool

	sinks sync.Mutex // guards the rest, and is held while a sink is called
	sound sinkSlot
	mic   sinkSlot
	open  func() MicrophoneSink // opens the sink of mic at the first packet
	retry backoff.Backoff       // of open
	from  time.Time             // when to call open; zero for at once
	rate  *limit.Limiter[struct{}]
	// The newest sender report, for a sink that begins later.
	report struct {
		ntp       time.Time
		timestamp uint32
		of        *audioReader
	}
	flooded bool
}

// subscribe asks for the track.
func (h *audioSubscription) subscribe(now time.Time) {
	h.again, h.since = time.Time{}, now
	if err := h.pub.SetSubscribed(true); err != nil {
		h.log.Warn().Err(err).Msg("sound subscription failed")
	}
}

// check repeats a subscription without packets, and follows new objects of the library.
func (h *audioSubscription) check(pub *lksdk.RemoteTrackPublication, now time.Time) {
	reader := h.newest()
	switch {
	case h.quit:
	case pub != h.pub || h.stale:
		if reader != nil && reader.pub != pub { // a full reconnect made new objects
			reader.stop()
		}
		h.pub, h.stale = pub, false
		h.subscribe(now)
	case !h.again.IsZero():
		if !now.Before(h.again) {
			h.subscribe(now)
		}
	case reader != nil && reader.foreign.Load():
		h.quit = true
		_ = pub.SetSubscribed(false) // fails only without a connection
	case reader != nil && !reader.ended.Load():
		h.tries = 0
	case pub.IsMuted():
		h.since = now
	case now.Sub(h.since) > min(audioTimeout<<min(h.tries, 8), maxAudioTimeout):
		_ = pub.SetSubscribed(false)
		h.again = now.Add(resubscribePause)
		h.tries++
	}
}

// newest returns the reader of the newest subscription; nil before its first packet.
func (h *audioSubscription) newest() *audioReader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reader
}

// start reads a track that the library has subscribed to.
func (h *audioSubscription) start(track *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if h.reader != nil {
		h.reader.stop()
	}
	h.reader = startAudioReader(track, pub, h)
	pub.OnRTCP(h.reader.rtcp)
}

// stop ends the reading and the sinks.
func (h *audioSubscription) stop() {
	h.mu.Lock()
	h.over = true
	if h.reader != nil {
		h.reader.stop()
	}
	h.mu.Unlock()
	h.setSound(nil)
	h.setMicrophone(nil)
}

// setSound sets the sink of the camera's sound; nil for none.
func (h *audioSubscription) setSound(sink SoundSink) {
	h.sinks.Lock()
	defer h.sinks.Unlock()
	if h.sound.sink != sink {
		h.sound = sinkSlot{sink: sink}
	}
}

// setMicrophone sets the function that opens the sink of a microphone; nil closes the sink.
func (h *audioSubscription) setMicrophone(open func() MicrophoneSink) {
	h.sinks.Lock()
	h.open = open
	sink, opened := h.mic.sink.(MicrophoneSink)
	if open == nil {
		h.mic, h.from = sinkSlot{}, time.Time{}
		h.retry.Reset()
	}
	h.sinks.Unlock()
	if open == nil && opened {
		defer rescue.Guard(h.fail)
		sink.Close()
	}
}

// deliver passes a packet to the sinks, which own it.
func (h *audioSubscription) deliver(r *audioReader, p *rtp.Packet, at time.Time) {
	h.sinks.Lock()
	defer h.sinks.Unlock()
	if _, ok := h.rate.Allow(struct{}{}, at); !ok {
		h.lost.Add(1)
		if !h.flooded {
			h.flooded = true
			h.log.Warn().Int("bound", soundRate).Msg("more sound packets a second than Opus has; the rest is dropped")
		}
		return
	}
	if !hasMedia(p) {
		p.Payload = nil
	} else if !r.decrypt(p) {
		return
	} else if h.open != nil && h.mic.sink == nil && !at.Before(h.from) {
		if sink := h.open(); sink != nil {
			h.mic = sinkSlot{sink: sink}
			h.retry.Reset()
		} else {
			h.from = at.Add(h.retry.Next(at, rand.Float64()))
		}
	}
	both := h.sound.sink != nil && h.mic.sink != nil
	for _, o := range []*sinkSlot{&h.sound, &h.mic} {
		if o.sink == nil {
			continue
		}
		if o.begun != r {
			o.begun = r
			o.sink.Begin()
			if h.report.of == r {
				o.sink.SenderReport(h.report.ntp, h.report.timestamp)
			}
		}
		if both && o == &h.sound {
			o.sink.WriteRTP(p.Clone(), at)
			continue
		}
		o.sink.WriteRTP(p, at)
	}
}

// reported passes a sender report to the sinks.
func (h *audioSubscription) reported(r *audioReader, ntp time.Time, timestamp uint32) {
	h.sinks.Lock()
	defer h.sinks.Unlock()
	h.report.ntp, h.report.timestamp, h.report.of = ntp, timestamp, r
	for _, o := range []*sinkSlot{&h.sound, &h.mic} {
		if o.sink != nil && o.begun == r {
			o.sink.SenderReport(ntp, timestamp)
		}
	}
}

// audioReader reads one subscription's packets, in one goroutine.
type audioReader struct {
	track   *webrtc.TrackRemote
	pub     *lksdk.RemoteTrackPublication
	to      *audioSubscription
	cancel  context.CancelFunc
	done    chan struct{}
	ended   atomic.Bool
	foreign atomic.Bool // not Opus

	decryptor *conn.Decryptor // nil for a track that is not encrypted
	locked    bool            // the key does not fit; used by the reader's goroutine only
}

// startAudioReader reads track until stop.
func startAudioReader(track *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication, to *audioSubscription) *audioReader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &audioReader{
		track: track, pub: pub, to: to, cancel: cancel, done: make(chan struct{}),
		decryptor: to.session.Decryptor(pub.TrackInfo(), track.Codec().MimeType),
	}
	go func() {
		defer close(r.done)
		defer r.ended.Store(true)
		defer rescue.Guard(to.fail)
		if codec := track.Codec().MimeType; codec != webrtc.MimeTypeOpus {
			to.log.Warn().Str("codec", codec).Msg("sound ignored: not Opus")
			r.foreign.Store(true)
			return
		}
		if err := readPackets(ctx, track, func(p *rtp.Packet, at time.Time) { to.deliver(r, p, at) }); err != nil {
			to.log.Warn().Err(err).Msg("sound unreadable")
		}
	}()
	return r
}

// decrypt decrypts a packet of an encrypted track. It returns false for one to drop, which counts as lost.
func (r *audioReader) decrypt(p *rtp.Packet) bool {
	if r.decryptor == nil {
		return true
	}
	payload, err := r.decryptor.Open(p.Payload)
	if locked := r.decryptor.Problem() != ""; locked != r.locked {
		r.locked = locked
		if locked {
			r.to.log.Warn().Err(err).Msg("sound end-to-end encrypted with another key")
		}
	}
	p.Payload = payload
	return err == nil
}

func (r *audioReader) stop() {
	r.cancel()
	<-r.done
}

func (r *audioReader) rtcp(p rtcp.Packet) {
	defer rescue.Guard(r.to.fail)
	if sr, ok := p.(*rtcp.SenderReport); ok && sr.SSRC == uint32(r.track.SSRC()) && !r.ended.Load() {
		r.to.reported(r, packet.NTPTime(sr.NTPTime), sr.RTPTime)
	}
}
