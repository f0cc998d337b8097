package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/livekit/protocol/livekit"

	"touchline/internal/rescue"
)

// agentNameAttribute is the server's attribute for the name of an agent.
const agentNameAttribute = "lk.agent_name"

// settle is the shortest time between the assignment of a job and the report of its end: servers up to 1.13 register a
// job after sending it, and lose earlier reports.
const settle = 150 * time.Millisecond

// maxReason bounds the reported reason of a failure, in bytes.
const maxReason = 500

// offer is a place reserved for an accepted offer.
type offer struct {
	place place
	timer *time.Timer
}

// running is a job and its state.
type running struct {
	w     *Worker
	job   Job
	place place
	// root is the original dispatch; the job's own dispatch may be a worker's copy.
	root string
	// state is what the job handed over; "" for nothing. Used by its own goroutine only.
	state string
	// metadata is the unparsed metadata of the dispatch.
	metadata string
	assigned time.Time
	cancel   context.CancelCauseFunc
	over     <-chan struct{} // closed to end the job
	done     chan struct{}   // closed when it has ended
	joined   sync.Once
	wasIn    atomic.Bool
	leaving  sync.Once

	// Used by the watch goroutine only.
	sid      string // newest SID of the room
	unwanted int    // rounds in a row without a dispatch
}

// handle acts on a message of the server without blocking. ctx is for the jobs.
func (w *Worker) handle(ctx context.Context, msg *livekit.ServerMessage) {
	switch m := msg.GetMessage().(type) {
	case *livekit.ServerMessage_Availability:
		if job := m.Availability.GetJob(); job != nil {
			w.offered(ctx, job, m.Availability.GetResuming())
		}
	case *livekit.ServerMessage_Assignment:
		if job := m.Assignment.GetJob(); job != nil {
			w.assigned(ctx, m.Assignment)
		}
	case *livekit.ServerMessage_Termination:
		w.terminated(ctx, m.Termination.GetJobId())
	case *livekit.ServerMessage_Pong, *livekit.ServerMessage_Register:
	default:
		// A message of a later server is nil here.
		w.log.Debug().Msg("unknown message ignored")
		w.metrics.unknown.Inc()
	}
}

// placeOf returns the place of a job.
func placeOf(job *livekit.Job) place {
	return place{job.GetRoom().GetName(), job.GetParticipant().GetIdentity()}
}

// verdict is the answer to an offer.
type verdict string

const (
	accepted verdict = "accepted"
	refused  verdict = "refused" // the worker is full, or the job is not for it
	served   verdict = "served"  // the agent is in the room
)

// offered answers an offer: at once if there is no free slot, otherwise after checking that the agent is not in the room.
func (w *Worker) offered(ctx context.Context, job *livekit.Job, resuming bool) {
	v, why, leaving := w.reserve(job)
	switch {
	case leaving != nil:
		go func() {
			defer w.work.Done()
			select {
			case <-leaving:
				w.offered(ctx, job, resuming)
			case <-time.After(leaveWithin):
				w.answer(job, refused, "the previous job has not ended")
			}
		}()
		return
	case v != accepted:
		w.answer(job, v, why)
		return
	}
	w.changed.Set()
	go func() {
		defer w.work.Done()
		if !resuming && w.inRoom(ctx, job) {
			w.mu.Lock()
			w.dropOfferLocked(job.GetId())
			w.mu.Unlock()
			w.answer(job, served, "the agent is in the room")
			w.changed.Set()
			return
		}
		w.answer(job, accepted, "")
	}()
}

// reserve reserves a free slot for an offered job. If the job at its place is about to end, leaving is closed at its end.
// If it returns accepted or leaving, the caller must call work.Done.
func (w *Worker) reserve(job *livekit.Job) (v verdict, why string, leaving <-chan struct{}) {
	_, full, _ := w.fullness(time.Now())
	p := placeOf(job)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case job.GetId() == "" || p.room == "":
		return refused, "the job names no room", nil
	case w.full:
		return refused, "no more jobs", nil
	}
	id := job.GetId()
	if w.offers[id] != nil || w.jobs[id] != nil {
		return refused, "the job is known already", nil
	}
	if there := w.places[p]; there != "" {
		if r := w.jobs[there]; r != nil && isClosed(r.over) {
			w.work.Add(1)
			return refused, "", r.done
		}
		return served, "this worker is in the room", nil
	}
	if full || len(w.jobs)+len(w.offers) >= w.opts.Slots { // another offer may have taken the slot
		return refused, "full", nil
	}
	w.work.Add(1)
	w.places[p] = id
	w.offers[id] = &offer{place: p, timer: time.AfterFunc(assignmentTimeout, func() { w.expire(id) })}
	return accepted, "", nil
}

