package voice_test

import (
	"context"
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

// slowly is a model whose rooms speak sentences of a second, each of which takes a while.
type slowly struct {
	engine

	takes  atomic.Int64 // to make a sentence
	hushed atomic.Int64
	behind bool         // the end of the text is reported before the sound
	early  bool         // the words of a sentence come with the first part of its sound
	left   atomic.Int64 // answers that were not heard to their end
}

func (e *slowly) NewSession() (inference.Session, error) {
	return &slowRoom{engine: &e.engine, e: e}, nil
}

type slowRoom struct {
	*engine

	e *slowly
}

func (r *slowRoom) CancelVoice() { r.e.hushed.Add(1) }

const fourSentences = "One two three. Four five six. Seven eight nine. Ten eleven twelve."

func (r *slowRoom) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if !yield(inference.Chunk{Text: fourSentences}, nil) || !p.Speech {
			return
		}
		if r.e.behind && !yield(inference.Chunk{TextEnds: true}, nil) {
			return
		}
		for _, s := range strings.SplitAfter(fourSentences, ". ") {
			if !r.sentence(ctx, s, yield) {
				r.e.left.Add(1)
				return
			}
		}
	}
}

// Speak yields each sentence with its sound.
func (r *slowRoom) Speak(ctx context.Context, text, _, _ string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		for _, s := range strings.SplitAfter(text, ". ") {
			if !yield(inference.Chunk{Text: s}, nil) || !r.sentence(ctx, s, yield) {
				r.e.left.Add(1)
				return
			}
		}
	}
}

// sentence yields the sound of a sentence after a while.
func (r *slowRoom) sentence(ctx context.Context, s string, yield func(inference.Chunk, error) bool) bool {
	select {
	case <-ctx.Done():
		yield(inference.Chunk{}, ctx.Err())
		return false
	case <-time.After(time.Duration(r.e.takes.Load())):
	}
	c := inference.Chunk{Audio: make([]int16, modelRate), AudioRate: modelRate}
	for i, w := range strings.Fields(s) {
		c.Words = append(c.Words, inference.WordTime{
			Text: w, Start: time.Duration(i) * 300 * time.Millisecond, End: time.Duration(i+1) * 300 * time.Millisecond,
		})
	}
	rest := c.Audio[:0]
	if r.e.early {
		c.Audio, rest = c.Audio[:modelRate/2], c.Audio[modelRate/2:]
	}
	return yield(c, nil) && (len(rest) == 0 || yield(inference.Chunk{Audio: rest, AudioRate: modelRate, Words: []inference.WordTime{}}, nil))
}

func twoRooms(t *testing.T, m inference.Model) (rooms [2]inference.Session) {
	t.Helper()
	for i := range rooms {
		var err error
		rooms[i], err = m.NewSession()
		require.NoError(t, err)
	}
	return rooms
}

// whole reads an answer with its sound, and its end of the text.
func whole(t *testing.T, chunks iter.Seq2[inference.Chunk, error]) *answer {
	t.Helper()
	return wholeOf(t, fourSentences, chunks)
}

func wholeOf(t *testing.T, text string, chunks iter.Seq2[inference.Chunk, error]) *answer {
	t.Helper()
	a := &answer{}
	var began time.Time
	for c, err := range chunks {
		require.NoError(t, err)
		a.text.WriteString(c.Text)
		if c.TextEnds {
			a.ends++
		}
		if len(c.Audio) > 0 {
			if began.IsZero() {
				began = time.Now()
			}
			a.gap = max(a.gap, time.Since(began)-a.duration())
			a.spoken = append(a.spoken, c)
		}
	}
	require.Equal(t, text, a.text.String())
	require.Equal(t, text, a.words(), "no word is lost or said twice")
	return a
}

// ownChunks counts the chunks of sound in the model's voice.
func ownChunks(a *answer) (n int) {
	for _, c := range a.spoken {
		if c.AudioRate == modelRate {
			n++
		}
	}
	return n
}

