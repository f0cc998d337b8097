package ort

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Memory is a block of the device's memory, or of host memory for copies (pinned on CUDA). Its initial content is undefined.
type Memory struct {
	life    life
	device  *Device
	address C.uintptr_t
	size    int64
	host    bool
}

// Malloc allocates device memory, aligned to 256 bytes. The error wraps ErrOutOfMemory if there is none left.
func (d *Device) Malloc(bytes int64) (*Memory, error) { return d.allocate(bytes, false) }

// HostAlloc allocates host memory for copies: pinned on CUDA, plain on the CPU.
func (d *Device) HostAlloc(bytes int64) (*Memory, error) { return d.allocate(bytes, true) }

func (d *Device) allocate(bytes int64, host bool) (*Memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("allocate memory: size must be 0 or more, is %d", bytes)
	}
	op := fmt.Sprintf("allocate %d bytes on %s", bytes, d.name)
	if host {
		op = fmt.Sprintf("allocate %d bytes of host memory", bytes)
	}
	if err := d.begin(op); err != nil {
		return nil, err
	}
	m := &Memory{device: d, size: bytes, host: host}
	var code C.int
	switch {
	case d.cuda == nil:
		if m.address = C.tl_malloc(C.size_t(bytes)); m.address == 0 {
			d.life.drop()
			return nil, fmt.Errorf("%s: %w", op, ErrOutOfMemory)
		}
	case host:
		code = C.tl_cuda_malloc_host(d.cuda, C.int(d.index), C.size_t(max(bytes, 1)), &m.address)
	default:
		code = C.tl_cuda_malloc(d.cuda, C.int(d.index), C.size_t(max(bytes, 1)), &m.address)
	}
	if err := d.result(op, code); err != nil {
		d.life.drop()
		return nil, err
	}
	m.life.born(kindMemory, m.free)
	return m, nil
}

func (m *Memory) free() {
	d := m.device
	switch {
	case d.cuda == nil:
		C.tl_free(m.address)
	case m.host:
		C.tl_cuda_free_host(d.cuda, C.int(d.index), m.address)
	default:
		C.tl_cuda_free(d.cuda, C.int(d.index), m.address)
	}
	d.life.drop()
}

// Close frees the memory once all tensors in it are closed; until then the tensors and pointers into the memory stay usable.
func (m *Memory) Close() error {
	m.life.end()
	return nil
}

// Size returns the number of bytes.
func (m *Memory) Size() int64 { return m.size }

// Bytes returns host memory as a slice, without copying, and nil for closed memory. It also returns nil for device memory, even on the
// CPU, so that code tested there works on CUDA. The slice must not be used after Close.
func (m *Memory) Bytes() []byte {
	if !m.host || m.life.closed.Load() || m.size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(m.address)), m.size)
}

// At returns a pointer at an offset in bytes. Using a pointer outside the memory is an error.
func (m *Memory) At(offset int64) Pointer { return Pointer{m, offset} }

// Pointer is a position in a Memory.
type Pointer struct {
	memory *Memory
	offset int64
}

// Address returns the place's address, which is valid as long as the memory is open.
func (p Pointer) Address() uintptr { return uintptr(p.memory.address) + uintptr(p.offset) }

// hold checks that the memory has n bytes from p on and keeps it until release.
func (p Pointer) hold(op string, n int64) (C.uintptr_t, error) {
	if p.memory == nil {
		return 0, fmt.Errorf("%s: the place is in no memory", op)
	}
	if p.offset < 0 || n < 0 || p.offset > p.memory.size-n {
		return 0, fmt.Errorf("%s: expected %d bytes from offset %d on, the memory has %d", op, n, p.offset, p.memory.size)
	}
	if !p.memory.life.hold() {
		return 0, closedError(op + ": memory")
	}
	return p.memory.address + C.uintptr_t(p.offset), nil
}

func (p Pointer) release() { p.memory.life.drop() }

// CopyIn queues a copy from the host to the device. From Memory of HostAlloc it is asynchronous: src must not change until Synchronize
// or an event shows that the copy is done. Other slices are read before CopyIn returns.
func (d *Device) CopyIn(dst Pointer, src []byte) error {
	if err := d.begin("copy in"); err != nil {
		return err
	}
	defer d.life.drop()
	to, err := dst.hold("copy in", int64(len(src)))
	if err != nil {
		return err
	}
	defer dst.release()
	if len(src) == 0 {
		return nil
	}
	return d.result("copy in", C.tl_copy_in(d.cuda, C.int(d.index), to, unsafe.Pointer(&src[0]), C.size_t(len(src)), d.stream))
}

