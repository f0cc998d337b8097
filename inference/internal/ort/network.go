package ort

import (
	"errors"

	"touchline/models"
)

// Network is a graph on the CPU with a runtime of its own. Safe for concurrent use.
type Network struct {
	runtime *Runtime
	device  *Device
	session *Session
}

// OpenNetwork loads a graph with an ONNX Runtime: its file, its folder, or "" to search.
func OpenNetwork(library, file string, o SessionOptions) (*Network, error) {
	n := &Network{}
	var err error
	if n.runtime, err = Open(library); err == nil {
		n.device, err = n.runtime.NewDevice(CPU, 0)
	}
	if err == nil {
		n.session, err = n.runtime.NewSession(file, n.device, o)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close frees the network after its calls.
func (n *Network) Close() error {
	var errs []error
	if n.session != nil {
		errs = append(errs, n.session.Close())
	}
	if n.device != nil {
		errs = append(errs, n.device.Close())
	}
	if n.runtime != nil {
		errs = append(errs, n.runtime.Close())
	}
	return errors.Join(errs...)
}

// Call has the tensors of one run at a time, in host memory.
type Call struct {
	network *Network
	binding *Binding
	tensors []*Tensor
}

// NewCall returns a call without tensors.
func (n *Network) NewCall() (*Call, error) {
	b, err := n.session.NewBinding()
	return &Call{network: n, binding: b}, err
}

// Input binds a new tensor to an input and returns its numbers, which are 0.
func Input[T Element](c *Call, name string, shape ...int64) ([]T, error) {
	return bind[T](c, (*Binding).BindInput, name, shape)
}

// Output is Input for an output.
func Output[T Element](c *Call, name string, shape ...int64) ([]T, error) {
	return bind[T](c, (*Binding).BindOutput, name, shape)
}

func bind[T Element](c *Call, to func(*Binding, string, *Tensor) error, name string, shape []int64) ([]T, error) {
	kind, zero := models.Float32, any(T(0))
	switch zero.(type) {
	case uint16:
		kind = models.Float16
	case int32:
		kind = models.Int32
	case int64:
		kind = models.Int64
	}
	t, err := c.network.device.NewHostTensor(kind, shape...)
	if err != nil {
		return nil, err
	}
	c.tensors = append(c.tensors, t)
	if err := to(c.binding, name, t); err != nil {
		return nil, err
	}
	data, err := Data[T](t)
	clear(data)
	return data, err
}

// Run runs the network on the tensors.
func (c *Call) Run() error { return c.network.session.Run(c.binding, nil) }

// Close frees the tensors.
func (c *Call) Close() error {
	var errs []error
	if c.binding != nil {
		errs = append(errs, c.binding.Close())
	}
	for _, t := range c.tensors {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}
