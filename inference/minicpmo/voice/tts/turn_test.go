package tts_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/inference/step"
	"touchline/internal/wake"
)

const (
	toyEnd     = 99
	toySilence = 98
	toyCodes   = 100
)

var errLost = fmt.Errorf("a run: %w", ort.ErrDeviceLost)

// toy is a scripted voice: a piece of text gets as many codes as its first id says, code 0, 1, 2 and so on over
// the turn. Its sound has the place of each code in the turn, over 1000, for 960 samples. Times are those of an H200.
type toy struct {
	t     *testing.T
	slots []toySlot
	waves []toyWave

	mu    sync.Mutex
	runs  []int // windows of each run
	steps int
	fail  func(what string, slot int) error
	back  []int // lengths that were turned back
	bad   int   // slot whose sound is not finite, if it is not negative
	alone bool
	slow  time.Duration // of a step, if it is set
}

// toySlot is what the language model knows of a turn, and toyWave what the sound does.
type (
	toySlot struct{ written, left, next int }
	toyWave struct{ taken, sounded int } // codes of the windows, and those that became sound
)

func (y *toy) fault(what string, slot int) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.fail != nil {
		return y.fail(what, slot)
	}
	return nil
}

func (y *toy) Clear(slot int) error { return y.fault("clear", slot) }

func (y *toy) TurnBack(slot, length int) error {
	y.back = append(y.back, length)
	require.Equal(y.t, y.slots[slot].written, length)
	return y.fault("turn back", slot)
}

func (y *toy) Feed(slot, length int, p tts.Piece) (int, error) {
	time.Sleep(3700 * time.Microsecond)
	if length == 0 {
		y.slots[slot] = toySlot{}
	}
	s := &y.slots[slot]
	require.Equal(y.t, s.written, length)
	s.left = 0
	if len(p.IDs) > 0 {
		s.left = int(p.IDs[0])
	}
	n := len(p.IDs) + 1
	s.written += n
	return n, y.fault("feed", slot)
}

func (y *toy) Step(r kvcache.Range, history [][]int32, lengths []int32) error {
	time.Sleep(cmp.Or(y.slow, time.Millisecond))
	y.mu.Lock()
	y.steps++
	y.mu.Unlock()
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if err := y.fault("step", slot); err != nil {
			return err
		}
	}
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		codes := history[slot]
		if codes == nil {
			continue
		}
		s := &y.slots[slot]
		require.Len(y.t, codes, s.next)
		require.EqualValues(y.t, (s.next-1)%toyEnd%toySilence, codes[len(codes)-1])
		s.written++
		require.EqualValues(y.t, s.written, lengths[slot]+1)
	}
	return nil
}

func (y *toy) Logits(slot int) ([]float32, error) {
	row := slices.Repeat([]float32{-100}, toyCodes)
	s := &y.slots[slot]
	code := toyEnd
	if s.left > 0 {
		code = s.next % toyEnd % toySilence
		s.left--
		s.next++
	}
	row[code] = 100
	return row, nil
}

func (y *toy) Best(int) (tts.Row, bool) { return tts.Row{}, false }

func (y *toy) Begin(slot int, voice string) error {
	if voice == "missing" {
		return errors.New("no such voice")
	}
	y.waves[slot] = toyWave{}
	return nil
}

func (y *toy) SharedSlots(int) int {
	if y.alone {
		return 0
	}
	return len(y.slots)
}

func (y *toy) Run(jobs []tts.Job) {
	time.Sleep(16 * time.Millisecond)
	y.mu.Lock()
	y.runs = append(y.runs, len(jobs))
	y.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		if j.Err = y.fault("sound", j.Slot); j.Err != nil {
			continue
		}
		s := &y.waves[j.Slot]
		if !j.Last {
			require.Len(y.t, j.Codes, tts.WindowCodes)
			j.Codes = j.Codes[:tts.Burst]
		}
		s.taken += len(j.Codes)
		until := s.taken
		if !j.Last {
			until -= 4 // the last 160 ms come with the next window
		}
		for ; s.sounded < until; s.sounded++ {
			j.Wave = append(j.Wave, slices.Repeat([]float32{float32(s.sounded) / 1000}, 960)...)
		}
		if j.Slot == y.bad {
			j.Wave[0] = float32(math.NaN())
		}
	}
}

