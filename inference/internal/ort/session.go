package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"touchline/models"
)

// ValueInfo describes an input or output of a graph.
type ValueInfo struct {
	Name  string
	Type  models.Type
	Shape []int64 // -1 is a free size
}

// Session is a loaded graph on a device.
type Session struct {
	life    life
	device  *Device
	path    string
	handle  *C.OrtSession
	inputs  []ValueInfo
	outputs []ValueInfo
	placed  []*Tensor // initializers
}

// NewSession loads a graph file with its data files. On CUDA all nodes with a GPU kernel run on the device's stream.
func (r *Runtime) NewSession(path string, d *Device, o SessionOptions) (*Session, error) {
	op := "load " + path
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w", op, unwrapPath(err))
	}
	if err := d.begin(op); err != nil {
		return nil, err
	}
	s := &Session{device: d, path: path}
	s.life.born(kindSession, s.free)
	if err := s.load(op, o); err != nil {
		s.life.end()
		return nil, err
	}
	return s, nil
}

func (s *Session) load(op string, o SessionOptions) error {
	options, err := o.native(s.device)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	lib := s.device.runtime.lib
	defer C.tl_options_free(lib.api, options)
	for name, h := range o.Hosted {
		if err := s.host(options, name, h); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	for name, t := range o.Placed {
		if err := s.place("place "+name, options, name, t); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	path := C.CString(s.path)
	defer freeString(path)
	done := func() {}
	if s.device.kind == CUDA {
		defer s.device.onThread()()
		done = lib.attention(s.device.index, o)
	}
	err = s.device.failure(lib.check(op, C.tl_session(lib.api, lib.env, path, options, &s.handle)))
	done()
	if err != nil {
		return err
	}
	C.tl_trim() // loading needs the weights twice
	if s.inputs, err = s.values(0); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if s.outputs, err = s.values(1); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// host copies an initializer to host memory, which has the same address on a GPU.
func (s *Session) host(options *C.OrtSessionOptions, name string, h Hosted) error {
	op, d := "host "+name, s.device
	if n, err := bytesOf(h.Type, h.Shape); err != nil || n != int64(len(h.Bytes)) {
		return fmt.Errorf("%s: expected %d bytes for %s%v, got %d", op, n, h.Type, h.Shape, len(h.Bytes))
	}
	m, err := d.HostAlloc(int64(len(h.Bytes)))
	if err != nil {
		return err
	}
	copy(m.Bytes(), h.Bytes)
	t, err := d.tensorAt(op, d.where, m.At(0), m.size, h.Type, h.Shape)
	if err != nil {
		_ = m.Close()
		return err
	}
	t.owned = m
	defer t.Close()
	return s.place(op, options, name, t)
}

// place makes a tensor the value of an initializer and holds it until the session is freed.
func (s *Session) place(op string, options *C.OrtSessionOptions, name string, t *Tensor) error {
	if on := t.place.memory.device; on.kind != s.device.kind || on.index != s.device.index {
		return fmt.Errorf("%s: expected a tensor on %s, it is on %s", op, s.device.name, on.name)
	}
	if !t.life.use() {
		return closedError(op + ": tensor")
	}
	s.placed = append(s.placed, t)
	lib, text := s.device.runtime.lib, C.CString(name)
	defer freeString(text)
	return lib.check(op, C.tl_options_initializer(lib.api, options, text, t.value))
}

func (s *Session) free() {
	if s.handle != nil {
		if s.device.kind == CUDA {
			defer s.device.onThread()()
		}
		C.tl_session_free(s.device.runtime.lib.api, s.handle)
	}
	for _, t := range s.placed {
		t.life.drop()
	}
	s.device.life.drop()
}

// Close frees the graph and its memory once its bindings are closed.
func (s *Session) Close() error {
	s.life.end()
	return nil
}

// values reads the inputs (0) or outputs (1).
func (s *Session) values(output C.int) ([]ValueInfo, error) {
	lib := s.device.runtime.lib
	var n C.size_t
	if err := lib.check("count values", C.tl_session_count(lib.api, s.handle, output, &n)); err != nil {
		return nil, err
	}
	infos := make([]ValueInfo, n)
	for i := range infos {
		if err := s.value(output, C.size_t(i), &infos[i]); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func (s *Session) value(output C.int, i C.size_t, v *ValueInfo) error {
	lib := s.device.runtime.lib
	var name *C.char
	var info *C.OrtTypeInfo
	err := lib.check("describe a value", C.tl_session_value(lib.api, s.handle, output, i, &name, &info))
	if name != nil {
		v.Name = C.GoString(name)
		err = errors.Join(err, lib.check("free a name", C.tl_string_free(lib.api, name)))
	}
	if info != nil {
		defer C.tl_type_info_free(lib.api, info)
	}
	if err != nil {
		return err
	}
	var tensor *C.OrtTensorTypeAndShapeInfo
	if err := lib.check("describe "+v.Name, C.tl_type_info_tensor(lib.api, info, &tensor)); err != nil {
		return err
	}
	if tensor == nil {
		return fmt.Errorf("%s is not a tensor", v.Name)
	}
	if v.Type, v.Shape, err = lib.describe(tensor); err != nil {
		return fmt.Errorf("describe %s: %w", v.Name, err)
	}
	return nil
}

// describe reads the type and shape of a tensor.
func (lib *library) describe(t *C.OrtTensorTypeAndShapeInfo) (models.Type, []int64, error) {
	var typ C.int
	var rank C.size_t
	if err := lib.check("read a type", C.tl_tensor_info(lib.api, t, &typ, &rank)); err != nil {
		return 0, nil, err
	}
	if typ < 0 || typ > 255 || models.Type(typ).Size() == 0 {
		return 0, nil, fmt.Errorf("its elements are of ONNX type %d, which is not supported", int(typ))
	}
	shape := make([]int64, rank)
	if rank == 0 {
		return models.Type(typ), shape, nil
	}
	return models.Type(typ), shape, lib.check("read a shape", C.tl_tensor_dims(lib.api, t, dims(shape), rank))
}

// Run runs the graph on the bound tensors. Outputs are complete on return, unless ro has SetAsync. ro may be nil.
func (s *Session) Run(b *Binding, ro *RunOptions) error {
	if b == nil || b.session != s {
		return fmt.Errorf("run %s: the binding belongs to another session", s.path)
	}
	if s.life.closed.Load() {
		return closedError("session " + s.path)
	}
	if s.device.lost.Load() {
		return fmt.Errorf("run %s: %w", s.path, ErrDeviceLost)
	}
	if !b.life.use() {
		return closedError("binding of " + s.path)
	}
	var options *C.OrtRunOptions
	if ro != nil {
		if !ro.life.use() {
			b.life.drop()
			return closedError("run options")
		}
		options = ro.handle
	}
	status := C.tl_run(s.device.runtime.lib.api, s.handle, options, b.handle)
	if ro != nil {
		ro.life.drop()
	}
	b.life.drop()
	if status == nil {
		return nil
	}
	return s.device.failure(s.device.runtime.lib.check("run "+s.path, status))
}

// onThread keeps the goroutine on a thread that may work on the GPU while another one captures a graph, until done is called.
func (d *Device) onThread() (done func()) {
	runtime.LockOSThread()
	C.tl_cuda_thread(d.cuda, C.int(d.index))
	return runtime.UnlockOSThread
}

// failure marks an error of ONNX Runtime that lost the device.
func (d *Device) failure(err error) error {
	if err != nil && d.probe() {
		return asLost(err)
	}
	return err
}
