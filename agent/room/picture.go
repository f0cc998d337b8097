package room

import (
	"sync"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtcp"
	"github.com/rs/zerolog"

	"touchline/media"
)

// pictureTrack is a video track of ours. It is published at the first frame, and
// again when the codec or the connection changes. Writers call carry; the rest is
// for the connection's goroutine.
type pictureTrack struct {
	mu            sync.RWMutex
	inner         *lksdk.LocalTrack
	room          *lksdk.Room
	codec         media.Codec // of inner
	want          media.Codec // of the frames
	width, height int
	publishedAt   time.Time // of inner
}

// carry returns the track that can carry f; nil notes that one is needed.
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
func (p *pictureTrack) missing() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.want != media.CodecUnknown && (p.inner == nil || p.codec != p.want)
}

// publish replaces the track by one of the frames' codec and requests a key frame,
// then and at each request of the server. It fills in the size.
func (p *pictureTrack) publish(ses *session, o lksdk.TrackPublicationOptions, askKeyFrame func(), log zerolog.Logger) error {
	p.mu.RLock()
	old, codec := p.inner, p.want
	o.VideoWidth, o.VideoHeight = p.width, p.height
	p.mu.RUnlock()
	if pub := publicationOf(ses.room, old); pub != nil {
		if err := ses.room.LocalParticipant.UnpublishTrack(pub.SID()); err != nil {
			log.Warn().Err(err).Str("track", o.Name).Msg("unpublishing failed")
		}
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
	if err := ses.publish(inner, &o); err != nil {
		return err
	}
	p.mu.Lock()
	p.inner, p.room, p.codec, p.publishedAt = inner, ses.room, codec, time.Now()
	p.mu.Unlock()
	askKeyFrame()
	return nil
}

// reconnected notes that the library has republished the track.
func (p *pictureTrack) reconnected() {
	p.mu.Lock()
	p.publishedAt = time.Now()
	p.mu.Unlock()
}

// drop forgets the track of a connection that ended.
func (p *pictureTrack) drop() {
	p.mu.Lock()
	p.inner, p.room = nil, nil
	p.mu.Unlock()
}

// published returns the published track, its room and the time.
func (p *pictureTrack) published() (track *lksdk.LocalTrack, room *lksdk.Room, at time.Time) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.inner, p.room, p.publishedAt
}

// SID is the track's present server id, "" while it is not published. It changes with every reconnect.
func (p *pictureTrack) SID() string {
	track, room, _ := p.published()
	return trackSID(room, track)
}
