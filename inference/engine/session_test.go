package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/voice"
)

// gate is an admission that counts.
type gate struct {
	closed          error
	recorded        int
	running, shares float64
}

func (g *gate) Closed() error { return g.closed }

func (g *gate) Admit(recorded bool, share float64) (written func(), err error) {
	if g.closed != nil {
		return nil, g.closed
	}
	if recorded {
		g.recorded++
	}
	g.running += share
	g.shares += share
	return func() { g.running -= share }, nil
}

// TestAdmissionComesFirst: what is not admitted waits for no place, and its room sees a model that loads.
func TestAdmissionComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, k := start(t, engine.Options{Parallel: 4})
		g := &gate{}
		s, err := k.Open(g)
		require.NoError(t, err)
		for range 2 {
			_, err = ask(t.Context(), s, inference.Prompt{Text: "a goal"})
			require.NoError(t, err)
		}
		_, err = ask(t.Context(), s, inference.Prompt{Text: "a rule", Schema: []byte("{}")})
		require.NoError(t, err)
		require.Equal(t, &gate{recorded: 2, shares: 0.75}, g)
		for _, err := range s.Speak(t.Context(), "hello", "model", "en") {
			require.NoError(t, err)
		}
		require.Equal(t, &gate{recorded: 3, shares: 0.75}, g)

		g.closed = errors.New("handed over")
		require.Equal(t, inference.Status{Phase: inference.PhaseLoading, Percent: 100, Detail: "handed over"}, s.Status())
		began := time.Now()
		_, err = ask(t.Context(), s, inference.Prompt{Text: "no more"})
		require.ErrorIs(t, err, g.closed)
		require.Zero(t, time.Since(began))
		other, err := s.NewSession()
		require.NoError(t, err)
		_, err = ask(t.Context(), other, inference.Prompt{Text: "of the same room"})
		require.ErrorIs(t, err, g.closed)
		require.NoError(t, errors.Join(s.Close(), other.Close(), s.Close()))
	})
}

// TestVoiceOfAnEngine: programs give it speech, and what its voice lacks is in the status of all rooms.
func TestVoiceOfAnEngine(t *testing.T) {
	m := &model{&script{t: t}}
	programs, err := voice.New(inference.VoiceConfig{Program: "flite"}, zerolog.Nop())
	require.NoError(t, err)
	require.False(t, engine.Of(m, nil).Capabilities().Speech)
	e := engine.Of(m, programs)
	require.True(t, e.Capabilities().Speech)
	require.False(t, e.Capabilities().OwnVoice, "a program's")
	require.Same(t, m, e.Loaded())
	require.NoError(t, e.Failure())
}
