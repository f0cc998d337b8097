package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
	"touchline/models"
)

// lostTimeout bounds the freeing of a lost GPU, which may never end.
const lostTimeout = 10 * time.Second

// ErrCardLost ends an answer that had begun when its GPU was lost, while others go on.
var ErrCardLost = errors.New("lost during the answer; the room's next one comes from another GPU")

var errGPUs = fmt.Errorf("all, or different numbers from 0 to %d as in 0,1", maxGPU)

// Cards returns the numbers of the GPUs that the settings name; "all" asks the driver.
func (c Config) Cards() (gpus []int, err error) {
	switch c.GPUs {
	case "":
		return []int{c.GPU}, nil
	case allGPUs:
		rt, err := ort.Open(c.Runtime)
		if err != nil {
			return nil, err
		}
		names, err := rt.GPUs()
		for i := range names {
			gpus = append(gpus, i)
		}
		return gpus, errors.Join(err, rt.Close())
	}
	for text := range strings.SplitSeq(c.GPUs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 || n > maxGPU || slices.Contains(gpus, n) {
			return nil, errGPUs
		}
		gpus = append(gpus, n)
	}
	return gpus, nil
}

// OpenModel opens the model as an Engine, or on several GPUs as Cards.
func OpenModel(ctx context.Context, b *models.Bundle, o Options) (inference.Model, error) {
	if o.Config.MiniCPM.GPUs != "" {
		return openCards(ctx, b, o)
	}
	e, err := Open(ctx, b, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Cards is the model on several GPUs, with an engine each. A room is on the GPU that had the shortest queue, until that is lost or has two
// rooms more than another. Safe for concurrent use.
type Cards struct {
	name    string
	log     zerolog.Logger
	sources atomic.Uint64
	cancel  context.CancelFunc // of loading
	loading sync.WaitGroup
	watches sync.WaitGroup
	lost    chan struct{}

	mu    sync.Mutex
	cards []*cardEngine
}

// cardEngine is one GPU: it loads until it has an engine or an error; with both it is lost. Cards.mu guards all but gpu.
type cardEngine struct {
	gpu    int
	engine *Engine
	err    error
	rooms  int
}

func (k *cardEngine) answers() bool { return k.engine != nil && k.err == nil }

// queue returns the number of answers that wait, and of rooms that will ask.
func (k *cardEngine) queue() int { return k.engine.loop.Waiting() + k.rooms }

// openCards returns once one GPU answers. The others load behind it, one after the other, so that the first words come as early as with one
// GPU: loads at the same time would share the files and the cores.
func openCards(ctx context.Context, b *models.Bundle, o Options) (inference.Model, error) {
	gpus, err := o.Config.MiniCPM.Cards()
	if err != nil {
		return nil, err
	}
	c := &Cards{name: b.Manifest.Name, log: o.Logger.With().Str("component", "minicpmo").Logger(), lost: make(chan struct{})}
	for _, n := range gpus {
		c.cards = append(c.cards, &cardEngine{gpu: n})
	}
	var behind context.Context
	behind, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i, k := range c.cards {
		e, openErr := c.open(ctx, k, b, o)
		if openErr == nil {
			c.loading.Go(func() {
				o.Staged, o.Progress = false, nil // rooms come to whole engines
				_ = e.Wait(behind)
				for _, k := range c.cards[i+1:] {
					_, _ = c.open(behind, k, b, o) // the status has the error
				}
			})
			return c, nil
		}
		err = errors.Join(err, fmt.Errorf("GPU %d: %w", k.gpu, openErr))
	}
	return nil, errors.Join(err, c.Close())
}

// open opens the engine of a GPU.
func (c *Cards) open(ctx context.Context, k *cardEngine, b *models.Bundle, o Options) (*Engine, error) {
	o.Config.MiniCPM.GPU, o.Logger = k.gpu, o.Logger.With().Int("gpu", k.gpu).Logger()
	if o.test.card != nil {
		o = o.test.card(o)
	}
	e, err := Open(ctx, b, o)
	if err != nil {
		if ctx.Err() == nil {
			c.fail(k, err)
		}
		return nil, err
	}
	c.mu.Lock()
	k.engine = e
	c.mu.Unlock()
	c.watches.Go(func() {
		<-e.Ended()
		select {
		case <-e.Lost():
			c.fail(k, ErrDeviceLost)
			_ = e.Close()
		default: // closed
		}
	})
	return e, nil
}

// fail records once why a GPU does not answer.
func (c *Cards) fail(k *cardEngine, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.err != nil {
		return
	}
	k.err = err
	c.log.Error().Err(err).Int("gpu", k.gpu).Int("rooms", k.rooms).Msg("GPU not used")
	if !slices.ContainsFunc(c.cards, func(k *cardEngine) bool { return k.err == nil }) {
		close(c.lost)
	}
}

// Lost is closed when the last GPU is lost. The process should then exit.
func (c *Cards) Lost() <-chan struct{} { return c.lost }

// Wait waits until nothing is left to load on the first GPU that answers.
func (c *Cards) Wait(ctx context.Context) error {
	var first *Engine
	c.Each(func(_ int, e *Engine) { first = cmp.Or(first, e) })
	if first == nil {
		return nil
	}
	return first.Wait(ctx)
}

// Each calls f for each GPU, with its engine if it answers, else nil.
func (c *Cards) Each(f func(gpu int, e *Engine)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.cards {
		if k.answers() {
			f(k.gpu, k.engine)
		} else {
			f(k.gpu, nil)
		}
	}
}

// Name returns the model's name in its manifest.
func (c *Cards) Name() string { return c.name }

// Capabilities returns those that all GPUs have which answer.
func (c *Cards) Capabilities() (can inference.Capabilities) {
	var least *Engine
	mute, none := false, false // now, and for good
	c.Each(func(_ int, e *Engine) {
		if e == nil {
			return
		}
		mute, none = mute || e.voice.Load() == nil, none || e.names.Load() == nil
		if least == nil || e.maxPrompt < least.maxPrompt {
			least = e
		}
	})
	if least != nil {
		can = least.Capabilities()
	}
	if can.Speech = can.Speech && !mute; none {
		can.OwnVoice, can.OwnVoices = false, nil
	}
	return can
}

// Status is ready while a GPU answers. Its Problem names the others, unless they load.
func (c *Cards) Status() (st inference.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var details, problems []string
	st.Phase = inference.PhaseFailed
	ready := false
	for _, k := range c.cards {
		detail := fmt.Sprintf("GPU %d: loading", k.gpu)
		if k.err != nil {
			detail = fmt.Sprintf("GPU %d: %v", k.gpu, k.err)
			problems = append(problems, detail)
		} else if k.engine != nil {
			s := k.engine.Status()
			if ready = ready || s.Phase == inference.PhaseReady; s.Phase == inference.PhaseReady || !ready {
				st.Phase, st.Percent, st.VoiceProblem = s.Phase, s.Percent, cmp.Or(st.VoiceProblem, s.VoiceProblem)
			}
			detail = fmt.Sprintf("GPU %d: %s", k.gpu, s.Detail)
		} else if !ready {
			st.Phase = inference.PhaseLoading
		}
		details = append(details, detail)
	}
	st.Detail = strings.Join(details, "; ")
	if n := len(problems); n > 0 {
		st.Problem = fmt.Sprintf("%d of %d GPUs not used: %s; restart the program to try again", n, len(c.cards), strings.Join(problems, "; "))
	}
	return st
}

// Close ends all answers with ErrClosed and frees everything.
func (c *Cards) Close() error {
	c.cancel()
	c.loading.Wait()
	var open []*Engine
	c.Each(func(_ int, e *Engine) {
		if e != nil {
			open = append(open, e)
		}
	})
	var err error
	for _, e := range open {
		err = errors.Join(err, e.Close())
	}
	freed := make(chan struct{})
	go func() { c.watches.Wait(); close(freed) }()
	select {
	case <-freed:
	case <-time.After(lostTimeout):
		err = errors.Join(err, errors.New("free the lost GPUs: it takes too long"))
	}
	return err
}

// NewSession opens a room on the GPU with the shortest queue.
func (c *Cards) NewSession() (inference.Session, error) {
	k, err := c.place(nil)
	if err != nil {
		return nil, err
	}
	return &cardSession{cards: c, on: k, inner: &Session{e: k.engine, room: voice.NewRoom(), source: c.sources.Add(1)}}, nil
}

// place returns the GPU for the next answer of a room, which is on one already unless it is new.
func (c *Cards) place(on *cardEngine) (*cardEngine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *cardEngine
	stays, full := on != nil && on.err == nil, false
	for _, k := range c.cards {
		switch {
		case !k.answers():
		case on != nil && !stays && k.engine.full():
			full = true
		case best == nil || k.queue() < best.queue():
			best = k
		}
	}
	switch {
	case stays && on.rooms < best.rooms+2:
		return on, nil
	case best != nil:
		best.rooms++
		if on != nil {
			on.rooms--
		}
		return best, nil
	case full:
		return nil, fmt.Errorf("%w: GPU %d is lost, and no other one has a free slot", inference.ErrOverloaded, on.gpu)
	case slices.ContainsFunc(c.cards, func(k *cardEngine) bool { return k.err == nil }):
		return nil, fmt.Errorf("%w: a GPU is lost, and the others still load", inference.ErrNotReady)
	}
	return nil, fmt.Errorf("%w: no GPU is left", ErrDeviceLost)
}

// full reports whether every slot is in use.
func (e *Engine) full() (full bool) {
	e.stats.count(func(s *Stats) { full = s.Slots >= e.loop.Layout().Slots })
	return full
}

// cardSession is a room on one of several GPUs.
type cardSession struct {
	cards *Cards

	mu    sync.Mutex
	on    *cardEngine
	inner *Session
}

var (
	_ inference.Speaker        = (*cardSession)(nil)
	_ inference.VoiceCanceller = (*cardSession)(nil)
)

// enter returns the GPU of the next answer, with the room's session there.
func (s *cardSession) enter() (*cardEngine, *Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner.closed.Load() {
		return nil, nil, ErrClosed
	}
	to, err := s.cards.place(s.on)
	if err == nil && to != s.on {
		old := s.inner
		old.e.cache.removeSource(old.source) // texts that it speaks go on
		s.on, s.inner = to, &Session{e: to.engine, room: old.room, source: old.source}
		s.inner.asked.Store(old.asked.Load())
		s.inner.slices.Store(old.slices.Load())
		s.inner.streams.Store(old.streams.Load())
	}
	return s.on, s.inner, err
}

// ask yields what f asks the session of a GPU for. If that is lost before the first chunk, another one is asked.
func (s *cardSession) ask(f func(*Session) iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		for again := true; again; {
			again = false
			on, inner, err := s.enter()
			if err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			began := false
			for c, err := range f(inner) {
				if step.Lost(err) {
					s.cards.fail(on, ErrDeviceLost)
					if again = !began; again {
						break
					}
					if s.cards.Status().Phase == inference.PhaseReady {
						err = fmt.Errorf("GPU %d: %w", on.gpu, ErrCardLost)
					}
				}
				if began = true; !yield(c, err) {
					return
				}
			}
		}
	}
}

// Generate answers one prompt.
func (s *cardSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.ask(func(inner *Session) iter.Seq2[inference.Chunk, error] { return inner.Generate(ctx, p) })
}

// Speak implements inference.Speaker.
func (s *cardSession) Speak(ctx context.Context, text, name, language string) iter.Seq2[inference.Chunk, error] {
	return s.ask(func(inner *Session) iter.Seq2[inference.Chunk, error] { return inner.Speak(ctx, text, name, language) })
}

// CancelVoice implements inference.VoiceCanceller.
func (s *cardSession) CancelVoice() { s.now().CancelVoice() }

// Observe embeds a frame on the room's GPU.
func (s *cardSession) Observe(f inference.Frame) { s.now().Observe(f) }

func (s *cardSession) now() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

// Close removes the room from its GPU. Running answers continue.
func (s *cardSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.inner.closed.Load() {
		s.cards.mu.Lock()
		s.on.rooms--
		s.cards.mu.Unlock()
	}
	return s.inner.Close()
}
