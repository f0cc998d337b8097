package onnx

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Validate checks what every ONNX file must fulfil, whatever its operators
// are: names are unique, a value is made before it is used, domains are
// imported, and a constant has as many bytes as its shape says.
func (m *Model) Validate() error {
	domains := map[string]bool{}
	for _, o := range m.Opsets {
		domains[o.Domain] = true
	}
	g := &m.Graph
	made := map[string]bool{}
	define := func(kind, name string) error {
		if name == "" {
			return fmt.Errorf("%s: expected a name, has none", kind)
		}
		if made[name] {
			return fmt.Errorf("%s %q: the name is taken", kind, name)
		}
		made[name] = true
		return nil
	}
	for _, v := range g.Inputs {
		if err := define("input", v.Name); err != nil {
			return err
		}
	}
	for i := range g.Initializers {
		t := &g.Initializers[i]
		if err := define("constant", t.Name); err != nil {
			return err
		}
		if err := t.validate(); err != nil {
			return fmt.Errorf("constant %q: %w", t.Name, err)
		}
	}
	nodes := map[string]bool{}
	for _, n := range g.Nodes {
		if n.Name == "" || nodes[n.Name] {
			return fmt.Errorf("node %q (%s): expected a name of its own", n.Name, n.Op)
		}
		nodes[n.Name] = true
		if !domains[n.Domain] {
			return fmt.Errorf("node %q: the domain %q is not imported", n.Name, n.Domain)
		}
		for _, in := range n.Inputs {
			if in != "" && !made[in] {
				return fmt.Errorf("node %q: its input %q is not made before it", n.Name, in)
			}
		}
		for _, out := range n.Outputs {
			if out == "" {
				continue
			}
			if err := define("value", out); err != nil {
				return fmt.Errorf("node %q: %w", n.Name, err)
			}
		}
	}
	for _, v := range g.Outputs {
		if !made[v.Name] {
			return fmt.Errorf("output %q: no node makes it", v.Name)
		}
	}
	return nil
}

// validate checks that the size of the bytes fits the shape.
func (t *Tensor) validate() error {
	want := int64(t.Type.Size())
	if want == 0 {
		return fmt.Errorf("expected an element type of this package, is %d", t.Type)
	}
	for _, d := range t.Shape {
		if d < 0 || d > 0 && want > (1<<62)/d {
			return fmt.Errorf("shape %v is out of range", t.Shape)
		}
		want *= d
	}
	e := t.External
	if e == nil {
		if int64(len(t.Raw)) != want {
			return fmt.Errorf("shape %v needs %d bytes, has %d", t.Shape, want, len(t.Raw))
		}
		return nil
	}
	if !filepath.IsLocal(e.Location) {
		return fmt.Errorf("expected a file beside the model, is %q", e.Location)
	}
	if e.Offset < 0 || e.Length > (1<<62)-e.Offset {
		return errors.New("offset and length are out of range")
	}
	if e.Length != want {
		return fmt.Errorf("shape %v needs %d bytes, has %d", t.Shape, want, e.Length)
	}
	return nil
}
