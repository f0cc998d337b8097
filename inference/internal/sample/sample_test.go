package sample_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/sample"
)

// traceBound is the agreed error of a processed logit or a probability.
const traceBound = 1e-5

type tensors struct {
	t      *testing.T
	header map[string]struct {
		DType string `json:"dtype"`
		Data  [2]int `json:"data_offsets"`
	}
	body []byte
}

// The fixtures were made by the official modelling code.
func open(t *testing.T, name string) tensors {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".safetensors")
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw[8:8+n], &header))
	delete(header, "__metadata__")
	clean, err := json.Marshal(header)
	require.NoError(t, err)
	f := tensors{t: t, body: raw[8+n:]}
	require.NoError(t, json.Unmarshal(clean, &f.header))
	return f
}

func (f tensors) bytes(name string) []byte {
	h, ok := f.header[name]
	require.True(f.t, ok, name)
	return f.body[h.Data[0]:h.Data[1]]
}

func (f tensors) floats(name string) []float32 {
	b := f.bytes(name)
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func (f tensors) ids(name string) []int32 {
	b := f.bytes(name)
	out := make([]int32, len(b)/8)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

func (f tensors) doubles(name string) []float64 {
	b := f.bytes(name)
	out := make([]float64, len(b)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

func TestChatKeepsWhatTheOriginalKeeps(t *testing.T) {
	f := open(t, "chat")
	for i := range 6 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			logits := f.floats(strconv.Itoa(i) + ".logits")
			want := f.floats(strconv.Itoa(i) + ".processed")
			st, s := sample.NewState(len(logits)), sample.New(len(logits))
			st.Reset(sample.Chat(), 1, 1)
			for _, id := range f.ids(strconv.Itoa(i) + ".history") {
				st.Accept(id)
			}
			before := slices.Clone(logits)
			_, err := s.Full(st, logits, 0)
			require.NoError(t, err)
			require.Equal(t, before, logits, "the row was changed")
			kept := s.Kept()
			for id, v := range want {
				if math.IsInf(float64(v), -1) {
					continue
				}
				require.NotEmpty(t, kept, "id %d", id)
				require.EqualValues(t, id, kept[0].ID)
				require.InDelta(t, v, kept[0].Logit, traceBound)
				kept = kept[1:]
			}
			require.Empty(t, kept)
		})
	}
}

func TestSpeechFollowsTheOriginal(t *testing.T) {
	f := open(t, "speech_llm")
	logits, u, chosen := f.floats("logits"), f.doubles("u"), f.ids("chosen")
	vocab := len(logits) / len(u)
	set := sample.Speech()
	set.Forbidden = sample.NewSet(vocab, f.ids("forbidden_ids")...)
	set.Stop = f.ids("terminator_ids")
	require.NoError(t, set.Validate(vocab))
	st, s := sample.NewState(vocab), sample.New(vocab)
	st.Reset(set, 1, 1)
	for _, id := range f.ids("history") {
		st.Accept(id)
	}
	st.NewChunk()
	for i := range u {
		got, err := s.Full(st, logits[i*vocab:][:vocab], u[i])
		require.NoError(t, err)
		ids, probs := f.ids(strconv.Itoa(i)+".ids"), f.floats(strconv.Itoa(i)+".probs")
		require.Len(t, s.Kept(), len(ids), "step %d", i)
		for k, c := range s.Kept() {
			require.Equal(t, ids[k], c.ID, "step %d", i)
			require.InDelta(t, probs[k], c.Prob, traceBound, "step %d", i)
		}
		require.Equal(t, chosen[i], got, "step %d", i)
		st.Accept(got)
	}
}

// topOf returns the result of a GPU for a row: the n largest values after lowering
// those of forbidden ids, equal ones in random order.
func topOf(rng *rand.Rand, row []float32, forbidden *sample.Set, n int, values []float32, ids []int64) ([]float32, []int64) {
	type pair struct {
		v  float32
		id int64
		r  uint32
	}
	all := make([]pair, len(row))
	for i, v := range row {
		if forbidden.Has(int32(i)) {
			v += -1e9
		}
		all[i] = pair{v, int64(i), rng.Uint32()}
	}
	slices.SortFunc(all, func(a, b pair) int {
		if c := cmp.Compare(b.v, a.v); c != 0 {
			return c
		}
		return cmp.Compare(a.r, b.r)
	})
	values, ids = values[:0], ids[:0]
	for _, p := range all[:min(n, len(all))] {
		values, ids = append(values, p.v), append(ids, p.id)
	}
	return values, ids
}

// For random rows with many equal values and random rules, Top and Full choose the
// same id and use the same random number.
func TestTopIsFull(t *testing.T) {
	const total = 1_000_000
	cases := total
	if !thorough {
		cases = 20_000
	}
	rng := rand.New(rand.NewPCG(4, 2))
	s := sample.New(1)
	var values []float32
	var ids []int64
	var row []float32
	answered, asked := 0, 0
	vocab := 0
	var a, b *sample.State
	for n := range cases {
		if n%500 == 0 {
			vocab = 2 + rng.IntN(70)
			s = sample.New(vocab)
			a, b = sample.NewState(vocab), sample.NewState(vocab)
		}
		row = row[:0]
		levels := 1 + rng.IntN(40)
		for range vocab {
			v := float32(rng.IntN(levels)-levels/2) / 2
			if levels > 20 {
				v += float32(rng.NormFloat64())
			}
			row = append(row, v)
		}
		set := sample.Settings{
			Greedy: rng.IntN(5) == 0, Temperature: []float64{.7, 1, .1, 3}[rng.IntN(4)],
			TopK: rng.IntN(12), TopP: []float64{1, .8, .3, 1e-9}[rng.IntN(4)],
			RepetitionPenalty: []float64{1, 1.02, 1.5, .9}[rng.IntN(4)],
			Window:            rng.IntN(2) * 3, Chunked: rng.IntN(2) == 0, MinTokens: rng.IntN(3) * 4,
			Stop: []int32{int32(rng.IntN(vocab)), int32(rng.IntN(vocab))}, LengthPenalty: []float64{0, 1, 1.3, .8}[rng.IntN(4)],
		}
		if rng.IntN(2) == 0 {
			bad := make([]int32, rng.IntN(vocab))
			for i := range bad {
				bad[i] = int32(rng.IntN(vocab))
			}
			set.Forbidden = sample.NewSet(vocab, bad...)
		}
		seed := rng.Uint64()
		a.Reset(set, seed, 7)
		b.Reset(set, seed, 7)
		for range rng.IntN(8) {
			id := int32(rng.IntN(vocab))
			if rng.IntN(4) == 0 {
				a.NewChunk()
				b.NewChunk()
			}
			a.Accept(id)
			b.Accept(id)
		}
		values, ids = topOf(rng, row, set.Forbidden, 8+rng.IntN(12), values, ids)
		want, wantErr := s.Full(a, row, -1)
		kept := slices.Clone(s.Kept())
		got, ok, err := s.Top(b, values, ids, -1)
		if !ok {
			asked++
			got, err = s.Full(b, row, -1)
		} else {
			answered++
		}
		require.Equal(t, wantErr, err, "case %d: %+v", n, set)
		if err == nil {
			require.Equal(t, want, got, "case %d: %+v", n, set)
			require.Equal(t, kept, s.Kept(), "case %d: %+v", n, set)
		}
	}
	require.Greater(t, answered, cases/4, "the list hardly ever sufficed")
	require.Greater(t, asked, cases/10, "the list always sufficed")
	t.Logf("%d cases, list sufficed in %d", cases, answered)
}

func TestNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	st, s := sample.NewState(4), sample.New(4)
	for _, greedy := range []bool{true, false} {
		set := sample.Chat()
		set.Greedy = greedy
		st.Reset(set, 1, 1)
		for _, row := range [][]float32{{1, nan, 2, 3}, {inf, 1, 2, 3}, {-inf, -inf, -inf, -inf}, {nan, nan, nan, nan}} {
			_, err := s.Full(st, row, -1)
			require.ErrorIs(t, err, sample.ErrNotFinite)
		}
		_, _, err := s.Top(st, []float32{nan, 1}, []int64{0, 1}, -1)
		require.ErrorIs(t, err, sample.ErrNotFinite)
		id, err := s.Full(st, []float32{-inf, -inf, 5, -inf}, -1)
		require.NoError(t, err)
		require.EqualValues(t, 2, id)
	}
	_, err := s.Full(st, []float32{1, 2}, -1)
	require.ErrorContains(t, err, "expected a row of 4 logits")
	_, _, err = s.Top(st, []float32{1}, []int64{4}, -1)
	require.ErrorContains(t, err, "expected ids below 4")
}

