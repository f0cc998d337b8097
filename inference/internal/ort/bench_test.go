package ort_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
)

// bound returns a session of the smallest graph with its binding.
func bound(tb testing.TB, r *ort.Runtime, d *ort.Device, o ort.SessionOptions) (*ort.Session, *ort.Binding, *ort.Tensor) {
	tb.Helper()
	s := session(tb, r, d, affine(), o)
	b := binding(tb, s)
	x, y := tensor(tb, d, models.Float32, 1, 4), tensor(tb, d, models.Float32, 1, 4)
	put(tb, d, x, 1, 2, 3, float32(4))
	require.NoError(tb, b.BindInput("x", x))
	require.NoError(tb, b.BindOutput("y", y))
	return s, b, x
}

func TestRunAllocatesNothing(t *testing.T) {
	for _, kind := range devices(t) {
		t.Run(kind.String(), func(t *testing.T) {
			r, d := open(t, kind)
			s, b, x := bound(t, r, d, ort.SessionOptions{Threads: 1})
			o := runOptions(t, r)
			host, err := d.HostAlloc(16)
			require.NoError(t, err)
			defer func() { require.NoError(t, host.Close()) }()
			var failed error
			n := testing.AllocsPerRun(100, func() {
				for _, err := range [...]error{
					d.CopyIn(x.Pointer(), host.Bytes()), s.Run(b, o), d.CopyOut(host.Bytes(), x.Pointer()), d.Synchronize(),
				} {
					if err != nil {
						failed = err
					}
				}
			})
			require.NoError(t, failed)
			require.Zero(t, n)
		})
	}
}

func BenchmarkRun(b *testing.B) {
	r := orttest.Open(b)
	s, bind, _ := bound(b, r, orttest.CPU(b, r), ort.SessionOptions{Threads: 1})
	o := runOptions(b, r)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(bind, o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCopy measures a call into C that copies 16 bytes.
func BenchmarkCopy(b *testing.B) {
	r := orttest.Open(b)
	d := orttest.CPU(b, r)
	x := tensor(b, d, models.Float32, 4)
	host, err := d.HostAlloc(16)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, host.Close()) })
	b.ReportAllocs()
	for b.Loop() {
		if err := d.CopyIn(x.Pointer(), host.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCUDAReplay is one step of a captured graph: copy in, replay, copy out, wait.
func BenchmarkCUDAReplay(b *testing.B) {
	lockThread(b)
	r := orttest.Open(b)
	d := gpu(b, r)
	s, bind, x := bound(b, r, d, ort.SessionOptions{CUDAGraph: true})
	o := runOptions(b, r)
	require.NoError(b, o.SetGraph(1))
	require.NoError(b, o.SetAsync(true))
	host, err := d.HostAlloc(16)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, host.Close()) })
	step := func() {
		for _, err := range [...]error{
			d.CopyIn(x.Pointer(), host.Bytes()), s.Run(bind, o), d.CopyOut(host.Bytes(), x.Pointer()), d.Synchronize(),
		} {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 5 {
		step()
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}
