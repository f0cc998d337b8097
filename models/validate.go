package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"touchline/internal/check"
)

// maxManifest is the maximum size of manifest.json in bytes. The forbidden ids
// of the real model take 60 kB.
const maxManifest = 16 << 20

// FormatError is returned for a bundle of an unknown format.
type FormatError struct{ Format int }

// Error names both formats and the remedy.
func (e *FormatError) Error() string {
	remedy := "convert the checkpoint again"
	if e.Format > FormatVersion {
		remedy = "use a newer program, or " + remedy
	}
	return fmt.Sprintf("format: this program reads formats 1 to %d, the bundle has %d: %s", FormatVersion, e.Format, remedy)
}

// ParseManifest parses and validates a manifest.json. Errors name the field.
func ParseManifest(content []byte) (*Manifest, error) {
	var version struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, jsonError(err)
	}
	if version.Format == nil {
		return nil, errors.New("format: missing")
	}
	if !known(*version.Format) {
		return nil, &FormatError{*version.Format}
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	var m Manifest
	if err := d.Decode(&m); err != nil {
		return nil, jsonError(err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

func known(format int) bool { return format >= 1 && format <= FormatVersion }

// jsonError adds the position in the JSON to an error.
func jsonError(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
		return fmt.Errorf("%s: expected %s, got a JSON %s", t.Field, t.Type, t.Value)
	}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("byte %d: expected JSON: %w", s.Offset, err)
	}
	return fmt.Errorf("expected a manifest: %w", err)
}

// WriteManifest validates the manifest and writes it to a bundle's folder.
func WriteManifest(dir string, m *Manifest) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("write %s: %w", ManifestName, err)
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", ManifestName, err)
	}
	return os.WriteFile(filepath.Join(dir, ManifestName), append(b, '\n'), 0o644)
}

// Upper bounds of sizes, far above real models. Products of a few of
// them fit 63 bits.
const (
	maxSide   = 1 << 20 // of a matrix
	maxVocab  = 1 << 24
	maxLayers = 1 << 12

	maxElements = 1 << 50 // of a tensor
)

// Validate returns all invalid fields, joined.
func (m *Manifest) Validate() error {
	c := &checker{}
	if !known(m.Format) {
		return &FormatError{m.Format}
	}
	c.That(m.Name != "" && len(m.Name) <= 256, "name", "1 to 256 characters", strconv.Quote(m.Name))
	c.dims(m.Dims)
	if m.Dims.Vision != nil {
		c.image(m)
	}
	c.That(m.Task == m.Dims.Task(), "task", fmt.Sprintf("%q by the dims", m.Dims.Task()), strconv.Quote(string(m.Task)))
	c.tokens(m)
	files := c.files(m.Files)
	c.voice(m, files)
	c.graphs(m, files)
	return c.Err()
}

// Validate returns all invalid sizes, joined.
func (d Dims) Validate() error {
	c := &checker{}
	c.dims(d)
	return c.Err()
}

// checker collects the invalid fields of a manifest.
type checker struct{ check.Settings }

func (c *checker) size(field string, x, most int) {
	c.That(x >= 1 && x <= most, field, fmt.Sprintf("a number from 1 to %d", most), x)
}

func (c *checker) above0(field string, x float64) {
	c.That(x > 0 && !math.IsInf(x, 0), field, "a number above 0", x)
}

func (c *checker) dims(d Dims) {
	c.decoder(d.Decoder)
	if v := d.Vision; v != nil {
		c.vision(*v)
		c.That(v.Out == d.Decoder.Hidden, "dims.vision.out", fmt.Sprintf("dims.decoder.hidden (%d)", d.Decoder.Hidden), v.Out)
	}
	if s := d.Speech; s != nil {
		c.tts(s.TTS)
		c.flow(s.Flow)
		c.size("dims.speech.vocoder.channels", s.Vocoder.Channels, maxSide)
		c.size("dims.speech.vocoder.pitch", s.Vocoder.Pitch, maxSide)
		c.That(s.Vocoder.Channels%8 == 0, "dims.speech.vocoder.channels", "a multiple of 8", s.Vocoder.Channels)
	}
	if h := d.Hearing; h != nil {
		c.hearing(*h)
		c.That(h.Out == d.Decoder.Hidden, "dims.hearing.out", fmt.Sprintf("dims.decoder.hidden (%d)", d.Decoder.Hidden), h.Out)
	}
}

