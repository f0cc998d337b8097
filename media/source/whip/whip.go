// Package whip takes pictures that are sent to it: a server of WHIP (RFC 9725),
// as an http.Handler for /whip/ROOM.
//
// It owns the HTTP conversation, the WebRTC sessions and their sockets, who may
// send, and how much of it. Video comes out as access units in the sender's
// codec, sound as Opus packets. It never decodes and never joins a room:
// whoever makes the Server opens a place for each session.
package whip

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/media/signaling"
	"touchline/media/source"
)

var (
	// ErrNoToken is returned by Authorize when the token is missing, unknown or expired: answered with 401.
	ErrNoToken = signaling.ErrNoToken
	// ErrForbidden is returned by Authorize when the token is good for something else: answered with 403.
	ErrForbidden = signaling.ErrForbidden
)

// Sender is who a token lets in.
type Sender struct {
	// Key tells senders apart: unless Options.Many is set, there is one session for each.
	Key string
	// Identity and Name in the room; a name for people may be empty.
	Identity, Name string
	// With is what else Options.Authorize has for Options.Open; it is not looked at here.
	With any
}

// StreamKey is a password of one sender for one room, for programs that take no
// LiveKit token.
type StreamKey struct {
	Key            string
	Room           string // "" for every room
	Identity, Name string
}

// Place is where a session's pictures go.
type Place struct {
	Sink source.Sink
	// Close is called when the session is over, after the last frame.
	Close func(reason string)
}

// Options of a Server.
type Options struct {
	// Keys let senders in; Authorize judges every other token, nil for none.
	Keys      []StreamKey
	Authorize func(token, room string) (Sender, error)
	// Open makes a place for a session that was accepted. An error is answered with 503.
	Open func(*Session) (Place, error)

	// Many allows several sessions at once with one key. Otherwise a new one ends the one before, so that a
	// sender that crashed can come back at once.
	Many bool
	// Bounds are, where they are 0, 64 sessions, 30 POSTs a minute and 10 at once, and 15 s to connect.
	signaling.Bounds

	// UDPPort takes all media, 0 for a free one.
	UDPPort int
	// LoopbackOnly opens no socket but on this machine's loopback.
	LoopbackOnly bool
	// ExternalIPs are announced in place of the machine's own, where a router forwards the port.
	ExternalIPs []string
	// ICEServers are told to senders in Link headers.
	ICEServers []webrtc.ICEServer

	// Silence is how long a session may send nothing, 0 for 30 s.
	Silence time.Duration

	Now func() time.Time
	Log zerolog.Logger
}

// Server takes WHIP sessions. New, then Run; Handler answers from then on.
type Server struct {
	opts     Options
	endpoint *signaling.Endpoint

	mu       sync.Mutex
	running  bool
	port     *signaling.Port
	sessions map[string]*Session // by id
	keyed    map[string]*Session // by slot, unless Many
	turns    map[string]*turn    // by slot, while a session takes its place there
	opening  int
	wg       sync.WaitGroup
}

// turn lets one session at a time take the place of another.
type turn struct {
	sync.Mutex

	users int // that hold it or wait for it, under the server's lock
}

// New checks the options and opens nothing.
func New(o Options) (*Server, error) {
	if o.Open == nil || o.Now == nil {
		return nil, errors.New("expected a place for WHIP sessions and a clock")
	}
	for i, k := range o.Keys {
		if len(k.Key) < 8 || k.Identity == "" {
			return nil, fmt.Errorf("expected stream key %d to have 8 characters or more and an identity", i+1)
		}
	}
	o.Bounds = o.Or(signaling.Bounds{MaxSessions: 64, PerMinute: 30, Burst: 10, ConnectTime: 15 * time.Second})
	if o.Silence == 0 {
		o.Silence = 30 * time.Second
	}
	s := &Server{opts: o, sessions: map[string]*Session{}, keyed: map[string]*Session{}, turns: map[string]*turn{}}
	s.endpoint = s.newEndpoint()
	return s, nil
}

