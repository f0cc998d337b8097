package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/command"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]command.Command{
		"stop": command.Stop, "Stop!": command.Stop, "  please STOP talking, now. ": command.Stop,
		"Hey Touchline, be quiet please": command.Stop, "¡Para ya!": command.Stop, "cállate": command.Stop,
		"Silencio, por favor": command.Stop,
		"go on":               command.GoOn, "Ok, continue.": command.GoOn, "sigue": command.GoOn, "Continúa": command.GoOn,
		"Never mind.": command.Undo, "undo": command.Undo, "Olvídalo": command.Undo, "no importa": command.Undo,
		"shorter": command.Shorter, "a bit shorter, please": command.Shorter, "más corto": command.Shorter,
		"un poco más breve": command.Shorter,
		"longer":            command.Longer, "more detail": command.Longer, "más largo": command.Longer, "habla más": command.Longer,
		"repeat": command.Repeat, "What did you say?": command.Repeat, "say that again": command.Repeat,
		"¿Qué has dicho?": command.Repeat, "otra vez": command.Repeat,
		"louder": command.Louder, "Speak up!": command.Louder, "más alto": command.Louder, "sube el volumen": command.Louder,
		"softer": command.Softer, "quieter": command.Softer, "baja la voz": command.Softer, "más bajo": command.Softer,
	} {
		got, ok := command.Parse(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", " ", "please", "stop at the corner flag", "tell me when they stop", "stop telling me about the crowd", "only goals",
		"go on about the goalkeeper", "never mind the crowd, tell me about the goals", "shorter than the others", "be shorter than a tweet",
		"more about number nine", "say more about red", "repeat the score every minute", "louder fans", "the quieter team",
		"para el público", "sigue al número diez", "más goles", "olvida al portero", "habla más del portero", "otra vez el nueve",
		"stop " + strings.Repeat("please ", 200), "ストップ", "stop\x00stop",
	} {
		got, ok := command.Parse(text)
		require.False(t, ok, "%q is %s", text, got)
	}
}

// FuzzParse: a text is a command or it is not; case and spaces around it do not matter.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"stop", "por favor, más alto", "now now now", "\xff", "ＳＴＯＰ", strings.Repeat("please ", 9), "touchline stop"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := command.Parse(text)
		require.Equal(t, ok, got != "")
		if spaced := " " + text + "\n"; len(spaced) <= 80 {
			again, _ := command.Parse(spaced)
			require.Equal(t, got, again)
		}
	})
}
