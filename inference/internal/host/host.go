// Package host runs the graphs of a bundle on tensors in host memory, for checks and for a first run. The engines keep their tensors on
// the device instead.
package host

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"touchline/inference/internal/ort"
	"touchline/models"
)

// Value is an input or output of a network. Floats are float32 for any float type
// of the network.
type Value struct {
	Shape  []int
	Floats []float32
	Ints   []int64
}

// Network is one graph of a bundle, run on host tensors.
type Network struct {
	Graph   models.Graph
	device  *ort.Device
	session *ort.Session
	binding *ort.Binding
	sizes   map[string]int // of the free dimensions in the last run
	Free    map[string]int // sizes of the free dimensions that no input has
	held    map[string]*ort.Tensor
}

// Machine is ONNX Runtime with its devices.
type Machine struct {
	Runtime *ort.Runtime

	devices map[models.Device]*ort.Device
	index   int
}

// Open opens ONNX Runtime; library is a file or folder, see ort.Locate, and index the GPU.
func Open(library string, index int) (*Machine, error) {
	r, err := ort.Open(library)
	if err != nil {
		return nil, err
	}
	return &Machine{Runtime: r, devices: map[models.Device]*ort.Device{}, index: index}, nil
}

// Device opens a device once.
func (m *Machine) Device(which models.Device) (*ort.Device, error) {
	if d := m.devices[which]; d != nil {
		return d, nil
	}
	kind, index := ort.CPU, 0
	if which == models.DeviceCUDA {
		kind, index = ort.CUDA, m.index
	}
	d, err := m.Runtime.NewDevice(kind, index)
	if err == nil {
		m.devices[which] = d
	}
	return d, err
}

// Close closes the devices and the runtime.
func (m *Machine) Close() {
	for _, d := range m.devices {
		_ = d.Close()
	}
	_ = m.Runtime.Close()
}

// Open loads a graph of a bundle.
func (m *Machine) Open(b *models.Bundle, g models.Graph) (*Network, error) {
	device, err := m.Device(g.Device)
	if err != nil {
		return nil, err
	}
	hears := b.Manifest.Dims.Hearing != nil
	session, err := m.Runtime.NewSession(b.Path(g.File), device, ort.SessionOptions{ // as the engines
		NoMemoryPattern: true, StrictNorm: hears || g.Float() == models.BFloat16, NoXQA: hears || g.Kind == models.KindTTS,
		NHWC: g.Kind == models.KindVocoder || g.Kind == models.KindVocoderTail,
	})
	if err != nil {
		return nil, err
	}
	return &Network{Graph: g, device: device, session: session, held: map[string]*ort.Tensor{}}, nil
}

// Drop closes the held tensors.
func (n *Network) Drop() {
	for _, t := range n.held {
		_ = t.Close()
	}
	clear(n.held)
}

// Close releases the graph with its tensors.
func (n *Network) Close() {
	n.Drop()
	if n.binding != nil {
		_ = n.binding.Close()
	}
	_ = n.session.Close()
}

// shape returns the shape of a port with the sizes of its free dimensions.
func (n *Network) shape(p models.Port) ([]int64, error) {
	out := make([]int64, len(p.Shape))
	for i, d := range p.Shape {
		size, err := strconv.Atoi(d)
		if err != nil {
			var ok bool
			if size, ok = n.sizes[d]; !ok {
				size, ok = n.Free[d]
			}
			if !ok {
				return nil, fmt.Errorf("%s: the size of %s is unknown", p.Name, d)
			}
		}
		out[i] = int64(size)
	}
	return out, nil
}

// Hold allocates a device tensor for an input that stays between runs: a cache.
// sizes has the free dimensions.
func (n *Network) Hold(port string, sizes map[string]int) error {
	if n.held[port] != nil {
		return nil
	}
	i := slices.IndexFunc(n.Graph.Inputs, func(p models.Port) bool { return p.Name == port })
	if i < 0 {
		return fmt.Errorf("%s has no input %s", n.Graph.File, port)
	}
	n.sizes = sizes
	shape, err := n.shape(n.Graph.Inputs[i])
	if err != nil {
		return err
	}
	t, err := n.device.NewTensor(n.Graph.Inputs[i].Type, shape...)
	if err != nil {
		return err
	}
	n.held[port] = t
	return n.device.Memset(t.Pointer(), 0, t.Size())
}

