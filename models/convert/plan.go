package convert

import (
	"errors"
	"fmt"
	"slices"

	"touchline/models"
	"touchline/models/graph"
)

// describe is a function that describes a network.
type describe func(models.Dims, graph.Options) (*graph.Description, error)

// voiceGraphs returns the networks of a voice.
func voiceGraphs(check bool) []describe {
	if check {
		return []describe{graph.FlowDiT, graph.Vocoder}
	}
	return []describe{
		graph.TTSCondition, graph.TTS, graph.FlowEncoder, graph.FlowDiT, graph.FlowDiTOnce, graph.Vocoder, graph.VocoderTail,
	}
}

// floatGraphs returns the other networks that are always in floats.
func floatGraphs(dims models.Dims, check bool) (all []describe) {
	if !check {
		all = append(all, graph.Embed)
	}
	if dims.Vision != nil {
		all = append(all, graph.Vision)
	}
	if dims.Hearing != nil {
		all = append(all, graph.Hearing)
	}
	if dims.Task() == models.TaskAligner {
		all = append(all, graph.Aligner) // one pass over each prompt: int4 has no benefit
	}
	return all
}

// plan describes the graphs of a bundle.
func plan(src models.Source, dims models.Dims, o Options) ([]*graph.Description, error) {
	block := packedBlock(src, dims.Decoder)
	targets, err := targets(o)
	half, wide := models.WeightsFloat16, slices.Contains(o.Weights, models.WeightsBFloat16)
	if wide && err == nil {
		half, err = models.WeightsBFloat16, checkWide(dims.Task(), o.Weights, block)
	}
	if err != nil {
		return nil, err
	}
	var graphs []*graph.Description
	add := func(describe describe, g graph.Options) {
		var d *graph.Description
		if err == nil {
			d, err = describe(dims, g)
			graphs = append(graphs, d)
		}
	}
	// The graphs of the check come last because they share the data of the others.
	checks := []bool{false}
	if o.Check {
		checks = append(checks, true)
	}
	for _, check := range checks {
		var devices []models.Device
		for _, t := range targets {
			g := graph.Options{Device: t.device, Weights: t.weights, Check: check}
			if t.weights == models.WeightsInt4 {
				g.Head, g.Block, g.ZeroPoints = o.Head, block, block != 0
				g.BFloat16 = wide && t.device == models.DeviceCUDA
			}
			if dims.Task() != models.TaskAligner {
				add(graph.Decoder, g)
			}
			if !slices.Contains(devices, t.device) {
				devices = append(devices, t.device)
			}
		}
		for _, device := range devices {
			g := graph.Options{Device: device, Weights: half, Check: check}
			if device == models.DeviceCPU {
				g.Weights = models.WeightsFloat32
			}
			for _, describe := range floatGraphs(dims, check) {
				add(describe, g)
			}
			if dims.Speech != nil {
				if device == models.DeviceCUDA {
					g.Weights = o.VoiceWeights
				}
				for _, describe := range voiceGraphs(check) {
					add(describe, g)
				}
			}
		}
	}
	return graphs, err
}

// checkWide checks that a bundle for CUDA can be in bfloat16. block is that of packed layers.
func checkWide(task models.Task, weights []models.Weights, block int) error {
	switch {
	case task != models.TaskCommentary:
		return fmt.Errorf("weights: bf16 is for models that comment on pictures, the checkpoint's task is %s: use fp16 or int4", task)
	case slices.Contains(weights, models.WeightsFloat16):
		return errors.New("weights: fp16 and bf16 exclude each other, since all graphs for CUDA share keys and values: choose one")
	case block != 0 && slices.Contains(weights, models.WeightsInt4):
		return errors.New("weights: bf16 would round the float16 scales of the checkpoint's int4 layers: leave out int4, or use int4,fp16")
	}
	return nil
}

// graphName returns a graph's file name without the extension.
func graphName(d *graph.Description) string {
	name := fmt.Sprintf("%s-%s-%s", d.Kind, d.Options.Weights, d.Options.Device)
	if d.Options.Check {
		name += "-check"
	}
	return name
}

// target is a decoder to write.
type target struct {
	weights models.Weights
	device  models.Device
}

// targets returns the decoders that the options select.
func targets(o Options) ([]target, error) {
	var list []target
	for _, d := range o.Devices {
		if d != models.DeviceCPU && d != models.DeviceCUDA {
			return nil, fmt.Errorf("devices: must be cpu or cuda, is %q", d)
		}
	}
	for _, w := range o.Weights {
		possible, ok := map[models.Weights][]models.Device{ // the default first
			models.WeightsInt4:     {models.DeviceCUDA, models.DeviceCPU},
			models.WeightsFloat16:  {models.DeviceCUDA},
			models.WeightsBFloat16: {models.DeviceCUDA},
			models.WeightsFloat32:  {models.DeviceCPU},
		}[w]
		if !ok {
			return nil, fmt.Errorf("weights: must be int4, fp16, bf16 or fp32, is %q", w)
		}
		usual := possible[0]
		chosen := possible[:1]
		if len(o.Devices) > 0 {
			chosen = slices.DeleteFunc(possible, func(d models.Device) bool { return !slices.Contains(o.Devices, d) })
		}
		if len(chosen) == 0 {
			return nil, fmt.Errorf("weights: %s runs on %s only, the selected devices are %v", w, usual, o.Devices)
		}
		for _, d := range chosen {
			if t := (target{w, d}); !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	if o.VoiceWeights != models.WeightsFloat16 && o.VoiceWeights != models.WeightsFloat32 {
		return nil, fmt.Errorf("voice weights: must be fp16 or fp32, is %q", o.VoiceWeights)
	}
	if o.Head != 4 && o.Head != 8 && o.Head != 16 {
		return nil, fmt.Errorf("head: must be 4, 8 or 16 bits, is %d", o.Head)
	}
	return list, nil
}

// packedBlock returns the block size if the checkpoint stores all linear layers
// of the decoder in int4 with the same block, else 0.
func packedBlock(src models.Source, d models.Decoder) int {
	block := 0
	for i := range d.Layers {
		for _, name := range []string{
			"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
			"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
		} {
			l, ok := src.Packed(fmt.Sprintf("llm.model.layers.%d.%s.weight", i, name))
			if !ok {
				return 0
			}
			_, _, b := l.Dims()
			if block != 0 && b != block {
				return 0
			}
			block = b
		}
	}
	return block
}
