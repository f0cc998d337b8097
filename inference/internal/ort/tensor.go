package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"touchline/models"
)

// Element is the Go type of the elements of a host tensor. uint16 holds the bits of float16 and bfloat16.
type Element interface {
	float32 | uint16 | int32 | int64
}

// holds reports whether elements of type t have the Go type of v.
func holds(t models.Type, v any) bool {
	switch v.(type) {
	case float32:
		return t == models.Float32
	case uint16:
		return t == models.Float16 || t == models.BFloat16
	case int32:
		return t == models.Int32
	}
	return t == models.Int64
}

// Tensor is a typed and shaped view of memory that can be bound to an input or output of a graph.
type Tensor struct {
	life  life
	typ   models.Type
	shape []int64
	place Pointer
	value *C.OrtValue
	owned *Memory // for this tensor only; nil for a view
	lib   *library
}

// NewTensor allocates a tensor with device memory of its own.
func (d *Device) NewTensor(t models.Type, shape ...int64) (*Tensor, error) {
	return d.newTensor(false, t, shape)
}

// NewHostTensor allocates a tensor in host memory, for inputs that graphs read on the CPU (scalars) and for small copies. See [Data].
func (d *Device) NewHostTensor(t models.Type, shape ...int64) (*Tensor, error) {
	return d.newTensor(true, t, shape)
}

func (d *Device) newTensor(host bool, t models.Type, shape []int64) (*Tensor, error) {
	n, err := bytesOf(t, shape)
	if err != nil {
		return nil, err
	}
	m, err := d.allocate(n, host)
	if err != nil {
		return nil, err
	}
	v, err := d.TensorAt(m.At(0), t, shape...)
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	v.owned = m
	return v, nil
}

// TensorAt returns a view of memory from p on. The memory stays allocated until the tensor is closed.
func (d *Device) TensorAt(p Pointer, t models.Type, shape ...int64) (*Tensor, error) {
	n, err := bytesOf(t, shape)
	if err != nil {
		return nil, err
	}
	op := fmt.Sprintf("make a tensor %s%v", t, shape)
	where := d.where
	if p.memory != nil && p.memory.host {
		where = d.runtime.cpu
	}
	return d.tensorAt(op, where, p, n, t, shape)
}

// tensorAt returns a view of n bytes of memory, which ONNX Runtime treats as memory of the given device.
func (d *Device) tensorAt(op string, where *C.OrtMemoryInfo, p Pointer, n int64, t models.Type, shape []int64) (*Tensor, error) {
	if p.memory != nil && p.memory.device != d {
		return nil, fmt.Errorf("%s on %s: the memory is on another device", op, d.name)
	}
	address, err := p.hold(op, n)
	if err != nil {
		return nil, err
	}
	v := &Tensor{typ: t, shape: slices.Clone(shape), place: p, lib: d.runtime.lib}
	status := C.tl_value(v.lib.api, where, address, C.size_t(n), dims(v.shape), C.size_t(len(shape)), C.int(t), &v.value)
	if err := v.lib.check(op, status); err != nil {
		p.release()
		return nil, err
	}
	v.life.born(kindTensor, v.free)
	return v, nil
}

func dims(shape []int64) *C.int64_t {
	if len(shape) == 0 {
		return nil
	}
	return (*C.int64_t)(unsafe.Pointer(&shape[0]))
}

// bytesOf returns the size of a tensor.
func bytesOf(t models.Type, shape []int64) (int64, error) {
	n := int64(t.Size())
	if n == 0 {
		return 0, fmt.Errorf("make a tensor: %s is not a supported element type", t)
	}
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("make a tensor %s%v: a size must be 0 or more", t, shape)
		}
		if d > 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("make a tensor %s%v: the size overflows", t, shape)
		}
		n *= d
	}
	return n, nil
}

func (t *Tensor) free() {
	C.tl_value_free(t.lib.api, t.value)
	t.place.release()
	if t.owned != nil {
		_ = t.owned.Close()
	}
}

// Close frees the tensor, and its memory unless it is a view.
func (t *Tensor) Close() error {
	t.life.end()
	return nil
}

// Type returns the element type.
func (t *Tensor) Type() models.Type { return t.typ }

// Shape returns a copy of the size in each dimension; empty for a scalar.
func (t *Tensor) Shape() []int64 { return slices.Clone(t.shape) }

// Len returns the number of elements.
func (t *Tensor) Len() int64 { return t.Size() / int64(t.typ.Size()) }

// Size returns the number of bytes.
func (t *Tensor) Size() int64 {
	n, _ := bytesOf(t.typ, t.shape) // checked by TensorAt
	return n
}

// Pointer returns the place of the first element.
func (t *Tensor) Pointer() Pointer { return t.place }

// Data returns the elements of a host tensor, without copying. The slice must not be used after the tensor's memory is closed.
func Data[T Element](t *Tensor) ([]T, error) {
	var zero T
	if !holds(t.typ, zero) {
		return nil, fmt.Errorf("read a tensor: its elements are %s, asked for %T", t.typ, zero)
	}
	if !t.place.memory.host {
		return nil, fmt.Errorf("read a tensor: its data is on %s: copy it with CopyOut", t.place.memory.device.name)
	}
	if t.life.closed.Load() {
		return nil, closedError("tensor")
	}
	n := t.Len()
	if n == 0 {
		return nil, nil
	}
	return unsafe.Slice((*T)(pointer(t.place.memory.address+C.uintptr_t(t.place.offset))), n), nil
}
