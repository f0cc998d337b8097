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

// allGPUs is the setting for every GPU that the process sees.
const allGPUs = "all"

var errGPUs = fmt.Errorf("all, or different numbers from 0 to %d as in 0,1", maxGPU)

// lostTimeout bounds the freeing of lost GPUs, which may never end.
const lostTimeout = 3 * time.Second

// Cards returns the numbers of the GPUs that the settings name. "all" asks the CUDA driver.
func (c Config) Cards() ([]int, error) {
	if c.GPUs != allGPUs {
		return c.listed()
	}
	rt, err := ort.Open(c.Runtime)
	if err != nil {
		return nil, err
	}
	names, err := rt.GPUs()
	if err = errors.Join(err, rt.Close()); err != nil {
		return nil, err
	}
	gpus := make([]int, len(names))
	for i := range gpus {
		gpus[i] = i
	}
	return gpus, nil
}

// listed returns the numbers in the settings: those of gpus, else gpu.
func (c Config) listed() (gpus []int, err error) {
	if c.GPUs == "" {
		return []int{c.GPU}, nil
	}
	for text := range strings.SplitSeq(c.GPUs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 || n > maxGPU || slices.Contains(gpus, n) {
			return nil, fmt.Errorf("inference.minicpmo.gpus %q: must be %w", c.GPUs, errGPUs)
		}
		gpus = append(gpus, n)
	}
	return gpus, nil
}

// OpenModel opens the model on the GPU or the CPU of the settings, or on several GPUs (Cards).
func OpenModel(ctx context.Context, b *models.Bundle, o Options) (inference.Model, error) {
	if o.Config.MiniCPM.GPUs != "" && (o.Config.MiniCPM.Device == string(models.DeviceCUDA) || o.test.card != nil) {
		return openCards(ctx, b, o)
	}
	e, err := Open(ctx, b, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Cards is the model on several GPUs, with an engine each. Rooms go to the GPU with the shortest queue and stay there, unless it is lost
// or has two rooms more than another. Safe for concurrent use.
type Cards struct {
	log     zerolog.Logger
	sources atomic.Uint64
	cancel  context.CancelFunc // of loading
	opening sync.WaitGroup
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
	stage  string // of loading
	rooms  int
}

func (k *cardEngine) answers() bool { return k.engine != nil && k.err == nil }

// queue returns the number of answers that wait, and of rooms that will ask.
func (k *cardEngine) queue() int { return k.engine.loop.Waiting() + k.rooms }

var _ inference.Model = (*Cards)(nil)

// openCards returns once one GPU is ready. The others load behind it, one after the other: the first words come as early as with one GPU,
// and no two GPUs compete for the files, the cores and the captures of their warm-up.
func openCards(ctx context.Context, b *models.Bundle, o Options) (*Cards, error) {
	gpus, err := o.Config.MiniCPM.Cards()
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(int, string) {}
	}
	c := &Cards{log: o.Logger.With().Str("component", "minicpmo").Logger(), lost: make(chan struct{})}
	for _, n := range gpus {
		c.cards = append(c.cards, &cardEngine{gpu: n})
	}
	var behind context.Context
	behind, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var errs []error
	for i, k := range c.cards {
		err := c.open(ctx, k, b, o)
		if err == nil {
			c.opening.Go(func() {
				for _, k := range c.cards[i+1:] {
					_ = c.open(behind, k, b, o) // in the status
				}
			})
			return c, nil
		}
		if errs = append(errs, fmt.Errorf("GPU %d: %w", k.gpu, err)); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(append(errs, c.Close())...)
}

// open opens the engine of a GPU.
func (c *Cards) open(ctx context.Context, k *cardEngine, b *models.Bundle, o Options) error {
	report := o.Progress
	o.Progress = func(percent int, detail string) {
		c.mu.Lock()
		k.stage = detail
		c.mu.Unlock()
		report(percent, fmt.Sprintf("GPU %d: %s", k.gpu, detail))
	}
	o.Config.MiniCPM.GPU, o.Logger = k.gpu, o.Logger.With().Int("gpu", k.gpu).Logger()
	if o.test.card != nil {
		o = o.test.card(o)
	}
	e, err := Open(ctx, b, o)
	if err != nil {
		c.log.Error().Err(err).Int("gpu", k.gpu).Msg("GPU not used")
		c.fail(k, err)
		return err
	}
	c.mu.Lock()
	k.engine = e
	c.mu.Unlock()
	c.watches.Go(func() {
		<-e.Ended()
		select {
		case <-e.Lost():
			c.fail(k, ErrDeviceLost)
		default: // closed
		}
	})
	return nil
}

// fail records once why a GPU does not answer.
func (c *Cards) fail(k *cardEngine, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.err != nil {
		return
	}
	k.err = err
	if k.engine != nil {
		c.log.Error().Int("gpu", k.gpu).Int("rooms", k.rooms).Msg("GPU lost; its rooms move to others with free slots")
	}
	if !slices.ContainsFunc(c.cards, func(k *cardEngine) bool { return k.err == nil }) {
		close(c.lost)
	}
}

// Lost is closed when the last GPU is lost. The process should then exit.
func (c *Cards) Lost() <-chan struct{} { return c.lost }

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

// first returns the engine of the first GPU that has one.
func (c *Cards) first() *Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.cards, func(k *cardEngine) bool { return k.engine != nil && (k.err == nil || c.over()) })
	return c.cards[i].engine // openCards has opened one
}

