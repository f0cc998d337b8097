package checkpoint_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/nano"
	"touchline/models/safetensors"
)

// Rows of int8 with scales read as floats, and appear as one float16 matrix.
func TestInt8Rows(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, nano.Write(dir))
	c, err := checkpoint.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	const name = "llm.model.layers.1.self_attn.q_proj.weight"
	require.Contains(t, c.Names(), name)
	require.NotContains(t, c.Names(), name+"_scale")
	info, ok := c.Info(name)
	require.True(t, ok)
	require.Equal(t, models.TensorInfo{Type: models.Float16, Shape: []int{256, 256}}, info)

	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	weights, ok := f.Tensor(name)
	require.True(t, ok)
	scales, ok := f.Tensor(name + "_scale")
	require.True(t, ok)
	q, err := weights.Ints()
	require.NoError(t, err)
	s, err := scales.Floats()
	require.NoError(t, err)
	got := make([]float32, 3*256)
	require.NoError(t, c.Rows(got, name, 7, 10))
	for i, v := range got {
		require.Equal(t, float32(q[7*256+i])*s[7+i/256], v, "value %d", i)
	}
	require.ErrorContains(t, c.Rows(got, name, 254, 257), "rows within 0 to 256")
	require.ErrorContains(t, c.Rows(got[:5], name, 0, 3), "5 values")
}

// A checkpoint with int8 rows that cannot be read is refused, with the tensor's name.
func TestInt8Refused(t *testing.T) {
	for _, tt := range []struct {
		name     string
		file     string
		old, new string
		want     string
	}{
		{"no scale", "model.safetensors", `.0.mlp.up_proj.weight_scale"`, `.0.mlp.up_proj.weight_scalx"`, `llm.model.layers.0.mlp.up_proj.weight_scale beside it`},
		{"no weight", "model.safetensors", `"llm.lm_head.weight"`, `"llm.lm_head.wxight"`, `"llm.lm_head.weight_scale" has no int8 llm.lm_head.weight beside it`},
		{"no method", "config.json", `compressed-tensors`, `compressed`, `quantization_config`},
		{"other format", "config.json", `int-quantized`, `pack-quantized`, `quantization_config.format: must be int-quantized, is "pack-quantized"`},
		{"scale of another size", "model.safetensors", `"llm.lm_head.weight_scale":{"dtype":"F16","shape":[2304,1]`, `"llm.lm_head.weight_scale":{"dtype":"F16","shape":[1,2304]`, `expected two or more dimensions and a scale [2304 1]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, nano.Write(dir))
			path := filepath.Join(dir, tt.file)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(content, []byte(tt.old)), "the file has changed")
			if tt.file == "model.safetensors" {
				require.Len(t, tt.new, len(tt.old), "the header keeps its length")
			}
			require.NoError(t, os.WriteFile(path, bytes.Replace(content, []byte(tt.old), []byte(tt.new), 1), 0o600))
			_, err = checkpoint.Open(dir)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
