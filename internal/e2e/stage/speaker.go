package stage

import (
	"context"
	"fmt"
	"slices"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
	pionmedia "github.com/pion/webrtc/v4/pkg/media"
	opus "gopkg.in/hraban/opus.v2"

	"touchline/agent/room/conn"
)

// soundStep is the length of a packet of sound.
const soundStep = 20 * time.Millisecond

// Speaker is a person in the room with a microphone.
type Speaker struct {
	Identity string
	// Room is its connection.
	Room *lksdk.Room

	track *lksdk.LocalTrack
	pub   *lksdk.LocalTrackPublication
	next  time.Time // of the next packet
}

// AddSpeaker joins the room of the stage as a participant with attributes and a microphone, until leave is called.
func (s *Stage) AddSpeaker(ctx context.Context, identity string, attributes map[string]string) (p *Speaker, leave func(), err error) {
	token, err := conn.CameraToken(s.Keys, conn.Person{Room: s.Room(), Identity: identity, Name: identity, Attributes: attributes})
	if err != nil {
		return nil, nil, fmt.Errorf("mint a speaker's token: %w", err)
	}
	return NewSpeaker(ctx, s.URL(), identity, token)
}

// AddPerson is AddSpeaker for a viewer, who also sends messages.
func (s *Stage) AddPerson(ctx context.Context, identity string) (p *Speaker, leave func(), err error) {
	token, err := conn.ViewerToken(s.Keys, conn.Person{Room: s.Room(), Identity: identity, Speaks: true})
	if err != nil {
		return nil, nil, fmt.Errorf("mint a person's token: %w", err)
	}
	return NewSpeaker(ctx, s.URL(), identity, token)
}

// NewSpeaker joins the room of a token at a server, with a microphone, until leave is called.
func NewSpeaker(ctx context.Context, url, identity, token string) (p *Speaker, leave func(), err error) {
	p = &Speaker{Identity: identity, Room: lksdk.NewRoom(lksdk.NewRoomCallback())}
	if err := p.Room.JoinWithContextAndToken(ctx, url, token, lksdk.WithAutoSubscribe(false)); err != nil {
		return nil, nil, fmt.Errorf("join as %s: %w", identity, err)
	}
	p.track, err = lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: sampleRate, Channels: 2})
	if err == nil {
		p.pub, err = p.Room.LocalParticipant.PublishTrack(p.track, &lksdk.TrackPublicationOptions{Name: "microphone"})
	}
	if err != nil {
		p.Room.Disconnect()
		return nil, nil, fmt.Errorf("publish the microphone of %s: %w", identity, err)
	}
	return p, p.Room.Disconnect, nil
}

// Mute mutes or unmutes the microphone.
func (p *Speaker) Mute(muted bool) { p.pub.SetMuted(muted) }

// Flood sends a packet 2,000 times a second until ctx ends.
func (p *Speaker) Flood(ctx context.Context, packet []byte) error {
	for n := uint32(1); ; n++ {
		if n%20 == 0 {
			if err := Wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		if err := p.track.WriteRTP(&rtp.Packet{
			Header:  rtp.Header{Version: 2, SequenceNumber: uint16(n), Timestamp: n * 960}, // it wraps around
			Payload: packet,
		}, nil); err != nil {
			return fmt.Errorf("send a flood: %w", err)
		}
	}
}

// Opus returns the packets of mono sound of 48 kHz, 20 ms each.
func Opus(pcm []int16) (packets [][]byte, err error) {
	enc, err := opus.NewEncoder(sampleRate, 1, opus.AppVoIP)
	if err != nil {
		return nil, fmt.Errorf("make a speaker's encoder: %w", err)
	}
	const frame = sampleRate / 50
	for part := range slices.Chunk(pcm, frame) {
		step, packet := make([]int16, frame), make([]byte, 1275)
		copy(step, part)
		n, err := enc.Encode(step, packet)
		if err != nil {
			return nil, fmt.Errorf("encode speech: %w", err)
		}
		packets = append(packets, packet[:n])
	}
	return packets, nil
}

// Say sends packets of 20 ms in real time, and returns after the last one.
func (p *Speaker) Say(ctx context.Context, packets [][]byte) error {
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	for _, packet := range packets {
		if err := Wait(ctx, time.Until(p.next)); err != nil {
			return err
		}
		if err := p.track.WriteSample(pionmedia.Sample{Data: packet, Duration: soundStep, Timestamp: p.next}, nil); err != nil {
			return fmt.Errorf("send speech: %w", err)
		}
		p.next = p.next.Add(soundStep)
	}
	return nil
}
