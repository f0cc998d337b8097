package ort_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	onnx "github.com/yalue/onnxruntime_go"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
)

func TestLocate(t *testing.T) {
	folder := t.TempDir()
	library := filepath.Join(folder, "libonnxruntime.so.1.30.0")
	require.NoError(t, os.WriteFile(library, nil, 0o600))
	library, err := filepath.EvalSymlinks(library)
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "libonnxruntime.so")
	require.NoError(t, os.Symlink(library, link))

	for name, given := range map[string]string{"a file": library, "a link": link, "a folder": folder} {
		t.Run(name, func(t *testing.T) {
			got, err := ort.Locate(given)
			require.NoError(t, err)
			require.Equal(t, library, got)
		})
	}
	for name, given := range map[string]string{"no such file": "/nowhere/libonnxruntime.so", "a folder without it": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			_, err := ort.Locate(given)
			require.ErrorIs(t, err, ort.ErrNoRuntime)
			require.ErrorContains(t, err, "make runtime")
			require.ErrorContains(t, err, "make runtime-cuda")
		})
	}
}

func TestLocateFindsBesideTheProgramAndInTheWorkingFolder(t *testing.T) {
	folders := ort.DefaultFolders()
	exe, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(filepath.Dir(exe), "runtime"), folders[0])
	require.Contains(t, folders, "runtime")
	require.Contains(t, folders, filepath.Join("bin", "runtime"))

	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Join("bin", "runtime"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join("bin", "runtime", ort.LibraryName), nil, 0o600))
	path, err := ort.Locate("")
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(path))
	require.Equal(t, filepath.Join("bin", "runtime", ort.LibraryName), path[len(path)-len("bin/runtime/libonnxruntime.so"):])
}

func TestLocateFindsNothing(t *testing.T) {
	if !alone(t) { // the loader also finds a library that the process has loaded
		return
	}
	t.Chdir(t.TempDir())
	path, err := ort.Locate("")
	if err == nil {
		t.Skip("the system has ONNX Runtime at " + path)
	}
	require.ErrorIs(t, err, ort.ErrNoRuntime)
	for _, text := range append(ort.DefaultFolders(), ort.LibraryName, "make runtime", "make runtime-cuda") {
		require.ErrorContains(t, err, text)
	}
}

func TestLocateFindsInThePathOfTheLoader(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler to build a library with")
	}
	if os.Getenv("ORT_TEST_ALONE") == "" { // the loader reads the path when a process starts
		library := compile(t, "int something(void) { return 1; }")
		folder := filepath.Dir(library)
		require.NoError(t, os.Rename(library, filepath.Join(folder, ort.LibraryName+".1")))
		t.Setenv("LD_LIBRARY_PATH", folder)
	}
	if !alone(t) {
		return
	}
	t.Chdir(t.TempDir())
	path, err := ort.Locate("")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(os.Getenv("LD_LIBRARY_PATH"), ort.LibraryName+".1"), path)
}

func TestOpen(t *testing.T) {
	orttest.NoLeaks(t)
	r := orttest.Open(t)
	require.Regexp(t, `^1\.[3-9]\d\.`, r.Version())
	require.FileExists(t, r.Path())

	again, err := ort.Open(r.Path())
	require.NoError(t, err)
	require.Equal(t, int64(2), ort.Live().Runtimes)
	require.NoError(t, again.Close())
	require.NoError(t, again.Close(), "the second Close has no effect")
	require.Equal(t, int64(1), ort.Live().Runtimes)
	_, err = again.NewDevice(ort.CPU, 0)
	require.ErrorIs(t, err, ort.ErrClosed)
	_, err = again.NewRunOptions()
	require.ErrorIs(t, err, ort.ErrClosed)
}

func TestOpenAgainAfterTheLastClose(t *testing.T) {
	orttest.NoLeaks(t)
	library := orttest.Library(t)
	for range 3 {
		r, err := ort.Open(library)
		require.NoError(t, err)
		require.True(t, onnx.IsInitialized(), "onnxruntime_go shares the environment")
		require.Equal(t, r.Version(), onnx.GetVersion())
		d, err := r.NewDevice(ort.CPU, 0)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.NoError(t, d.Close())
		require.False(t, onnx.IsInitialized())
	}
}

