// Package orttest opens the real ONNX Runtime in tests and checks that they close all handles.
package orttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
)

// Library returns the path of the runtime: TOUCHLINE_ORT if set, else bin/runtime of the module, else the system's. If there is none it
// skips the test.
func Library(tb testing.TB) string {
	tb.Helper()
	if file, _ := os.LookupEnv("TOUCHLINE_ORT"); file != "" {
		path, err := ort.Locate(file)
		require.NoError(tb, err, "TOUCHLINE_ORT is set")
		return path
	}
	if root := moduleRoot(tb); root != "" {
		if path, err := ort.Locate(filepath.Join(root, "bin", "runtime")); err == nil {
			return path
		}
	}
	path, err := ort.Locate("")
	if err != nil {
		tb.Skipf("needs ONNX Runtime, which `make runtime` fetches: %v", err)
	}
	return path
}

// Open opens the runtime for as long as the test runs.
func Open(tb testing.TB) *ort.Runtime {
	tb.Helper()
	require.NoError(tb, os.Setenv("ORT_DISABLE_TELEMETRY", "1")) //nolint:usetesting // for the whole process
	r, err := ort.Open(Library(tb))
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

// NoLeaks fails the test if it ends with other open handles than it starts with. Call it first, and not in parallel tests: the count is the
// process's.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	before := ort.Live()
	tb.Cleanup(func() {
		require.Equal(tb, before, ort.Live(), "native handles were left open")
	})
}

// moduleRoot returns the nearest parent folder with a go.mod, or "" for a test binary on another machine.
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
