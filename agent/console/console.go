// Package console serves one bot, or the bots of many rooms, over HTTP: the
// control API, server-sent events, pictures and sound for plain players, metrics,
// health, and the page.
//
// It owns the listener, its access checks (Host, Origin, token) and the list of rooms. It decides nothing about the commentary,
// never blocks a session, and uses a bot only through agent.Steerer and the small interfaces of this package. Server.Run owns
// every goroutine.
package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	stdlog "log" //nolint:depguard // net/http reports by it; logWriter leads to the injected logger
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/access"
	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/internal/limit"
	"touchline/internal/metrics"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/speech"
)

// Pictures is the source of pictures for plain players.
type Pictures interface {
	// Snapshot returns the newest picture.
	Snapshot(ctx context.Context) (media.VideoFrame, error)
	// Delayed yields the delayed pictures when they are due, with their time in the room as Arrival, until ctx ends or the caller
	// stops. It is called only while there are watchers.
	Delayed(ctx context.Context) iter.Seq[media.VideoFrame]
}

// Sound is the published voice, 48 kHz mono.
type Sound interface {
	// Frames returns a channel of the sent sound, including silence, and a function that ends it. A slow reader loses frames.
	Frames() (<-chan speech.Frame, func())
}

// Grant admits a participant to the room.
type Grant struct {
	Token    string // LiveKit access token
	Identity string
	Room     string
	Agent    string // the commentator's identity; "" when not known
}

// Tokens makes access tokens of a room. The role is "viewer" or "camera". A viewer gets the same rights as on the page, until they
// end there; a zero time is never.
type Tokens interface {
	Mint(role, name string, who access.Grant) (Grant, error)
}

// Players serves viewers without a LiveKit client.
type Players interface {
	// ServeWHEP answers a request.
	ServeWHEP(w http.ResponseWriter, r *http.Request, a signaling.Admission)
	// Metrics returns the metrics of the players.
	Metrics() prometheus.Collector
	// Run serves until ctx ends.
	Run(ctx context.Context) error
}

// Options configure a Server, of one room or of many.
type Options struct {
	Config Config

	// Room is the only room; ignored when Rooms is set.
	Room Room
	// Rooms are the rooms, when there may be several.
	Rooms *Rooms
	// Engine reports the loading of the rooms' engine; nil for a single room, whose Bot reports it.
	Engine func() inference.Status
	// Dispatcher brings commentators into rooms; nil for none.
	Dispatcher Dispatcher
	// WHEP serves players at /whep/ROOM while the Server runs; nil for none.
	WHEP Players
	// WHIP serves senders at /whip/ROOM (RFC 9725) and checks their tokens; nil for none.
	WHIP http.Handler
	// Speech answers /v1/audio/; nil for none.
	Speech *audioapi.Handler
	// Transcription answers the rest of /v1/ and /ws/transcribe while the Server runs; nil for none.
	Transcription *audioapi.Transcriber
	// Keys sign the tokens of shared links; without them there are none.
	Keys access.Keys
	// SignalURL is the URL of the LiveKit server (ws, wss, http or https) to which /rtc is proxied.
	SignalURL string

	// Registry of the metrics, served at /metrics; a new one when nil.
	Registry *prometheus.Registry
	// WebDir is the folder of the built page; "" is the page in the program, or agent/console/web/dist in the working directory
	// if the program has none.
	WebDir string
	// Announce is called once when the server listens, with the address to open. If a generated token is required, the address
	// ends in #token=... If Announce is nil, the address is logged without the token.
	Announce func(url string)

	Log zerolog.Logger
}

// ErrConfig is returned by New for settings that cannot be used.
var ErrConfig = errors.New("console settings")

const (
	// shutdownTime bounds the running requests when Run ends.
	shutdownTime = 700 * time.Millisecond
	// lastWait bounds their goroutines after that, with their connections closed.
	lastWait = 200 * time.Millisecond
	// readTime bounds the reading of a request, writeTime the writing of an answer or of one piece of a stream.
	readTime  = 15 * time.Second
	writeTime = 20 * time.Second
	// minToken is the shortest configured token, in characters.
	minToken = 16
	// maxStreams bounds the readers of each kind of stream in a room.
	maxStreams = 256
	// maxSignals bounds the requests and sockets at /rtc, maxConnections the TCP connections.
	maxSignals, maxConnections = 1024, 8192
	// These rates a second and bursts bound the requests of a link, which many people may share; limit.Rates has those of an address.
	readRate, readBurst       = 100, 1000
	changeRate, changeBurst   = 10, 100
	pictureRate, pictureBurst = 10, 100
	// Each deletion of what people said may read the history on the disk.
	deletionRate, deletionBurst = 0.2, 5
)

