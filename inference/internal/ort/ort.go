// Package ort is the one door to ONNX Runtime and to the GPU's memory: sessions, tensors on the device, input and output binding, run
// options, CUDA graphs, pinned host buffers, and copies on a stream of our own. The CPU offers the same calls, so that code above is one.
//
// It loads the same library as onnxruntime_go and shares its environment. Everything else (sessions and their options, device tensors,
// bindings, run options) is called through a small C bridge of its own.
//
// Who frees what: every New, Open, Malloc and HostAlloc is paired with a Close by the caller. Handles may be closed in any order; what
// another one still needs (the session of a binding, the memory of a tensor) is kept until that one is closed as well. [Live] counts what
// is open.
//
// Threads: a Binding, a RunOptions being changed and the contents of memory belong to one goroutine at a time. Everything else may be
// called from any. A session with CUDA graphs must do all its runs on one OS thread (runtime.LockOSThread): ONNX Runtime keeps captured
// graphs per thread.
//
// This package refuses to decide what to run, and it knows no model.
package ort

/*
#cgo CFLAGS: -I${SRCDIR}/include -O2 -Wall
#cgo LDFLAGS: -ldl
#include "bridge.h"
#cgo nocallback tl_run
#cgo noescape tl_run
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
