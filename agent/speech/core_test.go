package speech_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/speech"
	"touchline/pacing"
)

// script is a world in which each text is made as its script says.
func script(t *testing.T, maker func(x *text)) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.core.Pace(500*time.Millisecond, pacing.DefaultConfig(), false)
	w.script = maker
	return w
}

// sounds is a script: the words with their sound, after a while.
func sounds(after, length time.Duration) func(x *text) {
	return func(x *text) {
		x.at = x.w.now.Add(after)
		x.then(func() {
			if x.Priority == speech.Comment {
				x.w.core.Text(x.Utterance, x.words, x.w.now)
			}
			x.sound(length)
			if x.Priority == speech.Comment {
				x.w.core.EndText(x.Utterance, true, false, x.w.now)
			}
			x.finish(nil)
		})
	}
}

// TestAlertStartsAtOnce: an alert is made at once whatever waits, and its first sound cuts what is said.
func TestAlertStartsAtOnce(t *testing.T) {
	for _, said := range []speech.Options{
		{Priority: speech.Comment},
		{Priority: speech.Announcement, Author: "ana"},
		{Priority: speech.Interjection, Cuts: speech.Interjection, Author: "ana"},
	} {
		w := script(t, sounds(80*time.Millisecond, time.Minute))
		first := w.add(said)
		w.settle()
		w.pass(10 * time.Second)
		require.Equal(t, 1, first.starts)
		for range speech.MaxPerAuthor {
			require.NotNil(t, w.add(speech.Options{Priority: speech.Announcement, Author: "ana"}))
		}
		at := w.now
		x := w.add(speech.Options{Priority: speech.Alert, Cuts: speech.Alert})
		w.settle()
		w.pass(time.Second)
		require.Equal(t, at.Add(80*time.Millisecond), x.onset, "within 100 ms")
		require.Len(t, first.ends, 1)
		require.Equal(t, speech.Silenced, first.ends[0].Outcome)
		require.Equal(t, errInterrupt, first.ends[0].Cause)
		require.Equal(t, x.onset, first.ends[0].Ended)
	}
}

// TestAnswerCutsCommentsOnly: what cuts comments alone waits for an announcement, and goes before those that wait.
func TestAnswerCutsCommentsOnly(t *testing.T) {
	w := script(t, sounds(80*time.Millisecond, 5*time.Second))
	notice := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(time.Second)
	next := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	answer := w.add(speech.Options{Priority: speech.Interjection, Cuts: speech.Announcement, Author: "ben"})
	w.settle()
	w.pass(20 * time.Second)
	require.Equal(t, speech.Spoken, notice.ends[0].Outcome)
	require.Equal(t, []int{1, 2, 3}, []int{notice.order, answer.order, next.order})
}

// TestBounds: an author has so many announcements that wait, all authors together so many more, and the commentator's own count
// for neither.
func TestBounds(t *testing.T) {
	w := script(t, sounds(80*time.Millisecond, time.Minute))
	w.add(speech.Options{Priority: speech.Announcement, Author: "first"})
	w.settle() // it is said
	add := func(author string) bool {
		return w.add(speech.Options{Priority: speech.Announcement, Author: author}) != nil
	}
	for author := range speech.MaxWaiting / speech.MaxPerAuthor {
		for range speech.MaxPerAuthor {
			require.True(t, add(strconv.Itoa(author)))
		}
		require.False(t, add(strconv.Itoa(author)), "of one author")
	}
	require.False(t, add("another"), "of all")
	require.NotNil(t, w.add(speech.Options{Priority: speech.Alert, Cuts: speech.Alert}))
	require.NotNil(t, w.add(speech.Options{Priority: speech.Comment}))
}

