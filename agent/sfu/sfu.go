// Package sfu runs a LiveKit server inside this process, for the demo, for
// standalone use and for tests.
//
// It owns the server's lifetime, its ports and its keys. Every socket is on 127.0.0.1, unless Options.MediaIP is another address.
// It never joins a room and never contacts another machine.
package sfu

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/zerologr"
	"github.com/goccy/go-yaml"
	"github.com/livekit/livekit-server/pkg/config"
	"github.com/livekit/livekit-server/pkg/routing"
	"github.com/livekit/livekit-server/pkg/service"
	"github.com/livekit/livekit-server/pkg/telemetry/prometheus"
	"github.com/livekit/protocol/livekit"
	"github.com/livekit/protocol/logger"
	"github.com/rs/zerolog"
	"github.com/ua-parser/uap-go/uaparser"
)

// loopback is the address of signalling, and the default address of media.
const loopback = "127.0.0.1"

// minSecret is the shortest secret that LiveKit accepts without a warning.
const minSecret = 32

// stopTimeout bounds the wait for an orderly stop.
const stopTimeout = 3 * time.Second

// Options set one server. The zero value is a server on free ports with random keys.
type Options struct {
	// HTTPPort carries signalling and the API; 0 takes a free one.
	HTTPPort int
	// UDPPort carries all media; 0 takes a free one.
	UDPPort int
	// MediaIP is this machine's IPv4 address for media, so that other machines can participate; 127.0.0.1 when "". Signalling
	// stays on 127.0.0.1, behind a proxy.
	MediaIP string
	// ExternalIP is the IPv4 address to which clients send media, if a router or a container's host forwards UDPPort to MediaIP;
	// "" is MediaIP itself. Participants in this process do not use it.
	ExternalIP string
	// APIKey and APISecret (at least 32 characters) are the keys; both are generated when empty.
	APIKey, APISecret string
	// DepartureTimeout is how long an empty room stays open; 0 is LiveKit's 20 s.
	DepartureTimeout time.Duration
	// VideoCodecs are the MIME types of pictures that rooms allow; nil for LiveKit's defaults.
	VideoCodecs []string
	// Log receives the server's warnings and errors. LiveKit has one logger per process: all servers use the first one's.
	Log zerolog.Logger
}

// Server is one LiveKit server. It is used once: New, then Run.
type Server struct {
	opts  Options
	conf  *config.Config
	ready chan struct{}
}

// Process-wide state of the server library.
var (
	// Its counters are package variables. Using them before Init panics, and so does a second Init.
	countersOnce = sync.OnceValue(func() error { //nolint:gochecknoglobals // mirrors a process-wide fact of the server
		return prometheus.Init("touchline", livekit.NodeType_SERVER)
	})
	// LiveKit's logger is a package variable that is read without a lock.
	loggerOnce sync.Once //nolint:gochecknoglobals // as above
	// Its rules for browsers are a package variable that is read once.
	browsersOnce sync.Once //nolint:gochecknoglobals // as above
)

// New checks the options, chooses ports and keys, and returns a server that
// does not listen yet.
func New(opts Options) (*Server, error) {
	if (opts.APIKey == "") != (opts.APISecret == "") {
		return nil, errors.New("the LiveKit server needs both an API key and an API secret, or neither; it got one")
	}
	if opts.APIKey == "" {
		opts.APIKey, opts.APISecret = "touchline", rand.Text()+rand.Text()
	}
	if len(opts.APISecret) < minSecret {
		return nil, fmt.Errorf("the LiveKit server's API secret must have %d characters or more, has %d",
			minSecret, len(opts.APISecret))
	}
	for _, port := range []int{opts.HTTPPort, opts.UDPPort} {
		if port < 0 || port > 65535 {
			return nil, fmt.Errorf("the LiveKit server's port must be between 0 and 65535, is %d", port)
		}
	}
	mediaIP, err := ownIPv4(cmp.Or(opts.MediaIP, loopback))
	if err != nil {
		return nil, err
	}
	opts.MediaIP = mediaIP.String()
	if external := net.ParseIP(opts.ExternalIP).To4(); opts.ExternalIP != "" && (external == nil || external.IsUnspecified()) {
		return nil, fmt.Errorf("the external IPv4 address of the LiveKit server's media must be one that clients reach, is %q", opts.ExternalIP)
	}
	if opts.HTTPPort == 0 {
		if opts.HTTPPort, err = freePort("tcp", net.IPv4(127, 0, 0, 1)); err != nil {
			return nil, err
		}
	}
	if opts.UDPPort == 0 {
		if opts.UDPPort, err = freePort("udp", mediaIP); err != nil {
			return nil, err
		}
	}
	conf, err := serverConfig(opts)
	if err != nil {
		return nil, err
	}
	browsersOnce.Do(func() { uaparser.DefinitionYaml = []byte(browsers) })
	return &Server{opts: opts, conf: conf, ready: make(chan struct{})}, nil
}

// ownIPv4 parses an address and checks that it is this machine's.
func ownIPv4(text string) (net.IP, error) {
	ip := net.ParseIP(text).To4()
	if ip == nil || ip.IsUnspecified() {
		return nil, fmt.Errorf("the LiveKit server's media address must be one IPv4 address of this machine, is %q", text)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && (n.IP.Equal(ip) || ip.IsLoopback() && n.IP.IsLoopback()) {
			return ip, nil
		}
	}
	return nil, fmt.Errorf("the LiveKit server's media address must be an IPv4 address of this machine, is %s; it has %v", text, own)
}

