// Package signaling is what a WHIP server (RFC 9725) and a WHEP server
// (draft-ietf-wish-whep) have in common: a resource that answers an SDP offer with
// one WebRTC session, and the settings of STUN and TURN.
//
// It owns the HTTP exchange, the sessions and the UDP port ([Server]), the WebRTC
// connections ([Session]) and the limits on untrusted input. It neither sends nor
// receives media, and leaves authorisation to its user.
package signaling

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/internal/limit"
)

// Errors of Options.Authorize and Options.Accept, with the HTTP status of the response.
var (
	// ErrNoToken: the token is missing, unknown or expired; 401.
	ErrNoToken = refusal(http.StatusUnauthorized, "", "the token is missing, unknown or expired")
	// ErrForbidden: the token does not give this right; 403.
	ErrForbidden = refusal(http.StatusForbidden, "", "the token does not allow this in this room")
	// ErrNotFound: there is no such room; 404.
	ErrNotFound = refusal(http.StatusNotFound, "", "no such room")
	// ErrNotLive: there is no such room yet; 409 with Retry-After.
	ErrNotLive = refusal(http.StatusConflict, "2", "no picture yet")
	// ErrNoPicture: the room has no picture yet; 503 with Retry-After.
	ErrNoPicture = refusal(http.StatusServiceUnavailable, "2", "no picture yet")
	// ErrBusy: a later retry may succeed; 503 with Retry-After.
	ErrBusy = refusal(http.StatusServiceUnavailable, "5", "no capacity for another session")
	// ErrMalformed: the offer is invalid; 400. A valid offer that cannot be accepted as a whole is answered with 422.
	ErrMalformed = refusal(http.StatusBadRequest, "", "malformed offer")

	errNotAnswering = refusal(http.StatusUnprocessableEntity, "", "expected an offer that can be answered as a whole")
	errStale        = refusal(http.StatusPreconditionFailed, "", "expected the entity-tag of the current ICE session")
	errNoTag        = refusal(http.StatusPreconditionRequired, "", "expected an If-Match header")
	errOver         = refusal(http.StatusNotFound, "", "no such session")
	errCrashed      = refusal(http.StatusInternalServerError, "", "internal error, which the log has; report it")
)

