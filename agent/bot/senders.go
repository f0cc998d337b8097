package bot

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

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/camera"
	"touchline/agent/room"
	"touchline/configs"
	"touchline/media/source/conform"
	"touchline/media/source/whip"
)

// SendersOptions of Senders.
type SendersOptions struct {
	Config configs.Config
	Keys   room.Keys
	// Room is the one of stream keys that name none; "" has them be good for every room.
	Room string
	// LoopbackOnly takes media on this machine only; ServerHere says that the LiveKit server is on it too.
	LoopbackOnly, ServerHere bool
	// Closing tells that nobody is let in any more; may be nil.
	Closing func() bool
	Log     zerolog.Logger
}

// Senders are those who send a picture by WHIP to the page's address, each a
// participant of the room that it names. Run owns them.
type Senders struct {
	opts   SendersOptions
	feeds  *camera.Senders
	server *whip.Server
	keys   []agent.StreamKey
	made   []byte // what keys of rooms without one in the settings are made from
}

// errNoKeys is returned when participants for sources cannot be made.
var errNoKeys = errors.New("expected an API key and secret to bring cameras into the room; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")

// NewSenders prepares to take senders; nothing is opened yet.
func NewSenders(o SendersOptions) (*Senders, error) {
	if o.Keys.APIKey == "" {
		return nil, errNoKeys
	}
	cfg := o.Config.Sources.WHIP
	s := &Senders{opts: o, feeds: camera.NewSenders(feedOptions(o.Config, o.Keys, o.ServerHere, o.Log), 0), made: []byte(rand.Text())}
	var err error
	if s.keys, err = cfg.StreamKeys(); err != nil {
		return nil, err
	}
	var list []whip.StreamKey
	for i, k := range s.keys {
		s.keys[i].Room = cmp.Or(k.Room, o.Room)
		list = append(list, whip.StreamKey{Key: k.Key, Room: s.keys[i].Room, Identity: k.Identity, Name: k.Identity})
	}
	s.server, err = whip.New(whip.Options{
		Keys: list, Authorize: s.authorize, Open: s.open, Many: cfg.Many,
		UDPPort: cfg.UDPPort, ExternalIPs: cfg.ExternalIPs, ICEServers: ICEServers(o.Config.Agent.Console.ICE),
		LoopbackOnly: o.LoopbackOnly, Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare for WHIP senders: %w", err)
	}
	return s, nil
}

// feedOptions are what all sources of a program have in common.
func feedOptions(cfg configs.Config, keys room.Keys, loopback bool, log zerolog.Logger) camera.Options {
	return camera.Options{
		URL: cfg.Agent.LiveKit.URL, Keys: keys, LoopbackOnly: loopback,
		Mode: conform.Mode(cfg.Sources.Transcode), H265: cfg.Sources.PassHEVC, Log: log,
	}
}

// Run takes senders until ctx ends, and returns when all have left their rooms.
func (s *Senders) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.feeds.Run(ctx) })
	g.Go(func() error { return s.server.Run(ctx) })
	return g.Wait()
}

// Handler answers below /whip/ (RFC 9725).
func (s *Senders) Handler() http.Handler { return s.server.Handler() }

func (s *Senders) open(x *whip.Session) (whip.Place, error) {
	if s.opts.Closing != nil && s.opts.Closing() {
		return whip.Place{}, errors.New("the program is being stopped")
	}
	return s.feeds.Open(x)
}

// authorize judges what is no stream key of the settings.
func (s *Senders) authorize(token, name string) (whip.Sender, error) {
	if _, ok := s.set(name); !ok && subtle.ConstantTimeCompare([]byte(token), []byte(s.makeKey(name))) == 1 {
		return whip.Sender{Key: token, Identity: agent.StreamIdentity, Name: agent.StreamIdentity}, nil
	}
	return camera.Authorize(s.opts.Keys)(token, name)
}

// set is the first key of the settings that is good for a room.
func (s *Senders) set(name string) (key string, ok bool) {
	for _, k := range s.keys {
		if k.Room == "" || k.Room == name {
			return k.Key, true
		}
	}
	return "", false
}

// makeKey is the key of a room for which the settings have none: one for each, good as long as the program runs.
func (s *Senders) makeKey(name string) string {
	mac := hmac.New(sha256.New, s.made)
	mac.Write([]byte(name))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(mac.Sum(nil)[:16])
}

// endpoint is where a room's sender sends to, for whoever may steer it.
func (s *Senders) endpoint(name string) agent.WHIPEndpoint {
	key, ok := s.set(name)
	if !ok {
		key = s.makeKey(name)
	}
	return agent.WHIPEndpoint{Path: "/whip/" + url.PathEscape(name), Key: key}
}
