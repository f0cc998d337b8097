package check

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"touchline/inference/internal/host"
	"touchline/inference/internal/mel"
	"touchline/inference/tokenizer"
	"touchline/internal/wav"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	"touchline/models/disk"
)

// Bounds of speech recognition in float32, relative to the largest value of a tensor.
const (
	boundFeatures = 2e-4
	boundEncoder  = 2e-5
)

// ears is the check of speech recognition.
type ears struct{ *checker }

// hears runs the stages of speech recognition.
func (c ears) hears(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint, ts tokenizers) {
	c.progress("features")
	c.features()
	c.progress("prompts")
	c.spoken(ts)
	c.texts()
	c.progress("detector of speech")
	c.speech()
	b := c.floatBundle(ctx, src, "checkpoint")
	if b == nil {
		return
	}
	c.progress("encoder of sound")
	c.encoders(m, b, false)
	c.progress("language model")
	c.llm(m, b)
	c.int4(ctx, m, src, "int4")
	c.progress("aligner")
	c.recognized(ctx, b, c.aligns(ctx, m))
}

// floatBundle converts a checkpoint to floats, and adds a row.
func (c *checker) floatBundle(ctx context.Context, src *checkpoint.Checkpoint, name string) *models.Bundle {
	float := c.floats(c.Device)
	var b *models.Bundle
	c.row(stageCheckpoint, name+" as "+string(float)+" for "+string(c.Device), 0, func(t *tally) {
		b = c.bundle(ctx, src, name+"-"+string(float), convert.Options{Weights: []models.Weights{float}})
		t.row.Cases = len(b.Manifest.Files)
		must(disk.Verify(ctx, b, nil))
	})
	return b
}

// sound reads a clip.
func (c ears) sound(name string) []float32 {
	samples, rate, err := wav.Parse(need(c.files.bytes("audio/" + name + ".wav")))
	if err == nil && rate != mel.Rate {
		err = fmt.Errorf("expected %d Hz, got %d", mel.Rate, rate)
	}
	if err != nil {
		must(fmt.Errorf("%s: %w", name, err))
	}
	return samples
}

// features compares mel spectrograms, their filters, and the numbers of rows for numbers of frames.
func (c ears) features() {
	c.files.mark("audio/index.json")
	for _, name := range c.files.in("mel") {
		base := strings.TrimSuffix(path.Base(name), ".safetensors")
		c.row(stageFeatures, name, boundFeatures, func(t *tally) {
			switch base {
			case "token_lengths.json":
				c.lengths(t, name)
			case "filters":
				t.row.Bound = 1e-6
				t.near(mel.SpeechFilters(), c.tensors(name).floats("filters"), "filters")
			default:
				c.spectrogram(t, name, base)
			}
		})
	}
}

func (c ears) lengths(t *tally, name string) {
	t.row.Bound = 0
	var want map[int]int
	c.files.json(name, &want)
	h := models.Hearing{Chunk: 100}
	for frames, rows := range want {
		t.exact(h.Rows(frames) == rows, "%d frames: expected %d rows, got %d", frames, rows, h.Rows(frames))
	}
}

func (c ears) spectrogram(t *tally, name, clip string) {
	f := c.tensors(name)
	all := need(mel.Speech(c.sound(clip)))
	frames := len(all) / mel.SpeechBins
	var got []float32
	columns := f.ints("columns")
	for b := range mel.SpeechBins {
		for _, column := range columns {
			if column < 0 || int(column) >= frames {
				must(fmt.Errorf("columns: expected frames below %d, got %d", frames, column))
			}
			got = append(got, all[b*frames+int(column)])
		}
	}
	t.near(got, f.floats("mel"), clip)
}

// spoken compares the ids of prompts.
func (c ears) spoken(ts tokenizers) {
	for _, name := range c.files.in("prompt") {
		c.row(stagePrompt, name, 0, func(t *tally) {
			var cases []struct {
				Prompt, Text string
				AudioTokens  int `json:"audio_tokens"`
				IDs          []int32
				Decoded      *string
				Plain        string `json:"decoded_skip_special"`
			}
			which := strings.Replace(name, ".json", "_", 1) // "real.json" as "real_pieces.json"
			tok := ts.of(which, t)
			if c.files.json(name, &cases); tok == nil {
				return
			}
			const pad = "<|audio_pad|>"
			for _, tt := range cases {
				text := tt.Text + strings.Replace(tt.Prompt, pad, strings.Repeat(pad, tt.AudioTokens), 1)
				got := tok.Encode(text)
				t.exact(slices.Equal(got, tt.IDs), "%q: expected %v, got %v", text, tt.IDs, got)
				if tt.Decoded != nil {
					t.exact(tok.Decode(tt.IDs) == *tt.Decoded && tok.DecodePlain(tt.IDs) == tt.Plain, "%v: expected %q", tt.IDs, *tt.Decoded)
				}
			}
		})
	}
}

