// Package ort is the only access to ONNX Runtime and to the GPU's memory: sessions, device tensors, bindings of inputs and outputs, run
// options, CUDA graphs, pinned host buffers, and copies on a stream of its own. The CPU has the same calls.
//
// It loads the same library as onnxruntime_go and shares its environment. All other calls go through a small C bridge of its own.
//
// Ownership: the caller pairs every New, Open, Malloc and HostAlloc with a Close. Handles may be closed in any order; one that another
// handle needs (the session of a binding, the memory of a tensor) is kept until that handle is closed too. [Live] counts open handles.
//
// Concurrency: a Binding, a RunOptions that is changed and the contents of memory belong to one goroutine at a time; all else is safe for
// concurrent use. A session with CUDA graphs must run on one OS thread (runtime.LockOSThread): ONNX Runtime keeps captured graphs per
// thread.
//
// The package has no model-specific code.
package ort

/*
#cgo CFLAGS: -I${SRCDIR}/include -O2 -Wall
#cgo LDFLAGS: -ldl
#include "bridge.h"
#cgo nocallback tl_copy
#cgo noescape tl_copy
#cgo nocallback tl_copy_in
#cgo noescape tl_copy_in
#cgo nocallback tl_copy_out
#cgo noescape tl_copy_out
#cgo nocallback tl_set
#cgo noescape tl_set
#cgo nocallback tl_cuda_sync
#cgo noescape tl_cuda_sync
*/
import "C"
