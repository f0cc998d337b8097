package ort_test

import (
	"flag"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

var needCUDA = flag.Bool("cuda", false, "fail, instead of leaving out, where there is no CUDA device")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// devices returns the devices of the tests: the CPU, and CUDA with a GPU or -cuda.
func devices(t *testing.T) []ort.DeviceKind {
	t.Helper()
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	d, err := r.NewDevice(ort.CUDA, 0)
	if err != nil && !*needCUDA {
		require.ErrorIs(t, err, ort.ErrNoCUDA)
		return []ort.DeviceKind{ort.CPU}
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return []ort.DeviceKind{ort.CPU, ort.CUDA}
}

// open opens a device until the end of the test, which must close all handles.
func open(t *testing.T, k ort.DeviceKind) (*ort.Runtime, *ort.Device) {
	t.Helper()
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	d, err := r.NewDevice(k, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return r, d
}

// gpu opens the first GPU until the end of the test. Without one it skips the test, or fails it with -cuda.
func gpu(tb testing.TB, r *ort.Runtime) *ort.Device {
	tb.Helper()
	d, err := r.NewDevice(ort.CUDA, 0)
	if err != nil && !*needCUDA {
		require.ErrorIs(tb, err, ort.ErrNoCUDA)
		tb.Skip(err)
	}
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	return d
}

func session(tb testing.TB, r *ort.Runtime, d *ort.Device, g graph, o ort.SessionOptions) *ort.Session {
	tb.Helper()
	s, err := r.NewSession(write(tb, g.model()), d, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func binding(tb testing.TB, s *ort.Session) *ort.Binding {
	tb.Helper()
	b, err := s.NewBinding()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, b.Close()) })
	return b
}

func tensor(tb testing.TB, d *ort.Device, t models.Type, shape ...int64) *ort.Tensor {
	tb.Helper()
	v, err := d.NewTensor(t, shape...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, v.Close()) })
	return v
}

func runOptions(tb testing.TB, r *ort.Runtime) *ort.RunOptions {
	tb.Helper()
	o, err := r.NewRunOptions()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, o.Close()) })
	return o
}

func put[T ort.Element](tb testing.TB, d *ort.Device, t *ort.Tensor, values ...T) {
	tb.Helper()
	require.NoError(tb, d.CopyIn(t.Pointer(), ort.Bytes(values)))
	require.NoError(tb, d.Synchronize())
}

func get[T ort.Element](tb testing.TB, d *ort.Device, t *ort.Tensor) []T {
	tb.Helper()
	values := make([]T, t.Len())
	require.NoError(tb, d.CopyOut(ort.Bytes(values), t.Pointer()))
	require.NoError(tb, d.Synchronize())
	return values
}

// lockThread keeps a test on one OS thread, as CUDA graphs require.
func lockThread(tb testing.TB) {
	tb.Helper()
	runtime.LockOSThread()
	tb.Cleanup(runtime.UnlockOSThread)
}
