package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/command"
)

func TestAddressed(t *testing.T) {
	t.Parallel()
	wake := []string{"hey touchline", "commentator"}
	for _, c := range []struct {
		text, order string
		ok          bool
	}{
		{"Hey Touchline, only tell me about the goals.", "only tell me about the goals", true},
		{"hey touch line stop", "stop", true},
		{"Hey, Touchline!", "", true},
		{"Hé Touchlines: who leads?", "who leads?", true},
		{"Um, hey Touchline, count the shots.", "count the shots", true},
		{"That was close. Hey Touchline, more about Red.", "more about Red", true},
		{"Commentator, silence.", "silence", true},
		{"The ball crossed the touchline again.", "", false},
		{"Did he hear the touchline judge?", "", false},
		{"I never told anybody to say hey touchline to it.", "", false},
		{"hey", "", false},
		{"", "", false},
	} {
		order, ok := command.Addressed(c.text, wake)
		require.Equal(t, c.ok, ok, c.text)
		require.Equal(t, c.order, order, c.text)
	}
}

func TestRepeated(t *testing.T) {
	t.Parallel()
	const said = "Red win it back in midfield and look for the number nine. Oh, what a save!\n"
	for _, echo := range []string{
		"Red win it back in midfield", "read win it back and midfield", "look for the number nine oh what a save", "What a save",
	} {
		require.True(t, command.Repeated(echo, said), echo)
	}
	for _, text := range []string{
		"Did you see what the keeper did there?", "only tell me about the goals", "what do you think about red this evening",
	} {
		require.False(t, command.Repeated(text, said), text)
	}
	require.False(t, command.Repeated("goal", ""))
	require.False(t, command.Repeated("", said))
}

func FuzzAddressed(f *testing.F) {
	f.Add("Hey Touchline, stop.", "hey touchline")
	f.Add("\xff. é?!", "x")
	f.Fuzz(func(t *testing.T, text, wake string) {
		if order, ok := command.Addressed(text, []string{wake}); ok {
			require.Contains(t, text, order)
		}
		command.Repeated(text, wake)
	})
}