// stage runs a talker and a sounder, as an engine does.
type stage struct {
	*tts.Talker
	toy *toy
}

func newStage(t *testing.T, slots, positions int) *stage {
	t.Helper()
	y := &toy{t: t, slots: make([]toySlot, slots), waves: make([]toyWave, slots), bad: -1}
	ctx, cancel := context.WithCancel(t.Context())
	w := wake.New()
	client := step.NewOwner(time.Now).Join(step.Commentary)
	sounder := tts.NewSounder(y, client, time.Now, w.Set)
	talker, err := tts.NewTalker(tts.TalkerOptions{
		LM: y, Layout: kvcache.Layout{Layers: 1, Slots: slots, KVHeads: 1, MaxLen: positions, HeadDim: 1, ElemSize: 2},
		Settings: tts.Official(), End: toyEnd, Silence: toySilence, Client: client, Now: time.Now, Wake: w.Set,
	}, sounder)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sounder.Run(ctx); err != nil {
			cancel()
		}
	})
	wg.Go(func() {
		defer talker.Stop(errLost)
		for {
			if talker.Intake() != nil {
				return
			}
			did, err := talker.Work(0, false, false)
			if err != nil {
				return
			}
			if did {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-w:
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &stage{talker, y}
}

// newTurn returns a turn of a toy, whose codes do not depend on the draws.
func newTurn(voice string) *tts.Turn { return tts.NewTurn(voice, func() float64 { return 0.5 }) }

// heard is what came out of a turn.
type heard struct {
	samples []int16
	words   []inference.WordTime // from the first sample
	first   time.Duration        // until the first sound
	err     error
}

func (s *stage) say(turn *tts.Turn, pieces ...tts.Piece) heard {
	begin := time.Now()
	if err := s.Submit(turn); err != nil {
		return heard{err: err}
	}
	for _, p := range pieces {
		turn.Feed(p)
	}
	return listen(turn, begin)
}

func listen(turn *tts.Turn, begin time.Time) (h heard) {
	for {
		sound, ok, ended, err := turn.Take()
		switch {
		case ok:
			if h.samples == nil {
				h.first = time.Since(begin)
			}
			at := time.Duration(len(h.samples)) * time.Second / tts.Rate
			for _, w := range sound.Words {
				h.words = append(h.words, inference.WordTime{Text: w.Text, Start: w.Start + at, End: w.End + at})
			}
			h.samples = append(h.samples, sound.Samples...)
		case ended:
			h.err = err
			return h
		default:
			<-turn.Wake()
		}
	}
}

// piece is a piece of n codes.
func piece(n int32, text string, last bool) tts.Piece {
	return tts.Piece{IDs: []int32{n}, Text: text, Last: last}
}

// TestTurn speaks three pieces: the first word of each is where its first code sounds.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newStage(t, 4, 1024).say(newTurn(""), piece(61, "Red kick off", false), piece(1, "side, and", false), piece(40, " a shot!", true))
		require.NoError(t, h.err)
		require.Equal(t, (3+61+1+40)*960, len(h.samples)) //nolint:testifylint // too long to print
		codeAt := func(at time.Duration) int {
			return int(math.Round(float64(h.samples[int(at*tts.Rate/time.Second)]) / math.MaxInt16 * 1000))
		}
		var text []string
		for _, w := range h.words {
			text = append(text, w.Text)
		}
		require.Equal(t, "Red kick offside, and a shot!", strings.Join(text, " "))
		require.Equal(t, 3, codeAt(h.words[0].Start), "after three codes of silence")
		require.Equal(t, 3+61+1, codeAt(h.words[4].Start))
		require.IsNonDecreasing(t, starts(h.words))
		require.Equal(t, 3700*time.Microsecond+24*time.Millisecond+16*time.Millisecond, h.first, "a piece, 25 codes, a window")
	})
}

