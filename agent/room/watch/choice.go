package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/media"
)

// candidate is a video track that could be watched.
type candidate struct {
	identity string
	name     string
	agent    bool // its participant is of kind AGENT
	source   livekit.TrackSource
	sid      string
	muted    bool
	locked   string // why its end-to-end encryption cannot be undone; "" if it can be
	order    uint64 // of first sight
}

// choose returns the track to watch. It matches the settings and is never an agent's track or a locked one. A camera precedes a
// screen, then the track seen first wins. The present track stays while it qualifies. ok is false without a candidate.
func choose(all []candidate, watch media.WatchConfig, present string) (candidate, bool) {
	fit := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		switch {
		case c.agent || c.locked != "":
			return true
		case watch.Identity != "" && c.identity != watch.Identity:
			return true
		case watch.Source == "camera":
			return c.source != livekit.TrackSource_CAMERA
		case watch.Source == "screen_share":
			return c.source != livekit.TrackSource_SCREEN_SHARE
		}
		return false
	})
	if len(fit) == 0 {
		return candidate{}, false
	}
	if i := slices.IndexFunc(fit, func(c candidate) bool { return c.sid == present }); i >= 0 {
		return fit[i], true
	}
	return slices.MinFunc(fit, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(sourceRank(a.source), sourceRank(b.source)),
			cmp.Compare(boolRank(a.muted), boolRank(b.muted)),
			cmp.Compare(a.order, b.order),
			cmp.Compare(a.sid, b.sid),
		)
	}), true
}

// lockedOut returns why the track that would be watched without encryption cannot be; "" if there is none.
func lockedOut(all []candidate, watch media.WatchConfig) string {
	reasons, open := map[string]string{}, slices.Clone(all)
	for i := range open {
		reasons[open[i].sid], open[i].locked = open[i].locked, ""
	}
	c, _ := choose(open, watch, "")
	return reasons[c.sid]
}

