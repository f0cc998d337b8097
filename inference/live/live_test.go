package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
	"touchline/internal/rescue"
)

const ms = time.Millisecond

// slow is a recognizer that takes its time.
func slow(d time.Duration) *livetest.Recognizer {
	return &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// hearing is a session under test.
type hearing struct {
	*live.Session
	t      *testing.T
	r      *livetest.Recognizer
	ended  chan error
	closed atomic.Int32

	mu     sync.Mutex
	events []live.Event
}

// listen runs a session with a detector.
func listen(t *testing.T, r *livetest.Recognizer, change ...func(*live.Config)) *hearing {
	t.Helper()
	return listenBy(t, r, r, change...)
}

// listenBy is listen with a recognizer that uses another one.
func listenBy(t *testing.T, by inference.Recognizer, r *livetest.Recognizer, change ...func(*live.Config)) *hearing {
	t.Helper()
	h := &hearing{t: t, r: r, ended: make(chan error, 1)}
	c := live.Config{Detector: livetest.Detector{Closed: &h.closed}}
	for _, f := range change {
		f(&c)
	}
	h.Session = live.New(by, c, func(e live.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = append(h.events, e)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { h.ended <- h.Run(ctx) }()
	t.Cleanup(cancel)
	return h
}

// speak writes sound in real time, in pieces of 20 ms.
func (h *hearing) speak(sound []float32) {
	h.t.Helper()
	for piece := range slices.Chunk(sound, 320) {
		time.Sleep(20 * ms)
		require.NoError(h.t, h.Write(h.t.Context(), piece))
	}
}

// end closes the session and waits for its last text.
func (h *hearing) end() []live.Event {
	h.t.Helper()
	require.NoError(h.t, h.Close())
	require.NoError(h.t, <-h.ended)
	require.Zero(h.t, h.r.Open(), "all utterances were closed")
	require.ErrorIs(h.t, h.Write(h.t.Context(), nil), live.ErrClosed)
	return h.events
}

// lines are events as text.
func lines(events []live.Event) (out []string) {
	for _, e := range events {
		line := fmt.Sprintf("%d %s %s", e.Utterance, e.Kind, e.Text)
		if e.Err != nil {
			line += e.Err.Error()
		}
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

func silence(d time.Duration) []float32 { return livetest.Say(d, 0) }

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(100*ms), func(c *live.Config) { c.Hearing = inference.Hearing{Language: "nl", WordTimes: true} })
		h.speak(silence(time.Second))
		h.speak(livetest.Say(400*ms, 1, 2, 3))
		h.speak(silence(time.Second))
		h.speak(livetest.Say(400*ms, 4))
		events := h.end()
		require.Equal(t, []string{
			"1 start_of_speech", "1 interim w1", "1 interim w1 w2", "1 interim w1 w2 w3", "1 end_of_speech", "1 final w1 w2 w3",
			"2 start_of_speech", "2 interim w4", "2 end_of_speech", "2 final w4",
		}, lines(events))
		require.Equal(t, int32(1), h.closed.Load())
		final := events[5]
		require.Equal(t, "nl", final.Language)
		// The frame in which the speech begins is 31*512 samples from the begin, and 300 ms before it belong to it.
		require.Equal(t, 992*ms, final.Start)
		require.Equal(t, 692*ms, final.Begin)
		require.InDelta(t, 2.2, final.End.Seconds(), 0.032)
		require.Equal(t, inference.Word{Text: "w1", Start: time.Second, End: 1400 * ms}, final.Words[0], "times are those of the session")
		require.Equal(t, inference.Word{Text: "w3", Start: 1800 * ms, End: 2200 * ms}, final.Words[2])
		require.Less(t, final.Lag, 250*ms)
		for _, c := range h.r.Calls() {
			require.True(t, c.Hearing.Live)
			require.Equal(t, "nl", c.Hearing.Language)
		}
	})
}

// TestShortStep: the interval of interim texts holds though sound comes in frames of 32 ms.
// TestAWeek: the times of a session that is open for a week or a year count from its first sample.
func TestAWeek(t *testing.T) {
	t.Parallel()
	for _, hours := range []int64{1, 160, 161, 7 * 24, 366 * 24} {
		require.Equal(t, time.Duration(hours)*time.Hour+time.Millisecond, live.At(hours*3600*inference.RecognizerRate+16), "%d h", hours)
	}
}

func TestShortStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(20*ms), func(c *live.Config) { c.Detector, c.Every = nil, 100*ms })
		h.speak(livetest.Say(5*time.Second, 1))
		texts := 0
		for _, c := range h.r.Calls() {
			if c.Method == "hear" {
				texts++
			}
		}
		require.InDelta(t, 50, texts, 2)
		h.end()
	})
}