func TestSeeds(t *testing.T) {
	row := make([]float32, 50)
	draw := func(seed, stream uint64) (out []int32) {
		st, s := sample.NewState(len(row)), sample.New(len(row))
		st.Reset(sample.Chat(), seed, stream)
		for range 20 {
			id, err := s.Full(st, row, -1)
			require.NoError(t, err)
			out = append(out, id)
			st.Accept(id)
		}
		return out
	}
	first, again := draw(1, 2), draw(1, 2)
	require.Equal(t, first, again)
	require.NotEqual(t, draw(1, 2), draw(1, 3))
	require.NotEqual(t, draw(1, 2), draw(2, 2))
}

func TestBadSettings(t *testing.T) {
	require.NoError(t, sample.Chat().Validate(10))
	require.NoError(t, sample.Speech().Validate(10))
	bad := sample.Settings{
		Temperature: -1, TopK: -1, TopP: 2, RepetitionPenalty: math.NaN(), Window: -1, MinTokens: -1,
		LengthPenalty: -1, Stop: []int32{10}, Forbidden: sample.NewSet(2, 0, 1),
	}
	err := bad.Validate(2)
	for _, name := range []string{
		"temperature", "top_k", "top_p", "repetition_penalty", "window", "min_tokens", "length_penalty", "stop id", "forbidden",
	} {
		require.ErrorContains(t, err, name)
	}
}

