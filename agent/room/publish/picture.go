package publish

import (
	"fmt"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/media"
	"touchline/media/packet"
)

// pictureTrack is a published video track. It is published at the first frame, and again when the codec or the connection changes. A
// writer calls ready; the connection's goroutine calls the other methods.
type pictureTrack struct {
	localTrack

	needTrack    func() // called when there is no track for a frame
	needKeyFrame func() // called when a frame after a gap is no key frame
	gap          bool   // until the next key frame; for the writer alone

	// Guarded by mu.
	codec         media.Codec // of inner
	want          media.Codec // of the frames
	width, height int
	declared      [2]int // width and height of inner, as the server knows them
	before        uint64 // frames sent before inner was published
	barred        media.Codec
	barredAt      time.Time
	why           string // the room does not take barred
}

// publishRetry is the pause before a picture that the room did not take is published in the same codec again.
const publishRetry = time.Minute

// Encodable returns the codec to encode a picture for a room that carries some codecs.
func Encodable(carries func(media.Codec) bool) media.Codec {
	if !carries(media.H264) && carries(media.VP8) {
		return media.VP8
	}
	return media.H264
}

// ready returns the track for f. Without a track, and from a gap until the next key frame, it returns nil and f counts as dropped.
func (p *pictureTrack) ready(f media.EncodedFrame) *lksdk.LocalTrack {
	track := p.carry(f)
	if track == nil {
		p.needTrack()
	}
	switch {
	case track == nil || !track.IsBound():
		p.gap = true
	case p.gap && !f.KeyFrame:
		p.needKeyFrame()
	default:
		return track
	}
	p.dropped.Add(1)
	return nil
}

// carry returns the track that can carry f, or nil. It records the codec and the size of f for the next track.
func (p *pictureTrack) carry(f media.EncodedFrame) *lksdk.LocalTrack {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Width > 0 {
		p.width, p.height = f.Width, f.Height
	}
	p.want = f.Codec
	if p.codec != f.Codec {
		return nil
	}
	return p.inner
}

// missing reports whether the frames need a track of another codec than the published one, if any.
func (p *pictureTrack) missing(now time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.want == media.CodecUnknown || p.inner != nil && p.codec == p.want {
		return false
	}
	return p.barred != p.want || now.Sub(p.barredAt) >= publishRetry
}

// bar notes why the room does not take the picture in a codec. Voice and captions go on.
func (p *pictureTrack) bar(codec media.Codec, why string, now time.Time, log zerolog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != why {
		log.Warn().Stringer("codec", codec).Str("reason", why).Msg("picture not published")
	}
	p.barred, p.barredAt, p.why, p.codec = codec, now, why, media.CodecUnknown
}

// resize declares another size of the frames.
func (p *pictureTrack) resize(ses *conn.Session) {
	p.mu.Lock()
	size, changed := [2]int{p.width, p.height}, p.declared != [2]int{p.width, p.height}
	p.declared = size
	p.mu.Unlock()
	if sid := p.SID(); changed && sid != "" {
		ses.Resize(sid, size[0], size[1])
	}
}

// Barred returns why the room does not take the picture; "" if it does.
func (p *pictureTrack) Barred() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.why
}

// Drop removes the track of an ended connection. The next room may take the picture.
func (p *pictureTrack) Drop() {
	p.localTrack.Drop()
	p.mu.Lock()
	p.barred, p.why = media.CodecUnknown, ""
	p.mu.Unlock()
}

// settle bars the codec of a track that never accepted a packet, and reports whether a track that did is lost.
func (p *pictureTrack) settle(ses *conn.Session, now time.Time, log zerolog.Logger) (lost bool) {
	if !p.Lost(now) {
		return false
	}
	p.mu.RLock()
	inner, codec, never := p.inner, p.codec, p.frames.Load() == p.before
	p.mu.RUnlock()
	if never && codec != media.CodecUnknown {
		p.bar(codec, "the room does not accept a picture in "+codec.String(), now, log)
		p.unpublish(ses, inner, log)
		p.set(nil, nil)
	}
	return !never
}

func (p *pictureTrack) unpublish(ses *conn.Session, track *lksdk.LocalTrack, log zerolog.Logger) {
	if pub := publicationOf(ses.Room, track); pub != nil {
		if err := ses.Room.LocalParticipant.UnpublishTrack(pub.SID()); err != nil {
			log.Warn().Err(err).Str("track", pub.Name()).Msg("unpublishing failed")
		}
	}
}

// publish replaces the track with one of the frames' codec and size, or notes why the room does not take it. It requests a key frame,
// also at each request of the server.
func (p *pictureTrack) publish(ses *conn.Session, o lksdk.TrackPublicationOptions, askKeyFrame func(), log zerolog.Logger) error {
	p.mu.RLock()
	old, codec := p.inner, p.want
	o.VideoWidth, o.VideoHeight = p.width, p.height
	p.mu.RUnlock()
	p.unpublish(ses, old, log)
	if !ses.Enables(codec.MimeType()) {
		p.bar(codec, "the room does not allow pictures in "+codec.String(), time.Now(), log)
		return nil
	}
	inner, err := lksdk.NewLocalTrack(videoCapability(codec), lksdk.WithRTCPHandler(func(report rtcp.Packet) {
		switch report.(type) {
		case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
			askKeyFrame()
		}
	}))
	if err != nil {
		return err
	}
	if err := ses.Publish(inner, &o); conn.Ended(err) {
		return err
	} else if err != nil {
		p.bar(codec, "publish the picture: "+err.Error(), time.Now(), log)
		return nil //nolint:nilerr // logged
	}
	p.mu.Lock()
	p.inner, p.room, p.codec, p.publishedAt = inner, ses.Room, codec, time.Now()
	p.before, p.barred, p.why = p.frames.Load(), media.CodecUnknown, ""
	p.declared = [2]int{o.VideoWidth, o.VideoHeight}
	p.mu.Unlock()
	askKeyFrame()
	return nil
}

// seal encrypts a frame, if the room is end-to-end encrypted. Only H264 is published there.
func (p *pictureTrack) seal(f media.EncodedFrame) (media.EncodedFrame, error) {
	if p.encryption == nil {
		return f, nil
	}
	data, err := p.encryption.Picture(packet.Canonical(f.Data))
	if err != nil {
		return f, fmt.Errorf("encrypt the picture: %w", err)
	}
	f.Data, f.Packets = data, nil
	return f, nil
}

// videoCapability returns the codec parameters of a track.
func videoCapability(codec media.Codec) webrtc.RTPCodecCapability {
	c := webrtc.RTPCodecCapability{MimeType: codec.MimeType(), ClockRate: media.VideoClockRate}
	switch codec {
	case media.H264:
		// Every browser plays this profile and level; those of the stream itself may be higher.
		c.SDPFmtpLine = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"
	case media.VP9:
		c.SDPFmtpLine = "profile-id=0"
	case media.VP8, media.H265, media.AV1, media.CodecUnknown:
	}
	return c
}
