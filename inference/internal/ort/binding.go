package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
)

// Binding says where a session's run finds its inputs and leaves its outputs. What is bound is kept until it is bound anew, cleared or the
// binding is closed. A captured CUDA graph ignores later changes: it reads and writes the addresses of its capture.
type Binding struct {
	life    life
	session *Session
	handle  *C.OrtIoBinding
	bound   [2]map[string]*bound // inputs, outputs
	order   []string             // outputs in the order in which ONNX Runtime gives them
}

// bound is one name and what it is bound to; tensor is nil where ONNX Runtime allocates.
type bound struct {
	name   *C.char
	tensor *Tensor
}

// NewBinding makes an empty binding.
func (s *Session) NewBinding() (*Binding, error) {
	if !s.life.use() {
		return nil, closedError("session " + s.path)
	}
	b := &Binding{session: s, bound: [2]map[string]*bound{{}, {}}}
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

func (v *bound) drop() {
	freeString(v.name)
	if v.tensor != nil {
		v.tensor.life.drop()
	}
}

// Close gives the binding back and lets go of what is bound.
func (b *Binding) Close() error {
	b.life.end()
	return nil
}

// BindInput gives a graph's input its tensor. Type and shape must fit the graph. A host tensor for an input that the GPU reads is copied
// there now, and only now: use a device tensor for what changes.
func (b *Binding) BindInput(name string, t *Tensor) error { return b.bind(0, name, t) }

// BindOutput gives a graph's output its place. A run fails if the shape that comes out is another one.
func (b *Binding) BindOutput(name string, t *Tensor) error { return b.bind(1, name, t) }

func (b *Binding) bind(output C.int, name string, t *Tensor) error {
	what := [...]string{"input", "output"}[output]
	infos := b.session.inputs
	if output == 1 {
		infos = b.session.outputs
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
	v := &bound{name: C.CString(name), tensor: t}
	lib := b.session.device.runtime.lib
	if err := lib.check(op, C.tl_bind(lib.api, b.handle, output, v.name, t.value)); err != nil {
		v.drop()
		return b.session.device.failure(err)
	}
	b.keep(output, name, v)
	return nil
}

// accepts compares a tensor with what the graph declares.
func (v ValueInfo) accepts(t *Tensor) error {
	if t.typ != v.Type {
		return fmt.Errorf("expected %s, the tensor is %s", v.Type, t.typ)
	}
	fits := len(t.shape) == len(v.Shape)
	for i := 0; fits && i < len(t.shape); i++ {
		fits = v.Shape[i] < 0 || v.Shape[i] == t.shape[i]
	}
	if !fits {
		return fmt.Errorf("expected shape %v (-1 is free), the tensor has %v", v.Shape, t.shape)
	}
	return nil
}

func (b *Binding) keep(output C.int, name string, v *bound) {
	if old := b.bound[output][name]; old != nil {
		old.drop()
	} else if output == 1 {
		b.order = append(b.order, name)
	}
	b.bound[output][name] = v
}

// BindOutputToDevice lets ONNX Runtime allocate an output on the session's device in every run; see OutputValues.
func (b *Binding) BindOutputToDevice(name string) error {
	return b.bindTo(name, b.session.device.where)
}

// BindOutputToHost lets ONNX Runtime allocate an output in host memory in every run; see OutputValues.
func (b *Binding) BindOutputToHost(name string) error {
	return b.bindTo(name, b.session.device.runtime.cpu)
}

func (b *Binding) bindTo(name string, where *C.OrtMemoryInfo) error {
	op := fmt.Sprintf("bind output %s of %s", name, b.session.path)
	if !slices.ContainsFunc(b.session.outputs, func(v ValueInfo) bool { return v.Name == name }) {
		return fmt.Errorf("%s: there is no such output", op)
	}
	if !b.life.use() {
		return closedError("binding of " + b.session.path)
	}
	defer b.life.drop()
	v := &bound{name: C.CString(name)}
	lib := b.session.device.runtime.lib
	if err := lib.check(op, C.tl_bind_output_to(lib.api, b.handle, v.name, where)); err != nil {
		v.drop()
		return err
	}
	b.keep(1, name, v)
	return nil
}

// ClearInputs unbinds all inputs.
func (b *Binding) ClearInputs() error { return b.clear(0) }

// ClearOutputs unbinds all outputs.
func (b *Binding) ClearOutputs() error {
	if err := b.clear(1); err != nil {
		return err
	}
	b.order = nil
	return nil
}

func (b *Binding) clear(output C.int) error {
	if !b.life.use() {
		return closedError("binding of " + b.session.path)
	}
	defer b.life.drop()
	C.tl_clear(b.session.device.runtime.lib.api, b.handle, output)
	for _, v := range b.bound[output] {
		v.drop()
	}
	clear(b.bound[output])
	return nil
}

// OutputValues gives the outputs after a run, in the order in which they were first bound: for a bound tensor a view of the same place,
// for the others what ONNX Runtime allocated. The caller closes each of them. They keep the session open.
func (b *Binding) OutputValues() ([]*Tensor, error) {
	if !b.life.use() {
		return nil, closedError("binding of " + b.session.path)
	}
	defer b.life.drop()
	lib := b.session.device.runtime.lib
	values := make([]*C.OrtValue, len(b.order)+1) // one more, so that there is a first
	var n C.size_t
	status := C.tl_bound_outputs(lib.api, b.handle, &values[0], C.size_t(len(values)), &n)
	if err := lib.check("read outputs of "+b.session.path, status); err != nil {
		return nil, err
	}
	tensors := make([]*Tensor, 0, n)
	var errs []error
	for i, v := range values[:n] {
		t, err := b.output(b.order[i], v)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.order[i], err))
			continue
		}
		tensors = append(tensors, t)
	}
	if len(errs) > 0 {
		for _, t := range tensors {
			_ = t.Close()
		}
		return nil, fmt.Errorf("read outputs of %s: %w", b.session.path, errors.Join(errs...))
	}
	return tensors, nil
}

