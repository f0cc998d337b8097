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

// watch dispatches again for rooms that lost their agent, until ctx ends.
func (w *Worker) watch(ctx context.Context) {
	known := map[string]*roomState{}
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
		if err := w.round(ctx, known); err != nil && ctx.Err() == nil {
			w.log.Debug().Err(err).Msg("rooms not checked")
		}
	}
}

// round checks all rooms once.
func (w *Worker) round(ctx context.Context, known map[string]*roomState) error {
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
		m := known[name]
		if m == nil || m.sid != room.GetSid() {
			m = &roomState{sid: room.GetSid()}
			known[name] = m
		}
		if m.skip > 0 {
			m.skip--
			continue
		}
		if time.Now().Before(m.notBefore) || w.free() == 0 {
			continue
		}
		roots, copies, err := w.wanted(ctx, name)
		if err != nil {
			continue // the room may have closed
		}
		switch {
		case len(roots) == 0 && len(copies) == 0:
			m.skip = skipRounds
		case len(roots) == 0 || w.missing(ctx, name):
			suspects = append(suspects, name)
		default:
			m.attempts = 0
		}
	}
	maps.DeleteFunc(known, func(name string, _ *roomState) bool { return !there[name] })
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
		w.redispatch(ctx, name, known[name])
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
func (w *Worker) free() int {
	_, full, _ := w.fullness(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	if full {
		return 0
	}
	return w.opts.Slots - len(w.jobs) - len(w.offers)
}

// wanted returns the dispatches of a room for this agent, and the workers' copies of them.
func (w *Worker) wanted(ctx context.Context, room string) (roots, copies []*livekit.AgentDispatch, err error) {
	all, err := w.api.dispatched(ctx, room, w.opts.AgentName)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		switch {
		case d.GetDeployment() != w.opts.Deployment:
		case d.GetAttributes()[rootAttribute] != "":
			copies = append(copies, d)
		default:
			roots = append(roots, d)
		}
	}
	return roots, copies, nil
}

// missing reports whether the room, or a participant in it, lacks its agent.
func (w *Worker) missing(ctx context.Context, room string) bool {
	people, err := w.api.participants(ctx, room)
	if err != nil {
		return false
	}
	in := map[string]bool{}
	for _, p := range people {
		in[p.GetIdentity()] = true
	}
	if w.opts.JobType == livekit.JobType_JT_ROOM {
		return !in[Identity(w.opts.AgentName, "")]
	}
	return slices.ContainsFunc(people, func(p *livekit.ParticipantInfo) bool {
		switch p.GetKind() {
		case livekit.ParticipantInfo_AGENT, livekit.ParticipantInfo_EGRESS:
			return false
		default:
		}
		wants := w.opts.JobType == livekit.JobType_JT_PARTICIPANT || p.GetIsPublisher()
		return wants && !in[Identity(w.opts.AgentName, p.GetIdentity())]
	})
}

// redispatch checks a room again and then makes a new dispatch.
func (w *Worker) redispatch(ctx context.Context, room string, m *roomState) {
	roots, copies, err := w.wanted(ctx, room)
	if err != nil {
		return
	}
	// A copy without its original is deleted, which ends its job.
	copies = slices.DeleteFunc(copies, func(c *livekit.AgentDispatch) bool {
		orphan := !slices.ContainsFunc(roots, func(r *livekit.AgentDispatch) bool {
			return r.GetId() == c.GetAttributes()[rootAttribute]
		})
		if orphan {
			w.drop(ctx, room, c.GetId())
		}
		return orphan
	})
	if len(roots) == 0 || w.free() == 0 || !w.missing(ctx, room) {
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
	w.replace(ctx, room, root, copies)
}

// replace makes a copy of a dispatch and deletes earlier copies.
func (w *Worker) replace(ctx context.Context, room string, root *livekit.AgentDispatch, earlier []*livekit.AgentDispatch) {
	for _, c := range earlier {
		if c.GetAttributes()[rootAttribute] == root.GetId() {
			w.drop(ctx, room, c.GetId())
		}
	}
	attributes := maps.Clone(root.GetAttributes())
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[rootAttribute] = root.GetId()
	_, err := w.api.dispatch(ctx, &livekit.CreateAgentDispatchRequest{
		AgentName: w.opts.AgentName, Room: room, Metadata: root.GetMetadata(), Deployment: w.opts.Deployment,
		Attributes: attributes,
	})
	if err != nil {
		w.log.Warn().Err(err).Str("room", room).Msg("dispatch failed")
	}
}

func (w *Worker) drop(ctx context.Context, room, id string) {
	if err := w.api.undispatch(ctx, room, id); err != nil {
		w.log.Debug().Err(err).Str("room", room).Msg("dispatch not deleted")
	}
}

// reconcile compares the dispatches of a room with its jobs. A restarted server has lost the dispatch, so reconcile creates
// it again: the room is then served even if this worker dies. A deleted dispatch ends the job.
func (w *Worker) reconcile(ctx context.Context, room *livekit.Room, jobs []*running) {
	jobs = slices.DeleteFunc(jobs, func(r *running) bool { return r.job.DispatchID == "" }) // simulated
	if len(jobs) == 0 {
		return
	}
	roots, _, err := w.wanted(ctx, room.GetName())
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
			if _, err := w.api.dispatch(ctx, &livekit.CreateAgentDispatchRequest{
				AgentName: w.opts.AgentName, Room: room.GetName(), Metadata: r.metadata, Deployment: w.opts.Deployment,
			}); err != nil {
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

// evictAfter is how long the server may list a departed agent before evict removes it; evictPoll is the polling interval.
const (
	evictAfter = 300 * time.Millisecond
	evictPoll  = 50 * time.Millisecond
)

// evict removes a departed agent from its room. If the leave request of the client was lost, the server would keep the
// agent for 20 s and admit no other.
func (w *Worker) evict(ctx context.Context, r *running) {
	if !r.wasIn.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	tick := time.NewTicker(evictPoll)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < evictAfter; {
		if in, err := w.api.present(ctx, r.job.Room, r.job.Identity); err != nil || !in {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	w.log.Info().Str("room", r.job.Room).Msg("removing the departed agent")
	if err := w.api.remove(ctx, r.job.Room, r.job.Identity); err != nil {
		w.log.Debug().Err(err).Str("room", r.job.Room).Msg("agent not removed")
	}
}

// handOver makes a dispatch for a room after this worker has left it.
func (w *Worker) handOver(ctx context.Context, r *running) {
	if r.job.DispatchID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	roots, copies, err := w.wanted(ctx, r.job.Room)
	if err != nil || len(roots) == 0 {
		return // the room is closed or no longer needs an agent
	}
	i := slices.IndexFunc(roots, func(d *livekit.AgentDispatch) bool { return d.GetId() == r.root })
	w.metrics.redispatches.WithLabelValues("handed_over").Inc()
	w.replace(ctx, r.job.Room, roots[max(i, 0)], copies)
}

// callOff deletes the dispatches of a room that removed the agent.
func (w *Worker) callOff(ctx context.Context, r *running) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	roots, copies, err := w.wanted(ctx, r.job.Room)
	if err != nil {
		return
	}
	for _, d := range append(roots, copies...) {
		w.drop(ctx, r.job.Room, d.GetId())
	}
}
