package wiring

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"touchline/agent/console"
	"touchline/agent/whep"
	"touchline/agent/worker"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/source"
)

// ShowIn shows the rooms of a worker's jobs in a console, where sources may be
// brought into them, and to WHEP players (nil for none); it is a
// JobsOptions.OnBot. Sources and players leave with their bot.
func ShowIn(
	rooms *console.Rooms, players *whep.Server, allow source.Allow, log zerolog.Logger,
) func(worker.Job, *Bot) func() {
	return func(job worker.Job, bot *Bot) func() {
		leave := func() {}
		sources, err := bot.NewSources(SourcesOptions{Allow: allow, NoSenders: true})
		if err == nil {
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- rescue.Call(func() error { return sources.Run(ctx) }) }()
			leave = func() {
				stop()
				if err := <-ended; err != nil {
					log.Warn().Err(err).Str("room", job.Room).Msg("no sources can be brought into the room")
				}
			}
		} else if !errors.Is(err, errNoKeys) {
			log.Warn().Err(err).Str("room", job.Room).Msg("no sources can be brought into the room")
		}
		face := bot.Face()
		if job.Participant != "" {
			// Each participant of a room may have a commentator.
			face.Name += ":" + job.Participant
		}
		remove, err := rooms.Add(face)
		if err != nil {
			log.Warn().Err(err).Str("room", face.Name).Msg("the room is not shown in the console")
			return leave
		}
		unwatch := func() {}
		if players != nil {
			if unwatch, err = players.Add(face.Name, bot.players); err != nil {
				unwatch = func() {}
				log.Warn().Err(err).Str("room", face.Name).Msg("the room has no WHEP players")
			}
		}
		return func() {
			unwatch()
			remove()
			leave()
		}
	}
}

// Calls lets a console bring commentators into rooms by LiveKit's agent
// dispatch, which a worker of this or another process takes.
type Calls struct {
	Jobs   *Jobs
	Worker *worker.Worker
}

// Dispatch implements console.Dispatcher.
func (c Calls) Dispatch(ctx context.Context, call console.Call) (string, error) {
	m := worker.Metadata{
		Profile: call.Profile, Instruction: call.Instruction, Speech: call.Speech, Language: call.Language, Engine: call.Engine,
	}
	if call.Track != nil {
		m.Track = media.WatchConfig{Identity: call.Track.Identity, Source: call.Track.Source}
	}
	// Another worker may have other settings; this one's tell most of what would fail the job.
	if _, err := c.Jobs.configFor(worker.Job{
		URL: c.Jobs.opts.Config.Agent.LiveKit.URL, Room: call.Room, Identity: worker.Identity("", ""),
		Name: c.Jobs.opts.Config.Agent.LiveKit.Name, Metadata: m,
	}); err != nil {
		return "", fmt.Errorf("%w: %w", console.ErrCall, err)
	}
	id, err := c.Worker.Dispatch(ctx, call.Room, m)
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
func (c Calls) Withdraw(ctx context.Context, room string) error {
	err := c.Worker.Withdraw(ctx, room)
	if errors.Is(err, worker.ErrNotDispatched) {
		return fmt.Errorf("%w: %q", console.ErrNotServed, room)
	}
	return err
}