func sourceRank(s livekit.TrackSource) int {
	order := []livekit.TrackSource{livekit.TrackSource_CAMERA, livekit.TrackSource_SCREEN_SHARE}
	return slices.Index(append(order, s), s)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Subscription is the watched track.
type Subscription struct {
	session *conn.Session
	pub     *lksdk.RemoteTrackPublication
	who     *lksdk.RemoteParticipant
	sid     string
	again   time.Time // when to subscribe again; zero when not pending
	reader  *trackReader
}

// watched returns the present subscription; nil when there is none.
func (s *Follower) watched() *Subscription {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	return s.sub
}

// replace makes next the present subscription and returns the previous one.
func (s *Follower) replace(next *Subscription) (old *Subscription) {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	old, s.sub = s.sub, next
	return old
}

// readerOf returns the reader of a subscription; nil before its first packet.
func (s *Follower) readerOf(sub *Subscription) *trackReader {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	return sub.reader
}

// candidates lists the video tracks of the other participants.
func (s *Follower) candidates(ses *conn.Session) (list []candidate, pubs map[string]*Subscription) {
	pubs = map[string]*Subscription{}
	for _, p := range ses.Room.GetRemoteParticipants() {
		if p.Identity() == s.opts.Identity {
			continue
		}
		for _, tp := range p.TrackPublications() {
			pub, ok := tp.(*lksdk.RemoteTrackPublication)
			if !ok || pub.Kind() != lksdk.TrackKindVideo || pub.SID() == "" {
				continue
			}
			sid := pub.SID()
			if s.seen[sid] == 0 {
				s.sights++
				s.seen[sid] = s.sights
			}
			list = append(list, candidate{
				identity: p.Identity(), name: p.Name(), agent: p.Kind() == lksdk.ParticipantAgent,
				source: pub.Source(), sid: sid, muted: pub.IsMuted(), locked: ses.Locked(pub.TrackInfo()), order: s.seen[sid],
			})
			pubs[sid] = &Subscription{session: ses, pub: pub, who: p, sid: sid}
		}
	}
	for sid := range s.seen {
		if pubs[sid] == nil {
			delete(s.seen, sid)
		}
	}
	return list, pubs
}

// Follow chooses the track and subscribes to it.
func (s *Follower) Follow(ses *conn.Session, now time.Time) *Subscription {
	if !s.opts.MayWatch {
		return nil
	}
	list, pubs := s.candidates(ses)
	sub := s.watched()
	present := ""
	if sub != nil {
		present = sub.sid
	}
	picked, ok := choose(list, s.watcher.Watching(), present)
	why := away(ses.Room.GetRemoteParticipants(), s.watcher.Watching().Identity, picked.identity)
	if locked := s.locked(list, sub, ok); locked != "" {
		if s.watcher.declared() != locked {
			s.opts.Log.Warn().Str("reason", locked).Msg("camera not watched")
		}
		why = locked
	}
	s.watcher.setSeen(list, why)
	if !ok {
		s.Unwatch()
		return nil
	}
	next := pubs[picked.sid]
	switch {
	case sub == nil:
	case sub.pub == next.pub:
		s.mute(sub, now)
		return sub
	case sub.sid == next.sid:
		s.renew(sub, next, now)
		s.mute(next, now)
		return next
	default:
		s.Unwatch()
	}
	s.replace(next)
	s.muted = next.pub.IsMuted()
	s.stall.begin(now)
	info := s.watcher.setInfo(func(info *agent.SourceInfo) {
		*info = agent.SourceInfo{Identity: picked.identity, Track: picked.sid, Muted: s.muted}
		if ti := next.pub.TrackInfo(); ti != nil {
			info.Width, info.Height = int(ti.GetWidth()), int(ti.GetHeight())
			if codec, err := media.ParseCodec(next.pub.MimeType()); err == nil {
				info.Codec = codec.String()
			}
		}
	})
	s.opts.Log.Info().Str("participant", picked.identity).Str("track", picked.sid).Str("codec", info.Codec).
		Msg("watching")
	s.subscribe(next)
	s.notify(info, "watching")
	return next
}

// locked returns why the encryption of the present track, or of all that could be watched, cannot be undone; "" without such a reason.
func (s *Follower) locked(list []candidate, sub *Subscription, choice bool) string {
	if !choice {
		return lockedOut(list, s.watcher.Watching())
	}
	if sub == nil {
		return ""
	}
	if reader := s.readerOf(sub); reader != nil {
		return reader.decryptor.Problem()
	}
	return ""
}

// renew subscribes to the same track after a full reconnect of the library, which made new objects for it. It does not notify: for
// readers the picture only paused.
func (s *Follower) renew(old, next *Subscription, now time.Time) {
	s.stall.begin(now)
	s.replace(next)
	if reader := s.readerOf(old); reader != nil {
		reader.stop()
	}
	s.subscribe(next)
}

// mute follows the mute state of the source.
func (s *Follower) mute(sub *Subscription, now time.Time) {
	muted := sub.pub.IsMuted()
	if muted == s.muted {
		return
	}
	s.muted = muted
	s.stall.begin(now)
	info := s.watcher.setInfo(func(info *agent.SourceInfo) { info.Muted = muted })
	if muted {
		s.notify(info, "muted")
		return
	}
	s.watcher.RequestKeyFrame()
	s.notify(info, "back")
}

func (s *Follower) notify(info agent.SourceInfo, reason string) {
	if s.opts.OnSource != nil {
		s.opts.OnSource(info, reason)
	}
}

// Unwatch ends the present subscription.
func (s *Follower) Unwatch() {
	sub := s.replace(nil)
	if sub == nil {
		return
	}
	if !sub.session.Over() {
		_ = sub.pub.SetSubscribed(false) // fails only without a connection
	}
	if reader := s.readerOf(sub); reader != nil {
		reader.stop()
	}
	s.watcher.setSilent("")
	var was agent.SourceInfo
	s.watcher.setInfo(func(info *agent.SourceInfo) { was, *info = *info, agent.SourceInfo{} })
	s.notify(was, "gone")
}

// subscribe requests the track and its layer.
func (s *Follower) subscribe(sub *Subscription) {
	if err := sub.pub.SetSubscribed(true); err != nil {
		s.opts.Log.Warn().Err(err).Msg("subscription failed")
	}
	s.pin(sub)
}

// pin requests one simulcast layer. Each subscription needs it again.
func (s *Follower) pin(sub *Subscription) {
	if s.opts.Relay || s.opts.LongSide <= 0 {
		if err := sub.pub.SetVideoQuality(livekit.VideoQuality_HIGH); err != nil {
			s.opts.Log.Warn().Err(err).Msg("layer request failed")
		}
		return
	}
	w, h := uint32(s.opts.LongSide), uint32(s.opts.LongSide)*9/16
	if ti := sub.pub.TrackInfo(); ti.GetWidth() > 0 && ti.GetHeight() > 0 {
		if ti.GetWidth() >= ti.GetHeight() {
			h = w * ti.GetHeight() / ti.GetWidth()
		} else {
			w, h = w*ti.GetWidth()/ti.GetHeight(), w
		}
	}
	sub.pub.SetVideoDimensions(w, h)
}

// Subscribed starts the reader of a subscribed track at its first packet.
func (s *Follower) Subscribed(ses *conn.Session, track *webrtc.TrackRemote, pub *lksdk.RemoteTrackPublication) {
	if h := s.listening.of(ses, pub.SID()); h != nil {
		h.start(track, pub)
		return
	}
	s.subMu.Lock()
	defer s.subMu.Unlock()
	sub := s.sub
	if ses.Over() || sub == nil || sub.session != ses || sub.sid != pub.SID() {
		return
	}
	if sub.reader != nil {
		sub.reader.cancel() // no need to wait: only the newest reader delivers
	}
	reader := startReader(s.watcher, track, ses.Decryptor(pub.TrackInfo(), track.Codec().MimeType), s.opts.Fail, s.opts.Log)
	pub.OnRTCP(reader.rtcp)
	sub.reader = reader
	s.watcher.RequestKeyFrame()
	ses.Wake.Set()
}
