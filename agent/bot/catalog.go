package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/nano"
	"touchline/inference/remote"
	"touchline/inference/scene"
	"touchline/inference/sight"
	"touchline/internal/metrics"
	"touchline/models"
	networks "touchline/models/sight"
)

// kind is an engine of inference.Engines.
type kind struct {
	name string
	// make makes the engine of the settings, which is not loaded yet.
	make func(cfg Settings, log zerolog.Logger) (*Engine, error)
	// options lists what a room can choose; nil for the name alone.
	options func(ctx context.Context, cfg Settings, discover discovery) []agent.EngineOption
}

// discovery finds model servers at addresses, or on this machine.
type discovery func(ctx context.Context, addresses ...string) []remote.Found

// kinds is the table of the engines, in the order of the page.
func kinds() []kind {
	return []kind{
		{inference.EngineScene, newScene, nil},
		{inference.EngineNano, newNano, nil},
		{inference.EngineSight, newSight, sightOptions},
		{inference.EngineMiniCPM, newMiniCPM, bundleOptions},
		{inference.EngineRemote, newRemote, serverOptions},
	}
}

// NewEngine makes the configured engine with its voice. The engine is in memory while it is used.
func NewEngine(cfg Settings, log zerolog.Logger) (*Engine, error) {
	name := choiceOf(cfg).Engine
	i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("expected inference.engine to be %s, got %q", inference.List(inference.Engines()), name)
	}
	return kinds()[i].make(cfg, log)
}

// sceneParallel is how many answers the engines scene and sight work on at once.
const sceneParallel = 4

func newScene(cfg Settings, log zerolog.Logger) (*Engine, error) {
	log.Info().Str("engine", inference.EngineScene).
		Str("hint", "for a vision-language model, set inference.engine to remote or use --model DIR").Msg("no model configured")
	e := &Engine{
		Note: "No model is configured: the built-in scene engine only says what measurably changed in the picture.",
	}
	if cfg.Auto.Why != "" {
		e.Note += " Engine sight names people, vehicles, animals and text, but it is not chosen: " + cfg.Auto.Why + "."
	}
	can := scene.Model{}.Capabilities()
	if lang := cfg.Engine.Voice.Language; !can.Speaks(lang) {
		e.Note += fmt.Sprintf(" It speaks English only: inference.voice.language %q has no effect.", lang)
	}
	return e, e.manage(func(context.Context, engine.Progress) (inference.Model, error) { return scene.Model{}, nil },
		engine.Options{Name: inference.EngineScene, Capabilities: can, Parallel: sceneParallel}, cfg.Engine, log)
}

func newRemote(cfg Settings, log zerolog.Logger) (*Engine, error) {
	// Its own checks run now, so that a wrong URL fails the start and not the first cycle.
	last, err := remote.New(cfg.Remote, cfg.Engine.MaxTokens, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the remote engine: %w", err)
	}
	e := &Engine{}
	err = e.manage(func(context.Context, engine.Progress) (inference.Model, error) {
		m, err := remote.New(cfg.Remote, cfg.Engine.MaxTokens, log)
		if err == nil { // one load at a time
			m.Recall(last)
			last = m
		}
		return m, err
	}, engine.Options{
		Name: inference.EngineRemote, Capabilities: remote.Capabilities(), Parallel: cfg.Remote.Parallel,
		Warm: func(ctx context.Context, m inference.Model, progress engine.Progress) error {
			return m.(*remote.Model).Warm(ctx, progress) //nolint:forcetypeassert // load made it
		},
	}, cfg.Engine, log)
	e.Metrics = metrics.Func(func(ch chan<- prometheus.Metric) { collectRemote(e.Loaded(), ch) })
	return e, err
}

func newMiniCPM(cfg Settings, log zerolog.Logger) (*Engine, error) {
	settings := minicpmo.Settings{Config: cfg.Engine, MiniCPM: cfg.MiniCPM}
	local, err := newBuiltIn(settings, cfg.Agent.Frames, 0, log)
	if err != nil {
		return nil, fmt.Errorf("prepare the model: %w", err)
	}
	return newLocalEngine(local, settings, log)
}

