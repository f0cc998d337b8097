package publish

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/packet"
)

const (
	relayName = "touchline"
	// A frame of more than burst packets is sent over up to spread.
	burst  = 16
	spread = 10 * time.Millisecond
	// stillAfter is the pause after the last frame from which the picture stands still.
	stillAfter = time.Second
	// muteAfter is the pause after the last frame before the delayed copy is muted.
	muteAfter = time.Second
)

// rewriter makes the packets of the delayed copy.
type rewriter interface {
	Packets(f media.EncodedFrame, due time.Time) ([]*rtp.Packet, error)
}

// Relay publishes the delayed picture. It implements agent.VideoOutput. The track is published at the first frame, and again when the
// codec or the connection changes.
type Relay struct {
	pictureTrack

	log zerolog.Logger
	// Replay is called when the server requests a key frame while the picture stands still. May be nil; set it before the first use.
	Replay func(now time.Time)
	// askKeyFrame is called when the server requests a key frame of the track.
	askKeyFrame func()
	ended       <-chan struct{} // closed when the Supervisor's Run has ended

	// Used by the connection's goroutine only.
	muted bool // by the relay itself
	anew  bool // the library has published the track again, in its present state

	// Used by the writer only, like gap.
	step     *time.Timer // between packets of one frame
	rewriter rewriter

	lastWrite atomic.Pointer[time.Time] // nil before the first
	wanted    atomic.Bool               // a key frame, by the server
}

var _ agent.VideoOutput = (*Relay)(nil)

// NewRelay returns the output of the delayed picture. It calls needTrack if there is no track for a frame, and askKeyFrame when the
// server requests a key frame. After ended is closed, packets are sent without pauses.
func NewRelay(needTrack, askKeyFrame func(), ended <-chan struct{}, e *conn.Encryption, log zerolog.Logger) *Relay {
	return &Relay{
		pictureTrack: pictureTrack{
			localTrack: localTrack{encryption: e}, gap: true, needTrack: needTrack, needKeyFrame: func() {},
		}, log: log,
		rewriter: packet.NewRewriter(uint16(rand.Uint32()), rand.Uint32()), ended: ended, step: time.NewTimer(0), askKeyFrame: askKeyFrame,
	}
}

// WriteFrame sends one access unit at once; a frame of many packets takes up to 10 ms. Only one goroutine may call it. written is zero,
// without an error, if the track is not published yet. A codec or layering that common browsers cannot play is an error.
func (r *Relay) WriteFrame(f delay.OutFrame) (written time.Time, err error) {
	if f.Codec == media.H265 || f.Codec == media.CodecUnknown || f.SpatialLayers > 1 {
		return time.Time{}, fmt.Errorf("relay the picture: browsers play VP8, VP9, H264 or AV1 in one spatial layer, "+
			"not %s in %d; transcode it first", f.Codec, f.SpatialLayers)
	}
	track := r.ready(f.EncodedFrame)
	if track == nil {
		return time.Time{}, nil
	}
	var packets []*rtp.Packet
	sent, err := r.seal(f.EncodedFrame)
	if err == nil {
		packets, err = r.rewriter.Packets(sent, f.Due)
	}
	if err != nil {
		r.gap = true
		r.dropped.Add(1)
		return time.Time{}, fmt.Errorf("rewrite the picture's packets: %w", err)
	}
	r.gap = false
	for i, p := range packets {
		if i > 0 && i%packetsPerStep(len(packets)) == 0 {
			r.step.Reset(time.Millisecond)
			select {
			case <-r.step.C:
			case <-r.ended: // no more pauses
			}
		}
		if werr := track.WriteRTP(p, nil); werr != nil {
			err = werr
			r.warnings.Warn(r.log, r.errors.Add(1), werr, "picture packets not sent")
			continue
		}
		r.packets.Add(1)
	}
	written = time.Now()
	r.frames.Add(1)
	r.lastWrite.Store(&written)
	return written, err
}

// Republished records that the library has republished the track after a reconnect.
func (r *Relay) Republished() {
	r.pictureTrack.Republished()
	r.anew = true
}

// packetsPerStep returns how many of a frame's n packets are sent per step of a millisecond.
func packetsPerStep(n int) int {
	steps := int(spread/time.Millisecond) - 1
	return max(burst, (n+steps-1)/steps)
}

// Check publishes the track and mirrors the source's mute; a moderator's mute stays. It runs in the connection's goroutine.
func (r *Relay) Check(ses *conn.Session, sourceMuted bool, now time.Time) error {
	if r.settle(ses, now, r.log) {
		return errors.New("the delayed picture is no longer published")
	}
	if r.missing(now) {
		o := lksdk.TrackPublicationOptions{Name: relayName, Source: livekit.TrackSource_CAMERA, Stream: streamName}
		ask := func() { r.wanted.Store(true); r.askKeyFrame() }
		if err := r.publish(ses, o, ask, r.log); err != nil {
			return fmt.Errorf("publish the delayed picture: %w", err)
		}
		r.muted = false
		return nil
	}
	r.resize(ses)
	if last := r.lastWrite.Load(); last != nil && r.wanted.Swap(false) && r.Replay != nil && now.Sub(*last) > stillAfter && !sourceMuted {
		r.Replay(now)
	}
	track, _, _ := r.published()
	if p := publicationOf(ses.Room, track); p != nil {
		// The copy is delayed, so it is muted after the last frames before the mute.
		last := r.lastWrite.Load()
		muted := sourceMuted && (last == nil || now.Sub(*last) > muteAfter)
		if r.anew {
			r.anew, r.muted = false, p.IsMuted()
		}
		moderated := p.IsMuted() && !r.muted
		if muted != r.muted && !moderated {
			p.SetMuted(muted)
			r.muted = muted
		}
	}
	return nil
}
