package checkpoint_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/safetensors"
)

const (
	recognizer = "../testdata/qwen3-asr/checkpoint"
	aligner    = "../testdata/qwen3-asr/aligner"
)

func TestRecognizer(t *testing.T) {
	t.Parallel()
	c := open(t, recognizer)
	m, err := c.Describe()
	require.NoError(t, err)
	require.Equal(t, 3, m.Format)
	require.Equal(t, models.TaskRecognition, m.Task)
	require.Equal(t, models.Decoder{
		Layers: 3, Hidden: 128, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 320, Vocab: 1088, Epsilon: 1e-6, RopeTheta: 1e6,
		MaxPositions: 32768, TiedHead: true,
	}, m.Dims.Decoder)
	require.Equal(t, &models.Hearing{
		Layers: 3, Hidden: 64, Heads: 4, FFN: 160, Channels: 24, Out: 128, Mel: 128, Chunk: 100, Window: 8, Epsilon: 1e-5,
	}, m.Dims.Hearing)
	require.Equal(t, models.Template{
		System: "<|im_start|>system\n", User: "<|im_start|>user\n", Assistant: "<|im_start|>assistant\n", End: "<|im_end|>\n",
		AudioStart: "<|audio_start|>", AudioPad: "<|audio_pad|>", AudioEnd: "<|audio_end|>", Transcript: "<asr_text>",
	}, m.Template)
	require.Equal(t, []string{"<|im_end|>", "<|endoftext|>"}, m.Stop)
	require.Len(t, m.Languages, 30)
	require.Len(t, m.Forbidden, 1088-1018)
	require.Empty(t, m.Missing)
	require.Empty(t, m.Source.Skipped)
	require.NoError(t, m.Dims.Validate())
	require.NotContains(t, c.Names(), "llm.lm_head.weight", "the embedding, stored twice")
	origin, err := c.Hash(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, origin.Files, "vocab.json")
	require.Contains(t, origin.Files, "merges.txt")
}

func TestAligner(t *testing.T) {
	t.Parallel()
	m, err := open(t, aligner).Describe()
	require.NoError(t, err)
	require.Equal(t, models.TaskAligner, m.Task)
	require.Equal(t, 500, m.Dims.Hearing.Classes)
	require.Equal(t, 80, m.Dims.Hearing.StepMS)
	require.False(t, m.Dims.Decoder.TiedHead)
	require.Equal(t, models.Template{
		AudioStart: "<|audio_start|>", AudioPad: "<|audio_pad|>", AudioEnd: "<|audio_end|>", Timestamp: "<timestamp>",
	}, m.Template)
	require.Empty(t, m.Stop)
}

// The rows of sound are those of the official table.
func TestHearingRows(t *testing.T) {
	t.Parallel()
	want := map[int]int{}
	require.NoError(t, json.Unmarshal(unzip(t, "../testdata/qwen3-asr/mel/token_lengths.json.gz"), &want))
	h := models.Hearing{Chunk: 100}
	for frames, rows := range want {
		require.Equal(t, rows, h.Rows(frames), frames)
	}
	require.Greater(t, len(want), 400)
}

func unzip(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

// rewritten returns a copy of a checkpoint with other small files and, if rename is not
// nil, other names of tensors; "" leaves one out.
func rewritten(t *testing.T, from string, files map[string]string, rename func(string) string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if rename == nil {
		return dir
	}
	packed := filepath.Join(dir, "model.safetensors.gz")
	plain := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.WriteFile(plain+".old", unzip(t, packed), 0o600))
	f, err := safetensors.Open(plain + ".old")
	require.NoError(t, err)
	defer f.Close()
	var entries []safetensors.Entry
	var weights bytes.Buffer
	for _, name := range f.Names() {
		s, _ := f.Tensor(name)
		if name = rename(name); name != "" {
			entries = append(entries, safetensors.Entry{Name: name, TensorInfo: s.TensorInfo})
			weights.Write(s.Data)
		}
	}
	out, err := os.Create(plain)
	require.NoError(t, err)
	w, err := safetensors.NewWriter(out, entries, nil)
	require.NoError(t, err)
	_, err = w.Write(weights.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())
	require.NoError(t, os.Remove(packed))
	return dir
}

