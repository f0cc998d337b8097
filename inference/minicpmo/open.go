package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/schema"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// Open loads a bundle and warms it up; the engine is whole when it returns, or answers with what comes first if o.Staged is set. A
// model that does not fit the memory is refused before loading, with settings
// that fit (DoesNotFitError).
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
	if err = e.load(ctx, b, o); err != nil {
		return nil, fmt.Errorf("open %s: %w", b.Dir, err)
	}
	if o.Staged {
		return e, nil
	}
	if err := e.Wait(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", b.Dir, errors.Join(err, e.Close()))
	}
	return e, nil
}

// Wait waits until nothing is left to load, and returns why a part is missing.
func (e *Engine) Wait(ctx context.Context) error {
	select {
	case <-e.loaded:
		return e.loadErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prepare returns an engine without its networks.
func prepare(b *models.Bundle, o Options) (*Engine, error) {
	m, c := &b.Manifest, o.Config
	if m.Task != models.TaskCommentary {
		return nil, fmt.Errorf("the bundle's task is %q: it does not comment on pictures", m.Task)
	}
	e := &Engine{
		name: m.Name, log: o.Logger.With().Str("component", "minicpmo").Logger(), now: o.Now,
		cache: newPictures(c.MiniCPM.VisionCache), slices: c.MaxSlices, maxTokens: c.MaxTokens,
		queue: c.MiniCPM.Queue, hiddenSize: m.Dims.Decoder.Hidden, features: m.Image.Features,
		seed:      uint64(max(c.MiniCPM.Seed, 0)),
		loaded:    make(chan struct{}),
		onlyVoice: c.Voice.Program == inference.VoiceModel,
		ownVoice:  c.Voice.Program == inference.VoiceAuto || c.Voice.Program == inference.VoiceModel,
	}
	e.Host = step.NewHost(e.log)
	e.budget, _ = c.MiniCPM.Budget() // the settings are checked
	var err error
	if e.tokens, err = tokenizer.Open(b.Path(models.TokenizerName)); errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the bundle has no tokenizer: convert a checkpoint that has one")
	}
	if err != nil {
		return nil, err
	}
	e.vocabulary = sync.OnceValues(func() (*schema.Vocabulary, error) { return vocabulary(e.tokens, m.Dims.Decoder.Vocab) })
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

// vocabulary returns the pieces of the ids that have a logit, except special tokens.
func vocabulary(t *tokenizer.Tokenizer, logits int) (*schema.Vocabulary, error) {
	pieces := make([][]byte, min(t.Size(), logits))
	for i := range pieces {
		if id := int32(i); !t.Special(id) {
			pieces[i] = t.Piece(id)
		}
	}
	return schema.NewVocabulary(pieces)
}

// rules sets the rules of the draws.
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
		suppressed = append(suppressed, int32(id))
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
	// The original cuts a chat answer at this mark.
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
	long := lengths(&b.Manifest, o.Config, o.Frames)
	options, err := choose(b, c, long...)
	if err != nil {
		return err
	}
	if o.test.options != nil {
		options = o.test.options(options)
	}
	for i := range options {
		e.chooseVoice(b, &options[i], o.Config.Voice)
	}
	rt, dev, release, err := step.OpenDevice(c.Runtime, c.Device, c.GPU, step.Commentary)
	if err != nil {
		return err
	}
	sel, err := e.fit(options, dev, o.test)
	if err != nil {
		return errors.Join(err, release())
	}
	sel.oneFirst = o.test.rest != nil
	e.stats = newCounters(sel.names())
	if sel.voice != nil { // also while it is loaded
		e.stats.count(func(s *Stats) { s.VoiceSlotsAll = sel.voice.Layout.Slots })
	}
	e.sees = sel.vision != nil
	e.maxPrompt = min(o.Config.MaxInputTokens, sel.layout.MaxLen-1)
	e.uncut = sel.layout.MaxLen < long[0]
	o.Progress(1, "memory: "+e.plan.String())
	if err := e.Start(ctx, e.thread(ctx, b, sel, rt, dev, release, o)); err != nil {
		return err
	}
	o.Progress(100, e.Status().Detail)
	return nil
}

// thread returns the work of the goroutine that owns the device. ctx ends with loading.
func (e *Engine) thread(
	ctx context.Context, b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, release func() error, o Options,
) step.Thread {
	var d *device
	var w warmth
	var rest sync.WaitGroup
	return step.Thread{
		Open: func(run context.Context) (err error) {
			e.owner = step.OwnerOf(dev, e.now)
			loaded, err := e.owner.Load(ctx, step.Commentary)
			if err != nil {
				return err
			}
			defer loaded()
			if d, err = e.openDevice(run, b, sel, rt, dev, o); err != nil {
				return err
			}
			if w, err = e.begin(ctx, run, d, sel, o); err == nil {
				e.measureMemory(dev, sel)
				e.Ready(e.status(sel, dev, e.stillLoading(d)))
			}
			return err
		},
		Run: func(ctx context.Context) error {
			loading, stop := context.WithCancel(ctx)
			defer stop()
			rest.Go(func() {
				defer close(e.loaded)
				e.loadErr = e.loadRest(loading, d, w, o)
			})
			return e.loop.run(ctx)
		},
		Close: func() (err error) {
			rest.Wait() // not in Run, which reports the loss of the device
			if e.loading != nil {
				err = e.loading.Close()
			}
			if d != nil {
				err = errors.Join(err, d.close())
			}
			return errors.Join(err, release())
		},
	}
}

// status returns the status of an engine that answers, with a note on what is missing.
func (e *Engine) status(sel *selection, dev *ort.Device, missing string) inference.Status {
	s := inference.Status{
		Phase: inference.PhaseReady, Percent: 100, Detail: e.describe(sel, dev) + missing, VoiceProblem: e.voiceProblem,
	}
	if e.loading != nil && e.voice.Load() == nil && e.onlyVoice {
		s.VoiceProblem = "the model's own voice is still loading"
	}
	return s
}

// stillLoading notes the parts that are not loaded yet.
func (e *Engine) stillLoading(d *device) string {
	parts := d.sel.names()[len(d.sessions):]
	if e.loading != nil && e.voice.Load() == nil {
		parts = append(parts, "the model's voice")
	}
	if len(parts) == 0 {
		return ""
	}
	return "; still loading: " + strings.Join(parts, ", ")
}

// loadRest loads what answers can begin without.
func (e *Engine) loadRest(ctx context.Context, d *device, w warmth, o Options) (err error) {
	if o.test.rest != nil {
		o.test.rest()
	}
	e.loadVoice(ctx, d)
	loaded, err := e.owner.Load(ctx, step.Commentary)
	if err != nil {
		return err
	}
	note := ""
	for set := len(d.sessions); set < len(d.sel.decoders); set++ {
		if err = e.loadSet(ctx, d, set, &w, o); err != nil {
			note = fmt.Sprintf("; without %s, see the log", d.sel.decoders[set].Weights)
			break
		}
		e.Ready(e.status(d.sel, d.dev, e.stillLoading(d)))
	}
	loaded()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		e.log.Error().Err(err).Msg("answers go on without a part of the model")
	}
	e.measureMemory(d.dev, d.sel)
	e.Ready(e.status(d.sel, d.dev, note))
	return err
}

