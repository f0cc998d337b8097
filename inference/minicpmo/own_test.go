package minicpmo

import (
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/cuda"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

const (
	ownSlots  = 8
	ownMaxLen = 512
)

// cudaBundle converts a checkpoint to int4 and fp16 for CUDA.
func cudaBundle(t *testing.T, name string, head int) *models.Bundle {
	t.Helper()
	return converted(t, name, convert.Options{Head: head})
}

// converted converts a checkpoint of the test data.
func converted(t *testing.T, name string, o convert.Options) *models.Bundle {
	t.Helper()
	const data = "../../models/testdata/"
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(data+name)))
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} { // tiny-awq has none
		content, err := os.ReadFile(data + "tiny/" + file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), content, 0o600))
	}
	src, err := checkpoint.Open(folder)
	require.NoError(t, err)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, dir, o))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	return b
}

// withoutTensors returns a bundle as of a format before 7.
func withoutTensors(b *models.Bundle) *models.Bundle {
	old := *b
	old.Manifest.Graphs = slices.Clone(b.Manifest.Graphs)
	for i := range old.Manifest.Graphs {
		old.Manifest.Graphs[i].Tensors = nil
	}
	return &old
}

// needGPU skips the test where there is no GPU, or fails it with -cuda.
func needGPU(t *testing.T) {
	t.Helper()
	d, err := orttest.Open(t).NewDevice(ort.CUDA, 0)
	if err != nil && flag.Lookup("cuda").Value.String() != "true" {
		require.ErrorIs(t, err, ort.ErrNoCUDA)
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// openOwn opens a bundle on the first GPU and warms it up, which checks its own kernels.
func openOwn(t *testing.T, b *models.Bundle, weights string, o Options) *device {
	t.Helper()
	return openOn(t, b, "cuda", weights, o)
}

// openOn is openOwn for a kind of device.
func openOn(t *testing.T, b *models.Bundle, kind, weights string, o Options) *device {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	o.Config, o.Now = DefaultSettings(), time.Now
	c := &o.Config.MiniCPM
	c.Runtime, c.Device, c.Weights, c.Slots, c.MaxLen = orttest.Library(t), kind, weights, ownSlots, ownMaxLen
	m, err := OpenDevice(t.Context(), b, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m.d
}

func TestOwn(t *testing.T) {
	orttest.NoLeaks(t)
	needGPU(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // all cases share the compiled kernels
	head8, head4 := cudaBundle(t, "tiny", 8), cudaBundle(t, "tiny", 4)
	awq8, awq4 := cudaBundle(t, "tiny-awq", 8), cudaBundle(t, "tiny-awq", 4)
	bundles := map[string]*models.Bundle{
		"head of 8 bits": head8, "head of 4 bits": head4, "AWQ, head of 8 bits": awq8, "AWQ, head of 4 bits": awq4,
	}
	t.Run("opens", func(t *testing.T) {
		for _, tt := range []struct {
			name    string
			bundle  *models.Bundle
			weights string
			stock   bool
			none    string // the reason for none
		}{
			{"head of 8 bits", head8, "auto", false, ""},
			{"head of 4 bits", head4, "auto", false, ""},
			{"only int4, head of 8 bits", head8, "int4", false, ""},
			{"only int4, head of 4 bits", head4, "int4", false, ""},
			{"AWQ, head of 8 bits", awq8, "auto", false, ""},
			{"AWQ, head of 4 bits", awq4, "auto", false, ""},
			{"AWQ, head of 16 bits", cudaBundle(t, "tiny-awq", 16), "auto", false, "the vocabulary matrix has 16 bits"},
			{"only fp16", head8, "fp16", false, "weights are fp16"},
			{"stock", head8, "auto", true, "switched off"},
			{"a bundle of a former format", withoutTensors(head8), "auto", false, "touchline models upgrade"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				d := openOwn(t, tt.bundle, tt.weights, Options{Stock: tt.stock})
				if tt.none != "" {
					require.Zero(t, d.decoder.Own.Rows())
					require.ErrorIs(t, d.why, cuda.ErrNone)
					require.ErrorContains(t, d.why, tt.none)
					return
				}
				require.NoError(t, d.why)
				require.Positive(t, d.decoder.Own.Rows())
			})
		}
	})
	t.Run("broken", func(t *testing.T) {
		for name, weights := range brokenWeights(t) {
			for kind, b := range bundles {
				t.Run(name+", "+kind, func(t *testing.T) {
					d := openOwn(t, b, "auto", Options{test: testOptions{weights: weights}})
					require.Zero(t, d.decoder.Own.Rows())
					require.ErrorIs(t, d.why, cuda.ErrNone)
					require.ErrorContains(t, d.why, "the check of ")
					t.Log(d.why)
					f := &ownSteps{t, d}
					f.compare([]int{2}, []int{5}, 2, 2, d.ownSet) // ONNX Runtime serves
				})
			}
		}
	})
	t.Run("kernels that lost the GPU", func(t *testing.T) {
		t.Run("lose it", func(t *testing.T) {
			d := openOwn(t, head8, "auto", Options{})
			lost := errors.Join(ort.ErrDeviceLost, &ort.Error{CUDA: true, Code: 700})
			require.ErrorIs(t, d.decoder.Own.End(lost), ort.ErrDeviceLost)
		})
		t.Run("next start", func(t *testing.T) {
			d := openOwn(t, head8, "auto", Options{})
			require.Zero(t, d.decoder.Own.Rows())
			require.ErrorIs(t, d.why, cuda.ErrNone)
			require.ErrorContains(t, d.why, "these kernels lost the GPU")
		})
		marks, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "touchline", "kernels", "*.failed"))
		require.NoError(t, err)
		require.Len(t, marks, 1)
		require.NoError(t, os.Remove(marks[0]))
	})
	for name, run := range map[string]func(*ownSteps){
		"equal": (*ownSteps).equal, "rows do not mix": (*ownSteps).rowsDoNotMix,
		"lengths": (*ownSteps).lengths, "other set": (*ownSteps).otherSet,
	} {
		for kind, b := range bundles {
			t.Run(name+", "+kind, func(t *testing.T) { // all on one thread
				d := openOwn(t, b, "auto", Options{})
				require.NoError(t, d.why)
				if name == "other set" && len(d.sel.decoders) == 1 {
					t.Skip("it has no other")
				}
				run(&ownSteps{t, d})
			})
		}
	}
}

// brokenWeights are changes that a check must notice.
func brokenWeights(t *testing.T) map[string]func(*device) {
	t.Helper()
	// copied returns a copy of a weight with some bytes after it, and its size.
	copied := func(d *device, name string, more int64) (*ort.Memory, int64) {
		tensors := d.sel.decoders[d.ownSet].Tensors
		i := slices.IndexFunc(tensors, func(w models.Tensor) bool { return w.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		size := tensors[i].Bytes()
		m := d.placed[d.ownSet].Memory(name, size+more)
		require.NoError(t, d.placed[d.ownSet].Err())
		require.NoError(t, d.dev.Memset(m.At(0), 0, size+more))
		require.NoError(t, d.dev.CopyDevice(m.At(0), d.weights[name], size))
		return m, size
	}
	return map[string]func(*device){
		"wrong scale": func(d *device) { d.weights["layers.1.o.scales"] = d.weights["layers.0.o.scales"] },
		"heads swapped": func(d *device) {
			for _, name := range []string{"layers.0.qkv.quants", "layers.0.qkv.scales"} {
				from, size := copied(d, name, 0)
				to, _ := copied(d, name, 0)
				c := d.sel.dims.Decoder
				head := size / int64(c.Heads+2*c.KVHeads)
				require.NoError(t, d.dev.CopyDevice(to.At(0), from.At(head), head))
				require.NoError(t, d.dev.CopyDevice(to.At(head), from.At(0), head))
				d.weights[name] = to.At(0)
			}
		},
		"positions off by one": func(d *device) {
			for _, name := range []string{"rotary.cos", "rotary.sin"} {
				row := int64(d.sel.dims.Decoder.HeadDim) // half of it in float16
				m, _ := copied(d, name, row)
				d.weights[name] = m.At(row)
			}
		},
	}
}

// ownSteps runs steps of both kinds on a device.
type ownSteps struct {
	t *testing.T
	d *device
}

// token returns the token of a slot at a position.
func (f *ownSteps) token(slot, position int) int32 {
	return int32((slot*7919 + position*104729 + 17) % f.d.sel.dims.Decoder.Vocab)
}

// prompt zeroes a slot and feeds it the tokens of some positions.
func (f *ownSteps) prompt(slot, length int) {
	f.t.Helper()
	require.NoError(f.t, f.d.clear(slot))
	p := &prompt{}
	for i := range length {
		p.ids = append(p.ids, f.token(slot, i))
	}
	for from := 0; from < length; from += f.d.sel.chunk {
		require.NoError(f.t, f.d.prefill(f.d.sel.prefill, slot, p, from, min(from+f.d.sel.chunk, length), 0))
	}
}

// inputs returns the inputs of the n-th step after prompts of some lengths.
func (f *ownSteps) inputs(slots, lengths []int, n int) (tokens, positions []int32) {
	tokens, positions = slices.Repeat([]int32{-1}, ownSlots), make([]int32, ownSlots)
	for i, slot := range slots {
		tokens[slot], positions[slot] = f.token(slot, lengths[i]+n), int32(lengths[i]+n)
	}
	return tokens, positions
}

// run runs a step as the loop does, and stock without own kernels.
func (f *ownSteps) run(set int, tokens, lengths []int32) {
	f.t.Helper()
	require.NoError(f.t, f.d.decode(set, kvcache.Range{Size: ownSlots}, tokens, lengths, true))
}

func (f *ownSteps) stock(set int, tokens, lengths []int32) {
	f.t.Helper()
	r := kvcache.Range{Size: ownSlots}
	require.NoError(f.t, f.d.decoder.Tokens(set, r, tokens, lengths))
	require.NoError(f.t, f.d.fetch(r, true))
}

// ownResults are the results of a slot's step.
type ownResults struct {
	logits, values, state []float32
	ids                   []int64
}

func (f *ownSteps) results(slot int) ownResults {
	f.t.Helper()
	logits, err := f.d.logits(slot)
	require.NoError(f.t, err)
	values, ids := f.d.top(slot)
	return ownResults{slices.Clone(logits), slices.Clone(values), slices.Clone(f.d.hidden(slot)), slices.Clone(ids)}
}

func (r ownResults) equal(o ownResults) bool {
	return slices.Equal(r.logits, o.logits) && slices.Equal(r.values, o.values) && slices.Equal(r.state, o.state) &&
		slices.Equal(r.ids, o.ids)
}

// keys returns the keys of a slot.
func (f *ownSteps) keys(slot int) (all []byte) {
	f.t.Helper()
	f.changeKeys(slot, func(keys []byte) { all = append(all, keys...) })
	return all
}

func (f *ownSteps) changeKeys(slot int, change func(keys []byte)) {
	f.t.Helper()
	host, err := f.d.dev.HostAlloc(f.d.sel.layout.SlotBytes())
	require.NoError(f.t, err)
	require.NoError(f.t, f.d.decoder.ChangeKeys(slot, host, change))
	require.NoError(f.t, host.Close())
}

// equal repeats steps, whose results must have the same bits.
func (f *ownSteps) equal() {
	for _, tt := range []struct{ slots, lengths []int }{
		{[]int{5}, []int{300}},
		{[]int{2, 7}, []int{64, 9}},
		{[]int{1, 3, 6}, []int{1, 129, 500}},
		{[]int{0, 3, 4, 6}, []int{0, 40, 200, 33}},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 1, 31, 32, 63, 64, 300, 510}},
	} {
		for i, slot := range tt.slots {
			f.prompt(slot, tt.lengths[i])
		}
		var want []ownResults
		for n := range 1000 {
			if n%50 == 49 { // other results between
				f.run(f.d.ownSet, slices.Repeat([]int32{int32(n)}, ownSlots), slices.Repeat([]int32{ownMaxLen - 1}, ownSlots))
			}
			tokens, lengths := f.inputs(tt.slots, tt.lengths, 0)
			f.run(f.d.ownSet, tokens, lengths)
			for i, slot := range tt.slots {
				if got := f.results(slot); n == 0 {
					want = append(want, got)
				} else if !got.equal(want[i]) {
					f.t.Fatalf("slot %d of %d: step %d differs", slot, len(tt.slots), n)
				}
			}
		}
	}
}

// rowsDoNotMix has NaN in the keys of one slot, and slots that are not in the step.
func (f *ownSteps) rowsDoNotMix() {
	const bad = 4
	slots, lengths := []int{1, 3, bad, 6}, []int{20, 129, 70, 400}
	idle := []int{0, 2, 5, 7}
	for slot := range ownSlots {
		f.prompt(slot, 10+slot)
	}
	for i, slot := range slots {
		f.prompt(slot, lengths[i])
	}
	tokens, positions := f.inputs(slots, lengths, 0)
	for _, slot := range idle {
		positions[slot] = 3 // of no use
	}
	var before [][]byte
	for _, slot := range idle {
		before = append(before, f.keys(slot))
	}
	f.run(f.d.ownSet, tokens, positions)
	var want []ownResults
	for _, slot := range slots {
		want = append(want, f.results(slot))
	}
	f.changeKeys(bad, func(keys []byte) {
		for i := range keys {
			keys[i] = 0xff
		}
	})
	f.run(f.d.ownSet, tokens, positions)
	for i, slot := range slots {
		got := f.results(slot)
		if slot == bad {
			require.True(f.t, math.IsNaN(float64(got.logits[0])), "the keys are NaN")
			continue
		}
		require.True(f.t, got.equal(want[i]), "slot %d", slot)
	}
	for i, slot := range idle {
		require.Equal(f.t, before[i], f.keys(slot), "idle slot %d", slot)
	}
	f.prompt(bad, lengths[2])
	f.run(f.d.ownSet, tokens, positions)
	require.True(f.t, f.results(bad).equal(want[2]), "the slot again, without NaN")
}

// lengths runs prompts and steps of ONNX Runtime before and after own steps, and compares with ONNX Runtime alone.
func (f *ownSteps) lengths() {
	const own, stock = 3, 2
	for _, length := range []int{1, 2, 31, 32, 63, 64, 65, 127, 128, 129, ownMaxLen - own - stock, ownMaxLen - 1} {
		slots, lengths := []int{6}, []int{length}
		steps := min(own+stock, ownMaxLen-length)
		f.compare(slots, lengths, own, steps, f.d.ownSet)
	}
}

// otherSet switches to the other set, with slots that are no neighbours.
func (f *ownSteps) otherSet() {
	slots, lengths := []int{0, 3, 5}, []int{7, 64, 300}
	f.compare(slots, lengths, 3, 6, 1-f.d.ownSet)
	f.compare(slots, lengths, 3, 6, f.d.ownSet)
}

// compare runs steps after prompts, the first of which are own, and then those of another set, and compares with ONNX Runtime alone.
func (f *ownSteps) compare(slots, lengths []int, own, steps, then int) {
	f.t.Helper()
	pass := func(step func(set int, tokens, lengths []int32)) (out []ownResults) {
		for i, slot := range slots {
			f.prompt(slot, lengths[i])
		}
		for n := range steps {
			tokens, positions := f.inputs(slots, lengths, n)
			if n < own {
				step(f.d.ownSet, tokens, positions)
			} else {
				f.stock(then, tokens, positions)
			}
			for _, slot := range slots {
				out = append(out, f.results(slot))
			}
		}
		return out
	}
	want, got := pass(f.stock), pass(f.run)
	for i := range want {
		require.InDeltaSlice(f.t, want[i].state, got[i].state, 2e-2*largest(want[i].state))
		require.Empty(f.t, differ(got[i].logits, want[i].logits), "slot %d, %d positions, step %d", slots[i%len(slots)],
			lengths[i%len(slots)], i/len(slots))
	}
}

func largest(values []float32) (m float64) {
	for _, v := range values {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

func TestSpread(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	require.Equal(t, []int{7}, spread(all, 1))
	require.Equal(t, []int{3, 7}, spread(all, 2))
	require.Equal(t, []int{1, 3, 5, 7}, spread(all, 4))
	require.Equal(t, all, spread(all, 8))
	require.Equal(t, []int{0, 2}, spread([]int{0, 1, 2}, 2))
}

func TestNoOwn(t *testing.T) {
	decoder := func(b *models.Bundle, w models.Weights) models.Graph {
		g, ok := b.Find(models.KindDecoder, w, models.DeviceCUDA)
		require.True(t, ok)
		return g
	}
	tiny, awq := cudaBundle(t, "tiny", 8), cudaBundle(t, "tiny-awq", 0)
	require.NoError(t, noOwn(decoder(tiny, models.WeightsInt4), Options{}))
	require.NoError(t, noOwn(decoder(awq, models.WeightsInt4), Options{}))
	blocks := decoder(tiny, models.WeightsInt4)
	blocks.Block = 64
	other := decoder(tiny, models.WeightsInt4)
	other.Device = models.DeviceCPU
	for _, tt := range []struct {
		text, kind string
		err        error
	}{
		{"switched off", "off", noOwn(decoder(tiny, models.WeightsInt4), Options{Stock: true})},
		{"weights are fp16", "bundle", noOwn(decoder(tiny, models.WeightsFloat16), Options{})},
		{"blocks of 64", "bundle", noOwn(blocks, Options{})},
		{"touchline models upgrade", "bundle", noOwn(decoder(withoutTensors(tiny), models.WeightsInt4), Options{})},
		{"they are for CUDA", "card", noOwn(other, Options{})},
	} {
		require.ErrorIs(t, tt.err, cuda.ErrNone)
		require.ErrorContains(t, tt.err, tt.text)
		require.Equal(t, tt.kind, kindOf(tt.err))
	}
	require.Empty(t, kindOf(nil))
	require.Equal(t, "error", kindOf(ort.ErrOutOfMemory))
	c := DefaultSettings()
	c.MiniCPM.Weights = "fp16"
	_, err := CheckOwn(tiny, Options{Config: c}, 0)
	require.ErrorIs(t, err, cuda.ErrBundle, "told before the GPU is opened")
}
