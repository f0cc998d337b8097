// Package whip is a WHIP server (RFC 9725), as an http.Handler for /whip/ROOM.
//
// It owns the sessions and their sockets, authorisation and limits. Video leaves it
// as access units in the sender's codec, sound as Opus packets. It does not decode
// and does not join rooms: Options.Open connects each session to its consumer.
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
	// ErrNoToken is returned by Authorize when the token is missing, unknown or expired; the answer is 401.
	ErrNoToken = signaling.ErrNoToken
	// ErrForbidden is returned by Authorize when the token does not give the right; the answer is 403.
	ErrForbidden = signaling.ErrForbidden
)

// Sender is the client that a token authorises.
type Sender struct {
	// Key identifies the sender: unless Options.Many is set, it may have one session.
	Key string
	// Identity in the room, and Name for people, which may be empty.
	Identity, Name string
	// With is passed from Options.Authorize to Options.Open.
	With any
}

// StreamKey is the password of one sender, for programs that do not use LiveKit
// tokens.
type StreamKey struct {
	Key            string
	Room           string // "" for all rooms
	Identity, Name string
}

// Place consumes the pictures and the sound of a session.
type Place struct {
	Sink source.Sink
	// Close is called when the session is over, after the last frame.
	Close func(reason string)
}

// Options of a Server.
type Options struct {
	// Keys authorise senders. Authorize checks all other tokens; nil refuses them.
	Keys      []StreamKey
	Authorize func(token, room string) (Sender, error)
	// Open returns the consumer of a session. An error is answered with 503.
	Open func(*Session) (Place, error)

	// Many allows several sessions with one key. Otherwise a new session ends the previous one, so that a sender
	// that crashed can return at once.
	Many bool
	// Bounds default to 64 sessions, 30 POSTs a minute in bursts of 10, and 15 s to connect.
	signaling.Bounds

	// UDPPort carries all media; 0 takes a free port.
	UDPPort int
	// LoopbackOnly opens sockets on loopback addresses only.
	LoopbackOnly bool
	// ExternalIPs replace the machine's own addresses in candidates, where a router forwards the port.
	ExternalIPs []string
	// ICEServers are sent to senders in Link headers.
	ICEServers []webrtc.ICEServer

	// Silence ends a session that sends no packets for so long; 0 is 30 s.
	Silence time.Duration

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves WHIP senders. Run has to be running.
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

// turn is the lock of a slot: one session at a time replaces another.
type turn struct {
	sync.Mutex

	users int // that hold it or wait, under the server's lock
}

// New checks the options and opens nothing.
func New(o Options) (*Server, error) {
	if o.Open == nil || o.Now == nil {
		return nil, errors.New("WHIP server: Open or Now is not set")
	}
	for i, k := range o.Keys {
		if len(k.Key) < 8 || k.Identity == "" {
			return nil, fmt.Errorf("stream key %d: needs 8 characters or more and an identity", i+1)
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
	o.Log.Info().Int("udp_port", port.Number()).Msg("WHIP server started")

	<-ctx.Done()
	s.mu.Lock()
	s.running = false
	all := make([]*Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.end("the server is stopping")
	}
	s.wg.Wait()
	if err := port.Close(); err != nil {
		return fmt.Errorf("close the UDP port of WHIP: %w", err)
	}
	return nil
}

// UDPPort returns the port of all media, 0 before Run has opened it.
func (s *Server) UDPPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == nil {
		return 0
	}
	return s.port.Number()
}

// Sessions returns the present sessions.
func (s *Server) Sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		out = append(out, x)
	}
	return out
}

// authorize checks a token for a room.
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

// reserve counts one more session, unless there are too many.
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

// release ends a reservation: x is the session that it was for, nil if there is none.
func (s *Server) release(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if x != nil {
		s.sessions[x.id] = x
		if !s.running {
			x.end("the server is stopping")
		}
		if !s.opts.Many {
			s.keyed[x.slot()] = x
		}
		return
	}
	s.wg.Done()
}

// place connects a session to its consumer, after ending the one with the same key.
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

// replace ends the session that has the slot.
func (s *Server) replace(slot string) {
	s.mu.Lock()
	old := s.keyed[slot]
	s.mu.Unlock()
	if old != nil {
		old.end("the same key came again")
		<-old.done
	}
}

// forget removes a session that is over.
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
