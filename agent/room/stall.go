package room

import (
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
)

// A track that should flow and does not has one of two causes, and they want opposite cures: our own way is
// broken, then it is made anew; or the camera sends nothing (it hangs, it is out of reach), then voice, captions
// and delayed copy stay as they are and it is waited for. All times count from the last packet of the picture.
const (
	// stallAsk, stallResubscribe and stallRejoin are when a key frame is asked for, when the track is subscribed
	// anew, and when the bot joins anew over a connection that carries nothing at all.
	stallAsk         = 2 * time.Second
	stallResubscribe = 4 * time.Second
	stallRejoin      = 9 * time.Second
	// stallDoubt is when it joins anew over one that carries something, if nothing has told by then that the
	// camera is to blame. The server rates connections every 5 s, by the 5 s before: within 15 s it has.
	stallDoubt = 20 * time.Second
	// stallMost bounds the waits, which are tripled each time joining anew was in vain.
	stallMost = 5 * time.Minute
	// stallProbe is how long the verdict on a silent camera stands before the track is subscribed anew to check it.
	stallProbe = time.Minute
	// trafficEvery is how often the connection is felt while the picture is away, trafficTimeout after how long without
	// a packet it counts as dead: the client library has an ICE check answered every 2 s (RFC 7675 asks for 5 s).
	trafficEvery   = 500 * time.Millisecond
	trafficTimeout = 5 * time.Second
	// resubscribePause lets the server take the first subscription down before the second.
	resubscribePause = 400 * time.Millisecond
	// lastBlank is until when a subscription that was given up may still bring pictures: the server ends it with
	// blank ones.
	lastBlank = 2 * time.Second
)

// recovery is what a stall asks for.
type recovery int

const (
	recoveryNone recovery = iota
	recoveryKeyFrame
	recoveryResubscribe
	recoveryRejoin
)

// evidence are what is to be seen of a track that may have stalled.
type evidence struct {
	// media is when the newest packet of the picture came; zero when none did.
	media time.Time
	// padding is when the present subscription first carried anything, if only padding: the server sends some
	// when the publisher is silent, so that clients take note of the track. Zero when it carried nothing.
	padding time.Time
	// traffic is when the connection was last seen to carry anything.
	traffic time.Time
	// rating is what the server thinks of the camera's own connection, ratedAt is when. A publisher of
	// whom it gets nothing is POOR, or LOST when his reports stay away too.
	rating  livekit.ConnectionQuality
	ratedAt time.Time
}

// stall decides what is done about the watched track when it does not flow. The
// zero value has just begun to wait; it is for one goroutine.
type stall struct {
	since        time.Time // the newest packet of the picture, or when waiting for it began
	last         time.Time // from when the waits count
	asked        bool
	resubscribed time.Time // when the track was subscribed anew since packets last came; zero when not
	blamedAt     time.Time // when the camera was found to be to blame; zero while it is not
	checked      time.Time // when next was last asked
	rejoins      int       // how often joining anew has not helped
}

// stoodStill is a time in which nobody looked, because this process or the machine stood still: it says nothing
// about the track.
const stoodStill = 2 * time.Second

// begin starts to wait for packets; the waits go on growing until some come.
func (s *stall) begin(now time.Time) {
	*s = stall{since: now, last: now, checked: now, rejoins: s.rejoins}
}

// silent tells whether the camera is known to send nothing.
func (s *stall) silent() bool { return !s.blamedAt.IsZero() }

// after is a wait that grows with each rejoin in vain.
func (s *stall) after(d time.Duration) time.Duration {
	for range s.rejoins {
		if d = 3 * d; d >= stallMost {
			return stallMost
		}
	}
	return d
}

// next says what to do now.
func (s *stall) next(now time.Time, e evidence) recovery {
	if gap := now.Sub(s.checked); gap > stoodStill && !s.checked.IsZero() {
		s.last = s.last.Add(gap)
	}
	s.checked = now
	if e.media.After(s.since) {
		*s = stall{since: e.media, last: e.media, checked: now}
	}
	alive := now.Sub(e.traffic) < trafficTimeout
	if s.silent() {
		switch {
		case alive && now.Sub(s.blamedAt) < stallProbe:
			return recoveryNone
		case alive:
			// The verdict is made anew, with what a fresh subscription shows.
			s.last, s.blamedAt = now.Add(-stallResubscribe), time.Time{}
		default:
			s.last, s.blamedAt = e.traffic, time.Time{}
		}
		s.resubscribed = now
		return recoveryResubscribe
	}
	quiet := now.Sub(s.last)
	switch again := !s.resubscribed.IsZero(); {
	case again && !alive && quiet > s.after(stallRejoin), again && quiet > s.after(stallDoubt):
		s.rejoins++
		return recoveryRejoin
	case again && alive && s.blamesCamera(e):
		s.blamedAt = now
	case quiet > stallResubscribe && !again:
		s.resubscribed = now
		return recoveryResubscribe
	case quiet > stallAsk && !s.asked:
		s.asked = true
		return recoveryKeyFrame
	}
	return recoveryNone
}

// blamesCamera tells whether the evidence speak for a camera that is silent: the new
// subscription stands and carries no picture, or the server gets none either.
func (s *stall) blamesCamera(e evidence) bool {
	ill := e.rating == livekit.ConnectionQuality_POOR || e.rating == livekit.ConnectionQuality_LOST
	return e.padding.After(s.resubscribed) || ill && e.ratedAt.After(s.since)
}

// words say why no picture comes.
func (s *stall) reason(e evidence) string {
	switch {
	case !s.silent():
		return ""
	case e.rating == livekit.ConnectionQuality_LOST && e.ratedAt.After(s.since):
		return "the camera does not answer any more"
	default:
		return "the camera sends no picture any more"
	}
}

// traffic feels whether a connection carries anything to us.
type traffic struct {
	room  *lksdk.Room
	count uint64
	felt  time.Time // when it was last looked at
	moved time.Time
}

// feel returns when the connection was last seen to carry anything: media, or
// an answer to an ICE check. For a connection that was not looked at before, now.
func (p *traffic) lastSeen(room *lksdk.Room, now time.Time) time.Time {
	if p.room != room || now.Sub(p.felt) > 2*trafficEvery {
		*p = traffic{room: room, moved: now}
	} else if now.Sub(p.felt) < trafficEvery {
		return p.moved
	}
	p.felt = now
	if n, ok := received(room); ok && n != p.count {
		p.count, p.moved = n, now
	}
	return p.moved
}

// received counts what came over the connection that brings us the tracks of
// others: packets, and answers to ICE checks. ok is false when it is not connected.
func received(room *lksdk.Room) (n uint64, ok bool) {
	pc := room.LocalParticipant.GetSubscriberPeerConnection()
	if pc == nil {
		return 0, false
	}
	pair, ok := pc.SCTP().Transport().ICETransport().GetSelectedCandidatePairStats()
	return uint64(pair.PacketsReceived) + pair.ResponsesReceived, ok
}
