package room

import (
	"bytes"
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
)

const (
	// streamName joins voice and delayed picture, so that players keep them in step.
	streamName = "touchline"
	voiceName  = "touchline-voice"
	// silentPacket is the longest Opus packet that carries only the end of a sound (DTX, RFC 6716 section 3.1).
	silentPacket = 3
	// Audio levels of the header extension, in -dBov (RFC 6464): a rough guess for the speaking indicators of front ends.
	levelSpeech, levelSilence = 25, 127
)

// OutStats counts what was sent on a track since the start.
type OutStats struct {
	Packets uint64
	Frames  uint64 // of the delayed picture
	Dropped uint64 // packets of the voice or frames of the picture that came while the track was not published
	Errors  uint64 // writes that failed
}

// VoiceTrack sends the Opus packets of the bot's voice over the present
// connection. It implements the packet writer that media/speech needs.
type VoiceTrack struct {
	log zerolog.Logger
	// name, stream and source of the track, empty for the bot's own.
	name, stream string
	source       livekit.TrackSource

	mu    sync.RWMutex
	inner *lksdk.LocalTrack
	room  *lksdk.Room

	sequence                 atomic.Uint32
	packets, dropped, errors atomic.Uint64
	warnings                 warnLimiter
}

// WriteOpus sends one packet of 48 kHz Opus with the RTP timestamp given.
// marker begins a talk spurt. written is zero when there was no track to
// write to, which is no error: the voice goes on when the room is back.
func (t *VoiceTrack) WriteOpus(packet []byte, timestamp uint32, marker bool) (written time.Time, err error) {
	t.mu.RLock()
	inner := t.inner
	t.mu.RUnlock()
	if inner == nil || !inner.IsBound() {
		t.dropped.Add(1)
		return time.Time{}, nil
	}
	level := uint8(levelSpeech)
	if len(packet) <= silentPacket || t.source != livekit.TrackSource_UNKNOWN { // the sound of a camera is not speech
		level = levelSilence
	}
	err = inner.WriteRTP(&rtp.Packet{
		Header: rtp.Header{
			Version: 2, Marker: marker, Timestamp: timestamp,
			SequenceNumber: uint16(t.sequence.Add(1)),
		},
		Payload: bytes.Clone(packet),
	}, &lksdk.SampleWriteOptions{AudioLevel: &level})
	written = time.Now()
	if err != nil {
		t.warnings.warn(t.log, t.errors.Add(1), err, "voice packets not sent")
		return written, err
	}
	t.packets.Add(1)
	return written, nil
}

// SID is the track's present server id, "" while it is not published. It changes with every reconnect.
func (t *VoiceTrack) SID() string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return trackSID(t.room, t.inner)
}

// Stats returns the counters.
func (t *VoiceTrack) Stats() OutStats {
	return OutStats{Packets: t.packets.Load(), Dropped: t.dropped.Load(), Errors: t.errors.Load()}
}

// publish publishes a new track. It blocks until the server has confirmed it or ses is over.
func (t *VoiceTrack) publish(ses *session) error {
	inner, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{
		// Two channels is what Opus in WebRTC always says (RFC 7587 section 7); the packets themselves may be mono.
		MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
	})
	if err != nil {
		return err
	}
	o := lksdk.TrackPublicationOptions{Name: voiceName, Source: livekit.TrackSource_MICROPHONE, Stream: streamName}
	if t.name != "" {
		o.Name, o.Stream = t.name, t.stream
	}
	if t.source != livekit.TrackSource_UNKNOWN {
		o.Source = t.source
	}
	if err := ses.publish(inner, &o); err != nil {
		return err
	}
	t.mu.Lock()
	t.inner, t.room = inner, ses.room
	t.mu.Unlock()
	return nil
}

// ssrc returns the SSRC of the sent packets.
func (t *VoiceTrack) ssrc() (ssrc uint32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.inner == nil || !t.inner.IsBound() {
		return 0, false
	}
	return uint32(t.inner.SSRC()), true
}

// bound reports whether packets are sent.
func (t *VoiceTrack) bound() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.inner != nil && t.inner.IsBound()
}

// published reports whether there is a track in the present connection.
func (t *VoiceTrack) published() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.inner != nil
}

// drop forgets the track of a connection that ended.
func (t *VoiceTrack) drop() {
	t.mu.Lock()
	t.inner, t.room = nil, nil
	t.mu.Unlock()
}

// publicationOf finds what track was published as; the library republishes under a new id by itself.
func publicationOf(room *lksdk.Room, track *lksdk.LocalTrack) *lksdk.LocalTrackPublication {
	if room == nil || track == nil {
		return nil
	}
	for _, p := range room.LocalParticipant.TrackPublications() {
		if lp, ok := p.(*lksdk.LocalTrackPublication); ok && lp.TrackLocal() == webrtc.TrackLocal(track) {
			return lp
		}
	}
	return nil
}

func trackSID(room *lksdk.Room, track *lksdk.LocalTrack) string {
	if p := publicationOf(room, track); p != nil {
		return p.SID()
	}
	return ""
}

// warnLimiter logs a repeated failure at a bounded rate.
type warnLimiter struct {
	every time.Duration // 0 is a second
	mu    sync.Mutex
	last  time.Time
}

func (c *warnLimiter) warn(log zerolog.Logger, count uint64, err error, msg string) {
	c.mu.Lock()
	now := time.Now()
	soon := !c.last.IsZero() && now.Sub(c.last) < cmp.Or(c.every, time.Second)
	if !soon {
		c.last = now
	}
	c.mu.Unlock()
	if soon {
		return
	}
	log.Warn().Err(err).Uint64("so_far", count).Msg(msg)
}
