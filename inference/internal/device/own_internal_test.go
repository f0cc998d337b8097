package device

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/cuda"
	"touchline/inference/internal/ort"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// TestOwnWeights has the tensors of a bundle, one of which lacks a row or is missing.
func TestOwnWeights(t *testing.T) {
	for _, tt := range []struct {
		name          string
		head, ofLayer int // weights
		zeros         bool
	}{{"tiny", 4, 12, false}, {"tiny", 8, 12, false}, {"tiny-awq", 8, 16, true}} {
		src, err := checkpoint.Open("../../../models/testdata/" + tt.name)
		require.NoError(t, err)
		defer src.Close()
		dir := filepath.Join(t.TempDir(), "b")
		require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
			Weights: []models.Weights{models.WeightsInt4}, Devices: []models.Device{models.DeviceCUDA}, Head: tt.head,
		}))
		b, err := models.OpenBundle(dir)
		require.NoError(t, err)
		g, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCUDA)
		require.True(t, ok)

		d := b.Manifest.Dims.Decoder
		s := cuda.Shape{
			Layers: d.Layers, Hidden: d.Hidden, FFN: d.FFN, Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim, Vocab: d.Vocab,
			Head: tt.head, Zeros: tt.zeros, MaxLen: d.MaxPositions,
		}
		kv := slices.Repeat([]*Rows{{memory: &ort.Memory{}}}, 2*d.Layers)
		places := map[string]ort.Pointer{}
		for i, w := range g.Tensors {
			places[w.Name] = (&ort.Memory{}).At(int64(i))
		}
		read := 0
		check := func(s cuda.Shape, tensors []models.Tensor) error {
			_, err := ownWeights(places, tensors, kv, s)
			return err
		}
		require.NoError(t, check(s, g.Tensors))
		for i, w := range g.Tensors {
			others := slices.Clone(g.Tensors)
			shape := slices.Clone(w.Shape)
			shape[0]--
			others[i].Shape = shape
			if err := check(s, others); err != nil {
				require.ErrorIs(t, err, cuda.ErrNone)
				require.ErrorContains(t, err, w.Name+" have ")
				read++
			}
			others = slices.Delete(slices.Clone(g.Tensors), i, i+1)
			if err := check(s, others); err != nil {
				require.ErrorIs(t, err, cuda.ErrNone)
				require.ErrorContains(t, err, "no weights "+w.Name)
			}
		}
		require.Equal(t, tt.ofLayer*d.Layers+5, read)

		s.MaxLen--
		require.NoError(t, check(s, g.Tensors), "a table can be longer than a slot")
		s.MaxLen += 2
		err = check(s, g.Tensors)
		require.Equal(t, 2, strings.Count(err.Error(), "rotary."), "%v", err)
	}
}
