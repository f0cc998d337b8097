package room

import (
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

	"touchline/agent"
	"touchline/media"
	"touchline/media/delay"
)

const (
	relayName = "touchline"
	// A frame of more packets than burst is spread, at most over spread.
	burst  = 16
	spread = 10 * time.Millisecond
	// muteAfter is how long nothing was shown before the delayed copy says that it is muted.
	muteAfter = time.Second
)

// rewriter makes the packets of the delayed copy.
type rewriter interface {
	Packets(f delay.OutFrame) ([]*rtp.Packet, error)
}

// Relay publishes the delayed picture. It implements agent.VideoOutput. It is
// published when the first frame says its codec, and again whenever the codec
// or the connection changes.
type Relay struct {
	log  zerolog.Logger
	wake func()
	// askKeyFrame is called when the server wants a key frame of our track.
	askKeyFrame func()

	write    sync.Mutex // one frame at a time
	rewriter rewriter
	needKey  bool

	mu            sync.RWMutex
	inner         *lksdk.LocalTrack
	room          *lksdk.Room
	codec         media.Codec // of inner
	want          media.Codec // of the frames
	width, height int
	publishedAt   time.Time // of inner
	lastWrite     time.Time

	packets, frames, dropped, errors atomic.Uint64
	complaint                        complaint
}

var _ agent.VideoOutput = (*Relay)(nil)

// WriteFrame sends one access unit at once; a frame of many packets is spread
// over 10 ms at most. written is zero when the frame was not sent because
// the track is not published (yet), which is no error.
// A codec or layering that common viewers cannot play as it is, is an error.
func (r *Relay) WriteFrame(f delay.OutFrame) (written time.Time, err error) {
	if f.Codec == media.H265 || f.Codec == media.CodecUnknown || f.SpatialLayers > 1 {
		return time.Time{}, fmt.Errorf("relay the picture: expected VP8, VP9, H264 or AV1 in one spatial layer, "+
			"got %s in %d; transcode it first", f.Codec, f.SpatialLayers)
	}
	r.write.Lock()
	defer r.write.Unlock()
	track := r.trackFor(f)
	if track == nil || !track.IsBound() {
		r.needKey = true
		r.dropped.Add(1)
		return time.Time{}, nil
	}
	if r.needKey && !f.KeyFrame {
		r.dropped.Add(1)
		return time.Time{}, nil
	}
	packets, err := r.rewriter.Packets(f)
	if err != nil {
		r.needKey = true
		r.dropped.Add(1)
		return time.Time{}, fmt.Errorf("rewrite the picture's packets: %w", err)
	}
	r.needKey = false
	for i, p := range packets {
		if i > 0 && i%packetsPerStep(len(packets)) == 0 {
			<-time.After(time.Millisecond)
		}
		if werr := track.WriteRTP(p, nil); werr != nil {
			err = werr
			r.complaint.tell(r.log, r.errors.Add(1), werr, "the picture's packets could not be sent")
			continue
		}
		r.packets.Add(1)
	}
	written = time.Now()
	r.frames.Add(1)
	r.mu.Lock()
	r.lastWrite = written
	r.mu.Unlock()
	return written, err
}

// packetsPerStep is how many packets of a frame of n leave together, one step a millisecond.
func packetsPerStep(n int) int {
	steps := int(spread/time.Millisecond) - 1
	return max(burst, (n+steps-1)/steps)
}

// trackFor returns the track that can carry f, or notes that one is needed.
func (r *Relay) trackFor(f delay.OutFrame) *lksdk.LocalTrack {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Width > 0 {
		r.width, r.height = f.Width, f.Height
	}
	if r.want != f.Codec {
		r.want = f.Codec
	}
	if r.inner == nil || r.codec != f.Codec {
		if r.wake != nil {
			r.wake()
		}
		return nil
	}
	return r.inner
}

// SID is the track's present server id, "" while it is not published. It changes with every reconnect.
func (r *Relay) SID() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return trackSID(r.room, r.inner)
}

// Stats returns the counters.
func (r *Relay) Stats() OutStats {
	return OutStats{
		Packets: r.packets.Load(), Frames: r.frames.Load(), Dropped: r.dropped.Load(), Errors: r.errors.Load(),
	}
}

// check publishes what is wanted and mirrors the source's mute. It runs in the keeper's goroutine.
func (r *Relay) check(room *lksdk.Room, sourceMuted bool, now time.Time) error {
	r.mu.RLock()
	inner, codec, want, width, height, lastWrite := r.inner, r.codec, r.want, r.width, r.height, r.lastWrite
	r.mu.RUnlock()
	if want == media.CodecUnknown {
		return nil
	}
	if inner == nil || codec != want {
		return r.publish(room, inner, want, width, height)
	}
	if p := publicationOf(room, inner); p != nil {
		// The copy follows D later: it is muted when the last frames before the mute are out.
		muted := sourceMuted && now.Sub(lastWrite) > muteAfter
		if p.IsMuted() != muted {
			p.SetMuted(muted)
		}
	}
	return nil
}

func (r *Relay) publish(room *lksdk.Room, old *lksdk.LocalTrack, codec media.Codec, width, height int) error {
	if p := publicationOf(room, old); p != nil {
		if err := room.LocalParticipant.UnpublishTrack(p.SID()); err != nil {
			r.log.Warn().Err(err).Msg("unpublish the delayed picture")
		}
	}
	inner, err := lksdk.NewLocalTrack(videoCapability(codec), lksdk.WithRTCPHandler(func(p rtcp.Packet) {
		switch p.(type) {
		case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
			r.askKeyFrame()
		}
	}))
	if err != nil {
		return err
	}
	_, err = room.LocalParticipant.PublishTrack(inner, &lksdk.TrackPublicationOptions{
		Name: relayName, Source: livekit.TrackSource_CAMERA, Stream: streamName,
		VideoWidth: width, VideoHeight: height,
	})
	if err != nil {
		return fmt.Errorf("publish the delayed picture: %w", err)
	}
	r.mu.Lock()
	r.inner, r.room, r.codec, r.publishedAt = inner, room, codec, time.Now()
	r.mu.Unlock()
	r.askKeyFrame()
	return nil
}

// drop forgets the track of a connection that ended.
func (r *Relay) drop() {
	r.mu.Lock()
	r.inner, r.room = nil, nil
	r.mu.Unlock()
}

// published returns what was published, where and when.
func (r *Relay) published() (track *lksdk.LocalTrack, room *lksdk.Room, at time.Time) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.inner, r.room, r.publishedAt
}

// videoCapability is what a track of codec offers.
func videoCapability(codec media.Codec) webrtc.RTPCodecCapability {
	c := webrtc.RTPCodecCapability{MimeType: codec.MimeType(), ClockRate: media.VideoClockRate}
	switch codec {
	case media.H264:
		// What every browser plays; the level and the profile of the stream itself may be higher.
		c.SDPFmtpLine = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"
	case media.VP9:
		c.SDPFmtpLine = "profile-id=0"
	case media.VP8, media.H265, media.AV1, media.CodecUnknown:
	}
	return c
}