// CopyOut queues a copy from the device to the host. Into Memory of HostAlloc it is asynchronous: dst holds the data after Synchronize.
// For other slices CopyOut waits until the copy is done.
func (d *Device) CopyOut(dst []byte, src Pointer) error {
	if err := d.begin("copy out"); err != nil {
		return err
	}
	defer d.life.drop()
	from, err := src.hold("copy out", int64(len(dst)))
	if err != nil {
		return err
	}
	defer src.release()
	if len(dst) == 0 {
		return nil
	}
	return d.result("copy out", C.tl_copy_out(d.cuda, C.int(d.index), unsafe.Pointer(&dst[0]), from, C.size_t(len(dst)), d.stream))
}

// CopyDevice queues a copy within the device. On CUDA the two ranges must not overlap.
func (d *Device) CopyDevice(dst, src Pointer, bytes int64) error {
	if err := d.begin("copy"); err != nil {
		return err
	}
	defer d.life.drop()
	to, err := dst.hold("copy", bytes)
	if err != nil {
		return err
	}
	defer dst.release()
	from, err := src.hold("copy", bytes)
	if err != nil {
		return err
	}
	defer src.release()
	const deviceToDevice = 3
	return d.result("copy", C.tl_copy(d.cuda, C.int(d.index), to, from, C.size_t(bytes), deviceToDevice, d.stream))
}

// Box is where planes of rows are: rows are Row bytes apart, planes Rows rows.
type Box struct {
	At        Pointer
	Row, Rows int64
}

// hold checks the bounds of planes of rows of some bytes, and holds their memory.
func (b Box) hold(op string, bytes int64, rows, planes int) (C.tl_box, error) {
	if rows < 1 || planes < 1 || bytes < 0 || bytes > b.Row || int64(rows) > b.Rows {
		return C.tl_box{}, fmt.Errorf("%s: expected at most %d rows of %d bytes, got %d of %d in %d planes",
			op, b.Rows, b.Row, rows, bytes, planes)
	}
	at, err := b.At.hold(op, (int64(planes-1)*b.Rows+int64(rows-1))*b.Row+bytes)
	return C.tl_box{at: at, row: C.size_t(b.Row), all: C.size_t(b.Rows)}, err
}

// CopyBox queues a copy within the device of planes of rows of equal size.
func (d *Device) CopyBox(dst, src Box, bytes int64, rows, planes int) error {
	const op = "copy planes of rows"
	if err := d.begin(op); err != nil {
		return err
	}
	defer d.life.drop()
	to, err := dst.hold(op, bytes, rows, planes)
	if err != nil {
		return err
	}
	defer dst.At.release()
	from, err := src.hold(op, bytes, rows, planes)
	if err != nil {
		return err
	}
	defer src.At.release()
	return d.result(op, C.tl_copy_box(d.cuda, C.int(d.index), &to, &from, C.size_t(bytes), C.size_t(rows), C.size_t(planes), d.stream))
}

// CopyRows queues a copy within the device of rows of equal size, at a fixed distance from each other.
func (d *Device) CopyRows(dst Pointer, dstStep int64, src Pointer, srcStep, bytes int64, rows int) error {
	if rows < 1 || bytes < 0 || bytes > min(dstStep, srcStep) && rows > 1 {
		return fmt.Errorf("copy rows: expected rows of at most a step, got %d of %d bytes in steps of %d and %d", rows, bytes, srcStep, dstStep)
	}
	if err := d.begin("copy rows"); err != nil {
		return err
	}
	defer d.life.drop()
	more := int64(rows - 1)
	to, err := dst.hold("copy rows", more*dstStep+bytes)
	if err != nil {
		return err
	}
	defer dst.release()
	from, err := src.hold("copy rows", more*srcStep+bytes)
	if err != nil {
		return err
	}
	defer src.release()
	return d.result("copy rows", C.tl_copy_rows(d.cuda, C.int(d.index), to, C.size_t(dstStep), from, C.size_t(srcStep), C.size_t(bytes),
		C.size_t(rows), d.stream))
}

// Memset queues filling device memory with one byte value.
func (d *Device) Memset(dst Pointer, value byte, bytes int64) error {
	if err := d.begin("fill memory"); err != nil {
		return err
	}
	defer d.life.drop()
	to, err := dst.hold("fill memory", bytes)
	if err != nil {
		return err
	}
	defer dst.release()
	return d.result("fill memory", C.tl_set(d.cuda, C.int(d.index), to, C.int(value), C.size_t(bytes), d.stream))
}

// pointer converts a C address, which is never Go's own memory.
func pointer(address C.uintptr_t) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// Bytes returns the memory of a slice of numbers, for copies.
func Bytes[T Element](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// Slice returns bytes of host memory as numbers, without copying. An incomplete number at the end is dropped.
func Slice[T Element](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}
