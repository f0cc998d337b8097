package qwen3asr

import (
	"context"
	"errors"
	"slices"
	"sync"

	"touchline/inference"
)

// utterance is one stretch of live speech.
type utterance struct {
	e      *Engine
	query  query
	closed chan struct{}
	once   sync.Once

	// Parts that were cut off because the speech is long, in order.
	parts []inference.Transcript
	begin int // the first sample after parts

	sound    []float32 // from begin on
	fed      int       // samples of it in features
	features *features
	follow   follower
	last     inference.Transcript // of sound, not final
}

var _ inference.Utterance = (*utterance)(nil)

// Listen implements inference.Recognizer.
func (e *Engine) Listen(_ context.Context, h inference.Hearing) (inference.Utterance, error) {
	a, err := e.ask(h)
	if err != nil {
		return nil, err
	}
	u := &utterance{e: e, query: a, closed: make(chan struct{})}
	u.restart(0)
	return u, nil
}

// restart begins anew at the n-th sample of sound.
func (u *utterance) restart(n int) {
	u.begin += n
	u.sound = slices.Clone(u.sound[n:])
	u.fed, u.features, u.last = 0, newFeatures(u.e.dims), inference.Transcript{}
	u.follow = follower{tokens: u.e.tokens, freeChunks: u.e.o.FreeSteps, freeTokens: u.e.o.FreeTokens}
}

// Hear implements inference.Utterance. The model hears whole steps only; of several that have come, it hears all at once.
func (u *utterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	if err := u.take(ctx, sound); err != nil {
		return inference.Transcript{}, err
	}
	step := samples(u.e.o.Step)
	if n := (len(u.sound) - u.fed) / step; n > 0 && u.fed+n*step >= leastSound {
		if err := u.listen(ctx, u.fed+n*step, n, false, partial); err != nil {
			return inference.Transcript{}, err
		}
	}
	return u.joined(u.last, false), nil
}

// Finish implements inference.Utterance. Unless the official way is set, all sound since the last cut is recognized again without a given
// beginning of the text.
func (u *utterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	if err := u.take(ctx, sound); err != nil {
		return inference.Transcript{}, err
	}
	if len(u.sound) > 0 {
		t, err := u.end(ctx)
		if err != nil {
			return inference.Transcript{}, err
		}
		shift(&t, moment(u.begin), moment(u.begin+len(u.sound)))
		u.parts = append(u.parts, t)
		u.restart(len(u.sound))
	}
	return u.joined(inference.Transcript{}, true), nil
}

// end returns the final text of the sound since the last cut.
func (u *utterance) end(ctx context.Context) (inference.Transcript, error) {
	if !u.e.o.Official || u.fed == 0 {
		return u.whole(ctx, u.all(), final)
	}
	if len(u.sound) > u.fed {
		if err := u.listen(ctx, len(u.sound), 1, true, final); err != nil {
			return inference.Transcript{}, err
		}
	}
	return u.e.withWords(ctx, u.query, final, u.features.windows(false), u.last, u.last.Tokens, u.closed)
}

// whole hears sound once, without a given beginning.
func (u *utterance) whole(ctx context.Context, windows []*window, k class) (inference.Transcript, error) {
	j, err := u.e.answer(u.query, k, windows, "", u.e.o.MaxTokens)
	if err != nil {
		return inference.Transcript{}, err
	}
	return u.e.complete(ctx, u.query, j, u.closed)
}

// all returns the windows of all sound since the last cut; most are encoded already.
func (u *utterance) all() []*window {
	if len(u.sound) < leastSound {
		return u.e.windows(u.sound)
	}
	u.features.append(u.sound[u.fed:])
	u.fed = len(u.sound)
	return u.features.windows(true)
}

// take adds sound, and cuts speech that is too long for one request.
func (u *utterance) take(ctx context.Context, sound []float32) error {
	select {
	case <-u.closed:
		return errUtteranceClosed
	default:
	}
	u.sound = append(u.sound, sound...)
	part := samples(u.e.o.Part)
	for len(u.sound) >= part+cutSearch {
		cut := len(inference.SplitSound(u.sound, part)[0])
		t, err := u.whole(ctx, u.e.windows(u.sound[:cut]), partial)
		if err != nil {
			return err
		}
		shift(&t, moment(u.begin), moment(u.begin+cut))
		u.parts = append(u.parts, t)
		u.restart(cut)
	}
	return nil
}

// listen recognizes the samples before index to, of which n steps are new.
func (u *utterance) listen(ctx context.Context, to, n int, last bool, k class) error {
	u.features.append(u.sound[u.fed:to])
	u.fed = to
	windows := u.features.windows(false)
	var ids []int32
	err := u.follow.step(n, last, func(prefix string) (string, error) {
		j, err := u.e.answer(u.query, k, windows, prefix, u.e.o.StepTokens)
		if err == nil {
			ids, err = u.e.wait(ctx, j, u.closed)
		}
		return u.e.tokens.DecodePlain(ids), err
	})
	if long := new(inference.TooLongError); errors.As(err, &long) {
		return nil // The text stays as it is; the next cut or the end hears the sound without a prefix.
	}
	if err != nil {
		return err
	}
	u.last = u.e.read(u.query, u.follow.raw)
	u.last.Audio, u.last.Tokens = rowsOf(windows), len(ids)
	return nil
}

// joined returns the text of all parts and of the last one.
func (u *utterance) joined(last inference.Transcript, end bool) inference.Transcript {
	all := inference.Transcript{Final: end, End: moment(u.begin + len(u.sound))}
	texts := make([]string, 0, len(u.parts)+1)
	add := func(t inference.Transcript) {
		texts = append(texts, t.Text)
		all.Words = append(all.Words, t.Words...)
		all.Audio += t.Audio
		all.Tokens += t.Tokens
		if t.Language != "" {
			all.Language = t.Language
		}
	}
	for _, t := range u.parts {
		add(t)
	}
	add(last)
	all.Text = inference.JoinTranscripts(texts...)
	return all
}

// Close implements inference.Utterance.
func (u *utterance) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}
