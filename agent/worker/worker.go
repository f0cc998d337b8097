package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/internal/wake"
)

const (
	// leaveWithin is how long a job may take to leave, after which the server removes the agent.
	leaveWithin = 3 * time.Second
	// assignmentTimeout is how long a slot is reserved for an accepted offer.
	assignmentTimeout = 7500 * time.Millisecond
	// maxDeployment and maxAgentName are the server's bounds, in bytes.
	maxDeployment = 64
	maxAgentName  = 128
)

// Options of a Worker.
type Options struct {
	// URL, APIKey and APISecret of the LiveKit server.
	URL, APIKey, APISecret string
	// WorkerToken is an additional token of LiveKit Cloud.
	WorkerToken string
	// AgentName makes dispatch explicit: only rooms with a dispatch for this name get the agent. "" serves every
	// new room (automatic dispatch).
	AgentName string
	// Deployment limits the offers to dispatches that name it; usually "".
	Deployment string
	// JobType is the scope of one job.
	JobType livekit.JobType
	// Slots is the maximum number of jobs.
	Slots int
	// MachineLoad returns the load of the machine, 1 for full, in addition to the slots. It is called every few seconds and
	// on every change. May be nil.
	MachineLoad func(now time.Time) float64
	// Ready returns nil once jobs can be served, otherwise the reason. The worker registers after the first nil and does
	// not call it again. May be nil.
	Ready func() error
	// DrainTimeout bounds a drain; 0 is 1 h.
	DrainTimeout time.Duration
	// WatchEvery is the interval, with jitter, of the search for rooms that lost their agent; 0 is 3 s, negative never.
	WatchEvery time.Duration
	// Name of the agent in front ends.
	Name string
	// Version of this program, for the server's log.
	Version string
	// Runner serves the jobs.
	Runner Runner
	Log    zerolog.Logger
}

// Worker is an agent worker of a LiveKit server. Run may be called once.
type Worker struct {
	opts      Options
	log       zerolog.Logger
	api       *roomAPI
	socketURL string
	metrics   *counters

	drainOnce sync.Once
	draining  chan struct{}
	ready     atomic.Bool
	ended     chan struct{} // Run has ended
	changed   wake.Signal   // the load

	// work counts open offers, jobs and their endings. It grows only under mu and while full is not set or a job runs.
	work sync.WaitGroup

	mu            sync.Mutex
	link          *link // nil while disconnected
	id            string
	server        *livekit.ServerInfo
	registrations int
	lostAt        time.Time
	full          bool // no more jobs are accepted
	offers        map[string]*offer
	jobs          map[string]*running
	places        map[place]string // id of the job or offer, by place
	unreported    []*livekit.UpdateJobStatus
}

// place is a room or a participant with at most one job.
type place struct{ room, participant string }

// New checks the options. It does not connect.
func New(opts Options) (*Worker, error) {
	api, socket, err := addresses(opts.URL, opts.WorkerToken)
	if err != nil {
		return nil, err
	}
	switch {
	case opts.APIKey == "" || opts.APISecret == "":
		return nil, errors.New("the worker needs an API key and a secret; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")
	case opts.Runner == nil:
		return nil, errors.New("the worker needs a Runner")
	case opts.Slots < 1:
		return nil, fmt.Errorf("the worker needs at least one slot, has %d", opts.Slots)
	case opts.DrainTimeout < 0:
		return nil, fmt.Errorf("the drain timeout must not be negative, is %v", opts.DrainTimeout)
	case len(opts.AgentName) > maxAgentName || !utf8.ValidString(opts.AgentName):
		return nil, fmt.Errorf("the agent name must be UTF-8 of at most %d bytes, has %d", maxAgentName, len(opts.AgentName))
	}
	if err := checkDeployment(opts.Deployment); err != nil {
		return nil, err
	}
	opts.DrainTimeout = cmp.Or(opts.DrainTimeout, time.Hour)
	opts.WatchEvery = cmp.Or(opts.WatchEvery, 3*time.Second)
	opts.Log = opts.Log.With().Str("component", "worker").Logger()
	w := &Worker{
		opts: opts, socketURL: socket,
		log:      opts.Log,
		api:      newRoomAPI(api, opts),
		draining: make(chan struct{}),
		ended:    make(chan struct{}),
		changed:  wake.New(),
		offers:   map[string]*offer{},
		jobs:     map[string]*running{},
		places:   map[place]string{},
		metrics:  newCounters(),
	}
	return w, nil
}

