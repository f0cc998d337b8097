package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/livekit/protocol/livekit"
)

// missing reports whether the room, or a participant in it, lacks its agent. agent is the one of the room; nil without.
func (a *roomAPI) missing(
	ctx context.Context, room string, scope livekit.JobType,
) (missing bool, agent *livekit.ParticipantInfo, err error) {
	people, err := a.participants(ctx, room)
	if err != nil {
		return false, nil, err
	}
	in := map[string]*livekit.ParticipantInfo{}
	for _, p := range people {
		in[p.GetIdentity()] = p
	}
	if scope == livekit.JobType_JT_ROOM {
		agent = in[Identity(a.agent, "")]
		return agent == nil, agent, nil
	}
	return slices.ContainsFunc(people, func(p *livekit.ParticipantInfo) bool {
		switch p.GetKind() {
		case livekit.ParticipantInfo_AGENT, livekit.ParticipantInfo_EGRESS:
			return false
		default:
		}
		wants := scope == livekit.JobType_JT_PARTICIPANT || p.GetIsPublisher()
		return wants && in[Identity(a.agent, p.GetIdentity())] == nil
	}), nil, nil
}

// replace makes a copy of a dispatch and deletes earlier copies. The copy has further attributes.
func (a *roomAPI) replace(
	ctx context.Context, room string, root *livekit.AgentDispatch, earlier []*livekit.AgentDispatch, further map[string]string,
) {
	for _, c := range earlier {
		if c.GetAttributes()[rootAttribute] == root.GetId() {
			a.drop(ctx, room, c.GetId())
		}
	}
	attributes := maps.Clone(root.GetAttributes())
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes[rootAttribute] = root.GetId()
	maps.Copy(attributes, further)
	if _, err := a.dispatch(ctx, room, root.GetMetadata(), attributes); err != nil {
		a.log.Warn().Err(err).Str("room", room).Msg("dispatch failed")
	}
}

func (a *roomAPI) drop(ctx context.Context, room, id string) {
	if err := a.undispatch(ctx, room, id); err != nil {
		a.log.Debug().Err(err).Str("room", room).Msg("dispatch not deleted")
	}
}

// evictAfter is how long the server may list a departed agent before evict removes it; evictPoll is the polling interval.
const (
	evictAfter = 300 * time.Millisecond
	evictPoll  = 50 * time.Millisecond
)

// evict removes a departed agent from its room. If the leave request of the client was lost, the server would keep the
// agent for 20 s and admit no other.
func (a *roomAPI) evict(ctx context.Context, r *running) {
	if !r.wasIn.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	tick := time.NewTicker(evictPoll)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < evictAfter; {
		if in, err := a.participant(ctx, r.job.Room, r.job.Identity); err != nil || in == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	a.log.Info().Str("room", r.job.Room).Msg("removing the departed agent")
	if err := a.remove(ctx, r.job.Room, r.job.Identity); err != nil {
		a.log.Debug().Err(err).Str("room", r.job.Room).Msg("agent not removed")
	}
}

// handOver makes a dispatch for a room after this worker has left it. It reports whether the room needs an agent.
func (a *roomAPI) handOver(ctx context.Context, r *running) bool {
	if r.job.DispatchID == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	roots, copies, err := a.dispatched(ctx, r.job.Room)
	if err != nil || len(roots) == 0 {
		return false // the room is closed or no longer needs an agent
	}
	i := slices.IndexFunc(roots, func(d *livekit.AgentDispatch) bool { return d.GetId() == r.root })
	further := map[string]string{}
	if r.state != "" && len(r.state) <= MaxState {
		further[stateAttribute] = r.state
	}
	a.replace(ctx, r.job.Room, roots[max(i, 0)], copies, further)
	return true
}

// callOff deletes the dispatches of a room that removed the agent.
func (a *roomAPI) callOff(ctx context.Context, r *running) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin/2)
	defer cancel()
	roots, copies, err := a.dispatched(ctx, r.job.Room)
	if err != nil {
		return
	}
	for _, d := range append(roots, copies...) {
		a.drop(ctx, r.job.Room, d.GetId())
	}
}
