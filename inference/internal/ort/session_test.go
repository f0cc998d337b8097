package ort_test

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

func TestSessionDescribesItself(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s := session(t, r, d, affine(), ort.SessionOptions{Threads: 1})
			require.Equal(t, []ort.ValueInfo{{Name: "x", Type: models.Float32, Shape: []int64{-1, 4}}}, s.Inputs())
			require.Equal(t, []ort.ValueInfo{{Name: "y", Type: models.Float32, Shape: []int64{-1, 4}}}, s.Outputs())
			g := session(t, r, d, attention(map[ort.DeviceKind]models.Type{ort.CPU: models.Float32, ort.CUDA: models.Float16}[d.Kind()]), ort.SessionOptions{})
			require.Equal(t, ort.ValueInfo{Name: "total", Type: models.Int32, Shape: []int64{}}, g.Inputs()[4])
		})
	}
}

func TestNewSessionRefuses(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			good := affine().model()
			noKernel := affine()
			noKernel.nodes = append(noKernel.nodes, node("", "NoSuchOperator", []string{"x"}, []string{"z"}))
			noKernel.outputs = append(noKernel.outputs, value("z", int(models.Float32), "N", 4))
			strings := graph{
				nodes:   []message{node("", "Identity", []string{"x"}, []string{"y"})},
				inputs:  []message{value("x", 8, "N")},
				outputs: []message{value("y", 8, "N")},
			}
			for name, tt := range map[string]struct {
				model   []byte
				options ort.SessionOptions
				want    string
			}{
				"no protobuf":         {model: []byte("certainly not a model"), want: "ONNX Runtime error"},
				"cut off":             {model: good[:len(good)/2], want: "ONNX Runtime error"},
				"empty":               {model: nil, want: "ONNX Runtime error"},
				"an unknown operator": {model: noKernel.model(), want: "NoSuchOperator"},
				"strings":             {model: strings.model(), want: "describe x: its elements are of ONNX type 8"},
				"negative threads":    {model: good, options: ort.SessionOptions{Threads: -1}, want: "must be 0 or more"},
			} {
				t.Run(name, func(t *testing.T) {
					path := write(t, tt.model)
					before := ort.Live()
					_, err := r.NewSession(path, d, tt.options)
					require.ErrorContains(t, err, tt.want)
					require.ErrorContains(t, err, path)
					require.Equal(t, before, ort.Live())
				})
			}
			_, err := r.NewSession("/nowhere/decoder.onnx", d, ort.SessionOptions{})
			require.ErrorIs(t, err, os.ErrNotExist)
			require.ErrorContains(t, err, "/nowhere/decoder.onnx")
		})
	}
}

func TestRun(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s := session(t, r, d, affine(), ort.SessionOptions{})
			b := binding(t, s)
			x, y := tensor(t, d, models.Float32, 2, 4), tensor(t, d, models.Float32, 2, 4)
			require.NoError(t, b.BindInput("x", x))
			require.NoError(t, b.BindOutput("y", y))
			o := runOptions(t, r)
			require.NoError(t, o.SetGraph(ort.NoGraph))
			for i := range 3 {
				f := float32(i)
				put(t, d, x, f, 1, 2, 3, 4, 5, 6, -7)
				require.NoError(t, s.Run(b, o))
				require.Equal(t, []float32{2*f + 1, 3, 5, 7, 9, 11, 13, -13}, get[float32](t, d, y))
			}
			require.NoError(t, o.SetAsync(true))
			put(t, d, x, 1, 1, 1, 1, 1, 1, 1, float32(1))
			require.NoError(t, s.Run(b, o))
			require.Equal(t, []float32{3, 3, 3, 3, 3, 3, 3, 3}, get[float32](t, d, y), "the copy follows the run on the same stream")
			require.NoError(t, s.Run(b, nil), "options are not needed")
		})
	}
}