// expire drops an accepted offer that never became a job.
func (w *Worker) expire(id string) {
	w.mu.Lock()
	known := w.offers[id] != nil
	w.dropOfferLocked(id)
	w.mu.Unlock()
	if known {
		w.log.Warn().Str("job", id).Float64("waited_s", assignmentTimeout.Seconds()).Msg("accepted job not assigned")
		w.changed.Set()
	}
}

func (w *Worker) dropOfferLocked(id string) {
	o := w.offers[id]
	if o == nil {
		return
	}
	o.timer.Stop()
	delete(w.offers, id)
	delete(w.places, o.place)
}

// inRoom reports whether the agent of this job is in its room already, from any worker, other than a frozen one. It is false if the
// server does not answer.
func (w *Worker) inRoom(ctx context.Context, job *livekit.Job) bool {
	p, err := w.api.participant(ctx, job.GetRoom().GetName(), w.identity(job))
	if err != nil {
		w.log.Debug().Err(err).Str("room", job.GetRoom().GetName()).Msg("participants unknown")
	}
	return p != nil && p.GetSid() != job.GetAttributes()[frozenAttribute]
}

func (w *Worker) identity(job *livekit.Job) string {
	return Identity(w.opts.AgentName, job.GetParticipant().GetIdentity())
}

func (w *Worker) answer(job *livekit.Job, v verdict, why string) {
	w.metrics.offers.WithLabelValues(string(v)).Inc()
	w.log.Debug().Str("job", job.GetId()).Str("room", job.GetRoom().GetName()).Str("answer", string(v)).Str("reason", why).Msg("offer")
	res := &livekit.AvailabilityResponse{JobId: job.GetId(), Available: v == accepted, Terminate: v == served}
	if v == accepted {
		res.ParticipantIdentity, res.ParticipantName = w.identity(job), w.opts.Name
		res.ParticipantAttributes = map[string]string{agentNameAttribute: w.opts.AgentName}
	}
	w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_Availability{Availability: res}})
}

// assigned starts a job.
func (w *Worker) assigned(ctx context.Context, a *livekit.JobAssignment) {
	job := a.GetJob()
	w.mu.Lock()
	if w.offers[job.GetId()] == nil || w.full {
		// Too late, or the worker drains: the watch of another worker finds the room.
		w.dropOfferLocked(job.GetId())
		w.mu.Unlock()
		w.updateJob(&livekit.UpdateJobStatus{
			JobId: job.GetId(), Status: livekit.JobStatus_JS_FAILED, Error: "the slot of the job is no longer reserved",
		})
		return
	}
	p := w.offers[job.GetId()].place
	w.dropOfferLocked(job.GetId())
	jctx, cancel := context.WithCancelCause(ctx)
	r := &running{
		w: w, place: p, metadata: job.GetMetadata(), assigned: time.Now(), cancel: cancel,
		over: jctx.Done(), done: make(chan struct{}),
		root: cmp.Or(job.GetAttributes()[rootAttribute], job.GetDispatchId()), sid: job.GetRoom().GetSid(),
		job: Job{
			ID: job.GetId(), DispatchID: job.GetDispatchId(),
			Room: p.room, Participant: p.participant, AgentName: w.opts.AgentName,
			Identity: w.identity(job), Name: w.opts.Name, State: job.GetAttributes()[stateAttribute],
			URL: cmp.Or(a.GetUrl(), w.opts.URL), Token: a.GetToken(), Draining: w.draining,
		},
	}
	r.job.Joined, r.job.Leaving = r.reportJoined, r.reportLeaving
	r.job.Replaced = func(ctx context.Context, sid string) (bool, error) {
		now, err := w.api.participant(ctx, r.job.Room, r.job.Identity)
		return now != nil && now.GetSid() != sid, err
	}
	r.job.HandOver = func(state string) { r.state = state }
	w.places[p] = job.GetId()
	w.jobs[job.GetId()] = r
	w.work.Add(1)
	w.mu.Unlock()
	w.changed.Set()
	go func() {
		defer w.work.Done()
		w.serve(jctx, r)
	}()
}

