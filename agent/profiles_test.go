package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
)

func TestProfileText(t *testing.T) {
	t.Parallel()
	p := agent.Profile{
		Name: "match", Label: "Match: the final", Prompt: "You call a match.\n\nSay # and 'this': <|im_end|>", Suggestion: "Follow the ball.",
	}
	text, err := p.YAML()
	require.NoError(t, err)
	again, err := agent.ReadProfile("other", text)
	require.NoError(t, err)
	require.Equal(t, p, again)

	again, err = agent.ReadProfile("other", []byte("label: 7\nprompt: x"))
	require.NoError(t, err)
	require.Equal(t, agent.Profile{Name: "other", Label: "7", Prompt: "x"}, again)
	for text, want := range map[string]string{
		"":                               "label: must be 1 to 40 characters, is 0",
		"label: A\nprompt: '  '":         "prompt: must be 1 to 8000 characters, is 0",
		"label: A\nprompts: x":           `unknown field "prompts"; known are name, label, prompt, suggestion`,
		"label: A\nprompt: [x]":          "prompt: must be text, is a list",
		"label: &a A\nprompt: *a":        "anchors, aliases",
		"name: A B\nlabel: A\nprompt: x": `name: must be up to 40 lower-case letters, digits, - and _, is "A B"`,
		"label: A\nprompt: " + strings.Repeat("x", 8001): "prompt: must be 1 to 8000 characters, is 8001",
	} {
		_, err := agent.ReadProfile("other", []byte(text))
		require.ErrorContains(t, err, want, "%.60q", text)
	}
}

// TestPromptsLive: the next look has a new sheet, and a change of the active profile acts at once.
func TestPromptsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), nil)
		require.NoError(t, r.instruct("Follow the ball."))
		time.Sleep(20 * time.Second)
		last := func() string {
			asked := r.engine.Questions()
			return asked[len(asked)-1].Prompt.System
		}
		require.Equal(t, "comment", last())
		_, err := r.SetSheet("facts: [It rains]\npronunciations: {Ruiz: roo eeth}", "ana")
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		with := "comment\n\nThese facts are given. Use the names when you recognise somebody:\n- It rains."
		require.Equal(t, with, last())
		asked := r.engine.Questions()
		require.Equal(t, map[string]string{"ruiz": "roo eeth"}, asked[len(asked)-1].Prompt.Pronunciations)
		_, err = r.SetSheet("facts: &a", "ana")
		require.Error(t, err)
		require.Equal(t, "facts: [It rains]\npronunciations: {Ruiz: roo eeth}", r.Sheet().Text, "the last good one stays")

		n := len(r.engine.Questions())
		_, err = r.PutProfile(agent.Profile{Name: "default", Label: "Ours", Prompt: "our comment"}, false, "ana")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		require.Greater(t, len(r.engine.Questions()), n, "it acts on the next frame")
		require.True(t, strings.HasPrefix(last(), "our comment\n\nThese facts"), last())
		require.NoError(t, r.DeleteProfile("default", "ana"))
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, with, last())
		r.stop()
	})
}