// newNano keeps nano, which runs on the CPU. One slot is enough for it and keeps its memory small.
func newNano(cfg Settings, log zerolog.Logger) (*Engine, error) {
	c := cfg.MiniCPM
	var err error
	if c.Path, err = nano.Bundle(context.Background(), models.Cache(), nano.RunProgram); err != nil {
		return nil, fmt.Errorf("prepare nano: %w", err)
	}
	c.Device, c.GPUs, c.Weights, c.Slots, c.VisionCache = "cpu", "", "fp32", cmp.Or(c.Slots, nano.Slots), min(c.VisionCache, nano.VisionCache)
	c.PrefixCache = min(c.PrefixCache, nano.PrefixCache)
	settings := minicpmo.Settings{Config: cfg.Engine, MiniCPM: c}
	local, err := newBuiltIn(settings, cfg.Agent.Frames, nano.Threads, log)
	if err != nil {
		return nil, fmt.Errorf("prepare nano: %w", err)
	}
	local.can.Languages = []string{"en", "es"}
	local.note = "Nano is a small model, trained on the generated worlds. It knows no other pictures."
	return newLocalEngine(local, settings, log)
}

// newSight makes the engine that finds people, vehicles, animals and text on the CPU.
func newSight(cfg Settings, log zerolog.Logger) (*Engine, error) {
	bundle, err := networks.Locate(cfg.Sight.Bundle)
	if err != nil {
		return nil, fmt.Errorf("prepare sight: %w", err)
	}
	e := &Engine{
		Note: "Not for safety: it misses one person in ten; night, fisheye and crowds are untested. " +
			"Sight finds people, vehicles, animals and text, and follows a few orders.",
	}
	can := sight.Capabilities()
	if lang := cfg.Engine.Voice.Language; !can.Speaks(lang) {
		e.Note += fmt.Sprintf(" It does not speak the language of inference.voice.language, %q.", lang)
	}
	opts := engine.Options{Name: inference.EngineSight, Capabilities: can, Parallel: sceneParallel}
	if cfg.Engine.Engine == inference.EngineSight {
		opts.FirstLoadFatal = func() bool { return !e.Patient }
	}
	return e, e.manage(func(ctx context.Context, _ engine.Progress) (inference.Model, error) {
		log.Info().Str("bundle", bundle.Dir).Msg("loading the networks of sight")
		opts := sight.Options{Config: cfg.Sight, Runtime: cfg.MiniCPM.Runtime, Seed: rand.Uint64()} //nolint:gosec // of words
		return sight.Open(ctx, bundle, opts)
	}, opts, cfg.Engine, log)
}

func sightOptions(_ context.Context, cfg Settings, _ discovery) []agent.EngineOption {
	out := agent.EngineOption{EngineChoice: agent.EngineChoice{Engine: inference.EngineSight}}
	if _, err := networks.Locate(cfg.Sight.Bundle); errors.Is(err, networks.ErrNoBundle) {
		out.Refused = "its networks are not installed: run `touchline models pull sight`"
	} else if err != nil {
		out.Refused = err.Error()
	}
	return []agent.EngineOption{out}
}

func bundleOptions(_ context.Context, cfg Settings, _ discovery) []agent.EngineOption {
	out := agent.EngineOption{EngineChoice: agent.EngineChoice{Engine: inference.EngineMiniCPM}}
	if cfg.MiniCPM.Path == "" {
		out.Refused = "no model is installed: start with --model DIR or set inference.minicpmo.path"
	} else if bundle, err := models.OpenBundle(cfg.MiniCPM.Path); err != nil {
		out.Refused = err.Error()
	} else {
		out.Program = bundle.Manifest.Name
	}
	return []agent.EngineOption{out}
}

// serverOptions lists the models of the configured server and of those on this machine.
func serverOptions(ctx context.Context, cfg Settings, discover discovery) (out []agent.EngineOption) {
	option := func(model, server, program string) {
		out = append(out, agent.EngineOption{
			EngineChoice: agent.EngineChoice{Engine: inference.EngineRemote, Model: model, Server: server}, Program: program,
		})
	}
	servers := discover(ctx)
	if cfg.Remote.URL != "" {
		configured := discover(ctx, cfg.Remote.URL)
		if len(configured) == 0 { // not running, or it wants a key for its list
			option(cfg.Remote.Model, cfg.Remote.URL, "")
		}
		for _, s := range configured {
			servers = slices.DeleteFunc(servers, func(f remote.Found) bool { return f.URL == s.URL })
			s.URL = cfg.Remote.URL // as configured
			servers = slices.Insert(servers, 0, s)
		}
	}
	for _, s := range servers {
		for _, model := range s.Models {
			option(model, s.URL, s.Kind)
		}
	}
	return out
}
