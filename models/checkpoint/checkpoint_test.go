package checkpoint_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/safetensors"
)

const (
	tiny = "../testdata/tiny"
	awq  = "../testdata/tiny-awq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// copied returns a writable copy of a folder.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// edit changes a JSON file of a folder.
func edit(t *testing.T, dir, name string, change func(m map[string]any)) {
	t.Helper()
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(content, &m))
	change(m)
	content, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func TestTiny(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := checkpoint.Open(tiny)
	require.NoError(t, err)
	m, err := c.Describe()
	require.NoError(t, err)
	require.Equal(t, models.Decoder{
		Layers: 3, Hidden: 256, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 384, Vocab: 1362,
		Epsilon: 1e-6, RopeTheta: 1e6, MaxPositions: 8192,
	}, m.Dims.Decoder)
	require.Equal(t, &models.Vision{
		Layers: 2, Hidden: 96, Heads: 4, FFN: 200, Patch: 14, Grid: 70, Epsilon: 1e-6,
		Queries: 64, Out: 256, ResamplerHeads: 2, MaxSide: 1024,
	}, m.Dims.Vision)
	half := [3]float64{.5, .5, .5}
	require.Equal(t, models.Image{
		MaxSlices: 9, ScaleResolution: 448, Patch: 14, Features: 64, UseImageID: true, Mean: half, Std: half,
	}, m.Image)
	require.Equal(t, models.Template{
		System: "<|im_start|>system\n", User: "<|im_start|>user\n", Assistant: "<|im_start|>assistant\n",
		End: "<|im_end|>\n", NoThink: "<think>\n\n</think>\n\n", Speech: "<|tts_bos|>",
	}, m.Template)
	require.Len(t, m.Tokens, 106)
	require.EqualValues(t, 1259, m.Tokens["<|im_end|>"])
	require.EqualValues(t, 1067, m.Tokens["<unk>"])
	require.Equal(t, []string{"<|im_end|>", "<|endoftext|>"}, m.Stop)
	require.Equal(t, []string{"<|tts_eos|>", "<|im_end|>", "<unk>"}, m.StopSpeech)
	require.Len(t, m.Forbidden, 477) // as many as the official code forbids
	for _, id := range []int32{2, 7, 8, 9, 14, 25, 31, 58, 60, 198, 1067} {
		require.Contains(t, m.Forbidden, id)
	}
	require.Equal(t, []string{"token2wav (assets/token2wav/flow.pt is missing)"}, m.Missing)
	require.Equal(t, 1, m.Format)
	require.Equal(t, tiny, m.Source.Path)
	require.Len(t, m.Source.Skipped, 1)
	require.Contains(t, m.Source.Skipped[0], "audio encoder (apm, audio_projection_layer): 26 tensors")

	// Every tensor can be read, including those of unsupported parts.
	for _, name := range c.Names() {
		info, ok := c.Info(name)
		require.True(t, ok)
		require.Equal(t, models.BFloat16, info.Type)
		rows := make([]float32, info.Rows()*info.Cols())
		require.NoError(t, c.Rows(rows, name, 0, info.Rows()))
		require.True(t, slices.ContainsFunc(rows, func(v float32) bool { return v != 0 }) || strings.HasSuffix(name, "bias"), name)
		_, ok = c.Packed(name)
		require.False(t, ok)
	}
	_, ok := c.Info("tts.emb_code.0.weight")
	require.True(t, ok)
	require.ErrorContains(t, c.Rows(nil, "none", 0, 0), `no tensor "none"`)
	_, err = c.File("none.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, name := range []string{"../tiny/config.json", "/etc/passwd", ".", "..", ""} {
		_, err = c.File(name)
		require.ErrorContains(t, err, "is not a file name", name)
	}

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Len(t, left, 1, "the unpacked shards")
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	left, err = os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "Close removes what was unpacked")
}

