package checkpoint_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/synth"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/safetensors"
	"touchline/models/torch"
)

// speaking writes a checkpoint with a voice.
func speaking(t *testing.T) string {
	t.Helper()
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	s, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, s.Write(t.Context(), dir, 1<<30, nil))
	return dir
}

func TestSpeech(t *testing.T) {
	c := open(t, speaking(t))
	m, err := c.Describe()
	require.NoError(t, err)
	require.Equal(t, 2, m.Format)
	require.Empty(t, m.Missing)
	require.Equal(t, &models.Speech{
		TTS: models.TTS{
			Layers: 3, Hidden: 64, Heads: 4, FFN: 160, Codes: 4250, TextRows: 1369,
			Epsilon: 1e-6, RopeTheta: 1e4, MaxPositions: 4096, AudioBOS: 1301, TextEOS: 1306,
		},
		Flow: models.Flow{
			Codes: 4300, Hidden: 32, Heads: 2, FFN: 64, Blocks: 2, UpBlocks: 2, Mel: 80, Speaker: 192, MaxPrompt: 425,
			DiT: models.DiT{Layers: 2, Hidden: 32, Heads: 2, HeadDim: 16, FFN: 128, Time: 256, Steps: 10, Guidance: 0.7},
		},
		Vocoder: models.Vocoder{Channels: 32, Pitch: 24},
	}, m.Dims.Speech)
	require.Equal(t, &models.Voice{Speaker: "campplus.onnx", Codes: "speech_tokenizer_v2_25hz.onnx", Sound: "HT_ref_audio.wav"}, m.Voice)
	origin, err := c.Hash(t.Context(), nil)
	require.NoError(t, err)
	for _, name := range []string{"token2wav/flow.pt", "token2wav/hift.pt", "token2wav/flow.yaml", "token2wav/campplus.onnx", "HT_ref_audio.wav"} {
		require.Len(t, origin.Files["assets/"+name], 64, name)
	}
}

// without writes flow.pt or hift.pt again with fewer tensors, or with others of
// another shape.
func without(t *testing.T, path string, drop ...string) {
	t.Helper()
	f, err := torch.Open(path)
	require.NoError(t, err)
	var entries []safetensors.Entry
	var data []byte
	for _, name := range f.Names() {
		tensor, _ := f.Tensor(name)
		if !slices.Contains(drop, name) {
			entries = append(entries, safetensors.Entry{Name: name, TensorInfo: tensor.TensorInfo})
			data = append(data, tensor.Data...)
		}
	}
	require.NoError(t, f.Close())
	require.NoError(t, os.Remove(path))
	out, err := os.Create(path)
	require.NoError(t, err)
	w, err := torch.NewWriter(out, entries)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())
}

// TestMissingSpeech removes parts of the voice.
func TestMissingSpeech(t *testing.T) {
	published := speaking(t)
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "assets", name)))
		}
	}
	drop := func(name string, tensors ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			without(t, filepath.Join(dir, "assets/token2wav", name), tensors...)
		}
	}
	tests := []struct {
		change func(t *testing.T, dir string)
		want   string
		speaks bool
	}{
		{remove("token2wav/flow.pt"), "token2wav (assets/token2wav/flow.pt is missing)", false},
		{remove("token2wav/hift.pt"), "token2wav (assets/token2wav/hift.pt is missing)", false},
		{remove("token2wav/campplus.onnx"), "token2wav (assets/token2wav/campplus.onnx is missing)", false},
		{remove("token2wav/speech_tokenizer_v2_25hz.onnx"), "token2wav (assets/token2wav/speech_tokenizer_v2_25hz.onnx is missing)", false},
		{remove("HT_ref_audio.wav"), "voice (assets/HT_ref_audio.wav is missing)", true},
		{
			drop("flow.pt", "encoder.up_layer.conv.bias"),
			"token2wav (1 of its 155 tensors are missing, for example flow.encoder.up_layer.conv.bias)", false,
		},
		{
			drop("flow.pt", "input_embedding.weight", "encoder_proj.weight"),
			"token2wav (3 of its 155 tensors are missing, for example flow.input_embedding.weight)", false,
		},
		{
			drop("hift.pt", "generator.conv_pre.bias", "generator.ups.0.bias"),
			"token2wav (1 of its 328 tensors are missing, for example hift.conv_pre.bias)", false,
		},
	}
	for _, tt := range tests {
		dir := copied(t, published)
		tt.change(t, dir)
		c, err := checkpoint.Open(dir)
		require.NoError(t, err, tt.want)
		m, err := c.Describe()
		require.NoError(t, err, tt.want)
		require.Equal(t, []string{tt.want}, m.Missing)
		require.Equal(t, tt.speaks, m.Dims.Speech != nil)
		require.Equal(t, tt.speaks, m.Voice != nil)
		require.Equal(t, m.Dims.Format(), m.Format)
		require.Empty(t, m.Source.Skipped)
		require.NoError(t, c.Close())
	}
}

