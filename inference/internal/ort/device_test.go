package ort_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

func TestNoCUDA(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	if d, err := r.NewDevice(ort.CUDA, 0); err == nil {
		defer func() { require.NoError(t, d.Close()) }()
		_, err = r.NewDevice(ort.CUDA, 4711)
		require.ErrorIs(t, err, ort.ErrNoCUDA)
		require.ErrorContains(t, err, "GPU 4711 of")
		return
	}
	for _, index := range []int{0, 1, -1} {
		_, err := r.NewDevice(ort.CUDA, index)
		require.ErrorIs(t, err, ort.ErrNoCUDA)
		require.ErrorContains(t, err, "no CUDA here: ")
		if !r.HasCUDA() {
			require.ErrorContains(t, err, "make runtime-cuda")
		}
	}
}

func TestHasCUDA(t *testing.T) {
	r := orttest.Open(t)
	_, err := os.Stat(filepath.Join(filepath.Dir(r.Path()), "libonnxruntime_providers_cuda.so"))
	require.Equal(t, err == nil, r.HasCUDA())
}

func TestNewDeviceRefuses(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	_, err := r.NewDevice(ort.CPU, 1)
	require.ErrorContains(t, err, "index must be 0, is 1")
	_, err = r.NewDevice(7, 0)
	require.ErrorContains(t, err, "got kind 7")
}

func TestDevice(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			_, d := open(t, kind)
			free, total, err := d.MemInfo()
			require.NoError(t, err)
			require.Positive(t, free)
			require.Greater(t, total, free)
			require.NotEmpty(t, d.Name())
			require.False(t, d.Lost())
			require.Equal(t, kind, d.Kind())
			t.Logf("%s: %s, %d of %d MiB free", d.Kind(), d.Name(), free>>20, total>>20)
		})
	}
}