// Describe forbids every id that the official tokenizer forbids, and no letter.
func TestForbidden(t *testing.T) {
	m, err := open(t, tiny).Describe()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(tiny, "tokenizer_config.json"))
	require.NoError(t, err)
	var published struct {
		Bad []int32 `json:"bad_token_ids"`
	}
	require.NoError(t, json.Unmarshal(content, &published))
	added := slices.DeleteFunc(slices.Clone(m.Forbidden), func(id int32) bool { return slices.Contains(published.Bad, id) })
	require.Equal(t, []int32{2, 3, 5, 9, 14, 25, 31, 58, 60, 1067}, added)
	require.True(t, slices.IsSorted(m.Forbidden))
}

func TestHash(t *testing.T) {
	c := open(t, tiny)
	require.Empty(t, c.Origin().Files)
	var last, total int64
	origin, err := c.Hash(t.Context(), func(done, of int64) {
		require.Greater(t, of, int64(1<<20))
		require.GreaterOrEqual(t, done, last)
		last, total = done, of
	})
	require.NoError(t, err)
	require.Equal(t, total, last)
	require.Len(t, origin.Files, 8)
	for name, sum := range origin.Files {
		content, err := os.ReadFile(filepath.Join(tiny, name))
		require.NoError(t, err)
		want := sha256.Sum256(content)
		require.Equal(t, hex.EncodeToString(want[:]), sum, name)
	}
	require.Equal(t, origin, c.Origin())
	m, err := c.Describe()
	require.NoError(t, err)
	require.Equal(t, origin, m.Source)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err = c.Hash(ctx, nil)
	require.ErrorContains(t, err, "enough")
}

func TestAWQ(t *testing.T) {
	c := open(t, awq)
	m, err := c.Describe()
	require.NoError(t, err)
	require.Nil(t, m.Dims.Vision)
	require.Len(t, m.Missing, 3)
	require.Regexp(t, `^vision \(\d+ of its \d+ tensors are missing, for example vpm\.`, m.Missing[0])
	require.Regexp(t, `^speech \(\d+ of its \d+ tensors are missing, for example tts\.`, m.Missing[1])
	require.Equal(t, "tokenizer", m.Missing[2])
	require.Empty(t, m.Tokens)
	require.Equal(t, models.Template{}, m.Template)

	f, err := safetensors.Open("../testdata/tiny-awq-dequant.safetensors")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for key, name := range map[string]string{
		"llm.model.layers.0.self_attn.k_proj.weight.rows0_32": "llm.model.layers.0.self_attn.k_proj.weight",
		"llm.model.layers.1.mlp.down_proj.weight.rows0_8":     "llm.model.layers.1.mlp.down_proj.weight",
	} {
		x, ok := f.Tensor(key)
		require.True(t, ok)
		want, err := x.Floats()
		require.NoError(t, err)
		got := make([]float32, len(want))
		require.NoError(t, c.Rows(got, name, 0, x.TensorInfo.Rows()))
		require.Equal(t, want, got, name)
	}
	for _, name := range c.Names() {
		require.False(t, strings.HasSuffix(name, ".qweight") || strings.HasSuffix(name, ".qzeros") || strings.HasSuffix(name, ".scales"), name)
	}
}

