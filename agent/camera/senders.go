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

	"touchline/agent/room"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/whip"
)

// Linger is how long the participant of a sender that went away stays in the room.
const Linger = time.Minute

// stallAfter is how long a sender may send no picture before it is said.
const stallAfter = 5 * time.Second

// Senders makes a Feed for each WHIP sender: the next session of the same sender
// finds it where it was.
type Senders struct {
	opts   Options // Room, Identity and Name are the sender's
	linger time.Duration

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // Run's, for what is begun by requests
	active map[string]*sender
	wg     sync.WaitGroup
}

// sender is one participant and who sends for it.
type sender struct {
	room     string
	identity string
	name     string
	feed     *Feed
	tracker  *source.Tracker
	sessions int
	gone     *time.Timer
	stop     context.CancelFunc
}

// NewSenders takes the options that all have in common. linger 0 is Linger.
func NewSenders(o Options, linger time.Duration) *Senders {
	if linger == 0 {
		linger = Linger
	}
	return &Senders{opts: o, linger: linger, active: map[string]*sender{}}
}

// Run lets senders in until ctx ends, and returns when all have left the room.
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
			s.mu.Lock()
			for _, x := range s.active {
				x.tracker.Check(stallAfter, now)
			}
			s.mu.Unlock()
		}
	}
}

// Open implements whip.Options.Open.
func (s *Senders) Open(x *whip.Session) (whip.Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || s.ctx.Err() != nil {
		return whip.Place{}, errors.New("nobody takes senders now")
	}
	who, err := s.join(x)
	if err != nil {
		return whip.Place{}, err
	}
	who.sessions++
	who.gone.Stop()
	who.tracker.Opening(time.Now())
	sink := who.feed.Attach(x.RequestKeyFrame, func() { who.tracker.KeyFrameAsked(time.Now()) })
	frame, sound := sink.Frame, sink.Opus
	sink.Frame = func(f media.EncodedFrame) {
		who.tracker.Frame(f, time.Now())
		frame(f)
	}
	sink.Missing = func(packets uint64) { who.tracker.Missing(packets, time.Now()) }
	sink.Opus = func(o source.Opus) {
		who.tracker.Heard()
		sound(o)
	}
	return whip.Place{Sink: sink, Close: func(reason string) { s.leave(who, reason) }}, nil
}

// join finds the sender's participant or makes it. Where one key lets in many,
// each sender at a time is a participant of its own.
func (s *Senders) join(x *whip.Session) (*sender, error) {
	o := s.opts
	o.Room, o.Identity, o.Name = x.Room, x.Sender.Identity, x.Sender.Name
	o.Agents, _ = x.Sender.With.([]*livekit.RoomAgentDispatch)
	key := x.Room + "\x00" + o.Identity
	for n := 2; s.active[key] != nil; n++ {
		if s.active[key].sessions == 0 {
			return s.active[key], nil
		}
		o.Identity = fmt.Sprintf("%s-%d", x.Sender.Identity, n)
		key = x.Room + "\x00" + o.Identity
	}
	o.Log = o.Log.With().Str("participant", o.Identity).Logger()
	f, err := New(o)
	if err != nil {
		return nil, fmt.Errorf("bring the sender into the room: %w", err)
	}
	ctx, stop := context.WithCancel(s.ctx)
	who := &sender{feed: f, stop: stop, tracker: source.NewTracker(time.Now(), func(st source.Status) {
		o.Log.Info().Stringer("state", st.State).Str("reason", st.Reason).Stringer("codec", st.Codec).
			Int("width", st.Width).Int("height", st.Height).Msg("sender")
		f.Note(st)
	}), room: x.Room, identity: o.Identity, name: o.Name}
	who.gone = time.AfterFunc(s.linger, stop)
	s.active[key] = who
	s.wg.Go(func() {
		defer stop()
		if err := f.Run(ctx); err != nil {
			o.Log.Warn().Err(err).Msg("a sender's participant left the room")
		}
		who.tracker.End(time.Now())
		s.mu.Lock()
		delete(s.active, key)
		s.mu.Unlock()
	})
	return who, nil
}

func (s *Senders) leave(who *sender, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who.sessions--
	if who.sessions == 0 {
		who.tracker.Lost(reason, time.Now())
		who.gone.Reset(s.linger)
	}
}

// Authorize returns whip.Options.Authorize for LiveKit access tokens.
func Authorize(keys room.Keys) func(token, name string) (whip.Sender, error) {
	return func(token, name string) (whip.Sender, error) {
		who, err := room.VerifySender(keys, token, name)
		switch {
		case errors.Is(err, room.ErrNoRight):
			return whip.Sender{}, fmt.Errorf("%w: %w", whip.ErrForbidden, err)
		case err != nil:
			return whip.Sender{}, fmt.Errorf("%w: %w", whip.ErrNoToken, err)
		}
		// A sender may renew its token; it is still the same sender.
		return whip.Sender{Key: "livekit:" + who.Identity, Identity: who.Identity, Name: who.Name, With: who.Agents}, nil
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
