package worker

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/livekit/protocol/livekit"
)

const (
	// rootAttribute marks a worker's copy of a dispatch and names the original. A room needs the agent while it has a
	// dispatch without this attribute.
	rootAttribute = "touchline.for"
	// stateAttribute of a copy has the state that the previous job handed over, up to maxState bytes.
	stateAttribute = "touchline.state"
	maxState       = 64 << 10
	// recheckAfter is the time, with jitter, between the two checks of a room before a dispatch. Together with WatchEvery
	// and the 20 s for which a server keeps the agent of a killed process, it must stay below 30 s.
	recheckAfter = 500 * time.Millisecond
	// dispatchGrace is how long the agent of a new dispatch may take to join.
	dispatchGrace = 3 * time.Second
	// skipRounds is the number of rounds for which a room without a dispatch for this agent is skipped.
	skipRounds = 6
	// maxRedispatch bounds the pause between two dispatches for a room that keeps losing its agent.
	maxRedispatch = 5 * time.Minute
)

// roomState is the memory of the watch for a room.
type roomState struct {
	sid       string
	skip      int // rounds left to skip
	attempts  int
	notBefore time.Time
}

// watch is the search of a worker for rooms that lost their agent.
type watch struct {
	*Worker

	known map[string]*roomState
}

// run dispatches again for rooms that lost their agent, until ctx ends.
func (w *watch) run(ctx context.Context) {
	began := time.Now()
	for {
		// With jitter, so that workers do not check at the same time.
		next := began.Add(w.opts.WatchEvery*4/5 + rand.N(w.opts.WatchEvery*2/5+1))
		select {
		case <-ctx.Done():
			return
		case <-w.draining:
			return
		case <-time.After(time.Until(next)):
		}
		began = time.Now()
		w.mu.Lock()
		away := w.link == nil
		w.mu.Unlock()
		if away {
			continue
		}
		if err := w.round(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug().Err(err).Msg("rooms not checked")
		}
	}
}

// round checks all rooms once.
func (w *watch) round(ctx context.Context) error {
	rooms, err := w.api.list(ctx)
	if err != nil {
		return err
	}
	own := w.ownRooms()
	var suspects []string
	there := map[string]bool{}
	for _, room := range rooms {
		name := room.GetName()
		there[name] = true
		if jobs := own[name]; len(jobs) > 0 {
			w.reconcile(ctx, room, jobs)
			if w.opts.JobType == livekit.JobType_JT_ROOM {
				continue
			}
		}
		m := w.known[name]
		if m == nil || m.sid != room.GetSid() {
			m = &roomState{sid: room.GetSid()}
			w.known[name] = m
		}
		if m.skip > 0 {
			m.skip--
			continue
		}
		if time.Now().Before(m.notBefore) || w.free() == 0 {
			continue
		}
		roots, copies, err := w.api.dispatched(ctx, name)
		if err != nil {
			continue // the room may have closed
		}
		switch {
		case len(roots) == 0 && len(copies) == 0:
			m.skip = skipRounds
		case len(roots) == 0 || w.api.missing(ctx, name, w.opts.JobType):
			suspects = append(suspects, name)
		default:
			m.attempts = 0
		}
	}
	maps.DeleteFunc(w.known, func(name string, _ *roomState) bool { return !there[name] })
	if len(suspects) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-w.draining:
		return nil
	case <-time.After(recheckAfter/2 + rand.N(recheckAfter)):
	}
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	for _, name := range suspects {
		w.redispatch(ctx, name, w.known[name])
	}
	return nil
}

// ownRooms lists the jobs of this worker by room.
func (w *Worker) ownRooms() map[string][]*running {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string][]*running{}
	for _, r := range w.jobs {
		out[r.job.Room] = append(out[r.job.Room], r)
	}
	return out
}

// free returns the number of free slots.
func (w *watch) free() int {
	_, full, _ := w.fullness(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	if full {
		return 0
	}
	return w.opts.Slots - len(w.jobs) - len(w.offers)
}

// redispatch checks a room again and then makes a new dispatch.
func (w *watch) redispatch(ctx context.Context, room string, m *roomState) {
	roots, copies, err := w.api.dispatched(ctx, room)
	if err != nil {
		return
	}
	// A copy without its original is deleted, which ends its job.
	copies = slices.DeleteFunc(copies, func(c *livekit.AgentDispatch) bool {
		orphan := !slices.ContainsFunc(roots, func(r *livekit.AgentDispatch) bool {
			return r.GetId() == c.GetAttributes()[rootAttribute]
		})
		if orphan {
			w.api.drop(ctx, room, c.GetId())
		}
		return orphan
	})
	if len(roots) == 0 || w.free() == 0 || !w.api.missing(ctx, room, w.opts.JobType) {
		return
	}
	// A new dispatch, or the copy of another worker, may be in progress.
	for _, d := range slices.Concat(roots, copies) {
		if since := w.api.now().Sub(time.Unix(0, d.GetState().GetCreatedAt())); since >= 0 && since < dispatchGrace {
			return
		}
	}
	root := slices.MinFunc(roots, func(a, b *livekit.AgentDispatch) int {
		return int(a.GetState().GetCreatedAt() - b.GetState().GetCreatedAt())
	})
	if _, err := ParseMetadata(root.GetMetadata()); err != nil {
		m.notBefore = time.Now().Add(maxRedispatch) // it would fail again
		return
	}
	m.attempts++
	m.notBefore = time.Now().Add(min(w.opts.WatchEvery<<min(m.attempts-1, 10), maxRedispatch))
	w.log.Warn().Str("room", room).Str("dispatch", root.GetId()).Int("attempt", m.attempts).
		Msg("agent missing; dispatching again")
	w.metrics.redispatches.WithLabelValues("found").Inc()
	w.api.replace(ctx, room, root, copies, "")
}

// reconcile compares the dispatches of a room with its jobs. A restarted server has lost the dispatch, so reconcile creates
// it again: the room is then served even if this worker dies. A deleted dispatch ends the job.
func (w *watch) reconcile(ctx context.Context, room *livekit.Room, jobs []*running) {
	jobs = slices.DeleteFunc(jobs, func(r *running) bool { return r.job.DispatchID == "" }) // simulated
	if len(jobs) == 0 {
		return
	}
	roots, _, err := w.api.dispatched(ctx, room.GetName())
	if err != nil {
		return
	}
	for _, r := range jobs {
		same := r.sid == room.GetSid()
		switch {
		case slices.ContainsFunc(roots, func(d *livekit.AgentDispatch) bool { return d.GetId() == r.root }):
			r.unwanted = 0
		case len(roots) > 0 && !same: // another dispatch, or a new copy of the lost one
			r.root, r.unwanted = roots[0].GetId(), 0
		case !same:
			w.log.Info().Str("room", room.GetName()).Msg("dispatch lost by the server; creating it again")
			w.metrics.redispatches.WithLabelValues("restored").Inc()
			if _, err := w.api.dispatch(ctx, room.GetName(), r.metadata, nil); err != nil {
				w.log.Warn().Err(err).Str("room", room.GetName()).Msg("dispatch failed")
			}
			continue // the next round finds it, or tries again
		default:
			if r.unwanted++; r.unwanted > 1 {
				w.log.Info().Str("room", room.GetName()).Msg("dispatch deleted; ending the job")
				r.cancel(ErrTerminated)
			}
		}
		r.sid = room.GetSid()
	}
}
