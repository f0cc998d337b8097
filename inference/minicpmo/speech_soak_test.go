//go:build integration

package minicpmo_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/minicpmo/voice/tts"
)

// utterances is the number of TestManyUtterances; `make soak` sets TOUCHLINE_UTTERANCES.
const utterances = 200

// speakers are the rooms of an engine that speak at once, more than there are slots of the voice.
const speakers = 6

// crowds are the engines. The sound of one is made on one thread, which leaves half a core of two idle.
const crowds = 2

// crowd lets rooms speak, with faults among them, and counts what came of it.
type crowd struct {
	t       *testing.T
	engines []*minicpmo.Engine
	picture inference.Frame // that all prompts show; each room has it seen anew
	left    atomic.Int64
	whole   atomic.Int64
	broken  atomic.Int64
	cut     atomic.Int64
	silent  atomic.Int64
	long    atomic.Int64
	mute    atomic.Int64
}

// use is what the process holds at a moment without work.
type use struct {
	heap    uint64
	handles ort.Handles
}

// rest waits until all slots are free, and returns what is held.
func (c *crowd) rest() use {
	c.t.Helper()
	for _, e := range c.engines {
		require.Eventually(c.t, func() bool { s := e.Stats(); return s.VoiceSlots == 0 && s.Slots == 0 && s.Waiting == 0 },
			time.Minute, 10*time.Millisecond, "slots are free: %+v", e.Stats())
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return use{m.HeapAlloc, ort.Live()}
}

// run lets all rooms speak n times together.
func (c *crowd) run(seed uint64, n int) {
	c.left.Store(int64(n))
	var rooms sync.WaitGroup
	for room := range speakers * len(c.engines) {
		rooms.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(room)))
			for c.left.Add(-1) >= 0 && !c.t.Failed() {
				if err := c.one(c.engines[room%len(c.engines)], r); err != nil {
					c.t.Errorf("room %d: %v", room, err)
				}
			}
		})
	}
	rooms.Wait()
}

// one opens a room of an engine and speaks once, with or without a fault.
func (c *crowd) one(e *minicpmo.Engine, r *rand.Rand) error {
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	speaker, _ := s.(inference.Speaker)
	p := inference.Prompt{Text: "What is it?", Frames: []inference.Frame{c.picture}, Speech: true}
	ctx := c.t.Context()
	switch n := r.IntN(20); {
	case n < 4: // left in the middle, by its reader
		c.cut.Add(1)
		most := r.IntN(8)
		for _, err := range s.Generate(ctx, p) {
			if most--; most < 0 || err != nil {
				return err
			}
		}
		return nil
	case n < 7: // left at any time, by its context
		c.cut.Add(1)
		ctx, stop := context.WithTimeout(ctx, time.Duration(r.IntN(200))*time.Millisecond)
		defer stop()
		for _, err := range s.Generate(ctx, p) {
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
		}
		return nil
	case n < 10:
		return c.damaged(s, p)
	case n < 12:
		text := []string{"", "...", " ", "…", "\n"}[r.IntN(5)]
		c.silent.Add(1)
		for chunk, err := range speaker.Speak(ctx, text, "", "en") {
			if err != nil || len(chunk.Audio) > 0 {
				return errors.Join(err, errors.New("sound of "+strconv.Quote(text)))
			}
		}
		return nil
	case n < 13:
		return c.lengthy(s)
	}
	c.whole.Add(1)
	got := answer(c.t, s, p)
	if f := got.failure; f != nil && errors.Is(f.Err, tts.ErrMute) && got.samples == 0 && f.From == 0 {
		c.mute.Add(1) // rare: the fallback speaks it
		return got.err
	}
	silent := inference.ClassifyAnswer(got.text, true) != inference.HasWords // a random answer may have no word
	if got.err != nil || got.failure != nil || (got.samples == 0) != silent {
		return errors.Join(got.err, errors.New("a sound was expected: "+strconv.Quote(got.text)))
	}
	return nil
}

