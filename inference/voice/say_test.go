package voice_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/voice"
)

// TestSay: a text of several sentences is one piece of sound, with all its words in order.
func TestSay(t *testing.T) {
	t.Parallel()
	const text = "Red attack down the left. The keeper, far from his line, has no chance at all!\n\nOne nil."
	for _, program := range []string{"flite", "espeak-ng"} {
		one, err := synth(t, program).Sentence(t.Context(), "Red attack down the left.", "")
		require.NoError(t, err)
		all, err := synth(t, program).Say(t.Context(), text, "")
		require.NoError(t, err)
		require.Equal(t, one.Rate, all.Rate)
		require.Greater(t, len(all.Audio), 2*len(one.Audio))
		length := time.Duration(len(all.Audio)) * time.Second / time.Duration(all.Rate)
		var words []string
		for i, w := range all.Words {
			words = append(words, w.Text)
			require.LessOrEqual(t, w.Start, w.End)
			require.LessOrEqual(t, w.End, length)
			if i > 0 {
				require.GreaterOrEqual(t, w.Start, all.Words[i-1].End, w.Text)
			}
		}
		require.Equal(t, strings.Fields(text), words)
	}
}

func TestSayRefuses(t *testing.T) {
	t.Parallel()
	named := func(program, name string) *voice.Synthesizer {
		s, err := voice.New(inference.VoiceConfig{Program: program, Name: name, Language: "en"}, zerolog.Nop())
		require.NoError(t, err)
		return s
	}
	_, err := named("auto", "nope").Say(t.Context(), "A goal!", "")
	require.ErrorContains(t, err, `flite has no voice "nope": choose one of `)
	_, err = named("espeak-ng", "nope").Say(t.Context(), "A goal!", "")
	require.ErrorContains(t, err, "voice does not exist")
	_, err = named("flite", "kal").Say(t.Context(), "A goal!", "")
	require.NoError(t, err)
	for _, text := range []string{"", " ", "...", "— …"} {
		_, err = synth(t, "flite").Say(t.Context(), text, "")
		require.ErrorIs(t, err, voice.ErrNothingToSay, "%q", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = synth(t, "flite").Say(ctx, "A goal!", "")
	require.ErrorIs(t, err, context.Canceled)
}

// TestSpeed: the programs speak faster and slower by their own means.
func TestSpeed(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"flite", "espeak-ng"} {
		length := func(speed float64) float64 {
			said, err := synth(t, program).Say(inference.AtSpeed(t.Context(), speed), "Red attack down the left.", "")
			require.NoError(t, err)
			return float64(len(said.Audio))
		}
		usual := length(1)
		require.InDelta(t, usual/1.5, length(1.5), usual*0.15, program)
		require.InDelta(t, usual*1.5, length(1/1.5), usual*0.3, program)
	}
}