func TestGuidance(t *testing.T) {
	dir := speaking(t)
	config := filepath.Join(dir, "assets/token2wav/flow.yaml")
	for text, want := range map[string]float64{
		"flow: !new:a.b.C\n  decoder: !new:d.E\n    inference_cfg_rate: 0.5 # a comment\n": 0.5,
		"flow: {}\n": 0.7,
	} {
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		m, err := open(t, dir).Describe()
		require.NoError(t, err)
		require.InDelta(t, want, m.Dims.Speech.Flow.DiT.Guidance, 0)
	}
	require.NoError(t, os.WriteFile(config, []byte("inference_cfg_rate: !ref <x>\n"), 0o600))
	_, err := open(t, dir).Describe()
	require.ErrorContains(t, err, `flow.yaml: inference_cfg_rate: must be a number from 0 to 100, is "!ref"`)
	require.NoError(t, os.Remove(config))
	m, err := open(t, dir).Describe()
	require.NoError(t, err)
	require.InDelta(t, 0.7, m.Dims.Speech.Flow.DiT.Guidance, 0)
}

// TestBadSpeech makes the files of the voice contradict each other.
func TestBadSpeech(t *testing.T) {
	published := speaking(t)
	set := func(key string, value any) func(m map[string]any) {
		return func(m map[string]any) { m["tts_config"].(map[string]any)[key] = value } //nolint:forcetypeassert // a test
	}
	tests := []struct {
		change func(m map[string]any)
		want   string
	}{
		{func(m map[string]any) { delete(m, "tts_config") }, "config.json: tts_config: missing"},
		{set("hidden_size", 72), "tts_config.hidden_size: must be a multiple of 16 times num_attention_heads 4, is 72"},
		{set("hidden_size", 128), `tts_config.num_text_tokens, tts_config.hidden_size: tensor "tts.emb_text.weight" has shape [1369 64], expected [1369 128]`},
		{set("num_hidden_layers", 0), "tts_config.num_hidden_layers: must be between 1 and 1000, is 0"},
		{set("num_key_value_heads", 2), "tts_config.num_key_value_heads: must be num_attention_heads (4), is 2"},
		{set("num_vq", 4), "tts_config.num_vq: must be 1, is 4"},
		{set("num_audio_tokens", nil), "tts_config.num_audio_tokens: missing"},
		{set("condition_type", "llm_hidden"), `tts_config.condition_type: must be "hidden_text_merge", is "llm_hidden"`},
		{set("normalize_projected_hidden", false), "tts_config.normalize_projected_hidden: must be true, is false"},
		{set("audio_bos_token_id", 1369), "must be below num_text_tokens 1369, are 1369 and 1306"},
	}
	for _, tt := range tests {
		dir := copied(t, published)
		edit(t, dir, "config.json", tt.change)
		_, err := open(t, dir).Describe()
		require.ErrorContains(t, err, tt.want)
	}

	dir := copied(t, published)
	path := filepath.Join(dir, "assets/token2wav/flow.pt")
	require.NoError(t, os.Truncate(path, 1000))
	_, err := checkpoint.Open(dir)
	require.ErrorContains(t, err, "flow.pt: not a file of torch.save")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(filepath.Join(dir, "assets/token2wav/hift.pt"), path))
	m, err := open(t, dir).Describe()
	require.NoError(t, err)
	require.Equal(t, []string{"token2wav (assets/token2wav/hift.pt is missing)"}, m.Missing)
}