// over reports whether no GPU answers.
func (c *Cards) over() bool { return !slices.ContainsFunc(c.cards, (*cardEngine).answers) }

// Name returns the model's name in its manifest.
func (c *Cards) Name() string { return c.first().Name() }

// Capabilities returns those of the first GPU that answers.
func (c *Cards) Capabilities() inference.Capabilities { return c.first().Capabilities() }

// Status is ready while a GPU answers. Its Problem names the others, unless they load.
func (c *Cards) Status() (st inference.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var details, problems []string
	st.Phase = inference.PhaseFailed
	answering := 0
	for _, k := range c.cards {
		detail := k.stage
		switch {
		case k.err != nil:
			detail = k.err.Error()
			problems = append(problems, fmt.Sprintf("GPU %d: %s", k.gpu, detail))
		case k.engine != nil:
			s := k.engine.Status()
			st.Phase, st.Percent, st.VoiceProblem, detail = s.Phase, s.Percent, cmp.Or(st.VoiceProblem, s.VoiceProblem), s.Detail
			answering++
		}
		details = append(details, fmt.Sprintf("GPU %d: %s", k.gpu, detail))
	}
	st.Detail = strings.Join(details, "; ")
	if len(problems) > 0 {
		st.Problem = fmt.Sprintf("%d of %d GPUs in use; %s; restart the program to use all",
			answering, len(c.cards), strings.Join(problems, "; "))
	}
	return st
}

// Close ends all answers with ErrClosed and frees everything.
func (c *Cards) Close() error {
	c.cancel()
	c.opening.Wait()
	var live, lost []*Engine
	for _, k := range c.cards { // nothing opens or closes any more
		if k.engine == nil {
			continue
		}
		select {
		case <-k.engine.Lost():
			lost = append(lost, k.engine)
		default:
			live = append(live, k.engine)
		}
	}
	var errs []error
	for _, e := range live {
		errs = append(errs, e.Close())
	}
	c.watches.Wait()
	freed := make(chan error, 1)
	go func() { // it may never end
		var errs []error
		for _, e := range lost {
			errs = append(errs, e.Close())
		}
		freed <- errors.Join(errs...)
	}()
	select {
	case err := <-freed:
		errs = append(errs, err)
	case <-time.After(lostTimeout):
		errs = append(errs, errors.New("free the lost GPUs: it takes too long"))
	}
	return errors.Join(errs...)
}

