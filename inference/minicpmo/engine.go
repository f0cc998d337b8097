// Package minicpmo is the MiniCPM-o engine: pictures and words in, words out
// token by token, for many rooms at once on one device.
//
// An Engine owns the device through one goroutine on its own OS thread, the
// step loop; nothing else touches a session of the runtime. Rooms hand it
// answers to generate and frames to embed, and read tokens from outboxes that
// it never waits for. It knows no media transport and keeps no conversations.
package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/vision"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// Options of an engine.
type Options struct {
	Config Settings
	// Frames is how many pictures a look takes, for max_len; 0 is 4.
	Frames int
	// Progress, if not nil, is told how far loading is, 0 to 100, and with what.
	Progress func(percent int, detail string)
	// Logger for the memory plan and failures; the zero value discards.
	Logger zerolog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Workers prepare pictures; 0 is one for every two cores.
	Workers int
	// Threads of one operator on the CPU; 0 is one per core.
	Threads int

	test testOptions
}

// testOptions are seams for this package's tests.
type testOptions struct {
	wrap  func(backend) backend // stands before the device
	chunk int                   // positions of one prefill run
	stall time.Duration         // in place of stallLimit
	pad   int                   // what lengths of prompts are rounded up to, on the CPU too
	free  int64                 // memory of the device
	both  stepCosts             // int4 and float32 on the CPU, with these costs
}

// Engine is a loaded model. Safe for concurrent use.
type Engine struct {
	name    string
	plan    Plan
	log     zerolog.Logger
	now     func() time.Time
	stats   *counters
	loop    *loop
	workers *workers
	cache   *pictures
	tokens  *tokenizer.Tokenizer
	builder *tokenizer.Builder
	vision  vision.Config

	sees, speaks             bool
	maxSide, features        int
	slices, maxTokens, queue int
	maxPrompt, hiddenSize    int
	seed                     uint64
	before                   int64 // bytes free on the device before loading
	chat, chatAnswer, speech sample.Settings

	sources atomic.Uint64

	cancel context.CancelFunc
	done   chan struct{} // closing, or the device is lost
	lost   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error // why the engine failed, or what closing it brought
	status inference.Status
}

var _ inference.Model = (*Engine)(nil)