func TestCopies(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			_, d := open(t, kind)
			const n = 1 << 20
			in, err := d.HostAlloc(n)
			require.NoError(t, err)
			defer func() { require.NoError(t, in.Close()) }()
			out, err := d.HostAlloc(n)
			require.NoError(t, err)
			defer func() { require.NoError(t, out.Close()) }()
			m, err := d.Malloc(2 * n)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			require.Equal(t, int64(2*n), m.Size())
			require.Nil(t, m.Bytes(), "device memory has no Bytes, even on the CPU")

			numbers := ort.Slice[float32](in.Bytes())
			require.Len(t, numbers, n/4)
			for i := range numbers {
				numbers[i] = float32(i)
			}
			require.NoError(t, d.Memset(m.At(0), 0xff, 2*n))
			require.NoError(t, d.CopyIn(m.At(0), in.Bytes()))
			require.NoError(t, d.CopyDevice(m.At(n), m.At(n/2), n/2))
			require.NoError(t, d.Memset(m.At(n/2), 0, n/2))
			require.NoError(t, d.CopyOut(out.Bytes(), m.At(n/2)))
			require.NoError(t, d.Synchronize())
			got := ort.Slice[float32](out.Bytes())
			require.Equal(t, make([]float32, n/8), got[:n/8])
			require.Equal(t, numbers[n/8:], got[n/8:])

			require.NoError(t, d.CopyIn(m.At(0), in.Bytes()))
			require.NoError(t, d.CopyRows(m.At(n), 8, m.At(0), 32, 4, 3)) // the numbers 0, 8 and 16
			rows := make([]float32, 5)
			require.NoError(t, d.CopyOut(ort.Bytes(rows), m.At(n)))
			require.NoError(t, d.Synchronize())
			require.Equal(t, []float32{0, 8, 16}, []float32{rows[0], rows[2], rows[4]})
			require.ErrorContains(t, d.CopyRows(m.At(n), 4, m.At(0), 32, 8, 2), "at most a step")
			require.ErrorContains(t, d.CopyRows(m.At(2*n-8), 8, m.At(0), 8, 8, 2), "the memory has 2097152")

			require.NoError(t, d.Memset(m.At(n), 0, n))
			from, to := ort.Box{At: m.At(4), Row: 8, Rows: 10}, ort.Box{At: m.At(n), Row: 4, Rows: 3}
			require.NoError(t, d.CopyBox(to, from, 4, 2, 3)) // 1 and 3, 21 and 23, 41 and 43
			planes := make([]float32, 9)
			require.NoError(t, d.CopyOut(ort.Bytes(planes), m.At(n)))
			require.NoError(t, d.Synchronize())
			require.Equal(t, []float32{1, 3, 0, 21, 23, 0, 41, 43, 0}, planes)
			require.ErrorContains(t, d.CopyBox(to, from, 8, 2, 3), "at most 3 rows of 4 bytes, got 2 of 8")
			require.ErrorContains(t, d.CopyBox(to, from, 4, 4, 3), "at most 3 rows of 4 bytes, got 4 of 4")
			require.ErrorContains(t, d.CopyBox(ort.Box{At: m.At(2*n - 28), Row: 4, Rows: 3}, from, 4, 2, 3), "the memory has 2097152")

			require.NoError(t, d.Memset(m.At(2*n-24), 0xff, 24))
			small := make([]int64, 3)
			require.NoError(t, d.CopyOut(ort.Bytes(small), m.At(2*n-24)))
			require.NoError(t, d.Synchronize())
			require.Equal(t, []int64{-1, -1, -1}, small)

			require.NoError(t, d.CopyIn(m.At(2*n), nil), "an empty copy fits everywhere")
			require.NoError(t, d.CopyOut(nil, m.At(0)))
			for _, err := range []error{
				d.CopyIn(m.At(2*n-1), make([]byte, 2)), d.CopyOut(make([]byte, 2), m.At(-1)), d.CopyDevice(m.At(0), m.At(n), n+1),
				d.Memset(m.At(1), 0, 2*n), d.Memset(m.At(0), 0, -1), d.Memset(m.At(math.MaxInt64), 0, math.MaxInt64),
			} {
				require.ErrorContains(t, err, "the memory has 2097152")
			}
			require.ErrorContains(t, d.CopyIn(ort.Pointer{}, small2bytes()), "in no memory")
		})
	}
}

func small2bytes() []byte { return []byte{1, 2} }

func TestMemoryThatIsClosed(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			_, d := open(t, kind)
			m, err := d.HostAlloc(16)
			require.NoError(t, err)
			view, err := d.TensorAt(m.At(8), models.Float32, 2)
			require.NoError(t, err)
			require.NoError(t, m.Close())
			require.NoError(t, m.Close())
			require.Nil(t, m.Bytes())
			values, err := ort.Data[float32](view)
			require.NoError(t, err, "the tensor keeps the memory")
			values[1] = 2
			require.NoError(t, d.CopyIn(view.Pointer(), []byte{1}))
			require.NoError(t, view.Close())
			require.ErrorIs(t, d.CopyIn(m.At(0), []byte{1}), ort.ErrClosed)
			_, err = d.TensorAt(m.At(0), models.Float32, 2)
			require.ErrorIs(t, err, ort.ErrClosed)
			_, err = ort.Data[float32](view)
			require.ErrorIs(t, err, ort.ErrClosed)
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			_, d := open(t, kind)
			_, err := d.Malloc(1 << 60)
			require.ErrorIs(t, err, ort.ErrOutOfMemory)
			_, err = d.HostAlloc(1 << 60)
			require.ErrorIs(t, err, ort.ErrOutOfMemory)
			_, err = d.Malloc(-1)
			require.ErrorContains(t, err, "size must be 0 or more, is -1")
			require.False(t, d.Lost(), "the device stays usable without free memory")
			m, err := d.Malloc(0)
			require.NoError(t, err)
			require.NoError(t, m.Close())
		})
	}
}

