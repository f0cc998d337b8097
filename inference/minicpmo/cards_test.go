//go:build integration

package minicpmo_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
)

// cpuCard is a CPU in place of a GPU, which a test can lose, and hold before a step.
type cpuCard struct {
	lost   atomic.Bool
	lostAt atomic.Int64 // the number of the step that loses it; 0 for none
	steps  atomic.Int64
	holds  chan struct{} // closed when its steps may go on; nil if they may
	opens  chan struct{} // closed when it may open; nil if it may
	free   int64         // memory; 0 for the machine's
}

func (c *cpuCard) options(o minicpmo.Options) minicpmo.Options {
	if c.opens != nil {
		<-c.opens
	}
	if c.free != 0 {
		o = o.WithFree(c.free)
	}
	run := func() error {
		if c.lost.Load() {
			return fmt.Errorf("run: %w", minicpmo.ErrDeviceLost)
		}
		return nil
	}
	return o.WithFaults(&minicpmo.Faults{
		Prefill: func(int, int, int) error { return run() },
		Decode: func(int, int) error {
			if c.steps.Add(1) == c.lostAt.Load() {
				c.lost.Store(true)
			}
			if c.holds != nil {
				<-c.holds
			}
			return run()
		},
	})
}

// cards returns the options of as many engines on the CPU.
func cards(tb testing.TB, all ...*cpuCard) minicpmo.Options {
	tb.Helper()
	c := settings(tb)
	c.Voice.Enabled = false
	for i := range all {
		c.MiniCPM.GPUs += fmt.Sprintf(",%d", i)
	}
	c.MiniCPM.GPUs = c.MiniCPM.GPUs[1:]
	o := minicpmo.Options{Config: c, Threads: 1}
	return o.WithCards(func(gpu int, o minicpmo.Options) minicpmo.Options { return all[gpu].options(o) })
}

// openCards opens the cards, and waits until so many are in use.
func openCards(tb testing.TB, o minicpmo.Options, inUse int) inference.Model {
	tb.Helper()
	m, err := minicpmo.OpenModel(tb.Context(), tiny(tb), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, m.Close()) })
	require.Eventually(tb, func() bool { return len(done(m)) == inUse }, patience, time.Millisecond)
	return m
}

// done returns the finished answers of the cards in use, by number.
func done(m inference.Model) map[int]uint64 {
	out := map[int]uint64{}
	m.(*minicpmo.Cards).Each(func(gpu int, e *minicpmo.Engine) {
		if e != nil {
			out[gpu] = e.Stats().Done
		}
	})
	return out
}

