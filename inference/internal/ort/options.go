package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// SessionOptions are what a session is made with. The zero value is good for the CPU, and for CUDA without graphs.
type SessionOptions struct {
	// CUDAGraph lets runs be captured and replayed; which one a run takes is told by RunOptions.SetGraph. Ignored on the CPU.
	CUDAGraph bool
	// Threads that one operator may use on the CPU; 0 lets ONNX Runtime take one per core.
	Threads int
	// MemoryLimit bounds the arena of the session on the GPU, in bytes; 0 means no bound.
	MemoryLimit int64
	// ConvSearch is cudnn_conv_algo_search: EXHAUSTIVE, HEURISTIC or DEFAULT. Empty means HEURISTIC: ONNX Runtime's own choice, EXHAUSTIVE,
	// tries every algorithm at the first run of each shape.
	ConvSearch string
	// Prepacked lets sessions over the same weights share what the CPU's kernels rearrange; nil for none.
	Prepacked *Prepacked
	// NoMemoryPattern leaves out the planning of buffers per input shape: for graphs whose shapes change in every run.
	NoMemoryPattern bool
	// NoArena lets the CPU give memory back after each run instead of keeping it.
	NoArena bool
	// Optimization of the graph when it is loaded.
	Optimization Optimization
	// Entries are further session config entries of ONNX Runtime (onnxruntime_session_options_config_keys.h).
	Entries map[string]string
	// CUDA are further options of the CUDA provider. They win over those that follow from the fields above.
	CUDA map[string]string
}

// Optimization is how far a graph is rewritten when it is loaded.
type Optimization int

// The levels of optimisation. The zero value is all of it.
const (
	OptimizeAll Optimization = iota
	OptimizeExtended
	OptimizeBasic
	OptimizeNothing
)

// Prepacked holds weights that sessions share. It must stay open as long as they are; closing it early is put off until then.
type Prepacked struct {
	life    life
	runtime *Runtime
	handle  *C.OrtPrepackedWeightsContainer
}

// NewPrepacked makes an empty container.
func (r *Runtime) NewPrepacked() (*Prepacked, error) {
	if !r.life.use() {
		return nil, closedError("runtime")
	}
	p := &Prepacked{runtime: r}
	if err := r.lib.check("make a container for weights", C.tl_prepacked(r.lib.api, &p.handle)); err != nil {
		r.life.drop()
		return nil, err
	}
	p.life.born(kindPrepacked, func() {
		C.tl_prepacked_free(r.lib.api, p.handle)
		r.life.drop()
	})
	return p, nil
}

// Close gives the container back.
func (p *Prepacked) Close() error {
	p.life.end()
	return nil
}

// native makes ONNX Runtime's options for a device. The caller frees them.
func (o SessionOptions) native(d *Device) (_ *C.OrtSessionOptions, err error) {
	if o.Threads < 0 || o.MemoryLimit < 0 {
		return nil, fmt.Errorf("session options: Threads and MemoryLimit must be 0 or more, are %d and %d", o.Threads, o.MemoryLimit)
	}
	level, ok := map[Optimization]C.int{
		OptimizeAll:      C.ORT_ENABLE_ALL,
		OptimizeExtended: C.ORT_ENABLE_EXTENDED,
		OptimizeBasic:    C.ORT_ENABLE_BASIC,
		OptimizeNothing:  C.ORT_DISABLE_ALL,
	}[o.Optimization]
	if !ok {
		return nil, fmt.Errorf("session options: Optimization must be 0 to %d, is %d", OptimizeNothing, o.Optimization)
	}
	lib := d.runtime.lib
	flag := func(on bool) C.int {
		if on {
			return 1
		}
		return 0
	}
	var s *C.OrtSessionOptions
	status := C.tl_options(lib.api, level, C.int(o.Threads), flag(!o.NoMemoryPattern), flag(!o.NoArena), &s)
	if err := lib.check("session options", status); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			C.tl_options_free(lib.api, s)
		}
	}()
	for _, key := range slices.Sorted(maps.Keys(o.Entries)) {
		k, v := C.CString(key), C.CString(o.Entries[key])
		err := lib.check(fmt.Sprintf("session option %s=%s", key, o.Entries[key]), C.tl_options_entry(lib.api, s, k, v))
		freeString(k)
		freeString(v)
		if err != nil {
			return nil, err
		}
	}
	if d.kind == CUDA {
		if err := o.cuda(d, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (o SessionOptions) cuda(d *Device, s *C.OrtSessionOptions) error {
	lib := d.runtime.lib
	var c *C.OrtCUDAProviderOptionsV2
	if err := lib.check("make CUDA options", C.tl_cuda_options(lib.api, &c)); err != nil {
		return fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	defer C.tl_cuda_options_free(lib.api, c)
	want := map[string]string{
		"device_id":              strconv.Itoa(d.index),
		"arena_extend_strategy":  "kSameAsRequested",
		"cudnn_conv_algo_search": "HEURISTIC",
		"enable_cuda_graph":      "0",
	}
	if o.CUDAGraph {
		want["enable_cuda_graph"] = "1"
	}
	if o.ConvSearch != "" {
		want["cudnn_conv_algo_search"] = o.ConvSearch
	}
	if o.MemoryLimit > 0 {
		want["gpu_mem_limit"] = strconv.FormatInt(o.MemoryLimit, 10)
	}
	maps.Copy(want, o.CUDA)
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
		if strings.Contains(err.Error(), "Failed to load library") { // the provider is loaded when it is first asked something
			return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
		}
		return err
	}
	// Last, because Update resets what it is not given.
	if err := lib.check("give the session our stream", C.tl_cuda_stream_option(lib.api, c, d.stream)); err != nil {
		return err
	}
	if err := lib.check("append the CUDA provider", C.tl_options_cuda(lib.api, s, c)); err != nil {
		return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
	}
	return nil
}
