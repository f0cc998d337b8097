package live

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/backoff"
)

// A fast recognizer has interimTimeout for a text. After a failure it rests for firstRest at most; after further ones, up to maxRest.
const (
	interimTimeout = 2 * time.Second
	firstRest      = 5 * time.Second
	maxRest        = time.Minute
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
	rest    backoff.Backoff
}

// Pair returns a recognizer whose final texts and recordings are those of the exact one, and whose interim texts of live speech come from
// the fast one. While that fails, is slow or loads, they come from the exact one, and Status has the reason.
func Pair(exact, fast inference.Recognizer, log zerolog.Logger) inference.Recognizer {
	p := &pair{Recognizer: exact, fast: fast, log: log, rest: backoff.Backoff{First: firstRest, Max: maxRest}}
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
	case fast.Phase == inference.PhaseLoading:
		s.Detail += fmt.Sprintf("; interim texts too, while %s is %d%% loaded", name, fast.Percent)
	case p.failure != nil:
		s.Detail += fmt.Sprintf("; interim texts too, as %s failed: %v", name, p.failure)
	default:
		s.Detail += "; interim texts by " + name
	}
	return s
}

// Close implements inference.Recognizer.
func (p *pair) Close() error { return errors.Join(p.Recognizer.Close(), p.fast.Close()) }

// Hold keeps both recognizers loaded until release.
func (p *pair) Hold() (release func()) {
	var all []func()
	for _, r := range []inference.Recognizer{p.Recognizer, p.fast} {
		if h, ok := r.(interface{ Hold() func() }); ok {
			all = append(all, h.Hold())
		}
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// usable reports whether the fast recognizer is to be asked for a text in a language.
func (p *pair) usable(language string) bool {
	same := func(known string) bool { return inference.Primary(known) == inference.Primary(language) }
	known := p.fast.Recognizes().Languages
	if language != "" && len(known) > 0 && !slices.ContainsFunc(known, same) || p.fast.Status().Phase == inference.PhaseLoading {
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
	now, was := time.Now(), p.failure
	p.failure = err
	switch {
	case err == nil && was != nil:
		p.until = time.Time{}
		p.rest.Reset()
		p.log.Info().Msg("interim model answers again")
	case err != nil && !now.Before(p.until): // the first of the utterances that were waiting
		rest := p.rest.Next(now, rand.Float64()) //nolint:gosec // no secret
		p.until = now.Add(rest)
		p.log.Warn().Err(err).Int64("retry_in_ms", rest.Milliseconds()).Msg("interim model failed")
	}
}

// Listen implements inference.Recognizer.
func (p *pair) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u := &paired{pair: p, exact: half{r: p.Recognizer, hearing: h}}
	h.WordTimes = false
	u.fast = half{r: p.fast, hearing: h}
	u.open, u.cancel = context.WithCancel(context.WithoutCancel(ctx))
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
	u.mu.Lock()
	defer u.mu.Unlock()
	ctx, stop := u.within(ctx)
	defer stop()
	u.sound = append(u.sound, sound...)
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
	u.mu.Lock()
	defer u.mu.Unlock()
	ctx, stop := u.within(ctx)
	defer stop()
	u.sound = append(u.sound, sound...)
	return u.exact.ask(ctx, u.sound, inference.Utterance.Finish)
}

// within returns a context that also ends with Close.
func (u *paired) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(u.open, cancel)
	return ctx, func() { stop(); cancel() }
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
	hearing inference.Hearing
	out     inference.Utterance // nil before the first text, and after a failure
	cancel  context.CancelFunc  // of out
	sent    int                 // samples that out has
}

// ask passes on the sound that the recognizer does not have, by Hear or Finish.
func (h *half) ask(ctx context.Context, sound []float32,
	f func(inference.Utterance, context.Context, []float32) (inference.Transcript, error),
) (inference.Transcript, error) {
	if h.out == nil {
		// The utterance outlives ctx, which bounds only its opening: that may wait for the model to load.
		open, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, cancel)
		out, err := h.r.Listen(open, h.hearing)
		stop()
		if err != nil {
			cancel()
			return inference.Transcript{}, err
		}
		h.out, h.cancel, h.sent = out, cancel, 0
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
	h.cancel()
	return out.Close()
}
