package check

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference/conformance/stages"
	"touchline/inference/internal/host"
	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	"touchline/models/torch"
)

// voiceCheck is the check of the model's own voice: its language model (tts/) and its sound (token2wav/).
type voiceCheck struct {
	*checker

	m      *host.Machine
	float  models.Weights // of its graphs
	bundle *models.Bundle
	src    *checkpoint.Checkpoint
	loaded map[string]*host.Network
}

// voice compares the stages of the voice, if there are fixtures of them.
func (c *checker) voice(ctx context.Context, m *host.Machine) {
	if !c.files.has("token2wav/flow_weights.safetensors") || len(c.files.in("tts")) == 0 {
		return
	}
	floats := []models.Weights{floatWeights(c.Device)}
	if c.Device == models.DeviceCUDA {
		floats = append(floats, models.WeightsFloat32)
	}
	for _, float := range floats {
		c.voiceIn(ctx, m, float)
		must(ctx.Err())
	}
}

// voiceIn compares the stages of the voice in a float format.
func (c *checker) voiceIn(ctx context.Context, m *host.Machine, float models.Weights) {
	c.progress("voice in " + string(float))
	v := &voiceCheck{checker: c, m: m, float: float, loaded: map[string]*host.Network{}}
	defer v.close()
	c.row(stageToken2wav, "weights as "+string(float)+" for "+string(c.Device), 0, func(t *tally) {
		v.src = need(checkpoint.Open(v.checkpoint()))
		b := c.bundle(ctx, v.src, "voice-"+string(float), convert.Options{Weights: []models.Weights{floatWeights(c.Device)}, VoiceWeights: float})
		if b.Manifest.Dims.Speech == nil {
			must(fmt.Errorf("expected a checkpoint with a voice, lacks %s", strings.Join(b.Manifest.Missing, ", ")))
		}
		v.bundle, t.row.Cases = b, len(v.src.Names())
	})
	if v.bundle != nil { // else its row has the error
		v.sound()
		v.codes(ctx)
	}
}

// exact reports whether the float32 bounds apply.
func (v *voiceCheck) exact() bool { return v.float == models.WeightsFloat32 }

// row is checker.row. On CUDA the float32 rows, which follow the float16 rows, are marked.
func (v *voiceCheck) row(stage, fixture string, bound float64, work func(t *tally)) {
	if v.float != floatWeights(v.Device) {
		fixture += " in " + string(v.float)
	}
	v.checker.row(stage, fixture, bound, work)
}

func (v *voiceCheck) close() {
	for _, n := range v.loaded {
		n.Close()
	}
	if v.src != nil {
		_ = v.src.Close()
	}
}

// checkpoint writes the checkpoint with the weights of its voice, as published. The files for making reference voices are empty.
func (v *voiceCheck) checkpoint() string {
	dir := filepath.Join(v.Work, "speaking-"+string(v.float))
	assets := filepath.Join(dir, "assets", "token2wav")
	must(os.MkdirAll(assets, 0o750))
	from := need(filepath.Abs(filepath.Join(v.Golden, "checkpoint")))
	for _, e := range need(os.ReadDir(from)) {
		must(os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())))
	}
	for _, name := range []string{"campplus.onnx", "speech_tokenizer_v2_25hz.onnx"} {
		must(os.WriteFile(filepath.Join(assets, name), nil, 0o600))
	}
	for file, fixture := range map[string]string{"flow.pt": "flow_weights", "hift.pt": "hift_weights"} {
		must(torch.WriteFile(filepath.Join(assets, file), v.tensors("token2wav/"+fixture+".safetensors").file))
	}
	return dir
}

// voiceGraph implements stages.Graph.
type voiceGraph struct{ *host.Network }

func (g voiceGraph) Ports() []models.Port { return g.Graph.Inputs }

func (g voiceGraph) Run(in map[string]stages.Array, sizes map[string]int64) map[string]stages.Array {
	values := map[string]host.Value{}
	for name, a := range in {
		v := host.Value{Floats: a.Floats, Ints: a.Ints}
		for _, d := range a.Shape {
			v.Shape = append(v.Shape, int(d))
		}
		values[name] = v
	}
	g.Free = map[string]int{}
	for name, n := range sizes {
		g.Free[name] = int(n)
	}
	var want []string
	for _, p := range g.Graph.Outputs {
		want = append(want, p.Name)
	}
	out := map[string]stages.Array{}
	for name, v := range need(g.Network.Run(values, want...)) {
		a := stages.Array{Floats: v.Floats, Ints: v.Ints}
		for _, d := range v.Shape {
			a.Shape = append(a.Shape, int64(d))
		}
		out[name] = a
	}
	return out
}

// recorded implements stages.Fixture.
type recorded struct{ *tensors }

func (f recorded) Has(name string) bool         { return f.has(name) }
func (f recorded) Floats(name string) []float32 { return f.floats(name) }
func (f recorded) Ints(name string) []int64     { return f.ints(name) }

