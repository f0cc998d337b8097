package minicpmo_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/graph"
)

// decoder loads the language model of a checkpoint.
func (m *machine) decoder(of model, o graph.Options) *network {
	m.tb.Helper()
	o.Device = m.kind
	if o.Weights == "" {
		o.Weights = m.float
	}
	d, err := graph.Decoder(of.Dims, o)
	return m.load(write(m.tb, d, err, of.weights))
}

// embed returns token embeddings.
func embed(m model, ids ...int64) []float32 {
	table := m.weights["llm.model.embed_tokens.weight"]
	var out []float32
	for _, id := range ids {
		out = append(out, table.values[int(id)*table.cols:][:table.cols]...)
	}
	return out
}

// step runs tokens through the decoder: embeds is [rows, tokens, hidden] and
// past has the filled positions of each row.
func (n *network) step(m model, embeds []float32, past []int, c *cache, first int) map[string]array {
	n.tb.Helper()
	return n.biased(m, embeds, past, c, first, floatArray(make([]float32, m.Decoder.Vocab), 1, int64(m.Decoder.Vocab)))
}

func (n *network) biased(
	m model, embeds []float32, past []int, c *cache, first int, bias array,
) map[string]array {
	n.tb.Helper()
	return n.positioned(m, embeds, past, c, first, bias, 1)
}

// positioned returns the hidden states of the last of several positions.
func (n *network) positioned(
	m model, embeds []float32, past []int, c *cache, first int, bias array, several int,
) map[string]array {
	n.tb.Helper()
	rows := len(past)
	tokens := len(embeds) / rows / m.Decoder.Hidden
	last := make([]int64, rows)
	for i, p := range past {
		last[i] = int64(p + tokens - 1)
	}
	var at []int64
	for i := range several {
		at = append(at, int64(tokens-several+i))
	}
	return n.run(map[string]array{
		"inputs_embeds":         floatArray(embeds, int64(rows), int64(tokens), int64(m.Decoder.Hidden)),
		"seqlens_k":             intArray(last, int64(rows)),
		"total_sequence_length": intArray([]int64{slices.Max(last) + 1}),
		"last_position":         intArray(at, int64(several)),
		"logits_bias":           bias,
	}, c, first, rows)
}

func TestDecoder(t *testing.T) {
	parallel(t)
	m := load(t, "tiny")
	on := startMachine(t)
	check, plain := on.decoder(m, graph.Options{Check: true}), on.decoder(m, graph.Options{})
	vocab := m.Decoder.Vocab
	for _, name := range []string{"text", "two_images", "sliced"} {
		f := openFixture(t, "llm_"+name)
		embeds := f.floats("inputs_embeds")
		tokens := len(embeds) / m.Decoder.Hidden
		c := on.cache(m.Decoder, 1, tokens+64)
		out := check.step(m, embeds, []int{0}, c, 0)

		logits, hidden := out["all_logits"], out["all_hidden"]
		on.near(name+" logits", f.floats("logits_last8"), logits.floats[(tokens-8)*vocab:])
		on.near(name+" hidden", f.floats("hidden_after_norm_last16"), hidden.floats[(tokens-16)*m.Decoder.Hidden:])
		for i, want := range f.ints("logits_argmax") {
			if on.kind == models.DeviceCPU {
				require.Equal(t, int(want), argmax(logits.row(i)), "%s: best id of position %d", name, i)
			}
		}
		for l := 0; f.has("hidden_states." + strconv.Itoa(l)); l++ {
			layer := strconv.Itoa(l)
			on.near(name+" layer "+layer, f.floats("hidden_states."+layer), out["layer."+layer].floats)
		}
		for l := 0; f.has("prefill_key." + strconv.Itoa(l)); l++ {
			layer := strconv.Itoa(l)
			on.near(name+" keys "+layer, f.floats("prefill_key."+layer), on.read(c, layer+".key", 0, tokens))
			on.near(name+" values "+layer, f.floats("prefill_value."+layer), on.read(c, layer+".value", 0, tokens))
		}

		// The production graph: the last position only, and the best ids.
		c = on.cache(m.Decoder, 1, tokens+64)
		out = plain.step(m, embeds, []int{0}, c, 0)
		want := f.floats("logits_last8")[7*vocab:]
		on.near(name+" last logits", want, out["logits"].floats)
		on.near(name+" last hidden", f.floats("hidden_after_norm_last16")[15*m.Decoder.Hidden:], out["hidden_states"].floats)
		requireTop(t, out)

		if on.kind == models.DeviceCPU {
			greedy(t, on, plain, m, f, c, tokens, out)
		}
	}
}

