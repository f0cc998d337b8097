package tts_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/minicpmo/voice/tts"
)

// TestWindows cuts the codes of two turns of the official code as it did.
func TestWindows(t *testing.T) {
	t.Parallel()
	const silence, end = 4218, 4249
	raw, err := os.ReadFile("testdata/turns.json")
	require.NoError(t, err)
	var turns []struct {
		Drawn   []int32 `json:"drawn"`
		Windows []struct {
			Codes []int32 `json:"codes"`
			Last  bool    `json:"last_chunk"`
		} `json:"windows"`
	}
	require.NoError(t, json.Unmarshal(raw, &turns))
	require.Len(t, turns, 2)
	for _, turn := range turns {
		w := tts.NewWindows(silence)
		var got [][]int32
		for _, c := range turn.Drawn {
			if c == end {
				continue
			}
			if window := w.Push(c); window != nil {
				got = append(got, window)
			}
		}
		got = append(got, w.End())
		require.Len(t, got, len(turn.Windows))
		for i, window := range turn.Windows {
			require.Equal(t, window.Codes, got[i])
			require.Equal(t, window.Last, i == len(got)-1)
		}
		require.Equal(t, len(got[len(got)-1]), w.Pending())
	}
}

// reference is the sampling of the official code, without any shortcut.
func reference(set tts.Settings, logits []float32, history []int32, u float64) int32 {
	n := len(logits)
	row := make([]float32, n)
	for i, v := range logits {
		row[i] = v / float32(set.Temperature)
	}
	order := make([]int, n) // ascending
	for i := range order {
		order[i] = i
	}
	probs := func() []float64 {
		top, sum := slices.Max(row), 0.0
		p := make([]float64, n)
		for i, v := range row {
			p[i] = math.Exp(float64(v - top))
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	if len(history) > 0 {
		for _, c := range history[max(0, len(history)-set.Past):] {
			if row[c] < 0 {
				row[c] *= float32(set.Penalty)
			} else {
				row[c] /= float32(set.Penalty)
			}
		}
		sort.SliceStable(order, func(i, j int) bool { return row[order[i]] < row[order[j]] })
		sum, p, low := 0.0, probs(), float32(math.Inf(-1))
		for _, i := range order[:n-set.Keep] {
			if sum += p[i]; sum <= 1-set.TopP {
				row[i] = low
			}
		}
		least := row[order[n-set.TopK]]
		for i, v := range row {
			if v < least {
				row[i] = low
			}
		}
	}
	sum := 0.0
	for i, p := range probs() {
		if sum += p; sum > u {
			return int32(i)
		}
	}
	return int32(n - 1)
}

// row is a random row of logits: flat, or with some large ones.
func row(r *rand.Rand, n int) []float32 {
	scale := []float64{0.1, 1, 4}[r.IntN(3)]
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * scale)
	}
	for range r.IntN(30) {
		logits[r.IntN(n)] += float32(r.Float64() * 8)
	}
	return logits
}

// best is what a device returns of a row.
func best(set tts.Settings, logits []float32, history []int32) tts.Row {
	ids := make([]int64, len(logits))
	for i := range ids {
		ids[i] = int64(i)
	}
	sort.SliceStable(ids, func(i, j int) bool { return logits[ids[i]] > logits[ids[j]] })
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v-logits[ids[0]]) / set.Temperature)
	}
	r := tts.Row{IDs: ids[:tts.BestCodes], Prob: float32(1 / sum)}
	for _, id := range r.IDs {
		r.Logits = append(r.Logits, logits[id])
	}
	for _, c := range history[max(0, len(history)-set.Past):] {
		r.Past = append(r.Past, logits[c])
	}
	return r
}

func TestDraw(t *testing.T) {
	t.Parallel()
	const n = 4250
	set := tts.Official()
	s := tts.New(set)
	r := rand.New(rand.NewPCG(1, 2))
	for k := range 600 {
		logits := row(r, n)
		var history []int32
		for range r.IntN(40) {
			c := int32(r.IntN(n))
			if r.IntN(2) == 0 { // one that is likely
				c = int32(slices.Index(logits, slices.Max(logits)))
				logits[c] -= 0.5
			}
			history = append(history, c)
		}
		u := r.Float64()
		want := reference(set, logits, history, u)
		got, err := s.Full(logits, history, u)
		require.NoError(t, err)
		require.Equal(t, want, got, "row %d", k)
		if len(history) == 0 {
			continue
		}
		got, err = s.Best(best(set, logits, history), history, u)
		require.NoError(t, err)
		require.Equal(t, want, got, "the largest of row %d", k)
	}
}

