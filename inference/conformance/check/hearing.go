package check

import (
	"context"
	"errors"
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
)

// Bounds of speech recognition in float32, relative to the largest value of a tensor.
const (
	boundFeatures = 2e-4
	boundEncoder  = 2e-5
)

// hears runs the stages of speech recognition.
func (c *checker) hears(ctx context.Context, m *host.Machine, src *checkpoint.Checkpoint, ts tokenizers) error {
	c.progress("features")
	c.features()
	c.progress("prompts")
	c.spoken(ts)
	c.texts()
	c.progress("detector of speech")
	c.speech()
	b := c.floatBundle(ctx, src, "checkpoint")
	if b == nil {
		return nil
	}
	c.progress("encoder of sound")
	if err := c.encoders(m, b, false); err != nil {
		return err
	}
	c.progress("language model")
	d, err := c.decoder(m, b, floatWeights(c.Device), c.Device)
	if err != nil {
		return err
	}
	c.llm(d)
	d.close()
	if err := c.int4(ctx, m, src); err != nil {
		return err
	}
	c.progress("aligner")
	aligner, err := c.aligns(ctx, m)
	if err == nil {
		c.recognized(ctx, b, aligner)
	}
	return err
}

// floatBundle converts a checkpoint to floats, and adds a row.
func (c *checker) floatBundle(ctx context.Context, src *checkpoint.Checkpoint, name string) *models.Bundle {
	float := floatWeights(c.Device)
	var b *models.Bundle
	c.row(stageCheckpoint, name+" as "+string(float)+" for "+string(c.Device), 0, func(t *tally) (err error) {
		o := convert.Options{Weights: []models.Weights{float}, Devices: []models.Device{c.Device}}
		if b, err = c.bundle(ctx, src, name+"-"+string(float), o); err != nil {
			return err
		}
		t.row.Cases = len(b.Manifest.Files)
		return b.Verify(ctx, nil)
	})
	return b
}

// sound reads a clip.
func (c *checker) sound(name string) ([]float32, error) {
	b, err := c.files.bytes("audio/" + name + ".wav")
	if err != nil {
		return nil, err
	}
	samples, rate, err := wav.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if rate != mel.Rate {
		return nil, fmt.Errorf("%s: expected %d Hz, got %d", name, mel.Rate, rate)
	}
	return samples, nil
}

// features compares mel spectrograms, their filters, and the number of rows that a number
// of frames has.
func (c *checker) features() {
	c.files.mark("audio/index.json")
	for _, name := range c.files.in("mel") {
		base := strings.TrimSuffix(path.Base(name), ".safetensors")
		c.row(stageFeatures, name, boundFeatures, func(t *tally) error {
			switch base {
			case "token_lengths.json":
				return c.lengths(t, name)
			case "filters":
				f, err := c.tensors(name)
				if err != nil {
					return err
				}
				t.row.Bound = 1e-6
				t.near(mel.SpeechFilters(), f.floats("filters"), "filters")
				return f.err
			}
			return c.spectrogram(t, name, base)
		})
	}
}

func (c *checker) lengths(t *tally, name string) error {
	t.row.Bound = 0
	var want map[int]int
	if err := c.files.json(name, &want); err != nil {
		return err
	}
	h := models.Hearing{Chunk: 100}
	for frames, rows := range want {
		t.exact(h.Rows(frames) == rows, "%d frames: expected %d rows, got %d", frames, rows, h.Rows(frames))
	}
	return nil
}

func (c *checker) spectrogram(t *tally, name, clip string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	samples, err := c.sound(clip)
	if err != nil {
		return err
	}
	all, err := mel.Speech(samples)
	if err != nil {
		return err
	}
	frames := len(all) / mel.SpeechBins
	var got []float32
	columns := f.ints("columns")
	for b := range mel.SpeechBins {
		for _, column := range columns {
			if column < 0 || int(column) >= frames {
				return fmt.Errorf("columns: expected frames below %d, got %d", frames, column)
			}
			got = append(got, all[b*frames+int(column)])
		}
	}
	t.near(got, f.floats("mel"), clip)
	return f.err
}

