package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"touchline/inference"
)

// Recognizer is a recognizer that is loaded on demand, by its ModelManager. Open utterances and calls keep it loaded; Stats counts them as
// sessions. Safe for concurrent use.
type Recognizer struct {
	*ModelManager

	can inference.Recognizes
}

var _ inference.Recognizer = (*Recognizer)(nil)

// LoadRecognizer loads a recognizer into memory, as Load does a model.
type LoadRecognizer func(ctx context.Context, progress Progress) (inference.Recognizer, error)

// NewRecognizer checks the options and returns a Recognizer without a model; can is what it can do when it is
// loaded. Of the options Name, Capabilities, Warm and Parallel have no effect. Run loads it.
func NewRecognizer(load LoadRecognizer, can inference.Recognizes, o Options) (*Recognizer, error) {
	if load == nil {
		return nil, errors.New("keep a recognizer: expected a load function, got none")
	}
	o.Name, o.Capabilities, o.Warm, o.Parallel = can.Model, inference.Capabilities{}, nil, unlimited
	k, err := New(func(ctx context.Context, progress Progress) (inference.Model, error) {
		r, err := load(ctx, progress)
		if err != nil {
			return nil, err
		}
		return hearing{r}, nil
	}, o)
	if err != nil {
		return nil, err
	}
	return &Recognizer{k, can}, nil
}

// hearing is a recognizer as a model of the ModelManager. It answers no prompts.
type hearing struct{ inference.Recognizer }

var _ device = hearing{}

func (h hearing) Name() string { return h.Recognizes().Model }

func (h hearing) NewSession() (inference.Session, error) {
	return nil, fmt.Errorf("%s hears only", h.Name())
}

func (h hearing) Capabilities() inference.Capabilities { return inference.Capabilities{} }

// Lost returns nil for a recognizer without a device.
func (h hearing) Lost() <-chan struct{} {
	if d, ok := h.Recognizer.(device); ok {
		return d.Lost()
	}
	return nil
}

// Recognizes returns the recognizer's capabilities, loaded or not.
func (r *Recognizer) Recognizes() inference.Recognizes {
	if h, ok := r.ModelManager.Loaded().(hearing); ok {
		return h.Recognizes()
	}
	return r.can
}

// Loaded returns the loaded recognizer, or nil.
func (r *Recognizer) Loaded() inference.Recognizer {
	if h, ok := r.ModelManager.Loaded().(hearing); ok {
		return h.Recognizer
	}
	return nil
}

// Hold loads the recognizer, and keeps it loaded until release is called. It does not wait for the load.
func (r *Recognizer) Hold() (release func()) {
	s, err := r.Open(nil)
	if err != nil {
		return func() {} // closed: there is nothing to keep
	}
	return func() { _ = s.Close() } // it has no inner session
}

// hold waits for the recognizer and keeps it until release is called. The returned context ends with it.
func (r *Recognizer) hold(ctx context.Context, urgent bool) (
	_ context.Context, _ inference.Recognizer, release func(), err error,
) {
	s, err := r.Open(nil)
	if err != nil {
		return ctx, nil, nil, err
	}
	held, mine, err := r.enter(ctx, urgent)
	if err != nil {
		return ctx, nil, nil, errors.Join(err, s.Close())
	}
	release = func() {
		r.leave(mine)
		_ = s.Close() // it has no inner session
	}
	r.mu.Lock()
	h, ok := r.model.(hearing)
	broken := r.broken
	r.mu.Unlock()
	if !ok || broken {
		release()
		return ctx, nil, nil, inference.ErrNotReady
	}
	return held, h.Recognizer, release, nil
}

// ended returns the reason for an error of a call that was held in ctx.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrClosed) {
		return cause // ended by the ModelManager, not the caller
	}
	return err
}

// Transcribe waits for the recognizer, then transcribes. It returns the same errors as a session of a ModelManager.
func (r *Recognizer) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		ctx, inner, release, err := r.hold(ctx, h.Live)
		if err != nil {
			yield(inference.Transcript{}, err)
			return
		}
		defer release()
		for t, err := range inner.Transcribe(ctx, sound, h) {
			if !yield(t, ended(ctx, err)) {
				return
			}
		}
	}
}

// Align waits for the recognizer, then aligns.
func (r *Recognizer) Align(ctx context.Context, sound []float32, text, language string) ([]inference.Word, error) {
	ctx, inner, release, err := r.hold(ctx, false)
	if err != nil {
		return nil, err
	}
	defer release()
	words, err := inner.Align(ctx, sound, text, language)
	return words, ended(ctx, err)
}

// Listen waits for the recognizer, which stays loaded until the utterance is closed.
func (r *Recognizer) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	use := r.Hold()
	ctx, inner, release, err := r.hold(ctx, true)
	if err == nil {
		defer release()
		var u inference.Utterance
		if u, err = inner.Listen(ctx, h); err == nil {
			return &utterance{r: r, of: inner, inner: u, use: use}, nil
		}
	}
	use()
	return nil, ended(ctx, err)
}

// utterance is one of a recognizer, which may have been unloaded since.
type utterance struct {
	r     *Recognizer
	of    inference.Recognizer
	inner inference.Utterance
	use   func() // ends it
}

// Hear fails with inference.ErrNotReady when the recognizer was loaded anew since Listen.
func (u *utterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return u.call(ctx, sound, u.inner.Hear)
}

// Finish fails as Hear does.
func (u *utterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return u.call(ctx, sound, u.inner.Finish)
}

func (u *utterance) call(ctx context.Context, sound []float32,
	f func(context.Context, []float32) (inference.Transcript, error),
) (inference.Transcript, error) {
	ctx, of, release, err := u.r.hold(ctx, true)
	if err != nil {
		return inference.Transcript{}, err
	}
	defer release()
	if of != u.of {
		return inference.Transcript{}, fmt.Errorf("%w: it was loaded anew; begin the utterance again", inference.ErrNotReady)
	}
	t, err := f(ctx, sound)
	return t, ended(ctx, err)
}

// Close releases the utterance, and the recognizer with it.
func (u *utterance) Close() error {
	defer u.use()
	return u.inner.Close()
}
