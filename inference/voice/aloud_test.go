package voice_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

const (
	fliteRate = 16000 // Hz
	story     = fourSentences + " " + fourSentences + " " + fourSentences
)

// voicesOf returns the rates of a text's sound, in order.
func voicesOf(a *answer) (rates []int) {
	for _, c := range a.spoken {
		rates = append(rates, c.AudioRate)
	}
	return slices.Compact(rates)
}

// saidBy returns the words in sound of a rate.
func saidBy(a *answer, rate int) string {
	b := &answer{spoken: slices.DeleteFunc(slices.Clone(a.spoken), func(c inference.Chunk) bool { return c.AudioRate != rate })}
	return b.words()
}

// chooser is a room's choice of a voice.
type chooser struct{ atomic.Value }

func (c *chooser) now() string { return c.Load().(string) } //nolint:forcetypeassert // it holds nothing else

// told tells a session the room's choice, as a comment does.
func (c *chooser) told(t *testing.T, s inference.Session) inference.Speaker {
	t.Helper()
	for _, err := range s.Generate(t.Context(), inference.Prompt{VoiceNow: c.now}) {
		require.NoError(t, err)
	}
	return s.(inference.Speaker) //nolint:forcetypeassert // a wrapped session is one
}

// TestModelTakesOverBetweenSentences: the model's own voice, chosen while a program speaks a text, reads the rest of it from its next
// sentence on, and leaves it to a program again.
func TestModelTakesOverBetweenSentences(t *testing.T) {
	speech := synth(t, "auto")
	for name, early := range map[string]bool{"whole sentences": false, "parts of sentences": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &slowly{engine: engine{speaks: true}, early: early}
				e.takes.Store(int64(500 * time.Millisecond))
				m := wrap(e, speech)
				s, err := m.NewSession()
				require.NoError(t, err)
				var choice chooser
				choice.Store("flite:slt")
				said := choice.told(t, s).Speak(t.Context(), story, "flite:slt", "en")
				go func() {
					time.Sleep(1500 * time.Millisecond)
					choice.Store("model")
					time.Sleep(4 * time.Second)
					choice.Store("flite:rms")
				}()
				a := wholeOf(t, story, said)
				require.Equal(t, []int{fliteRate, modelRate, fliteRate}, voicesOf(a))
				require.Zero(t, a.gap)
				read := saidBy(a, modelRate)
				require.True(t, strings.HasSuffix(read, "."), "%q", read)
				require.Contains(t, story, read, "whole sentences in a row")
				first, _, _ := strings.Cut(story, read)
				require.NotEqual(t, story, first+read, "a program said the rest")
				require.Zero(t, e.left.Load(), "each sentence is read to its end")
				require.Empty(t, m.Status().VoiceProblem)
				require.NoError(t, s.Close())
			})
		})
	}
}

// TestModelTakesOverWhileTheTextIsWritten: of an answer that goes on, the sentences that come after the choice are read whole, also where
// a program would speak clauses.
func TestModelTakesOverWhileTheTextIsWritten(t *testing.T) {
	parts := []string{
		"The keeper waits. ",
		"A long pass goes over the whole defence to the striker, ", "who takes it with the chest, turns around in one move, ",
		"and shoots with the left foot. ", "What a goal, and ", "what a night",
	}
	whole := strings.Join(parts, "")
	var choice chooser
	choice.Store("flite:slt")
	spoken := make(chan struct{})
	var asked []string
	e := &engine{speaks: true, speak: func(text string) iter.Seq2[inference.Chunk, error] {
		asked = append(asked, text)
		return (&slowRoom{e: &slowly{}}).Speak(t.Context(), text, "", "")
	}}
	for _, p := range parts {
		e.chunks = append(e.chunks, inference.Chunk{Text: p})
	}
	e.before = func(_ context.Context, i int) {
		if i == 1 {
			<-spoken
			choice.Store("model")
		}
	}
	s, err := wrap(e, synth(t, "auto")).NewSession()
	require.NoError(t, err)
	heard := sync.OnceFunc(func() { close(spoken) })
	a := wholeOf(t, whole, func(yield func(inference.Chunk, error) bool) {
		for c, err := range s.Generate(t.Context(), inference.Prompt{Speech: true, Voice: "flite:slt", VoiceNow: choice.now}) {
			if len(c.Audio) > 0 {
				heard()
			}
			if !yield(c, err) {
				return
			}
		}
	})
	require.Equal(t, []int{fliteRate, modelRate}, voicesOf(a))
	require.Equal(t, []string{strings.TrimSpace(strings.Join(parts[1:4], "")), "What a goal, and what a night"}, asked)
	require.NoError(t, s.Close())
}

