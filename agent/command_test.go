package agent_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
)

func commentsOf(r *rig) []look.Record {
	return slices.DeleteFunc(r.reader.Records(), func(c look.Record) bool { return !c.IsComment() })
}

const person, other = "room: ann", "room: ben"

func mustCommand(t *testing.T, s *agent.Session, c command.Command, by string) string {
	t.Helper()
	done, err := s.Command(c, by)
	require.NoError(t, err)
	require.Equal(t, c, done.Command)
	require.Equal(t, &done, s.Snapshot().Command)
	require.NotEmpty(t, done.Effect)
	return done.Effect
}

func instruct(t *testing.T, s *agent.Session, text, by string) {
	t.Helper()
	_, err := s.Change(command.Change{Instruction: &text}, by)
	require.NoError(t, err)
}

// TestCommandsActAtOnce: on an engine that reads no instruction as on one that does.
func TestCommandsActAtOnce(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, steady(500*time.Millisecond, 3*time.Second), nil)
			r.engine.Become(inference.Capabilities{Instructions: reads})
			instruct(t, r.Session, "only the goals", person)
			time.Sleep(20 * time.Second)

			require.Contains(t, mustCommand(t, r.Session, command.Stop, other), "off")
			stopped := time.Now()
			synctest.Wait()
			require.Equal(t, "IDLE", r.Snapshot().MonitorMode)
			require.Equal(t, "only the goals", r.Snapshot().Instruction)
			_, err := r.Session.Command(command.Stop, other)
			require.ErrorIs(t, err, command.ErrNothingTo)
			time.Sleep(10 * time.Second)
			for _, h := range r.voice.Utterances() {
				require.False(t, h.To.After(stopped.Add(100*time.Millisecond)), "speech after stop")
			}

			mustCommand(t, r.Session, command.GoOn, other)
			_, err = r.Session.Command(command.GoOn, other)
			require.ErrorIs(t, err, command.ErrNothingTo)
			before := len(r.voice.Utterances())
			time.Sleep(20 * time.Second)
			require.Greater(t, len(r.voice.Utterances()), before)
			require.Equal(t, "only the goals", r.engine.Questions()[len(r.engine.Questions())-1].Instruction)
			r.stop()
		})
	}
}

// TestUndo: each order is taken back, one after another.
func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		_, err := r.Session.Command(command.Undo, person)
		require.ErrorIs(t, err, command.ErrNothingTo)

		instruct(t, r.Session, "only the goals", person)
		mustCommand(t, r.Session, command.Shorter, person)
		mustCommand(t, r.Session, command.Louder, person)
		instruct(t, r.Session, "only the crowd", person)
		mustCommand(t, r.Session, command.Stop, person)

		for i, want := range []string{"only the crowd 2 6 ACTIVE", "only the goals 2 6 ACTIVE", "only the goals 2 0 ACTIVE", "only the goals 3 0 ACTIVE", " 3 0 ACTIVE"} {
			mustCommand(t, r.Session, command.Undo, person)
			s := r.Snapshot()
			got := fmt.Sprintf("%s %d %g %s", s.Instruction, *s.Settings.Verbosity, *s.Settings.VoiceGain, s.MonitorMode)
			require.Equal(t, want, got, "undo %d", i)
		}
		_, err = r.Session.Command(command.Undo, person)
		require.ErrorIs(t, err, command.ErrNothingTo)
		require.Zero(t, r.voice.Gain)
		r.stop()
	})
}