// greedy continues a prefill and compares with the recorded tokens.
func greedy(
	t *testing.T, on *machine, n *network, m model, f fixture, c *cache, past int, out map[string]array,
) {
	t.Helper()
	ids, bestIDs, best := f.ints("greedy_ids"), f.ints("greedy_top5_ids"), f.floats("greedy_top5_logits")
	hidden := f.floats("greedy_hidden_first8")
	for i, id := range ids {
		require.Equal(t, bestIDs[5*i:5*i+5], out["top_ids"].ints[:5], "step %d", i)
		require.InDeltaSlice(t, best[5*i:5*i+5], out["top_values"].floats[:5], 1e-4, "step %d", i)
		require.Equal(t, id, out["top_ids"].ints[0])
		out = n.step(m, embed(m, id), []int{past + i}, c, 0)
		if i < 8 {
			worst := apart(t, hidden[i*m.Decoder.Hidden:][:m.Decoder.Hidden], out["hidden_states"].floats)
			require.LessOrEqual(t, worst, on.bound, "hidden state of step %d", i)
		}
	}
}

// requireTop checks the best ids against the row of logits.
func requireTop(t *testing.T, out map[string]array) {
	t.Helper()
	values, ids, logits := out["top_values"], out["top_ids"], out["logits"]
	require.Equal(t, values.shape, ids.shape)
	require.EqualValues(t, min(graph.TopK, int(logits.shape[2])), ids.shape[2])
	for r := range int(ids.shape[0]) {
		row, count := logits.row(r), int(ids.shape[2])
		sorted := slices.Clone(row)
		slices.SortFunc(sorted, func(a, b float32) int { return -compare(a, b) })
		require.Equal(t, sorted[:count], values.row(r))
		for k, id := range ids.ints[r*count : (r+1)*count] {
			require.Equal(t, row[id], values.row(r)[k])
		}
	}
}

func compare(a, b float32) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestDecoderBias(t *testing.T) {
	m := load(t, "tiny")
	on := startMachine(t)
	n := on.decoder(m, graph.Options{})
	vocab := m.Decoder.Vocab
	c := on.cache(m.Decoder, 2, 8)
	embeds := embed(m, 5, 9)
	free := n.step(m, embeds, []int{0, 0}, c, 0)
	best := []int64{free["top_ids"].ints[0], free["top_ids"].ints[free["top_ids"].shape[2]]}

	for _, tt := range []struct {
		name string
		rows int
	}{{"one bias for all", 1}, {"a bias per row", 2}} {
		t.Run(tt.name, func(t *testing.T) {
			bias := make([]float32, tt.rows*vocab)
			for r := range tt.rows {
				bias[r*vocab+int(best[r])] = -1e30
			}
			out := n.biased(m, embeds, []int{0, 0}, c, 0, floatArray(bias, int64(tt.rows), int64(vocab)))
			require.Equal(t, free["logits"], out["logits"], "the logits have no bias")
			for r := range 2 {
				count := int(out["top_ids"].shape[2])
				ids := out["top_ids"].ints[r*count : (r+1)*count]
				require.Equal(t, bias[(r%tt.rows)*vocab+int(best[r])] != 0, !slices.Contains(ids, best[r]), "row %d", r)
			}
		})
	}
}

// TestDecoderSlots fills the rows of one buffer in pieces and decodes them together.
// Each row must have the results of a separate run.
func TestDecoderSlots(t *testing.T) {
	parallel(t)
	m := load(t, "tiny")
	on := startMachine(t)
	n := on.decoder(m, graph.Options{})
	rng := rand.New(rand.NewPCG(7, 7))
	const rows, steps, positions = 8, 6, 160
	lengths := [rows]int{5, 40, 17, 0, 33, 100, 1, 64} // 0: an empty row
	var prompts [rows][]float32
	for r := range prompts {
		ids := make([]int64, lengths[r]+steps)
		for i := range ids {
			ids[i] = rng.Int64N(int64(m.Decoder.Vocab))
		}
		prompts[r] = embed(m, ids...)
	}
	width := m.Decoder.Hidden
	part := func(r, from, to int) []float32 { return prompts[r][from*width : to*width] }

	var alone [rows][steps]map[string]array
	for r, length := range lengths {
		if length == 0 {
			continue
		}
		c := on.cache(m.Decoder, 1, positions)
		n.step(m, part(r, 0, length), []int{0}, c, 0)
		for k := range steps {
			alone[r][k] = n.step(m, part(r, length+k, length+k+1), []int{length + k}, c, 0)
		}
	}

	c := on.cache(m.Decoder, rows, positions)
	for r, length := range lengths {
		if half := length / 2; half > 0 {
			n.step(m, part(r, 0, half), []int{0}, c, r)
		}
		if length > 0 {
			n.step(m, part(r, length/2, length), []int{length / 2}, c, r)
		}
	}
	past := slices.Clone(lengths[:])
	for k := range steps {
		var embeds []float32
		for r, length := range lengths {
			at := length + k
			if length == 0 {
				at = 0
			}
			embeds = append(embeds, part(r, at, at+1)...)
		}
		out := n.step(m, embeds, past, c, 0)
		if k == 2 { // another prompt starts in the empty row
			n.step(m, part(3, 0, 4), []int{0}, c, 3)
		}
		for r, length := range lengths {
			if length == 0 {
				continue
			}
			past[r]++
			what := "row " + strconv.Itoa(r) + " step " + strconv.Itoa(k)
			worst := apart(t, alone[r][k]["logits"].floats, out["logits"].row(r))
			require.LessOrEqual(t, worst, on.bound, what)
			if on.kind == models.DeviceCPU {
				require.Equal(t, argmax(alone[r][k]["logits"].floats), argmax(out["logits"].row(r)), what)
			}
		}
	}
}