// statusError is an error with an HTTP status, and the Retry-After header in seconds.
type statusError struct {
	status     int
	retryAfter string
	text       string
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// TooMany is the answer to a client beyond a limit, with the time until its next request; 429.
func TooMany(wait time.Duration) error {
	return refusal(http.StatusTooManyRequests, strconv.Itoa(int(wait.Seconds())+1), "too many requests from this address")
}

func refusal(status int, retryAfter, text string) error {
	return &statusError{status, retryAfter, text}
}

// Bounds limit what clients of one server may do. Zero values are replaced by the
// server's defaults.
type Bounds struct {
	// MaxSessions bounds the sessions of all clients together; limit.Shares are those of a token and an address.
	MaxSessions int
	// PerMinute and Burst bound the POSTs of one address, IPv6 by /64 network, and the OPTIONS that check a token, and twenty
	// times as many other requests; negative is no limit.
	PerMinute, Burst int
	// ConnectTime is how long a session may take to connect.
	ConnectTime time.Duration
}

// Or returns b with zero values replaced by defaults.
func (b Bounds) Or(defaults Bounds) Bounds {
	return Bounds{
		MaxSessions: cmp.Or(b.MaxSessions, defaults.MaxSessions), PerMinute: cmp.Or(b.PerMinute, defaults.PerMinute),
		Burst: cmp.Or(b.Burst, defaults.Burst), ConnectTime: cmp.Or(b.ConnectTime, defaults.ConnectTime),
	}
}

// Request is an authorised offer.
type Request struct {
	Room string
	// Client is the result of Options.Authorize.
	Client any
	// SDP is the offer.
	SDP string
	// From is the client's address.
	From netip.Addr
}

// Right is a client's right to a session. It calls over, with the reason, when the right ends, until stop is called. Nil never ends.
type Right func(over func(reason string)) (stop func())

// Admission is the decision of the server of a page about a request for an endpoint below it.
type Admission struct {
	// Admitted requests need no token. Their sessions end with Right.
	Admitted bool
	Right    Right
	// Refused is called for a request that is not admitted and has no valid token. An error answers the request. May be nil.
	Refused func() error
	// Expired is called when a session has ended with its right. May be nil.
	Expired func()
}

// Options configure a Server.
type Options struct {
	// Name is the first part of the path and the realm; Client is the word for a client in texts.
	Name, Client string
	// Authorize checks a request for a room; its result is passed to Accept.
	Authorize func(r *http.Request, token, room string) (client any, err error)
	// Forbidden is the text of a 403: the right that a token must give.
	Forbidden string
	// Accept makes a session with Server.Start. An error that wraps none of this package's is answered with 422.
	Accept func(ctx context.Context, r Request) (*Session, error)
	// Head is the Content-Type in the answer to GET and HEAD, by which players recognise the endpoint; "" for none.
	Head string
	// Untagged accepts candidates without If-Match, as some clients send them, if ufrag and pwd match the ICE session.
	Untagged bool

	Bounds
	PortOptions

	Now func() time.Time
	Log zerolog.Logger
}

// Server serves /NAME/ROOM and /NAME/ROOM/SESSION. Run has to be running. A client's
// address is the request's RemoteAddr, which a reverse proxy's middleware has to set.
type Server struct {
	up chan struct{} // closed when Run has opened the port

	opts          Options
	protocol      string // in logs and errors
	posts, others *limit.Limiter[netip.Addr]
	detention     limit.Detention // of requests beyond the rate

	mu       sync.Mutex
	running  bool
	port     *port
	sessions map[string]*Session // by id
	seats    *limit.Seats
	wg       sync.WaitGroup
}

// leastSessions is the number of sessions that a token or an address may have at least, unless that is all.
const leastSessions = 8

// NewServer returns a Server, and opens nothing.
func NewServer(o Options) *Server {
	perSecond, burst := float64(o.PerMinute)/60, o.Burst
	return &Server{
		opts: o, protocol: strings.ToUpper(o.Name), sessions: map[string]*Session{}, up: make(chan struct{}),
		seats:  limit.NewSeats(o.Client+"s", limit.Shares(int64(o.MaxSessions), leastSessions)),
		posts:  limit.New[netip.Addr](perSecond, burst),
		others: limit.New[netip.Addr](20*perSecond, 20*burst), detention: limit.NewDetention(),
	}
}

// Run opens the media port and returns, with every session ended, when ctx ends.
func (s *Server) Run(ctx context.Context) error {
	port, err := openPort(s.opts.PortOptions)
	if err != nil {
		return fmt.Errorf("open the UDP port for %s: %w", s.protocol, err)
	}
	s.mu.Lock()
	s.port, s.running = port, true
	s.mu.Unlock()
	close(s.up)
	s.opts.Log.Info().Int("udp_port", port.number).Msg(s.protocol + " server started")
	<-ctx.Done()
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	for _, x := range s.Sessions() {
		x.Cancel("the server is stopping")
	}
	s.wg.Wait()
	if err := port.mux.Close(); err != nil {
		return fmt.Errorf("close the UDP port of %s: %w", s.protocol, err)
	}
	return nil
}

// UDPPort returns the number of the media port, 0 before Run has opened it.
func (s *Server) UDPPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == nil {
		return 0
	}
	return s.port.number
}

// Sessions returns the present sessions.
func (s *Server) Sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.sessions))
}

// Metrics returns the number of sessions and of refused ones.
func (s *Server) Metrics() prometheus.Collector { return s.seats }

// startWait bounds the wait of a request for Run.
const startWait = 2 * time.Second

// Start answers an offer and starts its session. It returns ErrBusy if there are too many, by the limit.Client of ctx.
func (s *Server) Start(ctx context.Context, o SessionOptions) (*Session, error) {
	select { // HTTP may be served before Run has opened the port
	case <-s.up:
	case <-time.After(startWait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	seated, seat, err := s.seats.Take(context.WithoutCancel(ctx), "", 1)
	if err != nil {
		return nil, fmt.Errorf("%w: %s; try again later", ErrBusy, limit.Why(err, "too many "+s.opts.Client+"s"))
	}
	port := s.enter()
	if port == nil {
		seat.Leave()
		return nil, fmt.Errorf("%w: the %s server is not running", ErrBusy, s.protocol)
	}
	x, err := s.newSession(ctx, port, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		seat.Leave()
		s.wg.Done()
		return nil, err
	}
	x.seat = seat
	context.AfterFunc(seated, func() { x.cancel(context.Cause(seated)) })
	s.sessions[x.id] = x
	if !s.running {
		x.Cancel("the server is stopping")
	}
	go x.run() // Run waits for it
	x.Log.Info().Stringer("address", o.From).Msg(s.protocol + " session started")
	return x, nil
}

// enter counts one more session and returns the port; nil if Run is not running.
func (s *Server) enter() *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	s.wg.Add(1)
	return s.port
}

func (s *Server) find(room, id string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil && x.Room == room {
		return x
	}
	return nil
}

// forget removes a session that is over.
func (s *Server) forget(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.id)
	x.seat.Leave()
	s.wg.Done()
}
