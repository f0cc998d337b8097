package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/inference"
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

	p.Speech, p.VoiceGain = new(false), new(-3.5)
	text, err = p.YAML()
	require.NoError(t, err)
	again, err = agent.ReadProfile("other", text)
	require.NoError(t, err)
	require.Equal(t, p, again)

	again, err = agent.ReadProfile("other", []byte(`{"label": "A", "prompt": "x", "speech": true, "voice_gain": 2}`))
	require.NoError(t, err)
	require.Equal(t, agent.Profile{Name: "other", Label: "A", Prompt: "x", Speech: new(true), VoiceGain: new(2.0)}, again)
	again, err = agent.ReadProfile("other", []byte("label: A\nprompt: x\nspeech: ''\nvoice_gain: ''"))
	require.NoError(t, err)
	require.Equal(t, agent.Profile{Name: "other", Label: "A", Prompt: "x"}, again)

	again, err = agent.ReadProfile("other", []byte("label: 7\nprompt: x"))
	require.NoError(t, err)
	require.Equal(t, agent.Profile{Name: "other", Label: "7", Prompt: "x"}, again)
	for text, want := range map[string]string{
		"":                               "label: must be 1 to 40 characters, is 0",
		"label: A\nprompt: '  '":         "prompt: must be 1 to 8000 characters, is 0",
		"label: A\nprompts: x":           `unknown field "prompts"; known are name, label, prompt, suggestion`,
		"label: A\nprompt: [x]":          "prompt: must be text, is a list",
		"label: &a A\nprompt: *a":        "anchors, aliases",
		"speech: maybe":                  `speech: must be true or false, is "maybe"`,
		"voice_gain: [1]":                "voice_gain: must be a number of dB, is a list",
		"voice_gain: 13":                 "voice_gain: must be between -24 and 12 dB, is 13",
		"voice_gain: .nan":               `voice_gain: must be a number of dB, is ".nan"`,
		"voice_gain: NaN":                "voice_gain: must be between -24 and 12 dB, is NaN",
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

// TestProfileLanguage: a profile brings its language and takes it away; a setting by hand wins until the next profile.
func TestProfileLanguage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), nil)
		r.engine.Can = &inference.Capabilities{Instructions: true, Languages: []string{"en", "es"}}
		use := func(name string) string {
			_, err := r.Change(agent.Change{Profile: &name}, "ana")
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			asked := r.engine.Questions()
			require.Equal(t, *r.Snapshot().Settings.Language, asked[len(asked)-1].Prompt.Language)
			return *r.Snapshot().Settings.Language
		}
		for name, language := range map[string]string{"liga": "es", "serie": "it"} {
			_, err := r.PutProfile(agent.Profile{Name: name, Label: name, Prompt: "call it", Language: language}, true, "ana")
			require.NoError(t, err)
		}
		require.Equal(t, "es", use("liga"))
		require.Equal(t, "en", use("default"))
		require.Equal(t, "es", use("liga"))
		_, err := r.Change(agent.Change{Settings: agent.Settings{Language: new("en")}}, "ana")
		require.NoError(t, err)
		require.Equal(t, "en", *r.Snapshot().Settings.Language)
		require.Equal(t, "es", use("liga"))
		_, err = r.Change(agent.Change{Profile: new("serie")}, "ana")
		require.ErrorContains(t, err, `as the scripted engine speaks nothing else, got "serie" with "it"`)
		_, err = r.PutProfile(agent.Profile{Name: "liga", Label: "liga", Prompt: "call it", Language: "pt"}, false, "ana")
		require.ErrorContains(t, err, "speaks nothing else")
		_, err = r.PutProfile(agent.Profile{Name: "x", Label: "x", Prompt: "x", Language: "not a tag"}, false, "ana")
		require.ErrorContains(t, err, "language: must be a BCP 47 tag")
		captions := r.reader.Captions()
		require.Equal(t, "es", captions[len(captions)-1].Language)
		r.stop()
	})
}