func room(tb testing.TB, m inference.Model) inference.Session {
	tb.Helper()
	s, err := m.NewSession()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// look asks a room for a short answer, and calls first with its first words.
func look(tb testing.TB, s inference.Session, first func()) (text string, err error) {
	tb.Helper()
	return lookAt(tb.Context(), s, []inference.Frame{frame(tb, "320x240.png", 1)}, first)
}

func lookAt(ctx context.Context, s inference.Session, frames []inference.Frame, first func()) (text string, err error) {
	for c, err := range s.Generate(ctx, inference.Prompt{Text: "Question 1: what is it?", Frames: frames, MaxTokens: 20}) {
		if err != nil {
			return text, err
		}
		if text == "" && first != nil {
			first()
		}
		text += c.Text
	}
	return text, nil
}

// TestLostCard: while a room answers, the other room's card is lost. The one's words stay the same, the other goes on beside it. With the
// last card the model is lost, which ends its manager with the error of exit status 71.
func TestLostCard(t *testing.T) {
	orttest.NoLeaks(t)
	one, two := &cpuCard{}, &cpuCard{}
	o := cards(t, one, two)
	var m inference.Model
	manager, err := engine.New(func(ctx context.Context, p engine.Progress) (_ inference.Model, err error) {
		o.Progress = p
		m, err = minicpmo.OpenModel(ctx, tiny(t), o)
		return m, err
	}, engine.Options{Preload: true, Parallel: 2, ErrLost: minicpmo.ErrDeviceLost})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, manager.Close()) })
	require.Eventually(t, func() bool { return manager.Loaded() != nil && len(done(m)) == 2 }, patience, time.Millisecond)
	require.Empty(t, manager.Status().Problem)

	a, b := room(t, manager), room(t, manager)
	want, err := look(t, a, nil)
	require.NoError(t, err)
	same, err := look(t, b, nil)
	require.NoError(t, err)
	require.Equal(t, want, same)
	require.Equal(t, map[int]uint64{0: 1, 1: 1}, done(m), "a room on each")

	var failure error
	steps := two.steps.Load() // of an answer
	two.lostAt.Store(steps + steps/2)
	text, err := look(t, a, func() { _, failure = look(t, b, nil) })
	require.NoError(t, err)
	require.Equal(t, want, text)
	require.ErrorIs(t, failure, minicpmo.ErrCardLost)
	require.ErrorContains(t, failure, "GPU 1: lost during the answer")
	require.NotErrorIs(t, failure, minicpmo.ErrDeviceLost, "the process goes on")
	st := manager.Status()
	require.Equal(t, inference.PhaseReady, st.Phase)
	require.Contains(t, st.Problem, "1 of 2 GPUs not used: GPU 1: the CUDA context is lost")
	text, err = look(t, b, nil)
	require.NoError(t, err)
	require.Equal(t, want, text, "the room has moved")
	require.Equal(t, map[int]uint64{0: 3}, done(m))
	require.Empty(t, ended)

	one.lost.Store(true)
	_, err = look(t, a, nil)
	require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, minicpmo.ErrDeviceLost)
	case <-time.After(patience):
		require.Fail(t, "the manager goes on")
	}
}

// TestAnswerOfALostCardIsRepeated: an answer without words yet is asked for again on another card, without an error.
func TestAnswerOfALostCardIsRepeated(t *testing.T) {
	orttest.NoLeaks(t)
	one, two := &cpuCard{}, &cpuCard{}
	m := openCards(t, cards(t, one, two), 2)
	a, b := room(t, m), room(t, m)
	want, err := look(t, a, nil)
	require.NoError(t, err)
	two.lost.Store(true)
	text, err := look(t, b, nil)
	require.NoError(t, err)
	require.Equal(t, want, text)
	require.Equal(t, map[int]uint64{0: 2}, done(m))
}

// TestLostCardWithoutAFreeSlot: a room of a lost card is refused, with the reason, while every slot of the others is in use.
func TestLostCardWithoutAFreeSlot(t *testing.T) {
	orttest.NoLeaks(t)
	one, two := &cpuCard{holds: make(chan struct{})}, &cpuCard{}
	o := cards(t, one, two)
	o.Config.MiniCPM.Slots = 1
	m := openCards(t, o, 2)
	a, b := room(t, m), room(t, m)
	answered := make(chan error, 1)
	frames := []inference.Frame{frame(t, "320x240.png", 1)}
	go func() { _, err := lookAt(t.Context(), a, frames, nil); answered <- err }()
	require.Eventually(t, func() bool { return one.steps.Load() > 0 }, patience, time.Millisecond)
	two.lost.Store(true)
	_, err := look(t, b, nil)
	require.ErrorIs(t, err, inference.ErrOverloaded)
	require.ErrorContains(t, err, "GPU 1 is lost, and no other one has a free slot")
	close(one.holds)
	require.NoError(t, <-answered)
	_, err = look(t, b, nil)
	require.NoError(t, err, "a slot is free")
}

