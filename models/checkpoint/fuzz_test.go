package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/checkpoint"
)

// A config is refused, or it matches the tensors.
func FuzzConfig(f *testing.F) {
	for _, dir := range []string{tiny, awq, recognizer, aligner} {
		content, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(f, err)
		f.Add(content)
	}
	f.Add([]byte(`{"hidden_size":-1,"vision_config":{},"quantization_config":{"group_size":0}}`))
	f.Add([]byte(`{"num_hidden_layers":1000,"rope_parameters":null,"vision_config":{"patch_size":0}}`))
	c, err := checkpoint.Open(tiny)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, c.Close()) })
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := c.DescribeWith(content)
		if err != nil {
			return
		}
		d := m.Dims.Decoder
		require.Equal(t, 256, d.Hidden)
		require.Equal(t, 1362, d.Vocab)
		require.Equal(t, 3, d.Layers)
		require.Equal(t, 6*64, d.Heads*d.HeadDim)
		require.Equal(t, 3*64, d.KVHeads*d.HeadDim)
		require.Equal(t, 64, d.HeadDim)
		require.Positive(t, d.RopeTheta)
		require.Positive(t, d.Epsilon)
		require.Positive(t, d.MaxPositions)
		require.LessOrEqual(t, d.MaxPositions, 8192)
		if v := m.Dims.Vision; v != nil {
			require.Equal(t, 96, v.Hidden)
			require.Equal(t, 70, v.Grid)
			require.LessOrEqual(t, v.Layers, 2)
			require.Zero(t, v.Hidden%v.Heads)
		}
	})
}

func FuzzIndex(f *testing.F) {
	content, err := os.ReadFile(filepath.Join(tiny, "model.safetensors.index.json"))
	require.NoError(f, err)
	f.Add(content)
	f.Add([]byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	f.Fuzz(func(_ *testing.T, content []byte) { _ = checkpoint.CheckIndex(content) })
}

// Each other small file is refused by name or accepted.
func FuzzSmallFiles(f *testing.F) {
	names := []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json", "preprocessor_config.json"}
	for i, name := range names {
		content, err := os.ReadFile(filepath.Join(tiny, name))
		require.NoError(f, err)
		f.Add(uint8(i), content)
		f.Add(uint8(i), []byte(`{"added_tokens":null,"eos_token_id":[],"bad_token_ids":[-1],"norm_std":[1,2,3,4]}`))
	}
	dir := filepath.Join(f.TempDir(), "model")
	require.NoError(f, os.CopyFS(dir, os.DirFS(tiny)))
	c, err := checkpoint.Open(dir)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, c.Close()) })
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		name := names[int(which)%len(names)]
		path := filepath.Join(dir, name)
		was, err := os.ReadFile(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, os.WriteFile(path, was, 0o600)) }()
		require.NoError(t, os.WriteFile(path, content, 0o600))
		m, err := c.Describe()
		if err != nil {
			return
		}
		for _, id := range m.Tokens {
			require.Less(t, id, int32(m.Dims.Decoder.Vocab))
		}
		for _, stop := range append(m.Stop, m.StopSpeech...) {
			require.Contains(t, m.Tokens, stop)
		}
	})
}
