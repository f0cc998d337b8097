// Package minicpmo is the MiniCPM-o engine: it turns pictures and text into text,
// token by token, for many rooms at once on one device.
//
// One goroutine on its own OS thread, the step loop, owns the device. Rooms submit
// answers to generate and frames to embed, and read tokens from outboxes that the
// loop never waits for. The package has no media transport and stores no
// conversations.
package minicpmo

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/schema"
	"touchline/inference/internal/vision"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
)

// Options of an engine.
type Options struct {
	Config Settings
	// Frames is the number of pictures of a look, for max_len; 0 means 4.
	Frames int
	// Progress, if not nil, receives the progress of loading, 0 to 100, with a description.
	Progress func(percent int, detail string)
	// Logger for the memory plan and failures; the zero value discards.
	Logger zerolog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Workers prepare pictures; 0 means one for every two cores.
	Workers int
	// Threads is the number of threads of one operator on the CPU; 0 means one per core.
	Threads int
	// Staged makes Open return as soon as answers can begin: on a GPU by the first weight set and without the model's voice. The rest is
	// loaded behind them, and Status tells what is missing.
	Staged bool
	// Stock makes ONNX Runtime run all decode steps, without own kernels, to compare them.
	Stock bool

	test testOptions
}

// testOptions are seams for this package's tests.
type testOptions struct {
	wrap  func(backend) backend // around the device
	chunk int                   // positions of one prefill run
	pause time.Duration         // in place of maxPause
	pad   int                   // device.pad on the CPU
	free  int64                 // memory of the device
	// options replaces the selections, steps the measured costs.
	options func([]selection) []selection
	steps   stepCosts
	single  bool // shape.several is false
	// rest is called before what answers can begin without is loaded.
	rest func()
	// weights changes those of own kernels.
	weights func(*device)
	// card makes the options of one of several cards, whose number is in the settings.
	card func(Options) Options
	// voices in place of the bundle's.
	voices map[string]voice.Reference
}

// Engine is a loaded model. Safe for concurrent use.
type Engine struct {
	*step.Host

	name    string
	plan    networks.Plan
	log     zerolog.Logger
	now     func() time.Time
	stats   *counters
	owner   *step.Owner
	loop    *loop
	workers *workers
	cache   *pictures
	// voice is nil without a voice of its own, and until it is loaded. loading is the voice from its first part on; the goroutine that owns
	// the device and, after it, load have it.
	voice   atomic.Pointer[voice.Speech]
	loading *voice.Speech
	// names of the voice's references but the default one, from its first part on; nil without a voice.
	names atomic.Pointer[[]string]
	// loaded is closed when nothing is left to load; loadErr is why a part is missing.
	loaded  chan struct{}
	loadErr error
	tokens  *tokenizer.Tokenizer
	builder *tokenizer.Builder
	// vocabulary returns the pieces for schemas, prepared at the first use.
	vocabulary func() (*schema.Vocabulary, error)
	vision     vision.Config

	sees, speaks             bool
	ownVoice, onlyVoice      bool   // the settings ask for it, and for no other
	voiceProblem             string // why answers have no sound of their own
	fewer                    string // what more speaking slots would need
	noOwn                    string // why a GPU has no own kernels
	maxSide, features        int
	slices, maxTokens, queue int
	maxPrompt, hiddenSize    int
	seed                     uint64
	before, budget           int64 // bytes free on the device before loading; how many may be used, 0 for all
	spare                    int64 // bytes of the budget for arenas beyond their plan
	uncut                    bool  // slots are too short for pictures in tiles
	chat, chatAnswer, speech sample.Settings

	sources atomic.Uint64
}

var _ inference.Model = (*Engine)(nil)

// Name returns the model's name in its manifest.
func (e *Engine) Name() string { return e.name }

// NewSession opens a room.
func (e *Engine) NewSession() (inference.Session, error) {
	select {
	case <-e.Ended():
		return nil, ErrClosed
	default:
	}
	return &Session{e: e, room: voice.NewRoom(), source: e.sources.Add(1)}, nil
}

// Capabilities returns the capabilities of a vision-language model whose pictures must fit
// into the prompt.
func (e *Engine) Capabilities() inference.Capabilities {
	r := e.chat
	if r.Greedy {
		r.Temperature = 0
	}
	var voices []string
	own := e.names.Load()
	if own != nil {
		voices = *own
	}
	return inference.Capabilities{
		Instructions: true, Structured: true, Slices: true, Speech: e.voice.Load() != nil, OwnVoice: own != nil, OwnVoices: voices,
		VoiceLanguages: []string{"en", "zh"},
		Sampling: &inference.Sampling{
			Temperature: &r.Temperature, TopK: &r.TopK, TopP: &r.TopP, RepetitionPenalty: &r.RepetitionPenalty,
		},
		MaxFrames: func(width, height, slices int) int {
			grid, err := e.Grid(width, height, slices)
			if err != nil {
				return 0
			}
			return (e.maxPrompt - textTokens) / blockTokens(grid.Blocks(), e.features)
		},
	}
}

// Plan returns the planned memory of the model.
func (e *Engine) Plan() networks.Plan { return e.plan }

// Tokenizer returns the bundle's tokenizer.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tokens }

// Builder returns the writer of prompts for this model.
func (e *Engine) Builder() *tokenizer.Builder { return e.builder }

// MaxLen returns the maximum tokens of a prompt and its answer together.
func (e *Engine) MaxLen() int { return e.loop.Layout().MaxLen }

// Stats returns the engine's counters.
func (e *Engine) Stats() Stats {
	s := e.stats.read()
	s.SlotsAll = e.loop.Layout().Slots
	s.Cached = e.cache.size()
	if v := e.voice.Load(); v != nil {
		s.VoiceSlots, s.VoiceBusy = v.Talker.Held(), v.Talker.Busy()
		s.LongTurns, s.LostTurns = v.LongTurns(), v.LostTurns()
	}
	s.MemoryPlanned = e.plan.Total()
	s.Waiting, s.Busy = e.loop.Waiting(), e.loop.client.Busy()
	return s
}

// Close ends all answers with ErrClosed and frees everything. Later calls return
// the error of the first.
func (e *Engine) Close() error {
	err := e.Host.Close()
	e.workers.wg.Wait()
	return err
}
