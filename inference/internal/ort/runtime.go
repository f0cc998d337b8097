package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	onnx "github.com/yalue/onnxruntime_go"
)

// MinVersion is the oldest ONNX Runtime that is accepted: the graphs are tested with it.
const MinVersion = "1.30"

// LogLevel is what ONNX Runtime writes to standard error.
type LogLevel int

// ONNX Runtime's levels. The zero value is quiet: what it logs as an error comes back as one anyhow.
const (
	LogOff LogLevel = iota
	LogErrors
	LogWarnings
	LogInfo
	LogVerbose
)

// Options are the settings of the one environment of the process; those of the first Open hold.
type Options struct {
	Log LogLevel
}

// library is what all Runtimes of the process share: ONNX Runtime keeps one environment per process.
type library struct {
	mu      sync.Mutex
	opened  int
	path    string // once loaded a library stays: unloading code that has started threads is not safe
	version string
	api     *C.OrtApi
	env     *C.OrtEnv
	joined  bool // onnxruntime_go was in use before us, and stays so
	cuda    cudaLibrary
}

var process library //nolint:gochecknoglobals // ONNX Runtime has one environment per process

// Runtime is a loaded ONNX Runtime. Several may be open at a time, over the same library.
type Runtime struct {
	life life
	lib  *library
	path string
	cpu  *C.OrtMemoryInfo
}

// Open loads a library file, as Locate gives it, and sets up its environment, or joins the one that is there. A second
// library beside a loaded one is refused. ONNX Runtime reads ORT_DISABLE_TELEMETRY when its environment is made: a
// program sets that at its start, while it has one thread.
func Open(file string, o Options) (*Runtime, error) {
	if o.Log < LogOff || o.Log > LogVerbose {
		return nil, fmt.Errorf("open ONNX Runtime: log level must be 0 to %d, is %d", LogVerbose, o.Log)
	}
	path, err := Locate(Search{Library: file})
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
		if err := lib.start(o); err != nil {
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

// Close gives the runtime back. The environment goes with the last one and its devices and sessions.
func (r *Runtime) Close() error {
	r.life.end()
	return nil
}

// Version is that of the library, such as 1.30.0.
func (r *Runtime) Version() string { return r.lib.version }

// Path is the library file.
func (r *Runtime) Path() string { return r.path }

// HasCUDA says whether the files that CUDA devices need lie beside the library. It does not say that there is a device.
func (r *Runtime) HasCUDA() bool { return r.missingProvider() == "" }

// missingProvider names the first provider file that is not there.
func (r *Runtime) missingProvider() string {
	for _, name := range []string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"} {
		path := filepath.Join(filepath.Dir(r.path), name)
		if _, err := os.Stat(path); err != nil {
			return path
		}
	}
	return ""
}

// load needs lib.mu.
func (lib *library) load(path string) error {
	if lib.path == path {
		return nil
	}
	// Before it is loaded, since loading runs its constructors.
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
	if !atLeast(version, MinVersion) {
		return fmt.Errorf("%w: expected version %s or newer, %s is %s: `make runtime` or `make runtime-cuda` fetches one",
			ErrNoRuntime, MinVersion, path, version)
	}
	api := C.tl_api(base, C.ORT_API_VERSION)
	if api == nil {
		return fmt.Errorf("%w: %s (%s) does not offer API version %d", ErrNoRuntime, path, version, int(C.ORT_API_VERSION))
	}
	lib.path, lib.version, lib.api = path, version, api
	return nil
}

// start makes the environment, through onnxruntime_go so that it is one for both. Needs lib.mu.
func (lib *library) start(o Options) error {
	levels := []struct {
		level  C.OrtLoggingLevel
		option onnx.EnvironmentOption
	}{
		LogOff:      {C.ORT_LOGGING_LEVEL_FATAL, onnx.WithLogLevelFatal()},
		LogErrors:   {C.ORT_LOGGING_LEVEL_ERROR, onnx.WithLogLevelError()},
		LogWarnings: {C.ORT_LOGGING_LEVEL_WARNING, onnx.WithLogLevelWarning()},
		LogInfo:     {C.ORT_LOGGING_LEVEL_INFO, onnx.WithLogLevelInfo()},
		LogVerbose:  {C.ORT_LOGGING_LEVEL_VERBOSE, onnx.WithLogLevelVerbose()},
	}
	level := levels[o.Log]
	lib.joined = onnx.IsInitialized()
	// Ours first: the log level that the environment is made with is the one that it keeps for messages before any option is read.
	var env *C.OrtEnv
	if err := lib.check("start ONNX Runtime", C.tl_env(lib.api, C.int(level.level), &env)); err != nil {
		return err
	}
	if !lib.joined {
		onnx.SetSharedLibraryPath(lib.path)
		if err := onnx.InitializeEnvironment(level.option); err != nil {
			C.tl_env_free(lib.api, env)
			return fmt.Errorf("start ONNX Runtime: %w", err)
		}
	}
	lib.env = env
	return nil
}

// stop undoes start when nobody has the library open. Needs lib.mu.
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

// check turns a status into an error and frees it.
func (lib *library) check(op string, s *C.OrtStatus) error {
	if s == nil {
		return nil
	}
	e := &Error{Op: op, Code: int(C.tl_status_code(lib.api, s)), Message: short(C.GoString(C.tl_status_text(lib.api, s)))}
	C.tl_status_free(lib.api, s)
	e.kind = kindOf(e.Message)
	return e
}

// short leaves out the signatures of C++ functions before what CUDA and its libraries said.
func short(message string) string {
	for _, library := range []string{"CUDA", "CUBLAS", "CUDNN", "CUFFT"} {
		if i := strings.Index(message, library+" failure "); i >= 0 {
			return strings.TrimSpace(message[i:])
		}
	}
	return message
}

// kindOf reads from ONNX Runtime's words what it has no code for. The texts are those of its arena allocator (bfc_arena.cc), of the CUDA
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

// openLibrary is dlopen. Libraries that are loaded later find this one by its name, wherever it lies.
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

// atLeast compares the first two numbers of versions. What is not a version is too old.
func atLeast(version, least string) bool {
	a, b := twoNumbers(version), twoNumbers(least)
	return a[0] > b[0] || a[0] == b[0] && a[1] >= b[1]
}

func twoNumbers(version string) (n [2]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		if i < 2 {
			n[i], _ = strconv.Atoi(part)
		}
	}
	return n
}
