package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"touchline/models"
)

// Names of the special tokens that this package looks up.
const (
	imStart   = "<|im_start|>"
	imEnd     = "<|im_end|>"
	endOfText = "<|endoftext|>"
	ttsBOS    = "<|tts_bos|>"
	ttsEOS    = "<|tts_eos|>"
	think     = "<think>"
	thinkEnd  = "</think>"
	unknown   = "<unk>"
)

// marks are the punctuation marks that the official speech path forbids. It
// forbids twelve more, CJK brackets and curly quotes, which are not in the
// byte-level vocabulary, so their lookup yields the unknown token.
const marks = ":#@*()[]&/$"

// Describe returns a bundle's manifest without its graphs, files and creator:
// source, sizes, tokens, template, image constants and missing parts. Vision, voice
// and tokenizer are optional. If the files contradict each other, the error names
// file and field.
func (c *Checkpoint) Describe() (models.Manifest, error) {
	m := models.Manifest{
		Format: 1,
		Name:   filepath.Base(filepath.Clean(c.dir)),
		Source: c.Origin(),
	}
	var err error
	if m.Dims.Decoder, err = c.decoder(); err != nil {
		return m, err
	}
	if c.config.hearing != nil {
		return m, c.describeHearing(&m)
	}
	if err := c.describeVision(&m); err != nil {
		return m, err
	}
	if err := c.describeSpeech(&m); err != nil {
		return m, err
	}
	return m, c.describeTokens(&m)
}

func (c *Checkpoint) describeVision(m *models.Manifest) error {
	v, err := c.vision()
	if err == nil {
		m.Image, err = c.image(v)
	}
	if none, ok := errors.AsType[missingError](err); ok {
		m.Missing = append(m.Missing, none.Error())
		return nil
	}
	if err != nil {
		return err
	}
	perSide := m.Image.ScaleResolution / m.Image.Patch
	// A picture one patch high has at most this many patches in a row.
	v.MaxSide = max(v.Grid, perSide*perSide)
	m.Dims.Vision = v
	return nil
}

// preprocessor is preprocessor_config.json.
type preprocessor struct {
	MaxSlices       *int      `json:"max_slice_nums"`
	ScaleResolution *int      `json:"scale_resolution"`
	Patch           *int      `json:"patch_size"`
	Features        *int      `json:"image_feature_size"`
	UseImageID      *bool     `json:"use_image_id"`
	SliceMode       *bool     `json:"slice_mode"`
	Mean            []float64 `json:"norm_mean"`
	Std             []float64 `json:"norm_std"`
}

func (c *Checkpoint) image(v *models.Vision) (models.Image, error) {
	const name = "preprocessor_config.json"
	content, err := c.File(name)
	if errors.Is(err, fs.ErrNotExist) {
		return models.Image{}, missingError("vision (" + name + " is missing)")
	}
	if err != nil {
		return models.Image{}, err
	}
	m, err := parsePreprocessor(content, v)
	if err != nil {
		return m, fmt.Errorf("%s: %w", c.path(name), err)
	}
	return m, nil
}