// NewSession opens a room on the GPU with the shortest queue.
func (c *Cards) NewSession() (inference.Session, error) {
	k, err := c.place(nil, false)
	if err != nil {
		return nil, err
	}
	return &cardSession{cards: c, on: k, inner: &Session{e: k.engine, room: voice.NewRoom(), source: c.sources.Add(1)}}, nil
}

// place returns the GPU for the next answer of a room, which is on one already unless it is new. A busy room leaves only a lost one.
func (c *Cards) place(on *cardEngine, busy bool) (*cardEngine, error) {
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
	case stays && (busy || best == nil || on.rooms < best.rooms+2):
		return on, nil
	case full && best == nil:
		return nil, fmt.Errorf("%w: GPU %d is lost, and no other one has a free slot", inference.ErrOverloaded, on.gpu)
	case best == nil && slices.ContainsFunc(c.cards, func(k *cardEngine) bool { return k.err == nil }):
		return nil, fmt.Errorf("%w: the other GPUs still load", inference.ErrNotReady)
	case best == nil:
		return nil, fmt.Errorf("%w: no GPU is left", ErrDeviceLost)
	}
	if on != nil {
		on.rooms--
	}
	best.rooms++
	return best, nil
}

// full reports whether every slot is in use.
func (e *Engine) full() (full bool) {
	e.stats.count(func(s *Stats) { full = s.Slots >= e.loop.Layout().Slots })
	return full
}

// LostCardError ends an answer that had begun when its GPU was lost. The room's next answer comes from another GPU.
type LostCardError struct{ GPU int }

// Error names the GPU.
func (e *LostCardError) Error() string {
	return fmt.Sprintf("GPU %d was lost during the answer; the next one comes from another GPU", e.GPU)
}

// lostBy reports whether an answer of a GPU ended with this error because the GPU is lost. left says that another one answers.
func (c *Cards) lostBy(k *cardEngine, err error) (lost, left bool) {
	if step.Lost(err) {
		c.fail(k, ErrDeviceLost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.err != nil && (step.Lost(err) || errors.Is(err, ErrClosed)), !c.over()
}

// cardSession is a room on one of several GPUs.
type cardSession struct {
	cards *Cards

	mu     sync.Mutex
	on     *cardEngine
	inner  *Session
	busy   int // answers and texts that are made now
	closed bool
}

var (
	_ inference.Speaker        = (*cardSession)(nil)
	_ inference.VoiceCanceller = (*cardSession)(nil)
)

// enter begins an answer, on another GPU if need be.
func (s *cardSession) enter() (*cardEngine, *Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	to, err := s.cards.place(s.on, s.busy > 0)
	if err != nil {
		return nil, nil, err
	}
	if to != s.on {
		old := s.inner
		s.on, s.inner = to, &Session{e: to.engine, room: old.room, source: old.source}
		s.inner.asked.Store(old.asked.Load())
		s.inner.slices.Store(old.slices.Load())
		_ = old.Close() // it only forgets its pictures
	}
	s.busy++
	return s.on, s.inner, nil
}

func (s *cardSession) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
}

// ask yields what f asks the session of a GPU for. If that is lost before the first chunk, another one is asked.
func (s *cardSession) ask(f func(*Session) iter.Seq2[inference.Chunk, error]) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		for again := true; again; {
			on, inner, err := s.enter()
			if err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			again = s.once(on, f(inner), yield)
		}
	}
}

// once yields an answer, and reports whether it must be asked for again.
func (s *cardSession) once(on *cardEngine, answer iter.Seq2[inference.Chunk, error], yield func(inference.Chunk, error) bool) (again bool) {
	defer s.leave()
	began := false
	for c, err := range answer {
		if err != nil {
			lost, left := s.cards.lostBy(on, err)
			if lost && !began {
				return true
			}
			if lost && left {
				err = &LostCardError{on.gpu}
			}
		}
		began = true
		if !yield(c, err) {
			break
		}
	}
	return false
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
	if s.closed {
		return nil
	}
	s.closed = true
	s.cards.mu.Lock()
	s.on.rooms--
	s.cards.mu.Unlock()
	return s.inner.Close()
}
