package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
)

// announced returns the records of announcements.
func announced(r *rig) (out []look.Record) {
	for _, rec := range r.reader.Records() {
		if rec.Announced != "" {
			out = append(out, rec)
		}
	}
	return out
}

// TestSay: an announcement waits for the comment that is said or cuts it, and goes before the next; it has captions and a record.
func TestSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Latency: 200 * time.Millisecond, Text: fmt.Sprintf("Pass number %d to the left.", n), Speech: 4 * time.Second}
		}, nil)
		time.Sleep(20 * time.Second)
		require.NoError(t, r.Say(speech.Notice{Text: " Half time is near. "}, person))
		require.NoError(t, r.Say(speech.Notice{Text: "Tickets at the gate.", Reason: "advertisement"}, person))
		time.Sleep(20 * time.Second)
		require.Len(t, announced(r), 2)
		for _, h := range r.voice.Utterances() {
			require.False(t, h.Cut)
		}
		require.NoError(t, r.Say(speech.Notice{Text: "Leave the hall now!", Interrupt: true}, person))
		time.Sleep(20 * time.Second)
		said, heard, captions := announced(r), r.voice.Utterances(), r.reader.Captions()
		r.stop()
		require.Len(t, said, 3)
		texts := []string{"Half time is near.", "Tickets at the gate.", "Leave the hall now!"}
		for i, reason := range []string{"said", "advertisement", "said"} {
			require.Equal(t, look.OutcomeSpoken, said[i].Outcome, said[i].Reason)
			require.Equal(t, texts[i], said[i].Text)
			require.Equal(t, reason, said[i].Announced)
			require.Empty(t, said[i].FrameIDs)
			require.NotNil(t, said[i].FrameIDs)
			require.False(t, said[i].Aligned)
			var last agenttest.ReadCaption
			for _, c := range captions {
				if c.Cycle == said[i].Cycle {
					last = c
				}
			}
			require.Equal(t, texts[i], last.Text)
			require.True(t, last.Final)
		}
		for _, gap := range heardGaps(heard) {
			require.GreaterOrEqual(t, gap, time.Duration(0), "no two voices at once")
		}
		require.Less(t, said[1].StartedAt.Sub(said[0].EndedAt), time.Second, "no comment comes between")
		cuts := 0
		for _, h := range heard {
			if h.Cut {
				cuts++
				require.Less(t, said[2].StartedAt.Sub(h.To).Abs(), 40*time.Millisecond)
			}
		}
		require.Equal(t, 1, cuts)
		require.True(t, heard[len(heard)-1].From.After(said[2].EndedAt), "the commentary goes on")
		for _, rec := range r.reader.Records() {
			if rec.Outcome == look.OutcomeCut {
				require.Equal(t, "an announcement interrupted it", rec.Reason)
			}
		}
	})
}

// TestSayCutsSoundBehindItsText: an announcement ends a comment's sound that is still made, and the engine's work for it. Comments whose
// sound is still to come are heard after it.
func TestSayCutsSoundBehindItsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
			a := behind(n, p)
			a.Speech, a.Behind, a.Second = 12*time.Second, 500*time.Millisecond, 4*time.Second
			return a
		}, func(o *agent.Options) { o.Pacing.FixedDelay = time.Second })
		time.Sleep(3 * time.Second)
		before := len(r.engine.Questions())
		require.Equal(t, 1, r.engine.Answering(), "its second half is still made")
		require.NoError(t, r.Say(speech.Notice{Text: "Leave the hall now!", Interrupt: true}, person))
		time.Sleep(150 * time.Millisecond) // its first sound
		require.LessOrEqual(t, r.engine.Answering(), len(r.engine.Questions())-before, "none of the comment that was cut")
		time.Sleep(30 * time.Second)
		said, heard := announced(r), r.voice.Utterances()
		r.stop()
		require.Len(t, said, 1)
		require.Equal(t, look.OutcomeSpoken, said[0].Outcome)
		first := r.reader.Records()[0]
		require.Equal(t, look.OutcomeCut, first.Outcome)
		require.Equal(t, "an announcement interrupted it", first.Reason)
		require.True(t, heard[0].Cut)
		require.Greater(t, len(heard), 3, "the commentary goes on")
		for _, gap := range heardGaps(heard) {
			require.GreaterOrEqual(t, gap, time.Duration(0), "no two voices at once")
		}
	})
}

// TestSayWithoutSpeech is a caption alone, also while commenting is off.
func TestSayWithoutSpeech(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		_, err := r.Change(command.Change{Settings: settings.Settings{Speech: new(false)}}, person)
		require.NoError(t, err)
		r.Stop(person)
		time.Sleep(5 * time.Second)
		require.NoError(t, r.Say(speech.Notice{Text: "Half time."}, person))
		time.Sleep(5 * time.Second)
		said := announced(r)
		r.stop()
		require.Len(t, said, 1)
		require.Equal(t, look.OutcomeShown, said[0].Outcome)
		require.Equal(t, "Half time.", said[0].Text)
	})
}

func TestSayRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for _, tt := range []struct {
			a    speech.Notice
			want string
		}{
			{speech.Notice{}, "text: expected 1 to 1000 characters, got 0"},
			{speech.Notice{Text: strings.Repeat("ä", 1001)}, "text: expected 1 to 1000 characters, got 1001"},
			{speech.Notice{Text: "\xff\xfe"}, "text: expected 1 to 1000 characters"},
			{speech.Notice{Text: "..."}, `text: expected at least one word, got "..."`},
			{speech.Notice{Text: "Go!", Reason: "a\nb"}, "reason: expected at most 128 printable characters"},
		} {
			require.ErrorContains(t, r.Say(tt.a, person), tt.want)
		}
		require.NoError(t, r.Say(speech.Notice{Text: strings.Repeat("ä", 1000)}, person))
		var err error
		n := 0
		for ; err == nil; n++ {
			err = r.Say(speech.Notice{Text: "Half time."}, person)
		}
		require.ErrorIs(t, err, speech.ErrFull)
		require.LessOrEqual(t, n, 18)
		time.Sleep(90 * time.Second)
		require.NoError(t, r.Say(speech.Notice{Text: "Half time."}, person), "they were said")
		r.stop()
	})
}

// TestSayInAnotherLanguage: the captions of a text that is not in the language of the comments have its own.
func TestSayInAnotherLanguage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for _, a := range []speech.Notice{{Text: "Vale."}, {Text: "Okay.", Language: "es"}} {
			require.NoError(t, r.Say(a, person))
		}
		time.Sleep(10 * time.Second)
		languages := map[string]string{}
		for _, c := range r.reader.Captions() {
			languages[c.Text] = c.Language
		}
		r.stop()
		require.Equal(t, []string{"en", "es"}, []string{languages["Vale."], languages["Okay."]})
	})
}

// TestAlertGoesBeforeAnnouncements: with as many announcements waiting as may wait, an alert is said at once. The announcement
// that it cuts ends as cut, and the others follow in their order.
func TestAlertGoesBeforeAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fires atomic.Bool
		set := rules(t, alert.Rule{When: "a goal is scored", Level: alert.LevelCritical, Votes: "1 of 1", Interrupt: true, Pause: "1h"})
		r := newRig(t, watching(func(p inference.Prompt) agenttest.Answer {
			if fires.Load() {
				return replies(holds)(p)
			}
			return replies(`{"fired":[]}`)(p)
		}), func(o *agent.Options) { o.Alerts = set })
		time.Sleep(20 * time.Second)
		n := 0
		for ; r.Say(speech.Notice{Text: fmt.Sprintf("Notice number %d for all.", n)}, person) == nil; n++ {
		}
		require.GreaterOrEqual(t, n, 16)
		fires.Store(true)
		time.Sleep(time.Minute)
		alerts, _ := r.reader.Alerts()
		said, heard := announced(r), r.voice.Utterances()
		r.stop()
		require.NotEmpty(t, alerts)
		require.Len(t, said, n+1, "none is lost")
		at := slices.IndexFunc(said, func(rec look.Record) bool { return rec.Alert != "" })
		require.GreaterOrEqual(t, at, 0, "the alert is said")
		require.Less(t, said[at].StartedAt.Sub(alerts[0].At), 200*time.Millisecond, "a tenth of a second after its first sound")
		require.Equal(t, look.OutcomeSpoken, said[at].Outcome)
		notices := slices.Delete(slices.Clone(said), at, at+1)
		for i, rec := range notices {
			require.Equal(t, i == at-1, rec.Outcome == look.OutcomeCut, rec.Text)
			if rec.Outcome == look.OutcomeCut {
				require.Equal(t, "an alert interrupted it", rec.Reason)
				continue
			}
			require.Equal(t, fmt.Sprintf("Notice number %d for all.", i), rec.Text)
		}
		for _, gap := range heardGaps(heard) {
			require.GreaterOrEqual(t, gap, time.Duration(0), "no two voices at once")
		}
	})
}

// TestSameWithAnyVoice: what is said, in which order and with which captions is the same without a voice, with one that follows
// the text, with one that comes with it, and with one that fails in the middle.
func TestSameWithAnyVoice(t *testing.T) {
	for name, voice := range map[string]func(*agenttest.Answer){
		"off":     func(*agenttest.Answer) {},
		"own":     func(a *agenttest.Answer) { a.Behind = time.Second },
		"program": func(*agenttest.Answer) {},
		"fails": func(a *agenttest.Answer) {
			a.Behind, a.Speech, a.Err = time.Second, time.Second, errors.New("the program ended")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
					a := agenttest.Answer{Latency: 200 * time.Millisecond, Text: fmt.Sprintf("Pass number %d to the left.", n), Speech: 2 * time.Second}
					voice(&a)
					return a
				}, func(o *agent.Options) {
					o.Inference.Voice.Enabled = name != "off"
					scripted(o).Mute = name == "fails"
				})
				time.Sleep(10 * time.Second)
				for _, text := range []string{"Half time.", "Tickets at the gate.", "Drinks at the bar."} {
					require.NoError(t, r.Say(speech.Notice{Text: text}, person))
				}
				time.Sleep(time.Minute)
				r.stop()
				var comments, notices []string
				for _, c := range r.reader.Captions() {
					switch {
					case !c.Final:
					case strings.HasPrefix(c.Text, "Pass"):
						comments = append(comments, c.Text)
					default:
						notices = append(notices, c.Text)
					}
				}
				require.Greater(t, len(comments), 8)
				for n, text := range comments {
					require.Equal(t, fmt.Sprintf("Pass number %d to the left.", n), text)
				}
				require.Equal(t, []string{"Half time.", "Tickets at the gate.", "Drinks at the bar."}, notices)
			})
		})
	}
}
