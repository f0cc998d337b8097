package qwen3asr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// Options of an engine. Zero values are the defaults.
type Options struct {
	// Aligner is the folder of the aligner's bundle; "" gives no word times.
	Aligner string
	// Runtime is the folder of ONNX Runtime; "" means the folder of `make runtime`, then the system's library.
	Runtime string
	// Device is "cuda" or "cpu", GPU the number of the GPU.
	Device string
	GPU    int
	// Threads is the number of threads of one operator on the CPU; 0 means one per core.
	Threads int

	// Slots is the number of answers at once, a power of two; 0 means 64 on a GPU and 4 on the CPU, or as many of them
	// as fit. MaxLen is the maximum positions of a prompt and its answer together; 0 means 1024.
	Slots, MaxLen int
	// Queue is the maximum number of jobs that wait for a slot; 0 means 1024.
	Queue int
	// Part is the length of parts of long recordings and of long speech, which are cut where it is quiet, within 5 s; 0 means 30 s.
	Part time.Duration
	// MaxTokens is the limit of the text of a part; 0 means 512. ContextTokens is the limit of Hearing.Context, whose end is
	// kept; 0 means 128.
	MaxTokens, ContextTokens int

	// Step is how much new speech makes an utterance answer; 0 means 500 ms. An answer begins with the previous one without its last
	// FreeTokens (0 means 5), and adds StepTokens (0 means 32) at most; the first FreeSteps (0 means 4) answers begin anew.
	Step                              time.Duration
	FreeSteps, FreeTokens, StepTokens int
	// Official makes finals go on from the last answer, as the official streaming does, instead of beginning anew.
	Official bool

	// Priority of all work on a shared GPU: step.Recognition, or step.Interim for a model of interim texts.
	Priority step.Priority

	// Progress, if not nil, receives the progress of loading, 0 to 100, with a description.
	Progress func(percent int, detail string)
	// Logger for the memory plan and failures; the zero value discards.
	Logger zerolog.Logger

	test testOptions
}

// testOptions are seams for this package's tests.
type testOptions struct {
	wrap func(backend) backend // around the device
	free int64                 // memory of the device
}

func (o Options) withDefaults() Options {
	o.Device = cmp.Or(o.Device, string(models.DeviceCUDA))
	o.MaxLen, o.Queue = cmp.Or(o.MaxLen, 1024), cmp.Or(o.Queue, 1024)
	o.Part, o.Step = cmp.Or(o.Part, 30*time.Second), cmp.Or(o.Step, 500*time.Millisecond)
	o.MaxTokens, o.ContextTokens = cmp.Or(o.MaxTokens, 512), cmp.Or(o.ContextTokens, 128)
	o.FreeSteps, o.FreeTokens, o.StepTokens = cmp.Or(o.FreeSteps, 4), cmp.Or(o.FreeTokens, 5), cmp.Or(o.StepTokens, 32)
	if o.Progress == nil {
		o.Progress = func(int, string) {}
	}
	return o
}

// Bounds of Options.
const (
	shortestStep = 100 * time.Millisecond
	longestStep  = 10 * time.Second
	shortestPart = 6 * time.Second // more than the search for a cut
	framing      = 64              // positions of a prompt besides context and sound, and some for an answer
)

func (o Options) validate(dims models.Hearing) error {
	if o.Step < shortestStep || o.Step > longestStep {
		return fmt.Errorf("step: must be between %v and %v, is %v", shortestStep, longestStep, o.Step)
	}
	if o.Part < shortestPart {
		return fmt.Errorf("part: must be %v or more, is %v", shortestPart, o.Part)
	}
	longest := dims.Rows(int((o.Part + cutSearch*time.Second/rate).Milliseconds() / 10))
	if need := longest + o.ContextTokens + framing; o.MaxLen < need {
		return fmt.Errorf("max_len: parts of %v with %d tokens of context need %d positions, is %d", o.Part, o.ContextTokens, need, o.MaxLen)
	}
	return nil
}

// Describe returns the capabilities of a bundle with the options. It reads no weights.
func Describe(b *models.Bundle, o Options) (inference.Recognizes, error) {
	e := &Engine{name: b.Manifest.Name, o: o.withDefaults()}
	if err := e.check(b); err != nil {
		return inference.Recognizes{}, fmt.Errorf("open %s: %w", b.Dir, err)
	}
	return e.Recognizes(), nil
}