// Run runs the graph once and returns the wanted outputs. Missing inputs must be
// held. An output named like a held input, with "present" for "past_key_values",
// uses the same tensor.
func (n *Network) Run(in map[string]Value, want ...string) (map[string]Value, error) {
	if n.binding != nil {
		_ = n.binding.Close()
	}
	var err error
	if n.binding, err = n.session.NewBinding(); err != nil {
		return nil, err
	}
	var tensors []*ort.Tensor
	defer func() {
		for _, t := range tensors {
			_ = t.Close()
		}
	}()
	n.sizes = map[string]int{}
	if tensors, err = n.bindInputs(in, tensors); err != nil {
		return nil, err
	}
	out := map[string]*ort.Tensor{}
	if tensors, err = n.bindOutputs(out, tensors); err != nil {
		return nil, err
	}
	if err := n.session.Run(n.binding, nil); err != nil {
		return nil, err
	}
	if err := n.device.Synchronize(); err != nil {
		return nil, err
	}
	values := map[string]Value{}
	for _, name := range want {
		t := out[name]
		if t == nil {
			return nil, fmt.Errorf("%s has no output %s", n.Graph.File, name)
		}
		if values[name], err = read(t); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// bindInputs binds the held inputs and the inputs in, records the sizes of their
// dimensions, and appends the new tensors to tensors.
func (n *Network) bindInputs(in map[string]Value, tensors []*ort.Tensor) ([]*ort.Tensor, error) {
	for _, p := range n.Graph.Inputs {
		if t := n.held[p.Name]; t != nil {
			if err := n.binding.BindInput(p.Name, t); err != nil {
				return tensors, err
			}
			continue
		}
		v, ok := in[p.Name]
		if !ok {
			return tensors, fmt.Errorf("expected a value for %s of %s", p.Name, n.Graph.File)
		}
		if len(v.Shape) != len(p.Shape) {
			return tensors, fmt.Errorf("%s: expected %d dimensions, got %v", p.Name, len(p.Shape), v.Shape)
		}
		for i, d := range p.Shape {
			n.sizes[d] = v.Shape[i]
		}
		t, err := n.input(p, v)
		if err != nil {
			return tensors, err
		}
		tensors = append(tensors, t)
		if err := n.binding.BindInput(p.Name, t); err != nil {
			return tensors, err
		}
	}
	return tensors, nil
}

// bindOutputs binds each output to its held input or to a new host tensor, which it
// adds to out and tensors.
func (n *Network) bindOutputs(out map[string]*ort.Tensor, tensors []*ort.Tensor) ([]*ort.Tensor, error) {
	for _, p := range n.Graph.Outputs {
		if t := n.held[Past(p.Name)]; t != nil {
			if err := n.binding.BindOutput(p.Name, t); err != nil {
				return tensors, err
			}
			continue
		}
		shape, err := n.shape(p)
		if err != nil {
			return tensors, err
		}
		t, err := n.device.NewHostTensor(p.Type, shape...)
		if err != nil {
			return tensors, err
		}
		tensors = append(tensors, t)
		out[p.Name] = t
		if err := n.binding.BindOutput(p.Name, t); err != nil {
			return tensors, err
		}
	}
	return tensors, nil
}

// Past returns the input that shares its tensor with an output, or "".
func Past(output string) string {
	if name, ok := strings.CutPrefix(output, "present."); ok {
		return "past_key_values." + name
	}
	return ""
}

func (n *Network) input(p models.Port, v Value) (*ort.Tensor, error) {
	shape := make([]int64, len(v.Shape))
	for i, d := range v.Shape {
		shape[i] = int64(d)
	}
	t, err := n.device.NewHostTensor(p.Type, shape...)
	if err != nil {
		return nil, err
	}
	if got := max(len(v.Floats), len(v.Ints)); int64(got) != t.Len() {
		_ = t.Close()
		return nil, fmt.Errorf("%s: expected %d numbers, got %d", p.Name, t.Len(), got)
	}
	switch p.Type {
	case models.Float32:
		err = fill(t, v.Floats, func(f float32) float32 { return f })
	case models.Float16:
		err = fill(t, v.Floats, models.Float16Bits)
	case models.BFloat16:
		err = fill(t, v.Floats, models.BFloat16Bits)
	case models.Int64:
		err = fill(t, v.Ints, func(i int64) int64 { return i })
	case models.Int32:
		err = fill(t, v.Ints, func(i int64) int32 { return int32(i) })
	default:
		err = fmt.Errorf("%s: inputs of type %s are not supported", p.Name, p.Type)
	}
	if err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

func fill[A any, B ort.Element](t *ort.Tensor, from []A, convert func(A) B) error {
	to, err := ort.Data[B](t)
	if err != nil {
		return err
	}
	for i, v := range from {
		to[i] = convert(v)
	}
	return nil
}

// read copies a host tensor.
func read(t *ort.Tensor) (Value, error) {
	var v Value
	for _, d := range t.Shape() {
		v.Shape = append(v.Shape, int(d))
	}
	switch t.Type() { //nolint:exhaustive // the others are no outputs
	case models.Float32:
		data, err := ort.Data[float32](t)
		v.Floats = slices.Clone(data)
		return v, err
	case models.Float16, models.BFloat16:
		from := models.Float16FromBits
		if t.Type() == models.BFloat16 {
			from = models.BFloat16FromBits
		}
		data, err := ort.Data[uint16](t)
		for _, h := range data {
			v.Floats = append(v.Floats, from(h))
		}
		return v, err
	case models.Int64:
		data, err := ort.Data[int64](t)
		v.Ints = slices.Clone(data)
		return v, err
	case models.Int32:
		data, err := ort.Data[int32](t)
		for _, i := range data {
			v.Ints = append(v.Ints, int64(i))
		}
		return v, err
	}
	return v, fmt.Errorf("outputs of type %s are not supported", t.Type())
}

// Cache copies a held tensor to the host.
func (n *Network) Cache(port string) (Value, error) {
	t := n.held[port]
	if t == nil {
		return Value{}, errors.New(port + " is not held")
	}
	h, err := n.device.NewHostTensor(t.Type(), t.Shape()...)
	if err != nil {
		return Value{}, err
	}
	defer func() { _ = h.Close() }()
	raw := make([]byte, t.Size())
	if err := n.device.CopyOut(raw, t.Pointer()); err != nil {
		return Value{}, err
	}
	if err := n.device.Synchronize(); err != nil {
		return Value{}, err
	}
	switch t.Type() {
	case models.Float32:
		err = fill(h, ort.Slice[float32](raw), func(f float32) float32 { return f })
	default:
		err = fill(h, ort.Slice[uint16](raw), func(u uint16) uint16 { return u })
	}
	if err != nil {
		return Value{}, err
	}
	return read(h)
}