// TestSlowVoiceRestsInOneRoom: where the model's voice is too slow for two rooms, the one with the third such sentence goes on with another
// voice between two sentences, and has the model's again when that kept up for a while.
func TestSlowVoiceRestsInOneRoom(t *testing.T) {
	speech := synth(t, "auto")
	synctest.Test(t, func(t *testing.T) {
		e := &slowly{engine: engine{speaks: true}}
		m := wrap(e, speech)
		rooms := twoRooms(t, m)
		say := func(room int) *answer {
			return whole(t, rooms[room].Generate(t.Context(), inference.Prompt{Speech: true}))
		}
		e.takes.Store(int64(1500 * time.Millisecond))
		var both [2]*answer
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() {
				time.Sleep(time.Duration(1-i) * 100 * time.Millisecond)
				both[i] = say(i)
			})
		}
		wg.Wait()
		require.Equal(t, 4, ownChunks(both[0]), "the other goes on")
		last := ownChunks(both[1])
		require.True(t, last > 0 && last < 4, "%d sentences of the model, then another voice", last)
		require.Less(t, len(both[1].spoken[last-1].Audio), modelRate, "cut behind its last word")
		require.EqualValues(t, 1, e.hushed.Load())
		fellBack := func(room int) string { return problemIn(rooms[room]) }
		require.Contains(t, fellBack(1), "slower than real time")
		require.Empty(t, fellBack(0), "the other room has the model's voice")

		e.takes.Store(int64(900 * time.Millisecond))
		require.Zero(t, ownChunks(say(1)), "it rests")
		for range 10 { // 36 s
			require.Equal(t, 4, ownChunks(say(0)))
		}
		require.Contains(t, fellBack(1), "slower than real time", "it still rests")
		require.Equal(t, 4, ownChunks(say(1)), "it is back")
		require.Empty(t, fellBack(1))
		require.Empty(t, m.Status().VoiceProblem, "it is no problem of all rooms")
		for _, s := range rooms {
			require.NoError(t, s.Close())
		}
	})
}

// TestVoiceRestsBehindItsText: a room that rests the model's voice after the text of an answer, or in a given text, ends the model's
// sound, and another voice says the rest. The room's other answers are not hushed.
func TestVoiceRestsBehindItsText(t *testing.T) {
	speech := synth(t, "auto")
	p := inference.Prompt{Speech: true}
	for name, tt := range map[string]struct {
		third func(context.Context, inference.Session) iter.Seq2[inference.Chunk, error]
		left  int
	}{
		"an answer": {func(ctx context.Context, s inference.Session) iter.Seq2[inference.Chunk, error] {
			return s.Generate(ctx, p)
		}, 1},
		"a given text": {func(ctx context.Context, s inference.Session) iter.Seq2[inference.Chunk, error] {
			return s.(inference.Speaker).Speak(ctx, fourSentences, "", "en") //nolint:forcetypeassert // a wrapped session is one
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &slowly{engine: engine{speaks: true}, behind: true}
				e.takes.Store(int64(1500 * time.Millisecond))
				rooms := twoRooms(t, wrap(e, speech))
				var both [2]*answer
				var wg sync.WaitGroup
				wg.Go(func() {
					time.Sleep(100 * time.Millisecond)
					both[0] = whole(t, rooms[0].Generate(t.Context(), p))
				})
				wg.Go(func() { both[1] = whole(t, tt.third(t.Context(), rooms[1])) })
				wg.Wait()
				require.Equal(t, 4, ownChunks(both[0]), "the other goes on")
				require.Less(t, ownChunks(both[1]), 4)
				require.Equal(t, 1, both[0].ends)
				require.LessOrEqual(t, both[1].ends, 1)
				require.EqualValues(t, tt.left, e.left.Load(), "a given text is read by the sentence")
				require.Zero(t, e.hushed.Load())
				for _, s := range rooms {
					require.NoError(t, s.Close())
				}
			})
		})
	}
}

// TestSlowListener: a model that keeps up is not late where its listener is slow, in an answer and in a given text.
func TestSlowListener(t *testing.T) {
	speech := synth(t, "auto")
	synctest.Test(t, func(t *testing.T) {
		e := &slowly{engine: engine{speaks: true}}
		e.takes.Store(int64(500 * time.Millisecond))
		s, err := wrap(e, speech).NewSession()
		require.NoError(t, err)
		var choice chooser
		choice.Store("model")
		speaker := choice.told(t, s)
		for _, chunks := range []iter.Seq2[inference.Chunk, error]{
			s.Generate(t.Context(), inference.Prompt{Speech: true}), speaker.Speak(t.Context(), fourSentences, "", "en"),
		} {
			a := whole(t, func(yield func(inference.Chunk, error) bool) {
				for c, err := range chunks {
					if len(c.Audio) > 0 {
						time.Sleep(3 * time.Second)
					}
					if !yield(c, err) {
						return
					}
				}
			})
			require.Equal(t, 4, ownChunks(a))
			require.Empty(t, problemIn(s))
		}
		require.NoError(t, s.Close())
	})
}

