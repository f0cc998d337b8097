// Package cuda runs the project's own CUDA kernels, on the stream of a device of package ort. NVRTC compiles their sources, which are
// part of the program, for the card at hand when a model is loaded; the results are kept in the user's cache folder. The goroutine that
// owns the device makes all calls.
package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>

typedef uintptr_t word;
typedef int (*function)(word, word, word, word, word, word, word, word, word, word, word);

// tl_call calls a function of the driver or NVRTC. All their arguments here are integers or pointers, and further ones are ignored.
static int tl_call(void *f, word *a) {
  return ((function)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"touchline/inference/internal/ort"
)

// ErrNone is returned if own kernels are not used. NoneError has the kinds of reasons.
var ErrNone = errors.New("no own kernels")

// NoneError is a kind of reason why own kernels are not used, an error that wraps ErrNone.
type NoneError string

// The kinds of reasons.
const (
	ErrOff    NoneError = "off"    // they are switched off
	ErrBundle NoneError = "bundle" // the bundle, or the weights that are chosen, has a form or sizes that they do not support
	ErrCard   NoneError = "card"   // the device is a CPU or an older card
	ErrNVRTC  NoneError = "nvrtc"  // it is missing or does not compile them
	ErrLost   NoneError = "lost"   // they are marked: they lost the GPU, or their check did not end
	ErrCheck  NoneError = "check"  // their results differ from ONNX Runtime's
)

// Error returns the text of ErrNone.
func (NoneError) Error() string { return ErrNone.Error() }

// Unwrap returns ErrNone.
func (NoneError) Unwrap() error { return ErrNone }

// library is a loaded library with its functions. Safe for concurrent use.
type library struct {
	name   string
	none   NoneError // without it
	handle unsafe.Pointer
	found  sync.Map // of functions, by name
}

func open(with func(name string) (unsafe.Pointer, error), name string, none NoneError) (*library, error) {
	handle, err := with(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", none, err)
	}
	return &library{name: name, none: none, handle: handle}, nil
}

// call calls a function and returns its result, 0 for success. Pointers among the arguments must stay reachable and unmoved: they are
// pinned by the callers.
func (l *library) call(function string, args ...uintptr) (int, error) {
	f, ok := l.found.Load(function)
	if !ok {
		name := append([]byte(function), 0)
		address := C.dlsym(l.handle, (*C.char)(unsafe.Pointer(&name[0])))
		if address == nil {
			return 0, fmt.Errorf("%w: %s has no %s", l.none, l.name, function)
		}
		f, _ = l.found.LoadOrStore(function, address)
	}
	var a [11]C.uintptr_t
	for i, v := range args {
		a[i] = C.uintptr_t(v)
	}
	return int(C.tl_call(f.(unsafe.Pointer), &a[0])), nil
}

// pinned is Go memory that native code reads and writes during a call.
type pinned struct{ runtime.Pinner }

func at[T any](p *pinned, v *T) uintptr {
	p.Pin(v)
	return uintptr(unsafe.Pointer(v))
}

// Driver is the CUDA driver on one device.
type Driver struct {
	dev    *ort.Device
	lib    *library
	Arch   int // compute capability, as 90
	Blocks int // multiprocessors
	Shared int // bytes of shared memory that a block can have
}

// Attributes of a device and of a function (cuda.h).
const (
	deviceMultiprocessors = 16
	deviceMajor           = 75
	deviceMinor           = 76
	deviceCooperative     = 95
	deviceShared          = 97

	functionMaxShared = 8
)

// leastArch is the oldest compute capability for which the kernels are written.
const leastArch = 80

// NewDriver opens the driver for a device.
func NewDriver(dev *ort.Device) (*Driver, error) {
	if dev.Kind() != ort.CUDA {
		return nil, fmt.Errorf("%w: they are for CUDA", ErrCard)
	}
	lib, err := open(dev.Library, "libcuda.so.1", ErrCard)
	if err != nil {
		return nil, err
	}
	d := &Driver{dev: dev, lib: lib}
	if err := dev.Synchronize(); err != nil { // makes the context current
		return nil, err
	}
	var major, minor, cooperative int
	for attribute, to := range map[uintptr]*int{
		deviceMajor: &major, deviceMinor: &minor, deviceMultiprocessors: &d.Blocks, deviceShared: &d.Shared, deviceCooperative: &cooperative,
	} {
		var p pinned
		v := new(C.int)
		err := d.do("cuDeviceGetAttribute", at(&p, v), attribute, uintptr(dev.Index()))
		p.Unpin()
		if err != nil {
			return nil, err
		}
		*to = int(*v)
	}
	if d.Arch = 10*major + minor; d.Arch < leastArch || cooperative == 0 {
		return nil, fmt.Errorf("%w: they need compute capability 8.0 and cooperative launches, %s has %d.%d", ErrCard, dev.Name(), major, minor)
	}
	return d, nil
}

// do calls a function of the driver. A failure that lost the device wraps ort.ErrDeviceLost.
func (d *Driver) do(function string, args ...uintptr) error {
	code, err := d.lib.call(function, args...)
	if err != nil || code == 0 {
		return err
	}
	text := "unknown error"
	var p pinned
	defer p.Unpin()
	name := new(*C.char)
	if again, err := d.lib.call("cuGetErrorName", uintptr(code), at(&p, name)); err == nil && again == 0 && *name != nil {
		text = C.GoString(*name)
	}
	err = fmt.Errorf("%s: %s", function, text)
	return errors.Join(err, d.dev.Synchronize())
}

// module is a loaded set of kernels.
type module struct {
	driver *Driver
	handle uintptr
}

// load loads compiled kernels. The device must not capture a graph meanwhile.
func (d *Driver) load(cubin []byte) (*module, error) {
	var p pinned
	defer p.Unpin()
	handle := new(uintptr)
	if err := d.do("cuModuleLoadData", at(&p, handle), at(&p, &cubin[0])); err != nil {
		return nil, err
	}
	return &module{d, *handle}, nil
}

// close unloads the kernels.
func (m *module) close() error { return m.driver.do("cuModuleUnload", m.handle) }

// kernel is a function of a module.
type kernel struct {
	driver *Driver
	handle uintptr
	shared int
}

// kernel returns a function of the module whose blocks have some bytes of dynamic shared memory.
func (m *module) kernel(name string, shared int) (*kernel, error) {
	var p pinned
	defer p.Unpin()
	k, text := &kernel{driver: m.driver, shared: shared}, append([]byte(name), 0)
	err := m.driver.do("cuModuleGetFunction", at(&p, &k.handle), m.handle, at(&p, &text[0]))
	if err == nil && shared > 0 {
		err = m.driver.do("cuFuncSetAttribute", k.handle, functionMaxShared, uintptr(shared))
	}
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

// launchConfig is CUlaunchConfig; attribute is CUlaunchAttribute.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	_           uint32
	stream      uintptr
	attributes  *attribute
	count       uint32
	_           uint32
}

type attribute struct {
	id    uint32
	_     uint32
	value [64]byte
}

const attributeCooperative = 2

// launch queues a run of the kernel on the device's stream. With together, all blocks run at the same time.
func (k *kernel) launch(x, y, threads int, together bool, args ...unsafe.Pointer) error {
	var p pinned
	defer p.Unpin()
	c := &launchConfig{
		grid: [3]uint32{uint32(x), uint32(y), 1}, block: [3]uint32{uint32(threads), 1, 1}, shared: uint32(k.shared),
		stream: k.driver.dev.Stream(),
	}
	if together {
		a := &attribute{id: attributeCooperative}
		a.value[0] = 1
		p.Pin(a)
		c.attributes, c.count = a, 1
	}
	list := make([]unsafe.Pointer, len(args))
	for i, a := range args {
		p.Pin(a)
		list[i] = a
	}
	return k.driver.do("cuLaunchKernelEx", at(&p, c), k.handle, at(&p, &list[0]), 0)
}
