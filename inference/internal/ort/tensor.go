package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"
)

// Tensor is a typed and shaped view over memory that can be bound to a graph's input or output.
type Tensor struct {
	life  life
	typ   Type
	shape []int64
	place Pointer
	value *C.OrtValue
	owned *Memory // taken for this tensor alone; nil for a view
	lib   *library
}

// NewTensor takes device memory for a tensor, which is freed with it.
func (d *Device) NewTensor(t Type, shape ...int64) (*Tensor, error) {
	return d.newTensor(false, t, shape)
}

// NewHostTensor takes host memory for a tensor: what graphs want to read on the CPU (scalars), or small things to copy. See [Data].
func (d *Device) NewHostTensor(t Type, shape ...int64) (*Tensor, error) {
	return d.newTensor(true, t, shape)
}

func (d *Device) newTensor(host bool, t Type, shape []int64) (*Tensor, error) {
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

// TensorAt sees memory from a place on as a tensor, on the host or on the device as the memory is. It keeps the memory from being freed.
func (d *Device) TensorAt(p Pointer, t Type, shape ...int64) (*Tensor, error) {
	n, err := bytesOf(t, shape)
	if err != nil {
		return nil, err
	}
	op := fmt.Sprintf("make a tensor %s%v", t, shape)
	if p.memory != nil && p.memory.device != d {
		return nil, fmt.Errorf("%s on %s: the memory is on another device", op, d.name)
	}
	address, err := p.hold(op, n)
	if err != nil {
		return nil, err
	}
	where := d.where
	if p.memory.host {
		where = d.runtime.cpu
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

// bytesOf is the size of a tensor, with every way of being wrong told.
func bytesOf(t Type, shape []int64) (int64, error) {
	n := int64(t.Size())
	if n == 0 {
		return 0, fmt.Errorf("make a tensor: %s is no element type that this package knows", t)
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
	if t.owned == nil || t.owned.output == nil { // an output's value goes with its memory
		C.tl_value_free(t.lib.api, t.value)
	}
	t.place.release()
	if t.owned != nil {
		_ = t.owned.Close()
	}
}

// Close gives the tensor back, and its memory if it was taken for it.
func (t *Tensor) Close() error {
	t.life.end()
	return nil
}

// Type is that of an element.
func (t *Tensor) Type() Type { return t.typ }

// Shape is the size in each dimension; empty for a scalar. The slice is the caller's own.
func (t *Tensor) Shape() []int64 { return slices.Clone(t.shape) }

// Len is the number of elements.
func (t *Tensor) Len() int64 { return t.Size() / int64(t.typ.Size()) }

// Size is the number of bytes.
func (t *Tensor) Size() int64 {
	n, _ := bytesOf(t.typ, t.shape) // was checked when the tensor was made
	return n
}

// Pointer is the place of the first element.
func (t *Tensor) Pointer() Pointer { return t.place }

// Host says whether the data lies in host memory, where [Data] sees it.
func (t *Tensor) Host() bool { return t.place.memory.host }

// Data sees the elements of a host tensor, without copying. The slice must not be used after the tensor's memory is closed.
func Data[T Element](t *Tensor) ([]T, error) {
	var zero T
	if !t.typ.holds(zero) {
		return nil, fmt.Errorf("read a tensor: its elements are %s, asked for %T", t.typ, zero)
	}
	if !t.Host() {
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
