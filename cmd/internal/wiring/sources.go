package wiring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/cmd/internal/feed"
	"touchline/internal/rescue"
	"touchline/media/source"
	"touchline/media/source/conform"
	"touchline/media/source/whip"
)

// SourcesOptions say what a bot's room may have brought into it.
type SourcesOptions struct {
	// Allow judges the addresses that the page and the API give.
	Allow source.Allow
	// LoopbackOnly takes the media of WHIP senders on this machine only.
	LoopbackOnly bool
	// NoSenders takes none, whatever the settings say.
	NoSenders bool
}

// Sources are what the program brings into a bot's room: cameras that it
// opens, and senders that it takes by WHIP. Run owns them.
type Sources struct {
	*feed.Manager

	bot     *Bot
	senders *feed.Senders
	server  *whip.Server // nil when senders are not taken
	key     string       // shown to whoever may steer
}

// NewSources prepares them; nothing is opened yet. To be called before Console.
func (b *Bot) NewSources(o SourcesOptions) (*Sources, error) {
	cfg, lk := b.opts.Config.Sources, b.opts.Config.Agent.LiveKit
	if b.opts.Keys.APIKey == "" {
		return nil, errNoKeys
	}
	common := feed.Options{
		URL: lk.URL, Keys: b.opts.Keys, Room: b.Room.RoomName(), LoopbackOnly: b.opts.LoopbackOnly,
		Mode: conform.Mode(cfg.Transcode), H265: cfg.PassHEVC, Log: b.log,
	}
	s := &Sources{bot: b, senders: feed.NewSenders(common, 0)}
	var err error
	s.Manager, err = feed.NewManager(feed.ManagerOptions{
		Feed: common, Allow: o.Allow, Max: cfg.Max, Senders: s.senders,
		Log: b.log.With().Str("component", "sources").Logger(),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the room's sources: %w", err)
	}
	if cfg.WHIP.Enabled && !o.NoSenders {
		if err := s.takeSenders(cfg.WHIP, b.opts.Keys, o.LoopbackOnly); err != nil {
			return nil, err
		}
	}
	b.sources = s
	return s, nil
}

// errNoKeys is returned when participants for sources cannot be made.
var errNoKeys = errors.New("expected an API key and secret to bring cameras into the room; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")

func (s *Sources) takeSenders(cfg agent.WHIPConfig, keys room.Keys, loopback bool) error {
	own, err := cfg.StreamKeys()
	if err != nil {
		return err
	}
	if len(own) == 0 {
		own = []agent.StreamKey{{Identity: "camera", Key: rand.Text()}}
	}
	s.key = own[0].Key
	var list []whip.StreamKey
	for _, k := range own {
		list = append(list, whip.StreamKey{Key: k.Key, Room: s.bot.Room.RoomName(), Identity: k.Identity, Name: k.Identity})
	}
	s.server, err = whip.New(whip.Options{
		Keys: list, Authorize: feed.Authorize(keys), Open: s.senders.Open, Many: cfg.Many,
		UDPPort: cfg.UDPPort, ExternalIPs: cfg.ExternalIPs, LoopbackOnly: loopback, Now: time.Now, Log: s.bot.log,
	})
	if err != nil {
		return fmt.Errorf("prepare for WHIP senders: %w", err)
	}
	return nil
}

// Run opens the sources and takes senders until ctx ends.
func (s *Sources) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return s.Manager.Run(ctx) })
	if s.server != nil {
		g.Go(func() error { return s.senders.Run(ctx) })
		g.Go(func() error { return s.server.Run(ctx) })
	}
	return g.Wait()
}

// Sources implements console.Sources.
func (s *Sources) Sources() []agent.Source {
	out := s.Manager.Sources()
	watched := s.bot.Room.Watcher().Source().Identity
	if watched == "" { // what was chosen and is not there yet
		watched = s.bot.Room.Watcher().Watching().Identity
	}
	for i := range out {
		out[i].Watched = out[i].Identity == watched && watched != ""
	}
	return out
}

// Cameras implements console.Sources.
func (s *Sources) Cameras() []agent.RoomCamera { return s.bot.Room.Watcher().Cameras() }

// Scene implements console.Sources.
func (s *Sources) Scene() bool { return s.bot.opts.BuiltIn != "" }

// WHIP implements console.Sources.
func (s *Sources) WHIP() (agent.WHIPEndpoint, bool) {
	if s.server == nil {
		return agent.WHIPEndpoint{}, false
	}
	return agent.WHIPEndpoint{Path: "/whip/" + url.PathEscape(s.bot.Room.RoomName()), Key: s.key}, true
}

// handler answers at /whip/; nil when senders are not taken.
func (s *Sources) handler() http.Handler {
	if s == nil || s.server == nil {
		return nil
	}
	return s.server.Handler()
}