// alone runs a test in a separate process without a loaded runtime. It returns true in that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv("ORT_TEST_ALONE") != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "ORT_TEST_ALONE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return false
}

func TestOpenWhatIsNoRuntime(t *testing.T) {
	if !alone(t) {
		return
	}
	orttest.NoLeaks(t)
	_, err := ort.Open("/nowhere/libonnxruntime.so")
	require.ErrorIs(t, err, ort.ErrNoRuntime)
	require.ErrorContains(t, err, "make runtime")

	text := filepath.Join(t.TempDir(), "libonnxruntime.so")
	require.NoError(t, os.WriteFile(text, []byte("not a library"), 0o600))
	_, err = ort.Open(text)
	require.ErrorIs(t, err, ort.ErrNoRuntime)
	require.ErrorContains(t, err, text)

	r := orttest.Open(t)
	folder := t.TempDir()
	second, err := os.ReadFile(r.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, ort.LibraryName), second, 0o600))
	_, err = ort.Open(folder)
	require.ErrorContains(t, err, "can hold only one")
	require.ErrorContains(t, err, r.Path())
}

func TestOpenOtherLibraries(t *testing.T) {
	orttest.NoLeaks(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler to build libraries of other kinds with")
	}
	if !alone(t) {
		return
	}
	other := compile(t, "int something(void) { return 1; }")
	_, err := ort.Open(other)
	require.ErrorIs(t, err, ort.ErrNoRuntime)
	require.ErrorContains(t, err, "has no OrtGetApiBase")

	old := compile(t, `static const char *version(void) { return "1.17.3"; }
static const void *api(unsigned n) { (void)n; return 0; }
static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {api, version};
const void *OrtGetApiBase(void) { return &base; }`)
	_, err = ort.Open(old)
	require.ErrorIs(t, err, ort.ErrNoRuntime)
	require.ErrorContains(t, err, "expected version 1.30 or newer")
	require.ErrorContains(t, err, "1.17.3")
}

// A refused library is not loaded, because loading runs its code.
func TestASecondLibraryIsNotLoaded(t *testing.T) {
	orttest.NoLeaks(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler to build a library with")
	}
	orttest.Open(t)
	mark := filepath.Join(t.TempDir(), "mark")
	second := compile(t, `#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { fclose(fopen("`+mark+`", "w")); }`)
	_, err := ort.Open(second)
	require.ErrorContains(t, err, "can hold only one")
	require.NoFileExists(t, mark)
}

func compile(t *testing.T, source string) string {
	t.Helper()
	folder := t.TempDir()
	c, library := filepath.Join(folder, "a.c"), filepath.Join(folder, "liba.so")
	require.NoError(t, os.WriteFile(c, []byte(source), 0o600))
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, c).CombinedOutput()
	require.NoError(t, err, string(out))
	return library
}

func TestTogetherWithTheModule(t *testing.T) {
	orttest.NoLeaks(t)
	library := orttest.Library(t)
	path := write(t, affine().model())
	run := func() {
		in, err := onnx.NewTensor(onnx.NewShape(1, 4), []float32{1, 2, 3, 4})
		require.NoError(t, err)
		defer func() { require.NoError(t, in.Destroy()) }()
		out, err := onnx.NewEmptyTensor[float32](onnx.NewShape(1, 4))
		require.NoError(t, err)
		defer func() { require.NoError(t, out.Destroy()) }()
		s, err := onnx.NewAdvancedSession(path, []string{"x"}, []string{"y"}, []onnx.Value{in}, []onnx.Value{out}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Destroy()) }()
		require.NoError(t, s.Run())
		require.Equal(t, []float32{3, 5, 7, 9}, out.GetData())
	}
	r, err := ort.Open(library)
	require.NoError(t, err)
	run()
	require.NoError(t, r.Close())

	// onnxruntime_go first: closing our runtime does not close its environment.
	onnx.SetSharedLibraryPath(library)
	require.NoError(t, onnx.InitializeEnvironment())
	r, err = ort.Open(library)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.True(t, onnx.IsInitialized())
	run()
	require.NoError(t, onnx.DestroyEnvironment())
}
