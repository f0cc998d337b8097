// Package orttest opens the real ONNX Runtime in tests and shows that they leave nothing open.
package orttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
)

// Library is the runtime's file: TOUCHLINE_ORT if it is set, else what `make runtime` put into the module's bin/runtime, else the
// system's. The test is skipped where there is none.
func Library(tb testing.TB) string {
	tb.Helper()
	search := ort.Search{}
	if file, ok := os.LookupEnv("TOUCHLINE_ORT"); ok && file != "" {
		path, err := ort.Locate(ort.Search{Library: file})
		require.NoError(tb, err, "TOUCHLINE_ORT is set")
		return path
	}
	if root := moduleRoot(tb); root != "" {
		if path, err := ort.Locate(ort.Search{Library: filepath.Join(root, "bin", "runtime")}); err == nil {
			return path
		}
	}
	path, err := ort.Locate(search)
	if err != nil {
		tb.Skipf("needs ONNX Runtime, which `make runtime` fetches: %v", err)
	}
	return path
}

// Open opens the runtime for as long as the test runs.
func Open(tb testing.TB) *ort.Runtime {
	tb.Helper()
	require.NoError(tb, os.Setenv("ORT_DISABLE_TELEMETRY", "1")) //nolint:usetesting // for the whole process
	r, err := ort.Open(Library(tb), ort.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Close()) })
	return r
}

// CPU opens the CPU for as long as the test runs.
func CPU(tb testing.TB, r *ort.Runtime) *ort.Device {
	tb.Helper()
	d, err := r.NewDevice(ort.CPU, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	return d
}

// NoLeaks fails the test if it ends with more handles open than there are now. Call it first; not in tests that run in parallel, because
// the count is the process's.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	before := ort.Live()
	tb.Cleanup(func() {
		require.Equal(tb, before, ort.Live(), "native handles were left open")
	})
}

// moduleRoot is the nearest folder above that has a go.mod; "" for a test binary that was carried elsewhere.
func moduleRoot(tb testing.TB) string {
	tb.Helper()
	folder, err := os.Getwd()
	require.NoError(tb, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return ""
		}
		folder = parent
	}
}