// TestUndoOfAChange: what comes together is taken back together, and nothing that was changed by itself.
func TestUndoOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), func(o *agent.Options) {
			o.Agent.InstructionHold = time.Minute
			o.Profiles = append(o.Profiles, prompt.Profile{Name: "quiet", Label: "Quiet", Prompt: "You whisper.", VoiceGain: new(-6.0)})
		})
		state := func() string {
			s := r.Snapshot()
			return fmt.Sprintf("%s; %s; %d, %g dB, %d", s.Instruction, s.Profile, *s.Settings.Verbosity, *s.Settings.VoiceGain, *s.Settings.Frames)
		}
		change := func(c command.Change, by string) {
			_, err := r.Change(c, by)
			require.NoError(t, err)
		}
		first := state()
		kept := r.Live().Settings

		both := command.Change{Instruction: new("the goals"), Profile: new("quiet"), Settings: settings.Settings{Verbosity: new(4), Frames: new(2)}}
		change(both, person)
		require.Equal(t, "the goals; quiet; 4, -6 dB, 2", state())
		mustCommand(t, r.Session, command.Undo, person)
		require.Equal(t, first, state())
		require.Equal(t, kept, r.Live().Settings, "nothing more is kept than before")

		change(both, person)
		change(command.Change{Settings: settings.Settings{Verbosity: new(1), VoiceGain: new(3.0)}}, person) // in the drawer
		mustCommand(t, r.Session, command.Undo, person)
		require.Equal(t, strings.Replace(first, "3, 0 dB", "1, 3 dB", 1), state())
		mustCommand(t, r.Session, command.Louder, person)
		change(command.Change{Settings: settings.Settings{Verbosity: new(2)}}, person)
		mustCommand(t, r.Session, command.Undo, person)
		require.Equal(t, strings.Replace(first, "3, 0 dB", "2, 3 dB", 1), state())

		instruct(t, r.Session, "the crowd", person)
		change(command.Change{Instruction: new("the referee"), Profile: new("quiet")}, other) // its instruction waits
		require.Len(t, r.Snapshot().Waiting, 1)
		mustCommand(t, r.Session, command.Undo, other)
		require.Empty(t, r.Snapshot().Waiting)
		require.NotEqual(t, "quiet", r.Snapshot().Profile)
		require.Equal(t, "the crowd", r.Snapshot().Instruction)
		r.stop()
	})
}

// TestCommandsInTheLanguageOfTheRoom: what a command did is said in the language of the comments, and in English where that has no words.
func TestCommandsInTheLanguageOfTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for language, want := range map[string]string{
			"es-MX": "Comentarios más cortos: la locuacidad es 2 de 5.", "sv": "Shorter comments: talkativeness is 2 of 5.",
		} {
			_, err := r.Change(command.Change{Settings: settings.Settings{Language: &language, Verbosity: new(3)}}, person)
			require.NoError(t, err)
			require.Equal(t, want, mustCommand(t, r.Session, command.Shorter, person))
		}
		r.stop()
	})
}

func TestCommandBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for _, c := range []struct {
			command command.Command
			times   int
			words   string
		}{
			{command.Shorter, 2, "1 of 5"},
			{command.Longer, 4, "5 of 5"},
			{command.Louder, 2, "+12 dB"},
			{command.Softer, 6, "-24 dB"},
		} {
			var effect string
			for range c.times {
				effect = mustCommand(t, r.Session, c.command, person)
			}
			require.Contains(t, effect, c.words)
			_, err := r.Session.Command(c.command, person)
			require.ErrorIs(t, err, command.ErrNothingTo, c.command)
		}
		require.InDelta(t, -24, r.voice.Gain, 0)
		_, err := r.Session.Command("dance", person)
		require.ErrorContains(t, err, "command: expected one of")
		_, err = r.Change(command.Change{Settings: settings.Settings{Speech: new(false)}}, person)
		require.NoError(t, err)
		_, err = r.Session.Command(command.Louder, person)
		require.ErrorContains(t, err, "speech is off")
		r.stop()
	})
}

// TestRepeatIsRefused: a full queue refuses the command as it refuses an announcement.
func TestRepeatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		time.Sleep(20 * time.Second)
		require.NoError(t, r.Say(speech.Notice{Text: strings.Repeat("ä", 1000)}, person))
		for r.Say(speech.Notice{Text: "Half time."}, person) == nil {
		}
		_, err := r.Session.Command(command.Repeat, person)
		require.ErrorIs(t, err, speech.ErrFull)
		require.NotErrorIs(t, err, command.ErrNothingTo)
		r.stop()
	})
}

