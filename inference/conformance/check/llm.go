package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"touchline/inference/internal/host"
	"touchline/models"
)

// decoder is a language model with the check's extra outputs, and its embedding
// lookup.
type decoder struct {
	dims       models.Decoder
	llm, embed *host.Network
}

// room is the maximum number of positions of an answer.
const room = 64

// prefill runs a prompt from an empty cache.
func (d *decoder) prefill(embeds []float32, want ...string) map[string]host.Value {
	tokens := len(embeds) / d.dims.Hidden
	d.llm.Drop()
	sizes := map[string]int{"B": 1, "M": tokens + room}
	for i := range d.dims.Layers {
		for _, side := range []string{".key", ".value"} {
			must(d.llm.Hold("past_key_values."+strconv.Itoa(i)+side, sizes))
		}
	}
	return d.step(embeds, 0, want...)
}

// step runs further tokens after past ones in the cache.
func (d *decoder) step(embeds []float32, past int, want ...string) map[string]host.Value {
	return d.feed(embeds, past, 1, want...)
}

// feed is step with the outputs of the last rows positions.
func (d *decoder) feed(embeds []float32, past, rows int, want ...string) map[string]host.Value {
	tokens := len(embeds) / d.dims.Hidden
	if tokens == 0 || tokens*d.dims.Hidden != len(embeds) {
		must(fmt.Errorf("expected rows of %d numbers, got %d", d.dims.Hidden, len(embeds)))
	}
	last := make([]int64, rows)
	for i := range last {
		last[i] = int64(tokens - rows + i)
	}
	return need(d.llm.Run(map[string]host.Value{
		"inputs_embeds":         {Shape: []int{1, tokens, d.dims.Hidden}, Floats: embeds},
		"seqlens_k":             {Shape: []int{1}, Ints: []int64{int64(past + tokens - 1)}},
		"total_sequence_length": {Shape: []int{}, Ints: []int64{int64(past + tokens)}},
		"last_position":         {Shape: []int{rows}, Ints: last},
		"logits_bias":           {Shape: []int{1, d.dims.Vocab}, Floats: make([]float32, d.dims.Vocab)},
	}, want...))
}

func (d *decoder) embeddings(ids []int32) []float32 {
	wide := make([]int64, len(ids))
	for i, id := range ids {
		if id < 0 || int(id) >= d.dims.Vocab {
			must(fmt.Errorf("expected ids below %d, got %d", d.dims.Vocab, id))
		}
		wide[i] = int64(id)
	}
	return need(d.embed.Run(map[string]host.Value{"input_ids": {Shape: []int{len(ids)}, Ints: wide}}, "embeds"))["embeds"].Floats
}

func argmax(row []float32) int32 {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return int32(best)
}

// gap returns the difference of the largest two values of a row.
func gap(row []float32) float64 {
	first, second := math.Inf(-1), math.Inf(-1)
	for _, v := range row {
		if x := float64(v); x > first {
			first, second = x, first
		} else if x > second {
			second = x
		}
	}
	return first - second
}

func largestDifference(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(float64(a[i])-float64(b[i])))
	}
	return worst
}

// tail returns the last rows of a matrix.
func tail(m []float32, width, rows int) []float32 { return m[max(0, len(m)-width*rows):] }

// lookup compares the embeddings of the text with the fixture's, except at the positions of
// pictures or audio.
func (d *decoder) lookup(t *tally, f *tensors) {
	ids, want := f.ids("input_ids"), f.floats("inputs_embeds")
	var bounds []int64
	if f.has("image_bound") {
		bounds = f.ints("image_bound")
	} else {
		var info struct {
			Start int64 `json:"audio_start"`
			Count int64 `json:"audio_tokens"`
		}
		f.info(&info)
		bounds = []int64{info.Start, info.Start + info.Count}
	}
	got := d.embeddings(ids)
	if len(got) != len(want) {
		must(fmt.Errorf("inputs_embeds: expected %d numbers, got %d", len(got), len(want)))
	}
	for i := 0; i+1 < len(bounds); i += 2 {
		from, to := int(bounds[i]), int(bounds[i+1])
		if from < 0 || to < from || to > len(ids) {
			must(fmt.Errorf("pictures or sound: expected positions below %d, got %d to %d", len(ids), from, to))
		}
		copy(got[from*d.dims.Hidden:to*d.dims.Hidden], want[from*d.dims.Hidden:to*d.dims.Hidden])
	}
	t.near(got, want, "inputs_embeds")
}

// compare runs the prompt of embeds and the answer of the fixture f, and compares the results.
func (d *decoder) compare(t *tally, f *tensors, embeds []float32, exact bool) {
	tokens := len(embeds) / d.dims.Hidden
	names := []string{"logits", "all_logits", "all_hidden", "hidden_states", "top_values", "top_ids"}
	for i := range d.dims.Layers + 1 {
		names = append(names, "layer."+strconv.Itoa(i))
	}
	out := d.prefill(embeds, names...)
	vocab, logits := d.dims.Vocab, out["all_logits"].Floats
	d.outputs(t, f, out)
	d.several(t, f, embeds)
	d.caches(t, f, tokens)
	last := f.floats("logits_last8")
	rows := len(last) / vocab
	for i := range rows {
		want, got := last[i*vocab:][:vocab], tail(logits, vocab, rows)[i*vocab:][:vocab]
		if exact || gap(want) > 2*largestDifference(got, want) {
			t.exact(argmax(got) == argmax(want), "position %d from the end: another token is the likeliest", rows-i)
		}
	}
	if exact && f.has("logits_argmax") {
		for i, want := range f.ids("logits_argmax") {
			got := argmax(logits[i*vocab:][:vocab])
			t.exact(got == want, "position %d: expected token %d, got %d", i, want, got)
		}
	}
	d.answer(t, f, out["logits"].Floats, tokens, exact)
}