// Open loads a bundle and warms it up; the engine is ready when it returns. A
// model that does not fit is refused before anything is loaded, with what
// would fit (DoesNotFitError).
func Open(ctx context.Context, b *models.Bundle, o Options) (*Engine, error) {
	if o.Progress == nil {
		o.Progress = func(int, string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Frames == 0 {
		o.Frames = 4
	}
	if o.Workers == 0 {
		o.Workers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := prepare(b, o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", b.Dir, err)
	}
	if err := e.load(ctx, b, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", b.Dir, err)
	}
	return e, nil
}

// prepare reads everything but the networks.
func prepare(b *models.Bundle, o Options) (*Engine, error) {
	m, c := &b.Manifest, o.Config
	e := &Engine{
		name: m.Name, log: o.Logger.With().Str("component", "minicpmo").Logger(), now: o.Now,
		cache: newPictures(c.MiniCPM.VisionCache), slices: c.MaxSlices, maxTokens: c.MaxTokens,
		queue: c.MiniCPM.Queue, hiddenSize: m.Dims.Decoder.Hidden, features: m.Image.Features,
		seed: uint64(max(c.MiniCPM.Seed, 0)), //nolint:gosec // not negative
		done: make(chan struct{}), lost: make(chan struct{}),
	}
	raw, err := os.ReadFile(b.Path("tokenizer.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the bundle has no tokenizer: convert a checkpoint that has one")
	}
	if err != nil {
		return nil, err
	}
	if e.tokens, err = tokenizer.Parse(raw); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if e.builder, err = tokenizer.NewBuilder(e.tokens, max(m.Image.Features, 1)); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if m.Dims.Vision != nil {
		if e.vision, err = visionConfig(m); err != nil {
			return nil, err
		}
		e.maxSide = m.Dims.Vision.MaxSide
	}
	return e, e.rules(m, c)
}

// rules sets how tokens are drawn.
func (e *Engine) rules(m *models.Manifest, c Settings) error {
	vocab := m.Dims.Decoder.Vocab
	ids := func(names []string) ([]int32, error) {
		var out []int32
		for _, n := range names {
			id, ok := m.Tokens[n]
			if !ok {
				return nil, fmt.Errorf("manifest: tokens has no %q, which ends an answer", n)
			}
			out = append(out, id)
		}
		return out, nil
	}
	set := func(s *sample.Settings) {
		s.TopK, s.TopP, s.RepetitionPenalty = c.MiniCPM.TopK, c.MiniCPM.TopP, c.MiniCPM.RepetitionPenalty
		s.Temperature, s.Greedy = c.MiniCPM.Temperature, c.MiniCPM.Temperature == 0
	}
	suppressed := make([]int32, 0, len(c.MiniCPM.SuppressTokens))
	for _, id := range c.MiniCPM.SuppressTokens {
		suppressed = append(suppressed, int32(id)) //nolint:gosec // checked by the settings
	}
	var err error
	e.chat, e.speech = sample.Chat(), sample.Speech()
	set(&e.chat)
	set(&e.speech)
	if e.chat.Stop, err = ids(m.Stop); err != nil {
		return err
	}
	if e.speech.Stop, err = ids(m.StopSpeech); err != nil {
		return err
	}
	e.chat.Forbidden = sample.NewSet(vocab, suppressed...)
	e.speech.Forbidden = sample.NewSet(vocab, append(suppressed, m.Forbidden...)...)
	// What a chat answer says after this mark, the original cuts off.
	e.chatAnswer = e.chat
	if id, ok := m.Tokens["<|tts_eos|>"]; ok {
		e.chatAnswer.Stop = append([]int32{id}, e.chat.Stop...)
	}
	e.speaks = len(e.speech.Stop) > 0 && m.Template.Speech != ""
	return errors.Join(e.chat.Validate(vocab), e.speech.Validate(vocab))
}

// load opens the device and starts the loop and the workers.
func (e *Engine) load(ctx context.Context, b *models.Bundle, o Options) error {
	c := o.Config.MiniCPM
	options, err := choose(b, c, maxLen(&b.Manifest, o.Config, o.Frames))
	if err != nil {
		return err
	}
	if o.test.both != nil {
		options = both(options)
	}
	rt, dev, err := openRuntime(c)
	if err != nil {
		return err
	}
	release := func() error { return errors.Join(dev.Close(), rt.Close()) }
	sel, err := e.fit(options, dev, o.test)
	if err != nil {
		return errors.Join(err, release())
	}
	names := make([]string, len(sel.decoders))
	for i, g := range sel.decoders {
		names[i] = string(g.Weights)
	}
	e.stats = newCounters(names)
	e.sees = sel.vision != nil
	e.maxPrompt = min(o.Config.MaxInputTokens, sel.layout.MaxLen-1)
	o.Progress(1, "memory: "+e.plan.String())

	var loopCtx context.Context
	loopCtx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	opened := make(chan error, 1)
	e.wg.Go(func() { e.own(ctx, loopCtx, b, sel, rt, dev, o, names, opened, release) })
	if err := <-opened; err != nil {
		e.cancel()
		e.wg.Wait()
		return err
	}
	ready := inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: e.describe(sel, dev)}
	e.mu.Lock()
	if e.err == nil {
		e.status = ready
	}
	e.mu.Unlock()
	o.Progress(100, ready.Detail)
	return nil
}

// openRuntime opens ONNX Runtime and the device that the settings name. The
// caller closes both, the device first.
func openRuntime(c Config) (*ort.Runtime, *ort.Device, error) {
	path, err := ort.Locate(ort.Search{Library: c.Runtime})
	if err != nil {
		return nil, nil, err
	}
	rt, err := ort.Open(path, ort.Options{})
	if err != nil {
		return nil, nil, err
	}
	kind := ort.CUDA
	if c.Device == string(models.DeviceCPU) {
		kind = ort.CPU
	}
	dev, err := rt.NewDevice(kind, c.GPU)
	if err != nil {
		return nil, nil, errors.Join(err, rt.Close())
	}
	return rt, dev, nil
}

// both joins a float selection and an int4 one to one with two sets.
func both(options []selection) []selection {
	s := options[len(options)-1]
	s.decoders = []models.Graph{s.decoders[0], options[0].decoders[0]}
	s.captured, s.prefill = []int{s.layout.Slots, s.layout.Slots}, 1
	return []selection{s}
}

// fit takes the first selection that the device has memory for.
func (e *Engine) fit(options []selection, dev *ort.Device, test testOptions) (*selection, error) {
	free, _, err := dev.MemInfo()
	if err != nil {
		return nil, err
	}
	if test.free != 0 {
		free = test.free
	}
	e.before = free
	for i := range options {
		s := &options[i]
		if test.chunk != 0 {
			s.chunk = test.chunk
		}
		e.plan = s.plan(dev.Name())
		e.log.Info().Str("plan", e.plan.String()).Int64("free", free).Msg("memory")
		if e.plan.Total() <= free {
			return s, nil
		}
	}
	first := &options[0]
	return nil, &DoesNotFitError{Plan: first.plan(dev.Name()), Free: free, Would: first.smaller(free)}
}

func (e *Engine) describe(s *selection, dev *ort.Device) string {
	weights := make([]string, len(s.decoders))
	for i, g := range s.decoders {
		weights[i] = string(g.Weights)
	}
	text := fmt.Sprintf("%s in %s on %s, %s of %d tokens", e.name, strings.Join(weights, " and "), dev.Name(),
		plural(s.layout.Slots, "slot", "slots"), s.layout.MaxLen)
	if at := e.stats.switchAt.Load(); at > 0 {
		text += fmt.Sprintf(", %s from %d rooms on", s.decoders[1].Weights, at)
	}
	return text
}

// own is the goroutine that the device belongs to: it loads, runs the loop and
// frees everything, all on one OS thread.
func (e *Engine) own(opening, ctx context.Context, b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device,
	o Options, names []string, opened chan<- error, release func() error,
) {
	runtime.LockOSThread() // Never unlocked: captured graphs belong to the thread, which ends with the goroutine.
	far := &loading{tell: o.Progress, total: e.plan.Total()}
	stop := func() {}
	if sel.device == models.DeviceCUDA {
		stop = far.watch(func() (int64, error) {
			free, _, err := dev.MemInfo()
			return e.before - free, err
		})
	}
	d, err := openDevice(b, sel, rt, dev, deviceOptions{
		threads: o.Threads, vision: e.vision, now: e.now, stats: e.stats, pad: o.test.pad, progress: far.at,
	})
	stop()
	if err == nil {
		if err = opening.Err(); err == nil {
			err = e.begin(opening, ctx, d, sel, o, names)
		}
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}
	if err != nil {
		opened <- errors.Join(err, release())
		return
	}
	e.measureMemory(dev, sel)
	opened <- nil
	err = e.loop.run(ctx)
	if err != nil {
		e.fail(err)
	}
	e.once.Do(func() { close(e.done) })
	err = errors.Join(d.close(), release())
	e.mu.Lock()
	e.err = errors.Join(e.err, err)
	e.mu.Unlock()
}

// begin warms up and makes the loop.
func (e *Engine) begin(opening, ctx context.Context, d *device, sel *selection, o Options, names []string) error {
	s := shape{
		vocab: sel.dims.Decoder.Vocab, layout: sel.layout, sets: names, prefillSet: sel.prefill, chunk: sel.chunk,
	}
	var err error
	var dev backend = d
	if o.test.wrap != nil {
		dev = o.test.wrap(d)
	}
	if e.loop, err = newLoop(dev, s, e.now, e.stats); err != nil {
		return err
	}
	if o.test.stall != 0 {
		e.loop.stall = o.test.stall
	}
	warm, err := d.warm(opening, func(percent int) { o.Progress(loadingPercent+percent*(100-loadingPercent)/100, "warming up") })
	if err != nil {
		return err
	}
	if o.test.both != nil {
		warm.steps = o.test.both
	}
	e.join(warm)
	return e.startWorkers(ctx, sel.elem() == 2, o.Workers)
}

// join puts loop, cache and workers together.
func (e *Engine) join(w warmth) {
	e.loop.weights.start(w.steps)
	e.loop.prefillCost, e.loop.visionCost = w.prefill, w.vision
	e.stats.switchAt.Store(int64(e.loop.weights.from()))
	e.loop.cache = e.cache
	e.workers = &workers{
		ready: e.loop.prepared, took: e.stats.preprocess.took, now: e.now,
	}
	e.loop.workers = e.workers
}

func (e *Engine) startWorkers(ctx context.Context, half bool, n int) error {
	e.workers.half = half
	e.workers.embedSize = e.features * e.hiddenSize * 4
	if half {
		e.workers.embedSize /= 2
	}
	if !e.sees {
		n = 0
	}
	return e.workers.start(ctx, e.vision, n)
}

// measureMemory notes what loading took of the device and what it left.
func (e *Engine) measureMemory(dev *ort.Device, sel *selection) {
	free, _, err := dev.MemInfo()
	if err != nil {
		return
	}
	e.stats.memoryFree.Store(free)
	if sel.device == models.DeviceCUDA { // On the CPU others take and give memory at the same time.
		e.stats.memoryUsed.Store(e.before - free)
		e.log.Info().Int64("planned", e.plan.Total()).Int64("used", e.before-free).Msg("memory")
	}
}

// fail notes that the engine does not work any more.
func (e *Engine) fail(err error) {
	e.log.Error().Err(err).Msg("the device is lost: every answer ends, the process should be started anew")
	e.mu.Lock()
	e.err = err
	e.status = inference.Status{Phase: inference.PhaseFailed, Detail: err.Error()}
	e.mu.Unlock()
	close(e.lost)
}

// Name is the model's name in its manifest.
func (e *Engine) Name() string { return e.name }

// NewSession opens one room.
func (e *Engine) NewSession() (inference.Session, error) {
	select {
	case <-e.done:
		return nil, ErrClosed
	default:
	}
	return &Session{e: e, source: e.sources.Add(1)}, nil
}

// Status is ready, or failed once the device was lost.
func (e *Engine) Status() inference.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

// Capabilities are those of a vision-language model; the pictures of a prompt
// must fit into it.
func (e *Engine) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true, MaxFrames: func(width, height int) int {
		grid, err := e.Grid(width, height, 0)
		if err != nil {
			return 0
		}
		return (e.maxPrompt - textTokens) / blockTokens(grid.Blocks(), e.features)
	}}
}