// The packed form holds the same numbers as the dequantised rows, for all layers
// and ranges.
func TestPacked(t *testing.T) {
	c := open(t, awq)
	layers := 0
	for _, name := range c.Names() {
		p, ok := c.Packed(name)
		if !ok {
			continue
		}
		layers++
		n, k, block := p.Dims()
		info, ok := c.Info(name)
		require.True(t, ok)
		require.Equal(t, []int{n, k}, info.Shape)
		require.Equal(t, 128, block)
		blocks := k / block
		for _, r := range [][2]int{{0, n}, {3, 4}, {5, 150}, {n - 1, n}, {128, 136}, {7, 7}} {
			rows := r[1] - r[0]
			quants, scales := make([]byte, rows*k/2), make([]uint16, rows*blocks)
			zeros := bytes.Repeat([]byte{0xff}, rows*((blocks+1)/2)) // must be overwritten
			require.NoError(t, p.Rows(quants, scales, zeros, r[0], r[1]))
			want := make([]float32, rows*k)
			require.NoError(t, c.Rows(want, name, r[0], r[1]))
			for i := range rows {
				for j := range k {
					g := j / block
					q := quants[(i*k+j)/2] >> (4 * (j & 1)) & 15
					z := zeros[i*((blocks+1)/2)+g/2] >> (4 * (g & 1)) & 15
					got := (float32(q) - float32(z)) * models.Float16FromBits(scales[i*blocks+g])
					if got != want[i*k+j] {
						require.Equal(t, want[i*k+j], got, "%s output %d input %d", name, r[0]+i, j)
					}
				}
				if blocks%2 == 1 {
					require.Zero(t, zeros[(i+1)*((blocks+1)/2)-1]>>4, "the half that no block uses")
				}
			}
		}
		require.ErrorContains(t, p.Rows(nil, nil, nil, 0, n+1), "rows must be within")
		require.ErrorContains(t, p.Rows(nil, nil, nil, 0, 1), "needs ")
		require.ErrorContains(t, c.Rows(nil, name, -1, 0), "rows must be within")
		require.ErrorContains(t, c.Rows(nil, name, 0, 1), "needs ")
	}
	require.Equal(t, 3*7, layers)
}

// A folder with the language model only, in the form of Qwen3: one file, no prefix,
// its own config.
func TestDecoderOnly(t *testing.T) {
	for _, dir := range []string{tiny, awq} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			to := copied(t, dir)
			src := open(t, dir)
			plainFolder(t, dir, to)
			edit(t, to, "config.json", func(m map[string]any) {
				for _, key := range []string{"vision_config", "audio_config", "tts_config", "slice_config", "query_num"} {
					delete(m, key)
				}
				m["model_type"] = "qwen3"
			})
			c := open(t, to)
			m, err := c.Describe()
			require.NoError(t, err)
			require.Nil(t, m.Dims.Vision)
			require.Equal(t, "vision", m.Missing[0])
			for _, name := range c.Names() {
				require.True(t, strings.HasPrefix(name, "llm."), name)
				info, _ := c.Info(name)
				was, ok := src.Info(name)
				require.True(t, ok)
				require.Equal(t, was, info)
				a, b := make([]float32, info.Cols()), make([]float32, info.Cols())
				require.NoError(t, src.Rows(a, name, 0, 1))
				require.NoError(t, c.Rows(b, name, 0, 1))
				require.Equal(t, a, b)
			}
		})
	}
}

// plainFolder rewrites the language model's tensors of a folder into one
// model.safetensors without prefix.
func plainFolder(t *testing.T, from, to string) {
	t.Helper()
	var entries []safetensors.Entry
	var data []byte
	for _, s := range shards(t, from) {
		for _, name := range s.Names() {
			x, _ := s.Tensor(name)
			if plain, ok := strings.CutPrefix(name, "llm."); ok {
				entries = append(entries, safetensors.Entry{Name: plain, TensorInfo: x.TensorInfo})
				data = append(data, x.Data...)
			}
		}
	}
	clearShards(t, to)
	writeTensors(t, filepath.Join(to, "model.safetensors"), entries, data)
}

func clearShards(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "model*"))
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Remove(f))
	}
}

func writeTensors(t *testing.T, path string, entries []safetensors.Entry, data []byte) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	w, err := safetensors.NewWriter(f, entries, nil)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
}

// Omitted values have the defaults of the configuration class.
func TestDefaultsOfTheConfig(t *testing.T) {
	dir := copied(t, tiny)
	edit(t, dir, "config.json", func(m map[string]any) {
		delete(m, "rms_norm_eps")
		delete(m, "rope_theta")
		delete(m, "drop_vision_last_layer")
		delete(m, "query_num")
		m["rope_parameters"] = map[string]any{"rope_type": "default", "rope_theta": 5e5}
		delete(m["vision_config"].(map[string]any), "layer_norm_eps")
		m["max_position_embeddings"] = 1000
	})
	m, err := open(t, dir).Describe()
	require.NoError(t, err)
	require.Equal(t, 1e-6, m.Dims.Decoder.Epsilon)
	require.Equal(t, 5e5, m.Dims.Decoder.RopeTheta)
	require.Equal(t, 1000, m.Dims.Decoder.MaxPositions)
	require.Equal(t, 2, m.Dims.Vision.Layers)
	require.Equal(t, 64, m.Dims.Vision.Queries)
	require.Equal(t, 1e-6, m.Dims.Vision.Epsilon)
}