// terminated ends a job at the request of the server, unless the room still has a dispatch: the server also ends the job of an agent that
// left its room to join it again, or that took the place of a frozen one.
func (w *Worker) terminated(ctx context.Context, id string) {
	w.mu.Lock()
	r := w.jobs[id]
	if r != nil {
		w.work.Add(1)
	}
	w.mu.Unlock()
	if r == nil {
		return
	}
	go func() {
		defer w.work.Done()
		wanted := false
		if r.job.DispatchID != "" {
			roots, _, err := w.api.dispatched(ctx, r.job.Room)
			wanted = len(roots) > 0 || unlessNotFound(err) != nil // reconcile ends it later
		}
		w.log.Debug().Str("job", id).Bool("wanted", wanted).Msg("job terminated by the server")
		if !wanted {
			r.cancel(ErrTerminated)
		}
	}()
}

// serve runs one job until it ends.
func (w *Worker) serve(ctx context.Context, r *running) {
	defer r.cancel(nil)
	defer close(r.done)
	log := w.log.With().Str("room", r.job.Room).Str("job", r.job.ID).Logger()
	log.Info().Str("dispatch", r.job.DispatchID).Str("participant", r.job.Participant).Msg("job started")
	err := rescue.Call(func() error {
		var err error
		if r.job.Metadata, err = ParseMetadata(r.metadata); err != nil {
			if e, ok := w.opts.Runner.(Explainer); ok {
				e.Explain(ctx, r.job, err)
			}
			return err
		}
		return w.opts.Runner.Run(ctx, r.job)
	})
	cause := context.Cause(ctx)
	outcome := "ended"
	switch p, panicked := rescue.Of(err); {
	case panicked:
		outcome = "panicked"
		log.Error().Err(err).Bytes("stack", p.Stack).Msg("job panicked")
	case errors.Is(err, ErrUnwanted):
		outcome, err = "unwanted", nil
	case cause != nil:
		outcome = "terminated"
		if errors.Is(cause, ErrStopping) {
			outcome = "stopped"
		}
		err = nil // errors of the shutdown do not matter
	case err != nil:
		outcome = "failed"
	case isClosed(w.draining):
		outcome = "drained"
	}
	r.reportLeaving(err)
	w.mu.Lock()
	delete(w.jobs, r.job.ID)
	delete(w.places, r.place)
	w.mu.Unlock()
	w.changed.Set()
	w.metrics.ended.WithLabelValues(outcome).Inc()
	if err != nil {
		log.Warn().Err(err).Msg("job failed")
	} else {
		log.Info().Str("outcome", outcome).Msg("job ended")
	}
	switch outcome {
	case "unwanted":
		w.api.callOff(ctx, r)
	case "drained", "stopped":
		w.api.evict(ctx, r)
		if w.api.handOver(ctx, r) {
			w.metrics.redispatches.WithLabelValues("handed_over").Inc()
		}
	case "failed", "panicked":
		w.api.evict(ctx, r)
	}
}

// reportJoined is Job.Joined.
func (r *running) reportJoined() {
	r.joined.Do(func() {
		r.wasIn.Store(true)
		r.w.metrics.joins.Observe(time.Since(r.assigned).Seconds())
		r.w.updateJob(&livekit.UpdateJobStatus{JobId: r.job.ID, Status: livekit.JobStatus_JS_RUNNING})
	})
}

// reportLeaving is Job.Leaving. Only the first call has an effect.
func (r *running) reportLeaving(err error) {
	r.leaving.Do(func() {
		u := &livekit.UpdateJobStatus{JobId: r.job.ID, Status: livekit.JobStatus_JS_SUCCESS}
		if err != nil && !errors.Is(err, ErrUnwanted) {
			u.Status, u.Error = livekit.JobStatus_JS_FAILED, err.Error()
			if len(u.Error) > maxReason {
				u.Error = fmt.Sprintf("%.*s...", maxReason, u.Error)
			}
		}
		if wait := settle - time.Since(r.assigned); wait > 0 { // rare: a job that ends as soon as it begins
			select {
			case <-time.After(wait):
			case <-r.w.ended:
			}
		}
		r.w.updateJob(u)
	})
}
