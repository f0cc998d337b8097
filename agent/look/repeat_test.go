package look_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/look"
	"touchline/agent/settings"
	"touchline/inference"
)

// TestRepetition has an engine that says each thing twice, in other words.
func TestRepetition(t *testing.T) {
	said := []string{
		"Red attacks down the left wing.", "The red team attacks down the left wing once more!",
		"The keeper holds the ball.", "Blue number 9 shoots.", "The keeper is still holding the ball.", "Blue number 8 shoots.",
	}
	for _, tt := range []struct {
		setting string
		speech  bool
	}{
		{settings.RepeatsSilence, true},
		{settings.RepeatsSilence, false},
		{settings.RepeatsRetry, true},
		{settings.RepeatsRetry, false},
		{settings.RepeatsAllow, true},
	} {
		t.Run(tt.setting, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
					a := agenttest.Answer{Latency: 500 * time.Millisecond, Text: "...", Speech: 2 * time.Second}
					if n < len(said) {
						a.Text = said[n]
					}
					return a
				}, func(r *rig) { r.task.Agent.Repeats, r.task.Spoken = tt.setting, tt.speech })
				time.Sleep(time.Minute)
				r.stop()
				var comments, withheld []string
				for _, rec := range r.Records() {
					switch {
					case rec.IsComment():
						comments = append(comments, rec.Text)
					case rec.Outcome == look.OutcomeRepeated:
						withheld = append(withheld, rec.Text+" | "+rec.Repeats)
						require.Zero(t, rec.AudioSec)
					}
				}
				news := []string{said[0], said[2], said[3], said[5]}
				twice := []string{said[1] + " | " + said[0], said[4] + " | " + said[2]}
				asked := r.engine.Questions()
				switch tt.setting {
				case settings.RepeatsAllow:
					require.Equal(t, said, comments)
				case settings.RepeatsSilence:
					require.Equal(t, news, comments)
					require.Equal(t, twice, withheld)
					require.Equal(t, 2, r.of(look.OutcomeRepeated))
				case settings.RepeatsRetry:
					require.Equal(t, news, comments, "the second try had news")
					require.Empty(t, withheld)
					require.Equal(t, said[0], r.Records()[1].Repeats)
					require.Contains(t, asked[2].Text, "Say something else")
					require.NotContains(t, asked[3].Text, "Say something else")
				}
				if tt.speech {
					require.Len(t, r.voice.Utterances(), len(comments), "nothing else is heard")
				}
			})
		})
	}
}

// TestRepeatAfterAWhile: what happens again after two minutes is news.
func TestRepeatAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(time.Second, 2*time.Second), func(r *rig) { r.task.Agent.Repeats = settings.RepeatsSilence })
		time.Sleep(5 * time.Minute)
		r.stop()
		comments := 0
		for _, rec := range r.Records() {
			if rec.IsComment() {
				comments++
			}
		}
		require.Equal(t, 3, comments)
	})
}

// TestAnotherFact: what happens to another one is no repeat in the same words; to the same one it is.
func TestAnotherFact(t *testing.T) {
	tells := func(text string, events ...string) agenttest.Answer {
		a := agenttest.Answer{Latency: 500 * time.Millisecond, Text: text}
		for _, e := range events {
			a.Facts = append(a.Facts, inference.Fact{Text: e})
		}
		return a
	}
	for _, setting := range []string{settings.RepeatsSilence, settings.RepeatsRetry} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
				said := []agenttest.Answer{
					tells("A person comes in from the left.", "enter: person 1 left"),
					tells("Coming in from the left: a person.", "enter: person 2 left"),
					tells("The person stops in the middle.", "stop: person 2"),
					tells("The person has stopped in the middle.", "stop: person 2"),
					tells("A person comes in from the left.", "enter: person 3 left"),
					tells("The person has stopped in the middle.", "stop: person 2"),
					tells("The person stops in the middle.", "stop: person 2", "stop: person 3"),
				}
				if n < len(said) {
					return said[n]
				}
				return agenttest.Answer{Text: "..."}
			}, func(r *rig) { r.task.Agent.Repeats, r.task.Spoken = setting, false })
			time.Sleep(time.Minute)
			r.stop()
			var comments []string
			for _, rec := range r.Records() {
				if rec.IsComment() {
					comments = append(comments, rec.Facts[len(rec.Facts)-1].Text)
				}
			}
			require.Equal(t, []string{
				"enter: person 1 left", "enter: person 2 left", "stop: person 2", "enter: person 3 left", "stop: person 3",
			}, comments)
		})
	}
}

// TestBeginsLikeARepeat: a slow answer that is due before it is complete waits for its first news.
func TestBeginsLikeARepeat(t *testing.T) {
	for _, tt := range []struct{ second, outcome string }{
		{"The keeper holds the ball. Blue presses", look.OutcomeShown},
		{"The keeper is holding the ball, still holding", look.OutcomeRepeated},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
				if n == 0 {
					return agenttest.Answer{Latency: time.Second, Text: "The keeper holds the ball."}
				}
				return agenttest.Answer{Latency: time.Second, Text: tt.second, Second: 3 * time.Second}
			}, func(r *rig) { r.task.Agent.Repeats, r.task.Spoken = settings.RepeatsSilence, false })
			time.Sleep(20 * time.Second)
			r.stop()
			require.Equal(t, tt.outcome, r.Records()[1].Outcome)
			for _, cycle := range r.captions {
				if cycle == 2 {
					require.Equal(t, look.OutcomeShown, tt.outcome, "nothing of a repeat is shown")
				}
			}
		})
	}
}