// hearing runs the audio encoder over whole clips.
type hearing struct {
	models.Hearing

	n *host.Network
}

// window is a part of a clip that the encoder sees at once: [mel, frames].
type window struct {
	mel    []float32
	frames int
}

// windows cuts a clip.
func (h hearing) windows(samples []float32) []window {
	all := need(mel.Speech(samples))
	var out []window
	frames, span := len(all)/h.Mel, h.Chunk*h.Window
	for from := 0; from < frames; from += span {
		w := window{frames: min(span, frames-from)}
		for b := range h.Mel {
			w.mel = append(w.mel, all[b*frames+from:][:w.frames]...)
		}
		out = append(out, w)
	}
	return out
}

// run runs windows as one batch of a number of chunks, and returns the valid rows of each.
func (h hearing) run(windows []window, chunks int, want ...string) []map[string][]float32 {
	span := chunks * h.Chunk
	in := host.Value{Shape: []int{len(windows), h.Mel, span}, Floats: make([]float32, len(windows)*h.Mel*span)}
	rows := host.Value{Shape: []int{len(windows)}}
	for i, w := range windows {
		for b := range h.Mel {
			copy(in.Floats[(i*h.Mel+b)*span:][:span], w.mel[b*w.frames:][:w.frames])
		}
		rows.Ints = append(rows.Ints, int64(h.Rows(w.frames)))
	}
	h.n.Free = map[string]int{"R": chunks * h.ChunkRows()}
	out := need(h.n.Run(map[string]host.Value{"mel": in, "rows": rows}, want...))
	results := make([]map[string][]float32, len(windows))
	for i, valid := range rows.Ints {
		results[i] = map[string][]float32{}
		for name, v := range out {
			results[i][name] = v.Floats[i*v.Shape[1]*v.Shape[2]:][:int(valid)*v.Shape[2]]
		}
	}
	return results
}

// hear returns the outputs for a clip: all of its windows as one batch, joined.
func (h hearing) hear(samples []float32, want ...string) map[string][]float32 {
	joined := map[string][]float32{}
	for _, r := range h.run(h.windows(samples), h.Window, want...) {
		for name, values := range r {
			joined[name] = append(joined[name], values...)
		}
	}
	return joined
}

// together runs the windows of all clips as one batch, and each window alone with the smallest
// number of chunks: the rows must be equal.
func (c ears) together(t *tally, h hearing, clips []string) {
	var windows []window
	for _, clip := range clips {
		windows = append(windows, h.windows(c.sound(clip))...)
	}
	all := h.run(windows, h.Window, "audio")
	for i, w := range windows {
		chunks := (w.frames + h.Chunk - 1) / h.Chunk
		alone := h.run(windows[i:i+1], chunks, "audio")
		t.near(all[i]["audio"], alone[0]["audio"], fmt.Sprintf("window %d of %d chunks", i, chunks))
	}
}

// encoders compares the audio encoder, of the checkpoint or of the aligner.
func (c ears) encoders(m *host.Machine, b *models.Bundle, aligner bool) {
	const prefix = "aligner_"
	n := c.network(m, b, models.KindHearing, floatWeights(c.Device), c.Device)
	defer n.Close()
	h := hearing{*b.Manifest.Dims.Hearing, n}
	bound := boundEncoder
	if c.Device == models.DeviceCUDA {
		bound = boundFloat16
	}
	var clips []string
	for _, name := range c.files.in("encoder") {
		clip, ofAligner := strings.CutPrefix(strings.TrimSuffix(path.Base(name), ".safetensors"), prefix)
		if ofAligner == aligner {
			clips = append(clips, clip)
			c.row(stageEncoder, name, bound, func(t *tally) { c.encoder(t, h, name, clip) })
		}
	}
	if !aligner && len(clips) > 0 {
		c.row(stageEncoder, "all clips in one batch", bound, func(t *tally) { c.together(t, h, clips) })
	}
}

func (c ears) encoder(t *tally, h hearing, name, clip string) {
	f := c.tensors(name)
	pairs := map[string]string{"last_hidden_state": "audio"}
	if f.has("padded100") { // a chunk is always whole here
		pairs = map[string]string{"padded100": "audio"}
	}
	for i := range h.Layers {
		if name := "hidden_states." + strconv.Itoa(i); f.has(name) {
			pairs[name] = "layer." + strconv.Itoa(i)
		}
	}
	var want []string
	for _, output := range pairs {
		want = append(want, output)
	}
	out := h.hear(c.sound(clip), want...)
	for fixture, output := range pairs {
		t.near(out[output], f.floats(fixture), fixture)
	}
}