func TestDrawRefuses(t *testing.T) {
	t.Parallel()
	s := tts.New(tts.Official())
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, bad := range [][]float32{{1, nan}, {inf, 0}, {-inf, -inf}, nil} {
		_, err := s.Full(bad, nil, 0.5)
		require.ErrorIs(t, err, tts.ErrNotFinite)
	}
	good := best(tts.Official(), row(rand.New(rand.NewPCG(3, 4)), 100), []int32{1})
	for name, change := range map[string]func(*tts.Row){
		"no probability": func(r *tts.Row) { r.Prob = nan },
		"not a number":   func(r *tts.Row) { r.Logits = append([]float32{nan}, r.Logits[1:]...) },
		"few":            func(r *tts.Row) { r.Logits, r.IDs = r.Logits[:30], r.IDs[:30] },
		"no past":        func(r *tts.Row) { r.Past = nil },
	} {
		r := good
		change(&r)
		_, err := s.Best(r, []int32{1}, 0.5)
		require.Error(t, err, name)
	}
	_, err := s.Best(good, nil, 0.5)
	require.ErrorContains(t, err, "whole row")
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	ms := func(words []inference.WordTime) (texts []string, starts []int64) {
		for _, w := range words {
			texts, starts = append(texts, w.Text), append(starts, w.Start.Milliseconds())
		}
		return texts, starts
	}
	var line tts.Timeline
	line.Begin("Red kick off", 0, false)
	texts, starts := ms(line.Words(0))
	require.Equal(t, []string{"Red"}, texts, "only the chunk's first word has a time")
	require.Equal(t, []int64{120}, starts)

	// 10 letters in 50 codes: 200 ms each; the last word may go on.
	line.Begin("side, and", 50, false)
	texts, starts = ms(line.Words(0))
	require.Equal(t, []string{"kick", "offside,"}, texts)
	require.Equal(t, []int64{120 + 3*200, 120 + 7*200}, starts)

	line.Begin("", 70, false) // a pause
	line.Begin(" a shot!", 80, false)
	line.End(105, true)
	words := line.Words(0)
	texts, starts = ms(words)
	require.Equal(t, []string{"and", "a", "shot!"}, texts)
	perLetter := 20.0 * 40 / 7
	require.InDelta(t, 2120+4*perLetter, starts[0], 1)
	require.Equal(t, []int64{3320, 3520}, starts[1:])
	require.Equal(t, 4320*time.Millisecond, words[2].End)
	require.Empty(t, line.Words(0))
}

// TestEstimatedTimes has a chunk whose codes are drawn slowly: words that would come too late have times at the rate so far, and the
// rest of the chunk is spread over what is left of it.
func TestEstimatedTimes(t *testing.T) {
	t.Parallel()
	var line tts.Timeline
	line.Begin("Four seconds long ", 0, false) // 15 letters
	line.Begin("a slow word comes late", 100, true)
	require.Len(t, line.Words(0), 4, "and the first of the open chunk")
	perLetter := 4 * time.Second / 15
	words := line.Words(4120*time.Millisecond + 6*perLetter)
	require.Len(t, words, 2)
	require.Equal(t, "slow", words[0].Text)
	require.InDelta(t, 4120*time.Millisecond+perLetter, words[0].Start, 10)
	require.InDelta(t, 4120*time.Millisecond+5*perLetter, words[1].Start, 10)
	require.Empty(t, line.Words(4120*time.Millisecond+6*perLetter))
	line.End(250, true)
	rest := line.Words(0)
	require.Len(t, rest, 2)
	require.Greater(t, rest[0].Start, words[1].Start)
	require.Equal(t, 10120*time.Millisecond, rest[1].End)
}

func BenchmarkDraw(b *testing.B) {
	set := tts.Official()
	s := tts.New(set)
	logits := row(rand.New(rand.NewPCG(5, 6)), 6562)
	history := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	short := best(set, logits, history)
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			_, _ = s.Full(logits, history, 0.5)
		}
	})
	b.Run("best", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.Best(short, history, 0.5)
		}
	})
}