// TestAdmit: the recognizer hears nothing of an utterance before it is admitted, and nothing at all of one that never is.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, ends int
		h := listen(t, slow(10*ms), func(c *live.Config) {
			c.Admit = func(start int64, ended bool) bool {
				asked++
				if ended {
					ends++
				}
				return start > 32000 && asked > 150
			}
		})
		h.speak(silence(time.Second))
		h.speak(livetest.Say(time.Second, 1, 2))
		h.speak(silence(time.Second))
		require.Empty(t, h.r.Calls())
		asked = 100
		h.speak(livetest.Say(time.Second, 3, 4, 5))
		events := h.end()
		require.Equal(t, []string{"1 start_of_speech", "1 end_of_speech", "1 final", "2 start_of_speech"}, lines(events[:4]))
		require.True(t, events[2].Refused)
		last := events[len(events)-1]
		require.Equal(t, "2 final w3 w4 w5", lines([]live.Event{last})[0], "with the sound before it was admitted")
		require.False(t, last.Refused)
		require.Equal(t, 1, ends)
		require.Equal(t, "hear", h.r.Calls()[0].Method)
		require.Greater(t, h.r.Calls()[0].Samples, 24000)
	})
}

// TestSlowRecognizer: interim texts are left out, the newest sound is heard next, and finals come in order.
func TestSlowRecognizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(3*time.Second))
		for i := range 4 {
			h.speak(livetest.Say(500*ms, 3*i+1, 3*i+2, 3*i+3))
			h.speak(silence(time.Second))
		}
		events := h.end()
		finals := slices.DeleteFunc(events, func(e live.Event) bool { return e.Kind != live.Final })
		require.Equal(t, []string{"1 final w1 w2 w3", "2 final w4 w5 w6", "3 final w7 w8 w9", "4 final w10 w11 w12"}, lines(finals))
		require.LessOrEqual(t, len(h.r.Calls()), 6, "no backlog of interim texts")
	})
}

// TestNothingIsLostWithoutPauses: speech of 70 s is cut, and the texts hold all of it once.
func TestNothingIsLostWithoutPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(200*ms))
		var words []int
		for i := range 70 {
			words = append(words, i+1)
		}
		h.speak(livetest.Say(time.Second, words...))
		var texts []string
		for _, e := range h.end() {
			if e.Kind == live.Final {
				texts = append(texts, strings.Fields(e.Text)...)
			}
		}
		texts = slices.Compact(texts) // a cut may fall into a word, whose halves are both heard
		require.Len(t, texts, 70)
		require.Equal(t, "w1", texts[0])
		require.Equal(t, "w70", texts[69])
	})
}

func TestFlushClearAndManualMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(0), func(c *live.Config) { c.Detector, c.Every = nil, -1 })
		open, err := h.Flush()
		require.NoError(t, err)
		require.False(t, open)
		h.speak(livetest.Say(100*ms, 1, 2))
		open, err = h.Flush()
		require.NoError(t, err)
		require.True(t, open)
		h.speak(livetest.Say(100*ms, 3))
		h.Clear()
		h.Set(inference.Hearing{Language: "ja"})
		h.speak(livetest.Say(5*ms, 4))
		open, err = h.Flush()
		require.NoError(t, err)
		require.True(t, open, "less than a frame")
		require.NoError(t, h.Detect(livetest.Detector{Closed: &h.closed}, vad.Config{Pause: 100 * ms}))
		h.speak(silence(time.Second))
		h.speak(livetest.Say(100*ms, 5))
		h.speak(silence(200 * ms))
		require.Equal(t, 1605*ms, h.Now())
		events := h.end()
		require.Equal(t, []string{
			"1 start_of_speech", "1 end_of_speech", "1 final w1 w2", "2 start_of_speech",
			"3 start_of_speech", "3 end_of_speech", "3 final w4", "4 start_of_speech", "4 end_of_speech", "4 final w5",
		}, lines(events))
		require.Equal(t, "ja", events[6].Language)
		all, speech := h.Share()
		require.Greater(t, all, speech)
		require.ErrorIs(t, h.Detect(livetest.Detector{Closed: &h.closed}, vad.Config{}), live.ErrClosed)
		require.Equal(t, int32(2), h.closed.Load())
	})
}

// TestErrors: a failed interim text does not show, a final is tried again with all of the sound, and an error is no text.
// TestNothingPendsAfterTheLastText: a client that has the final text and flushes is answered.
func TestNothingPendsAfterTheLastText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *live.Session
		pending := make(chan int, 1)
		s = live.New(&livetest.Recognizer{}, live.Config{Detector: livetest.Detector{}}, func(e live.Event) {
			if e.Kind == live.Final {
				pending <- s.Pending()
			}
		})
		ended := make(chan error)
		go func() { ended <- s.Run(t.Context()) }()
		for range 200 {
			require.NoError(t, s.Write(t.Context(), livetest.Say(500*ms, 1, 0, 0)))
			require.Zero(t, <-pending)
		}
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
	})
}

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := map[string]int{"hear": 1, "finish": 1}
		r := &livetest.Recognizer{Before: func(_ context.Context, c livetest.Call) error {
			if fails[c.Method] > 0 {
				fails[c.Method]--
				return errors.New("the graph failed")
			}
			return nil
		}}
		h := listen(t, r)
		h.speak(livetest.Say(500*ms, 1, 2))
		h.speak(silence(time.Second))
		synctest.Wait()
		h.mu.Lock()
		fails["finish"] = 99
		h.mu.Unlock()
		h.speak(livetest.Say(500*ms, 3))
		require.Equal(t, []string{
			"1 start_of_speech", "1 end_of_speech", "1 final w1 w2",
			"2 start_of_speech", "2 interim w3", "2 end_of_speech", "2 failed the graph failed",
		}, lines(h.end()))
	})
}

// TestAPanicInAnEvent ends the session with an error, and not the process.
func TestAPanicInAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		s := live.New(&livetest.Recognizer{}, live.Config{Detector: livetest.Detector{Closed: &closed}}, func(live.Event) { panic("a bug") })
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		require.NoError(t, s.Write(t.Context(), livetest.Say(500*ms, 1)))
		p, ok := rescue.Of(<-ended)
		require.True(t, ok)
		require.Equal(t, "a bug", p.Value)
		require.ErrorIs(t, s.Write(t.Context(), silence(time.Second)), live.ErrClosed)
		require.EqualValues(t, 1, closed.Load())
	})
}

// TestARecognizerThatHangs: after a minute the utterance fails, and the next one is heard.
func TestARecognizerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		r := &livetest.Recognizer{NoPartials: true, Before: func(ctx context.Context, _ livetest.Call) error {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		h := listen(t, r)
		h.speak(livetest.Say(500*ms, 1))
		h.speak(silence(time.Second))
		h.speak(livetest.Say(500*ms, 2))
		require.Equal(t, []string{
			"1 start_of_speech", "1 end_of_speech", "2 start_of_speech", "2 end_of_speech", "1 failed no text within 1m0s", "2 final w2",
		}, lines(h.end()))
	})
}

