// Package whep is a WHEP server (draft-ietf-wish-whep) for players without a
// LiveKit client, as an HTTP handler for /whep/ROOM.
//
// A player receives the delayed picture of the room and the mix of voice and
// camera sound in one MediaStream, and comments as JSON on a data channel named
// "commentary". The package owns the sessions and their queues. It does not decode
// or encode, and does not use LiveKit: a [Feed] receives pictures and texts, and
// the sound is mixed by media/sound.
//
// A session begins with the pictures since the last key frame, so that the
// player shows a picture at once.
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
	// Verify checks a token for a room; it returns signaling.ErrNoToken or signaling.ErrForbidden to refuse it. Without
	// Verify, only requests that ServeWHEP admits are accepted.
	Verify func(token, room string) error
	// Coming is set if rooms come and go: an unknown room is answered with 409, which asks for a retry, in place of 404.
	Coming bool

	// Bounds default to 64 sessions, 60 POSTs a minute in bursts of 20, and 15 s to connect.
	signaling.Bounds

	// UDPPort carries all media; 0 takes a free port.
	UDPPort int
	// LoopbackOnly opens sockets on loopback addresses only.
	LoopbackOnly bool
	// ExternalIPs replace the machine's own addresses in candidates, where a router forwards the port.
	ExternalIPs []string
	// ICEServers are sent to players in Link headers.
	ICEServers []webrtc.ICEServer

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves WHEP players. Run has to be running; Add adds rooms at any time.
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

// room is a room with a picture.
type room struct {
	name string
	feed *Feed
}

// New checks the options and opens nothing.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		return nil, errors.New("WHEP server: Now is not set")
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
		Head:     "application/sdp", // players recognise the endpoint by it
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
	o.Log.Info().Int("udp_port", port.Number()).Msg("WHEP server started")
	<-ctx.Done()
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	s.endAll(func(*session) bool { return true }, "the server is stopping")
	s.wg.Wait()
	if err := port.Close(); err != nil {
		return fmt.Errorf("close the UDP port of WHEP: %w", err)
	}
	return nil
}

// Add adds a room. remove ends its sessions and removes it.
func (s *Server) Add(name string, feed *Feed) (remove func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[name] != nil {
		return nil, fmt.Errorf("room %q is already registered", name)
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

// endAll ends the selected sessions and waits for them.
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

// UDPPort returns the port of all media, 0 before Run has opened it.
func (s *Server) UDPPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == nil {
		return 0
	}
	return s.port.Number()
}

// Players returns the number of sessions of a room, or of all rooms if room is "".
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

// ServeWHEP serves requests below /whep/. An admitted request needs no token.
func (s *Server) ServeWHEP(w http.ResponseWriter, r *http.Request, admitted bool) {
	if admitted {
		r = r.WithContext(context.WithValue(r.Context(), admittedKey{}, true))
	}
	s.endpoint.ServeHTTP(w, r)
}

func (s *Server) authorize(r *http.Request, token, room string) (any, error) {
	if r.Context().Value(admittedKey{}) != nil {
		return nil, nil //nolint:nilnil // the client is anonymous
	}
	if token == "" || s.opts.Verify == nil {
		return nil, signaling.ErrNoToken
	}
	return nil, s.opts.Verify(token, room)
}

// accept starts a session for an offer.
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
		return nil, fmt.Errorf("%w: this program has no commentator in room %.80q; retry, as one may join", signaling.ErrNotLive, name)
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
	x.log.Info().Stringer("address", from).Msg("WHEP session started")
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

// forget removes a session that is over.
func (s *Server) forget(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.id)
	s.wg.Done()
}
