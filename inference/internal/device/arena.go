// Package device runs the networks of a model on one device, for many rooms at
// once: memory with fixed addresses and a row per slot, runs over ranges of slots
// that CUDA captures as graphs, and outboxes that carry results away. It knows
// nothing of the networks' meaning. The goroutine that owns a device makes all
// calls with it; the only others read files, during Load.
package device

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"touchline/inference/internal/ort"
	"touchline/models"
)

// Arena owns handles of the device and closes them together. Its first failed
// allocation is remembered, so that a list of them needs one check.
type Arena struct {
	runtime *ort.Runtime
	dev     *ort.Device
	owned   []interface{ Close() error }
	failed  error
}

// NewArena returns an empty arena.
func NewArena(rt *ort.Runtime, dev *ort.Device) *Arena { return &Arena{runtime: rt, dev: dev} }

// Device returns the device.
func (a *Arena) Device() *ort.Device { return a.dev }

// Err returns the error of the first allocation that failed.
func (a *Arena) Err() error { return a.failed }

// Close closes all handles, the last ones first.
func (a *Arena) Close() error {
	var err error
	for _, c := range slices.Backward(a.owned) {
		err = errors.Join(err, c.Close())
	}
	a.owned = nil
	return err
}

// keep closes c with the arena.
func (a *Arena) keep(c interface{ Close() error }) { a.owned = append(a.owned, c) }

// fail returns an error with the name of the failed step, and stores the first one.
func (a *Arena) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", what, err)
	if a.failed == nil {
		a.failed = err
	}
	return err
}

// Memory allocates memory of the device. It is nil after a failure, see Err.
func (a *Arena) Memory(what string, bytes int64) *ort.Memory {
	return a.allocate(what, bytes, a.dev.Malloc)
}

// Host allocates memory of the host for copies.
func (a *Arena) Host(what string, bytes int64) *ort.Memory {
	return a.allocate(what, bytes, a.dev.HostAlloc)
}

func (a *Arena) allocate(what string, bytes int64, get func(int64) (*ort.Memory, error)) *ort.Memory {
	if a.failed != nil {
		return nil
	}
	m, err := get(bytes)
	if a.fail("allocate memory for "+what, err) != nil {
		return nil
	}
	a.keep(m)
	return m
}

// TensorAt is ort.Device.TensorAt for a tensor that lives as long as the arena.
func (a *Arena) TensorAt(p ort.Pointer, t models.Type, shape ...int64) (*ort.Tensor, error) {
	v, err := a.dev.TensorAt(p, t, shape...)
	if err != nil {
		return nil, a.fail("place a tensor", err)
	}
	a.keep(v)
	return v, nil
}

// Tensor allocates memory of the device for a tensor.
func (a *Arena) Tensor(what string, t models.Type, shape ...int64) (*ort.Memory, *ort.Tensor, error) {
	bytes := int64(t.Size())
	for _, n := range shape {
		bytes *= n
	}
	m := a.Memory(what, bytes)
	if m == nil {
		return nil, nil, a.failed
	}
	v, err := a.TensorAt(m.At(0), t, shape...)
	return m, v, err
}

// Scalar returns a tensor of one int32 on the host.
func (a *Arena) Scalar(v int) (*ort.Tensor, error) {
	t, err := a.dev.NewHostTensor(models.Int32)
	if err != nil {
		return nil, a.fail("make a number", err)
	}
	a.keep(t)
	return t, SetScalar(t, v)
}

// SetScalar changes a tensor of Scalar.
func SetScalar(t *ort.Tensor, v int) error {
	at, err := ort.Data[int32](t)
	if err != nil {
		return err
	}
	at[0] = int32(v)
	return nil
}

// Run is a session with its bound inputs and outputs.
type Run struct {
	session *ort.Session
	options *ort.RunOptions
	*ort.Binding
}

// NewRun returns a run without bound values. On CUDA it is captured as the graph of
// that number, which no other run of the session may have; ort.NoGraph for none.
func (a *Arena) NewRun(s *ort.Session, graph int) (*Run, error) {
	o, err := a.runtime.NewRunOptions()
	if err != nil {
		return nil, err
	}
	a.keep(o)
	if a.dev.Kind() == ort.CUDA {
		if err := o.SetGraph(graph); err != nil {
			return nil, err
		}
	}
	b, err := s.NewBinding()
	if err != nil {
		return nil, err
	}
	a.keep(b)
	return &Run{session: s, options: o, Binding: b}, nil
}

// GiveBack makes the run return unused memory to the GPU. No run of the session may have a graph, because a captured graph keeps using that
// memory.
func (r *Run) GiveBack(gpu int) error {
	return r.options.Set("memory.enable_memory_arena_shrinkage", "gpu:"+strconv.Itoa(gpu))
}

// Do queues the run on the device.
func (r *Run) Do() error { return r.session.Run(r.Binding, r.options) }