// aligns compares the aligner, from audio and words to the classes of its marks, and returns its
// bundle, or nil without one.
func (c ears) aligns(ctx context.Context, m *host.Machine) *models.Bundle {
	src := c.checkpoint("aligner")
	if src == nil {
		return nil
	}
	defer func() { _ = src.Close() }()
	b := c.floatBundle(ctx, src, "aligner")
	if b == nil {
		return nil // its row has the error
	}
	c.encoders(m, b, true)
	if c.files.has(alignName) {
		c.marks(m, src, b)
	}
	return b
}

const alignName = "align/align.json"

// marks compares the classes of the aligner's marks.
func (c ears) marks(m *host.Machine, src *checkpoint.Checkpoint, b *models.Bundle) {
	float := floatWeights(c.Device)
	a := aligner{bundle: b}
	for kind, to := range map[models.Kind]**host.Network{
		models.KindHearing: &a.hearing.n, models.KindEmbed: &a.embed, models.KindAligner: &a.marks,
	} {
		*to = c.network(m, b, kind, float, c.Device)
		defer (*to).Close()
	}
	a.hearing.Hearing = *b.Manifest.Dims.Hearing
	a.tok = need(tokenizer.Parse(need(src.File(models.TokenizerName))))
	c.row(stageAlign, alignName, c.bound(), func(t *tally) {
		var cases []alignment
		c.files.json(alignName, &cases)
		for _, tt := range cases {
			t.where = tt.Clip
			c.alignment(t, a, tt)
		}
	})
}

// aligner runs an aligner over whole prompts.
type aligner struct {
	bundle       *models.Bundle
	tok          *tokenizer.Tokenizer
	hearing      hearing
	embed, marks *host.Network
}

// alignment is a recorded run of the aligner.
type alignment struct {
	Clip    string
	Prompt  string
	IDs     []int32 `json:"input_ids"`
	Indices []int64
}

// alignment compares prompt, classes and, where they are recorded, logits.
func (c ears) alignment(t *tally, a aligner, tt alignment) {
	out := a.hearing.hear(c.sound(tt.Clip), "audio")
	text, width := a.bundle.Manifest.Template, a.hearing.Out
	rows := len(out["audio"]) / width
	ids := a.tok.Encode(strings.Replace(tt.Prompt, text.AudioPad, strings.Repeat(text.AudioPad, rows), 1))
	t.exact(slices.Equal(ids, tt.IDs), "%s: expected the prompt %v, got %v", tt.Clip, tt.IDs, ids)
	logits, classes := a.run(ids, out["audio"])
	name := path.Join("align", tt.Clip+".safetensors")
	if !c.files.has(name) {
		t.exact(c.Device == models.DeviceCUDA || slices.Equal(classes, tt.Indices), "%s: expected %d, got %d", tt.Clip, tt.Indices, classes)
		return
	}
	f := c.tensors(name)
	want := f.floats("logits")
	t.near(logits, want, "logits of "+tt.Clip)
	if len(logits) != len(want) || len(classes) != len(tt.Indices) {
		must(fmt.Errorf("expected %d classes, got %d", len(tt.Indices), len(classes)))
	}
	per := len(want) / len(classes)
	for i, class := range classes {
		w, g := want[i*per:][:per], logits[i*per:][:per]
		if c.Device == models.DeviceCPU || gap(w) > 2*largestDifference(w, g) {
			t.exact(class == tt.Indices[i], "%s: mark %d: expected class %d, got %d", tt.Clip, i, tt.Indices[i], class)
		}
	}
}

func (a aligner) run(ids []int32, audio []float32) (logits []float32, classes []int64) {
	text, tokens, width := a.bundle.Manifest.Template, a.bundle.Manifest.Tokens, a.hearing.Out
	in, marks := host.Value{Shape: []int{len(ids)}}, host.Value{}
	for i, id := range ids {
		in.Ints = append(in.Ints, int64(id))
		if id == tokens[text.Timestamp] {
			marks.Ints = append(marks.Ints, int64(i))
		}
	}
	marks.Shape = []int{len(marks.Ints)}
	embeds := need(a.embed.Run(map[string]host.Value{"input_ids": in}, "embeds"))["embeds"].Floats
	for i, id := range ids {
		if id == tokens[text.AudioPad] && len(audio) >= width {
			copy(embeds[i*width:][:width], audio)
			audio = audio[width:]
		}
	}
	out := need(a.marks.Run(map[string]host.Value{
		"inputs_embeds":         {Shape: []int{1, len(ids), width}, Floats: embeds},
		"seqlens_k":             {Shape: []int{1}, Ints: []int64{int64(len(ids) - 1)}},
		"total_sequence_length": {Shape: []int{}, Ints: []int64{int64(len(ids))}},
		"positions":             marks,
	}, "logits", "classes"))
	return out["logits"].Floats, out["classes"].Ints
}