// TestFullPieces: what follows a piece of 500 codes is one position further away than it is stored, as for the official code, which
// counts their last one and does not feed it. Two such pieces and a short third are spoken whole.
func TestFullPieces(t *testing.T) {
	t.Parallel()
	say := func(t *testing.T, codes ...int32) (*stage, heard) {
		t.Helper()
		s := newStage(t, 1, 1152)
		var pieces []tts.Piece
		for i, n := range codes {
			pieces = append(pieces, tts.Piece{IDs: append([]int32{n}, make([]int32, 9)...), Text: "la ", Last: i == len(codes)-1})
		}
		return s, s.say(newTurn(""), pieces...)
	}
	const full = 10 + 1 + 499
	for _, c := range []struct {
		codes []int32
		back  []int
	}{
		{[]int32{500, 500, 120}, []int{full, 2 * full}},
		{[]int32{500, 7, 500, 11}, []int{full, 2*full + 11 + 7}},
		{[]int32{499, 20}, nil}, // ends by itself
		{[]int32{40, 500}, nil}, // nothing follows
	} {
		synctest.Test(t, func(t *testing.T) {
			s, h := say(t, c.codes...)
			require.NoError(t, h.err)
			all := tts.LeadSilence
			for _, n := range c.codes {
				all += int(n)
			}
			require.Equal(t, all*960, len(h.samples)) //nolint:testifylint // too long to print
			require.Equal(t, c.back, s.toy.back)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, h := say(t, 500, 500, 122)
		require.ErrorIs(t, h.err, tts.ErrTooLong)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1, 1152)
		failed := errors.New("no")
		s.toy.fail = func(what string, _ int) error {
			if what == "turn back" {
				return failed
			}
			return nil
		}
		require.ErrorIs(t, s.say(newTurn(""), piece(500, "la ", false), piece(3, "la ", true)).err, failed)
	})
}

func starts(words []inference.WordTime) (out []time.Duration) {
	for _, w := range words {
		out = append(out, w.Start)
	}
	return out
}

// TestSlowWords has a device that is hardly faster than the sound, and a piece of 20 s: no word is known much later than it is heard.
func TestSlowWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2, 1024)
		s.toy.slow = 37 * time.Millisecond
		turn := newTurn("")
		require.NoError(t, s.Submit(turn))
		turn.Feed(piece(500, "The red side kicks off and plays it back to their own half", true))
		var begin time.Time
		var sounded, worst time.Duration
		words := 0
		for {
			sound, ok, ended, err := turn.Take()
			switch {
			case ok:
				if begin.IsZero() {
					begin = time.Now()
				}
				for _, w := range sound.Words {
					worst = max(worst, time.Since(begin)-(sounded+w.Start))
					words++
				}
				sounded += time.Duration(len(sound.Samples)) * time.Second / tts.Rate
			case ended:
				require.NoError(t, err)
				require.Equal(t, 13, words)
				require.LessOrEqual(t, worst, 100*time.Millisecond)
				return
			default:
				<-turn.Wake()
			}
		}
	})
}

// TestSharedSteps: voices that begin one after another draw most of their codes in the same steps.
func TestSharedSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const voices, codes = 8, 450
		s := newStage(t, voices, 1024)
		var wg sync.WaitGroup
		for i := range voices {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 2 * time.Second)
				h := s.say(newTurn(""), piece(codes, "Red kick off", true))
				assert.NoError(t, h.err)
			})
		}
		wg.Wait()
		require.Less(t, s.toy.steps, 1300)
	})
}

// TestManyTurns speaks in more turns than there are slots. All of them are whole, and later windows share runs.
func TestManyTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 8, 1024)
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				n := int32(30 + 7*i)
				h := s.say(newTurn(""), piece(n, "One two", false), piece(n, " three", true))
				if h.err != nil || len(h.samples) != int(3+2*n)*960 || len(h.words) != 3 {
					t.Errorf("turn %d: %v, %d samples, %d words", i, h.err, len(h.samples), len(h.words))
				}
			})
		}
		wg.Wait()
		s.toy.mu.Lock()
		defer s.toy.mu.Unlock()
		require.Greater(t, slices.Max(s.toy.runs), 2, "runs: %v", s.toy.runs)
	})
}

// TestFewSlots has more comments than slots: one that is drawn does not keep its slot until it is heard.
func TestFewSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2, 1024)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if h := s.say(newTurn(""), piece(120, "Five seconds", true)); h.err != nil || len(h.samples) != 123*960 {
					t.Errorf("turn %d: %v, %d samples", i, h.err, len(h.samples))
				}
			})
		}
		wg.Wait()
		require.Less(t, time.Since(begin), 4*time.Second, "of 25 s of speech in each slot")
	})
}