// loadVoice waits until the voice is loaded, which has the turn before further weights, and makes answers use it.
func (e *Engine) loadVoice(ctx context.Context, d *device) {
	v := e.loading
	if v == nil {
		return
	}
	failed := v.Wait(ctx)
	if failed != nil {
		e.loading = nil
		failed = errors.Join(failed, v.Close())
	} else if failed = e.loop.lend(ctx, 0, func([]int32, []int) error { e.loop.voice = v.Talker; return nil }); failed == nil {
		e.voice.Store(v)
	}
	if ctx.Err() == nil {
		e.mute(failed)
		e.Ready(e.status(d.sel, d.dev, e.stillLoading(d)))
	}
}

// loadSet loads one more weight set and makes the loop use it.
func (e *Engine) loadSet(ctx context.Context, d *device, set int, w *warmth, o Options) error {
	t := func(work func([]int32, int) error) error {
		return e.loop.lend(ctx, 1, func(at []int32, slots []int) error { return work(at, slots[0]) })
	}
	s, err := d.openDecoder(ctx, set, o)
	if err != nil {
		return err
	}
	if err := d.addSet(ctx, s, w, t); err != nil {
		return err
	}
	if o.test.steps != nil {
		w.steps = o.test.steps
	}
	two := min(2, d.sel.layout.Slots)
	return e.loop.lend(ctx, two, func(_ []int32, slots []int) error {
		return e.loop.adopt(*w, d.prefillSet(), func() (string, error) {
			differs, err := d.checkStore(slots[0], slots[two-1])
			e.storeDiffers(differs)
			return differs, err
		})
	})
}

