package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	onnx "github.com/yalue/onnxruntime_go"
)

// minVersion is the oldest supported ONNX Runtime, the version that the graphs are tested with.
const minVersion = "1.30"

// library is shared by all Runtimes: ONNX Runtime keeps one environment per process.
type library struct {
	mu      sync.Mutex
	opened  int
	path    string // a library stays loaded: unloading code that has started threads is not safe
	version string
	api     *C.OrtApi
	env     *C.OrtEnv
	joined  bool // onnxruntime_go owns the environment
	cuda    cudaLibrary
	gpus    map[int]*gpu // open devices by GPU

	making sync.Mutex   // of sessions on a GPU, whose attention the environment chooses
	xqa    atomic.Int64 // 1 more than the GPU that has XQA
}

var process library //nolint:gochecknoglobals // ONNX Runtime has one environment per process

// Runtime is a loaded ONNX Runtime. Several may be open at a time on the same library.
type Runtime struct {
	life life
	lib  *library
	path string
	cpu  *C.OrtMemoryInfo
}

// Open loads the library that Locate finds and creates the environment of the process, or joins the existing one. It refuses a second,
// different library. ONNX Runtime reads ORT_DISABLE_TELEMETRY when it creates its environment; a program must set it at its start, while
// it has one thread.
func Open(library string) (*Runtime, error) {
	path, err := Locate(library)
	if err != nil {
		return nil, err
	}
	lib := &process
	lib.mu.Lock()
	defer lib.mu.Unlock()
	if err := lib.load(path); err != nil {
		return nil, err
	}
	if lib.opened == 0 {
		if err := lib.start(); err != nil {
			return nil, err
		}
	}
	r := &Runtime{lib: lib, path: path}
	if err := lib.check("describe the CPU's memory", C.tl_memory_info(lib.api, 0, 0, &r.cpu)); err != nil {
		lib.stop()
		return nil, err
	}
	lib.opened++
	r.life.born(kindRuntime, r.free)
	return r, nil
}

func (r *Runtime) free() {
	r.lib.mu.Lock()
	defer r.lib.mu.Unlock()
	C.tl_memory_info_free(r.lib.api, r.cpu)
	r.lib.opened--
	r.lib.stop()
}

// Close frees the runtime. The environment ends with the last runtime and its devices and sessions.
func (r *Runtime) Close() error {
	r.life.end()
	return nil
}

// HasCUDA reports whether the library's folder has the files for CUDA devices. It does not look for a device.
func (r *Runtime) HasCUDA() bool { return r.missingProvider() == "" }

// missingProvider returns the path of the first missing provider file, or "".
func (r *Runtime) missingProvider() string {
	for _, name := range []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"} {
		path := filepath.Join(filepath.Dir(r.path), name)
		if _, err := os.Stat(path); err != nil {
			return path
		}
	}
	return ""
}

// load loads the library. The caller holds lib.mu.
func (lib *library) load(path string) error {
	if lib.path == path {
		return nil
	}
	// Checked before loading, which runs the library's constructors.
	if lib.path != "" {
		return fmt.Errorf("open %s: this process has loaded %s already, and can hold only one ONNX Runtime", path, lib.path)
	}
	handle, err := openLibrary(path)
	if err != nil {
		return fmt.Errorf("%w: load %s: %w", ErrNoRuntime, path, err)
	}
	base := symbol(handle, "OrtGetApiBase")
	if base == nil {
		return fmt.Errorf("%w: %s is not ONNX Runtime: it has no OrtGetApiBase", ErrNoRuntime, path)
	}
	version := C.GoString(C.tl_version(base))
	if !atLeast(version, minVersion) {
		return fmt.Errorf("%w: expected version %s or newer, %s is %s: `make runtime` or `make runtime-cuda` fetches one",
			ErrNoRuntime, minVersion, path, version)
	}
	api := C.tl_api(base, C.ORT_API_VERSION)
	if api == nil {
		return fmt.Errorf("%w: %s (%s) does not offer API version %d", ErrNoRuntime, path, version, int(C.ORT_API_VERSION))
	}
	lib.path, lib.version, lib.api = path, version, api
	return nil
}