// TestRepeat: the last comment is heard again, or read again with speech off; the record says so.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(n int, _ inference.Prompt) agenttest.Answer {
			return agenttest.Answer{Latency: 500 * time.Millisecond, Text: fmt.Sprintf("Pass number %d.", n), Speech: time.Second}
		}, nil)
		_, err := r.Session.Command(command.Repeat, person)
		require.ErrorIs(t, err, command.ErrNothingTo)
		time.Sleep(20 * time.Second)
		for _, speech := range []bool{true, false} {
			_, err = r.Change(command.Change{Settings: settings.Settings{Speech: &speech}}, person)
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			mustCommand(t, r.Session, command.Stop, person)
			time.Sleep(5 * time.Second)
			last := commentsOf(r)
			heard := len(r.voice.Utterances())
			mustCommand(t, r.Session, command.Repeat, person)
			time.Sleep(5 * time.Second)
			all := commentsOf(r)
			again := all[len(all)-1]
			require.Len(t, all, len(last)+1)
			require.True(t, again.Again)
			require.False(t, again.Aligned)
			require.Equal(t, speech, again.Spoken)
			require.True(t, strings.HasPrefix(again.Text, last[len(last)-1].Text), "%q after %q", again.Text, last[len(last)-1].Text)
			if speech {
				require.Len(t, r.voice.Utterances(), heard+1)
			}
			mustCommand(t, r.Session, command.GoOn, person)
		}
		r.stop()
	})
}

// TestOrdersWait: an instruction holds for a while against those of others, who act in turn; the newest of each person counts,
// and commands do not wait.
func TestOrdersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		instruction := func() string { return r.Snapshot().Instruction }
		began := time.Now()
		instruct(t, r.Session, "goals", person)
		instruct(t, r.Session, "only goals", person) // one's own acts at once
		require.Equal(t, "only goals", instruction())
		instruct(t, r.Session, "crowd", other)
		instruct(t, r.Session, "only the crowd", other)
		instruct(t, r.Session, "referee", "room: cid")
		instruct(t, r.Session, "the score", person) // after those who waited before
		require.Equal(t, "only goals", instruction())
		waiting := r.Snapshot().Waiting
		require.Len(t, waiting, 3)
		require.Equal(t, []string{"only the crowd", "referee", "the score"},
			[]string{waiting[0].Instruction, waiting[1].Instruction, waiting[2].Instruction})
		require.WithinDuration(t, began.Add(3*time.Second), waiting[0].ActsAt, 0)

		time.Sleep(2900 * time.Millisecond)
		require.Equal(t, "only goals", instruction())
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, "only the crowd", instruction())
		require.Equal(t, other, r.Snapshot().InstructionBy)
		mustCommand(t, r.Session, command.Shorter, person) // at once
		require.Equal(t, 2, *r.Snapshot().Settings.Verbosity)
		require.Contains(t, mustCommand(t, r.Session, command.Undo, "room: cid"), "referee")
		time.Sleep(3 * time.Second)
		require.Equal(t, "the score", instruction())
		require.Empty(t, r.Snapshot().Waiting)

		time.Sleep(4 * time.Second)
		instruct(t, r.Session, "late", other) // the last has held
		require.Equal(t, "late", instruction())
		instruct(t, r.Session, "dropped", person)
		r.Stop(other)
		require.Empty(t, r.Snapshot().Waiting)
		instruct(t, r.Session, "after a stop", person)
		require.Equal(t, "after a stop", instruction())
		r.stop()
		var got []string
		for _, e := range r.reader.Orders() {
			got = append(got, e.Phase+" "+e.Instruction)
		}
		require.Equal(t, []string{
			"acts goals", "acts only goals", "waits crowd", "dropped crowd", "waits only the crowd", "waits referee", "waits the score",
			"acts only the crowd", "dropped referee", "acts the score", "acts late", "waits dropped", "dropped dropped", "acts after a stop",
		}, got)
	})
}

