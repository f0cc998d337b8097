package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/remote"
	"touchline/inference/voice"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// maxEngines bounds the engines of one process.
const maxEngines = 8

// listVoices bounds the search for installed voices.
const listVoices = 10 * time.Second

// Engines makes the engines of a process and shares each among the rooms that choose it. An engine is closed with its last room.
type Engines struct {
	log      zerolog.Logger
	make     func(Settings, zerolog.Logger) (*Engine, error)
	discover func(ctx context.Context, addresses ...string) []remote.Found
	voices   func() []voice.Voice // installed ones
	wake     wake.Signal          // an engine is to be run

	mu     sync.Mutex
	shared []*sharedEngine // oldest first

	// recognizer of the process, made for the first room or service that asks; nil without.
	recognizer *Recognition
	heard      bool // it was asked for
	hears      bool // it runs
}

// sharedEngine is an engine with the number of its rooms.
type sharedEngine struct {
	*Engine

	choice agent.EngineChoice
	given  bool // by a caller, who runs and closes it

	// Guarded by Engines.mu.
	rooms   int
	begin   bool // it is to be run
	running bool
	proven  bool  // its failure ends the process
	failed  error // of Run
}

// NewEngines returns Engines without any; Run runs them. cfg has the speech server, if any.
func NewEngines(cfg inference.VoiceConfig, log zerolog.Logger) *Engines {
	return &Engines{log: log, make: NewEngine, discover: remote.Discover, wake: wake.New(), voices: sync.OnceValue(func() []voice.Voice {
		ctx, cancel := context.WithTimeout(context.Background(), listVoices)
		defer cancel()
		return voice.Installed(ctx, cfg)
	})}
}

