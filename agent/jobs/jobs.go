// Package jobs runs the commentators of an agent worker: one bot for each job,
// all on one engine of each kind that is asked for.
//
// It owns the hand-over of a room to another worker and how busy the engines
// are. It knows neither the worker's protocol nor the file of settings: the
// caller's Configure turns a job into the settings of its bot.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/room"
	"touchline/agent/worker"
	"touchline/inference"
	"touchline/internal/rescue"
)

// Options of a Manager.
type Options struct {
	// Settings are those of a bot whose job asks for nothing: their engine is made at once.
	Settings bot.Settings
	// Configure returns the settings of a job's bot. An error refuses the job.
	Configure func(worker.Job) (bot.Settings, error)
	// LoopbackOnly keeps media sockets on 127.0.0.1, for a server on this machine.
	LoopbackOnly bool
	// OnBot is shown each bot before it runs; what it returns is called when the bot has ended. May be nil.
	OnBot func(job worker.Job, b *bot.Bot) (done func())
	// Texts are further outputs of each bot; may be nil.
	Texts func(job worker.Job) []agent.TextOutput
	// Hooks returns further hooks of a job's room; may be nil.
	Hooks func(job worker.Job) room.Hooks
	// Outputs are shared by all bots; may be nil.
	Outputs *bot.Outputs
	Log     zerolog.Logger
}

// Manager serves the rooms of an agent worker.
type Manager struct {
	opts  Options
	fresh chan *bot.Engine // to be run

	mu      sync.Mutex
	engines map[string]*bot.Engine
	busy    engineUse
}

// New makes the engine that the settings name, so that what is wrong with it
// ends the start and not the first room.
func New(o Options) (*Manager, error) {
	j := &Manager{opts: o, fresh: make(chan *bot.Engine, 8), engines: map[string]*bot.Engine{}}
	if _, err := j.engine(o.Settings); err != nil {
		return nil, err
	}
	return j, nil
}

// engine returns the shared engine of a name, made when it is first asked for.
func (j *Manager) engine(cfg bot.Settings) (*bot.Engine, error) {
	name := cfg.Engine.Engine
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.engines[name]; e != nil {
		return e, nil
	}
	e, err := bot.NewEngine(cfg, j.opts.Log)
	if err != nil {
		return nil, err
	}
	// What a single room asks for beside the settings' own must not end the others.
	e.Patient = len(j.engines) > 0
	select {
	case j.fresh <- e:
	default:
		return nil, errors.Join(errors.New("make one engine more: there are too many already"), e.Close())
	}
	j.engines[name] = e
	return e, nil
}

// Keep runs the engines until ctx ends, and closes them. It must outlive the jobs.
func (j *Manager) Keep(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			select {
			case <-gctx.Done():
				return nil
			case e := <-j.fresh:
				g.Go(func() error { return ignoreCanceled(e.Run(gctx)) })
			}
		}
	})
	errs := []error{g.Wait()}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// Status reports the loading of the engine that the settings name.
func (j *Manager) Status() inference.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.engines[j.opts.Settings.Engine.Engine].Status()
}

// Load is how busy the engines were over the last seconds, 1 when as many looks
// were always under way as an engine works on at once.
func (j *Manager) Load(now time.Time) float64 { return j.busy.load(now) }

// Ready returns nil while the engine of the settings is loaded, else its state.
func (j *Manager) Ready() error {
	e, err := j.engine(j.opts.Settings)
	if err != nil {
		return err
	}
	s := e.Status()
	if s.Phase == inference.PhaseReady {
		return nil
	}
	return fmt.Errorf("engine %s: %v (%d %%) %s", e.Name(), s.Phase, s.Percent, s.Detail)
}

// Metrics are those of the engines and of the outputs.
func (j *Manager) Metrics() prometheus.Collector { return engineMetrics{j} }

type engineMetrics struct{ j *Manager }