// The layout of the port in transformers has other names of tensors and a flat config.
func TestFlatLayout(t *testing.T) {
	t.Parallel()
	for _, from := range []string{recognizer, aligner} {
		content, err := os.ReadFile(filepath.Join(from, "config.json"))
		require.NoError(t, err)
		var c map[string]any
		require.NoError(t, json.Unmarshal(content, &c))
		for k, v := range c["thinker_config"].(map[string]any) {
			if k != "model_type" {
				c[k] = v
			}
		}
		delete(c, "thinker_config")
		flat, err := json.Marshal(c)
		require.NoError(t, err)
		head := "lm_head."
		if from == aligner {
			head = "score."
		}
		names := strings.NewReplacer("thinker.model.", "model.language_model.", "thinker.lm_head.", head,
			"thinker.audio_tower.proj1.", "model.multi_modal_projector.linear_1.",
			"thinker.audio_tower.proj2.", "model.multi_modal_projector.linear_2.", "thinker.", "model.")
		dir := rewritten(t, from, map[string]string{"config.json": string(flat)}, names.Replace)
		got, want := open(t, dir), open(t, from)
		require.Equal(t, want.Names(), got.Names())
		m, err := got.Describe()
		require.NoError(t, err)
		n, err := want.Describe()
		require.NoError(t, err)
		require.Equal(t, n.Dims, m.Dims)
		require.Equal(t, n.Template, m.Template)
	}
}

// A checkpoint without a head uses the embedding; an aligner cannot.
func TestMissingHead(t *testing.T) {
	t.Parallel()
	without := func(name string) string {
		if strings.Contains(name, "lm_head") {
			return ""
		}
		return name
	}
	config := func(dir string) map[string]string {
		b, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		return map[string]string{"config.json": strings.Replace(string(b), `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1)}
	}
	m, err := open(t, rewritten(t, recognizer, config(recognizer), without)).Describe()
	require.NoError(t, err)
	require.True(t, m.Dims.Decoder.TiedHead)
	_, err = open(t, rewritten(t, aligner, nil, without)).Describe()
	require.ErrorContains(t, err, "llm.lm_head.weight")
	// A head of its own, if the config says so.
	m, err = open(t, rewritten(t, recognizer, config(recognizer), nil)).Describe()
	require.NoError(t, err)
	require.False(t, m.Dims.Decoder.TiedHead)
}

func TestHearingRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, from, to, want string }{
		{"config.json", `"n_window": 50`, `"n_window": 100`, "thinker_config.audio_config.n_window: must be 50, is 100"},
		{"config.json", `"n_window_infer": 800`, `"n_window_infer": 850`, "n_window_infer: must be a multiple of 100"},
		{"config.json", `"num_mel_bins": 128`, `"num_mel_bins": 80`, "num_mel_bins: must be 128, is 80"},
		{"config.json", `"activation_function": "gelu"`, `"activation_function": "relu"`, `activation_function: must be "gelu"`},
		{"config.json", `"scale_embedding": false`, `"scale_embedding": true`, "scale_embedding: must be false"},
		{"config.json", `"output_dim": 128`, `"output_dim": 64`, "output_dim: must be hidden_size of text_config (128), is 64"},
		{"config.json", `"encoder_layers": 3`, `"encoder_layers": 4`, "audio_tower.layers.3."},
		{"config.json", `"encoder_layers": 3`, `"encoder_layers": 2`, "is not part of an encoder of 2 layers (encoder_layers)"},
		{"config.json", `"downsample_hidden_size": 24`, `"downsample_hidden_size": 20`, "audio_config.downsample_hidden_size"},
		{"config.json", `"audio_token_id": 989,`, ``, "audio_token_id: missing"},
		{"config.json", `"audio_token_id": 989`, `"audio_token_id": 7`, "audio_token_id: 7 is not the id of an added token"},
		{"config.json", `"rope_theta": 1000000,`, ``, "text_config: rope_theta: missing"},
		{"config.json", `"hidden_act": "silu"`, `"hidden_act": "gelu"`, "text_config: hidden_act"},
		{"config.json", `"rope_type": "default"`, `"rope_type": "yarn"`, "rope_type"},
		{"config.json", `"audio_config": {`, `"sound": {`, "audio_config, text_config: missing"},
		{"tokenizer_config.json", `"<asr_text>"`, `"<text>"`, "<asr_text> is missing"},
		{"tokenizer_config.json", `"Qwen2Tokenizer"`, `"LlamaTokenizer"`, "tokenizer_class: must be Qwen2Tokenizer"},
		{"tokenizer_config.json", `"added_tokens_decoder"`, `"added"`, "added_tokens_decoder: missing"},
		{"vocab.json", `{`, `[`, "vocab.json"},
		{"merges.txt", "a n\n", "a n n\n", "merges.txt: line 2: expected two pieces"},
	} {
		b, err := os.ReadFile(filepath.Join(recognizer, tt.file))
		require.NoError(t, err)
		changed := strings.Replace(string(b), tt.from, tt.to, 1)
		require.NotEqual(t, string(b), changed, tt.from)
		c, err := checkpoint.Open(rewritten(t, recognizer, map[string]string{tt.file: changed}, nil))
		if err == nil {
			_, err = c.Describe()
			require.NoError(t, c.Close())
		}
		require.ErrorContains(t, err, tt.want)
	}
}