// An initializer of the host's memory takes the place of that of the file.
func TestHostedInitializer(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			ten := ort.Hosted{Type: models.Float32, Bytes: ort.Bytes([]float32{10})}
			s := session(t, r, d, affine(), ort.SessionOptions{Hosted: map[string]ort.Hosted{"one": ten}, NoXQA: true})
			b := binding(t, s)
			x, y := tensor(t, d, models.Float32, 1, 4), tensor(t, d, models.Float32, 1, 4)
			require.NoError(t, b.BindInput("x", x))
			require.NoError(t, b.BindOutput("y", y))
			put(t, d, x, 1, 2, 3, float32(4))
			require.NoError(t, s.Run(b, nil))
			require.Equal(t, []float32{12, 14, 16, 18}, get[float32](t, d, y))
			ten.Bytes = ten.Bytes[:2]
			_, err := r.NewSession(write(t, affine().model()), d, ort.SessionOptions{Hosted: map[string]ort.Hosted{"one": ten}})
			require.ErrorContains(t, err, "host one: expected 4 bytes")
		})
	}
}

func TestViewsOfOneBuffer(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s := session(t, r, d, affine(), ort.SessionOptions{})
			b := binding(t, s)
			const row = 4 * 4
			m, err := d.Malloc(6 * row)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			all := []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
			require.NoError(t, d.CopyIn(m.At(0), ort.Bytes(all)))
			for i := range int64(3) { // row i to row 5-i
				x, err := d.TensorAt(m.At(i*row), models.Float32, 1, 4)
				require.NoError(t, err)
				y, err := d.TensorAt(m.At((5-i)*row), models.Float32, 1, 4)
				require.NoError(t, err)
				require.NoError(t, b.BindInput("x", x))
				require.NoError(t, b.BindOutput("y", y))
				require.NoError(t, x.Close(), "a bound tensor is kept")
				require.NoError(t, y.Close())
				require.NoError(t, s.Run(b, nil))
			}
			require.NoError(t, d.CopyOut(ort.Bytes(all), m.At(0)))
			require.NoError(t, d.Synchronize())
			require.Equal(t, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17, 19, 21, 23, 9, 11, 13, 15, 1, 3, 5, 7}, all)
			require.Equal(t, int64(2), ort.Live().Tensors, "rebinding lets the earlier ones go")
			require.Error(t, s.Run(binding(t, s), nil), "nothing is bound")
		})
	}
}

func TestBindRefuses(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s := session(t, r, d, affine(), ort.SessionOptions{})
			b := binding(t, s)
			x := tensor(t, d, models.Float32, 2, 4)
			require.ErrorContains(t, b.BindInput("y", x), `there is no such input, expected one of ["x"]`)
			require.ErrorContains(t, b.BindOutput("x", x), `there is no such output, expected one of ["y"]`)
			require.ErrorContains(t, b.BindInput("x", nil), "the tensor is nil")
			require.ErrorContains(t, b.BindInput("x", tensor(t, d, models.Int32, 2, 4)), "expected float32, the tensor is int32")
			for _, shape := range [][]int64{{2, 5}, {4}, {1, 2, 4}, {}} {
				require.ErrorContains(t, b.BindInput("x", tensor(t, d, models.Float32, shape...)), "expected shape [-1 4] (-1 is free)")
			}
			closed, err := d.NewTensor(models.Float32, 2, 4)
			require.NoError(t, err)
			require.NoError(t, closed.Close())
			require.ErrorIs(t, b.BindInput("x", closed), ort.ErrClosed)

			require.NoError(t, b.BindInput("x", x))
			require.NoError(t, b.BindOutput("y", tensor(t, d, models.Float32, 3, 4)))
			err = s.Run(b, nil)
			var e *ort.Error
			require.ErrorAs(t, err, &e, "2 rows go in, 3 are expected to come out")
			require.ErrorContains(t, err, "run ")
			require.False(t, d.Lost())
			require.NoError(t, b.BindOutput("y", tensor(t, d, models.Float32, 2, 4)))
			require.NoError(t, s.Run(b, nil), "the session stays usable after an error")
		})
	}
}

