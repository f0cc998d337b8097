package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	onnx "github.com/yalue/onnxruntime_go"
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

// native makes onnxruntime_go's options for a device. The caller destroys them.
func (o SessionOptions) native(d *Device) (_ *onnx.SessionOptions, err error) {
	if o.Threads < 0 || o.MemoryLimit < 0 {
		return nil, fmt.Errorf("session options: Threads and MemoryLimit must be 0 or more, are %d and %d", o.Threads, o.MemoryLimit)
	}
	s, err := onnx.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Destroy()
		}
	}()
	levels := map[Optimization]onnx.GraphOptimizationLevel{
		OptimizeAll:      onnx.GraphOptimizationLevelEnableAll,
		OptimizeExtended: onnx.GraphOptimizationLevelEnableExtended,
		OptimizeBasic:    onnx.GraphOptimizationLevelEnableBasic,
		OptimizeNothing:  onnx.GraphOptimizationLevelDisableAll,
	}
	level, ok := levels[o.Optimization]
	if !ok {
		return nil, fmt.Errorf("session options: Optimization must be 0 to %d, is %d", OptimizeNothing, o.Optimization)
	}
	err = errors.Join(s.SetGraphOptimizationLevel(level), s.SetIntraOpNumThreads(o.Threads), s.SetInterOpNumThreads(1),
		s.SetMemPattern(!o.NoMemoryPattern), s.SetCpuMemArena(!o.NoArena))
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(o.Entries)) {
		if err := s.AddSessionConfigEntry(key, o.Entries[key]); err != nil {
			return nil, fmt.Errorf("session option %s=%s: %w", key, o.Entries[key], err)
		}
	}
	if d.kind == CUDA {
		if err := o.cuda(d, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (o SessionOptions) cuda(d *Device, s *onnx.SessionOptions) error {
	c, err := onnx.NewCUDAProviderOptions()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	defer func() { _ = c.Destroy() }()
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
	if err := c.Update(want); err != nil {
		if strings.Contains(err.Error(), "Failed to load library") { // the provider is loaded when it is first asked something
			return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
		}
		return fmt.Errorf("CUDA options: %w", err)
	}
	// Last, because Update resets what it is not given.
	raw := (*C.OrtCUDAProviderOptionsV2)(only(unsafe.Pointer(c)))
	if err := d.runtime.lib.check("give the session our stream", C.tl_cuda_stream_option(d.runtime.lib.api, raw, d.stream)); err != nil {
		return err
	}
	if err := s.AppendExecutionProviderCUDA(c); err != nil {
		return fmt.Errorf("%w: load the CUDA provider: %w", ErrNoCUDA, err)
	}
	return nil
}

// only reads the single pointer that onnxruntime_go's SessionOptions and CUDAProviderOptions are made of; a test holds that against the
// module.
func only(p unsafe.Pointer) unsafe.Pointer { return *(*unsafe.Pointer)(p) }
