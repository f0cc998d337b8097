package voice_test

import (
	"context"
	"iter"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference"
	"touchline/inference/voice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func synth(t testing.TB, program string) *voice.Synthesizer {
	t.Helper()
	s, err := voice.New(inference.VoiceConfig{Program: program, Language: "en"}, zerolog.Nop())
	require.NoError(t, err)
	return s
}

// engine answers with fixed chunks.
type engine struct {
	chunks []inference.Chunk
	err    error
	before func(i int) // runs before chunk i
}

func (e *engine) Name() string                           { return "test" }
func (e *engine) NewSession() (inference.Session, error) { return e, nil }
func (e *engine) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}
func (e *engine) Close() error { return nil }
func (e *engine) Generate(ctx context.Context, _ inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		for i, c := range e.chunks {
			if e.before != nil {
				e.before(i)
			}
			if ctx.Err() != nil {
				yield(inference.Chunk{}, ctx.Err())
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		if e.err != nil {
			yield(inference.Chunk{}, e.err)
		}
	}
}

func TestSpeakTimesWords(t *testing.T) {
	for _, program := range []string{"flite", "espeak-ng"} {
		t.Run(program, func(t *testing.T) {
			sp, err := synth(t, program).Speak(t.Context(), "Hello **there**, a goal was scored 2.5 minutes ago! 🎉", "en")
			require.NoError(t, err)
			for _, w := range sp.Words {
				t.Log(w)
			}
			require.Len(t, sp.Words, 10)
		})
	}
}
