package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent/audioapi"
	"touchline/agent/command"
	"touchline/agent/hearing"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/live"
	"touchline/inference/nano"
	"touchline/inference/qwen3asr"
	"touchline/inference/remote"
	"touchline/inference/sphinx"
	"touchline/inference/step"
	"touchline/inference/vad"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
	"touchline/models"
)

// Recognizer turns speech into text.
type Recognizer struct {
	inference.Recognizer

	// Run loads and unloads the model until ctx ends. It also returns, with qwen3asr.ErrDeviceLost, when the GPU is lost.
	Run func(ctx context.Context) error
	// Note describes the limits of the model; "" without limits.
	Note string
	// Metrics of the model; nil without any.
	Metrics prometheus.Collector
	// Step is the interval of interim texts; 0 is the default.
	Step time.Duration
	// Device describes where it runs; nil for unknown.
	Device func() audioapi.Device

	loaded <-chan struct{} // closed after the first try to load the model
}

// NewRecognizer makes the configured recognizer, with the one of interim texts; nil if there is none. runtime is the folder of ONNX
// Runtime, or "".
func NewRecognizer(cfg inference.RecognizerConfig, runtime string, log zerolog.Logger) (*Recognizer, error) {
	exact, err := newRecognizer(cfg, runtime, log)
	interims, ok := cfg.Interims()
	if err != nil || !ok {
		return exact, err
	}
	fast, err := newRecognizer(interims, runtime, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inference.recognizer.interim: %w", err), exact.Close())
	}
	return withInterims(exact, fast, log), nil
}

// withInterims returns the exact recognizer with the interim texts of a fast one.
func withInterims(exact, fast *Recognizer, log zerolog.Logger) *Recognizer {
	run := func(ctx context.Context) error {
		all, ctx := rescue.WithContext(ctx)
		all.Go(func() error { return exact.Run(ctx) })
		all.Go(func() error {
			select {
			case <-exact.loaded: // it takes its memory first
			case <-ctx.Done():
			}
			return fast.Run(ctx)
		})
		return all.Wait()
	}
	var figures metrics.Bundle
	for _, r := range []*Recognizer{exact, fast} {
		if r.Metrics != nil {
			figures = append(figures, r.Metrics)
		}
	}
	r := *exact
	r.Recognizer, r.Run = live.Pair(exact.Recognizer, fast.Recognizer, log), run
	r.Note, r.Metrics = cmp.Or(exact.Note, fast.Note), metrics.Func(figures.Collect)
	r.Device = func() audioapi.Device {
		d := exact.Device()
		d.Memory += fast.Device().Memory
		return d
	}
	return &r
}

func newRecognizer(cfg inference.RecognizerConfig, runtime string, log zerolog.Logger) (*Recognizer, error) {
	switch cfg.Program {
	case inference.RecognizerModel:
		r, err := newHearing(cfg, runtime, log)
		if err != nil {
			return nil, fmt.Errorf("prepare the recognizer: %w", err)
		}
		return r, nil
	case inference.RecognizerRemote:
		server, err := remote.NewRecognizer(cfg, log)
		if err != nil {
			return nil, err
		}
		r := AlwaysLoaded(server)
		r.Device = func() audioapi.Device { return audioapi.Device{Kind: "remote"} }
		name := "touchline_recognizer_too_long_total"
		if cfg.OfInterims() {
			name = "touchline_recognizer_interim_too_long_total"
		}
		r.Metrics = metrics.Counter(name, "Live sessions that ended because the server sent too much text.", server.TooLong)
		return r, nil
	case inference.RecognizerSphinx:
		r, err := sphinx.Open(sphinx.Options{Orders: command.SpokenOrders()})
		if err != nil {
			return nil, fmt.Errorf("prepare the recognizer: %w", err)
		}
		return AlwaysLoaded(r), nil
	}
	return nil, nil //nolint:nilnil // without an error there is none
}

// AlwaysLoaded returns a recognizer without a model to load; its Run closes it.
func AlwaysLoaded(r inference.Recognizer) *Recognizer {
	loaded := make(chan struct{})
	close(loaded)
	return &Recognizer{Recognizer: r, loaded: loaded, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return r.Close()
	}}
}

