package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"
)

// DeviceKind is the kind of processor that runs graphs.
type DeviceKind int

// The kinds of device.
const (
	CPU DeviceKind = iota
	CUDA
)

// String returns cpu or cuda.
func (k DeviceKind) String() string {
	if k == CUDA {
		return "cuda"
	}
	return "cpu"
}

// Device is a CPU, or a GPU with a stream of its own that runs its sessions and copies in the order of the calls. On the CPU every call
// is complete when it returns.
type Device struct {
	life    life
	runtime *Runtime
	kind    DeviceKind
	index   int
	order   order
	name    string
	cuda    *C.tl_cuda // nil on the CPU
	stream  C.uintptr_t
	where   *C.OrtMemoryInfo
	lost    atomic.Bool
}

// order is the priority of the device's CUDA stream among the devices on one GPU. CUDA uses the nearest priority that the GPU supports.
type order C.int

const (
	last  order = 0
	usual order = -2
	first order = -5
)

// NewDevice opens a device. index counts the GPUs visible to the process; it must be 0 for the CPU. Without such a GPU, its driver or
// libraries the error wraps ErrNoCUDA and names the missing part.
func (r *Runtime) NewDevice(k DeviceKind, index int) (*Device, error) {
	return r.newDevice(k, index, usual)
}

// NewDeviceBehind is NewDevice with a lower priority than other devices on the same GPU.
func (r *Runtime) NewDeviceBehind(k DeviceKind, index int) (*Device, error) {
	return r.newDevice(k, index, last)
}

// Beside opens the device a second time. On a GPU its work has priority over d's.
func (d *Device) Beside() (*Device, error) { return d.runtime.newDevice(d.kind, d.index, first) }

func (r *Runtime) newDevice(k DeviceKind, index int, o order) (*Device, error) {
	if !r.life.use() {
		return nil, closedError("runtime")
	}
	d := &Device{runtime: r, kind: k, index: index, order: o}
	if err := d.open(); err != nil {
		r.life.drop()
		return nil, err
	}
	d.life.born(kindDevice, d.free)
	return d, nil
}

func (d *Device) open() error {
	if d.kind != CPU && d.kind != CUDA {
		return fmt.Errorf("open device: expected CPU or CUDA, got kind %d", d.kind)
	}
	if d.kind == CPU {
		if d.index != 0 {
			return fmt.Errorf("open CPU: index must be 0, is %d", d.index)
		}
		d.name = "CPU"
		var where *C.OrtMemoryInfo
		err := d.runtime.lib.check("describe the CPU's memory", C.tl_memory_info(d.runtime.lib.api, 0, 0, &where))
		d.where = where
		return err
	}
	cuda, n, err := d.runtime.gpus()
	if err != nil {
		return err
	}
	if d.index < 0 || d.index >= n {
		return fmt.Errorf("%w: GPU %d of %d visible ones does not exist", ErrNoCUDA, d.index, n)
	}
	if err := cudaError(cuda, "make a CUDA stream", C.tl_cuda_stream(cuda, C.int(d.index), C.int(d.order), &d.stream)); err != nil {
		return fmt.Errorf("open GPU %d: %w", d.index, err)
	}
	if err := d.runtime.lib.check("describe the GPU's memory", C.tl_memory_info(d.runtime.lib.api, 1, C.int(d.index), &d.where)); err != nil {
		C.tl_cuda_stream_free(cuda, C.int(d.index), d.stream)
		return err
	}
	d.name, d.cuda = gpuName(cuda, d.index), cuda
	d.count(1)
	return nil
}

// gpus returns CUDA, and the number of GPUs visible to the process.
func (r *Runtime) gpus() (*C.tl_cuda, int, error) {
	if file := r.missingProvider(); file != "" {
		return nil, 0, fmt.Errorf("%w: %s is missing: `make runtime-cuda` fetches an ONNX Runtime that has it", ErrNoCUDA, file)
	}
	r.lib.mu.Lock()
	cuda, err := r.lib.loadCUDA()
	r.lib.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	var n C.int
	if err := cudaError(cuda, "count GPUs", C.tl_cuda_count(cuda, &n)); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	return cuda, int(n), nil
}

// GPUs returns the names of the GPUs visible to the process, by number.
func (r *Runtime) GPUs() ([]string, error) {
	cuda, n, err := r.gpus()
	if err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = gpuName(cuda, i)
	}
	return names, nil
}

// gpuName returns the driver's name of a GPU.
func gpuName(cuda *C.tl_cuda, index int) string {
	var name [256]C.char
	if C.tl_cuda_name(cuda, C.int(index), &name[0], C.int(len(name))) != 0 {
		return fmt.Sprintf("GPU %d", index)
	}
	return C.GoString(&name[0])
}