func (c *checker) hearing(h Hearing) {
	const p = "dims.hearing."
	c.size(p+"layers", h.Layers, maxLayers)
	c.size(p+"hidden", h.Hidden, maxSide)
	c.size(p+"heads", h.Heads, maxLayers)
	c.size(p+"ffn", h.FFN, maxSide)
	c.size(p+"channels", h.Channels, maxSide)
	c.size(p+"out", h.Out, maxSide)
	c.size(p+"mel", h.Mel, maxLayers)
	c.size(p+"chunk", h.Chunk, maxLayers)
	c.size(p+"window", h.Window, maxLayers)
	c.above0(p+"epsilon", h.Epsilon)
	c.That(h.Heads < 1 || h.Hidden%(2*h.Heads) == 0, p+"hidden", "a multiple of 2*heads", h.Hidden)
	c.That(h.Mel%8 == 0, p+"mel", "a multiple of 8", h.Mel)
	c.That(h.Classes >= 0 && h.Classes <= maxVocab, p+"classes", "a number of classes", h.Classes)
	c.That(h.StepMS >= 0 && h.StepMS <= 10000 && (h.StepMS > 0) == (h.Classes > 0), p+"step_ms",
		"1 to 10000 with classes, else 0", h.StepMS)
}

func (c *checker) decoder(d Decoder) {
	const p = "dims.decoder."
	c.size(p+"layers", d.Layers, maxLayers)
	c.size(p+"hidden", d.Hidden, maxSide)
	c.size(p+"heads", d.Heads, maxLayers)
	c.size(p+"kv_heads", d.KVHeads, maxLayers)
	c.size(p+"head_dim", d.HeadDim, maxLayers)
	c.size(p+"ffn", d.FFN, maxSide)
	c.size(p+"vocab", d.Vocab, maxVocab)
	c.size(p+"max_positions", d.MaxPositions, maxVocab)
	c.That(d.KVHeads < 1 || d.Heads%d.KVHeads == 0, p+"heads", "a multiple of kv_heads", d.Heads)
	c.That(d.HeadDim%16 == 0, p+"head_dim", "a multiple of 16", d.HeadDim)
	c.above0(p+"epsilon", d.Epsilon)
	c.above0(p+"rope_theta", d.RopeTheta)
}

func (c *checker) vision(v Vision) {
	const p = "dims.vision."
	c.size(p+"layers", v.Layers, maxLayers)
	c.size(p+"hidden", v.Hidden, maxSide)
	c.size(p+"heads", v.Heads, maxLayers)
	c.size(p+"ffn", v.FFN, maxSide)
	c.size(p+"patch", v.Patch, 1024)
	c.size(p+"grid", v.Grid, 4096)
	c.size(p+"queries", v.Queries, 4096)
	c.size(p+"out", v.Out, maxSide)
	c.size(p+"resampler_heads", v.ResamplerHeads, maxLayers)
	c.size(p+"max_side", v.MaxSide, maxSide)
	c.above0(p+"epsilon", v.Epsilon)
	c.That(v.Heads < 1 || v.Hidden%v.Heads == 0, p+"hidden", "a multiple of heads", v.Hidden)
	c.That(v.ResamplerHeads < 1 || v.Out%v.ResamplerHeads == 0, p+"out", "a multiple of resampler_heads", v.Out)
	c.That(v.Out%4 == 0, p+"out", "a multiple of 4", v.Out)
}