// TestDeletedInstructions: what a participant asked for is taken back with what he said: in force, waiting, in looks, and for undo.
// Instructions of others stay, and commenting goes on.
func TestDeletedInstructions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		looks := func(words string) (n int) {
			for _, l := range r.Looks.Traces() {
				if strings.Contains(l.Text, words) {
					n++
				}
			}
			return n
		}
		instruct(t, r.Session, "a secret", person)
		time.Sleep(10 * time.Second)
		require.Positive(t, looks("a secret"))
		instruct(t, r.Session, "only the goals", other)
		mustCommand(t, r.Session, command.Undo, other)
		require.Equal(t, "a secret", r.Snapshot().Instruction)
		instruct(t, r.Session, "the referee", other)
		instruct(t, r.Session, "another secret", person)
		time.Sleep(10 * time.Second)
		require.Equal(t, "another secret", r.Snapshot().Instruction)
		instruct(t, r.Session, "another secret", person) // holds anew
		instruct(t, r.Session, "the crowd", other)
		require.Len(t, r.Snapshot().Waiting, 1)

		r.ForgetHeard("cid")
		require.Equal(t, "another secret", r.Snapshot().Instruction)
		asked := len(r.engine.Questions())
		for len(r.engine.Questions()) == asked { // its answer takes a while
			time.Sleep(time.Millisecond)
		}
		published := len(r.reader.Records())
		r.ForgetHeard("ann")
		snap := r.Snapshot()
		require.Equal(t, []string{"", "", "ACTIVE"}, []string{snap.Instruction, snap.InstructionBy, snap.MonitorMode})
		require.Nil(t, snap.Command, "it quotes an instruction")
		require.Equal(t, "the crowd", snap.Waiting[0].Instruction)
		time.Sleep(10 * time.Second)
		require.Zero(t, looks("secret"))
		after := r.reader.Records()[published:]
		require.Greater(t, len(after), 1)
		for _, rec := range after { // also of the cycle that was under way
			require.NotContains(t, rec.Instruction, "secret")
		}
		require.Positive(t, looks("the referee"))
		require.Equal(t, "the crowd", r.Snapshot().Instruction)
		for range 20 {
			_, _ = r.Command(command.Undo, other)
			require.NotContains(t, r.Snapshot().Instruction, "secret")
		}

		instruct(t, r.Session, "the keeper", other)
		time.Sleep(10 * time.Second)
		instruct(t, r.Session, "from the page", "the page")
		time.Sleep(10 * time.Second)
		r.ForgetHeard("")
		require.Zero(t, looks("the keeper"))
		require.Equal(t, "from the page", r.Snapshot().Instruction)
		r.stop()
	})
}

// TestInstructionAgain: the same instruction of the same person is another one for the engine.
func TestInstructionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for range 2 {
			instruct(t, r.Session, "what happened?", person)
			time.Sleep(5 * time.Second)
		}
		r.stop()
		var numbers []uint64
		for _, p := range r.engine.Questions() {
			if p.Instruction != "" {
				numbers = append(numbers, p.InstructionNumber)
			}
		}
		require.Equal(t, []uint64{1, 2}, slices.Compact(numbers))
	})
}

// TestWaitingOrdersAreBounded: many people at once.
func TestWaitingOrdersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, steady(500*time.Millisecond, time.Second), nil)
		for i := range 100 {
			instruct(t, r.Session, fmt.Sprint("order ", i), fmt.Sprint("room: ", i))
		}
		waiting := r.Snapshot().Waiting
		require.Len(t, waiting, 8)
		require.Equal(t, "order 92", waiting[0].Instruction)
		time.Sleep(time.Minute)
		require.Equal(t, "order 99", r.Snapshot().Instruction)
		r.stop()
	})
}

// TestVerbosity: each level says more words a minute than the one below, and fewer cycles are skipped.
func TestVerbosity(t *testing.T) {
	var words []float64
	for level := 1; level <= 5; level++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, talkative, func(o *agent.Options) { o.Agent.Verbosity = level })
			r.dec.SetLuma(func(pts time.Duration) byte { // from nothing to much in each minute
				s := pts.Seconds()
				return byte(128 + 100*math.Sin(s)*math.Pow(math.Sin(math.Pi*s/60), 2))
			})
			time.Sleep(10 * time.Minute)
			comments := commentsOf(r)
			r.stop()
			n := 0
			for _, c := range comments {
				n += len(strings.Fields(c.Text))
			}
			words = append(words, float64(n)/10)
			t.Logf("verbosity %d: %.1f comments and %.1f words a minute", level, float64(len(comments))/10, float64(n)/10)
		})
	}
	require.IsIncreasing(t, words)
}

// talkative answers as long as the hint asks, and needs a second for three words.
func talkative(_ int, p inference.Prompt) agenttest.Answer {
	n := 12
	switch {
	case strings.Contains(p.Text, "six words"):
		n = 5
	case strings.Contains(p.Text, "One short sentence"):
		n = 8
	case strings.Contains(p.Text, "Two or three"):
		n = 24
	}
	return agenttest.Answer{
		Latency: 700 * time.Millisecond, Text: strings.TrimSpace(strings.Repeat("word ", n)) + ".", Speech: time.Duration(n) * time.Second / 3,
	}
}
