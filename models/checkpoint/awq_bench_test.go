package checkpoint_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/safetensors"
)

// Unpacks an int4 layer of the real model's size. MB/s count the packed weights.
func BenchmarkAWQ(b *testing.B) {
	const n, k, group = 4096, 4096, 128
	dir := b.TempDir()
	config, err := os.ReadFile(filepath.Join(awq, "config.json"))
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	require.NoError(b, err)
	w, err := safetensors.NewWriter(f, []safetensors.Entry{
		{Name: "llm.x.qweight", TensorInfo: models.TensorInfo{Type: models.Int32, Shape: []int{k, n / 8}}},
		{Name: "llm.x.qzeros", TensorInfo: models.TensorInfo{Type: models.Int32, Shape: []int{k / group, n / 8}}},
		{Name: "llm.x.scales", TensorInfo: models.TensorInfo{Type: models.Float16, Shape: []int{k / group, n}}},
	}, nil)
	require.NoError(b, err)
	data := make([]byte, k*n/2+k/group*n/2+2*k/group*n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	_, err = w.Write(data)
	require.NoError(b, err)
	require.NoError(b, w.Close())
	require.NoError(b, f.Close())
	c, err := checkpoint.Open(dir)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })

	b.Run("rows", func(b *testing.B) {
		dst := make([]float32, n*k)
		b.SetBytes(n * k / 2)
		for b.Loop() {
			require.NoError(b, c.Rows(dst, "llm.x.weight", 0, n))
		}
	})
	b.Run("packed", func(b *testing.B) {
		p, ok := c.Packed("llm.x.weight")
		require.True(b, ok)
		quants, scales, zeros := make([]byte, n*k/2), make([]uint16, n*k/group), make([]byte, n*k/group/2)
		b.SetBytes(n * k / 2)
		for b.Loop() {
			require.NoError(b, p.Rows(quants, scales, zeros, 0, n))
		}
	})
}