// chooseVoice gives a selection the voice of the bundle, if it has one. A bundle whose voice is not whole has none.
func (e *Engine) chooseVoice(b *models.Bundle, sel *selection, c inference.VoiceConfig) {
	var err error
	if sel.voice, err = voice.Choose(b, sel.device, sel.layout.Slots, c); err != nil && c.Enabled && b.Manifest.Dims.Speech != nil {
		e.mute(err)
	}
}

func (e *Engine) voiceOptions(rt *ort.Runtime, dev *ort.Device, o Options) voice.Options {
	return voice.Options{
		Runtime: rt, Device: dev, Library: o.Config.MiniCPM.Runtime, Threads: o.Threads, Seed: e.seed, Now: e.now, Owner: e.owner,
		Wake: func() { e.loop.Wake() }, Log: e.log, References: o.test.voices,
	}
}

// fit returns the first selection that fits the device's memory. Each has as many speaking slots as fit with it; if no voice fits with
// any of them, the first that fits without one.
func (e *Engine) fit(options []selection, dev *ort.Device, test testOptions) (*selection, error) {
	free, total, err := dev.MemInfo()
	if err != nil {
		return nil, err
	}
	var opened int64
	if dev.Kind() == ort.CUDA {
		opened = min(total-free, openedBytes)
		for i := range options {
			options[i].opened = opened
		}
	}
	free = cmp.Or(test.free, free+opened)
	e.before = free
	setting := ""
	if e.budget > 0 && e.budget < free {
		free, setting = e.budget, "inference.minicpmo.memory"
	}
	fits := func(s *selection) bool {
		e.plan = s.plan(dev.Name())
		e.log.Info().Str("plan", e.plan.String()).Int64("free", free).Msg("memory plan")
		if e.budget > 0 {
			e.spare = free - e.plan.Total() + spareBytes
		}
		return e.plan.Total() <= free
	}
	for i := range options {
		s := &options[i]
		if test.chunk != 0 {
			s.chunk = test.chunk
		}
		if s.voice == nil {
			continue
		}
		if speaking, ok := s.speaking(free); ok && fits(speaking) {
			if want := s.voice.Layout.Slots; speaking.voice.Layout.Slots < want {
				e.fewer = fmt.Sprintf(" (%d would need %s more)", want, networks.Bytes(s.plan("").Total()-free))
			}
			if speaking.voice.Prompt < s.voice.Prompt {
				e.fewer += " with references of 3 s"
			}
			return speaking, nil
		}
	}
	for i := range options {
		s, speechless := &options[i], error(nil)
		if s.voice != nil {
			speechless, s.voice = s.speechless(free), nil
		}
		if fits(s) {
			e.mute(speechless)
			return s, nil
		}
	}
	least := &options[len(options)-1]
	return nil, &DoesNotFitError{Plan: least.plan(dev.Name()), Free: free, Setting: setting, Would: least.smaller(free)}
}

// mute keeps why answers have no sound, for the status, if the settings ask for the model's voice.
func (e *Engine) mute(why error) {
	if why == nil {
		return
	}
	e.log.Warn().Err(why).Msg("answers have no sound of their own")
	if e.names.Store(nil); e.stats != nil {
		e.stats.count(func(s *Stats) { s.VoiceSlotsAll = 0 })
	}
	if e.ownVoice {
		e.voiceProblem = why.Error()
	}
}

func (e *Engine) describe(s *selection, dev *ort.Device) string {
	text := fmt.Sprintf("%s in %s on %s, %s of %d tokens", e.name, strings.Join(s.names(), " and "), dev.Name(),
		networks.Plural(s.layout.Slots, "slot", "slots"), s.layout.MaxLen)
	if e.uncut && e.slices > 1 {
		text += " for pictures that are not cut into tiles"
	}
	stats := e.stats.read()
	switch {
	case stats.OwnKernels:
		text += ", decode steps by own kernels"
	case e.noOwn != "":
		text += ", " + e.noOwn
	}
	if at := stats.Switch; at > 0 {
		text += fmt.Sprintf(", %s from %d rooms on", s.decoders[1].Weights, at)
	}
	if v := e.voice.Load(); v != nil {
		text += fmt.Sprintf(", speaks %d at once%s", v.Slots(), e.fewer)
	}
	return text
}