func TestTensors(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			scalar, err := d.NewHostTensor(models.Int32)
			require.NoError(t, err)
			require.Empty(t, scalar.Shape())
			require.Equal(t, int64(1), scalar.Len())
			n, err := ort.Data[int32](scalar)
			require.NoError(t, err)
			n[0] = 414
			again, err := ort.Data[int32](scalar)
			require.NoError(t, err)
			require.Equal(t, []int32{414}, again)
			_, err = ort.Data[int64](scalar)
			require.ErrorContains(t, err, "its elements are int32, asked for int64")
			require.NoError(t, scalar.Close())

			half := tensor(t, d, models.Float16, 2, 3)
			require.Equal(t, int64(12), half.Size())
			_, err = ort.Data[uint16](half)
			require.ErrorContains(t, err, "copy it with CopyOut")
			empty := tensor(t, d, models.Int64, 0, 3)
			require.Zero(t, empty.Size())

			for _, tt := range []struct {
				typ   models.Type
				shape []int64
				want  string
			}{
				{models.Float32, []int64{2, -1}, "a size must be 0 or more"},
				{models.Float32, []int64{1 << 40, 1 << 40}, "the size overflows"},
				{8, []int64{1}, "Type(8) is not a supported element type"},
			} {
				_, err := d.NewTensor(tt.typ, tt.shape...)
				require.ErrorContains(t, err, tt.want)
			}
			m, err := d.Malloc(16)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			_, err = d.TensorAt(m.At(8), models.Float32, 3)
			require.ErrorContains(t, err, "expected 12 bytes from offset 8 on, the memory has 16")
			other := orttest.CPU(t, r)
			_, err = other.TensorAt(m.At(0), models.Float32, 3)
			require.ErrorContains(t, err, "on another device")
		})
	}
}

func TestClosingInAnyOrder(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, _ := open(t, kind)
			before := ort.Live()
			d, err := r.NewDevice(ort.CPU, 0)
			require.NoError(t, err)
			m, err := d.Malloc(16)
			require.NoError(t, err)
			x, err := d.TensorAt(m.At(0), models.Float32, 1, 4)
			require.NoError(t, err)
			s, err := r.NewSession(write(t, affine().model()), d, ort.SessionOptions{})
			require.NoError(t, err)
			b, err := s.NewBinding()
			require.NoError(t, err)
			require.NoError(t, b.BindInput("x", x))
			require.NoError(t, b.BindOutput("y", x))
			require.NoError(t, s.Run(b, nil))
			for _, c := range []interface{ Close() error }{d, m, x, s} {
				require.NoError(t, c.Close())
			}
			require.NotEqual(t, before, ort.Live(), "the binding still needs the session, the tensor and the device")
			require.NoError(t, b.Close())
			require.Equal(t, before, ort.Live())
			_, err = s.NewBinding()
			require.ErrorIs(t, err, ort.ErrClosed)
		})
	}
}

func TestDeviceThatIsClosed(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, _ := open(t, kind)
			d, err := r.NewDevice(kind, 0)
			require.NoError(t, err)
			m, err := d.Malloc(16)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			model := write(t, affine().model())
			require.NoError(t, d.Close())
			for name, use := range map[string]func() error{
				"malloc":      func() error { _, err := d.Malloc(1); return err },
				"memory info": func() error { _, _, err := d.MemInfo(); return err },
				"session":     func() error { _, err := r.NewSession(model, d, ort.SessionOptions{}); return err },
				"synchronize": d.Synchronize,
				"copy in":     func() error { return d.CopyIn(m.At(0), make([]byte, 1)) },
				"copy out":    func() error { return d.CopyOut(make([]byte, 1), m.At(0)) },
				"copy":        func() error { return d.CopyDevice(m.At(0), m.At(8), 8) },
				"memset":      func() error { return d.Memset(m.At(0), 0, 1) },
			} {
				require.ErrorIs(t, use(), ort.ErrClosed, name)
			}
		})
	}
}