// Open loads a bundle; the engine is ready when it returns. A model that does not fit the memory is
// refused before loading (DoesNotFitError). The aligner is loaded at its first use.
func Open(ctx context.Context, b *models.Bundle, o Options) (*Engine, error) {
	e := &Engine{
		name: b.Manifest.Name, o: o.withDefaults(), log: o.Logger.With().Str("component", "qwen3asr").Logger(),
		pool: newFeaturePool(),
	}
	e.Host = step.NewHost(e.log)
	err := e.check(b)
	if err == nil {
		err = e.prepare(b)
	}
	if err == nil {
		err = e.load(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", b.Dir, err)
	}
	return e, nil
}

// check reads the manifests.
func (e *Engine) check(b *models.Bundle) (err error) {
	m := &b.Manifest
	if m.Task != models.TaskRecognition {
		return fmt.Errorf("expected a model of speech recognition, such as Qwen3-ASR, it is %s", m.Name)
	}
	e.dims = *m.Dims.Hearing
	if e.dims.Chunk != chunkFrames {
		return fmt.Errorf("expected chunks of %d frames, are %d", chunkFrames, e.dims.Chunk)
	}
	if err := e.o.validate(e.dims); err != nil {
		return err
	}
	if e.o.Aligner != "" {
		e.aligner, err = openAligner(e.o.Aligner)
	}
	return err
}

// prepare reads the tokenizer.
func (e *Engine) prepare(b *models.Bundle) (err error) {
	if e.tokens, err = tokenizer.Open(b.Path(models.TokenizerName)); err != nil {
		return err
	}
	if e.prompts, err = newPrompter(e.tokens); err != nil {
		return err
	}
	e.stop, err = e.tokens.IDs(b.Manifest.Stop...)
	return err
}

// load opens the device and starts the loop.
func (e *Engine) load(ctx context.Context, b *models.Bundle) error {
	rt, dev, release, err := step.OpenDevice(e.o.Runtime, e.o.Device, e.o.GPU, e.o.Priority)
	if err != nil {
		return err
	}
	sel, err := e.choose(b, dev)
	if err != nil {
		return errors.Join(err, release())
	}
	var d *device
	if err := e.Start(ctx, step.Thread{
		Open: func(context.Context) (err error) {
			owner := step.OwnerOf(dev, time.Now)
			turn := func(load func() error) error { // commentary that loads goes between two
				loaded, err := owner.Load(ctx, e.o.Priority)
				if err != nil {
					return err
				}
				defer loaded()
				return load()
			}
			if err := turn(func() error { d, err = e.openDevice(sel, rt, dev); return err }); err != nil {
				return err
			}
			return e.begin(ctx, d, turn)
		},
		Run: func(ctx context.Context) error { return e.loop.Run(ctx, ErrClosed) },
		Close: func() (err error) {
			if d != nil {
				err = d.close()
			}
			return errors.Join(err, release())
		},
	}); err != nil {
		return err
	}
	detail := fmt.Sprintf("%s in %s on %s, %d slots of %d positions",
		e.name, sel.decoder.Weights, dev.Name(), sel.layout.Slots, sel.layout.MaxLen)
	e.Ready(inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: detail})
	e.o.Progress(100, detail)
	return nil
}

// openDevice loads the networks, and reports the progress.
func (e *Engine) openDevice(sel *selection, rt *ort.Runtime, dev *ort.Device) (*device, error) {
	stages := 0
	return openDevice(sel, rt, dev, e.o.Threads, func(stage string) {
		stages++
		e.o.Progress(stages*20, "loading: "+stage)
	})
}

// begin warms up and creates the loop.
func (e *Engine) begin(opening context.Context, d *device, turn turn) (err error) {
	if err := opening.Err(); err != nil {
		return err
	}
	if err := d.warm(turn); err != nil {
		return err
	}
	if d.togetherErr != nil {
		e.log.Warn().Err(d.togetherErr).Msg("prompts cannot be fed together, only one at a time")
	}
	var worker backend = d
	if e.o.test.wrap != nil {
		worker = e.o.test.wrap(d)
	}
	sel := d.sel
	e.loop, err = newLoop(worker, shape{
		vocab: sel.dims().Vocab, layout: sel.layout, chunk: sel.chunk, batch: sel.batch, together: sel.together,
		alike: alike, mixed: sel.device == models.DeviceCUDA, interim: e.o.Priority == step.Interim,
	}, step.Options{Now: time.Now, Client: step.OwnerOf(d.dev, time.Now).Join(e.o.Priority), Waiting: e.o.Queue}, &e.stats)
	return err
}

// graphs are the graphs of one model for a device.
type graphs struct {
	bundle                  *models.Bundle
	device                  models.Device
	encoder, decoder, embed models.Graph
}

func (g *graphs) dims() models.Decoder { return g.bundle.Manifest.Dims.Decoder }

// find returns the graphs of a bundle. decoder is the kind of the decoder's graphs.
func find(b *models.Bundle, device models.Device, decoder models.Kind) (*graphs, error) {
	float := models.WeightsFloat16
	if device == models.DeviceCPU {
		float = models.WeightsFloat32
	}
	g := &graphs{bundle: b, device: device}
	for kind, graph := range map[models.Kind]*models.Graph{
		models.KindHearing: &g.encoder, models.KindEmbed: &g.embed, decoder: &g.decoder,
	} {
		var ok bool
		if *graph, ok = b.Find(kind, float, device); !ok {
			return nil, fmt.Errorf("expected a bundle with the %s in %s for %s: convert the checkpoint with --weights %s",
				kind, float, device, float)
		}
	}
	return g, nil
}

