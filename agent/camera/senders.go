package camera

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"

	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/whip"
)

const (
	// lingerTime is how long the participant of a departed sender stays in the room.
	lingerTime = time.Minute
	// maxParticipants bounds the participants of one holder, with those of departed senders: as many as it has places for senders.
	maxParticipants = 16
	// stallAfter is the time without pictures after which a sender's state is "stalled".
	stallAfter = 5 * time.Second
)

// Senders makes a participant for each WHIP sender. A participant that has shown a picture stays in the room for
// a minute after its session, for the sender's next session. It leaves earlier if its holder needs its place.
type Senders struct {
	opts   Options // Room, Identity and Name are the sender's
	linger time.Duration
	run    func(*Feed, context.Context) error // (*Feed).Run

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // Run's, for goroutines that requests start
	active map[string]*sender
	wg     sync.WaitGroup
}

// sender is the participant of one sender.
type sender struct {
	room     string
	identity string
	name     string
	holder   string
	feed     *Feed
	tracker  *source.Tracker
	session  *whip.Session // nil between sessions
	left     time.Time     // when the last session was over
	gone     *time.Timer   // runs between sessions, and calls stop
	stop     func()        // ends the participant
	done     chan struct{} // the participant has left the room
}

// NewSenders returns Senders whose participants share options.
func NewSenders(o Options) *Senders {
	return &Senders{opts: o, linger: lingerTime, run: (*Feed).Run, active: map[string]*sender{}}
}

// Run accepts senders until ctx ends, and returns when all have left the room.
func (s *Senders) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			for _, x := range s.active {
				x.gone.Stop()
			}
			s.mu.Unlock()
			s.wg.Wait()
			return nil
		case now := <-tick.C:
			s.check(now)
		}
	}
}

// check finds senders that have stalled and, in their rooms, links that were revoked.
func (s *Senders) check(now time.Time) {
	rooms := map[string]*lksdk.Room{}
	s.mu.Lock()
	for _, x := range s.active {
		_, _ = x.tracker.Late(stallAfter, 0, now) // it changes the state
		if room := x.feed.pub.CurrentRoom(); room != nil {
			rooms[x.room] = room
		}
	}
	s.mu.Unlock()
	for name, room := range rooms {
		control.LearnRevoked(s.opts.Keys.Links, name, room, now)
	}
}

// Open implements whip.Options.Open.
func (s *Senders) Open(x *whip.Session) (whip.Place, error) {
	p, err := s.enter(x)
	if err != nil {
		return whip.Place{}, err
	}
	opened := false
	defer func() {
		if !opened { // a panic
			s.leave(p, "the session failed")
		}
	}()
	p.tracker.Opening(time.Now())
	sink := p.feed.Attach(x.RequestKeyFrame, func() { p.tracker.KeyFrameAsked(time.Now()) })
	frame, sound := sink.Frame, sink.Opus
	sink.Frame = func(f media.EncodedFrame) {
		p.tracker.Frame(f, time.Now())
		frame(f)
	}
	sink.Missing = func(packets uint64) { p.tracker.Missing(packets, time.Now()) }
	sink.Opus = func(o source.Opus) {
		p.tracker.Heard()
		sound(o)
	}
	opened = true
	return whip.Place{Sink: sink, Close: func(reason string) { s.leave(p, reason) }}, nil
}

// enter returns the participant of a session: the idle one of its sender, or a new one. It waits for a participant that
// is leaving, because two with the same identity would disconnect each other repeatedly, or because the holder has no more.
func (s *Senders) enter(x *whip.Session) (*sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.ctx == nil || s.ctx.Err() != nil {
			return nil, errors.New("WHIP ingest is not running")
		}
		p, identity := s.find(x)
		if p == nil {
			if p = s.surplus(x.Sender.Holder); p != nil {
				p.gone.Stop() // so that its own sender waits too
				p.stop()
			}
		}
		if p == nil {
			var err error
			if p, err = s.join(x, identity); err != nil {
				return nil, err
			}
		}
		if p.gone.Stop() {
			p.session = x
			return p, nil
		}
		s.mu.Unlock()
		<-p.done
		s.mu.Lock()
	}
}

