package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

const (
	// dispatchName is the agent name of workers that serve on request only.
	dispatchName = "asked"
	// dispatchMost bounds the time until the agent's first track, in ms.
	dispatchMost = 700
	// registerTry bounds the wait for an agent while the worker may not be registered yet; it is repeated registerTries times.
	registerTry   = 3 * time.Second
	registerTries = 10
)

// measureDispatches measures the time until an agent's first track is published, count times for each kind of
// dispatch: a new room with a worker for all rooms, an API call for an existing room, and the token of a
// participant that creates the room. The first room of a worker does not count.
func measureDispatches(ctx context.Context, worker workerRunner, count int, log zerolog.Logger) ([]row, error) {
	s, err := stage.New(ctx, stage.Options{NoBot: true, NoCamera: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d := &dispatching{calls: newCalls(s.URL(), s.Keys), s: s}
	type way struct {
		name string
		ask  func(ctx context.Context, room string) (began time.Time, leave func(), err error)
	}
	var rows []row
	for _, w := range []struct {
		agentName string
		ways      []way
	}{
		{"", []way{{"a new room", d.newRoom}}},
		{dispatchName, []way{{"the API, for an existing room", d.byAPI}, {"a participant's token, from its dial", d.byToken}}},
	} {
		stop, err := d.start(ctx, worker, w.agentName)
		if err != nil {
			return rows, err
		}
		for i := range w.ways {
			var took []time.Duration
			if took, err = d.measure(ctx, w.ways[i].ask, count); err != nil {
				err = fmt.Errorf("dispatch by %s: %w", w.ways[i].name, err)
				break
			}
			rows = append(rows,
				note(fmt.Sprintf("dispatch by %s to the first published track, p50 of %d", w.ways[i].name, count),
					fmt.Sprintf("%.0f ms", ms(quantile.Of(took, 0.5)))),
				atMost(fmt.Sprintf("dispatch by %s to the first published track, p95", w.ways[i].name),
					ms(quantile.Of(took, 0.95)), dispatchMost, "ms"))
		}
		stop()
		if err != nil {
			return rows, err
		}
	}
	return rows, s.Errors()
}

// calls are the requests to a LiveKit server that bring agents into rooms.
type calls struct {
	rooms      *lksdk.RoomServiceClient
	dispatches *lksdk.AgentDispatchClient
}

func newCalls(url string, keys conn.Keys) calls {
	return calls{
		rooms:      lksdk.NewRoomServiceClient(url, keys.APIKey, keys.APISecret),
		dispatches: lksdk.NewAgentDispatchServiceClient(url, keys.APIKey, keys.APISecret),
	}
}

// hasAgent reports whether an agent publishes in a room.
func (c calls) hasAgent(ctx context.Context, name string) bool {
	in, err := c.rooms.ListParticipants(ctx, &livekit.ListParticipantsRequest{Room: name})
	return err == nil && slices.ContainsFunc(in.GetParticipants(), func(p *livekit.ParticipantInfo) bool {
		return p.GetKind() == livekit.ParticipantInfo_AGENT && len(p.GetTracks()) > 0
	})
}

// dispatch requests an agent for an existing room.
func (c calls) dispatch(ctx context.Context, name string) (*livekit.AgentDispatch, error) {
	return c.dispatches.CreateDispatch(ctx, &livekit.CreateAgentDispatchRequest{Room: name, AgentName: dispatchName})
}

// agentsIn brings an agent into each of some rooms, as soon as the worker is registered.
func (c calls) agentsIn(ctx context.Context, rooms []string) error {
	for _, name := range rooms {
		if err := c.agentIn(ctx, name); err != nil {
			return fmt.Errorf("bring an agent into room %q: %w", name, err)
		}
	}
	return nil
}

func (c calls) agentIn(ctx context.Context, name string) error {
	var missing error
	for range registerTries {
		asked, err := c.dispatch(ctx, name)
		if err != nil {
			return err
		}
		if _, missing = stage.Until(ctx, registerTry, "the agent", func() bool { return c.hasAgent(ctx, name) }); missing == nil {
			return nil
		}
		// The server does not repeat a dispatch that found no worker.
		_, err = c.dispatches.DeleteDispatch(ctx, &livekit.DeleteAgentDispatchRequest{Room: name, DispatchId: asked.GetId()})
		if err != nil {
			return err
		}
	}
	return missing
}

// dispatching is a server whose rooms ask for agents.
type dispatching struct {
	calls

	s *stage.Stage
	n int
}

// start runs a worker and returns once it has served its first room.
func (d *dispatching) start(ctx context.Context, worker workerRunner, name string) (stop func(), err error) {
	p, err := startProcess(ctx, worker.command(locationOf(d.s), name), os.Stderr)
	if err != nil {
		return nil, err
	}
	ask := d.newRoom
	if name != "" {
		ask = d.byAPI
	}
	for range registerTries {
		var failed error
		if _, failed = d.once(ctx, ask, registerTry); failed == nil {
			return p.stop, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("the worker exited: %w", cmp.Or(p.err, failed))
		case <-ctx.Done():
			p.stop()
			return nil, ctx.Err()
		default:
		}
	}
	p.stop()
	return nil, fmt.Errorf("no agent joined one of %d rooms", registerTries)
}

func (d *dispatching) measure(
	ctx context.Context, ask func(context.Context, string) (time.Time, func(), error), count int,
) (took []time.Duration, err error) {
	for range count {
		t, err := d.once(ctx, ask, 10*time.Second)
		if err != nil {
			return nil, err
		}
		took = append(took, t)
		if err := stage.Wait(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// once dispatches to one room and closes it.
func (d *dispatching) once(
	ctx context.Context, ask func(context.Context, string) (time.Time, func(), error), within time.Duration,
) (took time.Duration, err error) {
	d.n++
	name := fmt.Sprintf("asks-%d", d.n)
	began, leave, err := ask(ctx, name)
	if err != nil {
		return 0, err
	}
	defer leave()
	_, err = stage.Until(ctx, within, "the agent's first track", func() bool { return d.hasAgent(ctx, name) })
	took = time.Since(began)
	_, gone := d.rooms.DeleteRoom(ctx, &livekit.DeleteRoomRequest{Room: name})
	return took, errors.Join(err, gone)
}

func (d *dispatching) newRoom(ctx context.Context, name string) (began time.Time, leave func(), err error) {
	began = time.Now()
	_, err = d.rooms.CreateRoom(ctx, &livekit.CreateRoomRequest{Name: name})
	return began, func() {}, err
}

func (d *dispatching) byAPI(ctx context.Context, name string) (began time.Time, leave func(), err error) {
	if _, leave, err = d.newRoom(ctx, name); err != nil {
		return began, leave, err
	}
	began = time.Now()
	_, err = d.dispatch(ctx, name)
	return began, leave, err
}

func (d *dispatching) byToken(_ context.Context, name string) (began time.Time, leave func(), err error) {
	token, err := auth.NewAccessToken(d.s.Keys.APIKey, d.s.Keys.APISecret).SetIdentity("viewer").
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, Room: name}).
		SetRoomConfig(&livekit.RoomConfiguration{Agents: []*livekit.RoomAgentDispatch{{AgentName: dispatchName}}}).ToJWT()
	if err != nil {
		return began, nil, err
	}
	began = time.Now()
	joined := make(chan *lksdk.Room, 1)
	go func() { // leave waits for it
		r, err := lksdk.ConnectToRoomWithToken(d.s.URL(), token, nil, lksdk.WithAutoSubscribe(false))
		if err != nil {
			d.s.Log.Warn().Err(err).Msg("participant could not join")
		}
		joined <- r
	}()
	return began, func() {
		if r := <-joined; r != nil {
			r.Disconnect()
		}
	}, nil
}
