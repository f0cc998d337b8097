// Package whep is a WHEP server (draft-ietf-wish-whep) for players without a
// LiveKit client, as an HTTP handler for /whep/ROOM.
//
// A player receives the delayed picture of the room and the mix of voice and camera sound in one MediaStream, and comments as JSON
// on a data channel named "commentary". The package owns the media of a session and its queues. Package signaling has HTTP,
// connections and limits. The package does not decode or encode, and does not use LiveKit: a [Feed] receives pictures and texts, and
// media/sound mixes the sound.
//
// A session begins with the pictures since the last key frame, so that the player shows a picture at once.
package whep

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/internal/limit"
	"touchline/internal/metrics"
	"touchline/media/signaling"
)

// Options of a Server.
type Options struct {
	// Verify checks a token for a room. It returns the link that it comes from ("" for none) and its right, and signaling.ErrNoToken or
	// signaling.ErrForbidden to refuse it. Without Verify, only admitted requests are accepted.
	Verify func(token, room string) (link string, right signaling.Right, err error)
	// Coming is set if rooms come and go: the answer for an unknown room is then 409, which asks for a retry, instead of 404.
	Coming bool

	// Bounds default to 64 sessions, 60 POSTs a minute in bursts of 20, and 15 s to connect.
	signaling.Bounds
	signaling.PortOptions

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves WHEP players. Run has to be running; Add adds rooms at any time.
type Server struct {
	*signaling.Server

	opts    Options
	crowded prometheus.Counter // sessions that ended by too many data channels

	mu    sync.Mutex
	rooms map[string]*room
}

// room is a room with a picture.
type room struct {
	feed    *Feed
	players map[*signaling.Session]struct{} // under the server's lock
}

// New checks the options and opens nothing.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		return nil, errors.New("WHEP server: Now is not set")
	}
	o.Bounds = o.Or(signaling.Bounds{MaxSessions: 64, PerMinute: 60, Burst: 20, ConnectTime: 15 * time.Second})
	s := &Server{opts: o, rooms: map[string]*room{}, crowded: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "touchline_whep_channel_ends_total", Help: "Sessions that ended because their player opened too many data channels.",
	})}
	s.Server = signaling.NewServer(signaling.Options{
		Name: "whep", Client: "player",
		Authorize: s.authorize,
		Forbidden: "expected a token for this room that allows subscribing",
		Accept:    s.accept,
		Bounds:    o.Bounds, PortOptions: o.PortOptions, Now: o.Now, Log: o.Log,
		Head:     "application/sdp", // players recognise the endpoint by it
		Untagged: true,              // the library of the draft's author sends no entity-tag before its first restart
	})
	return s, nil
}

// Metrics returns the number of sessions, of refused ones, and of those that ended by too many data channels.
func (s *Server) Metrics() prometheus.Collector { return metrics.Bundle{s.Server.Metrics(), s.crowded} }

// Add adds a room. remove ends its sessions and removes it.
func (s *Server) Add(name string, feed *Feed) (remove func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[name] != nil {
		return nil, fmt.Errorf("room %q is already registered", name)
	}
	r := &room{feed: feed, players: map[*signaling.Session]struct{}{}}
	s.rooms[name] = r
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.rooms, name)
		var players sync.WaitGroup
		for x := range r.players {
			players.Go(func() { x.End("the room is closed") })
		}
		s.mu.Unlock()
		players.Wait()
	}), nil
}

// admissionKey is the context key of a request's admission.
type admissionKey struct{}

// ServeWHEP serves requests below /whep/.
func (s *Server) ServeWHEP(w http.ResponseWriter, r *http.Request, a signaling.Admission) {
	s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), admissionKey{}, a)))
}

// admitted is the admission of a request, and the link of its token; "" for none, and for a request that the page's server admitted.
type admitted struct {
	signaling.Admission

	link string
}

// authorize returns the admission of a request, with the end of its session.
func (s *Server) authorize(r *http.Request, token, room string) (any, error) {
	a, _ := r.Context().Value(admissionKey{}).(signaling.Admission)
	if a.Admitted {
		return admitted{Admission: a}, nil
	}
	x, err := admitted{Admission: a}, signaling.ErrNoToken
	if token != "" && s.opts.Verify != nil {
		x.link, x.Right, err = s.opts.Verify(token, room)
	}
	if errors.Is(err, signaling.ErrNoToken) && a.Refused != nil {
		if limited := a.Refused(); limited != nil {
			return nil, limited
		}
	}
	return x, err
}

// accept starts a session for an offer.
func (s *Server) accept(ctx context.Context, q signaling.Request) (*signaling.Session, error) {
	o, err := readOffer(q.SDP)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	r := s.rooms[q.Room]
	s.mu.Unlock()
	switch {
	case r == nil && s.opts.Coming:
		return nil, fmt.Errorf("%w: this program has no commentator in room %.80q; retry, as one may join", signaling.ErrNotLive, q.Room)
	case r == nil:
		return nil, signaling.ErrNotFound
	}
	m, interceptors, err := o.engines()
	if err != nil {
		return nil, err
	}
	x := newSession(s, r, o)
	a, _ := q.Client.(admitted)
	x.admission = a.Admission
	if who := limit.ClientOf(ctx); a.link != "" {
		who.Link = a.link
		ctx = limit.WithClient(ctx, who)
	}
	return s.Start(ctx, signaling.SessionOptions{
		Request: q, Offer: o.Offer, Media: m, Interceptors: interceptors, Prepare: x.prepare, Enter: x.enter, Run: x.play, Left: x.leave,
	})
}
