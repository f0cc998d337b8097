package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/room/control"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
	"touchline/media/speech"
)

const (
	// interruptions is how often somebody interrupts the voice, for saidFor; silentIn bounds the time until it is silent.
	interruptions = 20
	saidFor       = 300 * time.Millisecond
	silentIn      = 200
	// pauseMost is longer than any pause within the voice's sentences.
	pauseMost = 500 * time.Millisecond
)

// measureInterrupt measures how soon the voice is silent when somebody who may instruct says something short while it sounds, with
// manners interrupt.
func measureInterrupt(ctx context.Context, log zerolog.Logger) ([]row, error) {
	cfg := configs.Default()
	cfg.Agent.Hearing.Mode, cfg.Agent.Hearing.Manners = agent.HearingCaptions, agent.MannersInterrupt
	s, err := stage.New(ctx, stage.Options{
		Config: &cfg, Model: stage.NewEngine(5, 400*time.Millisecond, time.Second), Recognizer: counter{}, Seed: 5, Log: log,
	})
	if err != nil {
		return nil, err
	}
	frames, _ := s.Bot.Voice.Frames() // the end of the stage closes them
	voice, ended := &loudness{}, make(chan struct{})
	go func() {
		defer close(ended)
		voice.follow(frames)
	}()
	defer func() { s.Close(); <-ended }()
	pcm, err := speech300(ctx, log)
	if err != nil {
		return nil, err
	}
	packets, err := stage.Opus(pcm)
	if err != nil {
		return nil, err
	}
	p, leave, err := s.AddSpeaker(ctx, "anna", control.Attributes(access.Instruct))
	if err != nil {
		return nil, err
	}
	defer leave()
	var took []time.Duration
	missed := 0
	for n := range interruptions {
		within := time.Duration(1+n%5) * 200 * time.Millisecond // a comment
		if _, err := stage.Until(ctx, time.Minute, "the voice", func() bool { return voice.soundsFor(within) }); err != nil {
			return nil, err
		}
		end := time.Now().Add(saidFor)
		if err := p.Say(ctx, packets); err != nil {
			return nil, err
		}
		if _, err := stage.Until(ctx, time.Minute, "silence", func() bool { return voice.silentFor(pauseMost) }); err != nil {
			return nil, err
		}
		if late := voice.lastSound().Sub(end); late < 2*time.Second {
			took = append(took, late)
		} else {
			missed++ // it was not heard as speech, and the comment went on
		}
	}
	if len(took) == 0 {
		return nil, errors.New("expected the voice to be interrupted, and it never was")
	}
	return []row{
		atMost(fmt.Sprintf("voice silent after %v of speech, p95", saidFor), ms(quantile.Of(took, 0.95)), silentIn, "ms"),
		note("the same, median", number(ms(quantile.Of(took, 0.5)), "ms")),
		note("interruptions, of which not heard", fmt.Sprintf("%d, %d", interruptions, missed)),
	}, s.Errors()
}

// speech300 returns saidFor of speech at 48 kHz, and a second of silence.
func speech300(ctx context.Context, log zerolog.Logger) ([]int16, error) {
	pcm, err := speechOf(ctx, "No, no, no.", log)
	if err != nil {
		return nil, err
	}
	from := int(firstLoud(pcm) * 48000 / time.Second)
	n := int(saidFor * 48000 / time.Second)
	out := make([]int16, n+48000)
	copy(out[:n], pcm[from:])
	return out, nil
}

// loudness follows the sound of the voice as it is sent.
type loudness struct {
	mu    sync.Mutex
	since time.Time // the first sound after a pause
	last  time.Time // the end of the last sound
}

// follow takes frames until they end.
func (l *loudness) follow(frames <-chan speech.Frame) {
	for f := range frames {
		for i := len(f.PCM) - 1; i >= 0; i-- {
			if f.PCM[i] <= quietBelow && f.PCM[i] >= -quietBelow {
				continue
			}
			at := f.Due.Add(speech.EncoderDelay + media.TicksToDuration(int64(i), 48000))
			l.mu.Lock()
			if at.Sub(l.last) > pauseMost {
				l.since = at
			}
			l.last = at
			l.mu.Unlock()
			break
		}
	}
}

// soundsFor reports whether the voice sounds, and has for a time.
func (l *loudness) soundsFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last) < 60*time.Millisecond && time.Since(l.since) >= d
}

func (l *loudness) silentFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last) > d
}

func (l *loudness) lastSound() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