// selection is the set of graphs of an engine with their parameters.
type selection struct {
	graphs

	aligner *graphs // nil without one
	layout  kvcache.Layout
	chunk   int // positions of a run
	batch   int // windows of a run
	// together is the maximum positions of a run of several prompts.
	together int
}

const (
	chunkTokens = 512 // maximum positions of one run
	slotsCUDA   = 64
	slotsCPU    = 4
	batchCUDA   = 16
	batchCPU    = 4

	togetherCUDA = 4096 // maximum positions of one run of several prompts
	togetherCPU  = chunkTokens
)

// choose returns the selection for the options. Without Options.Slots it halves the default number of slots until the plan fits the
// device's memory.
func (e *Engine) choose(b *models.Bundle, dev *ort.Device) (*selection, error) {
	device, slots, elem := models.DeviceCUDA, slotsCUDA, 2
	s := &selection{batch: batchCUDA, together: togetherCUDA}
	if dev.Kind() == ort.CPU {
		device, slots, elem, s.batch, s.together = models.DeviceCPU, slotsCPU, 4, batchCPU, togetherCPU
	}
	g, err := find(b, device, models.KindDecoder)
	if err != nil {
		return nil, err
	}
	s.graphs = *g
	if e.aligner != nil {
		if s.aligner, err = find(e.aligner.bundle, device, models.KindAligner); err != nil {
			return nil, fmt.Errorf("aligner: %w", err)
		}
	}
	c := s.dims()
	s.layout = kvcache.Layout{
		Layers: c.Layers, Slots: cmp.Or(e.o.Slots, slots), KVHeads: c.KVHeads, HeadDim: c.HeadDim, ElemSize: elem,
		MaxLen: min(e.o.MaxLen, c.MaxPositions),
	}
	if err := s.layout.Validate(); err != nil {
		return nil, fmt.Errorf("plan the cache: %w", err)
	}
	s.chunk = min(chunkTokens, s.layout.MaxLen)
	free, _, err := dev.MemInfo()
	if err != nil {
		return nil, err
	}
	free = cmp.Or(e.o.test.free, free)
	first := s.plan(dev.Name())
	for e.plan = first; e.plan.Total() > free; e.plan = s.plan(dev.Name()) {
		if e.o.Slots != 0 || s.layout.Slots == 1 {
			return nil, &DoesNotFitError{Plan: first, Free: free}
		}
		s.layout.Slots /= 2
	}
	e.log.Info().Str("plan", e.plan.String()).Int64("free", free).Msg("memory plan")
	e.o.Progress(1, "memory: "+e.plan.String())
	return s, nil
}

// contextBytes is the memory of a CUDA process besides its allocations.
const contextBytes = 620 << 20

// plan returns the memory of the selection. The aligner counts, though it is loaded at its first use.
func (s *selection) plan(name string) networks.Plan {
	p := networks.Plan{Device: name}
	c, elem := s.dims(), int64(s.layout.ElemSize)
	p.Add("encoder", s.encoder.WeightBytes)
	p.Add("decoder", s.decoder.WeightBytes)
	if s.device == models.DeviceCPU { // else it stays in its mapped file on the host
		p.Add("embedding table", s.embed.WeightBytes)
	}
	if s.aligner != nil {
		p.Add("aligner, on first use", s.aligner.encoder.WeightBytes+s.aligner.decoder.WeightBytes)
	}
	p.Add(fmt.Sprintf("%d slots of %d positions", s.layout.Slots, s.layout.MaxLen), s.layout.Bytes())
	vocab, slots := int64(c.Vocab), int64(s.layout.Slots)
	p.Add("buffers", slots*vocab*4*2+int64(max(s.chunk, s.together))*int64(c.Hidden)*elem)
	p.Add("workspace", s.workspace())
	if s.device == models.DeviceCUDA {
		p.Add("context", contextBytes)
	}
	return p
}

// workspace returns the size of the runtime's arenas: the activations of the largest run of the encoder and of the decoder.
func (s *selection) workspace() int64 {
	c, h, elem := s.dims(), *s.bundle.Manifest.Dims.Hearing, int64(s.layout.ElemSize)
	widest := int64(max(2*c.FFN, (c.Heads+2*c.KVHeads)*c.HeadDim))
	decoder := int64(max(s.chunk, s.together))*(3*int64(c.Hidden)+2*widest)*elem + int64(s.layout.Slots)*int64(c.Vocab)*4*2
	// The first convolution halves both axes; its result, the result of its activation and the next convolution's take the most memory.
	const lives = 3
	frames := int64(h.Chunk * h.Window)
	convolved := int64(h.Channels) * int64(h.Mel) / 2 * frames / 2
	return decoder + int64(s.batch)*convolved*lives*elem
}
