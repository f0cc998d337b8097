package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"
)

// cudaStreamBeginCapture stands before the function of the CUDA runtime for all libraries of the process: a program's own symbols come
// first.
// ONNX Runtime 1.30 captures in global mode, in which an allocation, a copy or a new module of any thread ends the capture: not those of
// this package, see tl_cuda_thread, but those of threads that its sessions, cuBLAS and cuDNN start. A thread's mode allows them.
//
//export cudaStreamBeginCapture
func cudaStreamBeginCapture(stream unsafe.Pointer, mode C.int) C.int {
	return C.tl_cuda_begin_capture(stream, mode)
}

const nvrtcLibrary = "libnvrtc.so.13"

// cudaLibraries returns the dependencies of the CUDA provider of ONNX Runtime 1.30 (CUDA 13), in loading order. cuDNN loads its parts
// from its own folder when it needs them.
func cudaLibraries() []string {
	return []string{
		"libcudart.so.13", nvrtcLibrary, "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcufft.so.12", "libcudnn.so.9",
	}
}

// cudaRequired returns the libraries without which the provider does not load.
func cudaRequired() []string {
	return []string{"libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10"}
}

// cudaLibrary is the CUDA runtime. The first CUDA device loads it, and it stays loaded.
type cudaLibrary struct {
	table *C.tl_cuda
	err   error // of the first attempt; there is no second one
}

// loadCUDA loads the CUDA libraries in ONNX Runtime's folder, else the system's. The provider then finds them in the process by
// name, independently of the loader's path. The caller holds lib.mu.
func (lib *library) loadCUDA() (*C.tl_cuda, error) {
	c := &lib.cuda
	if c.table != nil || c.err != nil {
		return c.table, c.err
	}
	c.err = func() error {
		driver, err := openLibrary("libcuda.so.1")
		if err != nil {
			return fmt.Errorf("%w: the NVIDIA driver is missing: %w", ErrNoCUDA, err)
		}
		var missing []string
		var runtime unsafe.Pointer
		for _, name := range cudaLibraries() {
			handle, err := OpenCUDA(filepath.Dir(lib.path), name)
			if err != nil && slices.Contains(cudaRequired(), name) {
				missing = append(missing, err.Error())
			}
			if name == "libcudart.so.13" {
				runtime = handle
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%w: CUDA 13 libraries are missing (%s): `make runtime-cuda` fetches them", ErrNoCUDA, strings.Join(missing, "; "))
		}
		table := (*C.tl_cuda)(C.calloc(1, C.sizeof_tl_cuda))
		if name := C.tl_cuda_bind(table, runtime, driver); name != nil {
			C.free(unsafe.Pointer(table))
			return fmt.Errorf("%w: libcudart.so.13 has no %s", ErrNoCUDA, C.GoString(name))
		}
		c.table = table
		return nil
	}()
	return c.table, c.err
}

// OpenCUDA returns the handle of a CUDA library from a folder, the loader's path or the folders of CUDA's own packages.
func OpenCUDA(folder, name string) (unsafe.Pointer, error) {
	places := []string{filepath.Join(folder, name), name}
	for _, pattern := range []string{"/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64"} {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are well formed
		places = append(places, found...)
	}
	var errs []error
	for _, place := range places {
		if name == nvrtcLibrary && filepath.IsAbs(place) { // NVRTC searches its builtins by name only, and then finds them in the process
			builtins, _ := filepath.Glob(filepath.Join(filepath.Dir(place), "libnvrtc-builtins.so.13.*"))
			for _, file := range builtins {
				_, _ = openLibrary(file) // without them NVRTC reports an error
			}
		}
		handle, err := openLibrary(place)
		if err == nil {
			return handle, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[1] // of the loader's path
}

// cudaError converts a code into an error, nil for success. Device.result checks whether the context is lost.
func cudaError(c *C.tl_cuda, op string, code C.int) error {
	if code == 0 {
		return nil
	}
	e := &Error{
		Op: op, Code: int(code), CUDA: true,
		Message: C.GoString(C.tl_cuda_error_name(c, code)) + ": " + C.GoString(C.tl_cuda_error_text(c, code)),
	}
	if code == cudaOutOfMemory {
		e.kind = ErrOutOfMemory
	}
	return e
}

// cudaError_t values.
const (
	cudaOutOfMemory = 2
	cudaNotReady    = 600
)

// asLost marks an error that lost the device.
func asLost(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.kind = ErrDeviceLost
		return err
	}
	return fmt.Errorf("%w: %w", ErrDeviceLost, err)
}
