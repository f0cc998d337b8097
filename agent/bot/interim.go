package bot

import (
	"context"
	"errors"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/inference"
)

// withInterim returns a recognizer whose interim texts come from a second, faster one: a bundle or a server, as
// inference.recognizer.interim names it. Final texts, recordings and times of words come from the first.
func withInterim(exact *Recognizer, cfg inference.RecognizerConfig, runtime string, log zerolog.Logger) (*Recognizer, error) {
	second := cfg
	second.Interim, second.Aligner, second.Model, second.APIKey = "", "", "", ""
	if strings.Contains(cfg.Interim, "://") {
		second.Program, second.URL = inference.RecognizerRemote, cfg.Interim
	} else {
		second.Program, second.Bundle = inference.RecognizerModel, cfg.Interim
	}
	fast, err := NewRecognizer(second, runtime, log)
	if err != nil {
		return nil, errors.Join(err, exact.Close())
	}
	both := *exact
	pair := pair{exact.Recognizer, fast.Recognizer, log}
	both.Recognizer = pair
	if t, ok := exact.Recognizer.(inference.Translator); ok {
		both.Recognizer = translatingPair{pair, t}
	}
	both.Run = func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return exact.Run(ctx) })
		g.Go(func() error { return fast.Run(ctx) })
		return g.Wait()
	}
	return &both, nil
}

// pair is a recognizer with a faster one for interim texts.
type pair struct {
	inference.Recognizer

	fast inference.Recognizer
	log  zerolog.Logger
}

// translatingPair is a pair whose exact recognizer translates.
type translatingPair struct {
	pair
	inference.Translator
}

// Recognizes implements inference.Recognizer.
func (p pair) Recognizes() inference.Recognizes {
	can := p.Recognizer.Recognizes()
	can.Partials = p.fast.Recognizes().Partials
	return can
}

// Hold keeps both loaded until release is called.
func (p pair) Hold() (release func()) {
	one, two := holding(p.Recognizer), holding(p.fast)
	return func() { one(); two() }
}

// holding keeps a recognizer loaded, if it loads a model, until release is called.
func holding(r inference.Recognizer) (release func()) {
	if h, ok := r.(interface{ Hold() (release func()) }); ok {
		return h.Hold()
	}
	return func() {}
}

// Close implements inference.Recognizer.
func (p pair) Close() error { return errors.Join(p.Recognizer.Close(), p.fast.Close()) }

// Listen implements inference.Recognizer. Without the fast recognizer, the exact one has the interim texts too.
func (p pair) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	exact, err := p.Recognizer.Listen(ctx, h)
	if err != nil {
		return nil, err
	}
	quick := h
	quick.WordTimes = false
	fast, err := p.fast.Listen(ctx, quick)
	if err != nil {
		p.log.Warn().Err(err).Msg("no fast interim texts")
		return exact, nil
	}
	return &pairUtterance{exact: exact, fast: fast, log: p.log}, nil
}

// pairUtterance is an utterance that two recognizers hear.
type pairUtterance struct {
	exact, fast inference.Utterance
	sound       []float32 // that exact does not have yet
	failed      bool      // of fast
	log         zerolog.Logger
}

// Hear implements inference.Utterance.
func (u *pairUtterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	if !u.failed {
		t, err := u.fast.Hear(ctx, sound)
		if err == nil || ctx.Err() != nil {
			return t, err
		}
		u.failed = true
		u.log.Warn().Err(err).Msg("no fast interim texts")
	}
	sound, u.sound = u.sound, nil
	return u.exact.Hear(ctx, sound)
}

// Finish implements inference.Utterance.
func (u *pairUtterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return u.exact.Finish(ctx, append(u.sound, sound...))
}

// Close implements inference.Utterance.
func (u *pairUtterance) Close() error { return errors.Join(u.exact.Close(), u.fast.Close()) }
