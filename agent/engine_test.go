package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/pacing"
)

// TestEngineChangesLive changes the engine in each state of a comment: what is being said is heard to its end, the next
// cycle asks the new engine, and the old session is closed after its last answer.
func TestEngineChangesLive(t *testing.T) {
	for _, tt := range []struct {
		name            string
		latency, second time.Duration
		until           func(r *rig) bool
		dropped         bool
	}{
		{
			name: "thinking", latency: 2 * time.Second, dropped: true,
			until: func(r *rig) bool { return r.Status().State == agent.StateThinking },
		},
		{
			name: "waiting for its frame", latency: 100 * time.Millisecond,
			until: func(r *rig) bool {
				return len(r.engine.Questions()) == 1 && r.Snapshot().Status.Activity == agent.ActivityWatching
			},
		},
		{
			name: "speaking, while the end is generated", latency: 500 * time.Millisecond, second: 2500 * time.Millisecond,
			until: func(r *rig) bool { return r.Status().State == agent.StateSpeaking },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
					return agenttest.Answer{Latency: tt.latency, Text: "The old one speaks.", Speech: 4 * time.Second, Second: tt.second}
				}, func(o *agent.Options) { o.Pacing.FixedDelay = 3 * time.Second })
				for !tt.until(r) {
					time.Sleep(10 * time.Millisecond)
				}
				next := &agenttest.Engine{Called: "next", Answer: func(int, inference.Prompt) agenttest.Answer {
					return agenttest.Answer{Latency: time.Second, Text: "The new one speaks.", Speech: 2 * time.Second}
				}}
				changed := time.Now()
				pictures := len(r.screen.Pictures())
				r.SetEngine(agenttest.Open(next), "it is new")
				require.Zero(t, r.engine.Sessions(), "closed before the owner gets it back")
				asked := len(r.engine.Questions())
				require.Equal(t, "next", r.Snapshot().Engine)
				require.Equal(t, "it is new", r.Snapshot().EngineNote)
				time.Sleep(20 * time.Second)
				r.stop()
				require.Len(t, r.engine.Questions(), asked, "the old one is asked no more")
				require.NotEmpty(t, next.Questions())
				require.Zero(t, next.Sessions())
				require.Greater(t, len(r.screen.Pictures()), pictures+500, "the picture goes on")
				first := r.reader.Records()[0]
				if tt.dropped {
					require.Equal(t, look.OutcomeDropped, first.Outcome)
					require.Equal(t, "the engine changed", first.Reason)
				} else {
					require.Equal(t, look.OutcomeSpoken, first.Outcome, first.Reason)
					h := r.voice.Utterances()[0]
					require.False(t, h.Cut)
					require.Equal(t, 4*time.Second, h.To.Sub(h.From))
				}
				require.Equal(t, 1, countOf(r.reader.Records(), "scripted"))
				for _, rec := range r.reader.Records()[1:] {
					require.Equal(t, "next", rec.Engine)
					require.True(t, rec.InferenceStart.After(changed))
				}
				require.Contains(t, r.reader.Records()[1].Text, "The new one")
			})
		})
	}
}

func countOf(records []look.Record, engine string) (n int) {
	for _, r := range records {
		if r.Engine == engine {
			n++
		}
	}
	return n
}

// TestEngineChangesBackAndForth: many changes, in all states, lose no comment and leave no session.
func TestEngineChangesBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(700*time.Millisecond, 2*time.Second), nil)
		second := &agenttest.Engine{Called: "second", Answer: steady(300*time.Millisecond, time.Second)}
		both := []*agenttest.Engine{r.engine, second}
		for i := range 40 {
			time.Sleep(time.Duration(i*317%4000) * time.Millisecond)
			r.SetEngine(agenttest.Open(both[(i+1)%2]), "")
		}
		time.Sleep(10 * time.Second)
		r.Stop("test")
		time.Sleep(5 * time.Second)
		r.stop()
		require.Zero(t, r.engine.Sessions()+second.Sessions())
		for _, rec := range r.reader.Records() {
			if rec.Outcome == look.OutcomeDropped {
				require.Contains(t, []string{"the engine changed", "commenting was stopped"}, rec.Reason)
				continue
			}
			require.Contains(t, []string{look.OutcomeSpoken, look.OutcomeCut}, rec.Outcome, rec.Reason)
		}
		require.Greater(t, countOf(r.reader.Records(), "second"), 10)
		heard := r.voice.Utterances()
		require.False(t, slices.ContainsFunc(heard[:len(heard)-1], func(h agenttest.Heard) bool { return h.Cut }), "only the end cuts")
	})
}