// TestWriteWaits: who sends faster than real time waits when a minute of sound has no text yet.
func TestWriteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(10*time.Second))
		began := time.Now()
		for i := range 100 {
			require.NoError(t, h.Write(t.Context(), append(livetest.Say(2*time.Second, i+1), silence(time.Second)...)))
		}
		require.Greater(t, time.Since(began), time.Minute)
		events := h.end()
		finals := slices.DeleteFunc(events, func(e live.Event) bool { return e.Kind != live.Final })
		require.Len(t, finals, 100)
		require.Equal(t, "w100", finals[99].Text)
	})
	synctest.Test(t, func(t *testing.T) {
		h := listen(t, slow(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var err error
		for err == nil {
			err = h.Write(ctx, livetest.Say(time.Second, 1))
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	synctest.Test(t, func(t *testing.T) { // ten minutes at once wait in the caller, not in the session
		h := listen(t, slow(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, h.Write(ctx, livetest.Say(10*time.Minute, 1)), context.DeadlineExceeded)
		require.LessOrEqual(t, h.Now(), 91*time.Second, "the recognizer has at most one utterance of 30 s, and a minute waits")
	})
}

// TestASlowReader: interim texts that nobody reads are replaced by newer ones.
func TestASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var got []live.Event
		s := live.New(slow(0), live.Config{Detector: livetest.Detector{}}, func(e live.Event) {
			<-gate
			got = append(got, e)
		})
		ended := make(chan error)
		go func() { ended <- s.Run(t.Context()) }()
		for i := range 20 {
			require.NoError(t, s.Write(t.Context(), livetest.Say(time.Second, i+1)))
			synctest.Wait()
		}
		close(gate)
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
		require.LessOrEqual(t, len(got), 5)
		require.Equal(t, live.Final, got[len(got)-1].Kind)
		require.Len(t, strings.Fields(got[len(got)-1].Text), 20)
	})
}

// TestCancel: the end of the context ends everything at once.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := slow(time.Hour)
		s := live.New(r, live.Config{Detector: livetest.Detector{}}, func(live.Event) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		require.NoError(t, s.Write(ctx, livetest.Say(time.Second, 1)))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Zero(t, r.Open())
		require.ErrorIs(t, s.Write(t.Context(), nil), live.ErrClosed)
		_, err := s.Flush()
		require.ErrorIs(t, err, live.ErrClosed)
	})
}

// TestTimesOfWords: final texts have the times of their words if these are asked for at that moment, and none if aligning fails or takes
// long.
func TestTimesOfWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wanted, fails, takes := false, error(nil), time.Duration(0)
		r := &livetest.Recognizer{NoPartials: true, Before: func(ctx context.Context, c livetest.Call) error {
			if c.Method != "align" {
				return nil
			}
			select {
			case <-time.After(takes):
				return fails
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		h := listen(t, r, func(c *live.Config) { c.Words = func() bool { return wanted } })
		for _, set := range []func(){func() {}, func() { wanted = true }, func() { takes = time.Minute }, func() { takes, fails = 0, errors.New("no") }} {
			set()
			h.speak(livetest.Say(500*ms, 1, 2))
			h.speak(make([]float32, 2*inference.RecognizerRate))
		}
		var words [][]inference.Word
		for _, e := range h.end() {
			if e.Kind == live.Final {
				require.Equal(t, "w1 w2", e.Text)
				words = append(words, e.Words)
			}
		}
		require.Len(t, words, 4)
		require.Len(t, words[1], 2)
		require.Equal(t, [][]inference.Word{nil, words[1], nil, nil}, words)
		require.InDelta(t, 3500, words[1][1].Start.Milliseconds(), 40)
	})
}