// graph loads a graph of the bundle once.
func (v *voiceCheck) graph(kind models.Kind, check bool) *host.Network {
	find, key := v.bundle.Find, string(kind)
	if check {
		find, key = v.bundle.FindCheck, key+" with parts"
	}
	if n := v.loaded[key]; n != nil {
		return n
	}
	g, ok := find(kind, v.float, v.Device)
	if !ok {
		must(fmt.Errorf("no graph %s in %s", key, v.bundle.Dir))
	}
	v.loaded[key] = need(v.m.Open(v.bundle, g))
	return v.loaded[key]
}

// replay runs a stage as a row. Its fixtures are in a folder.
func (v *voiceCheck) replay(stage, what, fixture string, run func(*stages.Replay)) {
	v.row(stage, what, 0, func(t *tally) {
		r := &stages.Replay{
			Dims:    v.bundle.Manifest.Dims,
			Fixture: func(name string) stages.Fixture { return recorded{v.tensors(path.Join(fixture, name+".safetensors"))} },
			Graph:   func(kind models.Kind, check bool) stages.Graph { return voiceGraph{v.graph(kind, check)} },
			Near: func(what string, want, got []float32, limit stages.Limit) {
				t.within(got, want, limit, v.exact(), what)
			},
		}
		if stage == stageToken2wav {
			var err error
			if r.Recording, err = stages.ParseRecording(need(v.files.bytes(path.Join(fixture, "stream.json")))); err != nil {
				must(fmt.Errorf("%s/stream.json: %w", fixture, err))
			}
		}
		run(r)
	})
}

// within compares numbers with recorded ones under a limit. The row shows the comparison that is nearest to its bound.
func (t *tally) within(got, want []float32, limit stages.Limit, exact bool, what string) {
	t.row.Cases++
	if len(got) != len(want) {
		t.fail(fmt.Errorf("%s: expected %d numbers, got %d", what, len(want), len(got)))
		return
	}
	off, bound := limit.Compare(want, got, exact)
	if t.row.Bound == 0 || off/bound > t.row.Worst/t.row.Bound {
		t.row.Worst, t.row.Bound = off, bound
	}
	if !(off <= bound) {
		t.fail(fmt.Errorf("%s: differs by %.2e, the bound is %.1e", what, off, bound))
	}
}

// sound compares the encoder, the flow and the vocoder on their recorded inputs.
func (v *voiceCheck) sound() {
	const dir = "token2wav"
	for _, s := range []struct {
		what string
		run  func(*stages.Replay)
	}{
		{"codes to mu", (*stages.Replay).Encoder},
		{"mu to spectrogram", (*stages.Replay).Flow},
		{"first step of the flow", func(r *stages.Replay) { r.Step(v.weights) }},
		{"vocoder on 6 frames", (*stages.Replay).Pitch},
		{"spectrogram to sound", (*stages.Replay).Vocoder},
	} {
		v.replay(stageToken2wav, s.what, dir, s.run)
	}
	v.row(stageToken2wav, dir+"/stream.json", 0, func(t *tally) {
		var sizes struct {
			Config struct {
				Hidden int `json:"dim"`
				Blocks int `json:"blocks"`
				Layers int `json:"dit_depth"`
				Steps  int `json:"steps"`
				Codes  int `json:"code_table"`
			} `json:"config"`
		}
		v.files.json(dir+"/stream.json", &sizes)
		f, s := v.bundle.Manifest.Dims.Speech.Flow, sizes.Config
		want, got := []int{s.Hidden, s.Blocks, s.Layers, s.Steps, s.Codes}, []int{f.Hidden, f.Blocks, f.DiT.Layers, f.DiT.Steps, f.Codes}
		t.exact(slices.Equal(want, got), "expected the sizes %v, got %v", want, got)
	})
}

// weights returns a tensor of the voice's weights.
func (v *voiceCheck) weights(name string) []float32 {
	info, ok := v.src.Info(name)
	if !ok {
		must(fmt.Errorf("no tensor %s", name))
	}
	out := make([]float32, info.Rows()*info.Cols())
	must(v.src.Rows(out, name, 0, info.Rows()))
	return out
}

// codes compares the language model of the codes: its logits, and the codes that it chooses with recorded draws.
func (v *voiceCheck) codes(ctx context.Context) {
	const dir = "tts"
	v.replay(stageTTS, "condition of "+dir+"/lm", dir, (*stages.Replay).Condition)
	lm := &codeLM{v: v}
	v.replay(stageTTS, dir+"/lm", dir, func(r *stages.Replay) { must(r.Greedy(lm, v.exact())) })
	if v.files.has(dir + "/stream.json") {
		v.speak(dir+"/stream", func(t *tally, lm *voice.LM, _ kvcache.Layout) { v.stream(t, dir, lm) })
	}
	if v.files.has(dir + "/turns.json") {
		v.speak(dir+"/turns.json", func(t *tally, lm *voice.LM, l kvcache.Layout) { v.turns(ctx, t, dir, lm, l) })
	}
}