func (c *checker) tts(t TTS) {
	const p = "dims.speech.tts."
	c.size(p+"layers", t.Layers, maxLayers)
	c.size(p+"hidden", t.Hidden, maxSide)
	c.size(p+"heads", t.Heads, maxLayers)
	c.size(p+"ffn", t.FFN, maxSide)
	c.size(p+"codes", t.Codes, maxVocab)
	c.size(p+"text_rows", t.TextRows, maxVocab)
	c.size(p+"max_positions", t.MaxPositions, maxVocab)
	c.above0(p+"epsilon", t.Epsilon)
	c.above0(p+"rope_theta", t.RopeTheta)
	c.That(t.Heads < 1 || t.Hidden%(16*t.Heads) == 0, p+"hidden", "a multiple of 16*heads", t.Hidden)
	row := fmt.Sprintf("a row below text_rows (%d)", t.TextRows)
	c.That(t.AudioBOS >= 0 && t.AudioBOS < t.TextRows, p+"audio_bos", row, t.AudioBOS)
	c.That(t.TextEOS >= 0 && t.TextEOS < t.TextRows, p+"text_eos", row, t.TextEOS)
}

func (c *checker) flow(f Flow) {
	const p = "dims.speech.flow."
	c.size(p+"codes", f.Codes, maxVocab)
	c.size(p+"hidden", f.Hidden, maxSide)
	c.size(p+"heads", f.Heads, maxLayers)
	c.size(p+"ffn", f.FFN, maxSide)
	c.size(p+"blocks", f.Blocks, maxLayers)
	c.size(p+"up_blocks", f.UpBlocks, maxLayers)
	c.size(p+"mel", f.Mel, maxLayers)
	c.size(p+"speaker", f.Speaker, maxSide)
	c.size(p+"max_prompt", f.MaxPrompt, maxLayers)
	c.That(f.Heads < 1 || f.Hidden%(2*f.Heads) == 0, p+"hidden", "a multiple of 2*heads", f.Hidden)
	d := f.DiT
	c.size(p+"dit.layers", d.Layers, maxLayers)
	c.size(p+"dit.hidden", d.Hidden, maxSide)
	c.size(p+"dit.heads", d.Heads, maxLayers)
	c.size(p+"dit.head_dim", d.HeadDim, maxLayers)
	c.size(p+"dit.ffn", d.FFN, maxSide)
	c.size(p+"dit.time", d.Time, maxSide)
	c.size(p+"dit.steps", d.Steps, 1000)
	c.That(d.Time%2 == 0, p+"dit.time", "even", d.Time)
	c.That(d.Guidance >= 0 && d.Guidance <= 100, p+"dit.guidance", "a number from 0 to 100", d.Guidance)
}

func (c *checker) image(m *Manifest) {
	i, v := m.Image, m.Dims.Vision
	c.size("image.max_slices", i.MaxSlices, 1024)
	c.size("image.scale_resolution", i.ScaleResolution, 1<<14)
	c.That(i.Patch == v.Patch, "image.patch", fmt.Sprintf("dims.vision.patch (%d)", v.Patch), i.Patch)
	c.That(i.Features == v.Queries, "image.features", fmt.Sprintf("dims.vision.queries (%d)", v.Queries), i.Features)
	for k := range 3 {
		c.That(math.Abs(i.Mean[k]) <= 1e6, fmt.Sprintf("image.mean[%d]", k), "a finite number", i.Mean[k])
		c.above0(fmt.Sprintf("image.std[%d]", k), i.Std[k])
	}
}

func (c *checker) tokens(m *Manifest) {
	vocab := m.Dims.Decoder.Vocab
	for _, name := range slices.Sorted(maps.Keys(m.Tokens)) {
		c.id(fmt.Sprintf("tokens[%q]", name), m.Tokens[name], vocab)
	}
	named := func(field string, names []string) {
		for i, name := range names {
			_, ok := m.Tokens[name]
			c.That(ok, fmt.Sprintf("%s[%d]", field, i), "a name in tokens", strconv.Quote(name))
		}
	}
	named("stop", m.Stop)
	named("stop_speech", m.StopSpeech)
	for i, id := range m.Forbidden {
		c.id(fmt.Sprintf("forbidden[%d]", i), id, vocab)
	}
	if len(m.Tokens) > 0 && m.Task != TaskAligner {
		c.That(len(m.Stop) > 0, "stop", "at least one token", "empty")
	}
}

