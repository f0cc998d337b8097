package agent_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
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
)

// carryOver reads the carry-over of a prompt; age -1 when there is none.
func carryOver(t *testing.T, text string) (age int, said string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^(\d+) seconds ago you said: (".*")\. `).FindStringSubmatch(text)
	if m == nil {
		require.NotContains(t, text, "you said")
		return -1, ""
	}
	age, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	said, err = strconv.Unquote(m[2])
	require.NoError(t, err)
	return age, said
}

// TestCarryOver expects each prompt to hold the last comment and how old it is;
// silence in between leaves it and only makes it older.
func TestCarryOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = 3 // of four answers
		said := func(n int) string { return fmt.Sprintf("Number %d says \"go\" on the left wing.", n) }
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			if n%(quiet+1) != 0 {
				return agenttest.Answer{Latency: 1500 * time.Millisecond, Text: "..."}
			}
			return agenttest.Answer{Latency: 700 * time.Millisecond, Text: said(n), Speech: 2 * time.Second}
		}, nil)
		time.Sleep(time.Minute)
		r.stop()
		asked := r.engine.Questions()
		require.Greater(t, len(asked), 12)
		age, _ := carryOver(t, asked[0].Text)
		require.Negative(t, age, "nothing was said yet")
		oldest := 0
		for i, q := range asked[1:] {
			last := i - i%(quiet+1) // the last prompt that was answered with words
			age, text := carryOver(t, q.Text)
			require.Equal(t, said(last), text)
			require.InDelta(t, q.At.Sub(asked[last].At.Add(700*time.Millisecond)).Seconds(), float64(age), 0.51)
			oldest = max(oldest, age)
		}
		require.GreaterOrEqual(t, oldest, 3, "the age grows while nothing is said")
	})
}

// TestTooLongPrompt has an engine that takes no prompt with the last comment in it: the room forgets the comment and goes on.
func TestTooLongPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, p inference.Prompt) agenttest.Answer {
			if strings.Contains(p.Text, "you said") {
				return agenttest.Answer{Err: &inference.TooLongError{Tokens: 1709, Max: 1407}}
			}
			return agenttest.Answer{Latency: time.Second, Text: fmt.Sprintf("Number %d runs.", n), Speech: 2 * time.Second}
		}, nil)
		time.Sleep(time.Minute)
		r.stop()
		comments := 0
		for _, rec := range r.reader.Records() {
			require.NotEqual(t, look.OutcomeFailed, rec.Outcome)
			comments++
		}
		require.Greater(t, comments, 8)
	})
}

// TestTooLongWithoutComments: where nothing is left to leave out, the error says what to do.
func TestTooLongWithoutComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Err: &inference.TooLongError{Tokens: 1709, Max: 1407}}
		}, nil)
		time.Sleep(10 * time.Second)
		r.stop()
		recs := r.reader.Records()
		require.NotEmpty(t, recs)
		require.Equal(t, look.OutcomeFailed, recs[0].Outcome)
		require.Contains(t, recs[0].Reason, "less text")
	})
}

// TestLengthHint gives pictures of set greys: how much the engine is asked to
// say follows from how much changed since the look before, and from whether
// the last comment was short.
func TestLengthHint(t *testing.T) {
	const (
		minimal = "Say it in six words or fewer.\n"
		brief   = "One short sentence.\n"
		normal  = "One or two short sentences.\n"
		short   = "Red attacks."
		long    = "Red attacks down the left wing and looks for somebody in the middle."
	)
	steps := []struct {
		text   string // said before
		change int32  // of the grey since
		want   string
	}{
		{long, 0, minimal},
		{short, 0, brief}, // two minimal ones in a row sound like a telegram
		{long, 12, minimal},
		{long, 18, brief},
		{short, 18, brief},
		{long, 37, brief},
		{long, 44, normal},
		{short, 44, normal},
	}
	for _, speech := range []bool{true, false} {
		t.Run(fmt.Sprintf("speech %v", speech), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var grey atomic.Int32
				grey.Store(20)
				r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
					if n >= len(steps) {
						return agenttest.Answer{Latency: time.Second, Text: long, Speech: time.Second}
					}
					grey.Add(steps[n].change)
					return agenttest.Answer{Latency: 500 * time.Millisecond, Text: steps[n].text, Speech: 2 * time.Second}
				}, func(o *agent.Options) {
					o.Inference.Voice.Enabled = speech
					inner := o.NewDecoder
					o.NewDecoder = func(sinks agent.DecoderSinks) (agent.Decoder, error) {
						d, err := inner(sinks)
						d.(*agenttest.Decoder).SetLuma(func(time.Duration) byte { return byte(grey.Load()) })
						return d, err
					}
				})
				time.Sleep(time.Minute)
				r.stop()
				asked := r.engine.Questions()
				require.Greater(t, len(asked), len(steps))
				if !speech {
					for _, q := range asked {
						for _, hint := range []string{minimal, brief, normal} {
							require.NotContains(t, q.Text, hint, "text without voice is bounded in tokens")
						}
					}
					return
				}
				require.Contains(t, asked[0].Text, normal, "the first picture is all new")
				for i, step := range steps {
					require.Contains(t, asked[i+1].Text, step.want, "%+v", step)
					require.Equal(t, 1, strings.Count(asked[i+1].Text, minimal)+strings.Count(asked[i+1].Text, brief)+
						strings.Count(asked[i+1].Text, normal), "one hint")
				}
			})
		})
	}
}

// TestPromptCaps expects the cap, the language and the flag that go with speech,
// and those of text when speech is switched off while it runs.
func TestPromptCaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), func(o *agent.Options) {
			o.Agent.Profile = "sports"
			o.Inference.MaxTokens, o.Inference.Voice.MaxTokens = 111, 33
			o.Inference.Voice.Language = "de"
		})
		time.Sleep(10 * time.Second)
		off := false
		_, err := r.Change(command.Change{Settings: settings.Settings{Speech: &off}}, "test")
		require.NoError(t, err)
		switched := time.Now()
		time.Sleep(10 * time.Second)
		r.stop()
		spoken, shown := 0, 0
		for _, q := range r.engine.Questions() {
			require.Equal(t, "sport", q.System)
			require.Contains(t, q.Text, "answer only with "+inference.Silence)
			if q.At.Before(switched) {
				spoken++
				require.True(t, q.Speech)
				require.Equal(t, 33, q.MaxTokens)
				require.Equal(t, "de", q.Language)
			} else {
				shown++
				require.False(t, q.Speech)
				require.Equal(t, 111, q.MaxTokens)
			}
		}
		require.Greater(t, spoken, 2)
		require.Greater(t, shown, 2)
	})
}

// TestWhatCountsAsSpeech distinguishes answers from silence. An answer of a few characters
// may still become dots or words, so it waits for its end.
func TestWhatCountsAsSpeech(t *testing.T) {
	const latency, second = 300 * time.Millisecond, 1500 * time.Millisecond
	for _, tt := range []struct {
		text  string
		says  bool
		ready time.Duration // from the first word on
	}{
		{"", false, 0},
		{" \n", false, 0},
		{"...", false, 0},
		{"…", false, 0},
		{"\"...\"", false, 0},
		{"... ... ... ...", false, 0},
		{"?! -- \u26bd", false, 0},
		{"7", true, second},
		{"Goal!", true, second},
		{" Ja.  ", true, second},
		{"Goal!!", true, 0},
		{"... a goal", true, 0},
		{"Гол на левом фланге", true, 0},
		{"左翼进攻", true, 0},
	} {
		t.Run(fmt.Sprintf("%q", tt.text), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(int, inference.Prompt) agenttest.Answer {
					return agenttest.Answer{Latency: latency, Text: tt.text, Speech: 2 * time.Second, Second: second}
				}, nil)
				time.Sleep(20 * time.Second)
				r.stop()
				rec := r.reader.Records()[0]
				if !tt.says {
					require.Equal(t, look.OutcomeSilent, rec.Outcome)
					require.Empty(t, r.voice.Utterances())
					require.Empty(t, r.reader.Captions())
					return
				}
				require.Equal(t, look.OutcomeSpoken, rec.Outcome)
				require.Equal(t, strings.TrimSpace(tt.text), rec.Text)
				require.InDelta(t, (latency + tt.ready).Seconds(), rec.ReadySec, 0.1)
			})
		})
	}
}
