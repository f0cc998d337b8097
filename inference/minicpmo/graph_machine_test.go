package minicpmo_test

import (
	"flag"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/models"
)

// The device of the graphs. The tests with fixtures also run on a GPU:
// go test -args -cuda -ort FILE.
var (
	library = flag.String("ort", filepath.Join("..", "..", "bin", "runtime"), "ONNX Runtime library or its folder")
	cuda    = flag.Bool("cuda", false, "run on the first GPU, in float16")
)

// Bounds on the worst error, relative to the tensor's largest value.
const (
	exactBound = 1e-4 // float32 on the CPU
	halfBound  = 2e-2 // float16 on CUDA
	int4Bound  = 1e-3 // int4 against its own dequantised weights, on the CPU
)

// parallel runs a test in parallel with others, except on a GPU.
func parallel(t *testing.T) {
	t.Helper()
	if !*cuda {
		t.Parallel()
	}
}

// machine is a device with its runtime.
type machine struct {
	tb      testing.TB
	runtime *ort.Runtime
	device  *ort.Device
	kind    models.Device
	float   models.Weights // format of unrounded weights
	bound   float64
}

func startMachine(tb testing.TB) *machine {
	tb.Helper()
	rt, err := ort.Open(*library)
	require.NoError(tb, err, "make runtime")
	tb.Cleanup(func() { require.NoError(tb, rt.Close()) })
	m := &machine{tb: tb, runtime: rt, kind: models.DeviceCPU, float: models.WeightsFloat32, bound: exactBound}
	kind := ort.CPU
	if *cuda {
		kind, m.kind, m.float, m.bound = ort.CUDA, models.DeviceCUDA, models.WeightsFloat16, halfBound
	}
	m.device, err = rt.NewDevice(kind, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, m.device.Close()) })
	return m
}

// array is a host tensor. Floats are float32 for any float type of the device.
type array struct {
	shape  []int64
	floats []float32
	ints   []int64
}

func floatArray(values []float32, shape ...int64) array { return array{shape: shape, floats: values} }

func intArray(values []int64, shape ...int64) array { return array{shape: shape, ints: values} }

// row returns row i of the last dimension of a float array.
func (a array) row(i int) []float32 {
	width := int(a.shape[len(a.shape)-1])
	return a.floats[i*width : (i+1)*width]
}

// network is a loaded graph.
type network struct {
	*machine
	bundle

	session *ort.Session
	sizes   map[string]int64 // of free dimensions that only outputs have
	fed     map[string]array // the inputs of the last run
}

func (m *machine) load(b bundle) *network {
	m.tb.Helper()
	s, err := m.runtime.NewSession(b.path, m.device, ort.SessionOptions{Threads: 1, NoMemoryPattern: true})
	require.NoError(m.tb, err)
	m.tb.Cleanup(func() { require.NoError(m.tb, s.Close()) })
	return &network{m, b, s, map[string]int64{}, nil}
}

// floatType returns the type of the graphs' floats.
func (m *machine) floatType() models.Type {
	if m.float == models.WeightsFloat16 {
		return models.Float16
	}
	return models.Float32
}

// cache is a buffer of keys and values for some rows.
type cache struct {
	rows, heads, positions, width int64
	memory                        map[string]*ort.Memory // by "0.key"
	float                         models.Type
}

func (m *machine) cache(d models.Decoder, rows, positions int) *cache {
	m.tb.Helper()
	c := &cache{
		rows: int64(rows), heads: int64(d.KVHeads), positions: int64(positions), width: int64(d.HeadDim),
		memory: map[string]*ort.Memory{}, float: m.floatType(),
	}
	for i := range d.Layers {
		for _, side := range []string{".key", ".value"} {
			memory, err := m.device.Malloc(c.rows * c.row())
			require.NoError(m.tb, err)
			require.NoError(m.tb, m.device.Memset(memory.At(0), 0, memory.Size()))
			c.memory[strconv.Itoa(i)+side] = memory
			m.tb.Cleanup(func() { require.NoError(m.tb, memory.Close()) })
		}
	}
	return c
}

// row returns the bytes of one row.
func (c *cache) row() int64 { return c.heads * c.positions * c.width * int64(c.float.Size()) }

// read copies the first positions of a row to the host: [heads, count, width].
func (m *machine) read(c *cache, name string, row, count int) []float32 {
	m.tb.Helper()
	b := make([]byte, c.row())
	require.NoError(m.tb, m.device.CopyOut(b, c.memory[name].At(int64(row)*c.row())))
	all := decode(c.float, b)
	var out []float32
	for h := range c.heads {
		from := h * c.positions * c.width
		out = append(out, all[from:from+int64(count)*c.width]...)
	}
	return out
}