// TestSameWithAnyVoice: order and captions are the same without a voice, with one that follows the text, with one that comes with
// it, and with one that fails in the middle.
func TestSameWithAnyVoice(t *testing.T) {
	write := func(x *text, half func()) {
		if x.Priority > speech.Comment {
			half()
			return
		}
		x.w.core.Text(x.Utterance, x.words[:10], x.w.now)
		half()
		x.w.core.Text(x.Utterance, x.words[10:], x.w.now)
		x.w.core.EndText(x.Utterance, true, false, x.w.now)
	}
	voices := map[string]func(x *text){
		"off": func(x *text) { write(x, func() {}); x.finish(nil) },
		"own": func(x *text) {
			write(x, func() {})
			x.then(func() { x.sound(time.Second) })
			x.then(func() { x.sound(time.Second); x.finish(nil) })
		},
		"program": func(x *text) { write(x, func() { x.sound(2 * time.Second) }); x.finish(nil) },
		"fails":   func(x *text) { write(x, func() { x.sound(time.Second) }); x.finish(errMaker) },
	}
	for name, voice := range voices {
		w := script(t, func(x *text) {
			x.at = x.w.now.Add(100 * time.Millisecond)
			x.then(func() { voice(x) })
		})
		w.line.d = 20 * time.Second
		for i, o := range []speech.Options{
			{Priority: speech.Comment},
			{Priority: speech.Announcement, Author: "ana"},
			{Priority: speech.Comment},
			{Priority: speech.Announcement, Author: "ben"},
			{Priority: speech.Interjection, Cuts: speech.Interjection, Author: "ana"},
			{Priority: speech.Alert, Cuts: speech.Alert},
			{Priority: speech.Alert, Cuts: speech.Alert},
			{Priority: speech.Comment},
		} {
			w.add(o)
			require.Len(t, w.texts, i+1)
		}
		if name == "off" {
			w.core.Mute(w.now)
		}
		w.settle()
		w.pass(2 * time.Minute)
		var order []int
		for _, x := range w.texts {
			require.Len(t, x.ends, 1)
			require.Equal(t, x.words, x.shown, name)
			require.Equal(t, name != "off", x.ends[0].Spoken, name)
			order = append(order, x.order)
		}
		require.Equal(t, []int{6, 4, 7, 5, 3, 1, 2, 8}, order, name)
	}
}

// TestWordsSlip: when the voice skips frames, the words that follow and the end of speech are later by as much.
func TestWordsSlip(t *testing.T) {
	w := script(t, sounds(0, 10*time.Second))
	x := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(2 * time.Second)
	end, shown := w.core.VoiceEnd(w.now), x.shown
	require.NotEmpty(t, shown)
	x.slip(3 * time.Second)
	require.False(t, w.core.VoiceEnd(w.now).Before(end.Add(3*time.Second)))
	w.settle()
	w.pass(2500 * time.Millisecond)
	require.Equal(t, shown, x.shown, "no word while nothing is heard")
	w.pass(time.Second)
	require.Greater(t, len(x.shown), len(shown))
}

// TestSpeechThatLosesTimeRests: the next comment follows speech that lost time after a longer pause, unless it was cut.
func TestSpeechThatLosesTimeRests(t *testing.T) {
	w := script(t, sounds(0, 10*time.Second))
	say := func(cut bool) (pause time.Duration) {
		x := w.add(speech.Options{Priority: speech.Comment})
		w.settle()
		w.pass(6 * time.Second)
		x.slip(400 * time.Millisecond)
		w.settle()
		end := x.end()
		if cut {
			end = w.now
			w.core.Clear(speech.ErrVoiceLost, true, w.now)
			w.settle()
		}
		w.pass(10 * time.Second)
		return w.core.VoiceEnd(w.now).Sub(end)
	}
	require.Equal(t, 400*time.Millisecond, say(false))
	require.Equal(t, 800*time.Millisecond, say(false))
	require.Equal(t, 600*time.Millisecond, say(true))
}

// TestCutSpeechTellsWhatWasHeard: the words that the voice had no time for, as the machine was too busy, are not told when it is cut.
func TestCutSpeechTellsWhatWasHeard(t *testing.T) {
	w := script(t, sounds(0, 10*time.Second))
	x := w.add(speech.Options{Priority: speech.Comment})
	w.settle()
	w.pass(6 * time.Second)
	heard := w.now.Sub(x.onset)
	require.Less(t, heard, 8*time.Second)
	shown := x.shown
	x.slip(time.Minute)
	w.pass(time.Minute)
	require.Equal(t, shown, x.shown)
	w.core.Clear(speech.ErrVoiceLost, true, w.now)
	w.settle()
	w.pass(time.Second)
	require.Equal(t, speech.Silenced, x.ends[0].Outcome)
	require.Less(t, len(x.ends[0].Text), len(x.words))
}

