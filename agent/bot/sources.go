package bot

import (
	"context"
	"fmt"
	"net/http"

	"touchline/agent"
	"touchline/agent/camera"
	"touchline/internal/rescue"
	"touchline/media/source"
)

// SourcesOptions say what a bot's room may have brought into it.
type SourcesOptions struct {
	// Allow judges the addresses that the page and the API give.
	Allow source.Allow
	// LoopbackOnly takes the media of WHIP senders on this machine only.
	LoopbackOnly bool
	// Shared tells that WHIP senders are the caller's, for all rooms of the program: Senders, nil for none.
	// Otherwise the room takes its own, where the settings want any.
	Shared  bool
	Senders *Senders
}

// Sources are what the program brings into a bot's room: cameras that it
// opens, and senders that it takes by WHIP. Run owns them.
type Sources struct {
	*camera.Manager

	bot     *Bot
	senders *Senders // nil when none are taken
	shared  bool     // they are the caller's
}

// NewSources prepares them; nothing is opened yet. To be called before Console.
func (b *Bot) NewSources(o SourcesOptions) (*Sources, error) {
	cfg := b.opts.Config
	if b.opts.Keys.APIKey == "" {
		return nil, errNoKeys
	}
	s := &Sources{bot: b, senders: o.Senders, shared: o.Shared}
	var err error
	if !o.Shared && cfg.Sources.WHIP.Enabled {
		s.senders, err = NewSenders(SendersOptions{
			Config: cfg, Keys: b.opts.Keys, Room: b.Room.RoomName(), LoopbackOnly: o.LoopbackOnly, ServerHere: b.opts.LoopbackOnly, Log: b.log,
		})
		if err != nil {
			return nil, err
		}
	}
	common := feedOptions(cfg, b.opts.Keys, b.opts.LoopbackOnly, b.log)
	common.Room = b.Room.RoomName()
	m := camera.ManagerOptions{Feed: common, Allow: o.Allow, Max: cfg.Sources.Max, Log: b.log.With().Str("component", "sources").Logger()}
	if s.senders != nil {
		m.Senders = s.senders.feeds
	}
	if s.Manager, err = camera.NewManager(m); err != nil {
		return nil, fmt.Errorf("prepare the room's sources: %w", err)
	}
	b.sources = s
	return s, nil
}

// Run opens the sources and takes the room's own senders until ctx ends.
func (s *Sources) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return s.Manager.Run(ctx) })
	if s.senders != nil && !s.shared {
		g.Go(func() error { return s.senders.Run(ctx) })
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
	if s.senders == nil {
		return agent.WHIPEndpoint{}, false
	}
	return s.senders.endpoint(s.bot.Room.RoomName()), true
}

// handler answers at /whip/; nil when senders are not taken.
func (s *Sources) handler() http.Handler {
	if s == nil || s.senders == nil {
		return nil
	}
	return s.senders.Handler()
}