// A vocabulary and a list of the real model's size.
func realRow() (row, values []float32, ids []int64) {
	rng := rand.New(rand.NewPCG(1, 1))
	row = make([]float32, 151748)
	for i := range row {
		row[i] = float32(rng.NormFloat64() * 3)
	}
	values, ids = topOf(rng, row, nil, 256, nil, nil)
	return row, values, ids
}

func TestNothingIsAllocatedPerToken(t *testing.T) {
	row, values, ids := realRow()
	st, s := sample.NewState(len(row)), sample.New(len(row))
	set := sample.Chat()
	set.Stop = []int32{5, 6}
	st.Reset(set, 1, 1)
	n := testing.AllocsPerRun(100, func() {
		id, ok, err := s.Top(st, values, ids, -1)
		require.True(t, ok)
		require.NoError(t, err)
		st.Accept(id)
	})
	require.Zero(t, n)
	_, err := s.Full(st, row, -1)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(5, func() { _, _ = s.Full(st, row, -1) }))
}

func BenchmarkTop(b *testing.B) {
	row, values, ids := realRow()
	st, s := sample.NewState(len(row)), sample.New(len(row))
	set := sample.Chat()
	set.Stop = []int32{5, 6}
	st.Reset(set, 1, 1)
	for range 40 {
		id, _, _ := s.Top(st, values, ids, -1)
		st.Accept(id)
	}
	for b.Loop() {
		_, _, _ = s.Top(st, values, ids, -1)
	}
}

func BenchmarkFull(b *testing.B) {
	row, _, _ := realRow()
	st, s := sample.NewState(len(row)), sample.New(len(row))
	st.Reset(sample.Chat(), 1, 1)
	for b.Loop() {
		_, _ = s.Full(st, row, -1)
	}
}