// Describe leaves it to Collect: which engines there are depends on the jobs.
func (engineMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m engineMetrics) Collect(ch chan<- prometheus.Metric) {
	m.j.mu.Lock()
	engines := slices.Collect(maps.Values(m.j.engines))
	m.j.mu.Unlock()
	for _, e := range engines {
		if e.Metrics != nil {
			e.Metrics.Collect(ch)
		}
	}
}

// wordWait bounds the wait for the end of the word under way when a job has to
// end at once; the server waits 3 s for the agent to leave.
const wordWait = time.Second

// recordWait bounds the wait for the records of what was cut.
const recordWait = 300 * time.Millisecond

// Run implements worker.Runner: it is one bot's whole life.
func (j *Manager) Run(ctx context.Context, job worker.Job) error {
	cfg, err := j.opts.Configure(job)
	if err != nil {
		return err
	}
	shared, err := j.engine(cfg)
	if err != nil {
		return err
	}
	log := j.opts.Log.With().Str("room", job.Room).Str("job", job.ID).Logger()
	turn := newTurn(shared.Model, &j.busy, 1/float64(shared.Parallel))
	engine := *shared
	engine.Model = turn
	texts := []agent.TextOutput{turn}
	if j.opts.Texts != nil {
		texts = append(texts, j.opts.Texts(job)...)
	}
	closed := make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(closed) })
	hooks := []room.Hooks{{
		Joined: func(r *lksdk.Room) {
			// Our own tokens lack what the server puts into the ones it makes.
			r.LocalParticipant.SetAttributes(map[string]string{"lk.agent_name": job.AgentName})
			job.Joined()
		},
		Left: func(r *lksdk.Room) {
			switch r.DisconnectReason() {
			case livekit.DisconnectReason_ROOM_CLOSED, livekit.DisconnectReason_ROOM_DELETED:
				closeOnce() // joining it again would open it again
			default:
			}
		},
	}}
	if j.opts.Hooks != nil {
		hooks = append(hooks, j.opts.Hooks(job))
	}
	b, err := bot.New(bot.Options{
		Settings: cfg, Engine: &engine, LoopbackOnly: j.opts.LoopbackOnly, Texts: texts, Outputs: j.opts.Outputs, Log: log,
		Hooks:   hooks,
		OnCrash: job.Leaving, // the server is told why before the agent leaves
	})
	if err != nil {
		return err
	}
	if j.opts.OnBot != nil {
		if done := j.opts.OnBot(job, b); done != nil {
			defer done()
		}
	}

	bctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- rescue.Call(func() error { return b.Run(bctx) }) }()
	select {
	case err := <-ended:
		return outcome(err)
	case <-closed:
	case <-job.Draining:
		turn.finish(ctx, ended)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		b.Room.StayOut()
		turn.endWord(ended)
		// What is left unsaid gets its record, with why.
		b.Stop("the worker: " + context.Cause(ctx).Error())
		turn.settle(recordWait, ended)
	}
	job.Leaving(err)
	leave()
	return errors.Join(err, outcome(<-ended))
}

// outcome is what the end of a bot means for its job.
func outcome(err error) error {
	switch {
	case errors.Is(err, room.ErrReplaced):
		return nil // another worker serves the room
	case errors.Is(err, room.ErrRemoved):
		return fmt.Errorf("%w: %w", worker.ErrUnwanted, err)
	}
	return ignoreCanceled(err)
}

// errTakenOver ends a look that would begin while the room is handed over.
var errTakenOver = errors.New("another worker takes this room over")

// quietFor is how long nothing must have happened for a bot to be thought
// finished whatever the count of its looks says.
const quietFor = 20 * time.Second

// turn stands before the shared engine for one bot. It knows which looks are
// still to be heard, and can have the bot begin no more.
type turn struct {
	inference.Model
	busy  *engineUse
	share float64       // of the engine that a look takes
	word  chan struct{} // a step of the captions

	mu       sync.Mutex
	last     bool // begin no more looks
	begun    int
	heard    int
	speaking bool
	at       time.Time // when something happened last
}

func newTurn(m inference.Model, busy *engineUse, share float64) *turn {
	return &turn{Model: m, busy: busy, share: share, word: make(chan struct{}, 1), at: time.Now()}
}

