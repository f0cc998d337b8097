package graphtest

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/safetensors"
)

// golden is the folder of the fixtures.
const golden = "/work/shared/golden/"

// open reads a fixture, unpacking it if only a gzip file is there.
func open(tb testing.TB, name string) *safetensors.File {
	tb.Helper()
	b, err := os.ReadFile(golden + name)
	if err != nil {
		file, err := os.Open(golden + name + ".gz")
		require.NoError(tb, err)
		defer file.Close()
		z, err := gzip.NewReader(file)
		require.NoError(tb, err)
		b, err = io.ReadAll(z)
		require.NoError(tb, err)
	}
	f, err := safetensors.Parse(name, b)
	require.NoError(tb, err)
	return f
}

// checkpoint reads the tiny model.
func checkpoint(tb testing.TB) tensors {
	tb.Helper()
	all := tensors{}
	for _, shard := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		f := open(tb, "checkpoint/"+shard)
		for _, name := range f.Names() {
			if !strings.HasPrefix(name, "llm.") && !strings.HasPrefix(name, "vpm.") && !strings.HasPrefix(name, "resampler.") {
				continue
			}
			t, _ := f.Tensor(name)
			values, err := t.Floats()
			require.NoError(tb, err)
			all[name] = tensor{t.TensorInfo.Rows(), t.Cols(), values}
		}
	}
	return all
}

// dims are the sizes of the tiny model.
func dims() models.Dims {
	return models.Dims{
		Decoder: models.Decoder{
			Layers: 3, Hidden: 256, Heads: 6, KVHeads: 3, HeadDim: 64, FFN: 384, Vocab: 1362,
			Epsilon: 1e-6, RopeTheta: 1e6, MaxPositions: 1024,
		},
		Vision: &models.Vision{
			Layers: 2, Hidden: 96, Heads: 4, FFN: 200, Patch: 14, Grid: 70, Epsilon: 1e-6,
			Queries: 64, Out: 256, ResamplerHeads: 2, MaxSide: 128,
		},
	}
}
