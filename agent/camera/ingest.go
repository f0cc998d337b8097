package camera

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/room/conn"
	"touchline/internal/metrics"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/transcode"
	"touchline/media/source/whip"
)

// IngestOptions of an Ingest.
type IngestOptions struct {
	Config Config
	// ICE lists the STUN and TURN servers for senders.
	ICE signaling.ICEConfig
	// URL of the LiveKit server.
	URL  string
	Keys conn.Keys
	// Room is the room of stream keys without a room; "" makes them valid for every room.
	Room string
	// LoopbackOnly receives media on loopback addresses only. ServerHere is set if the LiveKit server is on this machine.
	LoopbackOnly, ServerHere bool
	// Closing reports whether new senders are refused; may be nil.
	Closing func() bool
	Log     zerolog.Logger
}

// Ingest is the WHIP server of the page's address. Each sender is a participant of
// the room that it names. Ingest decides which stream key is valid for which room.
type Ingest struct {
	opts   IngestOptions
	feeds  *Senders
	server *whip.Server
	keys   []whip.StreamKey
	secret []byte // derives the keys of rooms without a configured key
}

// ErrNoKeys is returned if there are no API keys to create participants with.
var ErrNoKeys = errors.New("publishing cameras needs an API key and secret; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")

// NewIngest checks the options; nothing is opened yet.
func NewIngest(o IngestOptions) (*Ingest, error) {
	if o.Keys.APIKey == "" {
		return nil, ErrNoKeys
	}
	cfg := o.Config.WHIP
	s := &Ingest{opts: o, feeds: NewSenders(o.Config.Feed(o.URL, o.Keys, o.ServerHere, o.Log)), secret: []byte(rand.Text())}
	var err error
	if s.keys, err = cfg.StreamKeys(); err != nil {
		return nil, err
	}
	for i, k := range s.keys {
		s.keys[i].Room, s.keys[i].Name = cmp.Or(k.Room, o.Room), k.Identity
	}
	s.server, err = whip.New(whip.Options{
		Keys: s.keys, Authorize: s.authorize, Open: s.open, Many: cfg.Many,
		PortOptions: signaling.PortOptions{
			UDPPort: cfg.UDPPort, ExternalIPs: cfg.ExternalIPs, ICEServers: o.ICE.ICEServers(), LoopbackOnly: o.LoopbackOnly,
		},
		Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare for WHIP senders: %w", err)
	}
	return s, nil
}

// Feed returns the options that all feeds of a program have in common. Loopback
// keeps media sockets on 127.0.0.1, for a server on this machine.
func (c Config) Feed(url string, keys conn.Keys, loopback bool, log zerolog.Logger) Options {
	return Options{
		URL: url, Keys: keys, LoopbackOnly: loopback, Mode: transcode.Mode(c.Transcode), H265: c.PassHEVC, Log: log,
	}
}

// Run accepts senders until ctx ends, and returns when all have left their rooms.
func (s *Ingest) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.feeds.Run(ctx) })
	g.Go(func() error { return s.server.Run(ctx) })
	return g.Wait()
}

// Senders returns the participants of the senders.
func (s *Ingest) Senders() *Senders { return s.feeds }

// Handler serves requests below /whip/.
func (s *Ingest) Handler() http.Handler { return endpoint{s.server, s.feeds} }

// endpoint is the WHIP server, with the participants of its senders among its metrics.
type endpoint struct {
	*whip.Server

	feeds *Senders
}

// Metrics returns those of the server, and the number of participants.
func (e endpoint) Metrics() prometheus.Collector {
	return metrics.Bundle{e.Server.Metrics(), metrics.Gauge(
		"touchline_whip_participants", "Participants of WHIP senders, also of those that left within the last minute.", e.feeds.participants,
	)}
}

func (s *Ingest) open(x *whip.Session) (whip.Place, error) {
	if s.opts.Closing != nil && s.opts.Closing() {
		return whip.Place{}, errors.New("the program is stopping")
	}
	return s.feeds.Open(x)
}

// authorize checks tokens other than the configured stream keys.
func (s *Ingest) authorize(token, name string) (whip.Sender, error) {
	if _, ok := s.configured(name); !ok && subtle.ConstantTimeCompare([]byte(token), []byte(s.makeKey(name))) == 1 {
		return whip.Sender{Key: token, Holder: token, Identity: StreamIdentity, Name: StreamIdentity}, nil
	}
	return Authorize(s.opts.Keys)(token, name)
}

// configured returns the first configured key that is valid for a room.
func (s *Ingest) configured(name string) (key string, ok bool) {
	for _, k := range s.keys {
		if k.Room == "" || k.Room == name {
			return k.Key, true
		}
	}
	return "", false
}

// makeKey returns the key of a room without a configured key. It is valid until the program ends.
func (s *Ingest) makeKey(name string) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(name))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mac.Sum(nil)[:16])
}

// Endpoint returns the address and the key for senders of a room. Only users that may steer the room may see the key.
func (s *Ingest) Endpoint(name string) source.WHIPEndpoint {
	key, ok := s.configured(name)
	if !ok {
		key = s.makeKey(name)
	}
	return source.WHIPEndpoint{Path: "/whip/" + url.PathEscape(name), Key: key}
}
