package watch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/room/conn"
	"touchline/media"
)

// Options of a Follower.
type Options struct {
	// Identity is the identity of the bot, which does not watch itself.
	Identity string
	// MayWatch is set if the token allows subscribing.
	MayWatch bool
	// Watch chooses the track; it can be changed later by Watcher.Select.
	Watch media.WatchConfig
	// Relay requests the highest layer for the delayed copy; without it, only LongSide is requested.
	Relay bool
	// LongSide is the longer edge of the engine's pictures, in pixels.
	LongSide int
	// Sound receives the sound of the watched participant; nil does not subscribe to it.
	Sound SoundSink
	// Microphones receives the microphones of people in the room; nil does not subscribe to them.
	Microphones Microphones
	// Instructs reports whether a participant may instruct the commentator.
	Instructs func(p *lksdk.RemoteParticipant) bool
	// Link returns the id of the link that a participant joined by; "" for none.
	Link func(p *lksdk.RemoteParticipant) string
	// OnSource receives the changes of the watched track. May be nil.
	OnSource func(source agent.SourceInfo, reason string)
	// Wake makes the connection check at once. Fail receives a panic of a callback.
	Wake func()
	Fail func(err error)
	Log  zerolog.Logger
}

// Follower keeps the subscriptions to the watched track, its sound and microphones. Only the connection's goroutine may call its
// methods, except where noted.
type Follower struct {
	opts    Options
	watcher *Watcher

	viewers atomic.Int64
	seen    map[string]uint64 // order of first sight, by track SID
	sights  uint64
	asks    keyFrameClock
	stall   stall // of the watched track
	traffic traffic
	muted   bool
	camera  string // SID of the watched picture's sound

	// rating is the newest rating of the watched participant.
	rating atomic.Pointer[rating]

	// listening has the subscriptions to sound.
	listening listener

	// subMu guards sub: subscriptions are made by the connection and completed by the library.
	subMu sync.Mutex
	sub   *Subscription
}

// New returns a Follower.
func New(o Options) *Follower {
	return &Follower{
		opts: o, watcher: newWatcher(o.Watch, o.Wake, o.Log), seen: map[string]uint64{},
		listening: listener{subs: map[string]*audioSubscription{}, ended: map[string]time.Time{}},
	}
}

// Watcher returns the watched track. Safe for concurrent use.
func (s *Follower) Watcher() *Watcher { return s.watcher }

// Viewers returns the number of participants that can see the delayed copy. Safe for concurrent use.
func (s *Follower) Viewers() int { return int(s.viewers.Load()) }

// Muted reports whether a subscription's source is muted; not without one.
func (sub *Subscription) Muted() bool { return sub != nil && sub.pub.IsMuted() }

// Rated records the server's rating of a participant's connection. Safe for concurrent use.
func (s *Follower) Rated(identity string, quality livekit.ConnectionQuality, now time.Time) {
	if identity == s.watcher.Source().Identity {
		s.rating.Store(&rating{identity: identity, quality: quality, at: now})
	}
}

// Reconnected follows a full reconnect of the library, which silently drops subscriptions.
func (s *Follower) Reconnected(ses *conn.Session) {
	for _, h := range s.listening.subs {
		h.stale = true
	}
	if sub := s.watched(); sub != nil {
		s.stall.begin(time.Now())
		// A full reconnect made new objects, to which Follow subscribes.
		if _, pubs := s.candidates(ses); pubs[sub.sid] != nil && pubs[sub.sid].pub == sub.pub {
			s.subscribe(sub)
		}
	}
	s.watcher.RequestKeyFrame()
}

// Left ends all subscriptions of a session that is over.
func (s *Follower) Left() {
	s.listening.drop(func(*audioSubscription) bool { return true }, time.Now())
	s.camera = ""
	s.Unwatch()
	s.viewers.Store(0)
}