// Server serves the console. Make it by New.
type Server struct {
	opts    Options
	log     zerolog.Logger
	rooms   *Rooms
	single  *roomEntry // the only room; nil when there may be several
	guard   *guard
	tls     *tls.Config // nil for plain HTTP
	handler http.Handler
	served  []string      // method and path of every operation
	busy    chan struct{} // slots for making pictures on request

	readers   *limit.Seats
	signals   *limit.Seats // requests and sockets at /rtc
	accepted  *limit.Connections
	reads     *limit.Rates           // requests that change nothing
	changes   *limit.Rates           // all others, each of which may be a line in the log
	pictures  *limit.Rates           // that are encoded on request
	deletions *limit.Rates           // of what people said
	detention limit.Detention        // of requests beyond a limit
	requests  *prometheus.CounterVec // finished, by route and status
	expired   prometheus.Counter     // ended with their links

	readTime, writeTime time.Duration
	announce            sync.Once
	flight              flight
	still               limit.Standstill

	url atomic.Pointer[string]
}

// New checks the settings and prepares a Server; nothing listens yet.
func New(opts Options) (*Server, error) {
	if opts.Config.KeepAlive <= 0 {
		opts.Config.KeepAlive = 15 * time.Second
	}
	if opts.Registry == nil {
		opts.Registry = prometheus.NewRegistry()
	}
	g, err := newGuard(opts.Config, opts.Keys)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts:  opts,
		log:   opts.Log.With().Str("component", "console").Logger(),
		rooms: opts.Rooms,
		guard: g,
		busy:  make(chan struct{}, 2),

		readers:   limit.NewSeats("readers", readers()),
		signals:   limit.NewSeats("signalling_sockets", limit.Shares(maxSignals, 1)),
		accepted:  limit.NewConnections(maxConnections, g.proxies.trust),
		reads:     limit.NewRates("requests", readRate, readBurst),
		changes:   limit.NewRates("changes", changeRate, changeBurst),
		pictures:  limit.NewRates("pictures", pictureRate, pictureBurst),
		deletions: limit.NewRates("deletions", deletionRate, deletionBurst),
		detention: limit.NewDetention(),

		readTime: readTime, writeTime: writeTime,
	}
	if s.rooms == nil {
		s.rooms = NewRooms(1, opts.Log)
		s.rooms.single, s.rooms.events = true, nil
		if _, err := s.rooms.Add(opts.Room); err != nil {
			return nil, err
		}
		s.single = s.rooms.get(opts.Room.Name)
	}
	if s.tls, err = TLSConfig(opts.Config, time.Now, s.log); err != nil {
		return nil, err
	}
	if err := opts.Registry.Register(metrics.Func(s.collectTLS)); err != nil {
		return nil, fmt.Errorf("register the metrics of TLS: %w", err)
	}
	if s.requests, s.expired, err = registerMetrics(s.rooms, opts.Registry); err != nil {
		return nil, err
	}
	if err := s.registerParts(); err != nil {
		return nil, err
	}
	handler, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.handler = g.proxies.behind(handler)
	return s, nil
}

// metered is a part with metrics of its own.
type metered interface{ Metrics() prometheus.Collector }

// registerParts registers the metrics of the parts behind the console.
func (s *Server) registerParts() error {
	parts := map[string]metered{}
	if s.opts.Transcription != nil {
		parts["transcription"] = s.opts.Transcription
	}
	if s.opts.Speech != nil {
		parts["speech"] = s.opts.Speech
	}
	if s.opts.WHEP != nil {
		parts["WHEP"] = s.opts.WHEP
	}
	if whip, ok := s.opts.WHIP.(metered); ok {
		parts["WHIP"] = whip
	}
	for _, c := range []prometheus.Collector{
		s.readers, s.signals, s.accepted, s.reads, s.changes, s.pictures, s.deletions, metrics.Func(s.collectLinks),
	} {
		if err := s.opts.Registry.Register(c); err != nil {
			return fmt.Errorf("register the metrics of limits: %w", err)
		}
	}
	for name, part := range parts {
		if err := s.opts.Registry.Register(part.Metrics()); err != nil {
			return fmt.Errorf("register the metrics of %s: %w", name, err)
		}
	}
	return nil
}

// URL is the address to open in a browser on this machine or its network,
// without the token; "" until Run listens.
func (s *Server) URL() string {
	if u := s.url.Load(); u != nil {
		return *u
	}
	return ""
}

