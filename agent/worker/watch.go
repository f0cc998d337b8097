package worker

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"
	"golang.org/x/sync/errgroup"
)

// StateMethod is the RPC method by which workers ask agents for the state that their next job gets. The payload is an access token that
// administers the room.
const StateMethod = "touchline.handover"

// MaxState is the largest state that a job can hand over, in bytes; a larger one is lost.
const MaxState = 64 << 10

const (
	// rootAttribute marks a worker's copy of a dispatch and names the original. A room needs the agent while it has a
	// dispatch without this attribute.
	rootAttribute = "touchline.for"
	// stateAttribute of a copy has the state that the previous job handed over.
	stateAttribute = "touchline.state"
	// frozenAttribute of a copy has the SID of an agent that no longer answers, which the new agent replaces by its identity.
	frozenAttribute = "touchline.frozen"
	// An agent is frozen after maxUnanswered questions in a row without an answer within answerTime, if it has answered since the server
	// was last away: in an end-to-end encrypted room the server cannot read the answers. asked is the number of agents asked at once.
	maxUnanswered = 4
	answerTime    = time.Second
	asked         = 16
	// slowAnswer is the answer time of the server, or the pause of this process, from which the server counts as away.
	slowAnswer = 2 * time.Second
	// maxJoin is the time from which an agent that is still joining is frozen. An agent gives up a join after 5 s.
	maxJoin = 10 * time.Second
	// recheckAfter is the time, with jitter, between the two checks of a room before a dispatch. Together with WatchEvery
	// and the questions to an agent, it must stay below 12 s.
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

	agent   string // SID
	answers bool   // it has answered since the server was last away
	stuck   bool   // it does not complete its join
	state   string // its newest answer, for the next agent
}

// watch is the search of a worker for rooms that lost their agent.
type watch struct {
	*Worker

	known map[string]*roomState
}

// doubt makes all agents answer again before they are judged: the server was away, and they may have to join again.
func (w *watch) doubt() {
	for _, m := range w.known {
		m.answers = false
	}
}

// run dispatches again for rooms that lost their agent, until ctx ends.
func (w *watch) run(ctx context.Context) {
	began := time.Now()
	for {
		// With jitter, so that workers do not check at the same time.
		wait := max(0, time.Until(began.Add(w.opts.WatchEvery*4/5+rand.N(w.opts.WatchEvery*2/5+1))))
		next := time.Now().Add(wait)
		select {
		case <-ctx.Done():
			return
		case <-w.draining:
			return
		case <-time.After(wait):
		}
		if time.Since(next) > slowAnswer { // this process stood still
			w.doubt()
		}
		began = time.Now()
		if w.away() {
			w.doubt()
			continue
		}
		if err := w.round(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug().Err(err).Msg("rooms not checked")
			w.doubt()
		}
	}
}

// round checks all rooms once.
func (w *watch) round(ctx context.Context) error {
	began := time.Now()
	rooms, err := w.api.list(ctx)
	if err != nil {
		return err
	}
	if time.Since(began) > slowAnswer {
		w.doubt()
	}
	own := w.ownRooms()
	var suspects, present []string
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
		switch missing, agent := w.check(ctx, room); {
		case missing:
			suspects = append(suspects, name)
		case agent:
			present = append(present, name)
		}
	}
	maps.DeleteFunc(w.known, func(name string, _ *roomState) bool { return !there[name] })
	if len(suspects) > 0 && !w.pause(ctx, recheckAfter) {
		return nil
	}
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	for _, name := range suspects {
		w.redispatch(ctx, name, w.known[name], false)
	}
	w.replaceFrozen(ctx, present)
	return nil
}

// pause waits for about d, so that workers do not act at the same time. It returns false when the watch ends.
func (w *watch) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-w.draining:
	case <-time.After(d/2 + rand.N(d)):
		return true
	}
	return false
}