func TestHandlesThatAreClosed(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			path := write(t, affine().model())
			s, err := r.NewSession(path, d, ort.SessionOptions{})
			require.NoError(t, err)
			b, err := s.NewBinding()
			require.NoError(t, err)
			x, y := tensor(t, d, models.Float32, 1, 4), tensor(t, d, models.Float32, 1, 4)
			require.NoError(t, b.BindInput("x", x))
			require.NoError(t, b.BindOutput("y", y))
			o, err := r.NewRunOptions()
			require.NoError(t, err)
			require.NoError(t, o.Close())
			require.ErrorIs(t, s.Run(b, o), ort.ErrClosed)
			require.ErrorIs(t, o.Set("a", "b"), ort.ErrClosed)
			require.ErrorIs(t, o.Terminate(), ort.ErrClosed)

			other := session(t, r, d, affine(), ort.SessionOptions{})
			require.ErrorContains(t, other.Run(b, nil), "belongs to another session")
			require.ErrorContains(t, other.Run(nil, nil), "belongs to another session")

			closed, err := s.NewBinding()
			require.NoError(t, err)
			require.NoError(t, closed.Close())
			require.ErrorIs(t, s.Run(closed, nil), ort.ErrClosed)

			require.NoError(t, s.Close())
			require.ErrorIs(t, s.Run(b, nil), ort.ErrClosed)
			require.NoError(t, b.Close())
			require.ErrorIs(t, b.BindInput("x", x), ort.ErrClosed)
			require.ErrorIs(t, b.BindOutput("y", y), ort.ErrClosed)
		})
	}
}

func TestTerminate(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	d := orttest.CPU(t, r)
	const size = 256
	s := session(t, r, d, chain(size, 600), ort.SessionOptions{Threads: 1})
	b := binding(t, s)
	require.NoError(t, b.BindInput("x", tensor(t, d, models.Float32, size, size)))
	require.NoError(t, b.BindOutput("y", tensor(t, d, models.Float32, size, size)))
	o := runOptions(t, r)
	done := make(chan error, 1)
	timer := time.AfterFunc(10*time.Millisecond, func() { done <- o.Terminate() })
	defer timer.Stop()
	err := s.Run(b, o)
	require.NoError(t, <-done)
	require.ErrorIs(t, err, ort.ErrTerminated)
	require.ErrorContains(t, err, "the run was terminated: ONNX Runtime error")
	require.ErrorIs(t, s.Run(b, o), ort.ErrTerminated, "until Resume")
	require.NoError(t, o.Resume())
	require.NoError(t, s.Run(b, o))
}

// Opening and closing handles must not increase the memory of the process.
func TestNothingGrows(t *testing.T) {
	r, d := open(t, ort.CPU)
	path := write(t, affine().model())
	cycle := func() {
		s, err := r.NewSession(path, d, ort.SessionOptions{Threads: 1})
		require.NoError(t, err)
		b, err := s.NewBinding()
		require.NoError(t, err)
		o, err := r.NewRunOptions()
		require.NoError(t, err)
		x, err := d.NewTensor(models.Float32, 2048, 4)
		require.NoError(t, err)
		y, err := d.NewTensor(models.Float32, 2048, 4)
		require.NoError(t, err)
		require.NoError(t, b.BindInput("x", x))
		require.NoError(t, b.BindOutput("y", y))
		for range 3 {
			require.NoError(t, s.Run(b, o))
		}
		_, err = r.NewSession(path+".missing", d, ort.SessionOptions{})
		require.Error(t, err)
		require.ErrorContains(t, b.BindInput("z", x), "no such input")
		for _, c := range []io.Closer{x, y, o, b, s} {
			require.NoError(t, c.Close())
		}
	}
	for range 50 {
		cycle()
	}
	before := resident(t)
	for range 400 {
		cycle()
	}
	grown := resident(t) - before
	t.Logf("400 sessions: %d KiB more", grown>>10)
	require.Less(t, grown, int64(16<<20), "one output of each session is 12 MiB")
}