// TestCardsThatLoadBehind: the first card answers while the second loads; then the rooms spread over both. A room that
// closes is no reason to move others.
func TestCardsThatLoadBehind(t *testing.T) {
	orttest.NoLeaks(t)
	two := &cpuCard{opens: make(chan struct{})}
	m := openCards(t, cards(t, &cpuCard{}, two), 1)
	var rooms []inference.Session
	ask := func() {
		for _, s := range rooms {
			_, err := look(t, s, nil)
			require.NoError(t, err)
		}
	}
	for range 4 {
		rooms = append(rooms, room(t, m))
	}
	ask()
	require.Equal(t, map[int]uint64{0: 4}, done(m))
	require.Contains(t, m.Status().Detail, "GPU 1: ")
	require.Empty(t, m.Status().Problem, "it loads")
	close(two.opens)
	require.Eventually(t, func() bool { return len(done(m)) == 2 }, patience, time.Millisecond)
	for range 3 {
		ask()
	}
	require.Equal(t, map[int]uint64{0: 4 + 6, 1: 6}, done(m))
	require.NoError(t, rooms[0].Close())
	rooms = rooms[1:]
	ask()
	ask()
	require.Equal(t, map[int]uint64{0: 10 + 4, 1: 6 + 2}, done(m))
}

// TestCloseWhileACardLoads: that it does not load then is no error to report.
func TestCloseWhileACardLoads(t *testing.T) {
	orttest.NoLeaks(t)
	two := &cpuCard{opens: make(chan struct{})}
	o := cards(t, &cpuCard{}, two)
	var log bytes.Buffer
	o.Logger = zerolog.New(&log)
	m, err := minicpmo.OpenModel(t.Context(), tiny(t), o)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Close() }()
	close(two.opens)
	require.NoError(t, <-ended)
	require.NotContains(t, log.String(), `"level":"error"`)
}

// TestCardThatDoesNotOpen: the others are used, and the status says why it is not; without any, the model does not open.
func TestCardThatDoesNotOpen(t *testing.T) {
	orttest.NoLeaks(t)
	small := &cpuCard{free: 1}
	m := openCards(t, cards(t, small, &cpuCard{}, small), 1)
	_, err := look(t, room(t, m), nil)
	require.NoError(t, err)
	require.Equal(t, map[int]uint64{1: 1}, done(m))
	require.Eventually(t, func() bool {
		st := m.Status()
		return st.Phase == inference.PhaseReady && strings.HasPrefix(st.Problem, "2 of 3 GPUs not used: GPU 0: open ")
	}, patience, time.Millisecond)

	_, err = minicpmo.OpenModel(t.Context(), tiny(t), cards(t, small, small))
	require.ErrorContains(t, err, "GPU 0: open ")
	require.ErrorContains(t, err, "GPU 1: open ")
	var full *minicpmo.DoesNotFitError
	require.ErrorAs(t, err, &full)
}

// TestLostCardSpeaks: a room speaks from another card after its own was lost: answers, and texts that are read.
func TestLostCardSpeaks(t *testing.T) {
	orttest.NoLeaks(t)
	one, two := &cpuCard{}, &cpuCard{}
	o := cards(t, one, two)
	o.Config.Voice.Enabled, o.Config.MaxTokens, o.Now = true, 24, hurried()
	o = o.WithVoices(map[string]voice.Reference{inference.DefaultVoice: promptVoice(t)})
	m, err := minicpmo.OpenModel(t.Context(), speakingBundle(t), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	require.Eventually(t, func() bool { return len(done(m)) == 2 }, patience, time.Millisecond)
	require.True(t, m.Capabilities().Speech)
	a, b := room(t, m), room(t, m)
	want, same := say(t, a, "What is it?"), say(t, b, "What is it?")
	require.NoError(t, want.err)
	require.Positive(t, want.samples)
	require.Equal(t, want.text, same.text)
	require.Equal(t, map[int]uint64{0: 1, 1: 1}, done(m))

	two.lost.Store(true)
	got := say(t, b, "What is it?")
	require.NoError(t, got.err)
	require.Nil(t, got.failure)
	require.Equal(t, want.text, got.text)
	require.Positive(t, got.samples)
	heard := 0
	for c, err := range b.(inference.Speaker).Speak(t.Context(), "It is a word.", inference.VoiceModel, "en") {
		require.NoError(t, err)
		heard += len(c.Audio)
	}
	require.Positive(t, heard)
	b.(inference.VoiceCanceller).CancelVoice()
	require.Len(t, done(m), 1)
}
