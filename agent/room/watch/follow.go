package watch

import (
	"errors"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent/room/conn"
)

const (
	// The intervals of key frame requests with and without viewers of the delayed copy. A viewer starts at a key frame.
	keyFrameWatched = time.Second
	keyFrameAlone   = 4 * time.Second
	// pliSpacing is the least time between two requests.
	pliSpacing = 500 * time.Millisecond
)

var errStalled = errors.New("the connection brings no packets of the watched track, although it was subscribed again")

// rating is the server's view of a participant's connection.
type rating struct {
	identity string
	quality  livekit.ConnectionQuality
	at       time.Time
}

// CountViewers counts the participants that can see the delayed copy.
func (s *Follower) CountViewers(ses *conn.Session, sub *Subscription) {
	n := 0
	for _, p := range ses.Room.GetRemoteParticipants() {
		if p.Kind() == lksdk.ParticipantAgent || p.Kind() == lksdk.ParticipantIngress {
			continue
		}
		if permission := p.Permissions(); permission != nil && !permission.GetCanSubscribe() {
			continue
		}
		if sub != nil && p.Identity() == sub.who.Identity() {
			continue
		}
		n++
	}
	s.viewers.Store(int64(n))
}

// AskKeyFrames sends the requests that are due.
func (s *Follower) AskKeyFrames(sub *Subscription, now time.Time) {
	if sub == nil || sub.pub.IsMuted() {
		return
	}
	reader := s.readerOf(sub)
	if reader == nil || reader.ended.Load() {
		return
	}
	every := keyFrameAlone
	if s.opts.Relay && s.Viewers() > 0 {
		every = keyFrameWatched
	}
	if s.asks.due(now, every, s.watcher.keyWanted.Load()) {
		s.watcher.keyWanted.Store(false)
		s.watcher.plis.Add(1)
		sub.who.WritePLI(reader.track.SSRC())
	}
}

// keyFrameClock says when the next key frame is requested.
type keyFrameClock struct{ last, next time.Time }

// due reports whether to request one now, and if so, sets the next one to every from now.
func (c *keyFrameClock) due(now time.Time, every time.Duration, wanted bool) bool {
	if c.next.After(c.last.Add(every)) {
		c.next = c.last.Add(every) // a viewer joined
	}
	if (!wanted || now.Sub(c.last) < pliSpacing) && now.Before(c.next) {
		return false
	}
	c.last, c.next = now, now.Add(every)
	return true
}

// Watchdog recovers a stalled track, whatever state the library reports.
func (s *Follower) Watchdog(ses *conn.Session, sub *Subscription, now time.Time) error {
	if sub == nil {
		return nil
	}
	if sub.pub.IsMuted() || s.watcher.declared() != "" {
		// The camera is declared away by its own participant: the track is fine.
		s.stall.begin(now)
		s.silence("")
		return nil
	}
	if !sub.again.IsZero() {
		if !now.Before(sub.again) {
			sub.again = time.Time{}
			s.subscribe(sub)
		}
		return nil
	}
	e := s.gatherEvidence(ses, sub, now)
	do := s.stall.next(now, e)
	s.silence(s.stall.reason(e))
	switch do {
	case recoveryNone:
	case recoveryKeyFrame:
		s.watcher.RequestKeyFrame()
	case recoveryResubscribe:
		s.opts.Log.Warn().Float64("silent_s", now.Sub(e.media).Seconds()).Msg("track stalled; subscribing again")
		_ = sub.pub.SetSubscribed(false)
		sub.again = now.Add(resubscribePause)
	case recoveryRejoin:
		return errStalled
	}
	return nil
}

// gatherEvidence returns the state of the watched track and its connection.
func (s *Follower) gatherEvidence(ses *conn.Session, sub *Subscription, now time.Time) evidence {
	reader := s.readerOf(sub)
	e := evidence{media: s.stall.since, traffic: now, never: reader == nil, denied: ses.Denied(sub.sid)}
	if reader != nil {
		e.padding = reader.began
		from := e.media
		if again := s.stall.resubscribed; !again.IsZero() && reader.began.Before(again) {
			from = again.Add(lastBlank)
		}
		if at := reader.lastPacket(); at.After(from) {
			e.media = at
		}
	}
	if now.Sub(e.media) > stallAsk/2 {
		e.traffic = s.traffic.lastSeen(ses.Room, now)
	}
	if r := s.rating.Load(); r != nil && r.identity == sub.who.Identity() {
		e.rating, e.ratedAt = r.quality, r.at
	}
	return e
}

// silence records and reports why the camera is silent; "" while it sends.
func (s *Follower) silence(words string) {
	was := s.watcher.setSilent(words)
	switch info := s.watcher.Source(); {
	case was == "" && words != "":
		s.opts.Log.Warn().Str("participant", info.Identity).Str("reason", words).Msg("camera stalled")
		s.notify(info, "silent")
	case was != "" && words == "":
		s.opts.Log.Info().Str("participant", info.Identity).Msg("camera resumed")
		s.notify(info, "back")
	}
}