// TestRowsDoNotMix decodes a row next to rows of other numbers and NaN. Its results
// must not change by a bit.
func TestRowsDoNotMix(t *testing.T) {
	parallel(t)
	m := load(t, "tiny")
	on := startMachine(t)
	const rows, steps, positions, mine = 8, 4, 64, 2
	for _, weights := range []models.Weights{"", models.WeightsInt4} {
		t.Run("weights "+string(weights), func(t *testing.T) {
			n := on.decoder(m, graph.Options{Weights: weights})
			ids := []int64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
			length := len(ids) - steps
			decode := func(other func(row, step int) []float32) (out [][]float32) {
				c := on.cache(m.Decoder, rows, positions)
				n.step(m, embed(m, ids[:length]...), []int{0}, c, mine)
				past := make([]int, rows)
				past[mine] = length
				for k := range steps {
					var embeds []float32
					for r := range rows {
						if r == mine {
							embeds = append(embeds, embed(m, ids[length+k])...)
						} else {
							embeds = append(embeds, other(r, k)...)
						}
					}
					got := n.step(m, embeds, past, c, 0)
					out = append(out, slices.Clone(got["logits"].row(mine)), slices.Clone(got["hidden_states"].row(mine)))
					for r := range past {
						past[r]++
					}
				}
				return out
			}
			fill := func(v float32) []float32 {
				row := make([]float32, m.Decoder.Hidden)
				for i := range row {
					row[i] = v
				}
				return row
			}
			want := decode(func(int, int) []float32 { return fill(0) })
			for _, row := range want {
				require.False(t, math.IsNaN(float64(row[0])))
			}
			rng := rand.New(rand.NewPCG(8, 8))
			require.Equal(t, want, decode(func(int, int) []float32 { return embed(m, rng.Int64N(int64(m.Decoder.Vocab))) }), "others decode")
			nan := float32(math.NaN())
			require.Equal(t, want, decode(func(r, k int) []float32 {
				if r > mine || k > 1 {
					return fill(nan)
				}
				return fill(1)
			}), "others are not finite")
		})
	}
}

// TestInt4Graph compares int4 graphs with float graphs of the same rounded values.
func TestInt4Graph(t *testing.T) {
	parallel(t)
	m := load(t, "tiny")
	on := startMachine(t)
	on.bound = max(on.bound, int4Bound)
	f := openFixture(t, "llm_two_images")
	embeds := f.floats("inputs_embeds")
	tokens := len(embeds) / m.Decoder.Hidden
	for _, tt := range []struct{ block, head int }{{32, 8}, {32, 4}, {128, 8}, {64, 16}, {16, 4}} {
		o := graph.Options{Weights: models.WeightsInt4, Block: tt.block, Head: tt.head, Check: true}
		n := on.decoder(m, o)
		rounded := m
		rounded.weights = m.weights.rounded(n.Weights)
		float := on.decoder(rounded, graph.Options{Check: true})
		want := float.step(m, embeds, []int{0}, on.cache(m.Decoder, 1, tokens), 0)
		have := n.step(m, embeds, []int{0}, on.cache(m.Decoder, 1, tokens), 0)
		what := "block " + strconv.Itoa(tt.block) + " head " + strconv.Itoa(tt.head)
		on.near(what, want["all_logits"].floats, have["all_logits"].floats)
		require.Greater(t, apart(t, f.floats("logits_last8"), want["all_logits"].floats[(tokens-8)*m.Decoder.Vocab:]),
			0.01, "rounding has no effect")

		// A single token uses another kernel.
		c := on.cache(m.Decoder, 1, tokens)
		last := (tokens - 1) * m.Decoder.Hidden
		n.step(m, embeds[:last], []int{0}, c, 0)
		have = n.step(m, embeds[last:], []int{tokens - 1}, c, 0)
		on.near(what+" one token", want["logits"].floats, have["logits"].floats)
	}
}

