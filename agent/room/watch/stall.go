package watch

import (
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
)

// A stalled track has one of two causes. If the bot's own connection is broken, the bot replaces it. If the camera sends nothing (it
// hangs or is unreachable), voice, captions and delayed copy stay and the bot waits. All times count from the last packet of the
// picture.
const (
	// stallAsk, stallResubscribe and stallRejoin are the silences after which the bot requests a key frame, subscribes again, and
	// joins again if the connection carries nothing at all.
	stallAsk         = 2 * time.Second
	stallResubscribe = 4 * time.Second
	stallRejoin      = 9 * time.Second
	// stallDoubt is the silence after which it joins again although the connection carries packets and no evidence blames the
	// camera. The server rates connections every 5 s over the last 5 s, so a rating arrives within 15 s.
	stallDoubt = 20 * time.Second
	// stallMost bounds the waits, which triple with each rejoin that did not help.
	stallMost = 5 * time.Minute
	// stallProbe is how long a camera counts as silent before a new subscription checks it.
	stallProbe = time.Minute
	// trafficEvery is the polling interval of the connection's packet count during a stall. After trafficTimeout without
	// a packet the connection is dead: ICE checks are answered every 2 s (RFC 7675 asks for 5 s).
	trafficEvery   = 500 * time.Millisecond
	trafficTimeout = 5 * time.Second
	// resubscribePause lets the server take the first subscription down before the second.
	resubscribePause = 400 * time.Millisecond
	// lastBlank is how long an ended subscription may still deliver pictures: the server ends it with blank ones.
	lastBlank = 2 * time.Second
)

// recovery is the action against a stall.
type recovery int

const (
	recoveryNone recovery = iota
	recoveryKeyFrame
	recoveryResubscribe
	recoveryRejoin
)

// evidence is the state of a track that may have stalled.
type evidence struct {
	// media is the arrival of the newest packet of the picture; zero for none.
	media time.Time
	// padding is the arrival of the present subscription's first packet, which may be padding that the server sends for a silent
	// publisher; zero for none.
	padding time.Time
	// never is set while the present subscription has had no packet at all, denied if the track's publisher does not let the bot
	// subscribe.
	never, denied bool
	// traffic is the last time at which the connection carried anything.
	traffic time.Time
	// rating is the server's rating of the camera's connection, ratedAt its time. A publisher that sends nothing is POOR, or LOST
	// if its reports are missing too.
	rating  livekit.ConnectionQuality
	ratedAt time.Time
}

// stall chooses the recovery of a watched track without packets. The zero value has just begun to wait. It is not safe for
// concurrent use.
type stall struct {
	since        time.Time // the newest packet of the picture, or the start of the wait for it
	last         time.Time // start of the waits
	asked        bool
	resubscribed time.Time // time of the new subscription since the last packet; zero for none
	blamedAt     time.Time // when the camera was found to be silent; zero otherwise
	checked      time.Time // last call of next
	rejoins      int       // rejoins that did not help
}

// suspended is the gap between two checks above which this process stood still.
const suspended = 2 * time.Second

// begin restarts the wait for packets. The waits keep growing until packets arrive.
func (s *stall) begin(now time.Time) {
	*s = stall{since: now, last: now, checked: now, rejoins: s.rejoins}
}

// silent reports whether the camera is known to send nothing.
func (s *stall) silent() bool { return !s.blamedAt.IsZero() }

// after returns d, tripled for each rejoin that did not help, up to stallMost.
func (s *stall) after(d time.Duration) time.Duration {
	for range s.rejoins {
		if d = 3 * d; d >= stallMost {
			return stallMost
		}
	}
	return d
}

// next returns the recovery that is due.
func (s *stall) next(now time.Time, e evidence) recovery {
	if gap := now.Sub(s.checked); gap > suspended && !s.checked.IsZero() {
		s.last = s.last.Add(gap)
	}
	s.checked = now
	if e.media.After(s.since) {
		*s = stall{since: e.media, last: e.media, checked: now}
	}
	alive := now.Sub(e.traffic) < trafficTimeout
	if e.denied && alive { // packets come as soon as the publisher allows it
		s.last = now
		return recoveryNone
	}
	if s.silent() {
		switch {
		case alive && now.Sub(s.blamedAt) < stallProbe:
			return recoveryNone
		case alive:
			// A fresh subscription checks it.
			s.last, s.blamedAt = now.Add(-stallResubscribe), time.Time{}
		default:
			s.last, s.blamedAt = e.traffic, time.Time{}
		}
		s.resubscribed = now
		return recoveryResubscribe
	}
	quiet := now.Sub(s.last)
	switch again := !s.resubscribed.IsZero(); {
	case again && !alive && quiet > s.after(stallRejoin), again && quiet > s.after(stallDoubt) && (!alive || !e.never):
		s.rejoins++
		return recoveryRejoin
	case again && alive && (s.blamesCamera(e) || e.never && quiet > stallRejoin):
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

// blamesCamera reports whether the camera is silent: the new subscription works without a picture, or the server receives none.
func (s *stall) blamesCamera(e evidence) bool {
	ill := e.rating == livekit.ConnectionQuality_POOR || e.rating == livekit.ConnectionQuality_LOST
	return e.padding.After(s.resubscribed) || ill && e.ratedAt.After(s.since)
}

// reason returns the reason why the camera sends no picture; "" if the camera is not the cause.
func (s *stall) reason(e evidence) string {
	switch {
	case e.denied:
		return "the camera's owner does not let the commentator watch"
	case !s.silent():
		return ""
	case e.never && !s.blamesCamera(e):
		return "no picture after subscribing: its publisher may not allow it"
	case e.rating == livekit.ConnectionQuality_LOST && e.ratedAt.After(s.since):
		return "the camera does not respond"
	default:
		return "the camera sends no picture"
	}
}

// traffic tracks when a connection last received anything.
type traffic struct {
	room  *lksdk.Room
	count uint64
	felt  time.Time // last check
	moved time.Time
}

// lastSeen returns when the connection last received media or an answer to an ICE check. For a new connection, it returns now.
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

// received counts the packets and the answers to ICE checks of the subscriber
// connection. ok is false when it is not connected.
func received(room *lksdk.Room) (n uint64, ok bool) {
	pc := room.LocalParticipant.GetSubscriberPeerConnection()
	if pc == nil {
		return 0, false
	}
	pair, ok := pc.SCTP().Transport().ICETransport().GetSelectedCandidatePairStats()
	return uint64(pair.PacketsReceived) + pair.ResponsesReceived, ok
}