// damaged speaks in a voice that makes no numbers.
func (c *crowd) damaged(s inference.Session, p inference.Prompt) error {
	c.broken.Add(1)
	p.Voice = inference.VoiceModel + ":broken"
	var failure *inference.VoiceFailure
	var text strings.Builder
	for chunk, err := range s.Generate(c.t.Context(), p) {
		if err != nil {
			return err
		}
		text.WriteString(chunk.Text)
		if chunk.VoiceFailed != nil {
			failure = chunk.VoiceFailed
		}
		if len(chunk.Audio) > 0 {
			return errors.New("sound of a damaged voice")
		}
	}
	if failure == nil && inference.ClassifyAnswer(text.String(), true) == inference.HasWords {
		return errors.New("a damaged voice did not fail: " + strconv.Quote(text.String()))
	}
	return nil
}

// lengthy speaks a text of several turns.
func (c *crowd) lengthy(s inference.Session) error {
	c.long.Add(1)
	text := strings.Repeat("The reds go forward and the keeper waits for them. ", 8)
	samples, said := 0, 0
	speaker, _ := s.(inference.Speaker)
	for chunk, err := range speaker.Speak(c.t.Context(), text, "", "en") {
		if err != nil || chunk.VoiceFailed != nil {
			if f := chunk.VoiceFailed; err == nil && errors.Is(f.Err, tts.ErrMute) {
				c.mute.Add(1)
				return nil
			}
			return errors.Join(err, errors.New("a long text failed"))
		}
		samples, said = samples+len(chunk.Audio), said+len(chunk.Text)
	}
	if samples == 0 || said != len(text) {
		return errors.New("a long text has no sound, or lacks words")
	}
	return nil
}

// openCrowd opens the engines, which have a voice that makes no numbers besides.
func openCrowd(t *testing.T) *crowd {
	t.Helper()
	b := speakingBundle(t)
	b.Manifest.Dims.Speech.TTS.MaxPositions = 160 // small slots: turns end at 6 s
	good := promptVoice(t)
	bad := good
	bad.Mel = make([]float32, len(good.Mel))
	for i := range bad.Mel {
		bad.Mel[i] = float32(math.NaN())
	}
	s := settings(t)
	s.MaxTokens, s.MiniCPM.Slots, s.MiniCPM.Temperature = 6, 4, 0.7
	o := minicpmo.Options{Config: s, Threads: 1, Now: hurried()}
	o = o.WithVoices(map[string]voice.Reference{inference.DefaultVoice: good, "broken": bad})
	c := &crowd{t: t, picture: frame(t, "320x240.png", 0)}
	for range crowds {
		e, err := minicpmo.Open(t.Context(), b, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		c.engines = append(c.engines, e)
	}
	return c
}

// TestManyUtterances: rooms speak at once, more than there are slots, and are disturbed. All that was not disturbed is whole, and nothing
// is left behind.
func TestManyUtterances(t *testing.T) {
	orttest.NoLeaks(t)
	n := utterances
	if v, ok := os.LookupEnv("TOUCHLINE_UTTERANCES"); ok {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	began := time.Now()
	c := openCrowd(t)
	c.run(1, n/4)
	before := c.rest()
	c.run(2, n-n/4)
	after := c.rest()
	var long, lost uint64
	for _, e := range c.engines {
		s := e.Stats()
		long, lost = long+s.LongTurns, lost+s.LostTurns
		require.Less(t, s.Cached, 64, "pictures of closed rooms")
	}
	t.Logf("%d utterances in %v: %d whole, %d left, %d of a damaged voice, %d silent, %d long, %d without a code; heap %.1f, then %.1f MB; %d turns long, %d lost",
		n, time.Since(began), c.whole.Load(), c.cut.Load(), c.broken.Load(), c.silent.Load(), c.long.Load(), c.mute.Load(),
		float64(before.heap)/1e6, float64(after.heap)/1e6, long, lost)
	// A range of slots that was not used before gets a binding.
	require.InDelta(t, before.handles.Bindings, after.handles.Bindings, 8*crowds, "native handles: %+v, %+v", before.handles, after.handles)
	require.Equal(t, before.handles.Memories, after.handles.Memories)
	require.Less(t, after.heap, before.heap+4e6, "bytes of the heap")
}