// spoken compares the ids of prompts.
func (c *checker) spoken(ts tokenizers) {
	for _, name := range c.files.in("prompt") {
		c.row(stagePrompt, name, 0, func(t *tally) error {
			var cases []struct {
				Prompt, Text string
				AudioTokens  int `json:"audio_tokens"`
				IDs          []int32
				Decoded      *string
				Plain        string `json:"decoded_skip_special"`
			}
			which := strings.Replace(name, ".json", "_", 1) // "real.json" as "real_pieces.json"
			tok := ts.of(which, t)
			if err := c.files.json(name, &cases); err != nil || tok == nil {
				return err
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
			return nil
		})
	}
}

// hearing runs the encoder of sound over whole clips.
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
func (h hearing) windows(samples []float32) ([]window, error) {
	all, err := mel.Speech(samples)
	if err != nil {
		return nil, err
	}
	var out []window
	frames, span := len(all)/h.Mel, h.Chunk*h.Window
	for from := 0; from < frames; from += span {
		w := window{frames: min(span, frames-from)}
		for b := range h.Mel {
			w.mel = append(w.mel, all[b*frames+from:][:w.frames]...)
		}
		out = append(out, w)
	}
	return out, nil
}

// run runs windows as one batch of a number of chunks, and returns the valid rows of each.
func (h hearing) run(windows []window, chunks int, want ...string) ([]map[string][]float32, error) {
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
	out, err := h.n.Run(map[string]host.Value{"mel": in, "rows": rows}, want...)
	if err != nil {
		return nil, err
	}
	results := make([]map[string][]float32, len(windows))
	for i, valid := range rows.Ints {
		results[i] = map[string][]float32{}
		for name, v := range out {
			results[i][name] = v.Floats[i*v.Shape[1]*v.Shape[2]:][:int(valid)*v.Shape[2]]
		}
	}
	return results, nil
}

// hear returns the outputs for a clip: all of its windows as one batch, joined.
func (h hearing) hear(samples []float32, want ...string) (map[string][]float32, error) {
	windows, err := h.windows(samples)
	if err != nil {
		return nil, err
	}
	results, err := h.run(windows, h.Window, want...)
	joined := map[string][]float32{}
	for _, r := range results {
		for name, values := range r {
			joined[name] = append(joined[name], values...)
		}
	}
	return joined, err
}

// together runs the windows of all clips as one batch, and short ones also with no more
// chunks than they need: neither may change a row.
func (c *checker) together(t *tally, h hearing, clips []string) error {
	var windows []window
	for _, clip := range clips {
		samples, err := c.sound(clip)
		if err != nil {
			return err
		}
		some, err := h.windows(samples)
		if err != nil {
			return err
		}
		windows = append(windows, some...)
	}
	all, err := h.run(windows, h.Window, "audio")
	if err != nil {
		return err
	}
	for i, w := range windows {
		chunks := (w.frames + h.Chunk - 1) / h.Chunk
		alone, err := h.run(windows[i:i+1], chunks, "audio")
		if err != nil {
			return err
		}
		t.near(all[i]["audio"], alone[0]["audio"], fmt.Sprintf("window %d of %d chunks", i, chunks))
	}
	return nil
}

// encoders compares the encoder of sound, of the checkpoint or of the aligner.
func (c *checker) encoders(m *host.Machine, b *models.Bundle, aligner bool) error {
	const prefix = "aligner_"
	n, err := c.network(m, b, models.KindHearing, floatWeights(c.Device), c.Device)
	if err != nil {
		return err
	}
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
			c.row(stageEncoder, name, bound, func(t *tally) error { return c.encoder(t, h, name, clip) })
		}
	}
	if !aligner && len(clips) > 0 {
		c.row(stageEncoder, "all clips in one batch", bound, func(t *tally) error { return c.together(t, h, clips) })
	}
	return nil
}

func (c *checker) encoder(t *tally, h hearing, name, clip string) error {
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	samples, err := c.sound(clip)
	if err != nil {
		return err
	}
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
	out, err := h.hear(samples, want...)
	if err != nil {
		return err
	}
	for fixture, output := range pairs {
		t.near(out[output], f.floats(fixture), fixture)
	}
	return f.err
}

// aligns compares the aligner, from sound and words to the classes of its marks, and
// returns its bundle, or nil without one.
func (c *checker) aligns(ctx context.Context, m *host.Machine) (*models.Bundle, error) {
	src := c.checkpoint("aligner")
	if src == nil {
		return nil, nil //nolint:nilnil // a folder may lack an aligner
	}
	defer func() { _ = src.Close() }()
	b := c.floatBundle(ctx, src, "aligner")
	if b == nil {
		return nil, nil //nolint:nilnil // its row has the error
	}
	if err := c.encoders(m, b, true); err != nil {
		return b, err
	}
	if !c.files.has(alignName) {
		return b, nil
	}
	return b, c.marks(m, src, b)
}

