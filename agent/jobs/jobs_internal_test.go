package jobs

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/inference"
)

// scripted is an engine that says what the test wants.
type scripted struct {
	say func(yield func(inference.Chunk, error) bool)
}

func (s *scripted) Name() string                           { return "scripted" }
func (s *scripted) NewSession() (inference.Session, error) { return scriptedSession{s}, nil }
func (s *scripted) Status() inference.Status               { return inference.Status{Phase: inference.PhaseReady} }

func (s *scripted) Close() error                  { return errors.New("the shared engine is not a bot's to close") }
func (s scriptedSession) Close() error            { return nil }
func (s scriptedSession) Observe(inference.Frame) {}
func (s scriptedSession) Generate(context.Context, inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return s.s.say
}

type scriptedSession struct{ s *scripted }

// look asks once and returns the answer.
func look(t *testing.T, m inference.Model) (text string, err error) {
	t.Helper()
	s, err := m.NewSession()
	require.NoError(t, err)
	require.Implements(t, (*inference.Observer)(nil), s)
	for c, err := range s.Generate(t.Context(), inference.Prompt{}) {
		if err != nil {
			return text, err
		}
		text += c.Text
	}
	return text, s.Close()
}

func heard(cycle uint64) agent.Record {
	return agent.Record{Cycle: cycle, FrameIDs: []uint64{1}, Outcome: agent.OutcomeSpoken}
}

func TestHandOverWaitsForWhatWasBegun(t *testing.T) {
	m := &scripted{say: func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{Text: "Goal."}, nil) }}
	turn := newTurn(m, &engineUse{}, 0.25)
	require.Equal(t, inference.PhaseReady, turn.Status().Phase)
	text, err := look(t, turn)
	require.NoError(t, err)
	require.Equal(t, "Goal.", text)

	over := make(chan struct{})
	go func() {
		turn.finish(t.Context(), nil)
		close(over)
	}()
	require.Eventually(t, func() bool { return turn.Status().Phase == inference.PhaseLoading }, time.Second, time.Millisecond,
		"no look begins")
	turn.Record(agent.Record{Cycle: 2, Skipped: true, FrameIDs: []uint64{1}}) // never reached the engine
	select {
	case <-over:
		t.Fatal("the comment has not been heard yet")
	case <-time.After(150 * time.Millisecond):
	}
	turn.State(agent.Status{State: agent.StateSpeaking})
	turn.Record(heard(1))
	turn.State(agent.Status{State: agent.StateListening})
	select {
	case <-over:
	case <-time.After(5 * time.Second):
		t.Fatal("all has been heard")
	}
	_, err = look(t, turn)
	require.ErrorIs(t, err, errTakenOver)
	require.NoError(t, turn.Close())
}

func TestPlaceOfALookThatPanics(t *testing.T) {
	m := &scripted{say: func(func(inference.Chunk, error) bool) { panic("no such tile") }}
	use := &engineUse{}
	turn := newTurn(m, use, 0.25)
	require.PanicsWithValue(t, "no such tile", func() { _, _ = look(t, turn) })
	require.Zero(t, use.now, "its place is free again")
}

func TestEndOfAWord(t *testing.T) {
	turn := newTurn(&scripted{}, &engineUse{}, 0.25)
	began := time.Now()
	turn.endWord(nil)
	require.Less(t, time.Since(began), wordWait/2, "nobody speaks")
	turn.State(agent.Status{State: agent.StateSpeaking})
	turn.Caption(agent.Caption{Delta: "an old one"})
	time.AfterFunc(100*time.Millisecond, func() { turn.Caption(agent.Caption{Delta: " word"}) })
	began = time.Now()
	turn.endWord(nil)
	require.GreaterOrEqual(t, time.Since(began), 90*time.Millisecond)
	require.Less(t, time.Since(began), wordWait)
}

func TestEngineUse(t *testing.T) {
	u := &engineUse{}
	now := time.Unix(1000, 0)
	require.Zero(t, u.load(now))
	for range 4 {
		u.begin(now, 0.25)
	}
	require.InDelta(t, 1, u.load(now.Add(4*time.Second)), 1e-9)
	for range 2 {
		u.end(now.Add(4*time.Second), 0.25)
	}
	require.InDelta(t, 0.5, u.load(now.Add(14*time.Second)), 0.2)
}