// check reports whether a room may lack its agent, or has one that may be frozen.
func (w *watch) check(ctx context.Context, room *livekit.Room) (missing, agent bool) {
	name := room.GetName()
	m := w.known[name]
	if m == nil || m.sid != room.GetSid() {
		m = &roomState{sid: room.GetSid()}
		w.known[name] = m
	}
	if m.skip > 0 {
		m.skip--
		return false, false
	}
	if time.Now().Before(m.notBefore) || w.free() == 0 {
		return false, false
	}
	roots, copies, err := w.api.dispatched(ctx, name)
	if err != nil {
		return false, false // the room may have closed
	}
	if len(roots) == 0 && len(copies) == 0 {
		m.skip = skipRounds
		return false, false
	}
	missing, a := w.look(ctx, name)
	if m.agent != a.GetSid() {
		m.agent, m.answers = a.GetSid(), false
	}
	m.stuck = w.stuck(a)
	return missing || len(roots) == 0, m.stuck || a.GetState() == livekit.ParticipantInfo_ACTIVE
}

// away reports whether the worker has no connection to the server.
func (w *Worker) away() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link == nil
}

// look reports whether a room lacks its agent, and the room's agent; nil if that has no right to answer.
func (w *watch) look(ctx context.Context, room string) (missing bool, agent *livekit.ParticipantInfo) {
	missing, agent, err := w.api.missing(ctx, room, w.opts.JobType)
	if err != nil {
		w.doubt()
	}
	if !agent.GetPermission().GetCanPublishData() {
		return missing, nil
	}
	return missing, agent
}

// stuck reports whether an agent does not complete its join.
func (w *watch) stuck(agent *livekit.ParticipantInfo) bool {
	return agent != nil && agent.GetState() < livekit.ParticipantInfo_ACTIVE &&
		w.api.now().Sub(time.Unix(agent.GetJoinedAt(), 0)) > maxJoin
}

// replaceFrozen asks the agents of rooms until each has answered or is frozen, and dispatches again for the frozen ones. The new agent has
// the same identity, so that the server removes the frozen one, which leaves if it ever wakes up.
func (w *watch) replaceFrozen(ctx context.Context, rooms []string) {
	for range maxUnanswered {
		rooms = w.silent(ctx, rooms)
	}
	for _, name := range rooms {
		if !w.away() && ctx.Err() == nil {
			w.redispatch(ctx, name, w.known[name], true)
		}
	}
}

// silent asks the agents of rooms, and returns the rooms of those that did not answer now, and answered earlier or are stuck.
func (w *watch) silent(ctx context.Context, rooms []string) (silent []string) {
	answers := make([]bool, len(rooms))
	var failed atomic.Bool
	var g errgroup.Group
	g.SetLimit(asked)
	for i, name := range rooms {
		if w.known[name].stuck { // the server cannot ask it
			continue
		}
		g.Go(func() (err error) {
			var state string
			if state, answers[i], err = w.api.askState(ctx, name, Identity(w.opts.AgentName, "")); err != nil {
				failed.Store(true)
			}
			if answers[i] {
				w.known[name].state = state
			}
			return nil
		})
	}
	_ = g.Wait() // no function fails
	if failed.Load() {
		w.doubt()
	}
	for i, name := range rooms {
		m := w.known[name]
		if (m.answers || m.stuck) && !answers[i] {
			silent = append(silent, name)
		}
		m.answers = m.answers || answers[i]
	}
	return silent
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

// redispatch checks a room that lacks its agent or has a frozen one again, and then makes a new dispatch.
func (w *watch) redispatch(ctx context.Context, room string, m *roomState, frozen bool) {
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
	if len(roots) == 0 || w.free() == 0 {
		return
	}
	missing, agent := w.look(ctx, room)
	joined := !m.answers && !w.stuck(agent)
	if frozen && (agent.GetSid() != m.agent || joined) || !frozen && !missing { // another worker was faster
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
	found, extra := "agent missing; dispatching again", map[string]string{}
	if m.state != "" {
		extra[stateAttribute] = m.state
	}
	if frozen {
		found, extra[frozenAttribute] = "agent frozen; dispatching again", m.agent
	}
	w.log.Warn().Str("room", room).Str("dispatch", root.GetId()).Int("attempt", m.attempts).Msg(found)
	w.metrics.redispatches.WithLabelValues("found").Inc()
	w.api.replace(ctx, room, root, copies, extra)
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