func (c *checker) id(field string, id int32, vocab int) {
	c.That(id >= 0 && int(id) < vocab, field, fmt.Sprintf("an id below dims.decoder.vocab (%d)", vocab), id)
}

var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}$`)
	hexSum   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// files checks the files and returns their names.
func (c *checker) files(files []File) map[string]bool {
	names := make(map[string]bool, len(files))
	var total int64
	for i, f := range files {
		p := fmt.Sprintf("files[%d].", i)
		c.That(fileName.MatchString(f.Name), p+"name", "a plain file name", strconv.Quote(f.Name))
		c.That(f.Name != ManifestName, p+"name", "a file other than the manifest", strconv.Quote(f.Name))
		c.That(!names[f.Name], p+"name", "unique", strconv.Quote(f.Name))
		names[f.Name] = true
		c.That(f.Size >= 0 && f.Size <= 1<<50-total, p+"size", "a file size", f.Size)
		total += max(min(f.Size, 1<<50), 0)
		c.That(hexSum.MatchString(f.SHA256), p+"sha256", "64 hexadecimal digits", strconv.Quote(f.SHA256))
	}
	return names
}

// voice checks the files of the voice, which a model with speech needs.
func (c *checker) voice(m *Manifest, files map[string]bool) {
	c.That(m.Format >= m.Dims.Format(), "format", fmt.Sprintf("%d with these dims", m.Dims.Format()), m.Format)
	c.That((m.Voice == nil) == (m.Dims.Speech == nil), "voice", "present with dims.speech, and only with it", m.Voice != nil)
	if v := m.Voice; v != nil {
		c.That(files[v.Speaker], "voice.speaker", "a name in files", strconv.Quote(v.Speaker))
		c.That(files[v.Codes], "voice.codes", "a name in files", strconv.Quote(v.Codes))
		c.That(v.Sound == "" || files[v.Sound], "voice.sound", "a name in files", strconv.Quote(v.Sound))
	}
}

func (c *checker) graphs(m *Manifest, files map[string]bool) {
	seen, floats := map[string]bool{}, map[Device]Type{}
	for i, g := range m.Graphs {
		p := fmt.Sprintf("graphs[%d].", i)
		if !g.Kind.Speaks() && !g.Kind.Hears() {
			c.oneOf(p+"kind", string(g.Kind), string(KindDecoder), string(KindVision), string(KindEmbed), "a network of speech or hearing")
		}
		c.oneOf(p+"weights", string(g.Weights), string(WeightsInt4), string(WeightsFloat16), string(WeightsBFloat16), string(WeightsFloat32))
		c.oneOf(p+"device", string(g.Device), string(DeviceCPU), string(DeviceCUDA))
		c.That(files[g.File], p+"file", "a name in files", strconv.Quote(g.File))
		c.That(filepath.Ext(g.File) == ".onnx", p+"file", "an .onnx file", strconv.Quote(g.File))
		for j, name := range g.Data {
			c.That(files[name], fmt.Sprintf("%sdata[%d]", p, j), "a name in files", strconv.Quote(name))
		}
		c.That(g.Kind != KindVision || m.Dims.Vision != nil, p+"kind", "another kind without dims.vision", g.Kind)
		c.That(!g.Kind.Speaks() || m.Dims.Speech != nil, p+"kind", "another kind without dims.speech", g.Kind)
		c.That(!g.Kind.Hears() || m.Dims.Hearing != nil, p+"kind", "another kind without dims.hearing", g.Kind)
		c.table(p+"table", &g, m)
		c.tensors(p+"tensors", &g, m)
		c.That(g.WeightBytes >= 0, p+"weight_bytes", "at least 0", g.WeightBytes)
		c.That(g.Head == 0 || g.Head == 4 || g.Head == 8 || g.Head == 16, p+"head", "4, 8 or 16 bits", g.Head)
		c.That(g.Block >= 0 && g.Block <= 256 && g.Block&(g.Block-1) == 0, p+"block", "a power of two up to 256", g.Block)
		key := fmt.Sprintf("%s %s %s check=%t", g.Kind, g.Weights, g.Device, g.Check)
		c.That(!seen[key], p+"kind", "unique", key)
		seen[key] = true
		if float := g.Float(); !g.Kind.Speaks() && float != Float32 { // they exchange embeddings, keys and values
			c.That(floats[g.Device] == 0 || floats[g.Device] == float, p+"inputs", "of the float type of the graphs before", float)
			floats[g.Device] = float
		}
		c.ports(p+"inputs", g.Inputs)
		c.ports(p+"outputs", g.Outputs)
	}
}

// table checks the place of a graph's table.
func (c *checker) table(p string, g *Graph, m *Manifest) {
	t := g.Table
	if t == nil {
		c.That(m.Format < 6 || !g.Kind.HasTable(), p, "the place of its table of embeddings", "missing")
		return
	}
	c.That(g.Kind.HasTable(), p, "none for a graph of this kind", g.Kind)
	c.That(len(t.Shape) == 2, p+".shape", "two positive sizes", t.Shape)
	c.tensor(p+".", t, g, m)
}

// tensors checks the places of a graph's weights.
func (c *checker) tensors(p string, g *Graph, m *Manifest) {
	c.That(m.Format < 7 || !g.HasTensors() || len(g.Tensors) > 0, p, "the places of its weights", "missing")
	c.That(g.HasTensors() || len(g.Tensors) == 0, p, "only of a decoder in int4 for cuda", g.File)
	seen := make(map[string]bool, len(g.Tensors))
	for i := range g.Tensors {
		t, p := &g.Tensors[i], fmt.Sprintf("%s[%d].", p, i)
		c.That(!seen[t.Name], p+"name", "unique", strconv.Quote(t.Name))
		seen[t.Name] = true
		c.tensor(p, t, g, m)
	}
}

// tensor checks the place of a weight.
func (c *checker) tensor(p string, t *Tensor, g *Graph, m *Manifest) {
	c.That(slices.Contains(g.Data, t.File), p+"file", "a name in the graph's data", strconv.Quote(t.File))
	c.That(t.Name != "", p+"name", "not empty", `""`)
	c.That(t.Type.Size() > 0, p+"type", "a tensor type", t.Type)
	elements, sized := int64(1), len(t.Shape) > 0
	for _, d := range t.Shape {
		if sized = sized && d > 0 && d <= maxElements/elements; sized {
			elements *= d
		}
	}
	c.That(sized, p+"shape", "positive sizes", t.Shape)
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Name == t.File })
	if i >= 0 && sized {
		c.That(t.Offset >= 0 && t.Offset <= m.Files[i].Size-t.Bytes(), p+"offset", "a place of the whole tensor in its file", t.Offset)
	}
}

func (c *checker) ports(field string, ports []Port) {
	c.That(len(ports) > 0, field, "at least one", "empty")
	seen := make(map[string]bool, len(ports))
	for i, port := range ports {
		p := fmt.Sprintf("%s[%d].", field, i)
		c.That(port.Name != "" && !seen[port.Name], p+"name", "unique and not empty", strconv.Quote(port.Name))
		seen[port.Name] = true
		c.That(port.Type.Size() > 0, p+"type", "a tensor type", port.Type)
		for j, d := range port.Shape {
			n, err := strconv.Atoi(d)
			ok := err == nil && n > 0 && n <= maxVocab || err != nil && d != "" && !strings.ContainsAny(d[:1], "0123456789+-")
			c.That(ok, fmt.Sprintf("%sshape[%d]", p, j), "a size or a name", strconv.Quote(d))
		}
	}
}

func (c *checker) oneOf(field, got string, want ...string) {
	c.That(slices.Contains(want, got), field, fmt.Sprintf("one of %q", want), strconv.Quote(got))
}
