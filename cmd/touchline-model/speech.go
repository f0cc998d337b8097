package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/internal/quantile"
	"touchline/models"
)

// heard is what a listener hears who plays from the first sound on.
type heard struct {
	first     time.Duration // from the beginning to the first sound
	sound     time.Duration
	underruns int // times that the sound was late
	end       time.Time
}

// hear listens to speech, at most to a length of it; then the rest is cancelled.
func hear(begin time.Time, speech iter.Seq2[inference.Chunk, error], most time.Duration) (h heard, err error) {
	var started time.Time
	defer func() { h.end = started.Add(h.sound) }()
	for c, err := range speech {
		switch {
		case err != nil:
			return h, err
		case c.VoiceFailed != nil:
			return h, c.VoiceFailed.Err
		case len(c.Audio) == 0:
			continue
		}
		now := time.Now()
		if h.sound == 0 {
			h.first, started = now.Sub(begin), now
		} else if now.Sub(started) > h.sound {
			h.underruns++
			started = now.Add(-h.sound)
		}
		h.sound += time.Duration(float64(len(c.Audio)) / float64(c.AudioRate) * float64(time.Second))
		if h.sound >= most {
			break
		}
	}
	if h.sound == 0 {
		return h, errors.New("expected sound, has none")
	}
	return h, nil
}

const (
	// commentLength is the length of a spoken comment.
	commentLength = 3 * time.Second
	commentTokens = 12
	// speakers speak at once.
	speakers = 32
	// commenting rooms make a spoken comment each commentPause.
	commenting   = 64
	commentPause = 6 * time.Second
	// given is a text of 20 words.
	given = "The red car turns slowly into the yard, stops beside the old gate, and its driver waits for the rain."
)

// speech measures rooms that speak with the model's own voice.
func (b *bench) speech(ctx context.Context) error {
	m, err := models.OpenBundle(b.Bundle)
	if err != nil || m.Manifest.Dims.Speech == nil {
		return err
	}
	c := b.config("auto")
	c.Voice.Enabled, c.Voice.Slots = true, speakers
	e, err := b.openWith(ctx, b.Bundle, c)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := b.firstSounds(ctx, e, s); err != nil {
		return err
	}
	for _, l := range []load{{texts: 4, share: 15}, {texts: 1}, {texts: 1, beside: true}} {
		if err := b.speakers(ctx, e, l); err != nil {
			return err
		}
	}
	return b.comments(ctx, e)
}

// filler returns a text that has about b.Prompt tokens together with four pictures.
func (b *bench) filler(e *minicpmo.Engine) string {
	const pictures = 300 // with the template around them
	words := strings.Repeat("Say in one sentence what is going on. ", b.Prompt/4)
	return words[:sort.Search(len(words), func(n int) bool {
		return len(e.Tokenizer().EncodeLiteral(words[:n])) > b.Prompt-pictures
	})]
}

// firstSounds measures one room: the first sound of an answer, and of a given text.
func (b *bench) firstSounds(ctx context.Context, e *minicpmo.Engine, s inference.Session) error {
	const frames = 4
	f := newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng))
	reader, ok := s.(inference.Speaker)
	if !ok {
		return inference.ErrNoVoice
	}
	text := b.filler(e)
	var answers, texts []float64
	var fed uint64
	for i := range b.Runs + 2 {
		p := inference.Prompt{Frames: f.next(frames, 1), Text: text, Speech: true, MaxSlices: 1, MaxTokens: b.Answer}
		before := e.Stats().Prompt
		answer, err := hear(time.Now(), s.Generate(ctx, p), time.Millisecond)
		if err != nil {
			return fmt.Errorf("first sound of an answer: %w", err)
		}
		fed = e.Stats().Prompt - before
		read, err := hear(time.Now(), reader.Speak(ctx, given, inference.VoiceModel, ""), time.Millisecond)
		if err != nil {
			return fmt.Errorf("first sound of a text: %w", err)
		}
		if i >= 2 {
			answers = append(answers, milliseconds([]time.Duration{answer.first})...)
			texts = append(texts, milliseconds([]time.Duration{read.first})...)
		}
	}
	b.add(fmt.Sprintf("voice: first sound of an answer, %d frames (1 new), %d in", frames, fed), "ms", "", answers, 125, true)
	b.add("voice: first sound of a given text of 20 words", "ms", "", texts, 120, true)
	return nil
}

// load is what rooms speak.
type load struct {
	texts  int     // given texts in a row, without a pause: what comes first of each such turn is made at once, alone
	beside bool    // as many rooms write meanwhile
	share  float64 // goal for the share of the device, in percent; 0 for none
}