// checkDeployment applies the server's rule for names of deployments.
func checkDeployment(name string) error {
	if len(name) > maxDeployment {
		return fmt.Errorf("the deployment name must have at most %d bytes, has %d", maxDeployment, len(name))
	}
	for _, c := range []byte(name) {
		if c == '_' || c <= ' ' || c == 0x7f {
			return fmt.Errorf("the deployment name %q must not contain white space or underscores", name)
		}
	}
	return nil
}

// Drain ends the worker gracefully: it accepts no more jobs, ends running jobs at the end of their sentences, hands their
// rooms to other workers and returns from Run. Drain does not block and may be called more than once.
func (w *Worker) Drain() {
	w.drainOnce.Do(func() { close(w.draining) })
}

// Run serves jobs until a drain is over (nil) or ctx ends (nil), which ends all jobs at once. It returns ErrRefused if the
// server refuses the keys, and an error that names the rooms of jobs that did not end in time.
func (w *Worker) Run(ctx context.Context) error {
	defer w.api.idle()
	defer close(w.ended)
	if !w.awaitReady(ctx) {
		return nil
	}
	// The connection outlives the jobs, to report their ends.
	lctx, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	jctx, stopJobs := context.WithCancelCause(lctx)
	defer stopJobs(nil)
	wctx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()

	var g errgroup.Group
	over := make(chan struct{}) // closed when stayConnected returns
	g.Go(func() error {
		defer close(over)
		return w.stayConnected(lctx, jctx)
	})
	if w.opts.WatchEvery > 0 {
		search := &watch{Worker: w, known: map[string]*roomState{}}
		g.Go(func() error { search.run(wctx); return nil })
	}

	select {
	case <-ctx.Done():
	case <-over:
	case <-w.draining:
		w.endAll(ctx)
	}
	stopWatching()
	w.refuseMore()
	stopJobs(ErrStopping)
	late := w.await()
	disconnect()
	return errors.Join(g.Wait(), late)
}

// readyEvery is the polling interval of Options.Ready.
const readyEvery = 100 * time.Millisecond

// awaitReady returns false when ctx or a drain ends the wait.
func (w *Worker) awaitReady(ctx context.Context) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for logged := false; ; {
		err := w.notReady()
		if err == nil {
			return true
		}
		if !logged {
			w.log.Info().AnErr("reason", err).Msg("waiting to register")
			logged = true
		}
		select {
		case <-ctx.Done():
			return false
		case <-w.draining:
			return false
		case <-tick.C:
		}
	}
}

// notReady returns why no job can be served, nil after the first nil of Options.Ready.
func (w *Worker) notReady() error {
	if w.opts.Ready == nil || w.ready.Load() {
		return nil
	}
	err := w.opts.Ready()
	w.ready.Store(err == nil)
	return err
}

// refuseMore makes the worker refuse further jobs.
func (w *Worker) refuseMore() {
	w.mu.Lock()
	w.full = true
	w.mu.Unlock()
	w.report(time.Now())
}

