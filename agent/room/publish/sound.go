package publish

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
)

const soundName = "touchline-sound"

// SoundTrack is the camera's sound, published separately from the voice: front ends use the voice for speaking indicators and captions,
// and viewers can mute either. Its source is screen share audio, which front ends play but do not take for the agent's voice. It is
// published at the first packet.
type SoundTrack struct {
	VoiceTrack

	hasSound atomic.Bool
	wake     func()
}

// NewSound returns the track of the camera's sound. It calls wake at the first packet.
func NewSound(e *conn.Encryption, log zerolog.Logger, wake func()) *SoundTrack {
	t := &SoundTrack{wake: wake}
	t.encryption = e
	t.log, t.name, t.stream, t.source = log, soundName, streamName, livekit.TrackSource_SCREEN_SHARE_AUDIO
	return t
}

// WriteOpus is VoiceTrack.WriteOpus.
func (t *SoundTrack) WriteOpus(packet []byte, timestamp uint32, marker bool) (written time.Time, err error) {
	if !t.hasSound.Swap(true) {
		t.wake()
	}
	return t.VoiceTrack.WriteOpus(packet, timestamp, marker)
}

// Ensure publishes the track once it has packets. It runs in the connection's goroutine.
func (t *SoundTrack) Ensure(ses *conn.Session) error {
	if track, _, _ := t.published(); track != nil || !t.hasSound.Load() {
		return nil
	}
	if err := t.Publish(ses); err != nil {
		return fmt.Errorf("publish the camera's sound: %w", err)
	}
	return nil
}
