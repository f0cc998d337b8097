package ort_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

// A captured graph reads and writes the addresses of its capture, where contents change, and each graph id is a separate graph.
func TestCUDAGraph(t *testing.T) {
	orttest.NoLeaks(t)
	lockThread(t)
	r := orttest.Open(t)
	d := gpu(t, r)
	s := session(t, r, d, affine(), ort.SessionOptions{CUDAGraph: true})
	type fixed struct {
		b    *ort.Binding
		x, y *ort.Tensor
		o    *ort.RunOptions
	}
	graphs := make([]fixed, 3)
	for i := range graphs {
		rows := int64(1) << i
		f := fixed{binding(t, s), tensor(t, d, models.Float32, rows, 4), tensor(t, d, models.Float32, rows, 4), runOptions(t, r)}
		require.NoError(t, f.b.BindInput("x", f.x))
		require.NoError(t, f.b.BindOutput("y", f.y))
		require.NoError(t, f.o.SetGraph(i))
		graphs[i] = f
	}
	for step := range 6 {
		for i, f := range graphs {
			want := make([]float32, f.x.Len())
			values := make([]float32, f.x.Len())
			for j := range values {
				values[j] = float32(100*step + 10*i + j)
				want[j] = 2*values[j] + 1
			}
			put(t, d, f.x, values...)
			require.NoError(t, d.Memset(f.y.Pointer(), 0xff, f.y.Size()))
			require.NoError(t, s.Run(f.b, f.o), "graph %d, step %d", i, step)
			require.Equal(t, want, get[float32](t, d, f.y), "graph %d, step %d", i, step)
		}
	}

	// Without waiting: copies and replays follow each other on the stream.
	f := graphs[0]
	require.NoError(t, f.o.SetAsync(true))
	in, err := d.HostAlloc(16)
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	out, err := d.HostAlloc(16)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close()) }()
	for step := range 100 {
		copy(ort.Slice[float32](in.Bytes()), []float32{float32(step), 1, 2, 3})
		require.NoError(t, d.CopyIn(f.x.Pointer(), in.Bytes()))
		require.NoError(t, s.Run(f.b, f.o))
		require.NoError(t, d.CopyOut(out.Bytes(), f.y.Pointer()))
		require.NoError(t, d.Synchronize())
		require.Equal(t, []float32{2*float32(step) + 1, 3, 5, 7}, ort.Slice[float32](out.Bytes()))
	}
}

// A session beyond its memory limit returns ErrOutOfMemory, and the device stays usable.
func TestCUDAMemoryLimit(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	d := gpu(t, r)
	const size = 4096
	s := session(t, r, d, chain(size, 4), ort.SessionOptions{Limit: 1 << 20})
	b := binding(t, s)
	require.NoError(t, b.BindInput("x", tensor(t, d, models.Float32, size, size)))
	require.NoError(t, b.BindOutput("y", tensor(t, d, models.Float32, size, size)))
	err := s.Run(b, nil)
	require.ErrorIs(t, err, ort.ErrOutOfMemory)
	require.False(t, d.Lost())

	wide := session(t, r, d, chain(size, 4), ort.SessionOptions{})
	b = binding(t, wide)
	require.NoError(t, b.BindInput("x", tensor(t, d, models.Float32, size, size)))
	require.NoError(t, b.BindOutput("y", tensor(t, d, models.Float32, size, size)))
	require.NoError(t, wide.Run(b, nil))
}

