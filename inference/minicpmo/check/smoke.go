package check

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"touchline/models"
)

// smokeSize is the size of a graph's free dimensions in a smoke run.
const smokeSize = 8

// Smoke runs each graph of a bundle for the devices once on random numbers: every
// output must be finite. It returns the number of graphs. library is as in Options.
func Smoke(b *models.Bundle, library string, devices ...models.Device) (ran int, err error) {
	m, err := openMachine(library, 0)
	if err != nil {
		return 0, err
	}
	defer m.close()
	for _, g := range b.Manifest.Graphs {
		if !slices.Contains(devices, g.Device) {
			continue
		}
		if err := m.smoke(b, g); err != nil {
			return ran, fmt.Errorf("%s: %w", g.File, err)
		}
		ran++
	}
	return ran, nil
}

func (m *machine) smoke(b *models.Bundle, g models.Graph) error {
	n, err := m.open(b.Dir, g)
	if err != nil {
		return err
	}
	defer n.close()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	in := map[string]value{}
	for _, p := range g.Inputs {
		if strings.HasPrefix(p.Name, "past_key_values.") {
			if err := n.hold(p.Name, map[string]int{"B": 1, "M": 2 * smokeSize}); err != nil {
				return err
			}
			continue
		}
		in[p.Name] = smokeInput(p, rng)
	}
	var want []string
	for _, p := range g.Outputs {
		if past(p.Name) == "" {
			want = append(want, p.Name)
		}
	}
	out, err := n.run(in, want...)
	if err != nil {
		return err
	}
	for name, v := range out {
		for i, f := range v.floats {
			if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
				return fmt.Errorf("%s: number %d is %g: the weights give no finite output", name, i, f)
			}
		}
	}
	return nil
}

func smokeInput(p models.Port, rng *rand.Rand) value {
	v := value{shape: []int{}}
	count := 1
	for _, d := range p.Shape {
		size, err := strconv.Atoi(d)
		switch {
		case err == nil:
		case d == "B" || d == "BM":
			size = 1
		default:
			size = smokeSize
		}
		v.shape = append(v.shape, size)
		count *= size
	}
	switch {
	case p.Name == "seqlens_k":
		v.ints = []int64{smokeSize - 1}
	case p.Name == "total_sequence_length":
		v.ints = []int64{smokeSize}
	case p.Name == "last_position":
		v.ints = []int64{smokeSize - 1}
	case p.Type == models.Int64 || p.Type == models.Int32:
		v.ints = make([]int64, count) // ids and positions 0
	case p.Name == "logits_bias":
		v.floats = make([]float32, count)
	default:
		v.floats = make([]float32, count)
		for i := range v.floats {
			v.floats[i] = float32(rng.NormFloat64()) * 0.1
		}
	}
	return v
}

// Hold opens ONNX Runtime and keeps it open until release is called. Engines that open it meanwhile share it.
func Hold(library string) (release func(), err error) {
	m, err := openMachine(library, 0)
	if err != nil {
		return nil, err
	}
	return m.close, nil
}

// Devices returns the devices that the runtime supports on this machine.
func Devices(library string) ([]models.Device, error) {
	m, err := openMachine(library, 0)
	if err != nil {
		return nil, err
	}
	defer m.close()
	out := []models.Device{models.DeviceCPU}
	if m.runtime.HasCUDA() {
		if _, err := m.device(models.DeviceCUDA); err == nil {
			out = append(out, models.DeviceCUDA)
		}
	}
	return out, nil
}
