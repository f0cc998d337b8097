// Package whip is a WHIP server (RFC 9725), as an http.Handler for /whip/ROOM.
//
// It owns authorisation and the replacement of sessions. It yields video as access
// units in the sender's codec and sound as Opus packets. HTTP, connections and limits
// come from package signaling. It does not decode and does not join rooms:
// Options.Open connects each session to its consumer.
package whip

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/limit"
	"touchline/media/signaling"
	"touchline/media/source"
)

// Sender is the client that a token authorises.
type Sender struct {
	// Key identifies the sender: unless Options.Many is set, it may have one session.
	Key string
	// Holder has the sender's place, of which limit.Shares gives each holder a part; "" has no limit of its own.
	Holder string
	// Identity in the room, and the display name, which may be empty.
	Identity, Name string
	// Right ends its sessions.
	Right signaling.Right
	// With is passed from Options.Authorize to Options.Open.
	With any

	configured bool // it has one of Options.Keys
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
	// Keys authorise senders. Authorize checks all other tokens, and refuses one with signaling.ErrNoToken or
	// signaling.ErrForbidden; nil refuses all.
	Keys      []StreamKey
	Authorize func(token, room string) (Sender, error)
	// Open returns the consumer of a session. An error is answered with 503.
	Open func(*Session) (Place, error)

	// Many allows several sessions with one key. Otherwise a new session ends the previous one, so that a sender
	// that crashed can return at once.
	Many bool
	// Silence ends a session that sends no packets for so long; 0 is 30 s.
	Silence time.Duration

	// Bounds default to 64 sessions, 60 POSTs a minute in bursts of 20, and 15 s to connect.
	signaling.Bounds
	signaling.PortOptions

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves WHIP senders. Run has to be running.
type Server struct {
	*signaling.Server

	opts Options

	mu        sync.Mutex
	keyed     map[string]*Session // by slot, unless Many
	operators map[string]*Session // by configured key, the one with the operator's place; none with Many
	turns     map[string]*turn    // by slot, while a session takes its place there
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
	o.Bounds = o.Or(signaling.Bounds{MaxSessions: 64, PerMinute: 60, Burst: 20, ConnectTime: 15 * time.Second})
	o.Silence = cmp.Or(o.Silence, 30*time.Second)
	s := &Server{opts: o, keyed: map[string]*Session{}, operators: map[string]*Session{}, turns: map[string]*turn{}}
	s.Server = signaling.NewServer(signaling.Options{
		Name: "whip", Client: "sender",
		Authorize: func(_ *http.Request, token, room string) (any, error) { return s.authorize(token, room) },
		Forbidden: "expected a token for this room that allows publishing",
		Accept:    s.accept,
		Bounds:    o.Bounds, PortOptions: o.PortOptions, Now: o.Now, Log: o.Log,
	})
	return s, nil
}

// authorize checks a token for a room.
func (s *Server) authorize(token, room string) (Sender, error) {
	if token == "" {
		return Sender{}, signaling.ErrNoToken
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
		return Sender{Key: k.Key, Holder: k.Key, Identity: k.Identity, Name: k.Name, configured: true}, nil
	}
	switch {
	case wrongRoom:
		return Sender{}, signaling.ErrForbidden
	case s.opts.Authorize == nil:
		return Sender{}, signaling.ErrNoToken
	}
	return s.opts.Authorize(token, room)
}

// accept starts a session for an offer, after ending the one in its slot, whose place it gets.
func (s *Server) accept(ctx context.Context, r signaling.Request) (*signaling.Session, error) {
	o, err := readOffer(r.SDP)
	if err != nil {
		return nil, err
	}
	sender, ok := r.Client.(Sender)
	if !ok {
		return nil, errors.New("the request is not authorised")
	}
	m, interceptors, err := o.engines()
	if err != nil {
		return nil, err
	}
	x := newSession(s, sender, r.Room, o.upright)
	if !s.opts.Many {
		defer s.lock(x.slot)()
		s.replace(x.slot)
	}
	who := limit.Client{Token: sender.Holder, From: r.From, Operator: s.operates(x)}
	session, err := s.Start(limit.WithClient(ctx, who), signaling.SessionOptions{
		Request: r, Offer: o.Offer, Media: m, Interceptors: interceptors, Prepare: x.prepare, Enter: x.enter, Run: x.run, Left: x.leave,
	})
	if err != nil {
		s.free(x)
	}
	return session, err
}

// operates reports whether x finds a place as the operator does: of the sessions with a configured key, one at a time, so that its holder
// cannot end all others.
func (s *Server) operates(x *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.Sender.configured || s.opts.Many || s.operators[x.Sender.Key] != nil {
		return false
	}
	s.operators[x.Sender.Key] = x
	return true
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
		old.End("the same key came again")
	}
}

// keep gives the slot to x.
func (s *Server) keep(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyed[x.slot] = x
}

// free releases the slot of x, and the operator's place of its key.
func (s *Server) free(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keyed[x.slot] == x {
		delete(s.keyed, x.slot)
	}
	if s.operators[x.Sender.Key] == x {
		delete(s.operators, x.Sender.Key)
	}
}