// begin warms up, creates the loop and loads the voice's first part. ctx ends with the engine.
func (e *Engine) begin(opening, ctx context.Context, d *device, sel *selection, o Options) (w warmth, err error) {
	if err := opening.Err(); err != nil {
		return w, err
	}
	s := shape{
		vocab: sel.dims.Decoder.Vocab, layout: sel.layout, sets: sel.names(), prefillSet: d.prefillSet(), chunk: sel.chunk,
		images: sel.images(), several: sel.several() && !o.test.single, prefixes: sel.prefixes,
	}
	var dev backend = d
	if o.test.wrap != nil {
		dev = o.test.wrap(d)
	}
	client := e.owner.Join(step.Commentary)
	if e.loop, err = newLoop(dev, s, step.Options{Now: e.now, Client: client, Waiting: e.queue}, e.stats); err != nil {
		return w, err
	}
	if o.test.pause != 0 {
		e.loop.pause = o.test.pause
	}
	if sel.voice != nil { // its sound, on threads of its own, takes longest
		if e.loading, err = voice.Open(ctx, sel.voice, e.voiceOptions(d.runtime, d.dev, o)); err == nil {
			names := slices.Sorted(maps.Keys(e.loading.Names()))
			names = slices.DeleteFunc(names, func(name string) bool { return name == inference.DefaultVoice })
			e.names.Store(&names)
		}
		e.mute(err)
	}
	w, err = d.warm(opening, func(percent int) { o.Progress(loadingPercent+percent*(100-loadingPercent)/100, "warming up") })
	if err != nil {
		return w, err
	}
	switch {
	case w.ownRows > 0:
		e.log.Debug().Int64("took_ms", w.ownCheck.Milliseconds()).Int("rows", w.ownRows).Msg("own kernels checked")
	case w.noOwn != nil && sel.device == models.DeviceCUDA:
		e.noOwn = w.noOwn.Error()
		e.log.Warn().Err(w.noOwn).Msg("decode steps have no own kernels; ONNX Runtime runs them")
	}
	if e.storeDiffers(w.storeDiffers); w.storeDiffers != "" {
		e.loop.systems, e.loop.looks = nil, nil
	}
	if o.test.steps != nil && sel.first() == len(sel.decoders) {
		w.steps = o.test.steps
	}
	if d.vision != nil {
		d.vision.alone = e.owner.TryLoad
	}
	return w, e.join(ctx, w, d.float, o.Workers)
}

// storeDiffers logs how a prompt with a copied beginning differs, if it does.
func (e *Engine) storeDiffers(how string) {
	if how != "" {
		e.log.Warn().Str("difference", how).Msg("the beginnings of prompts are not shared: a copied one has other results")
	}
}

// Pictures that may wait before a prompt shows them. On a CPU, which may be busy, each would only hold its memory.
const (
	earlyCPU = 4
	earlyGPU = 64
)

// join connects loop, cache and n workers, which it starts. float is the type of the graphs' floats.
func (e *Engine) join(ctx context.Context, w warmth, float models.Type, n int) error {
	e.loop.weights.start(w.steps, w.ownRows)
	e.loop.prefillCost, e.loop.visionCost = w.prefill, w.vision
	e.stats.count(func(s *Stats) {
		s.Switch, s.OwnKernels, s.NoOwnKernels = e.loop.weights.from(), w.ownRows > 0, kindOf(w.noOwn)
	})
	e.workers = &workers{
		ready: e.loop.ready, now: e.now, float: float, early: earlyCPU, embedSize: e.features * e.hiddenSize * float.Size(),
		took: func(t time.Duration) { e.stats.count(func(s *Stats) { s.Preprocess.took(t) }) }, seed: maphash.MakeSeed(),
	}
	if float != models.Float32 { // on a GPU
		e.workers.early = earlyGPU
	}
	if !e.sees {
		n = 0
	}
	e.loop.cache, e.loop.workers = e.cache, e.workers
	return e.workers.start(ctx, e.vision, n)
}

// measureMemory records the device's memory that loading used and left.
func (e *Engine) measureMemory(dev *ort.Device, sel *selection) {
	free, _, err := dev.MemInfo()
	if err != nil {
		return
	}
	e.stats.count(func(s *Stats) { s.MemoryFree = free })
	if sel.device == models.DeviceCUDA { // On the CPU other processes allocate and free memory meanwhile.
		e.stats.count(func(s *Stats) { s.MemoryUsed = e.before - free })
		e.log.Info().Int64("planned", e.plan.Total()).Int64("used", e.before-free).Msg("memory used")
		if e.budget > 0 && e.before-free > e.budget {
			e.log.Warn().Str("used", networks.Bytes(e.before-free)).Msg("loading used more than inference.minicpmo.memory allows")
		}
	}
}