// Run listens and serves until ctx ends. It returns within a second after that, with all streams and goroutines ended.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.opts.Config.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (console.listen): %w", s.opts.Config.Listen, err)
	}
	return s.serve(ctx, ln)
}

func (s *Server) serve(ctx context.Context, ln net.Listener) error {
	addr, err := netip.ParseAddrPort(ln.Addr().String())
	if err != nil {
		_ = ln.Close()
		return fmt.Errorf("read the listen address: %w", err)
	}
	if s.guard.loopback && !addr.Addr().Unmap().IsLoopback() {
		_ = ln.Close()
		return fmt.Errorf("%w: console.listen %q resolves to %s, which is no loopback address",
			ErrConfig, s.opts.Config.Listen, addr.Addr())
	}
	ln = s.accepted.Bind(ln)
	scheme := "http"
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls)
		scheme = "https"
	}
	home := fmt.Sprintf("%s://%s/", scheme, reachable(addr, s.opts.Config.Listen))
	s.url.Store(&home)

	// Streams end by this context, before the server is shut down.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	srv := s.httpServer(base)
	g, ctx := errgroup.WithContext(ctx)
	if s.opts.WHEP != nil {
		g.Go(func() error { return s.opts.WHEP.Run(ctx) })
	}
	if s.opts.Transcription != nil {
		g.Go(func() error { return s.opts.Transcription.Run(ctx) })
	}
	g.Go(func() error {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the console: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stop()
		// Running requests may finish.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := srv.Shutdown(end); err != nil {
			s.log.Warn().Err(err).Msg("requests cut off at shutdown")
			return srv.Close()
		}
		return nil
	})
	g.Go(s.rooms.open(ctx))
	g.Go(func() error { return s.watchStandstill(ctx) })

	s.announce.Do(func() { s.announceURL(home) })
	err = g.Wait()
	// Shutdown does not wait for hijacked connections, and Close waits for nothing.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
	defer cancel()
	if n := s.flight.wait(end); n > 0 {
		s.log.Warn().Int("requests", n).Msg("requests outlived the console")
	}
	return err
}

// watchStandstill shows, by its absence, that the process stands still.
func (s *Server) watchStandstill(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.still.Check(time.Now())
		}
	}
}

// httpServer returns the HTTP server; its requests end with base.
func (s *Server) httpServer(base context.Context) *http.Server {
	return &http.Server{
		Handler:           s.flight.track(s.handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.readTime,
		WriteTimeout:      s.writeTime,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          stdlog.New(logWriter{s.log}, "", 0),
		Protocols:         protocols(s.tls != nil),
	}
}

// announceURL logs the address, or passes it to Options.Announce, with a generated token.
func (s *Server) announceURL(home string) {
	if s.opts.Announce == nil {
		s.log.Info().Str("url", home).Msg("console listening")
		return
	}
	if s.guard.made && !s.guard.exempt {
		home += "#token=" + url.QueryEscape(s.guard.token)
	}
	s.opts.Announce(home)
}

// flight counts the running requests, so that Run can wait for them.
type flight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed at zero; nil unless wait waits
}

func (f *flight) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.n++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.n--
			if f.n == 0 && f.idle != nil {
				close(f.idle)
				f.idle = nil
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// wait returns when no request runs. At the end of ctx it returns the number of running requests.
func (f *flight) wait(ctx context.Context) int {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return 0
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return 0
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.n
	}
}

// reachable returns an address that a browser can open for a listen address.
func reachable(addr netip.AddrPort, listen string) string {
	port := strconv.Itoa(int(addr.Port()))
	if !addr.Addr().IsUnspecified() {
		if host, _, err := net.SplitHostPort(listen); err == nil && host == "localhost" {
			return net.JoinHostPort(host, port)
		}
		return net.JoinHostPort(addr.Addr().Unmap().String(), port)
	}
	for _, ip := range interfaceAddrs() {
		if ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return net.JoinHostPort(ip.String(), port)
		}
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// interfaceAddrs lists this machine's addresses; nil when they cannot be read.
func interfaceAddrs() []netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, p.Addr().Unmap())
		}
	}
	return ips
}

// machineNames returns the names of this machine in its network.
func machineNames() []string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return nil
	}
	name = strings.ToLower(name)
	if strings.Contains(name, ".") {
		return []string{name}
	}
	return []string{name, name + ".local"}
}

// protocols returns HTTP/1.1, and HTTP/2 under TLS.
func protocols(secure bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(secure)
	return p
}

// logWriter logs errors of the HTTP server, such as failed handshakes.
type logWriter struct{ log zerolog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.Debug().Str("text", strings.TrimSpace(string(p))).Msg("http server")
	return len(p), nil
}