// TestVoiceChangesBetweenSentences: another voice that is chosen while an answer is spoken says the rest of it, from its next sentence
// on. A model that cannot read waits for the next answer.
func TestVoiceChangesBetweenSentences(t *testing.T) {
	speech := synth(t, "auto")
	var chosen atomic.Value
	now := func() string { return chosen.Load().(string) } //nolint:forcetypeassert // set in this test only

	generate := func(ctx context.Context, s inference.Session) iter.Seq2[inference.Chunk, error] {
		return s.Generate(ctx, inference.Prompt{Speech: true, Voice: "model", VoiceNow: now})
	}
	for name, tt := range map[string]struct {
		e   *slowly
		say func(context.Context, inference.Session) iter.Seq2[inference.Chunk, error]
	}{
		"from the model":                        {&slowly{}, generate},
		"from the model, behind the text":       {&slowly{behind: true}, generate},
		"from the model, in parts of sentences": {&slowly{early: true}, generate},
		"from the model, in a given text": {&slowly{}, func(ctx context.Context, s inference.Session) iter.Seq2[inference.Chunk, error] {
			for _, err := range generate(ctx, s) { // the room's voice is known from its comments
				require.NoError(t, err)
				break
			}
			return s.(inference.Speaker).Speak(ctx, fourSentences, "model", "en") //nolint:forcetypeassert // a wrapped session is one
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.e.speaks = true
				tt.e.takes.Store(int64(900 * time.Millisecond))
				m := wrap(tt.e, speech)
				s, err := m.NewSession()
				require.NoError(t, err)
				chosen.Store("model")
				said := tt.say(t.Context(), s)
				go func() {
					time.Sleep(time.Second)
					chosen.Store("espeak-ng:en")
				}()
				a := whole(t, said)
				own := ownChunks(a)
				if tt.e.early {
					own /= 2
				}
				require.Equal(t, 2, own, "one sentence before the choice, one that was being spoken")
				require.Zero(t, a.gap)
				require.Empty(t, m.Status().VoiceProblem)
				require.NoError(t, s.Close())
			})
		})
	}

	t.Run("without a gap", func(t *testing.T) { // in real time, as the program's work takes some
		e := &slowly{engine: engine{speaks: true}}
		e.takes.Store(int64(200 * time.Millisecond))
		s, err := wrap(e, speech).NewSession()
		require.NoError(t, err)
		chosen.Store("model")
		changing := time.AfterFunc(300*time.Millisecond, func() { chosen.Store("espeak-ng:en") })
		defer changing.Stop()
		a := whole(t, generate(t.Context(), s))
		own := ownChunks(a)
		require.True(t, own > 0 && own < 4, "%d sentences of the model", own)
		require.Less(t, a.gap, 100*time.Millisecond)
		require.NoError(t, s.Close())
	})

	t.Run("from a program", func(t *testing.T) {
		sentences := strings.SplitAfter(fourSentences, ". ")
		e := &engine{speaks: true}
		for _, text := range sentences {
			e.chunks = append(e.chunks, inference.Chunk{Text: text})
		}
		const flite, espeak = 16000, 22050 // Hz
		first := map[int]chan struct{}{flite: make(chan struct{}), espeak: make(chan struct{})}
		e.before = func(_ context.Context, i int) {
			switch i {
			case 2:
				<-first[flite]
				chosen.Store("espeak-ng:en")
			case 3:
				<-first[espeak]
				chosen.Store("model")
			}
		}
		s, err := wrap(e, speech).NewSession()
		require.NoError(t, err)
		chosen.Store("flite:slt")
		var heard []int
		for c, err := range s.Generate(t.Context(), inference.Prompt{Speech: true, Voice: "flite:slt", VoiceNow: now}) {
			require.NoError(t, err)
			if len(c.Audio) > 0 {
				if !slices.Contains(heard, c.AudioRate) {
					close(first[c.AudioRate])
				}
				heard = append(heard, c.AudioRate)
			}
		}
		require.Len(t, heard, 4, "a sentence each")
		require.Contains(t, []int{flite, espeak}, heard[1])
		heard = slices.Delete(heard, 1, 2) // the second sentence may have begun before the choice
		require.Equal(t, []int{flite, espeak, espeak}, heard)
		require.NoError(t, s.Close())
	})
}