// output takes over a value that ONNX Runtime gave.
func (b *Binding) output(name string, v *C.OrtValue) (*Tensor, error) {
	d := b.session.device
	if bound := b.bound[1][name].tensor; bound != nil {
		C.tl_value_free(d.runtime.lib.api, v)
		return d.TensorAt(bound.place, bound.typ, bound.shape...)
	}
	t, err := b.wrap(v)
	if err != nil && v != nil {
		C.tl_value_free(d.runtime.lib.api, v)
	}
	return t, err
}

// wrap makes a tensor of a value that ONNX Runtime gave. On success it owns the value.
func (b *Binding) wrap(v *C.OrtValue) (*Tensor, error) {
	s := b.session
	lib := s.device.runtime.lib
	if v == nil {
		return nil, errors.New("there is no value: nothing was run yet")
	}
	var host C.int
	var address C.uintptr_t
	var shape *C.OrtTensorTypeAndShapeInfo
	if err := lib.check("describe a value", C.tl_value_describe(lib.api, v, &address, &host, &shape)); err != nil {
		return nil, err
	}
	defer C.tl_shape_free(lib.api, shape)
	m := &Memory{device: s.device, address: address}
	t := &Tensor{place: m.At(0), value: v, lib: lib, owned: m}
	var err error
	if t.typ, t.shape, _, err = lib.describe(shape, false); err != nil {
		return nil, err
	}
	m.size, m.host = t.Size(), host != 0
	m.output, m.session = v, s
	s.life.users.Add(1) // the binding holds the session, so it is alive
	m.life.born(kindMemory, m.free)
	m.life.use() // by the tensor
	t.life.born(kindTensor, t.free)
	return t, nil
}
