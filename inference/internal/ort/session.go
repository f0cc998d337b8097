package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// ValueInfo describes an input or output of a graph.
type ValueInfo struct {
	Name string
	Type Type
	// Shape has -1 where the size is free.
	Shape []int64
	// Names has the name of each free size, if the graph gives one.
	Names []string
}

// Session is a loaded graph on a device.
type Session struct {
	life    life
	device  *Device
	packed  *Prepacked
	path    string
	handle  *C.OrtSession
	inputs  []ValueInfo
	outputs []ValueInfo
}

// NewSession loads a graph file, with the data files beside it that it names. On CUDA all nodes that the GPU can do run on the device's
// stream.
func (r *Runtime) NewSession(path string, d *Device, o SessionOptions) (*Session, error) {
	if d.runtime.lib != r.lib {
		return nil, fmt.Errorf("load %s: the device belongs to another runtime", path)
	}
	op := "load " + path
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: %w", op, unwrapPath(err))
	}
	if err := d.begin(op); err != nil {
		return nil, err
	}
	s := &Session{device: d, path: path}
	if o.Prepacked != nil {
		if !o.Prepacked.life.use() {
			d.life.drop()
			return nil, closedError("container for weights")
		}
		s.packed = o.Prepacked
	}
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
	path := C.CString(s.path)
	defer freeString(path)
	var packed *C.OrtPrepackedWeightsContainer
	if s.packed != nil {
		packed = s.packed.handle
	}
	if err := s.device.failure(lib.check(op, C.tl_session(lib.api, lib.env, path, options, packed, &s.handle))); err != nil {
		return err
	}
	if s.inputs, err = s.values(0); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if s.outputs, err = s.values(1); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (s *Session) free() {
	if s.handle != nil {
		C.tl_session_free(s.device.runtime.lib.api, s.handle)
	}
	if s.packed != nil {
		s.packed.life.drop()
	}
	s.device.life.drop()
}

// Close gives the graph and its memory back, once its bindings and the outputs that it allocated are closed.
func (s *Session) Close() error {
	s.life.end()
	return nil
}

// Path is the file that was loaded.
func (s *Session) Path() string { return s.path }

// Device is where the session runs.
func (s *Session) Device() *Device { return s.device }

// Inputs describes the inputs in the order of the graph.
func (s *Session) Inputs() []ValueInfo { return slices.Clone(s.inputs) }

// Outputs describes the outputs in the order of the graph.
func (s *Session) Outputs() []ValueInfo { return slices.Clone(s.outputs) }

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
		return fmt.Errorf("%s is no tensor", v.Name)
	}
	var names []*C.char
	v.Type, v.Shape, names, err = lib.describe(tensor, true)
	if err != nil {
		return fmt.Errorf("describe %s: %w", v.Name, err)
	}
	for _, n := range names {
		v.Names = append(v.Names, C.GoString(n))
	}
	return nil
}

// describe reads type, shape and, if asked, the names of free sizes, which belong to t.
func (lib *library) describe(t *C.OrtTensorTypeAndShapeInfo, named bool) (Type, []int64, []*C.char, error) {
	var typ C.int
	var rank C.size_t
	if err := lib.check("read a type", C.tl_tensor_info(lib.api, t, &typ, &rank)); err != nil {
		return 0, nil, nil, err
	}
	if typ < 0 || typ > 255 || Type(typ).Size() == 0 {
		return 0, nil, nil, fmt.Errorf("its elements are of ONNX type %d, which this package does not know", int(typ))
	}
	shape := make([]int64, rank)
	var names []*C.char
	var first **C.char
	if rank > 0 && named {
		names = make([]*C.char, rank)
		first = &names[0]
	}
	if rank > 0 {
		if err := lib.check("read a shape", C.tl_tensor_dims(lib.api, t, dims(shape), first, rank)); err != nil {
			return 0, nil, nil, err
		}
	}
	return Type(typ), shape, names, nil
}

// Run runs the graph on what is bound. Outputs are complete when it returns, unless ro has SetAsync. A nil ro means none.
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

// failure finds out whether an error of ONNX Runtime means that the device is dead.
func (d *Device) failure(err error) error {
	if err != nil && d.probe() {
		return asLost(err)
	}
	return err
}