// newHearing makes the recognizer of a bundle.
func newHearing(cfg inference.RecognizerConfig, runtime string, log zerolog.Logger) (*Recognizer, error) {
	bundle, err := models.OpenBundle(cfg.Bundle)
	if err != nil {
		return nil, err
	}
	o := qwen3asr.Options{
		Aligner: cfg.Aligner, Runtime: runtime, Device: cfg.Device, GPU: cfg.GPU, Slots: cfg.Slots, Step: cfg.Step, Logger: log,
	}
	figures := "" // what the names of its metrics begin with
	if cfg.OfInterims() {
		o.Priority, figures = step.Interim, "interim_"
	}
	can, err := qwen3asr.Describe(bundle, o)
	if err != nil {
		return nil, err
	}
	loaded := make(chan struct{})
	tried := sync.OnceFunc(func() { close(loaded) })
	manager, err := engine.NewRecognizer(func(ctx context.Context, progress engine.Progress) (inference.Recognizer, error) {
		defer tried()
		log.Info().Str("bundle", bundle.Dir).Str("device", cfg.Device).Msg("loading the recognizer")
		o := o
		o.Progress = progress
		return qwen3asr.Open(ctx, bundle, o)
	}, can, engine.Options{
		Preload: true, IdleUnload: cfg.IdleUnload, ErrLost: qwen3asr.ErrDeviceLost, Logger: log,
		OnLost: func(err error) {
			log.Error().Err(err).Msg("GPU lost; restart the program")
		},
	})
	if err != nil {
		return nil, err
	}
	r := &Recognizer{Recognizer: manager, Run: manager.Run, loaded: loaded, Metrics: metrics.Func(func(ch chan<- prometheus.Metric) {
		collectRecognizer(manager, figures, ch)
	})}
	r.Device = func() audioapi.Device {
		d := audioapi.Device{Kind: cfg.Device}
		if model, ok := manager.Loaded().(*qwen3asr.Engine); ok {
			s := model.Stats()
			d.Name, d.Memory = s.DeviceName, s.MemoryPlanned
		}
		return d
	}
	if bundle.Manifest.Random {
		r.Note = "The recognizer's weights are random: its words mean nothing."
	}
	return r, nil
}

// Recognition is the recognizer of a process with its detectors of speech. Rooms and the service share it.
type Recognition struct {
	*Recognizer

	runtime string
	log     zerolog.Logger

	mu   sync.Mutex
	open *vad.Model // nil before the first use
}

// NewRecognition makes the configured recognizer; nil if there is none. runtime is the folder of ONNX Runtime, or "".
func NewRecognition(cfg inference.RecognizerConfig, runtime string, log zerolog.Logger) (*Recognition, error) {
	r, err := NewRecognizer(cfg, runtime, log)
	if r == nil || err != nil {
		return nil, err
	}
	r.Step = cfg.Step
	if r.Note != "" {
		log.Warn().Msg(r.Note)
	}
	return RecognitionBy(r, runtime, log), nil
}

// RecognitionBy adds detectors of speech to a recognizer.
func RecognitionBy(r *Recognizer, runtime string, log zerolog.Logger) *Recognition {
	return &Recognition{Recognizer: r, runtime: runtime, log: log}
}

// detectors returns the detectors of speech.
func (r *Recognition) detectors() *vad.Model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = vad.Open(r.runtime)
		if err := r.open.Err(); err != nil {
			r.log.Warn().Err(err).Msg("Silero VAD unavailable; using energy VAD")
		}
	}
	return r.open
}

// Run loads and unloads the recognizer until ctx ends, and closes all. It must outlive the rooms and the service.
func (r *Recognition) Run(ctx context.Context) error {
	err := r.Recognizer.Run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open != nil {
		err = errors.Join(err, r.open.Close())
	}
	return err
}

// texts returns a model that answers a text without a picture; nil for one that does not.
func texts(m inference.Model) inference.Model {
	if m == nil || !m.Capabilities().Instructions || m.Name() == nano.Name {
		return nil
	}
	return m
}

// service returns transcription as a service. It also runs run; nil if the recognizer runs already. text is the model that
// translates.
func (r *Recognition) service(
	limits audioapi.Config, run func(context.Context) error, text func() inference.Model,
) *audioapi.Transcriber {
	return audioapi.NewTranscriber(audioapi.TranscriberOptions{
		Config: limits, Recognizer: r.Recognizer.Recognizer, Metrics: r.Metrics, VAD: r.detectors(), Decode: audioapi.NewDecoder(""),
		Run: run, Text: text, Step: r.Step, Device: r.Device, Log: r.log,
	})
}

// ears returns the speech recognition of one room.
func (r *Recognition) ears(log zerolog.Logger) *hearing.Ears {
	return hearing.New(hearing.Options{
		Recognizer: r.Recognizer.Recognizer, Detector: func() (vad.Detector, error) { return r.detectors().Detector() },
		Step: r.Step, Log: log,
	})
}

// ErrOrdersOnly is returned for transcription by a recognizer that has no text for other speech than orders.
var ErrOrdersOnly = errors.New(
	"inference.recognizer.program sphinx knows spoken orders only and cannot transcribe; choose model or remote (docs/transcription.md)")

// NewTranscription returns transcription as a service, by the configured recognizer; nil if there is none. A remote engine translates;
// other engines are not loaded for that.
func NewTranscription(cfg Settings, log zerolog.Logger) (*audioapi.Transcriber, error) {
	r, err := NewRecognition(cfg.Engine.Recognizer, cfg.MiniCPM.Runtime, log)
	if r == nil || err != nil {
		return nil, err
	}
	if r.Recognizes().OrdersOnly {
		return nil, errors.Join(ErrOrdersOnly, r.Close())
	}
	if cfg.Engine.Engine != "remote" {
		return r.service(cfg.Transcription, r.Run, nil), nil
	}
	m, err := remote.New(cfg.Remote, cfg.Engine.MaxTokens, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the remote engine: %w", err)
	}
	run := func(ctx context.Context) error { return errors.Join(r.Run(ctx), m.Close()) }
	return r.service(cfg.Transcription, run, func() inference.Model { return m }), nil
}