func parsePreprocessor(content []byte, v *models.Vision) (models.Image, error) {
	var p preprocessor
	if err := json.Unmarshal(content, &p); err != nil {
		return models.Image{}, jsonError(err)
	}
	setDefault(&p.UseImageID, true)
	setDefault(&p.SliceMode, true)
	errs := []error{
		size("max_slice_nums", p.MaxSlices, 64),
		size("scale_resolution", p.ScaleResolution, 4096),
		size("patch_size", p.Patch, 64),
		size("image_feature_size", p.Features, 1<<16),
	}
	for field, list := range map[string][]float64{"norm_mean": p.Mean, "norm_std": p.Std} {
		if len(list) != 3 {
			errs = append(errs, fmt.Errorf("%s: must have 3 numbers, has %d", field, len(list)))
		}
	}
	for i, s := range p.Std {
		errs = append(errs, positive(fmt.Sprintf("norm_std[%d]", i), s))
	}
	if err := errors.Join(errs...); err != nil {
		return models.Image{}, err
	}
	switch {
	case *p.Patch != v.Patch:
		return models.Image{}, fmt.Errorf("patch_size: must be vision_config.patch_size of config.json (%d), is %d", v.Patch, *p.Patch)
	case *p.Features != v.Queries:
		return models.Image{}, fmt.Errorf("image_feature_size: must be query_num of config.json (%d), is %d", v.Queries, *p.Features)
	case *p.ScaleResolution < *p.Patch || *p.ScaleResolution / *p.Patch > 64:
		return models.Image{}, fmt.Errorf("scale_resolution: must be 1 to 64 times patch_size %d, is %d", *p.Patch, *p.ScaleResolution)
	}
	m := models.Image{
		MaxSlices: *p.MaxSlices, ScaleResolution: *p.ScaleResolution, Patch: *p.Patch, Features: *p.Features,
		UseImageID: *p.UseImageID, Mean: [3]float64(p.Mean), Std: [3]float64(p.Std),
	}
	if !*p.SliceMode {
		m.MaxSlices = 1
	}
	return m, nil
}

// tokenizer is the part of tokenizer.json that the manifest needs; package
// tokenizer reads the rest.
type tokenizer struct {
	Added []struct {
		ID      *int64 `json:"id"`
		Content string `json:"content"`
	} `json:"added_tokens"`
	Model struct {
		Vocab map[string]int64 `json:"vocab"`
	} `json:"model"`
}

// tokenizerConfig is tokenizer_config.json.
type tokenizerConfig struct {
	Bad      []int64         `json:"bad_token_ids"`
	Template json.RawMessage `json:"chat_template"` // text, or a list of named templates
}

// generation is generation_config.json.
type generation struct {
	EOS ids `json:"eos_token_id"`
}

// ids is a number or a list of numbers.
type ids []int64

// UnmarshalJSON accepts both forms, and null.
func (l *ids) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]int64)(l))
	}
	var one *int64
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	if one != nil {
		*l = ids{*one}
	}
	return nil
}

func (c *Checkpoint) describeTokens(m *models.Manifest) error {
	content, err := c.File("tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		m.Missing = append(m.Missing, "tokenizer")
		return nil
	}
	if err != nil {
		return err
	}
	var t tokenizer
	err = json.Unmarshal(content, &t)
	if err != nil {
		err = jsonError(err)
	} else {
		m.Tokens, err = t.tokens(m.Dims.Decoder.Vocab)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.path("tokenizer.json"), err)
	}
	var settings tokenizerConfig
	if err := c.readOptional("tokenizer_config.json", &settings); err != nil {
		return err
	}
	var g generation
	if err := c.readOptional("generation_config.json", &g); err != nil {
		return err
	}
	if err := c.template(m, settings); err != nil {
		return fmt.Errorf("%s: %w", c.path("tokenizer_config.json"), err)
	}
	if m.Stop, err = stops(m.Tokens, g.EOS); err != nil {
		return fmt.Errorf("%s: %w", c.path("generation_config.json"), err)
	}
	if m.Template.Speech == "" {
		return nil
	}
	for _, name := range []string{ttsEOS, imEnd, unknown} { // "</s>" is looked up as unknown
		if _, ok := m.Tokens[name]; ok {
			m.StopSpeech = append(m.StopSpeech, name)
		}
	}
	if m.Forbidden, err = t.forbidden(settings.Bad, m.Dims.Decoder.Vocab, m.Tokens); err != nil {
		return fmt.Errorf("%s: %w", c.path("tokenizer_config.json"), err)
	}
	return nil
}

// readOptional reads a JSON file that may be missing.
func (c *Checkpoint) readOptional(name string, dst any) error {
	content, err := c.File(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, dst); err != nil {
		return fmt.Errorf("%s: %w", c.path(name), jsonError(err))
	}
	return nil
}

