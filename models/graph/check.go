package graph

import (
	"fmt"

	"touchline/models"
)

// checkWords is checkFloat for the networks of words and pictures, which may be in bfloat16.
func checkWords(d models.Dims, o Options) error {
	if o.Device == models.DeviceCUDA && o.Weights == models.WeightsBFloat16 && d.Hearing == nil {
		return nil
	}
	return checkFloat(o)
}

// checkFloat checks that the device supports the float weights.
func checkFloat(o Options) error {
	switch {
	case o.Device == models.DeviceCPU && o.Weights == models.WeightsFloat32,
		o.Device == models.DeviceCUDA && o.Weights == models.WeightsFloat16:
		return nil
	case o.Device != models.DeviceCPU && o.Device != models.DeviceCUDA:
		return fmt.Errorf("device: must be %q or %q, is %q", models.DeviceCPU, models.DeviceCUDA, o.Device)
	case o.Device == models.DeviceCPU:
		return fmt.Errorf("weights: must be fp32 for the CPU, is %q", o.Weights)
	}
	return fmt.Errorf("weights: must be fp16 for CUDA, is %q", o.Weights)
}