func freePort(network string, ip net.IP) (int, error) {
	if network == "udp" {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip})
		if err != nil {
			return 0, fmt.Errorf("find a free UDP port: %w", err)
		}
		return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: ip})
	if err != nil {
		return 0, fmt.Errorf("find a free TCP port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// serverConfig writes LiveKit's own configuration.
func serverConfig(opts Options) (*config.Config, error) {
	type dict = map[string]any
	room := dict{}
	if opts.DepartureTimeout > 0 {
		room["departure_timeout"] = max(1, int(opts.DepartureTimeout/time.Second))
	}
	if opts.VideoCodecs != nil {
		codecs := []dict{{"mime": "audio/opus"}}
		for _, mime := range opts.VideoCodecs {
			codecs = append(codecs, dict{"mime": mime})
		}
		room["enabled_codecs"] = codecs
	}
	text, err := yaml.Marshal(dict{
		"port":           opts.HTTPPort,
		"bind_addresses": []string{loopback},
		"keys":           map[string]string{opts.APIKey: opts.APISecret},
		"room":           room,
		"logging":        dict{"level": "warn"},
		"rtc": dict{
			"node_ip":                   cmp.Or(opts.ExternalIP, opts.MediaIP),
			"use_external_ip":           false,
			"enable_loopback_candidate": net.ParseIP(opts.MediaIP).IsLoopback(),
			// One socket, on this address alone.
			"ips":      dict{"includes": []string{opts.MediaIP + "/32"}},
			"udp_port": opts.UDPPort,
			// Media over TCP would listen on every interface, regardless of bind_addresses.
			"tcp_port": 0,
			// Without a TURN server, the server sends its clients to public STUN servers. This one never answers, which is
			// fine because every client reaches the media's address. Browsers must allow its port: Firefox joins no room with
			// a well-known port, such as 9.
			"turn_servers": []dict{{
				"host": loopback, "port": opts.HTTPPort, "protocol": "udp", "username": "none", "credential": "none",
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write the LiveKit server's configuration: %w", err)
	}
	conf, err := config.NewConfig(string(text), true, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read the LiveKit server's configuration: %w", err)
	}
	return conf, nil
}

// Run serves until ctx ends (nil) or the server fails. When it returns, all participants are disconnected and the ports are free.
func (s *Server) Run(ctx context.Context) error {
	loggerOnce.Do(func() {
		zl := s.opts.Log.Level(max(zerolog.WarnLevel, s.opts.Log.GetLevel()))
		logger.SetLogger(logger.LogRLogger(zerologr.New(&zl)), "livekit")
	})
	if err := countersOnce(); err != nil {
		return fmt.Errorf("prepare the LiveKit server's counters: %w", err)
	}
	// The server would keep its media socket open if the other port is in use.
	probe, err := new(net.ListenConfig).Listen(ctx, "tcp4", s.HTTPAddr())
	if err != nil {
		return fmt.Errorf("open the LiveKit server on %s: %w", s.HTTPAddr(), err)
	}
	if err := probe.Close(); err != nil {
		return fmt.Errorf("open the LiveKit server on %s: %w", s.HTTPAddr(), err)
	}
	node, err := routing.NewLocalNode(s.conf)
	if err != nil {
		return fmt.Errorf("make the LiveKit node: %w", err)
	}
	srv, err := service.InitializeServer(s.conf, node)
	if err != nil {
		return fmt.Errorf("open the LiveKit server on %s (media port %d): %w", s.HTTPAddr(), s.opts.UDPPort, err)
	}

	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- srv.Start()
	}()
	if err := s.waitUp(ctx, srv, ended); err != nil && ctx.Err() == nil {
		if srv.IsRunning() {
			srv.Stop(true)
		}
		return err
	}
	if ctx.Err() == nil {
		close(s.ready)
	}

	select {
	case err = <-ended:
		if err == nil {
			err = errors.New("it stopped by itself")
		}
		return fmt.Errorf("run the LiveKit server: %w", err)
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		srv.Stop(true)
		for range ended {
		}
	}()
	select {
	case <-stopped:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("stop the LiveKit server: it did not end within %s", stopTimeout)
	}
}

// waitUp returns when the server answers its health check.
func (s *Server) waitUp(ctx context.Context, srv *service.LivekitServer, ended <-chan error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for {
		select {
		case <-ctx.Done():
			// The server sleeps 100 ms inside its start and cannot be stopped before it is up.
			for !srv.IsRunning() {
				select {
				case <-tick.C:
				case err := <-ended:
					return err
				case <-deadline:
					return ctx.Err()
				}
			}
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("start the LiveKit server on %s: %w", s.HTTPAddr(), err)
		case <-deadline:
			return fmt.Errorf("start the LiveKit server on %s: no answer to its health check in 10 s", s.HTTPAddr())
		case <-tick.C:
			if srv.IsRunning() && healthy(ctx, client, "http://"+s.HTTPAddr()+"/") {
				return nil
			}
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Ready returns when participants can join, or with ctx's error.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the LiveKit server: %w", ctx.Err())
	}
}

// URL is where participants join: ws://127.0.0.1:PORT.
func (s *Server) URL() string { return "ws://" + s.HTTPAddr() }

// HTTPAddr is host:port of signalling and API.
func (s *Server) HTTPAddr() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.opts.HTTPPort))
}

// UDPAddr is host:port of all media.
func (s *Server) UDPAddr() string {
	return net.JoinHostPort(s.opts.MediaIP, strconv.Itoa(s.opts.UDPPort))
}

// Options returns the options with the ports and keys that New has chosen.
func (s *Server) Options() Options { return s.opts }

// APIKey is the key of the server.
func (s *Server) APIKey() string { return s.opts.APIKey }

// APISecret signs access tokens. Do not log it.
func (s *Server) APISecret() string { return s.opts.APISecret }
