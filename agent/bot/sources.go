package bot

import (
	"context"
	"fmt"
	"net/http"

	"touchline/agent/camera"
	"touchline/internal/rescue"
	"touchline/media/source"
)

// SourcesOptions set which sources a bot's room may have.
type SourcesOptions struct {
	// Allow decides which addresses the page and the API may open.
	Allow source.Allow
	// LoopbackOnly takes the media of WHIP senders on this machine only.
	LoopbackOnly bool
	// Shared makes Ingest, nil for none, the WHIP ingest; it belongs to the caller and serves all rooms.
	// Otherwise the room has its own ingest, if the settings enable it.
	Shared bool
	Ingest *camera.Ingest
}

// Sources are the cameras that the program opens for a bot's room, and its WHIP
// senders. Run owns them.
type Sources struct {
	*camera.Manager

	bot    *Bot
	ingest *camera.Ingest // nil when WHIP ingest is off
	shared bool           // the ingest is the caller's
}

// NewSources makes the bot's sources; nothing is opened yet. Call it before Console.
func (b *Bot) NewSources(o SourcesOptions) (*Sources, error) {
	cfg := b.opts.Settings
	if b.opts.Keys.APIKey == "" {
		return nil, camera.ErrNoKeys
	}
	s := &Sources{bot: b, ingest: o.Ingest, shared: o.Shared}
	var err error
	if !o.Shared && cfg.Sources.WHIP.Enabled {
		s.ingest, err = camera.NewIngest(camera.IngestOptions{
			Config: cfg.Sources, ICE: cfg.ICE, URL: cfg.LiveKit.URL, Keys: b.opts.Keys, Room: b.Room.RoomName(),
			LoopbackOnly: o.LoopbackOnly, ServerHere: b.opts.LoopbackOnly, Log: b.log,
		})
		if err != nil {
			return nil, err
		}
	}
	common := cfg.Sources.Feed(cfg.LiveKit.URL, b.opts.Keys, b.opts.LoopbackOnly, b.log)
	common.Room = b.Room.RoomName()
	m := camera.ManagerOptions{Feed: common, Allow: o.Allow, Max: cfg.Sources.Max, Log: b.log.With().Str("component", "sources").Logger()}
	if s.ingest != nil {
		m.Senders = s.ingest.Senders()
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
	if s.ingest != nil && !s.shared {
		g.Go(func() error { return s.ingest.Run(ctx) })
	}
	return g.Wait()
}

// Sources implements console.Sources.
func (s *Sources) Sources() []source.Info {
	out := s.Manager.Sources()
	watched := s.bot.Room.Watcher().Source().Identity
	if watched == "" { // chosen, and not in the room yet
		watched = s.bot.Room.Watcher().Watching().Identity
	}
	for i := range out {
		out[i].Watched = out[i].Identity == watched && watched != ""
	}
	return out
}

// Cameras implements console.Sources.
func (s *Sources) Cameras() []source.RoomCamera { return s.bot.Room.Watcher().Cameras() }

// Scene implements console.Sources.
func (s *Sources) Scene() bool { return s.bot.opts.BuiltIn != "" }

// WHIP implements console.Sources.
func (s *Sources) WHIP() (source.WHIPEndpoint, bool) {
	if s.ingest == nil {
		return source.WHIPEndpoint{}, false
	}
	return s.ingest.Endpoint(s.bot.Room.RoomName()), true
}

// handler answers at /whip/; nil without WHIP ingest.
func (s *Sources) handler() http.Handler {
	if s == nil || s.ingest == nil {
		return nil
	}
	return s.ingest.Handler()
}