// run runs the graph and returns all outputs except those of a cache, which are rows
// [first, first+count) of c; nil is none. An output "present.x" is in the memory of the
// input "past.x" if they have the same shape.
func (n *network) run(in map[string]array, c *cache, first, count int) map[string]array {
	n.tb.Helper()
	var held []interface{ Close() error }
	defer func() {
		for _, h := range slices.Backward(held) {
			require.NoError(n.tb, h.Close())
		}
	}()
	b, err := n.session.NewBinding()
	require.NoError(n.tb, err)
	held = append(held, b)
	slots := func(name string) *ort.Tensor {
		at := c.memory[name].At(int64(first) * c.row())
		t, err := n.device.TensorAt(at, c.float, int64(count), c.heads, c.positions, c.width)
		require.NoError(n.tb, err)
		held = append(held, t)
		return t
	}
	sizes := maps.Clone(n.sizes)
	n.fed = in
	pasts := map[string]*ort.Tensor{}
	for _, p := range n.Inputs {
		var t *ort.Tensor
		if name, ok := strings.CutPrefix(p.Name, "past_key_values."); ok {
			t = slots(name)
		} else {
			a, ok := in[p.Name]
			require.True(n.tb, ok, "input %s", p.Name)
			for i, d := range p.Shape {
				sizes[d] = a.shape[i]
			}
			t = n.upload(p, a)
			held = append(held, t)
			if name, ok := strings.CutPrefix(p.Name, "past."); ok {
				pasts["present."+name] = t
			}
		}
		require.NoError(n.tb, b.BindInput(p.Name, t), p.Name)
	}
	results := map[string]*ort.Tensor{}
	for _, p := range n.Outputs {
		if name, ok := strings.CutPrefix(p.Name, "present."); ok && c != nil {
			require.NoError(n.tb, b.BindOutput(p.Name, slots(name)), p.Name)
			continue
		}
		shape := make([]int64, len(p.Shape))
		for i, d := range p.Shape {
			if shape[i], err = strconv.ParseInt(d, 10, 64); err != nil {
				shape[i] = sizes[d]
			}
		}
		t := pasts[p.Name]
		if t == nil || !slices.Equal(t.Shape(), shape) {
			t, err = n.device.NewHostTensor(p.Type, shape...)
			require.NoError(n.tb, err)
			held = append(held, t)
		}
		results[p.Name] = t
		require.NoError(n.tb, b.BindOutput(p.Name, t), p.Name)
	}
	require.NoError(n.tb, n.session.Run(b, nil))
	out := map[string]array{}
	for name, t := range results {
		if t != pasts[name] {
			out[name] = n.download(t)
			continue
		}
		raw := make([]byte, t.Size())
		require.NoError(n.tb, n.device.CopyOut(raw, t.Pointer()))
		out[name] = array{shape: t.Shape(), floats: decode(t.Type(), raw)}
	}
	return out
}

func (n *network) upload(p models.Port, a array) *ort.Tensor {
	n.tb.Helper()
	var data []byte
	switch p.Type { //nolint:exhaustive // the graphs take no others
	case models.Float32:
		data = ort.Bytes(a.floats)
	case models.Float16:
		data = floats(models.Float16, a.floats)
	case models.Int64:
		data = ort.Bytes(a.ints)
	case models.Int32:
		small := make([]int32, len(a.ints))
		for i, v := range a.ints {
			small[i] = int32(v)
		}
		data = ort.Bytes(small)
	}
	take := n.device.NewTensor
	if len(p.Shape) == 0 {
		take = n.device.NewHostTensor
	}
	t, err := take(p.Type, a.shape...)
	require.NoError(n.tb, err)
	require.Len(n.tb, data, int(t.Size()), p.Name)
	if len(p.Shape) == 0 {
		b, err := ort.Data[int32](t)
		require.NoError(n.tb, err)
		copy(ort.Bytes(b), data)
		return t
	}
	require.NoError(n.tb, n.device.CopyIn(t.Pointer(), data))
	return t
}

func (n *network) download(t *ort.Tensor) array {
	n.tb.Helper()
	a := array{shape: t.Shape()}
	switch t.Type() {
	case models.Int64:
		v, err := ort.Data[int64](t)
		require.NoError(n.tb, err)
		a.ints = slices.Clone(v)
	case models.Float16:
		v, err := ort.Data[uint16](t)
		require.NoError(n.tb, err)
		a.floats = decode(models.Float16, ort.Bytes(v))
	default:
		v, err := ort.Data[float32](t)
		require.NoError(n.tb, err)
		a.floats = slices.Clone(v)
	}
	return a
}

// decode converts a device's floats to float32.
func decode(t models.Type, b []byte) []float32 {
	if t == models.Float32 {
		return slices.Clone(ort.Slice[float32](b))
	}
	half := ort.Slice[uint16](b)
	out := make([]float32, len(half))
	for i, h := range half {
		out[i] = models.Float16FromBits(h)
	}
	return out
}

// apart returns the largest difference, relative to the largest value of want.
func apart(tb testing.TB, want, have []float32) float64 {
	tb.Helper()
	require.Len(tb, have, len(want))
	var worst, largest float64
	for i, w := range want {
		d := math.Abs(float64(w) - float64(have[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst, largest = max(worst, d), max(largest, math.Abs(float64(w)))
	}
	return worst / largest
}

// near requires want and have to be within the machine's bound.
func (m *machine) near(what string, want, have []float32) {
	m.tb.Helper()
	worst := apart(m.tb, want, have)
	m.tb.Logf("%s: %.2g", what, worst)
	require.LessOrEqual(m.tb, worst, m.bound, what)
}

func argmax(row []float32) int {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return best
}
