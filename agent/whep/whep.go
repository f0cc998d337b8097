// Package whep lets people watch without a LiveKit client: a server of WHEP
// (draft-ietf-wish-whep), as an HTTP handler for /whep/ROOM.
//
// A player gets the delayed picture as the room gets it, one sound (the voice
// and, lowered under it, the camera's), both in one MediaStream, and what is
// said as JSON on a data channel named "commentary". The package owns the
// sessions and what they have not been sent yet. It decodes and encodes
// nothing and knows no LiveKit: a [Feed] is given pictures and texts, and the
// mixed sound comes from media/sound.
//
// One who comes sees a picture at once: each session begins with the pictures
// since the last key frame, shown in a moment.
package whep

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"

	"touchline/media/signaling"
)

// Options of a Server.
type Options struct {
	// Verify judges a token for a room: nil lets it in, signaling.ErrNoToken and signaling.ErrForbidden say why not. When
	// Verify is nil only those are let in for whom ServeWHEP is told so.
	Verify func(token, room string) error
	// Coming tells that rooms come and go: one that is not here may be asked for again, by a 409 in place of a 404.
	Coming bool

	// Bounds are, where they are 0, 64 sessions, 60 POSTs a minute and 20 at once, and 15 s to connect.
	signaling.Bounds

	// UDPPort takes all media, 0 for a free one.
	UDPPort int
	// LoopbackOnly opens no socket but on this machine's loopback.
	LoopbackOnly bool
	// ExternalIPs are announced in place of the machine's own, where a router forwards the port.
	ExternalIPs []string
	// ICEServers are told to players in Link headers.
	ICEServers []webrtc.ICEServer

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves WHEP players. New, then Run; rooms come and go by Add.
type Server struct {
	opts     Options
	endpoint *signaling.Endpoint

	mu       sync.Mutex
	running  bool
	port     *signaling.Port
	rooms    map[string]*room
	sessions map[string]*session
	opening  int
	wg       sync.WaitGroup
}

// room is one that can be watched.
type room struct {
	name string
	feed *Feed
}

// New checks the options and opens nothing.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		return nil, errors.New("expected a clock for WHEP, got none")
	}
	o.Bounds = o.Or(signaling.Bounds{MaxSessions: 64, PerMinute: 60, Burst: 20, ConnectTime: 15 * time.Second})
	s := &Server{opts: o, rooms: map[string]*room{}, sessions: map[string]*session{}}
	s.endpoint = signaling.NewEndpoint(signaling.EndpointOptions{
		Name: "whep", Client: "player",
		Authorize: s.authorize,
		Forbidden: "expected a token for this room that allows subscribing",
		Accept:    s.accept,
		Find: func(room, id string) (signaling.Resource, bool) {
			x := s.find(room, id)
			return x, x != nil
		},
		ICEServers: o.ICEServers, Bounds: o.Bounds, Now: o.Now, Log: o.Log,
		Head:     "application/sdp", // how players find out what this is
		Untagged: true,              // the library of the draft's author sends no entity-tag before its first restart
	})
	return s, nil
}

// Run opens the media port and returns, with every session ended, when ctx ends.
func (s *Server) Run(ctx context.Context) error {
	o := s.opts
	port, err := signaling.Open(signaling.PortOptions{
		UDPPort: o.UDPPort, LoopbackOnly: o.LoopbackOnly, ExternalIPs: o.ExternalIPs, ICEServers: o.ICEServers,
	})
	if err != nil {
		return fmt.Errorf("open the UDP port for WHEP: %w", err)
	}
	s.mu.Lock()
	s.port, s.running = port, true
	s.mu.Unlock()
	o.Log.Info().Int("udp_port", port.Number()).Msg("WHEP serves players")
	<-ctx.Done()
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	s.endAll(func(*session) bool { return true }, "the server stops")
	s.wg.Wait()
	if err := port.Close(); err != nil {
		return fmt.Errorf("close the UDP port of WHEP: %w", err)
	}
	return nil
}

// Add lets people watch a room until the function it returns is called: then
// its players are gone.
func (s *Server) Add(name string, feed *Feed) (remove func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[name] != nil {
		return nil, fmt.Errorf("expected a room that is not watched yet, %q is", name)
	}
	r := &room{name: name, feed: feed}
	s.rooms[name] = r
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.rooms, name)
		s.mu.Unlock()
		s.endAll(func(x *session) bool { return x.room == r }, "the room is closed")
	}), nil
}

// endAll ends sessions and waits for them.
func (s *Server) endAll(which func(*session) bool, reason string) {
	s.mu.Lock()
	var all []*session
	for _, x := range s.sessions {
		if which(x) {
			all = append(all, x)
		}
	}
	s.mu.Unlock()
	for _, x := range all {
		x.end(reason)
	}
	for _, x := range all {
		<-x.done
	}
}

// UDPPort is the port that serves media, 0 before Run opened it.
func (s *Server) UDPPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == nil {
		return 0
	}
	return s.port.Number()
}

// Players counts the sessions of a room, of all when room is "".
func (s *Server) Players(room string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.sessions {
		if room == "" || x.room.name == room {
			n++
		}
	}
	return n
}

// admittedKey marks requests that need no token.
type admittedKey struct{}

// ServeWHEP answers below /whep/. admitted lets the request in without a look
// at its token.
func (s *Server) ServeWHEP(w http.ResponseWriter, r *http.Request, admitted bool) {
	if admitted {
		r = r.WithContext(context.WithValue(r.Context(), admittedKey{}, true))
	}
	s.endpoint.ServeHTTP(w, r)
}

func (s *Server) authorize(r *http.Request, token, room string) (any, error) {
	if r.Context().Value(admittedKey{}) != nil {
		return nil, nil //nolint:nilnil // nobody in particular, and nothing against it
	}
	if token == "" || s.opts.Verify == nil {
		return nil, signaling.ErrNoToken
	}
	return nil, s.opts.Verify(token, room)
}

// accept makes a session of an offer.
func (s *Server) accept(ctx context.Context, name string, _ any, text string, from netip.Addr) (signaling.Resource, error) {
	o, err := readOffer(text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	r := s.rooms[name]
	free := s.running && len(s.sessions)+s.opening < s.opts.MaxSessions
	if r != nil && free {
		s.opening++
		s.wg.Add(1)
	}
	s.mu.Unlock()
	switch {
	case r == nil && s.opts.Coming:
		return nil, fmt.Errorf("%w: no commentator of this program is in the room %.80q; one may come, or another program may have it",
			signaling.ErrNotLive, name)
	case r == nil:
		return nil, signaling.ErrNotFound
	case !free:
		return nil, fmt.Errorf("%w: too many players", signaling.ErrBusy)
	}
	x, err := s.newSession(ctx, o, r, from)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if err != nil {
		s.wg.Done()
		return nil, err
	}
	s.sessions[x.id] = x
	if !s.running || s.rooms[name] != r {
		x.end("the room is closed")
	}
	go x.run() // Run waits for it
	x.log.Info().Stringer("address", from).Msg("WHEP session begins")
	return x, nil
}

func (s *Server) find(name, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil && x.room.name == name {
		return x
	}
	return nil
}

// forget is called by a session that is over.
func (s *Server) forget(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.id)
	s.wg.Done()
}