// Run loads and unloads the engines until ctx ends, and closes them. It must outlive the bots. It returns the error of an
// engine that cannot go on, unless that is still on trial.
func (r *Engines) Run(ctx context.Context) error {
	g, gctx := rescue.WithContext(ctx)
	g.Go(func() error {
		for {
			for _, run := range r.begun() {
				g.Go(func() error { return rescue.UnlessCanceled(run(gctx)) })
			}
			select {
			case <-gctx.Done():
				return nil
			case <-r.wake:
			}
		}
	})
	errs := []error{g.Wait()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.shared {
		if !e.given {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

// begun returns the Run functions of the parts that have begun since the last call.
func (r *Engines) begun() (out []func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.shared {
		if e.begin && !e.running {
			e.running = true
			out = append(out, func(ctx context.Context) error { return r.run(ctx, e) })
		}
	}
	if r.recognizer != nil && !r.hears {
		r.hears = true
		out = append(out, r.recognizer.Run)
	}
	return out
}

// recognition returns the recognizer of the process, nil if the settings of the first call want none.
func (r *Engines) recognition(cfg Settings) (*Recognition, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard {
		return r.recognizer, nil
	}
	var err error
	if r.recognizer, err = NewRecognition(cfg.Engine.Recognizer, cfg.MiniCPM.Runtime, r.log); err != nil {
		return nil, err
	}
	r.heard = true
	r.wake.Set()
	return r.recognizer, nil
}

// addRecognition makes the recognizer of a caller, who runs it, that of the process.
func (r *Engines) addRecognition(given *Recognition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recognizer, r.heard, r.hears = given, true, true
}

// Transcription returns transcription as a service while the Engines run; nil if the settings want none. model is the engine in force,
// which translates if it can.
func (r *Engines) Transcription(cfg Settings, model func() inference.Model) (*audioapi.Transcriber, error) {
	ears, err := r.recognition(cfg)
	if ears == nil || err != nil {
		return nil, err
	}
	if ears.Recognizes().OrdersOnly {
		r.log.Info().Err(ErrOrdersOnly).Msg("transcription service off")
		return nil, nil //nolint:nilnil // rooms still recognize orders
	}
	return ears.service(cfg.Transcription, nil, func() inference.Model { return texts(model()) }), nil
}

func (r *Engines) run(ctx context.Context, e *sharedEngine) error {
	err := rescue.UnlessCanceled(e.Run(ctx))
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.failed = err
	if e.proven {
		return err
	}
	r.log.Warn().Err(err).Stringer("engine", e.choice).Msg("engine on trial ended")
	return nil
}

// take returns the engine of the settings for one more room, and makes it for the first. It is loaded once it is started; a patient one
// is loaded again when its first load fails.
func (r *Engines) take(cfg Settings, patient bool) (*sharedEngine, error) {
	choice := choiceOf(cfg)
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.shared, func(e *sharedEngine) bool { return e.choice == choice && e.failed == nil })
	if i < 0 {
		if i = len(r.shared); i >= maxEngines {
			return nil, fmt.Errorf("make the engine %s: this process has %d already", choice, maxEngines)
		}
		e, err := r.make(cfg, r.log)
		if err != nil {
			return nil, err
		}
		r.shared = append(r.shared, &sharedEngine{Engine: e, choice: choice})
	}
	e := r.shared[i]
	e.rooms++
	if patient && !e.begin {
		e.Patient = true
	}
	return e, nil
}

// add adds the engine of a caller, who runs it and closes it.
func (r *Engines) add(e *Engine, choice agent.EngineChoice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared = append(r.shared, &sharedEngine{Engine: e, choice: choice, given: true, rooms: 1, begin: true, running: true})
}

// start lets an engine load, unless it has started. A failure of a proven engine ends the process.
func (r *Engines) start(e *sharedEngine, proven bool) {
	r.mu.Lock()
	e.begin, e.proven = true, e.proven || proven
	r.mu.Unlock()
	r.wake.Set()
}

// Pin makes the engine of the settings, whose first load must not fail, and keeps it until Run ends.
func (r *Engines) Pin(cfg Settings) (*Engine, error) {
	e, err := r.take(cfg, false)
	if err != nil {
		return nil, err
	}
	r.start(e, true)
	return e.Engine, nil
}

// state returns the number of an engine's rooms and why it cannot go on.
func (r *Engines) state(e *sharedEngine) (rooms int, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.rooms, e.failed
}

// loaded reports whether an engine can answer; err is why it cannot be loaded.
func (r *Engines) loaded(e *sharedEngine) (st inference.Status, err error) {
	_, err = r.state(e)
	st = e.Status()
	if err != nil || st.Phase != inference.PhaseFailed {
		return st, err
	}
	return st, cmp.Or(e.Failure(), errors.New(st.Detail))
}

// release ends the use of an engine by a room. The last one closes the engine, and release returns when its memory is free.
func (r *Engines) release(e *sharedEngine) error {
	r.mu.Lock()
	e.rooms--
	last := e.rooms == 0
	if last {
		r.shared = slices.DeleteFunc(r.shared, func(other *sharedEngine) bool { return other == e })
	}
	r.mu.Unlock()
	if last {
		return e.Close()
	}
	return nil
}

// Describe implements prometheus.Collector: the metrics depend on the engines.
func (*Engines) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: the metrics of the oldest engine of each kind, as two would have the same names.
func (r *Engines) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	var remote, local prometheus.Collector
	spoken := map[string]uint64{}
	var failovers uint64
	for _, e := range slices.Backward(r.shared) {
		stats := e.VoiceStats()
		for program, n := range stats.Spoken {
			spoken[program] += n
		}
		failovers += stats.Failovers
		if e.choice.Engine == inference.EngineRemote {
			remote = e.Metrics
		} else if e.Metrics != nil {
			local = e.Metrics
		}
	}
	r.mu.Unlock()
	out := metrics.Writer{Out: ch, Prefix: "touchline_voice_"}
	for program, n := range spoken {
		out.Counter("sentences_total", "Sentences spoken, by the program.", float64(n), "program", program)
	}
	if len(spoken) > 0 {
		out.Counter("failovers_total", "Sentences that a program of this machine spoke as the speech server failed.", float64(failovers))
	}
	for _, c := range []prometheus.Collector{remote, local} {
		if c != nil {
			c.Collect(ch)
		}
	}
}

// choiceOf returns the engine that the settings name.
func choiceOf(cfg Settings) agent.EngineChoice {
	switch name := cfg.Engine.Engine; name {
	case "", inference.EngineAuto:
		return agent.EngineChoice{Engine: cmp.Or(cfg.Auto.Engine, inference.EngineScene)}
	case inference.EngineRemote:
		return agent.EngineChoice{Engine: name, Model: cfg.Remote.Model, Server: cfg.Remote.URL}
	default:
		return agent.EngineChoice{Engine: name}
	}
}

// with returns the settings with another engine. The key for the configured server goes to no other one.
func (cfg Settings) with(c agent.EngineChoice) Settings {
	cfg.Engine.Engine = c.Engine
	if c.Engine != inference.EngineRemote {
		return cfg
	}
	if c.Server != cfg.Remote.URL {
		cfg.Remote.URL, cfg.Remote.APIKey = c.Server, ""
	}
	cfg.Remote.Model = c.Model
	return cfg
}