// start creates the environment, shared with onnxruntime_go. Its log is off: errors are returned. The caller holds lib.mu.
func (lib *library) start() error {
	lib.joined = onnx.IsInitialized()
	// Our environment comes first, because the first one sets the log level.
	var env *C.OrtEnv
	if err := lib.check("start ONNX Runtime", C.tl_env(lib.api, &env)); err != nil {
		return err
	}
	if !lib.joined {
		onnx.SetSharedLibraryPath(lib.path)
		if err := onnx.InitializeEnvironment(onnx.WithLogLevelFatal()); err != nil {
			C.tl_env_free(lib.api, env)
			return fmt.Errorf("start ONNX Runtime: %w", err)
		}
	}
	lib.env = env
	return nil
}

// stop undoes start when no Runtime is open. The caller holds lib.mu.
func (lib *library) stop() {
	if lib.opened > 0 || lib.env == nil {
		return
	}
	if !lib.joined && onnx.IsInitialized() {
		_ = onnx.DestroyEnvironment() // fails only if it is not initialised
	}
	C.tl_env_free(lib.api, lib.env)
	lib.env = nil
}

// check converts a status into an error and frees it.
func (lib *library) check(op string, s *C.OrtStatus) error {
	if s == nil {
		return nil
	}
	e := &Error{Op: op, Code: int(C.tl_status_code(lib.api, s)), Message: short(C.GoString(C.tl_status_text(lib.api, s)))}
	C.tl_status_free(lib.api, s)
	e.kind = kindOf(e.Message)
	return e
}

// short removes C++ function signatures from messages of CUDA and its libraries.
func short(message string) string {
	for _, library := range []string{"CUDA", "CUBLAS", "CUDNN", "CUFFT"} {
		if i := strings.Index(message, library+" failure "); i >= 0 {
			return strings.TrimSpace(message[i:])
		}
	}
	return message
}

// kindOf recognises errors that ONNX Runtime has no code for, by the messages of its arena allocator (bfc_arena.cc), of the CUDA
// provider's checks (cuda_call.cc) and of the executor.
func kindOf(message string) error {
	for _, t := range []struct {
		text string
		kind error
	}{
		{"Failed to allocate memory", ErrOutOfMemory},
		{"is smaller than requested bytes", ErrOutOfMemory},
		{"CUDA failure 2:", ErrOutOfMemory},
		{"out of memory", ErrOutOfMemory},
		{"std::bad_alloc", ErrOutOfMemory},
		{"CUBLAS_STATUS_ALLOC_FAILED", ErrOutOfMemory},
		{"terminate flag", ErrTerminated},
	} {
		if strings.Contains(message, t.text) {
			return t.kind
		}
	}
	return nil
}

// openLibrary is dlopen. Libraries that are loaded later find this one by its name, in any folder.
func openLibrary(path string) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer freeString(name)
	var why *C.char
	handle := C.tl_open(name, &why)
	if handle == nil {
		return nil, fmt.Errorf("%s", C.GoString(why))
	}
	return handle, nil
}

func symbol(handle unsafe.Pointer, name string) unsafe.Pointer {
	s := C.CString(name)
	defer freeString(s)
	return C.tl_symbol(handle, s)
}

func freeString(s *C.char) { C.tl_free(C.uintptr_t(uintptr(unsafe.Pointer(s)))) }

// atLeast compares the first two numbers of versions. Text that is not a version counts as 0.0.
func atLeast(version, least string) bool {
	a, b := twoNumbers(version), twoNumbers(least)
	return slices.Compare(a[:], b[:]) >= 0
}

func twoNumbers(version string) (n [2]int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &n[0], &n[1])
	return n
}