func TestMissingParts(t *testing.T) {
	dir := copied(t, tiny)
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "generation_config.json"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	m, err := open(t, dir).Describe()
	require.NoError(t, err)
	require.Equal(t, []string{
		"vision (preprocessor_config.json is missing)", "token2wav (assets/token2wav/flow.pt is missing)", "tokenizer",
	}, m.Missing)
	require.Nil(t, m.Dims.Vision)
}

// Each contradiction is an error that names the file and the field.
func TestBadFolders(t *testing.T) {
	contents := map[string]map[string][]byte{tiny: unpacked(t, tiny), awq: unpacked(t, awq)}
	config := func(change func(m map[string]any)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { t.Helper(); edit(t, dir, "config.json", change) }
	}
	set := func(key string, value any) func(t *testing.T, dir string) {
		return config(func(m map[string]any) { m[key] = value })
	}
	vision := func(key string, value any) func(t *testing.T, dir string) {
		return config(func(m map[string]any) { m["vision_config"].(map[string]any)[key] = value })
	}
	in := func(name, key string, value any) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			edit(t, dir, name, func(m map[string]any) { m[key] = value })
		}
	}
	content := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { t.Helper(); require.NoError(t, os.Remove(filepath.Join(dir, name))) }
	}
	const shard = "model-00001-of-00002.safetensors.gz"
	for _, tt := range []struct {
		name   string
		from   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"no config", tiny, remove("config.json"), "config.json"},
		{"cut config", tiny, content("config.json", `{"hidden_size": 25`), "config.json: not valid JSON"},
		{"a list", tiny, content("config.json", `[]`), "config.json: not valid JSON"},
		{"a word for a number", tiny, set("hidden_size", "many"), "config.json: hidden_size: expected int, got string"},
		{"a fraction", tiny, set("num_hidden_layers", 1.5), "config.json: num_hidden_layers: expected int, got number 1.5"},
		{"missing size", tiny, config(func(m map[string]any) { delete(m, "hidden_size") }), "config.json: hidden_size: missing"},
		{"negative", tiny, set("num_hidden_layers", -1), "config.json: num_hidden_layers: must be between 1 and 1000, is -1"},
		{"huge", tiny, set("vocab_size", 1<<40), "config.json: vocab_size: must be between"},
		{"zero epsilon", tiny, set("rms_norm_eps", 0), "config.json: rms_norm_eps: must be a positive number"},
		{"head_dim", tiny, set("head_dim", 72), "config.json: head_dim: must be a multiple of 16 for the attention kernels, is 72"},
		{"uneven heads", tiny, set("num_key_value_heads", 4), "num_attention_heads: must be a multiple of num_key_value_heads 4, is 6"},
		{"other activation", tiny, set("hidden_act", "gelu"), `hidden_act: must be "silu", is "gelu"`},
		{"biases", tiny, set("attention_bias", true), "attention_bias: must be false"},
		{"window", tiny, set("use_sliding_window", true), "use_sliding_window: must be false"},
		{"yarn", tiny, set("rope_scaling", map[string]any{"rope_type": "yarn"}), `rope_scaling.rope_type: must be "default", is "yarn"`},
		{"yarn by its old name", tiny, set("rope_scaling", map[string]any{"type": "yarn"}), `rope_scaling.rope_type: must be "default", is "yarn"`},
		{"other width", tiny, set("hidden_size", 512), `config.json: vocab_size, hidden_size: tensor "llm.model.embed_tokens.weight" has shape [1362 256], expected [1362 512]`},
		{"other vocabulary", tiny, set("vocab_size", 1361), "config.json: vocab_size"},
		{"more layers", tiny, set("num_hidden_layers", 4), `11 of the 47 tensors of a Qwen3 decoder are missing, for example "llm.model.layers.3.`},
		{"fewer layers", tiny, set("num_hidden_layers", 2), `tensor "llm.model.layers.2.input_layernorm.weight" is not part of a Qwen3 decoder of 2 layers`},
		{"vision: missing size", tiny, vision("hidden_size", nil), "config.json: vision_config.hidden_size: missing"},
		{"vision: word", tiny, vision("hidden_size", "x"), "vision_config.hidden_size: expected int"},
		{"vision: uneven heads", tiny, vision("num_attention_heads", 5), "vision_config.hidden_size: must be a multiple"},
		{"vision: channels", tiny, vision("num_channels", 1), "vision_config.num_channels: must be 3"},
		{"vision: image", tiny, vision("image_size", 7), "vision_config.image_size: must be at least patch_size"},
		{"vision: activation", tiny, vision("hidden_act", "relu"), "vision_config.hidden_act"},
		{"vision: layers", tiny, vision("num_hidden_layers", 1), "vision_config.num_hidden_layers: must be at least 2"},
		{"vision: width", tiny, vision("intermediate_size", 201), `vision_config.intermediate_size`},
		{"vision: no config", tiny, set("vision_config", nil), "config.json: vision_config: missing"},
		{"queries", tiny, set("query_num", 32), `config.json: query_num, hidden_size: tensor "resampler.query"`},
		{"quantised otherwise", awq, set("quantization_config", map[string]any{"quant_method": "gptq", "bits": 4, "group_size": 128}), "quantization_config: must be quant_method awq"},
		{"not said to be quantised", awq, set("quantization_config", nil), "config.json: quantization_config: missing"},
		{"group", awq, config(func(m map[string]any) { m["quantization_config"].(map[string]any)["group_size"] = 100 }), "quantization_config.group_size 100"},
		{"other group", awq, config(func(m map[string]any) { m["quantization_config"].(map[string]any)["group_size"] = 64 }), "expected I32 [6 32], got I32 [3 32]"},
		{"no group", awq, config(func(m map[string]any) { m["quantization_config"].(map[string]any)["group_size"] = 0 }), "quantization_config.group_size: must be"},
		{"index of nothing", tiny, content("model.safetensors.index.json", `{"weight_map":{}}`), "model.safetensors.index.json: weight_map: missing or empty"},
		{"index that is cut", tiny, content("model.safetensors.index.json", `{"weight_map":{`), "model.safetensors.index.json: not valid JSON"},
		{"index that leads out", tiny, content("model.safetensors.index.json", `{"weight_map":{"a":"../../x.safetensors"}}`), `weight_map: "a": expected a .safetensors file in the folder`},
		{"index of a missing file", tiny, content("model.safetensors.index.json", `{"weight_map":{"a":"x.safetensors"}}`), "model.safetensors.index.json: a listed file is missing"},
		{"index of a missing tensor", tiny, content("model.safetensors.index.json", `{"weight_map":{"a":"model-00001-of-00002.safetensors"}}`), `weight_map: "a" is not in model-00001`},
		{"shard that is no gzip", tiny, content(shard, "hello"), shard},
		{"shard that grows", tiny, content(shard, zeros(64<<20)), "more than 20 times as large"},
		{"no weights", tiny, func(t *testing.T, dir string) { t.Helper(); clearShards(t, dir) }, "neither model.safetensors.index.json nor model.safetensors found"},
		{"cut shard", tiny, cut(shard), "unpack"},
		{"preprocessor: cut", tiny, content("preprocessor_config.json", `{`), "preprocessor_config.json: not valid JSON"},
		{"preprocessor: mean", tiny, in("preprocessor_config.json", "norm_mean", []float64{1}), "preprocessor_config.json: norm_mean: must have 3 numbers, has 1"},
		{"preprocessor: std", tiny, in("preprocessor_config.json", "norm_std", []float64{1, 0, 1}), "preprocessor_config.json: norm_std[1]: must be a positive"},
		{"preprocessor: patch", tiny, in("preprocessor_config.json", "patch_size", 16), "preprocessor_config.json: patch_size: must be vision_config.patch_size of config.json"},
		{"preprocessor: features", tiny, in("preprocessor_config.json", "image_feature_size", 32), "preprocessor_config.json: image_feature_size: must be query_num of config.json"},
		{"preprocessor: scale", tiny, in("preprocessor_config.json", "scale_resolution", 4), "preprocessor_config.json: scale_resolution: must be"},
		{"preprocessor: slices", tiny, in("preprocessor_config.json", "max_slice_nums", 0), "preprocessor_config.json: max_slice_nums: must be"},
		{"tokenizer: cut", tiny, content("tokenizer.json", `{"added_tokens":[`), "tokenizer.json: not valid JSON"},
		{"tokenizer: id beyond", tiny, content("tokenizer.json", `{"added_tokens":[{"id":1362,"content":"x"}]}`), `tokenizer.json: added_tokens[0]: "x": id must be below vocab_size 1362`},
		{"tokenizer: no id", tiny, content("tokenizer.json", `{"added_tokens":[{"content":"x"}]}`), "added_tokens[0]: id or content is missing"},
		{"tokenizer: two ids", tiny, content("tokenizer.json", `{"added_tokens":[{"id":1,"content":"x"},{"id":2,"content":"x"}]}`), `"x" has the ids 1 and 2`},
		{"tokenizer: no ChatML", tiny, content("tokenizer.json", `{}`), "<|im_start|> is missing in added_tokens of tokenizer.json"},
		{"tokenizer: other template", tiny, in("tokenizer_config.json", "chat_template", "[INST]"), "tokenizer_config.json: chat_template: must use <|im_start|>"},
		{"bad ids beyond", tiny, in("tokenizer_config.json", "bad_token_ids", []int{5000}), "tokenizer_config.json: bad_token_ids[0]: must be below vocab_size 1362, is 5000"},
		{"bad ids of words", tiny, in("tokenizer_config.json", "bad_token_ids", []string{"x"}), "tokenizer_config.json: bad_token_ids: expected"},
		{"eos unknown", tiny, in("generation_config.json", "eos_token_id", 5), "generation_config.json: eos_token_id: 5 is missing in added_tokens"},
		{"eos a word", tiny, in("generation_config.json", "eos_token_id", "x"), "generation_config.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			dir := copied(t, tt.from)
			tt.change(t, dir)
			replaceShards(t, dir, contents[tt.from])
			c, err := checkpoint.Open(dir)
			if err == nil {
				_, err = c.Describe()
				require.NoError(t, c.Close())
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, dir)
			left, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			require.Empty(t, left, "nothing unpacked is left behind")
		})
	}
}

// zeros is gzipped zeros.
func zeros(n int) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n)) // to memory
	_ = z.Close()
	return b.String()
}

// cut halves a file.
func cut(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()/2))
	}
}

// NaN and infinities are read like other values; the converter reports them.
func TestSpecialValues(t *testing.T) {
	dir := copied(t, tiny)
	src := open(t, tiny)
	clearShards(t, dir)
	var entries []safetensors.Entry
	var data []byte
	for _, name := range src.Names() {
		info, _ := src.Info(name)
		entries = append(entries, safetensors.Entry{Name: name, TensorInfo: info})
		data = append(data, bytes.Repeat([]byte{0xc0, 0x7f}, info.Rows()*info.Cols())...)
	}
	writeTensors(t, filepath.Join(dir, "model.safetensors"), entries, data)
	c := open(t, dir)
	v := make([]float32, 256)
	require.NoError(t, c.Rows(v, "llm.model.norm.weight", 0, 256))
	require.True(t, math.IsNaN(float64(v[17])))
}