// TestProfileVoice: a profile brings its voice, also to the answer that is written, and takes it away.
func TestProfileVoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), nil)
		_, err := r.PutProfile(agent.Profile{Name: "night", Label: "Night", Prompt: "call it", Voice: "flite:rms"}, true, "ana")
		require.NoError(t, err)
		use := func(name, voice string) {
			_, err := r.Change(agent.Change{Profile: &name}, "ana")
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			asked := r.engine.Questions()
			last := asked[len(asked)-1].Prompt
			require.Equal(t, voice, last.Voice)
			require.Equal(t, voice, last.VoiceNow())
		}
		use("default", "")
		asked := r.engine.Questions()
		use("night", "flite:rms")
		require.Equal(t, "flite:rms", asked[len(asked)-1].Prompt.VoiceNow(), "of an answer before the change")
		require.Equal(t, "flite:rms", *r.Snapshot().Settings.Voice)
		_, err = r.Change(agent.Change{Settings: agent.Settings{Voice: new("espeak-ng:en")}}, "ana")
		require.NoError(t, err)
		require.Equal(t, "espeak-ng:en", *r.Snapshot().Settings.Voice)
		use("night", "flite:rms")
		use("default", "espeak-ng:en")

		_, err = r.PutProfile(agent.Profile{Name: "x", Label: "x", Prompt: "x", Voice: "cello"}, false, "ana")
		require.ErrorContains(t, err, `voice: must be "auto", "model"`)
		_, err = r.PutProfile(agent.Profile{Name: "own", Label: "own", Prompt: "x", Voice: "model"}, true, "ana")
		require.NoError(t, err)
		_, err = r.Change(agent.Change{Profile: new("own")}, "ana")
		require.ErrorContains(t, err, "no voice of its own")
		r.stop()
	})
}

// TestProfileSpeech: a profile turns the voice on or off and sets its level, also while a comment is spoken, and takes both away.
func TestProfileSpeech(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), func(o *agent.Options) { o.Inference.Voice.Gain = 3 })
		require.NoError(t, r.instruct("Follow the ball."))
		put := func(p agent.Profile) {
			p.Label, p.Prompt = "One", "call it"
			_, err := r.PutProfile(p, false, "ana")
			require.NoError(t, err)
		}
		use := func(name string) {
			_, err := r.Change(agent.Change{Profile: &name}, "ana")
			require.NoError(t, err)
		}
		set := func(v agent.Settings) {
			_, err := r.Change(agent.Change{Settings: v}, "ana")
			require.NoError(t, err)
		}
		inForce := func(speech bool, gain float64) {
			t.Helper()
			now := r.Snapshot()
			require.Equal(t, speech, *now.Settings.Speech)
			require.Equal(t, speech, now.TTSEnabled)
			require.Equal(t, gain, *now.Settings.VoiceGain)
			require.Equal(t, gain, r.voice.Gain)
			time.Sleep(10 * time.Second)
			asked := r.engine.Questions()
			require.Equal(t, speech, asked[len(asked)-1].Prompt.Speech)
		}
		put(agent.Profile{Name: "mute", Speech: new(false)})
		put(agent.Profile{Name: "quiet", VoiceGain: new(-9.0)})
		time.Sleep(5 * time.Second)
		for r.Snapshot().Status.State != agent.StateSpeaking {
			time.Sleep(10 * time.Millisecond)
		}
		use("mute")
		time.Sleep(100 * time.Millisecond)
		require.NotEqual(t, agent.StateSpeaking, r.Snapshot().Status.State)
		inForce(false, 3)
		use("quiet")
		inForce(true, -9)
		put(agent.Profile{Name: "quiet", VoiceGain: new(-12.0), Speech: new(false)})
		inForce(false, -12)
		set(agent.Settings{Speech: new(true), VoiceGain: new(6.0)}) // by hand
		inForce(true, 6)
		use("quiet")
		inForce(false, -12)
		use("default")
		inForce(true, 6)

		use("quiet")
		_, err := r.Command(agent.CommandUndo, "ana")
		require.NoError(t, err)
		inForce(true, 6)
		set(agent.Settings{Speech: new(false)})
		use("mute")
		inForce(false, 6)
		use("default")
		inForce(false, 6)
		r.stop()
	})
}
