package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"slices"
)

// Binding holds the tensors of the inputs and outputs of a session's runs. A bound tensor is kept until another replaces it or the
// binding is closed. A captured CUDA graph ignores later changes: it reads and writes the addresses of its capture.
type Binding struct {
	life    life
	session *Session
	handle  *C.OrtIoBinding
	bound   [2]map[string]bound // inputs, outputs
}

// bound is a name with its tensor.
type bound struct {
	name   *C.char
	tensor *Tensor
}

// NewBinding returns an empty binding.
func (s *Session) NewBinding() (*Binding, error) {
	if !s.life.use() {
		return nil, closedError("session " + s.path)
	}
	b := &Binding{session: s, bound: [2]map[string]bound{{}, {}}}
	lib := s.device.runtime.lib
	var handle *C.OrtIoBinding
	if err := lib.check("bind to "+s.path, C.tl_binding(lib.api, s.handle, &handle)); err != nil {
		s.life.drop()
		return nil, err
	}
	b.handle = handle
	b.life.born(kindBinding, b.free)
	return b, nil
}

func (b *Binding) free() {
	C.tl_binding_free(b.session.device.runtime.lib.api, b.handle)
	for _, m := range b.bound {
		for _, v := range m {
			v.drop()
		}
	}
	b.session.life.drop()
}

func (v bound) drop() {
	freeString(v.name)
	v.tensor.life.drop()
}

// Close frees the binding and releases its tensors.
func (b *Binding) Close() error {
	b.life.end()
	return nil
}

// BindInput sets the tensor of an input. Type and shape must match the graph. A host tensor for an input on the GPU is copied now, once:
// use a device tensor for data that changes.
func (b *Binding) BindInput(name string, t *Tensor) error { return b.bind(0, name, t) }

// BindOutput sets the tensor of an output. A run fails if the output has another shape.
func (b *Binding) BindOutput(name string, t *Tensor) error { return b.bind(1, name, t) }

func (b *Binding) bind(output C.int, name string, t *Tensor) error {
	what, infos := "input", b.session.inputs
	if output == 1 {
		what, infos = "output", b.session.outputs
	}
	op := fmt.Sprintf("bind %s %s of %s", what, name, b.session.path)
	i := slices.IndexFunc(infos, func(v ValueInfo) bool { return v.Name == name })
	if i < 0 {
		names := make([]string, len(infos))
		for i, v := range infos {
			names[i] = v.Name
		}
		return fmt.Errorf("%s: there is no such %s, expected one of %q", op, what, names)
	}
	if t == nil {
		return fmt.Errorf("%s: the tensor is nil", op)
	}
	if err := infos[i].accepts(t); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if !b.life.use() {
		return closedError("binding of " + b.session.path)
	}
	defer b.life.drop()
	if !t.life.use() {
		return closedError(op + ": tensor")
	}
	v := bound{name: C.CString(name), tensor: t}
	lib := b.session.device.runtime.lib
	if err := lib.check(op, C.tl_bind(lib.api, b.handle, output, v.name, t.value)); err != nil {
		v.drop()
		return b.session.device.failure(err)
	}
	if old, ok := b.bound[output][name]; ok {
		old.drop()
	}
	b.bound[output][name] = v
	return nil
}

// accepts compares a tensor with the graph's declaration.
func (v ValueInfo) accepts(t *Tensor) error {
	if t.typ != v.Type {
		return fmt.Errorf("expected %s, the tensor is %s", v.Type, t.typ)
	}
	if !slices.EqualFunc(v.Shape, t.shape, func(want, has int64) bool { return want < 0 || want == has }) {
		return fmt.Errorf("expected shape %v (-1 is free), the tensor has %v", v.Shape, t.shape)
	}
	return nil
}
