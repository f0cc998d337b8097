package jobs

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/inference"
	"touchline/inference/engine"
)

// scripted is an engine with the answers of the test.
type scripted struct {
	say func(yield func(inference.Chunk, error) bool)
}

func (s *scripted) Name() string                         { return "scripted" }
func (s *scripted) Capabilities() inference.Capabilities { return inference.Capabilities{} }

func (s *scripted) NewSession() (inference.Session, error) { return scriptedSession{s}, nil }
func (s *scripted) Status() inference.Status               { return inference.Status{Phase: inference.PhaseReady} }

func (s *scripted) Close() error                  { return errors.New("the shared engine is not a bot's to close") }
func (s scriptedSession) Close() error            { return nil }
func (s scriptedSession) Observe(inference.Frame) {}
func (s scriptedSession) Generate(context.Context, inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.s.say
}

type scriptedSession struct{ s *scripted }

// runLook runs one prompt and returns the answer.
func runLook(t *testing.T, s *engine.Session) (text string, err error) {
	t.Helper()
	for c, err := range s.Generate(t.Context(), inference.Prompt{}) {
		if err != nil {
			return text, err
		}
		text += c.Text
	}
	return text, nil
}

// behind returns a gate and a session of an engine behind it.
func behind(t *testing.T, m inference.Model, use *engineUse) (*drainTracker, *engine.Session) {
	t.Helper()
	g := newDrainTracker(use)
	s, err := engine.Of(m, nil).Open(g)
	require.NoError(t, err)
	return g, s
}

func heard(cycle uint64) look.Record {
	return look.Record{Cycle: cycle, FrameIDs: []uint64{1}, Outcome: look.OutcomeSpoken}
}

// TestHandOverWaitsForNoAlertLook: a look with alert rules has no record that could be awaited.
func TestHandOverWaitsForNoAlertLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{say: func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: `{"fired":[]}`}, nil) }}
		gate, session := behind(t, m, &engineUse{})
		for _, err := range session.Generate(t.Context(), inference.Prompt{Schema: []byte("{}")}) {
			require.NoError(t, err)
		}
		began := time.Now()
		gate.finish(t.Context(), nil)
		require.Zero(t, time.Since(began))
	})
}

func TestHandOverWaitsForWhatWasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{say: func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: "Goal."}, nil) }}
		gate, session := behind(t, m, &engineUse{})
		require.Equal(t, inference.PhaseReady, session.Status().Phase)
		text, err := runLook(t, session)
		require.NoError(t, err)
		require.Equal(t, "Goal.", text)

		over := false
		go func() {
			gate.finish(t.Context(), nil)
			over = true
		}()
		synctest.Wait()
		require.Equal(t, inference.PhaseLoading, session.Status().Phase, "no cycle begins")
		gate.Record(look.Record{Cycle: 2, Skipped: true, FrameIDs: []uint64{1}}) // never reached the engine
		time.Sleep(quietFor / 2)
		require.False(t, over, "the comment has not been heard yet")
		gate.State(agent.Status{State: agent.StateSpeaking})
		gate.Record(heard(1))
		time.Sleep(2 * quietFor)
		require.False(t, over, "the sentence goes on")
		gate.State(agent.Status{State: agent.StateListening})
		synctest.Wait()
		require.True(t, over, "everything has been heard")
		_, err = runLook(t, session)
		require.ErrorIs(t, err, errTakenOver)
		require.NoError(t, session.Close())
	})
}

// TestHandOverWaitsForASpokenAlert: it has a record, as a comment has. A closed gate speaks none.
func TestHandOverWaitsForASpokenAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, session := behind(t, &scripted{}, &engineUse{})
		speak := func() error {
			for _, err := range session.Speak(t.Context(), "Goal.", "", "en") {
				if err != nil {
					return err
				}
			}
			return nil
		}
		err := speak()
		require.ErrorIs(t, err, inference.ErrNoVoice)
		time.AfterFunc(3*time.Second, func() { gate.Record(heard(1)) })
		began := time.Now()
		gate.finish(t.Context(), nil)
		require.Equal(t, 3*time.Second, time.Since(began))
		err = speak()
		require.ErrorIs(t, err, errTakenOver)
	})
}

// A cycle that is never heard, or a bot that ends, does not block the hand-over.
func TestHandOverEnds(t *testing.T) {
	m := &scripted{say: func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: "Goal."}, nil) }}
	finished := func(t *testing.T, ended chan struct{}) time.Duration {
		t.Helper()
		gate, session := behind(t, m, &engineUse{})
		_, err := runLook(t, session)
		require.NoError(t, err)
		began := time.Now()
		gate.finish(t.Context(), ended)
		return time.Since(began)
	}
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, quietFor, finished(t, nil))
	})
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(ended) })
		require.Equal(t, time.Second, finished(t, ended))
	})
}

func TestPlaceOfALookThatPanics(t *testing.T) {
	m := &scripted{say: func(func(inference.Chunk, error) bool) { panic("no such tile") }}
	use := &engineUse{}
	_, session := behind(t, m, use)
	require.PanicsWithValue(t, "no such tile", func() { _, _ = runLook(t, session) })
	require.Zero(t, use.now, "its place is free again")
}

func TestEndOfAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newDrainTracker(&engineUse{})
		took := func(ended chan struct{}) time.Duration {
			began := time.Now()
			gate.endWord(ended)
			return time.Since(began)
		}
		require.Zero(t, took(nil), "silent")
		gate.State(agent.Status{State: agent.StateSpeaking})
		gate.Caption(agent.Caption{Delta: "an earlier one"})
		time.AfterFunc(100*time.Millisecond, func() { gate.Caption(agent.Caption{Delta: " word"}) })
		require.Equal(t, 100*time.Millisecond, took(nil))
		require.Equal(t, wordWait, took(nil))
		ended := make(chan struct{})
		close(ended)
		require.Zero(t, took(ended), "the bot has ended")
	})
}

func TestEngineUse(t *testing.T) {
	u := &engineUse{}
	now := time.Unix(1000, 0)
	require.Zero(t, u.load(now))
	for range 4 {
		u.change(now, 0.25)
	}
	require.InDelta(t, 1, u.load(now.Add(4*time.Second)), 1e-9)
	for range 2 {
		u.change(now.Add(4*time.Second), -0.25)
	}
	require.InDelta(t, 0.5, u.load(now.Add(14*time.Second)), 0.2)
}