// TestEngineThatDoesNotFit: the settings in force decide.
func TestEngineThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(time.Second, time.Second), func(o *agent.Options) {
			o.Inference.Voice.Language = "nl"
			o.Pacing = pacing.DefaultConfig()
		})
		time.Sleep(time.Second)
		english := &agenttest.Engine{Called: "english", Can: &inference.Capabilities{
			Languages: []string{"en"}, MaxFrames: func(int, int, int) int { return 2 },
		}}
		require.EqualError(t, r.Fits(english), `language: expected one of ["en"], as the english engine speaks nothing else, got "nl"`+"\n"+
			"frames_per_look: expected at most 2, as the english engine has no room for more pictures of 4x4 in up to 2 tiles in a prompt, got 4")
		require.NoError(t, r.Fits(r.engine))
		r.stop()
	})
}

// TestVoiceChangesLive: the next comment has another voice; only the form of the setting is checked here.
func TestVoiceChangesLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		time.Sleep(5 * time.Second)
		require.Equal(t, "auto", *r.Snapshot().Settings.Voice)
		require.Empty(t, r.engine.Questions()[0].Voice, "the configured one")
		before := len(r.engine.Questions())
		_, err := r.Change(command.Change{Settings: settings.Settings{Voice: new("flite:rms")}}, "test")
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		r.stop()
		require.Equal(t, "flite:rms", r.engine.Questions()[before+1].Voice)
		require.Equal(t, "flite:rms", *r.Live().Settings.Voice)
		_, err = r.Change(command.Change{Settings: settings.Settings{Voice: new("model")}}, "test")
		require.ErrorContains(t, err, "voice: expected another one, as the scripted engine has no voice of its own")
		r.engine.Become(inference.Capabilities{Instructions: true, Speech: true, OwnVoice: true})
		_, err = r.Change(command.Change{Settings: settings.Settings{Voice: new("model")}}, "test")
		require.NoError(t, err)
		require.ErrorContains(t, r.Fits(&agenttest.Engine{Called: "mute"}), "the mute engine has no voice of its own")
		anna := settings.Settings{Voice: new("model:anna")}
		_, err = r.Change(command.Change{Settings: anna}, "test")
		require.ErrorContains(t, err, `has the voice "model" only`)
		r.engine.Become(inference.Capabilities{Instructions: true, Speech: true, OwnVoice: true, OwnVoices: []string{"anna"}})
		require.Equal(t, []agent.VoiceOption{{ID: "model", Speaks: true}, {ID: "model:anna", Speaks: true}}, r.OwnVoices())
		r.engine.Become(inference.Capabilities{Instructions: true, Speech: true, OwnVoice: true, OwnVoices: []string{"anna"}, VoiceLanguages: []string{"zh"}})
		require.Equal(t, []agent.VoiceOption{{ID: "model"}, {ID: "model:anna"}}, r.OwnVoices())
		_, err = r.Change(command.Change{Settings: anna}, "test")
		require.NoError(t, err)
		_, err = r.Change(command.Change{Settings: settings.Settings{Voice: new("model:bob")}}, "test")
		require.ErrorContains(t, err, `has "model" and ["anna"], got "model:bob"`)
		for _, bad := range []string{"", "flite", "flite:", "sapi:anna", "model:", "auto:x", "espeak-ng:" + string(make([]byte, 65))} {
			_, err = r.Change(command.Change{Settings: settings.Settings{Voice: &bad}}, "test")
			require.ErrorContains(t, err, `voice: expected "auto"`)
		}
	})
}

// TestGainAtTheStart is that of the settings, and louder goes on from there.
func TestGainAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), func(o *agent.Options) { o.Inference.Voice.Gain = -6 })
		require.Equal(t, -6.0, *r.Snapshot().Settings.VoiceGain)
		require.Equal(t, -6.0, r.voice.Gain)
		_, err := r.Command(command.Louder, "test")
		require.NoError(t, err)
		require.Zero(t, r.voice.Gain)
		r.stop()
	})
}