// TestCUDADeviceLost makes a kernel write far outside its memory, which loses the CUDA context, in a separate process.
func TestCUDADeviceLost(t *testing.T) {
	if _, child := os.LookupEnv("ORT_TEST_LOSE_DEVICE"); !child {
		gpu(t, orttest.Open(t))
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCUDADeviceLost$", "-test.v", "-cuda")
		c.Env = append(os.Environ(), "ORT_TEST_LOSE_DEVICE=1")
		out, err := c.CombinedOutput()
		t.Log(string(out))
		require.NoError(t, err)
		return
	}
	r := orttest.Open(t)
	d := gpu(t, r)
	s := session(t, r, d, attention(models.Float16), ort.SessionOptions{})
	b := binding(t, s)
	cache, lengths := tensor(t, d, models.Float16, 1, kvHeads, 32, headDim), tensor(t, d, models.Int32, 1)
	total, err := d.NewHostTensor(models.Int32)
	require.NoError(t, err)
	defer func() { require.NoError(t, total.Close()) }()
	value, err := ort.Data[int32](total)
	require.NoError(t, err)
	value[0] = 32
	put(t, d, lengths, int32(357913941)) // the graph trusts it
	require.NoError(t, b.BindInput("qkv", tensor(t, d, models.Float16, 1, 1, packedWidth)))
	require.NoError(t, b.BindOutput("out", tensor(t, d, models.Float16, 1, 1, queryWidth)))
	require.NoError(t, b.BindInput("seqlens_k", lengths))
	require.NoError(t, b.BindInput("total", total))
	for _, name := range []string{"key", "value"} {
		require.NoError(t, b.BindInput("past."+name, cache))
		require.NoError(t, b.BindOutput("present."+name, cache))
	}
	require.ErrorIs(t, s.Run(b, nil), ort.ErrDeviceLost)
	require.True(t, d.Lost())
	_, err = d.Malloc(16)
	require.ErrorIs(t, err, ort.ErrDeviceLost)
	require.ErrorIs(t, d.Synchronize(), ort.ErrDeviceLost)
	require.ErrorIs(t, s.Run(b, nil), ort.ErrDeviceLost)
	// The cleanups close the remaining handles; the process survives that.
}

func TestCUDAOptionsRefused(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	d := gpu(t, r)
	_, err := r.NewSession(write(t, affine().model()), d, ort.SessionOptions{}.WithCUDA(map[string]string{"cudnn_conv_algo_search": "GUESS"}))
	require.ErrorContains(t, err, "CUDA options")
	_, err = r.NewSession(write(t, affine().model()), d, ort.SessionOptions{}.WithCUDA(map[string]string{"no_such_option": "1"}))
	require.ErrorContains(t, err, "no_such_option")
}

// With StrictNorm a norm squares what float16 cannot hold.
func TestCUDAStrictNorm(t *testing.T) {
	r := orttest.Open(t)
	d := gpu(t, r)
	const width = 1024
	half := func(v float32) []uint16 {
		all := make([]uint16, width)
		for i := range all {
			all[i] = models.Float16Bits(v)
		}
		return all
	}
	g := graph{
		nodes: []message{node("com.microsoft", "SkipSimplifiedLayerNormalization", []string{"x", "skip", "scale"}, []string{"y", "", "", "sum"},
			attributeFloat("epsilon", 1e-9))},
		weights: []message{weight("scale", models.Float16, ort.Bytes(half(2)), width)},
		inputs: []message{
			value("x", int(models.Float16), 1, 1, width), value("skip", int(models.Float16), 1, 1, width),
		},
		outputs: []message{value("y", int(models.Float16), 1, 1, width), value("sum", int(models.Float16), 1, 1, width)},
	}
	s := session(t, r, d, g, ort.SessionOptions{StrictNorm: true})
	b := binding(t, s)
	x, skip := tensor(t, d, models.Float16, 1, 1, width), tensor(t, d, models.Float16, 1, 1, width)
	y, sum := tensor(t, d, models.Float16, 1, 1, width), tensor(t, d, models.Float16, 1, 1, width)
	put(t, d, x, half(1000)...)
	put(t, d, skip, half(-3000)...)
	for _, err := range []error{b.BindInput("x", x), b.BindInput("skip", skip), b.BindOutput("y", y), b.BindOutput("sum", sum), s.Run(b, nil)} {
		require.NoError(t, err)
	}
	require.Equal(t, half(-2), get[uint16](t, d, y))
	require.Equal(t, half(-2000), get[uint16](t, d, sum))
}
