package voice_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/voice"
)

// slowly is a model whose rooms speak sentences of a second, each of which takes a while.
type slowly struct {
	engine

	takes  atomic.Int64 // to make a sentence
	hushed atomic.Int64
}

func (e *slowly) NewSession() (inference.Session, error) {
	return &slowRoom{engine: &e.engine, e: e}, nil
}

type slowRoom struct {
	*engine

	e *slowly
}

func (r *slowRoom) Hush() { r.e.hushed.Add(1) }

const fourSentences = "One two three. Four five six. Seven eight nine. Ten eleven twelve."

func (r *slowRoom) Generate(_ context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if !yield(inference.Chunk{Text: fourSentences}, nil) || !p.Speech {
			return
		}
		for _, s := range strings.SplitAfter(fourSentences, ". ") {
			time.Sleep(time.Duration(r.e.takes.Load()))
			c := inference.Chunk{Audio: make([]int16, modelRate), AudioRate: modelRate}
			for i, w := range strings.Fields(s) {
				c.Words = append(c.Words, inference.WordTime{
					Text: w, Start: time.Duration(i) * 300 * time.Millisecond, End: time.Duration(i+1) * 300 * time.Millisecond,
				})
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// TestSlowVoiceRestsInTheLastRoom: where the model's voice is too slow for two rooms, the one that began last goes on with another voice
// between two sentences, and has the model's again when that kept up for a while.
func TestSlowVoiceRestsInTheLastRoom(t *testing.T) {
	speech := synth(t, "auto")
	synctest.Test(t, func(t *testing.T) {
		e := &slowly{engine: engine{speaks: true}}
		m := voice.Wrap(e, speech)
		var rooms [2]inference.Session
		for i := range rooms {
			var err error
			rooms[i], err = m.NewSession()
			require.NoError(t, err)
		}
		say := func(room int) *answer {
			a := &answer{}
			for c, err := range rooms[room].Generate(t.Context(), inference.Prompt{Speech: true}) {
				require.NoError(t, err)
				a.text.WriteString(c.Text)
				if len(c.Audio) > 0 {
					a.spoken = append(a.spoken, c)
				}
			}
			require.Equal(t, fourSentences, a.text.String())
			require.Equal(t, fourSentences, a.words(), "no word is lost or said twice")
			return a
		}
		own := func(a *answer) (n int) {
			for _, c := range a.spoken {
				if c.AudioRate == modelRate {
					n++
				}
			}
			return n
		}
		e.takes.Store(int64(1500 * time.Millisecond))
		var both [2]*answer
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				both[i] = say(i)
			})
		}
		wg.Wait()
		require.Equal(t, 4, own(both[0]), "the first goes on")
		last := own(both[1])
		require.True(t, last > 0 && last < 4, "%d sentences of the model, then another voice", last)
		require.Less(t, len(both[1].spoken[last-1].Audio), modelRate, "cut behind its last word")
		require.EqualValues(t, 1, e.hushed.Load())
		require.Contains(t, m.Status().VoiceProblem, "slower than real time")

		e.takes.Store(int64(900 * time.Millisecond))
		require.Zero(t, own(say(1)), "it rests")
		for range 10 { // 36 s
			require.Equal(t, 4, own(say(0)))
		}
		require.Contains(t, m.Status().VoiceProblem, "slower than real time", "one room rests")
		require.Equal(t, 4, own(say(1)), "it is back")
		require.Empty(t, m.Status().VoiceProblem)
		for _, s := range rooms {
			require.NoError(t, s.Close())
		}
	})
}