// outputs compares the outputs of a prefill.
func (d *decoder) outputs(t *tally, f *tensors, out map[string]host.Value) {
	pairs := map[string]string{"logits_last8": "all_logits", "hidden_after_norm_last16": "all_hidden"}
	for i := 0; f.has("hidden_states." + strconv.Itoa(i)); i++ {
		pairs["hidden_states."+strconv.Itoa(i)] = "layer." + strconv.Itoa(i)
	}
	for fixture, output := range pairs {
		want := f.floats(fixture)
		t.near(tail(out[output].Floats, 1, len(want)), want, fixture)
	}
	// The graph's head computes the last position only.
	row := tail(out["all_logits"].Floats, d.dims.Vocab, 1)
	t.near(out["logits"].Floats, row, "logits")
	t.near(out["hidden_states"].Floats, tail(out["all_hidden"].Floats, d.dims.Hidden, 1), "hidden_states")
	sorted := slices.Clone(out["logits"].Floats)
	slices.SortFunc(sorted, func(a, b float32) int { return cmp.Compare(b, a) })
	k := len(out["top_values"].Floats)
	t.exact(k > 0 && slices.Equal(sorted[:k], out["top_values"].Floats), "top_values: not the %d largest logits", k)
	for i, id := range out["top_ids"].Ints {
		if out["logits"].Floats[id] != out["top_values"].Floats[i] {
			t.exact(false, "top_ids: %d is not the token of its value", id)
			break
		}
	}
}

// several compares the hidden states of several positions of a run, which a voice needs for a given text.
func (d *decoder) several(t *tally, f *tensors, embeds []float32) {
	if !d.llm.Graph.Several() {
		return
	}
	want := f.floats("hidden_after_norm_last16")
	out := d.feed(embeds, 0, len(want)/d.dims.Hidden, "hidden_states", "logits")
	t.near(out["hidden_states"].Floats, want, "hidden_states of several positions")
	t.near(out["logits"].Floats, tail(f.floats("logits_last8"), d.dims.Vocab, 1), "logits of several positions")
}

// caches compares keys (after norm and rotation) and values.
func (d *decoder) caches(t *tally, f *tensors, tokens int) {
	for i := range d.dims.Layers {
		for fixture, side := range map[string]string{"prefill_key.": ".key", "prefill_value.": ".value"} {
			name := fixture + strconv.Itoa(i)
			if !f.has(name) {
				continue
			}
			cache := need(d.llm.Cache("past_key_values." + strconv.Itoa(i) + side))
			var got []float32
			positions := cache.Shape[2]
			for head := range d.dims.KVHeads {
				got = append(got, cache.Floats[head*positions*d.dims.HeadDim:][:tokens*d.dims.HeadDim]...)
			}
			t.near(got, f.floats(name), name)
		}
	}
}

// answer feeds the tokens of the fixture's answer one by one.
func (d *decoder) answer(t *tally, f *tensors, logits []float32, past int, exact bool) {
	ids, values, best := f.ids("greedy_ids"), f.floats("greedy_top5_logits"), f.ids("greedy_top5_ids")
	var hidden []float32
	if f.has("greedy_hidden_first8") {
		hidden = f.floats("greedy_hidden_first8")
	}
	if len(ids) == 0 || len(ids) > room || len(values) != len(best) || len(values)%len(ids) != 0 {
		must(fmt.Errorf("expected 1 to %d tokens with their best logits, got %d with %d and %d", room, len(ids), len(values), len(best)))
	}
	per := len(values) / len(ids)
	for i, id := range ids {
		var got []float32
		for _, b := range best[i*per:][:per] {
			if b < 0 || int(b) >= d.dims.Vocab {
				must(fmt.Errorf("greedy_top5_ids: expected ids below %d, got %d", d.dims.Vocab, b))
			}
			got = append(got, logits[b])
		}
		want := values[i*per:][:per]
		t.near(got, want, fmt.Sprintf("logits of token %d", i))
		if exact || per > 1 && float64(want[0]-want[1]) > 2*largestDifference(got, want) {
			t.exact(argmax(logits) == id, "token %d: expected %d, got %d", i, id, argmax(logits))
		}
		embeds := d.embeddings([]int32{id})
		out := d.step(embeds, past+i, "logits", "hidden_states")
		logits = out["logits"].Floats
		if at := i * d.dims.Hidden; at < len(hidden) {
			t.near(out["hidden_states"].Floats, hidden[at:][:d.dims.Hidden], fmt.Sprintf("hidden state of token %d", i))
		}
	}
}