// tokens returns the ids of the added tokens by name.
func (t *tokenizer) tokens(vocab int) (map[string]int32, error) {
	tokens := make(map[string]int32, len(t.Added))
	for i, a := range t.Added {
		if a.ID == nil || a.Content == "" {
			return nil, fmt.Errorf("added_tokens[%d]: id or content is missing", i)
		}
		if *a.ID < 0 || *a.ID >= int64(vocab) {
			return nil, fmt.Errorf("added_tokens[%d]: %.40q: id must be below vocab_size %d, is %d", i, a.Content, vocab, *a.ID)
		}
		if was, ok := tokens[a.Content]; ok && int64(was) != *a.ID {
			return nil, fmt.Errorf("added_tokens[%d]: %.40q has the ids %d and %d", i, a.Content, was, *a.ID)
		}
		tokens[a.Content] = int32(*a.ID) //nolint:gosec // below vocab, at most maxSize
	}
	return tokens, nil
}

// template sets the pieces of the chat template that are in both the tokens and the published
// template.
func (c *Checkpoint) template(m *models.Manifest, settings tokenizerConfig) error {
	for _, name := range []string{imStart, imEnd} {
		if _, ok := m.Tokens[name]; !ok {
			return fmt.Errorf("%s is missing in added_tokens of tokenizer.json: the chat template needs it", name)
		}
	}
	published := string(settings.Template)
	if jinja, err := c.File("chat_template.jinja"); err == nil {
		published = string(jinja)
	}
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := m.Tokens[name]; !ok || published != "" && !strings.Contains(unescape(published), name) {
				return false
			}
		}
		return true
	}
	if !has(imStart, imEnd) {
		return fmt.Errorf("chat_template: must use %s and %s", imStart, imEnd)
	}
	m.Template = models.Template{
		System: imStart + "system\n", User: imStart + "user\n", Assistant: imStart + "assistant\n", End: imEnd + "\n",
	}
	if has(think, thinkEnd) {
		m.Template.NoThink = think + "\n\n" + thinkEnd + "\n\n"
	}
	if has(ttsBOS) {
		m.Template.Speech = ttsBOS
	}
	return nil
}

// unescape undoes the JSON escapes of angle brackets.
func unescape(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u003C`, "<", `\u003E`, ">").Replace(s)
}

// stops names the tokens that end an answer: the official code's, and the generation config's.
func stops(tokens map[string]int32, eos ids) ([]string, error) {
	var names []string
	for _, name := range []string{imEnd, endOfText} {
		if _, ok := tokens[name]; ok {
			names = append(names, name)
		}
	}
	for _, id := range eos {
		name := ""
		for n, i := range tokens {
			if int64(i) == id && (name == "" || n < name) {
				name = n
			}
		}
		if name == "" {
			return nil, fmt.Errorf("eos_token_id: %d is missing in added_tokens of tokenizer.json", id)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// forbidden returns the ids that speech must not use, sorted: the published
// list, the marks, and the unknown token, which stands for other marks.
func (t *tokenizer) forbidden(bad []int64, vocab int, tokens map[string]int32) ([]int32, error) {
	list := make([]int32, 0, len(bad)+len(marks)+1)
	for i, id := range bad {
		if id < 0 || id >= int64(vocab) {
			return nil, fmt.Errorf("bad_token_ids[%d]: must be below vocab_size %d, is %d", i, vocab, id)
		}
		list = append(list, int32(id)) //nolint:gosec // below vocab, at most maxSize
	}
	for _, mark := range marks {
		id, ok := t.Model.Vocab[string(mark)]
		if ok && id >= 0 && id < int64(vocab) {
			list = append(list, int32(id)) //nolint:gosec // below vocab, at most maxSize
		}
	}
	if id, ok := tokens[unknown]; ok {
		list = append(list, id)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