// TestOddInputs has matrices whose inputs are not a multiple of the block.
func TestOddInputs(t *testing.T) {
	parallel(t)
	m := load(t, "tiny")
	on := startMachine(t)
	on.bound = max(on.bound, int4Bound)
	// 3 heads instead of 6: the output matrix has 144 inputs with heads of 48.
	d := &m.Decoder
	d.Heads, d.KVHeads, d.HeadDim = 3, 3, 48
	m.weights = maps.Clone(m.weights)
	for name, t := range m.weights {
		switch {
		case !contains(name, "llm.model.layers."):
		case contains(name, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
			m.weights[name] = tensor{rows: 144, cols: t.cols, values: t.values[:144*t.cols]}
		case contains(name, "self_attn.o_proj"):
			m.weights[name] = tensor{rows: t.rows, cols: 144, values: t.values[:144*t.rows]}
		case contains(name, "q_norm", "k_norm"):
			m.weights[name] = tensor{rows: 48, cols: 1, values: t.values[:48]}
		}
	}
	n := on.decoder(m, graph.Options{Weights: models.WeightsInt4})
	rounded := m
	rounded.weights = m.weights.rounded(n.Weights)
	float := on.decoder(rounded, graph.Options{})
	embeds := embed(m, 3, 1, 4, 1, 5, 9, 2, 6)
	want := float.step(m, embeds, []int{0}, on.cache(m.Decoder, 1, 8), 0)
	have := n.step(m, embeds, []int{0}, on.cache(m.Decoder, 1, 8), 0)
	on.near("144 inputs in blocks of 32", want["logits"].floats, have["logits"].floats)
}

// TestAWQ runs the packed layers of a checkpoint with their zero points.
func TestAWQ(t *testing.T) {
	parallel(t)
	m := load(t, "tiny-awq")
	on := startMachine(t)
	f := openFixture(t, "awq_text")
	embeds := openFixture(t, "llm_text").floats("inputs_embeds")
	tokens := len(embeds) / m.Decoder.Hidden
	want := f.floats("logits_last8")

	float := on.decoder(m, graph.Options{Check: true})
	out := float.step(m, embeds, []int{0}, on.cache(m.Decoder, 1, tokens), 0)
	on.near("dequantised", want, out["all_logits"].floats[(tokens-8)*m.Decoder.Vocab:])

	// The vocabulary matrix is not packed and stays unchanged.
	d, err := graph.Decoder(m.Dims, graph.Options{
		Device: on.kind, Weights: models.WeightsInt4, Block: 128, ZeroPoints: true, Head: 16, Check: true,
	})
	n := on.load(write(t, d, err, m.weights.packed(m.source)))
	c := on.cache(m.Decoder, 1, tokens)
	out = n.step(m, embeds, []int{0}, c, 0)
	on.near("packed", want, out["all_logits"].floats[(tokens-8)*m.Decoder.Vocab:])
	on.near("packed hidden", f.floats("hidden_after_norm_last16"), out["all_hidden"].floats[(tokens-16)*m.Decoder.Hidden:])
	last := (tokens - 1) * m.Decoder.Hidden
	out = n.step(m, embeds[last:], []int{tokens - 1}, c, 0)
	on.near("packed, one token", want[7*m.Decoder.Vocab:], out["logits"].floats)
}

func TestEmbed(t *testing.T) {
	m := load(t, "tiny")
	on := startMachine(t)
	d, err := graph.Embed(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	n := on.load(write(t, d, err, m.weights))
	ids := []int64{0, 7, 1361, 7}
	out := n.run(map[string]array{"input_ids": intArray(ids, 4)}, nil, 0, 0)["embeds"]
	require.Equal(t, []int64{4, int64(m.Decoder.Hidden)}, out.shape)
	on.near("embeddings", embed(m, ids...), out.floats)
}

func TestTiedHead(t *testing.T) {
	m := load(t, "tiny")
	on := startMachine(t)
	m.weights = maps.Clone(m.weights)
	m.weights["llm.lm_head.weight"] = m.weights["llm.model.embed_tokens.weight"]
	want := on.decoder(m, graph.Options{}).step(m, embed(m, 1, 2, 3), []int{0}, on.cache(m.Decoder, 1, 4), 0)
	m.Decoder.TiedHead = true
	delete(m.weights, "llm.lm_head.weight")
	have := on.decoder(m, graph.Options{}).step(m, embed(m, 1, 2, 3), []int{0}, on.cache(m.Decoder, 1, 4), 0)
	require.Equal(t, want["logits"], have["logits"])
}