// resident returns the process's memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// Goroutines share a session with one binding each, while another opens and closes runtimes.
func TestManyAtOnce(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s := session(t, r, d, affine(), ort.SessionOptions{Threads: 1})
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					b, err := s.NewBinding()
					if !noError(t, err) {
						return
					}
					defer func() { noError(t, b.Close()) }()
					x, err := d.NewTensor(models.Float32, 1, 4)
					noError(t, err)
					defer func() { noError(t, x.Close()) }()
					y, err := d.NewTensor(models.Float32, 1, 4)
					noError(t, err)
					defer func() { noError(t, y.Close()) }()
					noError(t, b.BindInput("x", x))
					noError(t, b.BindOutput("y", y))
					in, out := make([]float32, 4), make([]float32, 4)
					for k := range 200 {
						in[0] = float32(i*1000 + k)
						noError(t, d.CopyIn(x.Pointer(), ort.Bytes(in)))
						noError(t, s.Run(b, nil))
						noError(t, d.CopyOut(ort.Bytes(out), y.Pointer()))
						noError(t, d.Synchronize())
						if out[0] != 2*in[0]+1 {
							t.Errorf("expected %v, got %v", 2*in[0]+1, out[0])
							return
						}
					}
				})
			}
			wg.Go(func() {
				for range 20 {
					other, err := ort.Open(r.Path())
					if !noError(t, err) {
						return
					}
					noError(t, other.Close())
				}
			})
			wg.Wait()
		})
	}
}

func noError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// numbers converts between float32 and the float type of a device.
type numbers struct {
	d *ort.Device
	t models.Type
	// near is the maximum error: float32 sums in another order, float16 has 11 bits.
	near float64
}

func numbersOf(d *ort.Device) numbers {
	if d.Kind() == ort.CUDA {
		return numbers{d, models.Float16, 4e-3}
	}
	return numbers{d, models.Float32, 1e-5}
}

func (n numbers) put(tb testing.TB, to *ort.Tensor, values []float32) {
	tb.Helper()
	if n.t == models.Float32 {
		put(tb, n.d, to, values...)
		return
	}
	halves := make([]uint16, len(values))
	for i, v := range values {
		halves[i] = toHalf(v)
	}
	put(tb, n.d, to, halves...)
}

func (n numbers) get(tb testing.TB, from *ort.Tensor) []float32 {
	tb.Helper()
	if n.t == models.Float32 {
		return get[float32](tb, n.d, from)
	}
	halves := get[uint16](tb, n.d, from)
	values := make([]float32, len(halves))
	for i, h := range halves {
		values[i] = fromHalf(h)
	}
	return values
}

// attend returns causal grouped attention over packed rows for the last row, in float64.
func attend(rows [][]float32) []float64 {
	out := make([]float64, queryWidth)
	last := rows[len(rows)-1]
	for h := range queryHeads {
		q := last[h*headDim : (h+1)*headDim]
		kv := h / (queryHeads / kvHeads)
		weights := make([]float64, len(rows))
		var sum float64
		for i, row := range rows {
			var dot float64
			for j, k := range row[queryWidth+kv*headDim:][:headDim] {
				dot += float64(q[j]) * float64(k)
			}
			weights[i] = math.Exp(dot * 0.125)
			sum += weights[i]
		}
		for i, row := range rows {
			for j, v := range row[queryWidth+kvHeads*headDim+kv*headDim:][:headDim] {
				out[h*headDim+j] += weights[i] / sum * float64(v)
			}
		}
	}
	return out
}

