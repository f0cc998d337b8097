package ort

// #include "bridge.h"
import "C"

import "strconv"

// NoGraph is the graph number of runs that are neither captured nor replayed.
const NoGraph = -1

// RunOptions are the settings of a run. Keep them between runs: creating them is expensive.
type RunOptions struct {
	life    life
	runtime *Runtime
	handle  *C.OrtRunOptions
}

// NewRunOptions returns the default options.
func (r *Runtime) NewRunOptions() (*RunOptions, error) {
	if !r.life.use() {
		return nil, closedError("runtime")
	}
	o := &RunOptions{runtime: r}
	if err := r.lib.check("make run options", C.tl_run_options(r.lib.api, &o.handle)); err != nil {
		r.life.drop()
		return nil, err
	}
	o.life.born(kindRunOptions, func() {
		C.tl_run_options_free(r.lib.api, o.handle)
		r.life.drop()
	})
	return o, nil
}

// Close frees the options.
func (o *RunOptions) Close() error {
	o.life.end()
	return nil
}

// Set writes an entry of ONNX Runtime's run config (onnxruntime_run_options_config_keys.h).
func (o *RunOptions) Set(key, value string) error {
	if !o.life.use() {
		return closedError("run options")
	}
	defer o.life.drop()
	k, v := C.CString(key), C.CString(value)
	defer freeString(k)
	defer freeString(v)
	return o.runtime.lib.check("set run option "+key, C.tl_run_options_set(o.runtime.lib.api, o.handle, k, v))
}

// SetGraph sets the CUDA graph of a run: the first runs capture it, later ones replay it. NoGraph, or a session without CUDAGraph, uses
// none. During a capture no other goroutine may create a session or run a shape for the first time: that may end the capture.
func (o *RunOptions) SetGraph(id int) error { return o.Set("gpu_graph_id", strconv.Itoa(id)) }

// SetAsync makes runs return once their work is queued on the stream; outputs are complete after Synchronize. It has no effect on the CPU.
func (o *RunOptions) SetAsync(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return o.Set("disable_synchronize_execution_providers", value)
}

// Terminate ends the running and all later runs with these options with ErrTerminated, until Resume. It is safe for concurrent use. A
// replayed CUDA graph cannot be stopped.
func (o *RunOptions) Terminate() error { return o.terminate(1) }

// Resume undoes Terminate.
func (o *RunOptions) Resume() error { return o.terminate(0) }

func (o *RunOptions) terminate(on C.int) error {
	if !o.life.use() {
		return closedError("run options")
	}
	defer o.life.drop()
	return o.runtime.lib.check("terminate runs", C.tl_run_options_terminate(o.runtime.lib.api, o.handle, on))
}