// speakers measures rooms that speak without a pause.
func (b *bench) speakers(ctx context.Context, e *minicpmo.Engine, l load) error {
	text := strings.TrimSpace(strings.Repeat(given+" ", l.texts))
	ctx, cancel := context.WithTimeout(ctx, b.Duration)
	defer cancel()
	var wg sync.WaitGroup
	var underruns atomic.Int64
	var mu sync.Mutex
	var failed error
	var sound time.Duration
	for i := range speakers {
		wg.Go(func() {
			h, err := speakOn(ctx, e, text, time.Duration(rand.Int64N(int64(time.Second)))) //nolint:gosec // a load
			underruns.Add(int64(h.underruns))
			mu.Lock()
			defer mu.Unlock()
			sound += h.sound
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("room %d: %w", i, err))
			}
		})
	}
	before := e.Stats()
	if l.beside {
		if err := b.written(ctx, e); err != nil {
			cancel()
			wg.Wait()
			return err
		}
	}
	wg.Wait()
	after := e.Stats()
	if failed != nil {
		return fmt.Errorf("%d speaking rooms: %w", speakers, failed)
	}
	what := fmt.Sprintf("voice: %d rooms speak for %v, %d words in a row", speakers, b.Duration, len(strings.Fields(text)))
	if l.beside {
		what += fmt.Sprintf(" beside %d that write", speakers)
		b.add(what+": between two tokens, p99", "ms", "", []float64{1e3 * between(before.Gap, after.Gap).Quantile(.99)}, 50, true)
	} else if sound > 0 {
		share := 100 * speakers * (after.VoiceBusy - before.VoiceBusy).Seconds() / sound.Seconds()
		b.add(what+": share of the device's time for codes and sound, in real time", "%", "", []float64{share}, l.share, true)
	}
	b.add(what+": sound that was late", "times", "", []float64{float64(underruns.Load())}, .5, true)
	b.add(what+": seconds of sound for each second", "s", "", []float64{sound.Seconds() / b.Duration.Seconds()}, 0, true)
	return nil
}

// written asks for written answers, as many rooms as speak, until ctx ends.
func (b *bench) written(ctx context.Context, e *minicpmo.Engine) error {
	p, err := b.text(e, newFilm(1, 1, backgrounds(newFilm(1, 0, nil).rng)).next(4, 4))
	if err != nil {
		return err
	}
	load := openLoad{Rooms: speakers, Interval: b.Interval, Duration: b.Duration, Frames: 4, New: 2, Seed: 1}
	_, err = load.run(ctx, func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
		r := request(e, p, b.Answer, uint64(room)) //nolint:gosec // not negative
		r.Frames, r.Source = frames, 1<<50|uint64(room)
		_, err := ask(ctx, e, r, first)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// speakOn speaks texts until ctx ends, each when the last one was heard.
func speakOn(ctx context.Context, e *minicpmo.Engine, text string, after time.Duration) (all heard, err error) {
	s, err := e.NewSession()
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	reader, ok := s.(inference.Speaker)
	if !ok {
		return all, inference.ErrNoVoice
	}
	waitUntil(ctx, time.Now().Add(after))
	for ctx.Err() == nil {
		h, err := hear(time.Now(), reader.Speak(ctx, text, inference.VoiceModel, ""), time.Hour)
		all.underruns += h.underruns
		all.sound += h.sound
		if err != nil && ctx.Err() == nil {
			return all, err
		}
		waitUntil(ctx, h.end)
	}
	return all, nil
}

// idle holds the sessions of a room that have no comment: usually one, which has seen the room's earlier frames. A comment that
// begins before the last one has ended gets another, because the comments of a session sound one after another.
type idle struct {
	mu       sync.Mutex
	sessions []inference.Session
}

func (r *idle) take(e *minicpmo.Engine) (inference.Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.sessions)
	if n == 0 {
		return e.NewSession()
	}
	s := r.sessions[n-1]
	r.sessions = r.sessions[:n-1]
	return s, nil
}

func (r *idle) give(s inference.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = append(r.sessions, s)
}

func (r *idle) close() {
	for _, s := range r.sessions {
		_ = s.Close()
	}
}

// comments measures spoken comments that rooms make at random.
func (b *bench) comments(ctx context.Context, e *minicpmo.Engine) error {
	load := openLoad{Rooms: commenting, Interval: commentPause, Duration: b.Duration, Frames: 4, New: 2, Seed: 1}
	text := b.filler(e)
	var mu sync.Mutex
	var firsts []time.Duration
	underruns := 0
	rooms := make([]idle, commenting)
	defer func() {
		for i := range rooms {
			rooms[i].close()
		}
	}()
	row, err := load.run(ctx, func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
		s, err := rooms[room].take(e)
		if err != nil {
			return err
		}
		defer rooms[room].give(s)
		p := inference.Prompt{Frames: frames, Text: text, Speech: true, MaxSlices: 1, MaxTokens: commentTokens}
		h, err := hear(time.Now(), s.Generate(ctx, p), commentLength)
		if err != nil {
			return err
		}
		first()
		mu.Lock()
		defer mu.Unlock()
		firsts = append(firsts, h.first)
		underruns += h.underruns
		return nil
	})
	if err != nil {
		return err
	}
	if row.Error != nil {
		return fmt.Errorf("a spoken comment: %w", row.Error)
	}
	what := fmt.Sprintf("voice: %d rooms, a spoken comment of %v each %v (Poisson), %d of them, %d running after two thirds",
		commenting, commentLength, commentPause, row.Finished, row.Backlog[1])
	b.add(what+": first sound p95", "ms", "", milliseconds([]time.Duration{quantile.Of(firsts, .95)}), 600, true)
	b.add(what+": first sound p50", "ms", "", milliseconds([]time.Duration{quantile.Of(firsts, .5)}), 0, true)
	b.add(what+": sound that was late", "times", "", []float64{float64(underruns)}, .5, true)
	return nil
}
