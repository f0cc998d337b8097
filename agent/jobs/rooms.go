package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/console"
	"touchline/agent/whep"
	"touchline/agent/worker"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/source"
)

// ConsoleRooms adds the rooms of a worker's jobs to a console, with their sources and players.
type ConsoleRooms struct {
	Rooms *console.Rooms
	// Players is the WHEP server, Ingest the WHIP ingest; nil for none.
	Players *whep.Server
	Ingest  *camera.Ingest
	// Allow decides which addresses the page and the API may open.
	Allow source.Allow
	Log   zerolog.Logger
}

// OnBot implements Options.OnBot. Sources and players leave with their bot; senders stay in the room.
func (o ConsoleRooms) OnBot(job worker.Job, b *bot.Bot) (done func()) {
	log := o.Log.With().Str("room", job.Room).Logger()
	leave := func() {}
	sources, err := b.NewSources(bot.SourcesOptions{Allow: o.Allow, Shared: true, Ingest: o.Ingest})
	if err == nil {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- rescue.Call(func() error { return sources.Run(ctx) }) }()
		leave = func() {
			stop()
			if err := <-ended; err != nil {
				log.Warn().Err(err).Msg("sources unavailable")
			}
		}
	} else if !errors.Is(err, camera.ErrNoKeys) {
		log.Warn().Err(err).Msg("sources unavailable")
	}
	shown := b.ConsoleRoom()
	if job.Participant != "" {
		// Each participant of a room may have a commentator.
		shown.Name += ":" + job.Participant
	}
	remove, err := o.Rooms.Add(shown)
	if err != nil {
		log.Warn().Err(err).Str("shown_as", shown.Name).Msg("room not shown in the console")
		return leave
	}
	unwatch := func() {}
	if o.Players != nil {
		if unwatch, err = o.Players.Add(shown.Name, b.Players()); err != nil {
			unwatch = func() {}
			log.Warn().Err(err).Str("shown_as", shown.Name).Msg("WHEP unavailable")
		}
	}
	return func() {
		unwatch()
		remove()
		leave()
	}
}

// Dispatcher implements console.Dispatcher with LiveKit's agent dispatch. A worker of this or another process runs the commentators.
type Dispatcher struct {
	Jobs   *Manager
	Worker *worker.Worker
}

// Dispatch implements console.Dispatcher.
func (d Dispatcher) Dispatch(ctx context.Context, call console.Call) (string, error) {
	m := worker.Metadata{
		Profile: call.Profile, Instruction: call.Instruction, Speech: call.Speech, Language: call.Language, Engine: call.Engine,
	}
	if call.Track != nil {
		m.Track = media.WatchConfig{Identity: call.Track.Identity, Source: call.Track.Source}
	}
	// A worker with other settings may serve the room. This check finds most errors.
	if _, err := d.Jobs.opts.Configure(worker.Job{
		URL: d.Jobs.opts.Settings.LiveKit.URL, Room: call.Room, Identity: worker.Identity("", ""),
		Name: d.Jobs.opts.Settings.LiveKit.Name, Metadata: m,
	}); err != nil {
		return "", fmt.Errorf("%w: %w", console.ErrCall, err)
	}
	id, err := d.Worker.Dispatch(ctx, call.Room, m)
	switch {
	case errors.Is(err, worker.ErrDispatched):
		return "", fmt.Errorf("%w, or waits for it: %q", console.ErrServed, call.Room)
	case errors.Is(err, worker.ErrMetadata):
		return "", fmt.Errorf("%w: %w", console.ErrCall, err)
	case err != nil:
		return "", fmt.Errorf("dispatch: %w", err)
	}
	return id, nil
}

// Withdraw implements console.Dispatcher.
func (d Dispatcher) Withdraw(ctx context.Context, room string) error {
	err := d.Worker.Withdraw(ctx, room)
	if errors.Is(err, worker.ErrNotDispatched) {
		return fmt.Errorf("%w: %q", console.ErrNotServed, room)
	}
	return err
}