// endAll drains the worker. It returns when no job is left, the drain timeout is over or ctx ends.
func (w *Worker) endAll(ctx context.Context) {
	w.refuseMore()
	began := time.Now()
	w.mu.Lock()
	n := len(w.jobs)
	w.mu.Unlock()
	w.log.Info().Int("jobs", n).Float64("timeout_s", w.opts.DrainTimeout.Seconds()).Msg("draining")
	select {
	case <-w.idle(): // pending offers are refused or become jobs, and all jobs see the drain
		w.log.Info().Float64("took_s", time.Since(began).Seconds()).Msg("drained")
	case <-time.After(w.opts.DrainTimeout):
		w.log.Warn().Float64("took_s", time.Since(began).Seconds()).Msg("drain timed out; ending the remaining jobs")
	case <-ctx.Done():
	}
}

// idle returns a channel that is closed when no offer and no job is left.
func (w *Worker) idle() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		w.work.Wait()
		close(ended)
	}()
	return ended
}

// await waits up to leaveWithin for the jobs to leave.
func (w *Worker) await() error {
	select {
	case <-w.idle():
		return nil
	case <-time.After(leaveWithin):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rooms := map[string]bool{}
	for p := range w.places {
		rooms[p.room] = true
	}
	if len(rooms) == 0 {
		return nil // the jobs have ended; only their hand-over is not finished
	}
	return fmt.Errorf("leave the rooms: jobs still running after %v in %q", leaveWithin, slices.Sorted(maps.Keys(rooms)))
}

// fullLoad is the load at which the server offers a worker no more jobs: the default of its setting agents.target_load.
const fullLoad = 0.7

// scaledLoad returns the load to report: the larger of the used share of the slots
// and the machine's load, scaled so that full is fullLoad, and at most 1.
func scaledLoad(taken, places int, machine float64) (load float64, full bool) {
	fullness := max(float64(taken)/float64(places), machine, 0)
	return min(fullLoad*fullness, 1), fullness >= 1
}

// fullness returns the reported load, whether the worker is full, and the number of jobs.
func (w *Worker) fullness(now time.Time) (load float64, full bool, jobs int) {
	machine := 0.0
	if w.opts.MachineLoad != nil && w.notReady() == nil { // loading is no load of rooms
		machine = w.opts.MachineLoad(now)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	load, full = scaledLoad(len(w.jobs)+len(w.offers), w.opts.Slots, machine)
	if w.full || isClosed(w.draining) {
		load, full = max(load, fullLoad), true
	}
	return load, full, len(w.jobs)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Simulate requests a job for a room from the server, even if the room has an agent. It fails if the worker is not
// registered.
func (w *Worker) Simulate(room, participant string) error {
	req := &livekit.SimulateJobRequest{Type: w.opts.JobType, Room: &livekit.Room{Name: room}}
	if participant != "" {
		req.Participant = &livekit.ParticipantInfo{Identity: participant}
	}
	if !w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_SimulateJob{SimulateJob: req}}) {
		return fmt.Errorf("simulate a job: %w", errAway)
	}
	return nil
}

// State is a snapshot of a worker.
type State struct {
	// ID assigned by the server, "" before the first registration.
	ID string
	// Registered reports whether the worker is connected; Registrations counts all connections.
	Registered    bool
	Registrations int
	// AwaySince is the time of the loss of the connection; zero while connected and before the first.
	AwaySince time.Time
	Draining  bool
	// Load as reported to the server, Slots, and running Jobs.
	Load  float64
	Slots int
	Jobs  int
	// Rooms of the jobs, sorted.
	Rooms []string
}

// State returns a snapshot.
func (w *Worker) State() State {
	load, _, jobs := w.fullness(time.Now())
	rooms := slices.Sorted(maps.Keys(w.ownRooms()))
	w.mu.Lock()
	defer w.mu.Unlock()
	s := State{
		ID: w.id, Registered: w.link != nil, Registrations: w.registrations,
		Draining: w.full || isClosed(w.draining), Load: load, Slots: w.opts.Slots, Jobs: jobs, Rooms: rooms,
	}
	if w.link == nil {
		s.AwaySince = w.lostAt
	}
	return s
}
