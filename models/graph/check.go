package graph

import (
	"fmt"

	"touchline/models"
)

// maxSize bounds every size of a network, so that products of them stay in
// range whatever a config says.
const maxSize = 1 << 20

// size is a size of a network by the name it has in the manifest.
type size struct {
	name string
	n    int
}

func checkSizes(sizes ...size) error {
	for _, s := range sizes {
		if s.n < 1 || s.n > maxSize {
			return fmt.Errorf("%s: must be between 1 and %d, is %d", s.name, maxSize, s.n)
		}
	}
	return nil
}

// checkFloat says whether the floats of the weights are those of the device.
func checkFloat(o Options) error {
	switch {
	case o.Device == models.DeviceCPU && o.Weights == models.WeightsFloat32,
		o.Device == models.DeviceCUDA && o.Weights == models.WeightsFloat16:
		return nil
	case o.Device != models.DeviceCPU && o.Device != models.DeviceCUDA:
		return fmt.Errorf("device: expected %q or %q, is %q", models.DeviceCPU, models.DeviceCUDA, o.Device)
	case o.Device == models.DeviceCPU:
		return fmt.Errorf("weights: a graph for the CPU takes fp32, is %q", o.Weights)
	}
	return fmt.Errorf("weights: a graph for CUDA takes fp16, is %q", o.Weights)
}