// find returns the sender's participant without a session, or else the identity of a new one. Each of several senders
// with one key has its own participant.
func (s *Senders) find(x *whip.Session) (*sender, string) {
	identity := x.Sender.Identity
	for n := 2; ; n++ {
		switch p := s.active[activeKey(x.Room, identity)]; {
		case p == nil:
			return nil, identity
		case p.session == nil:
			return p, identity
		}
		identity = fmt.Sprintf("%s-%d", x.Sender.Identity, n)
	}
}

// surplus returns the participant that leaves for another one of its holder: the one that has been without a session for the longest time.
// It is nil if the holder may have another one, or has none without a session.
func (s *Senders) surplus(holder string) *sender {
	n := 0
	var oldest *sender
	for _, p := range s.active {
		if p.holder != holder {
			continue
		}
		n++
		if p.session == nil && (oldest == nil || p.left.Before(oldest.left)) {
			oldest = p
		}
	}
	if n < maxParticipants {
		return nil
	}
	return oldest
}

func activeKey(room, identity string) string { return room + "\x00" + identity }

// join makes a sender's participant. The lock is held.
func (s *Senders) join(x *whip.Session, identity string) (*sender, error) {
	o := s.opts
	o.Room, o.Identity, o.Name = x.Room, identity, x.Sender.Name
	o.Agents, _ = x.Sender.With.([]*livekit.RoomAgentDispatch)
	o.Log = o.Log.With().Str("participant", identity).Logger()
	f, err := New(o)
	if err != nil {
		return nil, fmt.Errorf("bring the sender into the room: %w", err)
	}
	ctx, stop := context.WithCancel(s.ctx)
	p := &sender{
		room: x.Room, identity: identity, name: o.Name, holder: x.Sender.Holder,
		feed: f, gone: time.AfterFunc(s.linger, stop), stop: stop, done: make(chan struct{}),
		tracker: source.NewTracker(time.Now(), func(st source.Status) {
			o.Log.Info().Stringer("state", st.State).Str("reason", st.Reason).Stringer("codec", st.Codec).
				Int("width", st.Width).Int("height", st.Height).Msg("sender")
			f.Note(st)
		}),
	}
	key := activeKey(p.room, p.identity)
	s.active[key] = p
	s.wg.Go(func() {
		defer close(p.done)
		defer stop()
		err := s.run(f, ctx)
		p.tracker.End(time.Now())
		s.mu.Lock()
		delete(s.active, key)
		session := p.session
		s.mu.Unlock()
		if err == nil {
			return
		}
		o.Log.Warn().Err(err).Msg("sender left the room")
		if session != nil {
			session.End("its participant had to leave the room: " + err.Error())
		}
	})
	return p, nil
}

func (s *Senders) leave(p *sender, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.session, p.left = nil, time.Now()
	p.tracker.Lost(reason, p.left)
	if p.tracker.Status().Frames == 0 { // only its sender could miss it
		p.gone.Reset(0)
		return
	}
	p.gone.Reset(s.linger)
}

// participants is the number of participants, with those of departed senders.
func (s *Senders) participants() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.active))
}

// Authorize returns whip.Options.Authorize for LiveKit access tokens.
func Authorize(keys conn.Keys) func(token, name string) (whip.Sender, error) {
	return func(token, name string) (whip.Sender, error) {
		who, err := conn.VerifySender(keys, token, name)
		switch {
		case errors.Is(err, conn.ErrNoRight):
			return whip.Sender{}, fmt.Errorf("%w: %w", signaling.ErrForbidden, err)
		case err != nil:
			return whip.Sender{}, fmt.Errorf("%w: %w", signaling.ErrNoToken, err)
		}
		right, err := control.RightOf(keys, who.Attributes, time.Now())
		if err != nil {
			return whip.Sender{}, err
		}
		// The key is the identity, as a sender may renew its token.
		s := whip.Sender{Key: "livekit:" + who.Identity, Identity: who.Identity, Name: who.Name, With: who.Agents, Right: right}
		s.Holder = cmp.Or(control.RootLink(keys, who.Attributes, time.Now()), s.Key) // of a link, whatever identities its holder chooses
		return s, nil
	}
}

// sources lists the senders of a room.
func (s *Senders) sources(name string) []source.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []source.Info{}
	for _, key := range slices.Sorted(maps.Keys(s.active)) {
		x := s.active[key]
		if x.room != name {
			continue
		}
		src := describe(x.feed, x.tracker.Status(), whipKind)
		src.ID, src.Name, src.Fixed = "whip-"+x.identity, cmp.Or(x.name, x.identity), true
		out = append(out, src)
	}
	return out
}
