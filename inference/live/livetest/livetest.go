// Package livetest is a recognizer for tests. It hears a simple language: each stretch of equal samples is a word, so that a
// text names the sound it was made from.
package livetest

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/internal/ticks"
)

// Say returns sound that the test recognizer reads as words "w1", "w2" and so on, each of a length; number 0 is silence.
func Say(length time.Duration, words ...int) []float32 {
	var sound []float32
	for _, w := range words {
		for range ticks.Count(length, inference.RecognizerRate) {
			sound = append(sound, float32(w)/1024)
		}
	}
	return sound
}

// Detector detects every sound that is not silence.
type Detector struct{ Closed *atomic.Int32 }

// Detect implements vad.Detector.
func (Detector) Detect(frame []float32) (float64, error) {
	for _, v := range frame {
		if v != 0 {
			return 1, nil
		}
	}
	return 0, nil
}

// Close implements vad.Detector.
func (d Detector) Close() error {
	if d.Closed != nil {
		d.Closed.Add(1)
	}
	return nil
}

// Recognizer hears what Say says. Its fields are set before its first use.
type Recognizer struct {
	// Before is called before each text; it may wait, and its error is the text's.
	Before func(ctx context.Context, call Call) error
	// NoPartials and NoTimes turn capabilities off.
	NoPartials, NoTimes bool

	mu    sync.Mutex
	calls []Call
	open  atomic.Int32
	held  atomic.Int32
}

// Hold keeps the recognizer until release.
func (r *Recognizer) Hold() (release func()) {
	r.held.Add(1)
	return func() { r.held.Add(-1) }
}

// Held returns how often the recognizer is held now.
func (r *Recognizer) Held() int { return int(r.held.Load()) }

// Call is one request for a text.
type Call struct {
	Method  string // transcribe, translate, hear, finish or align
	Samples int    // of the whole sound
	Hearing inference.Hearing
}

// Calls returns the requests so far.
func (r *Recognizer) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call{}, r.calls...)
}

// Open returns the number of utterances that were not closed.
func (r *Recognizer) Open() int { return int(r.open.Load()) }

func (r *Recognizer) call(ctx context.Context, c Call) error {
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	if r.Before != nil {
		if err := r.Before(ctx, c); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Recognizes implements inference.Recognizer.
func (r *Recognizer) Recognizes() inference.Recognizes {
	return inference.Recognizes{
		Model: "test", Languages: []string{"en", "nl", "ja"}, WordTimes: !r.NoTimes, Partials: !r.NoPartials,
	}
}

// Status implements inference.Recognizer.
func (*Recognizer) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}

// Close implements inference.Recognizer.
func (*Recognizer) Close() error { return nil }

// text hears sound.
func (r *Recognizer) text(sound []float32, h inference.Hearing) inference.Transcript {
	at := func(i int) time.Duration { return ticks.Duration(int64(i), inference.RecognizerRate) }
	t := inference.Transcript{Language: h.Language, End: at(len(sound)), Final: true, Audio: len(sound) / 1280}
	if t.Language == "" {
		t.Language = "en"
	}
	for begin := 0; begin < len(sound); {
		end := begin
		for end < len(sound) && sound[end] == sound[begin] {
			end++
		}
		if sound[begin] != 0 {
			word := fmt.Sprintf("w%d", int(math.Round(float64(sound[begin])*1024)))
			t.Text = inference.JoinTranscripts(t.Text, word)
			t.Words = append(t.Words, inference.Word{Text: word, Start: at(begin), End: at(end)})
			t.Tokens++
		}
		begin = end
	}
	if !h.WordTimes {
		t.Words = nil
	}
	return t
}

// Transcribe implements inference.Recognizer: parts of 30 s, each in two steps.
func (r *Recognizer) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return r.parts(ctx, "transcribe", sound, h)
}

// Translate implements inference.Translator.
func (r *Recognizer) Translate(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	h.Language = "en"
	return r.parts(ctx, "translate", sound, h)
}

func (r *Recognizer) parts(ctx context.Context, method string, sound []float32, h inference.Hearing,
) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		if h.WordTimes && r.NoTimes {
			yield(inference.Transcript{}, inference.ErrNoWordTimes)
			return
		}
		at := time.Duration(0)
		for _, part := range inference.SplitSound(sound, 30*inference.RecognizerRate) {
			if err := r.call(ctx, Call{method, len(part), h}); err != nil {
				yield(inference.Transcript{}, err)
				return
			}
			t := r.text(part, h)
			t.Start, t.End = t.Start+at, t.End+at
			for i := range t.Words {
				t.Words[i].Start += at
				t.Words[i].End += at
			}
			first := t
			first.Final, first.Words = false, nil
			first.Text = t.Text[:len(t.Text)/2]
			if !yield(first, nil) || !yield(t, nil) {
				return
			}
			at = t.End
		}
	}
}

// Align implements inference.Recognizer.
func (r *Recognizer) Align(ctx context.Context, sound []float32, _, language string) ([]inference.Word, error) {
	h := inference.Hearing{Language: language, WordTimes: true}
	if r.NoTimes {
		return nil, inference.ErrNoWordTimes
	}
	return r.text(sound, h).Words, r.call(ctx, Call{"align", len(sound), h})
}

// Listen implements inference.Recognizer.
func (r *Recognizer) Listen(_ context.Context, h inference.Hearing) (inference.Utterance, error) {
	r.open.Add(1)
	return &utterance{r: r, h: h}, nil
}

type utterance struct {
	r     *Recognizer
	h     inference.Hearing
	sound []float32
	once  sync.Once
}

// Hear implements inference.Utterance.
func (u *utterance) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.ask(ctx, "hear", sound)
	t.Final, t.Words = false, nil
	return t, err
}

// Finish implements inference.Utterance.
func (u *utterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return u.ask(ctx, "finish", sound)
}

func (u *utterance) ask(ctx context.Context, method string, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	if err := u.r.call(ctx, Call{method, len(u.sound), u.h}); err != nil {
		return inference.Transcript{}, err
	}
	return u.r.text(u.sound, u.h), nil
}

// Close implements inference.Utterance.
func (u *utterance) Close() error {
	u.once.Do(func() { u.r.open.Add(-1) })
	return nil
}
