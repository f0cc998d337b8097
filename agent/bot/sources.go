package bot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"touchline/agent/camera"
	"touchline/agent/command"
	"touchline/internal/rescue"
	"touchline/media"
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
	// First is the source of the command line, which the bot watches; may be nil.
	First *FirstSource
}

// FirstSource is a source whose address needs no permission.
type FirstSource struct {
	Puller  source.Puller
	Address source.Address
	// Identity of the participant; "" generates one.
	Identity string
}

// Sources are the cameras that the program opens for a bot's room, and its WHIP
// senders. Run owns them.
type Sources struct {
	*camera.Manager

	bot    *Bot
	ingest *camera.Ingest // nil when WHIP ingest is off
	shared bool           // the ingest is the caller's

	// over describes what is watched without a choice of people.
	over string
}

// NewSources makes the bot's sources, with those that people added in an earlier run; nothing is opened yet. Call it
// before Console.
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
	common.Room, common.Memory = b.Room.RoomName(), b.opts.Memory
	m := camera.ManagerOptions{
		Feed: common, Allow: o.Allow, Max: cfg.Sources.Max, Height: cfg.Sources.Height, OnChange: b.save,
		Log: b.log.With().Str("component", "sources").Logger(),
	}
	if s.ingest != nil {
		m.Senders = s.ingest.Senders()
	}
	if s.Manager, err = camera.NewManager(m); err != nil {
		return nil, fmt.Errorf("prepare the room's sources: %w", err)
	}
	first, err := s.open(o.First)
	if err != nil {
		return nil, err
	}
	return s, s.restore(first)
}

// open brings the source of the command line into the room, if there is one, and watches it.
func (s *Sources) open(first *FirstSource) (out source.Info, err error) {
	s.over = s.bot.opts.Settings.Media.Watch.Identity
	if first == nil {
		return out, nil
	}
	if out, err = s.Open(first.Puller, first.Address, "", first.Identity); err != nil {
		return out, err
	}
	s.over = out.Address
	s.bot.log.Info().Str("source", out.Address).Str("participant", out.Identity).Msg("watching source")
	s.bot.Room.Watcher().Select(media.WatchConfig{Identity: out.Identity})
	return out, nil
}

// restore brings back the cameras that people added, and what they chose to watch. A camera that may not be opened
// today is listed as failed, and logged; a camera with the name of the first source is dropped.
func (s *Sources) restore(first source.Info) error {
	b, k := s.bot, s.bot.kept
	if k.room == nil {
		b.sources = s
		return nil
	}
	values, err := k.room.Load()
	if err != nil {
		return err
	}
	var cameras []camera.Kept
	var watched keptChoice
	for name, v := range map[string]any{keptCameras: &cameras, keptWatched: &watched} {
		if value, ok := values[name]; ok {
			if err := json.Unmarshal(value, v); err != nil {
				b.log.Warn().Err(err).Str("value", name).Msg("kept value not restored")
			}
		}
	}
	gone := map[string]bool{} // participants
	for _, c := range cameras {
		if c.Name == first.Name {
			gone[c.Identity()] = true
			continue
		}
		if err := s.Restore(c); err != nil {
			b.log.Warn().Err(err).Str("value", keptCameras).Str("camera", c.Name).Msg("kept value not restored")
			gone[c.Identity()] = true
		}
	}
	b.sources = s
	if watched.Name != "" && watched.Over == s.over && !gone[strings.TrimPrefix(watched.Name, prefixCamera)] {
		if _, err := b.Change(command.Change{Source: &watched.Name}, byState); err != nil {
			b.log.Warn().Err(err).Str("value", keptWatched).Msg("kept value not restored")
		}
	}
	k.begin(keptCameras, values[keptCameras])
	k.begin(keptWatched, values[keptWatched])
	b.save()
	return nil
}

// kept returns the cameras that people added, and what they chose to watch, to be kept; nil without any.
func (s *Sources) kept() (cameras, watched json.RawMessage) {
	if all := s.Kept(); len(all) > 0 {
		cameras = marshal(all)
	}
	if chosen := s.bot.chosen.Load(); chosen != nil && *chosen != "" {
		watched = marshal(keptChoice{Name: *chosen, Over: s.over})
	}
	return cameras, watched
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
