package ort

import (
	"errors"
	"fmt"
)

var (
	// ErrNoRuntime is returned when there is no usable ONNX Runtime library.
	ErrNoRuntime = errors.New("no ONNX Runtime")
	// ErrNoCUDA is returned by NewDevice without a usable GPU.
	ErrNoCUDA = errors.New("no CUDA here")
	// ErrDeviceLost is returned when the CUDA context is lost: the device does not work until the process restarts.
	ErrDeviceLost = errors.New("the CUDA context is lost")
	// ErrOutOfMemory is returned when the device, or the host for pinned buffers, has no memory left. The device stays usable.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrClosed is returned by a closed handle.
	ErrClosed = errors.New("closed")
	// ErrTerminated is returned by a run that RunOptions.Terminate stopped.
	ErrTerminated = errors.New("the run was terminated")
)

// Error is an error of ONNX Runtime or CUDA. It matches ErrOutOfMemory, ErrDeviceLost and ErrTerminated under errors.Is.
type Error struct {
	Op      string // the attempted operation
	Code    int    // OrtErrorCode, or cudaError_t where CUDA is set
	CUDA    bool
	Message string
	kind    error
}

// Error names the operation, the code and the message.
func (e *Error) Error() string {
	source := "ONNX Runtime"
	if e.CUDA {
		source = "CUDA"
	}
	if e.kind != nil {
		return fmt.Sprintf("%s: %v: %s error %d: %s", e.Op, e.kind, source, e.Code, e.Message)
	}
	return fmt.Sprintf("%s: %s error %d: %s", e.Op, source, e.Code, e.Message)
}

// Unwrap returns the matching sentinel, or nil.
func (e *Error) Unwrap() error { return e.kind }

func closedError(what string) error { return fmt.Errorf("%s: %w", what, ErrClosed) }