const alignName = "align/align.json"

// marks compares the classes of the aligner's marks.
func (c *checker) marks(m *host.Machine, src *checkpoint.Checkpoint, b *models.Bundle) error {
	float := floatWeights(c.Device)
	a := aligner{bundle: b}
	for kind, to := range map[models.Kind]**host.Network{
		models.KindHearing: &a.hearing.n, models.KindEmbed: &a.embed, models.KindAligner: &a.marks,
	} {
		n, err := c.network(m, b, kind, float, c.Device)
		if err != nil {
			return err
		}
		defer n.Close()
		*to = n
	}
	a.hearing.Hearing = *b.Manifest.Dims.Hearing
	content, err := src.File(models.TokenizerName)
	if err == nil {
		a.tok, err = tokenizer.Parse(content)
	}
	if err != nil {
		return err
	}
	c.row(stageAlign, alignName, c.bound(), func(t *tally) error {
		var cases []alignment
		if err := c.files.json(alignName, &cases); err != nil {
			return err
		}
		for _, tt := range cases {
			if err := c.alignment(t, a, tt); err != nil {
				return fmt.Errorf("%s: %w", tt.Clip, err)
			}
		}
		return nil
	})
	return nil
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
func (c *checker) alignment(t *tally, a aligner, tt alignment) error {
	samples, err := c.sound(tt.Clip)
	if err != nil {
		return err
	}
	out, err := a.hearing.hear(samples, "audio")
	if err != nil {
		return err
	}
	text, width := a.bundle.Manifest.Template, a.hearing.Out
	rows := len(out["audio"]) / width
	ids := a.tok.Encode(strings.Replace(tt.Prompt, text.AudioPad, strings.Repeat(text.AudioPad, rows), 1))
	t.exact(slices.Equal(ids, tt.IDs), "%s: expected the prompt %v, got %v", tt.Clip, tt.IDs, ids)
	logits, classes, err := a.run(ids, out["audio"])
	if err != nil {
		return err
	}
	name := path.Join("align", tt.Clip+".safetensors")
	if !c.files.has(name) {
		t.exact(c.Device == models.DeviceCUDA || slices.Equal(classes, tt.Indices), "%s: expected %d, got %d", tt.Clip, tt.Indices, classes)
		return nil
	}
	f, err := c.tensors(name)
	if err != nil {
		return err
	}
	want := f.floats("logits")
	t.near(logits, want, "logits of "+tt.Clip)
	if f.err != nil || len(logits) != len(want) || len(classes) != len(tt.Indices) {
		return errors.Join(f.err, fmt.Errorf("expected %d classes, got %d", len(tt.Indices), len(classes)))
	}
	per := len(want) / len(classes)
	for i, class := range classes {
		w, g := want[i*per:][:per], logits[i*per:][:per]
		if c.Device == models.DeviceCPU || gap(w) > 2*largestDifference(w, g) {
			t.exact(class == tt.Indices[i], "%s: mark %d: expected class %d, got %d", tt.Clip, i, tt.Indices[i], class)
		}
	}
	return nil
}

// run runs one prompt.
func (a aligner) run(ids []int32, audio []float32) (logits []float32, classes []int64, err error) {
	text, tokens, width := a.bundle.Manifest.Template, a.bundle.Manifest.Tokens, a.hearing.Out
	in, marks := host.Value{Shape: []int{len(ids)}}, host.Value{}
	for i, id := range ids {
		in.Ints = append(in.Ints, int64(id))
		if id == tokens[text.Timestamp] {
			marks.Ints = append(marks.Ints, int64(i))
		}
	}
	marks.Shape = []int{len(marks.Ints)}
	out, err := a.embed.Run(map[string]host.Value{"input_ids": in}, "embeds")
	if err != nil {
		return nil, nil, err
	}
	embeds := out["embeds"].Floats
	for i, id := range ids {
		if id == tokens[text.AudioPad] && len(audio) >= width {
			copy(embeds[i*width:][:width], audio)
			audio = audio[width:]
		}
	}
	out, err = a.marks.Run(map[string]host.Value{
		"inputs_embeds":         {Shape: []int{1, len(ids), width}, Floats: embeds},
		"seqlens_k":             {Shape: []int{1}, Ints: []int64{int64(len(ids) - 1)}},
		"total_sequence_length": {Shape: []int{}, Ints: []int64{int64(len(ids))}},
		"positions":             marks,
	}, "logits", "classes")
	return out["logits"].Floats, out["classes"].Ints, err
}