// TestSlots keeps the keys and values of several rooms in one buffer, as the engine does: each room's prompt goes in through views of its own row,
// in two pieces, then all rows decode in one run, and past and present are the same memory. On CUDA the decoding runs are a captured graph with
// fixed addresses, and another room begins between two replays.
func TestSlots(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			lockThread(t)
			n := numbersOf(d)
			const slots, room = 4, 32
			s := session(t, r, d, attention(n.t), ort.SessionOptions{CUDAGraph: true})
			rowBytes := int64(kvHeads * room * headDim * n.t.Size())
			var caches [2]*ort.Memory
			for i := range caches {
				m, err := d.Malloc(slots * rowBytes)
				require.NoError(t, err)
				defer func() { require.NoError(t, m.Close()) }()
				require.NoError(t, d.Memset(m.At(0), 0, slots*rowBytes))
				caches[i] = m
			}
			noGraph, withGraph := runOptions(t, r), runOptions(t, r)
			require.NoError(t, noGraph.SetGraph(ort.NoGraph))
			require.NoError(t, withGraph.SetGraph(1))

			random := rand.New(rand.NewPCG(1, 2))
			make1 := func() []float32 {
				row := make([]float32, packedWidth)
				for i := range row {
					row[i] = fromHalf(toHalf(float32(random.NormFloat64())))
				}
				return row
			}
			rows := make([][][]float32, slots)
			bind := func(b *ort.Binding, in, out *ort.Tensor, lengths, total *ort.Tensor, row, count int64) {
				require.NoError(t, b.BindInput("qkv", in))
				require.NoError(t, b.BindOutput("out", out))
				require.NoError(t, b.BindInput("seqlens_k", lengths))
				require.NoError(t, b.BindInput("total", total))
				for i, name := range []string{"key", "value"} {
					view, err := d.TensorAt(caches[i].At(row*rowBytes), n.t, count, kvHeads, room, headDim)
					require.NoError(t, err)
					require.NoError(t, b.BindInput("past."+name, view))
					require.NoError(t, b.BindOutput("present."+name, view))
					require.NoError(t, view.Close())
				}
			}
			check := func(slot int, got []float32) {
				t.Helper()
				for i, want := range attend(rows[slot]) {
					require.InDelta(t, want, float64(got[i]), n.near, "slot %d of length %d, element %d", slot, len(rows[slot]), i)
				}
			}
			prefill := func(slot, count int) {
				t.Helper()
				flat := make([]float32, 0, count*packedWidth)
				for range count {
					row := make1()
					rows[slot] = append(rows[slot], row)
					flat = append(flat, row...)
				}
				in, out := tensor(t, d, n.t, 1, int64(count), packedWidth), tensor(t, d, n.t, 1, int64(count), queryWidth)
				lengths := tensor(t, d, models.Int32, 1)
				total, err := d.NewHostTensor(models.Int32)
				require.NoError(t, err)
				defer func() { require.NoError(t, total.Close()) }()
				value, err := ort.Data[int32](total)
				require.NoError(t, err)
				value[0] = int32(len(rows[slot]))
				n.put(t, in, flat)
				put(t, d, lengths, int32(len(rows[slot])-1))
				b := binding(t, s)
				bind(b, in, out, lengths, total, int64(slot), 1)
				require.NoError(t, s.Run(b, noGraph))
				check(slot, n.get(t, out)[(count-1)*queryWidth:])
			}
			prefill(2, 5)
			prefill(0, 3)
			prefill(0, 4) // its second piece
			prefill(3, 1)

			in, out := tensor(t, d, n.t, slots, 1, packedWidth), tensor(t, d, n.t, slots, 1, queryWidth)
			lengths := tensor(t, d, models.Int32, slots)
			total, err := d.NewHostTensor(models.Int32)
			require.NoError(t, err)
			defer func() { require.NoError(t, total.Close()) }()
			value, err := ort.Data[int32](total)
			require.NoError(t, err)
			value[0] = room
			b := binding(t, s)
			bind(b, in, out, lengths, total, 0, slots)
			for step := range 8 {
				active := []int{0, 2, 3}
				if step == 4 {
					prefill(1, 6)
				}
				if step >= 4 {
					active = []int{0, 1, 2, 3}
				}
				flat, seqlens := make([]float32, slots*packedWidth), make([]int32, slots)
				for _, slot := range active {
					row := make1()
					rows[slot] = append(rows[slot], row)
					copy(flat[slot*packedWidth:], row)
					seqlens[slot] = int32(len(rows[slot]) - 1)
				}
				n.put(t, in, flat)
				put(t, d, lengths, seqlens...)
				require.NoError(t, d.Memset(out.Pointer(), 0xff, out.Size()))
				require.NoError(t, s.Run(b, withGraph))
				got := n.get(t, out)
				for _, slot := range active {
					check(slot, got[slot*queryWidth:][:queryWidth])
				}
			}
		})
	}
}
