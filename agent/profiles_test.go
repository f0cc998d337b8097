package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

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
		_, err := r.SetBackground("facts: [It rains]\npronunciations: {Ruiz: roo eeth}", "ana")
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		with := "comment\n\nThese facts are given. Use the names when you recognise somebody:\n- It rains."
		require.Equal(t, with, last())
		asked := r.engine.Questions()
		require.Equal(t, map[string]string{"ruiz": "roo eeth"}, asked[len(asked)-1].Prompt.Pronunciations)
		_, err = r.SetBackground("facts: &a", "ana")
		require.Error(t, err)
		require.Equal(t, "facts: [It rains]\npronunciations: {Ruiz: roo eeth}", r.Background().Text, "the last good one stays")

		n := len(r.engine.Questions())
		_, err = r.PutProfile(prompt.Profile{Name: "default", Label: "Ours", Prompt: "our comment"}, false, "ana")
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
		r.engine.Become(inference.Capabilities{Instructions: true, Languages: []string{"en", "es"}})
		use := func(name string) string {
			_, err := r.Change(command.Change{Profile: &name}, "ana")
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			asked := r.engine.Questions()
			require.Equal(t, *r.Snapshot().Settings.Language, asked[len(asked)-1].Prompt.Language)
			return *r.Snapshot().Settings.Language
		}
		for name, language := range map[string]string{"liga": "es", "serie": "it"} {
			_, err := r.PutProfile(prompt.Profile{Name: name, Label: name, Prompt: "call it", Language: language}, true, "ana")
			require.NoError(t, err)
		}
		require.Equal(t, "es", use("liga"))
		require.Equal(t, "en", use("default"))
		require.Equal(t, "es", use("liga"))
		_, err := r.Change(command.Change{Settings: settings.Settings{Language: new("en")}}, "ana")
		require.NoError(t, err)
		require.Equal(t, "en", *r.Snapshot().Settings.Language)
		require.Equal(t, "es", use("liga"))
		_, err = r.Change(command.Change{Profile: new("serie")}, "ana")
		require.ErrorContains(t, err, `as the scripted engine speaks nothing else, got "serie" with "it"`)
		_, err = r.PutProfile(prompt.Profile{Name: "liga", Label: "liga", Prompt: "call it", Language: "pt"}, false, "ana")
		require.ErrorContains(t, err, "speaks nothing else")
		_, err = r.PutProfile(prompt.Profile{Name: "x", Label: "x", Prompt: "x", Language: "not a tag"}, false, "ana")
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
		_, err := r.PutProfile(prompt.Profile{Name: "night", Label: "Night", Prompt: "call it", Voice: "flite:rms"}, true, "ana")
		require.NoError(t, err)
		use := func(name, voice string) {
			_, err := r.Change(command.Change{Profile: &name}, "ana")
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
		_, err = r.Change(command.Change{Settings: settings.Settings{Voice: new("espeak-ng:en")}}, "ana")
		require.NoError(t, err)
		require.Equal(t, "espeak-ng:en", *r.Snapshot().Settings.Voice)
		use("night", "flite:rms")
		use("default", "espeak-ng:en")

		_, err = r.PutProfile(prompt.Profile{Name: "x", Label: "x", Prompt: "x", Voice: "cello"}, false, "ana")
		require.ErrorContains(t, err, `voice: must be "auto", "model"`)
		_, err = r.PutProfile(prompt.Profile{Name: "own", Label: "own", Prompt: "x", Voice: "model"}, true, "ana")
		require.NoError(t, err)
		_, err = r.Change(command.Change{Profile: new("own")}, "ana")
		require.ErrorContains(t, err, "no voice of its own")
		r.stop()
	})
}

// TestProfileSpeech: a profile turns the voice on or off and sets its level, also while a comment is spoken, and takes both away.
func TestProfileSpeech(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, 2*time.Second), func(o *agent.Options) { o.Inference.Voice.Gain = 3 })
		require.NoError(t, r.instruct("Follow the ball."))
		put := func(p prompt.Profile) {
			p.Label, p.Prompt = "One", "call it"
			_, err := r.PutProfile(p, false, "ana")
			require.NoError(t, err)
		}
		use := func(name string) {
			_, err := r.Change(command.Change{Profile: &name}, "ana")
			require.NoError(t, err)
		}
		set := func(v settings.Settings) {
			_, err := r.Change(command.Change{Settings: v}, "ana")
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
		put(prompt.Profile{Name: "mute", Speech: new(false)})
		put(prompt.Profile{Name: "quiet", VoiceGain: new(-9.0)})
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
		put(prompt.Profile{Name: "quiet", VoiceGain: new(-12.0), Speech: new(false)})
		inForce(false, -12)
		set(settings.Settings{Speech: new(true), VoiceGain: new(6.0)}) // by hand
		inForce(true, 6)
		use("quiet")
		inForce(false, -12)
		use("default")
		inForce(true, 6)

		use("quiet")
		_, err := r.Command(command.Undo, "ana")
		require.NoError(t, err)
		inForce(true, 6)
		set(settings.Settings{Speech: new(false)})
		use("mute")
		inForce(false, 6)
		use("default")
		inForce(false, 6)
		r.stop()
	})
}