// Lost is closed when the device was lost; the process should then end with
// ExitDeviceLost.
func (e *Engine) Lost() <-chan struct{} { return e.lost }

// Plan is the memory the model was planned to take.
func (e *Engine) Plan() Plan { return e.plan }

// Tokenizer is that of the bundle.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tokens }

// Builder writes prompts for this model.
func (e *Engine) Builder() *tokenizer.Builder { return e.builder }

// MaxLen is how many tokens a prompt and its answer may have together.
func (e *Engine) MaxLen() int { return e.loop.shape.layout.MaxLen }

// Stats is what the engine did so far.
func (e *Engine) Stats() Stats {
	s := e.stats.read()
	s.SlotsAll = e.loop.shape.layout.Slots
	s.Cached = e.cache.size()
	s.MemoryPlanned = e.plan.Total()
	e.loop.inbox.mu.Lock()
	s.Waiting = e.loop.inbox.waiting
	e.loop.inbox.mu.Unlock()
	return s
}

// Close ends all answers with ErrClosed and frees everything. Only the first
// call does something; each returns what that brought.
func (e *Engine) Close() error {
	e.cancel()
	e.loop.inbox.wake.Set()
	e.wg.Wait()
	e.workers.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = inference.Status{Phase: inference.PhaseUnloaded, Detail: "closed"}
	if errors.Is(e.err, ErrDeviceLost) {
		return nil // Told already, by every answer and by Status.
	}
	return e.err
}