// TestVoiceThatReportsNothing: speech whose end the voice does not report ends as cut, and the next is said.
func TestVoiceThatReportsNothing(t *testing.T) {
	w := script(t, sounds(0, time.Second))
	w.deaf = true
	x := w.add(speech.Options{Priority: speech.Comment})
	y := w.add(speech.Options{Priority: speech.Comment})
	w.settle()
	w.pass(time.Minute)
	require.Equal(t, []error{speech.ErrVoiceLost}, []error{x.ends[0].Cause})
	require.Equal(t, 1, y.starts)
}

// TestMaxWait: a comment waits for people who speak no longer than set.
func TestMaxWait(t *testing.T) {
	w := script(t, sounds(0, time.Second))
	w.core.Behave(speech.Wait, 5*time.Second, 0, w.now)
	w.core.Floor(speech.FloorTaken, w.now)
	x := w.add(speech.Options{Priority: speech.Comment})
	w.settle()
	w.pass(20 * time.Second)
	require.Equal(t, epoch().Add(5*time.Second), x.onset)
}

// TestPause: in doubt the voice pauses with its words, and both go on later by as much.
func TestPause(t *testing.T) {
	w := script(t, sounds(0, 10*time.Second))
	w.core.Behave(speech.Interrupt, 0, 0, w.now)
	x := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(3 * time.Second)
	w.core.Floor(speech.FloorDoubtful, w.now)
	w.settle()
	shown := x.shown
	w.pass(4 * time.Second)
	state := x.State()
	require.Equal(t, speech.Paused, state)
	require.False(t, w.core.Speaking())
	require.Equal(t, shown, x.shown)
	w.core.Floor(speech.FloorFree, w.now)
	w.settle()
	require.True(t, w.core.Speaking())
	require.Equal(t, epoch().Add(14*time.Second), w.core.VoiceEnd(w.now))
	w.pass(20 * time.Second)
	require.Equal(t, speech.Spoken, x.ends[0].Outcome)
	require.Equal(t, epoch().Add(14*time.Second), x.ends[0].Ended)
}

// TestMute: what is said goes on as text, and so does what is ready; what is made later has the voice of then.
func TestMute(t *testing.T) {
	w := script(t, sounds(0, 10*time.Second))
	said := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(2 * time.Second)
	ready := w.add(speech.Options{Priority: speech.Comment})
	later := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.core.Mute(w.now)
	w.settle()
	require.Equal(t, said.words, said.shown)
	require.Equal(t, speech.Spoken, said.ends[0].Outcome)
	w.pass(time.Minute)
	require.Equal(t, speech.Shown, ready.ends[0].Outcome)
	require.Equal(t, speech.Spoken, later.ends[0].Outcome)
	require.Equal(t, 1, later.starts)
}

// TestCutEndsTheWork: the maker of speech that is cut makes no more of it, and the speech ends at once.
func TestCutEndsTheWork(t *testing.T) {
	w := script(t, func(x *text) {
		x.at = x.w.now
		x.then(func() {
			x.sound(time.Second)
			x.at = x.w.now.Add(time.Hour)
		})
		x.then(func() { x.finish(nil) })
	})
	x := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(500 * time.Millisecond)
	w.core.Clear(errCleared, true, w.now)
	w.settle()
	require.Len(t, x.ends, 1)
	require.Equal(t, errCleared, x.ends[0].Cause)
	require.Empty(t, x.work)
}

// TestCutAfterALongPause: speech that is cut in a pause ends when the voice reports its end.
func TestCutAfterALongPause(t *testing.T) {
	w := script(t, sounds(0, time.Second))
	w.core.Behave(speech.Interrupt, 0, 0, w.now)
	x := w.add(speech.Options{Priority: speech.Announcement, Author: "ana"})
	w.settle()
	w.pass(500 * time.Millisecond)
	w.core.Floor(speech.FloorDoubtful, w.now)
	w.settle()
	w.pass(time.Minute)
	w.core.Floor(speech.FloorTaken, w.now)
	_, next := w.core.Step(w.now)
	require.True(t, w.core.Busy(), "its end is not reported yet")
	require.Equal(t, w.now.Add(20500*time.Millisecond), next, "when it counts as lost")
	w.core.VoiceEnded(x.Utterance, w.now.Add(-time.Minute), true)
	acts, _ := w.core.Step(w.now)
	require.Equal(t, w.now.Add(-time.Minute), acts[len(acts)-1].Result.Ended)
}
