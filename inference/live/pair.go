package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
)

// A fast recognizer has interimTimeout for a text. After a failure it is not asked for restTime.
const (
	interimTimeout = 2 * time.Second
	restTime       = 10 * time.Second
)

// errBehind is the failure of a fast recognizer that is slow.
var errBehind = fmt.Errorf("no interim text within %v", interimTimeout)

// pair is an exact recognizer with a fast one for interim texts.
type pair struct {
	inference.Recognizer // the exact one

	fast inference.Recognizer
	log  zerolog.Logger

	mu      sync.Mutex
	failure error // of the fast one; nil after a text
	until   time.Time
}

// Pair returns a recognizer whose final texts and recordings are those of the exact one, and whose interim texts of live speech come from
// the fast one. While that fails, is slow or loads, they come from the exact one, and Status has the reason.
func Pair(exact, fast inference.Recognizer, log zerolog.Logger) inference.Recognizer {
	p := &pair{Recognizer: exact, fast: fast, log: log}
	if t, ok := exact.(inference.Translator); ok {
		return struct {
			*pair
			inference.Translator
		}{p, t}
	}
	return p
}

// Recognizes implements inference.Recognizer.
func (p *pair) Recognizes() inference.Recognizes {
	can := p.Recognizer.Recognizes()
	can.Partials, can.Interim = true, p.fast.Recognizes().Model
	return can
}

// Status implements inference.Recognizer: that of the exact recognizer, with the source of interim texts.
func (p *pair) Status() inference.Status {
	s, fast, name := p.Recognizer.Status(), p.fast.Status(), p.fast.Recognizes().Model
	if s.Phase != inference.PhaseReady {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case fast.Phase != inference.PhaseReady:
		s.Detail += fmt.Sprintf("; interim texts too, as %s is %s: %s", name, fast.Phase, fast.Detail)
	case p.failure != nil:
		s.Detail += fmt.Sprintf("; interim texts too, as %s failed: %v", name, p.failure)
	default:
		s.Detail += "; interim texts by " + name
	}
	return s
}

// Close implements inference.Recognizer.
func (p *pair) Close() error { return errors.Join(p.Recognizer.Close(), p.fast.Close()) }

// Hold keeps a recognizer that is loaded on demand until release.
func Hold(r inference.Recognizer) (release func()) {
	if h, ok := r.(interface{ Hold() (release func()) }); ok {
		return h.Hold()
	}
	return func() {}
}

// Hold is Hold of both.
func (p *pair) Hold() (release func()) {
	exact, fast := Hold(p.Recognizer), Hold(p.fast)
	return func() { exact(); fast() }
}

// usable reports whether the fast recognizer is to be asked for a text in a language.
func (p *pair) usable(language string) bool {
	same := func(known string) bool { return inference.Primary(known) == inference.Primary(language) }
	known := p.fast.Recognizes().Languages
	if language != "" && len(known) > 0 && !slices.ContainsFunc(known, same) || p.fast.Status().Phase != inference.PhaseReady {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.until)
}

// asked records how the fast recognizer did.
func (p *pair) asked(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (err == nil) != (p.failure == nil) {
		p.log.Warn().AnErr("reason", err).Msg("source of interim texts changed")
	}
	if p.failure = err; err != nil {
		p.until = time.Now().Add(restTime)
	}
}

// Listen implements inference.Recognizer.
func (p *pair) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u := &paired{pair: p}
	u.open, u.cancel = context.WithCancel(context.WithoutCancel(ctx))
	u.exact = half{r: p.Recognizer, open: u.open, hearing: h}
	h.WordTimes = false
	u.fast = half{r: p.fast, open: u.open, hearing: h}
	return u, nil
}

// paired is an utterance of a pair.
type paired struct {
	pair   *pair
	open   context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc

	mu          sync.Mutex
	sound       []float32 // all of it
	fast, exact half
}

// Hear implements inference.Utterance.
func (u *paired) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	ctx, done := u.take(ctx, sound)
	defer done()
	if u.pair.usable(u.fast.hearing.Language) {
		timed, cancel := context.WithTimeoutCause(ctx, interimTimeout, errBehind)
		defer cancel()
		t, err := u.fast.ask(timed, u.sound, inference.Utterance.Hear)
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		if err != nil && timed.Err() != nil {
			err = errBehind
		}
		u.pair.asked(err)
		if err == nil {
			return t, nil
		}
	}
	return u.exact.ask(ctx, u.sound, inference.Utterance.Hear)
}

// Finish implements inference.Utterance.
func (u *paired) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	ctx, done := u.take(ctx, sound)
	defer done()
	return u.exact.ask(ctx, u.sound, inference.Utterance.Finish)
}

// take adds sound. It holds the lock until done; the returned context also ends with Close.
func (u *paired) take(ctx context.Context, sound []float32) (_ context.Context, done func()) {
	u.mu.Lock()
	u.sound = append(u.sound, sound...)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(u.open, cancel)
	return ctx, func() { stop(); cancel(); u.mu.Unlock() }
}

// Close implements inference.Utterance.
func (u *paired) Close() error {
	u.cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	return errors.Join(u.fast.close(), u.exact.close())
}

// half is the utterance at one recognizer of a pair.
type half struct {
	r       inference.Recognizer
	open    context.Context //nolint:containedctx // that of the pair's utterance
	hearing inference.Hearing
	out     inference.Utterance // nil before the first text, and after a failure
	sent    int                 // samples that out has
}

// ask passes on the sound that the recognizer does not have, by Hear or Finish.
func (h *half) ask(ctx context.Context, sound []float32,
	f func(inference.Utterance, context.Context, []float32) (inference.Transcript, error),
) (inference.Transcript, error) {
	if h.out == nil {
		// The utterance outlives ctx, which bounds its opening alone: that may wait for the model to load.
		open, cancel := context.WithCancel(h.open)
		stop := context.AfterFunc(ctx, cancel)
		out, err := h.r.Listen(open, h.hearing) //nolint:contextcheck // see above
		stop()
		if err != nil {
			return inference.Transcript{}, err
		}
		h.out, h.sent = out, 0
	}
	t, err := f(h.out, ctx, slices.Clone(sound[h.sent:]))
	h.sent = len(sound)
	if err != nil {
		err = errors.Join(err, h.close())
	}
	return t, err
}

// close releases the utterance.
func (h *half) close() error {
	if h.out == nil {
		return nil
	}
	out := h.out
	h.out = nil
	return out.Close()
}
