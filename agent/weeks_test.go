//go:build integration

package agent_test

import (
	"context"
	"iter"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/ticks"
)

// TestWeeks is a room of many days: a picture a second, a comment a minute, and a microphone with speech one second in a hundred.
// TOUCHLINE_DAYS sets another number of days than eight, in which a session passes 160 hours of speech.
func TestWeeks(t *testing.T) {
	days := 8
	if v, ok := os.LookupEnv("TOUCHLINE_DAYS"); ok {
		var err error
		days, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	var records []look.Record
	synctest.Test(t, func(t *testing.T) { records = manyDays(t, time.Duration(days)*24*time.Hour) })
	stored(t, records)
}

func manyDays(t *testing.T, length time.Duration) []look.Record {
	t.Helper()
	w := newWire(1, 12*time.Hour, false)
	w.run(0)
	room := newWeekRoom(t, w, alert.Rule{When: "a person enters", By: alert.ByFacts, Pause: "1h"}, func(o *agent.Options) {
		// With two seconds of speech, each look begins half a second after a picture. At the instant of a picture, the scheduler would
		// decide whether the look has that one or the one before, a second older. Where that is rare, D does not follow it.
		o.Pacing.PauseAfter = 57*time.Second + 500*time.Millisecond
	})
	room.book.every = 100
	m := newMicrophone(room, w.began)
	const settled = 6 * time.Hour // the delay line's history of pictures is full
	time.Sleep(settled)
	first := measured()
	room.book.begin()
	w.begin()
	time.Sleep(length - settled)
	last := measured()
	m.stop()
	room.stop()

	hours := int((length - settled).Hours())
	t.Logf("heap %.2f, %.2f MB, %d goroutines, %d comments, %d utterances",
		first.heap, last.heap, last.goroutines, room.book.comments, m.texts)
	require.LessOrEqual(t, last.heap, first.heap+1, "MB")
	require.LessOrEqual(t, last.goroutines, first.goroutines)
	records := room.book.aligned(t)
	for _, r := range records {
		require.NotZero(t, r.InferenceStart.Sub(r.NewestFrameAt)%time.Second, "a look at the instant of a picture")
	}
	require.InDelta(t, 60*hours, room.book.comments, float64(6*hours), "comments")
	require.InDelta(t, hours, len(room.book.raised), float64(hours)/10+2, "alerts")
	require.Equal(t, int(length/speechEvery), m.texts)
	require.Zero(t, m.wrong, "utterances at another time than they were said")
	w.check(t)
	return records
}

// microphone is a live session with speech of three seconds each five minutes, between blocks of silence, whose texts the room hears.
type microphone struct {
	began   time.Time     // of its sound
	silence time.Duration // before the first speech
	session *live.Session
	stop    func()

	texts, wrong int // of one goroutine at a time
}

const (
	speechEvery  = 5 * time.Minute
	speechLength = 3 * time.Second
)

// newMicrophone opens a microphone that was silent since a time.
func newMicrophone(room *weekRoom, began time.Time) *microphone {
	m := &microphone{began: began, silence: time.Since(began)}
	m.session = live.New(ear{}, live.Config{Detector: loud{}}, func(e live.Event) {
		if e.Kind != live.Final {
			return
		}
		start := m.silence + time.Duration(m.texts)*speechEvery
		for _, off := range []time.Duration{e.Start - start, e.End - start - speechLength} {
			if off.Abs() > vad.FrameSamples*time.Second/inference.RecognizerRate {
				m.wrong++
			}
		}
		if e.Lag < 0 || e.Lag > time.Second {
			m.wrong++
		}
		m.texts++
		room.Hear(agent.Heard{
			Identity: "ana", Text: e.Text, Final: true, Caption: true, Began: m.began.Add(e.Start), Ended: m.began.Add(e.End),
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = m.session.Run(ctx) }) // canceled
	done.Go(func() { m.speak(ctx) })
	m.stop = func() { cancel(); done.Wait() }
	return m
}

// speak writes the silence before the first speech, then blocks of sound that have just passed.
func (m *microphone) speak(ctx context.Context) {
	silence := make([]float32, ticks.Count(speechEvery-speechLength, inference.RecognizerRate))
	speech := make([]float32, ticks.Count(speechLength, inference.RecognizerRate))
	for i := range speech {
		speech[i] = 0.1
	}
	for left := ticks.Count(m.silence, inference.RecognizerRate); left > 0; left -= int64(len(silence)) {
		if m.session.Write(ctx, silence[:min(left, int64(len(silence)))]) != nil {
			return
		}
	}
	for block := speech; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(ticks.Duration(int64(len(block)), inference.RecognizerRate)):
		}
		if m.session.Write(ctx, block) != nil {
			return
		}
		if &block[0] == &speech[0] {
			block = silence
		} else {
			block = speech
		}
	}
}

// loud is a speech detector that looks at the first sample of a frame.
type loud struct{}

func (loud) Detect(frame []float32) (float64, error) { return min(float64(frame[0])*10, 1), nil }
func (loud) Close() error                            { return nil }

// ear is a recognizer that hears the same text in all speech.
type ear struct{ inference.Recognizer }

func (ear) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "ear", Partials: true}
}

func (ear) Transcribe(context.Context, []float32, inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(func(inference.Transcript, error) bool) {}
}

func (ear) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return said{}, nil
}

type said struct{}

func (said) Hear(context.Context, []float32) (inference.Transcript, error) {
	return inference.Transcript{Text: "who has"}, nil
}

func (said) Finish(context.Context, []float32) (inference.Transcript, error) {
	return inference.Transcript{Text: "who has the ball?", Final: true, Language: "en"}, nil
}

func (said) Close() error { return nil }