// Status has a bot that is handed over wait as for a model that loads: no look
// begins.
func (t *turn) Status() inference.Status {
	st := t.Model.Status()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last {
		st.Phase, st.Detail = inference.PhaseLoading, errTakenOver.Error()
	}
	return st
}

// Close leaves the shared engine alone.
func (t *turn) Close() error { return nil }

// NewSession implements inference.Model.
func (t *turn) NewSession() (inference.Session, error) {
	inner, err := t.Model.NewSession()
	if err != nil {
		return nil, err
	}
	s := &turnSession{Session: inner, t: t}
	if o, ok := inner.(inference.Observer); ok {
		return &observingTurn{turnSession: s, Observer: o}, nil
	}
	return s, nil
}

type turnSession struct {
	inference.Session
	t *turn
}

type observingTurn struct {
	*turnSession
	inference.Observer
}

// Generate passes a look on, unless the room is being handed over.
func (s *turnSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		s.t.mu.Lock()
		last := s.t.last
		s.t.begun++
		s.t.at = time.Now()
		s.t.mu.Unlock()
		if last {
			yield(inference.Chunk{}, errTakenOver)
			return
		}
		s.t.busy.begin(time.Now(), s.t.share)
		defer func() { s.t.busy.end(time.Now(), s.t.share) }()
		for c, err := range s.Session.Generate(ctx, p) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// Caption implements agent.TextOutput.
func (t *turn) Caption(agent.Caption) {
	t.mu.Lock()
	t.at = time.Now()
	t.mu.Unlock()
	select {
	case t.word <- struct{}{}:
	default:
	}
}

// Record implements agent.TextOutput: a look that reached the engine has a
// record when it was heard, or will not be.
func (t *turn) Record(r agent.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Now()
	if len(r.FrameIDs) > 0 && !r.Skipped {
		t.heard++
	}
}

// State implements agent.TextOutput.
func (t *turn) State(s agent.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.speaking = s.State == agent.StateSpeaking
}

// finish begins no more looks and returns when all that was begun has been
// heard, or when ctx ends or the bot does.
func (t *turn) finish(ctx context.Context, ended <-chan error) {
	t.mu.Lock()
	t.last = true
	t.mu.Unlock()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !t.done() && len(ended) == 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// done tells whether all that was begun has been heard.
func (t *turn) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.speaking && (t.heard >= t.begun || time.Since(t.at) > quietFor)
}

// settle waits for the same, for a moment.
func (t *turn) settle(most time.Duration, ended <-chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	t.finish(ctx, ended)
}

// endWord returns at the next step of the captions of what is being said, which
// is where a word begins.
func (t *turn) endWord(ended <-chan error) {
	t.mu.Lock()
	speaking := t.speaking
	t.mu.Unlock()
	if !speaking || len(ended) > 0 {
		return
	}
	select {
	case <-t.word: // an old one
	default:
	}
	timer := time.NewTimer(wordWait)
	defer timer.Stop()
	select {
	case <-t.word:
	case <-timer.C:
	}
}

// engineUse adds up how long looks were under way, of all rooms together.
type engineUse struct {
	mu    sync.Mutex
	now   float64 // shares of an engine that looks take; powers of two, so that sums are exact
	since time.Time
	spent time.Duration // of a whole engine
	meter worker.Meter
}

func (u *engineUse) begin(now time.Time, share float64) { u.change(now, share) }
func (u *engineUse) end(now time.Time, share float64)   { u.change(now, -share) }

func (u *engineUse) change(now time.Time, by float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.countLocked(now)
	u.now += by
}

func (u *engineUse) countLocked(now time.Time) {
	if !u.since.IsZero() {
		u.spent += time.Duration(min(u.now, 1) * float64(now.Sub(u.since)))
	}
	u.since = now
}

// load is the share of the places that was in use over the last seconds.
func (u *engineUse) load(now time.Time) float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.countLocked(now)
	return u.meter.Rate(now, u.spent)
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
