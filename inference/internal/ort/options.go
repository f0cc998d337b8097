package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"touchline/models"
)

// SessionOptions are the settings of a session. The zero value suits the CPU, and CUDA without graphs.
type SessionOptions struct {
	// CUDAGraph allows runs to be captured and replayed; RunOptions.SetGraph selects the graph of a run. Ignored on the CPU.
	CUDAGraph bool
	// Threads is the number of threads of one operator on the CPU; 0 means one per core.
	Threads int
	// NoMemoryPattern turns off the planning of buffers per input shape, for graphs whose shapes change with every run.
	NoMemoryPattern bool

	// Arena keeps the memory of a run for the next ones on the CPU, for runs that need tens of megabytes: malloc keeps more of those. CUDA
	// has it always.
	Arena bool

	// Limit is the maximum size of the session's arena on CUDA, its weights included, except Placed ones; 0 is none. Beyond it runs fail with
	// ErrOutOfMemory.
	Limit int64

	// NHWC runs convolutions with the channels last on CUDA, which is faster for long one-dimensional ones.
	NHWC bool

	// StrictNorm makes norms with a residual in float16 compute in float32 on CUDA. Without it they square in float16.
	StrictNorm bool

	// NoXQA decodes attention with cuDNN instead of ONNX Runtime's XQA kernels on CUDA: fewer launches, which dominate a step of a small
	// model. The environment's ORT_ENABLE_XQA overrides it. Only the GPU of the process's first session without NoXQA has XQA.
	NoXQA bool

	// Flash keeps CUDA's attention off cuDNN, which plans each new length of a prompt, a quarter of a second to two on an H200: 11 to 30 s
	// of a start. Instead a prompt of 414 tokens takes 0.9 ms longer.
	Flash bool

	// Hosted are initializers by name that stay in host memory. A GPU reads only the rows that a run needs.
	Hosted map[string]Hosted

	// Placed are initializers by name whose memory the caller owns, on the session's processor; the session holds them until it is
	// freed. ONNX Runtime ignores unknown names and checks neither type nor shape. It does not read their values from the data
	// file, which must still exist but may be empty; only values that it folds or fuses while it optimizes the graph come from there.
	Placed map[string]*Tensor

	cuda map[string]string // more options of the CUDA provider, for tests
}

// Hosted is the value of an initializer.
type Hosted struct {
	Type  models.Type
	Shape []int64
	Bytes []byte // a copy is made
}

// native returns ONNX Runtime's options for a device. The caller frees them.
func (o SessionOptions) native(d *Device) (*C.OrtSessionOptions, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("session options: Threads must be 0 or more, is %d", o.Threads)
	}
	lib := d.runtime.lib
	pattern := C.int(1)
	if o.NoMemoryPattern {
		pattern = 0
	}
	// An arena never gives memory back, and on the CPU malloc is as fast.
	arena := C.int(1)
	if d.kind == CPU && !o.Arena {
		arena = 0
	}
	var s *C.OrtSessionOptions
	if err := lib.check("session options", C.tl_options(lib.api, C.int(o.Threads), pattern, arena, &s)); err != nil {
		return nil, err
	}
	if d.kind == CUDA {
		if err := o.addCUDA(d, s); err != nil {
			C.tl_options_free(lib.api, s)
			return nil, err
		}
	}
	return s, nil
}

func (o SessionOptions) addCUDA(d *Device, s *C.OrtSessionOptions) error {
	lib := d.runtime.lib
	var c *C.OrtCUDAProviderOptionsV2
	if err := lib.check("make CUDA options", C.tl_cuda_options(lib.api, &c)); err != nil {
		return fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	defer C.tl_cuda_options_free(lib.api, c)
	want := map[string]string{
		"device_id":             strconv.Itoa(d.index),
		"arena_extend_strategy": "kSameAsRequested",
		// The default, EXHAUSTIVE, tries every algorithm at the first run of each shape.
		"cudnn_conv_algo_search": "HEURISTIC",
		// The default rounds float32 to 10 bits in matrix products: the pitch of a voice would be off by 0.05 Hz.
		"use_tf32":          "0",
		"enable_cuda_graph": "0",
	}
	if o.CUDAGraph {
		want["enable_cuda_graph"] = "1"
	}
	if o.Limit > 0 {
		want["gpu_mem_limit"] = strconv.FormatInt(o.Limit, 10)
	}
	if o.NHWC {
		want["prefer_nhwc"] = "1"
	}
	if o.Flash {
		want["sdpa_kernel"] = "3" // flash, or memory-efficient attention on older cards
	}
	if o.StrictNorm {
		want["enable_skip_layer_norm_strict_mode"] = "1"
	}
	maps.Copy(want, o.cuda)
	var keys, values []*C.char
	for k, v := range want {
		keys, values = append(keys, C.CString(k)), append(values, C.CString(v))
	}
	defer func() {
		for i := range keys {
			freeString(keys[i])
			freeString(values[i])
		}
	}()
	if err := lib.check("CUDA options", C.tl_cuda_options_update(lib.api, c, &keys[0], &values[0], C.size_t(len(keys)))); err != nil {
		if strings.Contains(err.Error(), "Failed to load library") { // the first call loads the provider
			return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
		}
		return err
	}
	// Last, because Update resets all options that are not passed to it.
	if err := lib.check("set the session's stream", C.tl_cuda_stream_option(lib.api, c, d.stream)); err != nil {
		return err
	}
	if err := lib.check("append the CUDA provider", C.tl_options_cuda(lib.api, s, c)); err != nil {
		return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
	}
	return nil
}

// envXQA is the environment variable by which ONNX Runtime chooses the attention kernels while it
// creates a session.
const envXQA = "ORT_ENABLE_XQA"

// attention sets the attention kernels of the session that is created on a GPU until done is called. One session is created at a time in
// the process: with five at once beside running answers, one of some 50 starts ended in CUDA's driver (a null pointer; ONNX Runtime 1.30
// and driver 580 on an H200; the cause is not known). XQA reserves shared memory at its first run in the process, on the GPU of that run:
// on others it fails with cudaErrorInvalidValue (seen on two H200), so that they have none.
func (l *library) attention(gpu int, o SessionOptions) (done func()) {
	l.making.Lock()
	if !o.NoXQA && (l.xqa.CompareAndSwap(0, int64(gpu)+1) || l.xqa.Load() == int64(gpu)+1) {
		return l.making.Unlock
	}
	if _, set := os.LookupEnv(envXQA); set {
		return l.making.Unlock
	}
	_ = os.Setenv(envXQA, "0") // the name is valid
	return func() {
		_ = os.Unsetenv(envXQA)
		l.making.Unlock()
	}
}
