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
	"time"

	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/internal/quantile"
	"touchline/models"
)

// heard measures speech as a player receives it, from the first sound on.
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
func (b *modelBench) speech() {
	m, err := models.OpenBundle(b.Bundle)
	b.Check(err)
	if m.Manifest.Dims.Speech == nil {
		return
	}
	c := b.config("auto")
	c.Voice.Enabled, c.Voice.Slots = true, speakers
	e := b.open(b.Bundle, c)
	b.firstSounds(e)
	// What comes first of each turn is made at once, alone: long turns have less of it.
	b.speak(e, 4, 15, false)
	b.speak(e, 1, 0, false)
	b.speak(e, 1, 0, true)
	b.comments(e)
}

// filler returns a text that has about b.Prompt tokens together with four pictures.
func (b *modelBench) filler(e *minicpmo.Engine) string {
	const pictures = 300 // with the template around them
	words := b.words()
	return words[:sort.Search(len(words), func(n int) bool {
		return len(e.Tokenizer().EncodeLiteral(words[:n])) > b.Prompt-pictures
	})]
}

// reader opens a session that reads texts.
func reader(e *minicpmo.Engine) (s inference.Session, r inference.Speaker, err error) {
	if s, err = e.NewSession(); err != nil {
		return nil, nil, err
	}
	r, ok := s.(inference.Speaker)
	if !ok {
		return nil, nil, errors.Join(inference.ErrNoVoice, s.Close())
	}
	return s, r, nil
}

// firstSounds measures one room: the first sound of an answer, and of a given text.
func (b *modelBench) firstSounds(e *minicpmo.Engine) {
	s, r, err := reader(e)
	b.Check(err)
	b.Cleanup(func() { _ = s.Close() })
	f, text := oneFilm(), b.filler(e)
	var answers, texts []time.Duration
	var fed uint64
	for range b.Runs + warmRuns {
		p := inference.Prompt{Frames: f.next(1), Text: text, Speech: true, MaxSlices: 1, MaxTokens: b.Answer}
		before := e.Stats().Prompt
		answer, err := hear(time.Now(), s.Generate(b.Context(), p), time.Millisecond)
		b.Check(err)
		fed = e.Stats().Prompt - before
		read, err := hear(time.Now(), r.Speak(b.Context(), given, inference.VoiceModel, ""), time.Millisecond)
		b.Check(err)
		answers, texts = append(answers, answer.first), append(texts, read.first)
	}
	b.add(fmt.Sprintf("voice: first sound of an answer, %d frames (1 new), %d in", cycleFrames, fed), "ms", "",
		bench.AllMS(answers[warmRuns:]), 125, true)
	b.add("voice: first sound of a given text of 20 words", "ms", "", bench.AllMS(texts[warmRuns:]), 120, true)
}

// speak measures rooms that speak some texts in a row without a pause, with a goal for their share of the device in percent, or together
// with as many rooms that write.
func (b *modelBench) speak(e *minicpmo.Engine, texts int, share float64, beside bool) {
	text := strings.TrimSpace(strings.Repeat(given+" ", texts))
	ctx, cancel := context.WithTimeout(b.Context(), b.Duration)
	defer cancel()
	var wg sync.WaitGroup
	heards, errs := make([]heard, speakers), make([]error, speakers)
	for i := range speakers {
		wg.Go(func() {
			heards[i], errs[i] = speakOn(ctx, e, text, time.Duration(rand.Int64N(int64(time.Second))))
		})
	}
	before := e.Stats()
	var failed error
	if beside {
		l := b.written(e, b.text(e, oneFilm().next(cycleFrames)), speakers, 1<<18)
		if failed = l.run(ctx); errors.Is(failed, context.DeadlineExceeded) {
			failed = b.Context().Err()
		}
	}
	if failed != nil {
		cancel()
	}
	wg.Wait()
	after := e.Stats()
	b.Check(errors.Join(errors.Join(errs...), failed))
	var sound time.Duration
	underruns := 0
	for _, h := range heards {
		sound, underruns = sound+h.sound, underruns+h.underruns
	}
	what := fmt.Sprintf("voice: %d rooms speak for %v, %d words in a row", speakers, b.Duration, len(strings.Fields(text)))
	one := func(figure, unit string, value, goal float64) {
		b.add(what+": "+figure, unit, "", []float64{value}, goal, true)
	}
	if beside {
		what += fmt.Sprintf(" beside %d that write", speakers)
		one("between two tokens, p99", "ms", 1e3*between(before.Gap, after.Gap).Quantile(.99), 50)
	} else if sound > 0 {
		busy := 100 * speakers * (after.VoiceBusy - before.VoiceBusy).Seconds() / sound.Seconds()
		one("share of the device's time for codes and sound, in real time", "%", busy, share)
	}
	one("sound that was late", "times", float64(underruns), .5)
	one("seconds of sound for each second", "s", sound.Seconds()/b.Duration.Seconds(), 0)
}

// speakOn speaks texts one after another until ctx ends.
func speakOn(ctx context.Context, e *minicpmo.Engine, text string, after time.Duration) (all heard, err error) {
	s, r, err := reader(e)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	waitUntil(ctx, time.Now().Add(after))
	for ctx.Err() == nil {
		h, err := hear(time.Now(), r.Speak(ctx, text, inference.VoiceModel, ""), time.Hour)
		all.underruns += h.underruns
		all.sound += h.sound
		if err != nil && ctx.Err() == nil {
			return all, err
		}
		waitUntil(ctx, h.end)
	}
	return all, nil
}

// comments measures spoken comments that rooms make at random.
func (b *modelBench) comments(e *minicpmo.Engine) {
	text := b.filler(e)
	var mu sync.Mutex
	var firsts []time.Duration
	underruns := 0
	// The sessions of a room without a comment: usually one, which has seen the room's earlier frames. A comment that begins before
	// the last one has ended gets another, because a session's comments are spoken one after another.
	idle := make([][]inference.Session, commenting)
	session := func(room int) (inference.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		last := len(idle[room]) - 1
		if last < 0 {
			return e.NewSession()
		}
		s := idle[room][last]
		idle[room] = idle[room][:last]
		return s, nil
	}
	l := &load{rooms: commenting, interval: commentPause, duration: b.Duration}
	l.cycle = func(ctx context.Context, room int, frames []inference.Frame, first func()) error {
		s, err := session(room)
		if err != nil {
			return err
		}
		p := inference.Prompt{Frames: frames, Text: text, Speech: true, MaxSlices: 1, MaxTokens: commentTokens}
		h, err := hear(time.Now(), s.Generate(ctx, p), commentLength)
		mu.Lock()
		defer mu.Unlock()
		if idle[room] = append(idle[room], s); err != nil {
			return err
		}
		first()
		firsts = append(firsts, h.first)
		underruns += h.underruns
		return nil
	}
	err := l.run(b.Context())
	for _, sessions := range idle {
		for _, s := range sessions {
			err = errors.Join(err, s.Close())
		}
	}
	b.Check(errors.Join(err, l.err))
	what := fmt.Sprintf("voice: %d rooms, a spoken comment of %v each %v (Poisson), %d of them, %d running after two thirds",
		commenting, commentLength, commentPause, l.finished, l.backlog[1])
	b.add(what+": first sound p95", "ms", "", []float64{bench.MS(quantile.Of(firsts, .95))}, 600, true)
	b.add(what+": first sound p50", "ms", "", []float64{bench.MS(quantile.Of(firsts, .5))}, 0, true)
	b.add(what+": sound that was late", "times", "", []float64{float64(underruns)}, .5, true)
}