// Run opens the media port and returns, with every session ended, when ctx ends.
func (s *Server) Run(ctx context.Context) error {
	o := s.opts
	port, err := signaling.Open(signaling.PortOptions{
		UDPPort: o.UDPPort, LoopbackOnly: o.LoopbackOnly, ExternalIPs: o.ExternalIPs, ICEServers: o.ICEServers,
	})
	if err != nil {
		return fmt.Errorf("open the UDP port for WHIP: %w", err)
	}
	s.mu.Lock()
	s.port, s.running = port, true
	s.mu.Unlock()
	o.Log.Info().Int("udp_port", port.Number()).Msg("WHIP takes pictures")

	<-ctx.Done()
	s.mu.Lock()
	s.running = false
	all := make([]*Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.end("the server stops")
	}
	s.wg.Wait()
	if err := port.Close(); err != nil {
		return fmt.Errorf("close the UDP port of WHIP: %w", err)
	}
	return nil
}

// UDPPort is the port that takes media, 0 before Run opened it.
func (s *Server) UDPPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == nil {
		return 0
	}
	return s.port.Number()
}

// Sessions lists those under way.
func (s *Server) Sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		out = append(out, x)
	}
	return out
}

// authorize judges a token for a room.
func (s *Server) authorize(token, room string) (Sender, error) {
	if token == "" {
		return Sender{}, ErrNoToken
	}
	wrongRoom := false
	for _, k := range s.opts.Keys {
		if subtle.ConstantTimeCompare([]byte(k.Key), []byte(token)) != 1 {
			continue
		}
		if k.Room != "" && k.Room != room {
			wrongRoom = true
			continue
		}
		return Sender{Key: k.Key, Identity: k.Identity, Name: k.Name}, nil
	}
	switch {
	case wrongRoom:
		return Sender{}, ErrForbidden
	case s.opts.Authorize == nil:
		return Sender{}, ErrNoToken
	}
	return s.opts.Authorize(token, room)
}

// reserve makes room for one more session.
func (s *Server) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running || len(s.sessions)+s.opening >= s.opts.MaxSessions {
		return false
	}
	s.opening++
	s.wg.Add(1)
	return true
}

// release gives back what reserve took, with the session that came of it or nil.
func (s *Server) release(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if x != nil {
		s.sessions[x.id] = x
		if !s.running {
			x.end("the server stops")
		}
		if !s.opts.Many {
			s.keyed[x.slot()] = x
		}
		return
	}
	s.wg.Done()
}

// place opens a place for a session, after ending the one that had it.
func (s *Server) place(x *Session) (err error) {
	if !s.opts.Many {
		defer s.lock(x.slot())()
		s.replace(x.slot())
	}
	if x.place, err = s.opts.Open(x); err != nil {
		return err
	}
	s.release(x)
	return nil
}

// lock waits for a slot's turn: a session that is slow to end holds up no other slot.
func (s *Server) lock(slot string) (unlock func()) {
	s.mu.Lock()
	t := s.turns[slot]
	if t == nil {
		t = &turn{}
		s.turns[slot] = t
	}
	t.users++
	s.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.turns, slot)
		}
	}
}

// replace ends the session that a new one with the same key takes the place of.
func (s *Server) replace(slot string) {
	s.mu.Lock()
	old := s.keyed[slot]
	s.mu.Unlock()
	if old != nil {
		old.end("the same key came again")
		<-old.done
	}
}

// forget is called by a session that is over.
func (s *Server) forget(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[x.id] != x {
		return
	}
	delete(s.sessions, x.id)
	if s.keyed[x.slot()] == x {
		delete(s.keyed, x.slot())
	}
	s.wg.Done()
}

func (s *Server) find(room, id string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil && x.Room == room {
		return x
	}
	return nil
}