// TestBehind has turns that go behind others: those have the free slots, and the last slot is kept for them.
func TestBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2, 1024)
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		say := func(name string, behind bool) {
			turn := newTurn("")
			if behind {
				turn.Behind()
			}
			wg.Go(func() {
				h := s.say(turn, piece(60, "Some words", true))
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, name); h.err != nil {
					t.Error(h.err)
				}
			})
			synctest.Wait()
		}
		say("first", false)
		say("behind", true)
		say("second", false)
		say("third", false)
		wg.Wait()
		require.Equal(t, "behind", order[3])
		say("alone", true)
		wg.Wait()
	})
}

// TestOneAfterAnother has a device whose runs gain nothing from several windows: each turn begins as soon as it can.
func TestOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4, 1024)
		s.toy.alone = true
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if h := s.say(newTurn(""), piece(60, "Some words", true)); h.err != nil {
					t.Error(h.err)
				}
			})
		}
		wg.Wait()
		s.toy.mu.Lock()
		defer s.toy.mu.Unlock()
		require.Equal(t, 1, slices.Max(s.toy.runs), "runs: %v", s.toy.runs)
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1, 1024)
		turn := newTurn("")
		require.NoError(t, s.Submit(turn))
		turn.Feed(piece(90, "A long piece", false))
		time.Sleep(30 * time.Millisecond)
		turn.Cancel()
		require.ErrorIs(t, listen(turn, time.Now()).err, tts.ErrCancelled)
		require.NoError(t, s.say(newTurn(""), piece(10, "Next", true)).err, "its slot is free")

		waits := newTurn("") // for a piece, and for a slot
		require.NoError(t, s.Submit(waits))
		waits.Cancel()
		require.ErrorIs(t, listen(waits, time.Now()).err, tts.ErrCancelled)
	})
}

// TestTurnFails ends a turn that fails, and no other.
func TestTurnFails(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"feed", "step", "sound", "not finite", "voice"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 2, 1024)
				broken := errors.New("broken")
				s.toy.fail = func(w string, slot int) error {
					if w == what && slot == 1 {
						return broken
					}
					return nil
				}
				voice := ""
				switch what {
				case "not finite":
					s.toy.bad = 1
				case "voice":
					voice = "missing"
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					if h := s.say(newTurn(""), piece(60, "Good", true)); h.err != nil || len(h.samples) != 63*960 {
						t.Errorf("the other turn: %v, %d samples", h.err, len(h.samples))
					}
				})
				time.Sleep(time.Millisecond)
				h := s.say(newTurn(voice), piece(60, "Bad", true))
				require.Error(t, h.err)
				wg.Wait()
				s.toy.mu.Lock()
				s.toy.fail, s.toy.bad = nil, -1
				s.toy.mu.Unlock()
				for range 4 {
					require.NoError(t, s.say(newTurn(""), piece(5, "Again", true)).err)
				}
			})
		})
	}
}

func TestLostDevice(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"feed", "step", "clear"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 1, 1024)
			require.NoError(t, s.say(newTurn(""), piece(5, "Fine", true)).err)
			s.toy.fail = func(w string, _ int) error {
				if w == what {
					return fmt.Errorf("%s: %w", w, errLost)
				}
				return nil
			}
			require.ErrorIs(t, s.say(newTurn(""), piece(50, "Lost", true)).err, errLost, what)
			require.ErrorIs(t, s.say(newTurn(""), piece(50, "After", true)).err, errLost, what)
		})
	}
}

// TestFullSlot ends the speech where the slot is full, after the sound up to there.
func TestFullSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1, 64)
		h := s.say(newTurn(""), piece(90, "Too long", true))
		require.ErrorIs(t, h.err, tts.ErrTooLong)
		require.InDelta(t, 64*960, len(h.samples), 4*960)
		require.NoError(t, s.say(newTurn(""), piece(20, "Short", true)).err)
	})
}

// TestSilentTurn has no codes, and no sound: its text is for another voice.
func TestSilentTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newStage(t, 1, 64).say(newTurn(""), tts.Piece{Last: true})
		require.ErrorIs(t, h.err, tts.ErrMute)
		require.Empty(t, h.samples)
	})
}
