package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/safetensors"
)

// int8Rows is a weight in the layout of compressed-tensors' "int-quantized"
// format, strategy "channel": int8 values [rows, ...] and a float scale for
// each row [rows, 1]. A weight is q * scale.
type int8Rows struct{ weights, scales safetensors.Tensor }

// partScale is the suffix of a scale's name after the weight's name. A scale sorts after its
// weight.
const partScale = "weight_scale"

// joinInt8 assembles int8 matrices from weights and scales.
func (c *Checkpoint) joinInt8() error {
	for _, name := range slices.Sorted(maps.Keys(c.plain)) {
		t := c.plain[name]
		if strings.HasSuffix(name, partScale) {
			weight := strings.TrimSuffix(name, "_scale")
			if _, ok := c.int8[weight]; !ok {
				return fmt.Errorf("%s: tensor %q has no int8 %s beside it", c.dir, name, weight)
			}
			delete(c.plain, name)
			continue
		}
		if t.Type != models.Int8 {
			continue
		}
		scaleName := name + "_scale"
		scale, ok := c.plain[scaleName]
		switch {
		case c.config.Quantization == nil || c.config.Quantization.Method != methodInt8:
			return fmt.Errorf("%s: quantization_config: must be quant_method %s, as %q is int8", c.path("config.json"), methodInt8, name)
		case !ok:
			return fmt.Errorf("%s: tensor %q has no %s beside it", c.dir, name, scaleName)
		case len(t.Shape) < 2 || !slices.Equal(scale.Shape, []int{t.Shape[0], 1}):
			return fmt.Errorf("%s: tensor %q: expected two or more dimensions and a scale [%d 1] for its rows, got %v and %v",
				c.dir, name, t.TensorInfo.Rows(), t.Shape, scale.Shape)
		}
		c.int8[name] = int8Rows{t, scale}
		delete(c.plain, name)
	}
	return nil
}

// floats reads rows [from, to).
func (m int8Rows) floats(dst []float32, from, to int) error {
	cols := m.weights.Cols()
	if from < 0 || to < from || to > m.weights.TensorInfo.Rows() || len(dst) != (to-from)*cols {
		return fmt.Errorf("tensor %q: expected rows within 0 to %d and a buffer for them, got %d to %d and %d values",
			m.weights.Name, m.weights.TensorInfo.Rows(), from, to, len(dst))
	}
	scales := make([]float32, to-from)
	if err := m.scales.Rows(scales, from, to); err != nil {
		return err
	}
	return m.weights.View(func(data []byte) error {
		for r, scale := range scales {
			row := dst[r*cols : (r+1)*cols]
			for i, q := range data[(from+r)*cols : (from+r+1)*cols] {
				row[i] = float32(int8(q)) * scale //nolint:gosec // the same bits
			}
		}
		return nil
	})
}