// speak runs a row of the engine's own language model of the codes.
func (v *voiceCheck) speak(fixture string, run func(t *tally, lm *voice.LM, l kvcache.Layout)) {
	d := v.bundle.Manifest.Dims.Speech.TTS
	layout := kvcache.Layout{
		Layers: d.Layers, Slots: 2, KVHeads: d.Heads, MaxLen: min(voice.TurnPositions, d.MaxPositions), HeadDim: d.HeadDim(), ElemSize: 4,
	}
	if !v.exact() {
		layout.ElemSize = 2
	}
	v.row(stageTTS, fixture, 0, func(t *tally) {
		lm, done, err := v.openLM(layout)
		must(err)
		defer func() {
			if err := done(); err != nil {
				t.fail(err)
			}
		}()
		if !v.exact() {
			t.row.Note = "along the recorded codes: where two are near, rounding changes draws"
		}
		run(t, lm, layout)
	})
}

// end returns the code that ends a piece of text.
func (v *voiceCheck) end() int32 { return int32(v.bundle.Manifest.Dims.Speech.TTS.Codes - 1) }

// stream compares the codes sampled for each piece of a turn, given the recorded conditions.
func (v *voiceCheck) stream(t *tally, dir string, lm *voice.LM) {
	var stream struct {
		Chunks []stages.Chunk `json:"chunks"`
	}
	v.files.json(dir+"/stream.json", &stream)
	f := v.tensors(dir + "/stream.safetensors")
	marks := v.tensors(dir + "/lm.safetensors")
	draws := f.doubles("u")
	t.row.Cases = len(draws)
	must(stages.Stream(lm, stream.Chunks, v.end(), recorded{f}, recorded{marks}, draws, v.exact()))
}

// turns compares the codes of whole turns, in float32 as the engine's talker and sampler choose them.
func (v *voiceCheck) turns(ctx context.Context, t *tally, dir string, lm *voice.LM, layout kvcache.Layout) {
	d := v.bundle.Manifest.Dims
	turns := need(stages.ParseTurns(need(v.files.bytes(dir+"/turns.json")), d.Speech.TTS.Codes))
	for i, turn := range turns {
		states := v.tensors(fmt.Sprintf("%s/turn_%d.safetensors", dir, i))
		t.row.Cases++
		t.where = fmt.Sprintf("turn %d", i)
		if v.exact() {
			must(turn.Speak(ctx, lm, layout, v.end(), recorded{states}, d.Decoder.Hidden, time.Now))
		} else {
			must(turn.Force(lm, v.end(), recorded{states}, d.Decoder.Hidden))
		}
	}
}

// openLM opens the engine's language model of the codes.
func (v *voiceCheck) openLM(layout kvcache.Layout) (lm *voice.LM, done func() error, err error) {
	dev, err := v.m.Device(v.Device)
	if err != nil {
		return nil, nil, err
	}
	condition, _ := v.bundle.Find(models.KindTTSCondition, v.float, v.Device)
	tts, _ := v.bundle.Find(models.KindTTS, v.float, v.Device)
	lm, err = voice.OpenLM(v.m.Runtime, dev, v.bundle, [2]models.Graph{condition, tts}, layout, 1)
	if err != nil {
		return nil, nil, err
	}
	return lm, lm.Close, nil
}

// codeLM runs the language model of the codes for one turn after another.
type codeLM struct{ v *voiceCheck }

// Feed implements stages.LM.
func (l *codeLM) Feed(codes []int64, inputs []float32, past int, history []int64) stages.Row {
	const positions = 256
	n := l.v.graph(models.KindTTS, false)
	t := l.v.bundle.Manifest.Dims.Speech.TTS
	for i := range t.Layers {
		for _, side := range []string{".key", ".value"} {
			must(n.Hold("past_key_values."+strconv.Itoa(i)+side, map[string]int{"B": 1, "M": positions}))
		}
	}
	if inputs == nil {
		inputs = make([]float32, len(codes)*t.Hidden)
	}
	last := past + len(codes) - 1
	out := need(n.Run(map[string]host.Value{
		"codes":                 {Shape: []int{1, len(codes)}, Ints: codes},
		"inputs_embeds":         {Shape: []int{1, len(codes), t.Hidden}, Floats: inputs},
		"seqlens_k":             {Shape: []int{1}, Ints: []int64{int64(last)}},
		"total_sequence_length": {Shape: []int{}, Ints: []int64{int64(last + 1)}},
		"last_position":         {Shape: []int{1}, Ints: []int64{int64(len(codes) - 1)}},
		"temperature":           {Shape: []int{1}, Floats: []float32{0.8}},
		"history":               {Shape: []int{1, 1, len(history)}, Ints: history},
	}, "logits", "top_values", "top_ids"))
	return stages.Row{Logits: out["logits"].Floats, TopValues: out["top_values"].Floats, TopIDs: out["top_ids"].Ints}
}