// TestModelThatCannotRead: where the model fails to read, the voice before says the rest of the text, from the word that had no sound on,
// and the model is not asked again before the next text.
func TestModelThatCannotRead(t *testing.T) {
	torn := errors.New("a torn string")
	part := sound(make([]int16, modelRate/2)...)
	part.Words = []inference.WordTime{{Text: "One"}, {Text: "two"}}
	for name, tt := range map[string]struct {
		chunks  []inference.Chunk
		err     error
		own     string
		problem string
	}{
		"no voice for texts":   {nil, inference.ErrNoVoice, "", ""},
		"no voice, as a chunk": {[]inference.Chunk{{VoiceFailed: &inference.VoiceFailure{}}}, nil, "", ""},
		"no model":             {nil, inference.ErrNotReady, "", inference.ErrNotReady.Error()},
		"no sound":             {[]inference.Chunk{{Text: "One"}}, nil, "", "no sound"},
		"it fails":             {[]inference.Chunk{part, {VoiceFailed: &inference.VoiceFailure{Err: torn}}, part}, nil, "One two", torn.Error()},
		"it ends":              {[]inference.Chunk{part}, torn, "One two", torn.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			e := &engine{speaks: true, speak: func(string) iter.Seq2[inference.Chunk, error] {
				asked++
				return func(yield func(inference.Chunk, error) bool) {
					for _, c := range tt.chunks {
						if !yield(c, nil) {
							return
						}
					}
					if tt.err != nil {
						yield(inference.Chunk{}, tt.err)
					}
				}
			}}
			m := wrap(e, synth(t, "auto"))
			s, err := m.NewSession()
			require.NoError(t, err)
			defer s.Close()
			var choice chooser
			choice.Store("model")
			speaker := choice.told(t, s)
			for n := range 2 {
				a := whole(t, speaker.Speak(t.Context(), fourSentences, "flite:slt", "en"))
				require.Equal(t, n+1, asked, "once for each text")
				require.Equal(t, tt.own, saidBy(a, modelRate))
				require.Contains(t, cmp.Or(m.Status().VoiceProblem, "none"), cmp.Or(tt.problem, "none"))
			}
		})
	}
}

// TestModelThatFailsDoesNotRead: the rest of a text that the model began is left to a program where its voice fails.
func TestModelThatFailsDoesNotRead(t *testing.T) {
	const later = " And again it is said."
	var choice chooser
	choice.Store("model")
	failed := inference.Chunk{VoiceFailed: &inference.VoiceFailure{Err: errors.New("a torn string")}}
	asked := 0
	e := &engine{
		speaks: true,
		chunks: []inference.Chunk{failed, {Text: fourSentences}},
		speak: func(string) iter.Seq2[inference.Chunk, error] {
			asked++
			return func(yield func(inference.Chunk, error) bool) {
				_ = yield(inference.Chunk{Text: fourSentences}, nil) && yield(failed, nil) // its next part is not read
			}
		},
	}
	s, err := wrap(e, synth(t, "auto")).NewSession()
	require.NoError(t, err)
	defer s.Close()
	a := whole(t, s.Generate(t.Context(), inference.Prompt{Speech: true, VoiceNow: choice.now}))
	require.Equal(t, []int{fliteRate}, voicesOf(a))
	require.Zero(t, asked)
	a = wholeOf(t, fourSentences+later, s.(inference.Speaker).Speak(t.Context(), fourSentences+later, "model", "en"))
	require.Equal(t, []int{fliteRate}, voicesOf(a))
	require.Equal(t, 1, asked)
}

// TestModelReadsALongText: a given text is known, so its length has no bound as that of an answer.
func TestModelReadsALongText(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("Goal again. ", 100))
	e := &engine{speaks: true, speak: func(text string) iter.Seq2[inference.Chunk, error] {
		return (&slowRoom{e: &slowly{}}).Speak(t.Context(), text, "", "")
	}}
	s, err := wrap(e, synth(t, "auto")).NewSession()
	require.NoError(t, err)
	a := wholeOf(t, text, s.(inference.Speaker).Speak(t.Context(), text, "model", "en")) //nolint:forcetypeassert // a wrapped session is one
	require.Equal(t, 100, ownChunks(a))
	require.NoError(t, s.Close())
}

// TestSlowModelDoesNotRead: a model that reads slower than its sound is heard leaves the rest to the program before, and the room has its
// voice again when it kept up.
func TestSlowModelDoesNotRead(t *testing.T) {
	speech := synth(t, "auto")
	synctest.Test(t, func(t *testing.T) {
		e := &slowly{engine: engine{speaks: true}}
		e.takes.Store(int64(1500 * time.Millisecond))
		s, err := wrap(e, speech).NewSession()
		require.NoError(t, err)
		var choice chooser
		choice.Store("model")
		speaker := choice.told(t, s)
		say := func() *answer { return wholeOf(t, story, speaker.Speak(t.Context(), story, "flite:slt", "en")) }
		a := say()
		require.Equal(t, []int{modelRate, fliteRate}, voicesOf(a))
		require.Equal(t, 3, ownChunks(a))
		problem := func() string { return problemIn(s) }
		require.Contains(t, problem(), "slower than real time")
		require.Equal(t, []int{fliteRate}, voicesOf(say()), "it rests")
		e.takes.Store(int64(500 * time.Millisecond))
		time.Sleep(time.Minute)
		require.Equal(t, []int{modelRate}, voicesOf(say()))
		require.Empty(t, problem())
		require.NoError(t, s.Close())
	})
}

// TestProgramsAreNotFarAhead: where the room may choose the model's voice, a program does not speak a whole text at once.
func TestProgramsAreNotFarAhead(t *testing.T) {
	speech := synth(t, "auto")
	synctest.Test(t, func(t *testing.T) {
		for _, speaks := range []bool{true, false} {
			s, err := wrap(&engine{speaks: speaks}, speech).NewSession()
			require.NoError(t, err)
			var choice chooser
			choice.Store("flite:slt")
			began := time.Now()
			a := wholeOf(t, story, choice.told(t, s).Speak(t.Context(), story, "flite:slt", "en"))
			require.Greater(t, a.duration(), 8*time.Second)
			require.Zero(t, a.gap)
			took := time.Since(began)
			if !speaks {
				require.Zero(t, took)
				continue
			}
			left := a.duration() - took // when the last sentence came
			require.True(t, left > 4*time.Second && left < 8*time.Second, "%v", left)
			require.NoError(t, s.Close())
		}
	})
}
