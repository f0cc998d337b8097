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

// cudaLibraries are what the CUDA provider of ONNX Runtime 1.30 (CUDA 13) needs, each after those that it needs itself. cuDNN finds
// its parts, which it loads as it needs them, in its own folder.
func cudaLibraries() []string {
	return []string{
		"libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcufft.so.12", "libcudnn.so.9",
	}
}

// cudaRequired are those without which the provider does not load at all.
func cudaRequired() []string {
	return []string{"libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10"}
}

// cudaLibrary is the CUDA runtime, loaded when the first CUDA device is made. It stays loaded.
type cudaLibrary struct {
	table *C.tl_cuda
	err   error // why it is not there; a second try would say the same
}

// loadCUDA loads the CUDA libraries that lie beside ONNX Runtime, else those of the system. The provider then finds them in the process,
// by name, whatever the loader's path is. Needs lib.mu.
func (lib *library) loadCUDA() (*C.tl_cuda, error) {
	c := &lib.cuda
	if c.table != nil || c.err != nil {
		return c.table, c.err
	}
	c.err = func() error {
		driver, err := openLibrary("libcuda.so.1")
		if err != nil {
			return fmt.Errorf("%w: the NVIDIA driver is not there: %w", ErrNoCUDA, err)
		}
		var missing []string
		var runtime unsafe.Pointer
		for _, name := range cudaLibraries() {
			handle, err := openCUDA(filepath.Dir(lib.path), name)
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

// openCUDA looks in a folder, at the loader's places and where CUDA is installed by its own packages.
func openCUDA(folder, name string) (unsafe.Pointer, error) {
	places := []string{filepath.Join(folder, name), name}
	for _, pattern := range []string{"/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64"} {
		found, _ := filepath.Glob(filepath.Join(pattern, name)) // the patterns are well formed
		places = append(places, found...)
	}
	var errs []error
	for _, place := range places {
		handle, err := openLibrary(place)
		if err == nil {
			return handle, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[min(1, len(errs)-1)] // what the loader itself said
}

// cudaError turns a code into an error, nil for success. Whether it means that the context is dead is the device's to find out.
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

// The cudaError_t values that are told apart.
const (
	cudaOutOfMemory = 2
	cudaNotReady    = 600
)

// asLost marks an error as the end of the device.
func asLost(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.kind = ErrDeviceLost
		return err
	}
	return fmt.Errorf("%w: %w", ErrDeviceLost, err)
}