// gpu counts the open devices of a GPU, and has the value that they share.
type gpu struct {
	devices int
	shared  any
}

// count counts the open devices of the GPU.
func (d *Device) count(n int) {
	lib := d.runtime.lib
	lib.mu.Lock()
	defer lib.mu.Unlock()
	g := lib.gpus[d.index]
	if g == nil {
		g = &gpu{}
		if lib.gpus == nil {
			lib.gpus = map[int]*gpu{}
		}
		lib.gpus[d.index] = g
	}
	if g.devices += n; g.devices == 0 {
		delete(lib.gpus, d.index)
	}
}

// OfGPU returns the value that all open devices of the GPU share, which the first one makes. On the CPU each call makes one.
func (d *Device) OfGPU(value func() any) any {
	if d.cuda == nil {
		return value()
	}
	lib := d.runtime.lib
	lib.mu.Lock()
	defer lib.mu.Unlock()
	g := lib.gpus[d.index]
	if g.shared == nil {
		g.shared = value()
	}
	return g.shared
}

func (d *Device) free() {
	C.tl_memory_info_free(d.runtime.lib.api, d.where)
	if d.cuda != nil {
		C.tl_cuda_stream_free(d.cuda, C.int(d.index), d.stream)
		d.count(-1)
	}
	d.runtime.life.drop()
}

// Close frees the device once all handles on it are closed.
func (d *Device) Close() error {
	d.life.end()
	return nil
}

// Kind returns the kind of processor.
func (d *Device) Kind() DeviceKind { return d.kind }

// Index returns the number of the GPU.
func (d *Device) Index() int { return d.index }

// Name returns the driver's name of the GPU, or CPU.
func (d *Device) Name() string { return d.name }

// Stream returns the device's CUDA stream, for kernels of the caller; 0 on the CPU.
func (d *Device) Stream() uintptr { return uintptr(d.stream) }

// Library returns the handle of a CUDA library, from ONNX Runtime's folder or the system.
func (d *Device) Library(name string) (unsafe.Pointer, error) {
	return OpenCUDA(filepath.Dir(d.runtime.lib.path), name)
}

// Synchronize waits for all work queued on the stream and returns its errors.
func (d *Device) Synchronize() error {
	if err := d.begin("synchronize"); err != nil {
		return err
	}
	defer d.life.drop()
	if d.cuda == nil {
		return nil
	}
	return d.result("synchronize", C.tl_cuda_sync(d.cuda, C.int(d.index), d.stream))
}

// MemInfo returns the free and the total memory of the device in bytes. On the CPU, free is the memory available without swapping.
func (d *Device) MemInfo() (free, total int64, err error) {
	if err := d.begin("read free memory"); err != nil {
		return 0, 0, err
	}
	defer d.life.drop()
	if d.cuda == nil {
		return machineMemory()
	}
	var f, t C.size_t
	if err := d.result("read free memory", C.tl_cuda_mem_info(d.cuda, C.int(d.index), &f, &t)); err != nil {
		return 0, 0, err
	}
	return int64(f), int64(t), nil
}

func machineMemory() (free, total int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read free memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			free = kib << 10
		}
	}
	if total == 0 {
		return 0, 0, errors.New("read free memory: /proc/meminfo has no MemTotal")
	}
	return free, total, nil
}

// begin keeps the device open for one call, which must end with d.life.drop.
func (d *Device) begin(op string) error {
	if d.lost.Load() {
		return fmt.Errorf("%s on %s: %w", op, d.name, ErrDeviceLost)
	}
	if !d.life.use() {
		return closedError("device")
	}
	return nil
}

// result converts a CUDA code into an error and checks whether the context is lost.
func (d *Device) result(op string, code C.int) error {
	if code == 0 {
		return nil
	}
	err := cudaError(d.cuda, op, code)
	if d.probe() {
		return asLost(err)
	}
	return err
}

// probe reports whether the context is lost. Every call returns the error of a lost context; other errors are returned once.
func (d *Device) probe() bool {
	if d.cuda == nil {
		return false
	}
	C.tl_cuda_last_error(d.cuda)
	code := C.tl_cuda_sync(d.cuda, C.int(d.index), d.stream)
	capturing := func() bool { return code >= 900 && code < 910 } // cudaErrorStreamCapture...
	if capturing() {                                              // a run failed while it was captured
		C.tl_cuda_abandon_capture(d.cuda, d.stream)
		code = C.tl_cuda_sync(d.cuda, C.int(d.index), d.stream)
	}
	if code == 0 || code == cudaNotReady || code == cudaOutOfMemory || capturing() {
		return false
	}
	d.lost.Store(true)
	return true
}
