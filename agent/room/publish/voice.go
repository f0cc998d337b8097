package publish

import (
	"bytes"
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
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

// VoiceTrack sends the Opus packets of the bot's voice over the present connection. It implements the packet writer of media/speech.
type VoiceTrack struct {
	localTrack

	log zerolog.Logger
	// name, stream and source of the track; empty for the bot's voice.
	name, stream string
	source       livekit.TrackSource
	sequence     atomic.Uint32
}

// NewVoice returns the track of the voice.
func NewVoice(e *conn.Encryption, log zerolog.Logger) *VoiceTrack {
	return &VoiceTrack{localTrack: localTrack{encryption: e}, log: log}
}

// WriteOpus sends one packet of 48 kHz Opus with an RTP timestamp. marker begins a talk spurt. Between connections the packet is
// dropped: written is zero, without an error.
func (t *VoiceTrack) WriteOpus(packet []byte, timestamp uint32, marker bool) (written time.Time, err error) {
	inner := t.bound()
	if inner == nil {
		t.dropped.Add(1)
		return time.Time{}, nil
	}
	level := uint8(levelSpeech)
	if len(packet) <= silentPacket || t.source != livekit.TrackSource_UNKNOWN { // the sound of a camera is not speech
		level = levelSilence
	}
	payload, err := t.encryption.Sound(bytes.Clone(packet))
	if err != nil {
		return time.Time{}, fmt.Errorf("encrypt the sound: %w", err)
	}
	err = inner.WriteRTP(&rtp.Packet{
		Header: rtp.Header{
			Version: 2, Marker: marker, Timestamp: timestamp,
			SequenceNumber: uint16(t.sequence.Add(1)),
		},
		Payload: payload,
	}, &lksdk.SampleWriteOptions{AudioLevel: &level})
	written = time.Now()
	if err != nil {
		t.warnings.Warn(t.log, t.errors.Add(1), err, "voice packets not sent")
		return written, err
	}
	t.packets.Add(1)
	return written, nil
}

// Publish publishes a new track. It blocks until the server confirms it or the session is over.
func (t *VoiceTrack) Publish(ses *conn.Session) error {
	inner, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{
		// WebRTC declares Opus with two channels (RFC 7587 section 7); the packets may be mono.
		MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
	})
	if err != nil {
		return err
	}
	if err := ses.Publish(inner, &lksdk.TrackPublicationOptions{
		Name: cmp.Or(t.name, voiceName), Stream: cmp.Or(t.stream, streamName),
		Source: cmp.Or(t.source, livekit.TrackSource_MICROPHONE),
	}); err != nil {
		return err
	}
	t.set(inner, ses.Room)
	return nil
}
