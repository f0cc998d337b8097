package onnx

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Validate checks the rules that do not depend on operators: names are unique,
// values are computed before use, domains are imported, and the size of each
// constant matches its shape.
func (m *Model) Validate() error {
	domains := map[string]bool{}
	for _, o := range m.Opsets {
		domains[o.Domain] = true
	}
	g := &m.Graph
	made := map[string]bool{}
	define := func(kind, name string) error {
		if name == "" {
			return fmt.Errorf("%s without a name", kind)
		}
		if made[name] {
			return fmt.Errorf("%s %q: duplicate name", kind, name)
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
			return fmt.Errorf("node %q (%s): the name must be unique and not empty", n.Name, n.Op)
		}
		nodes[n.Name] = true
		if !domains[n.Domain] {
			return fmt.Errorf("node %q: the domain %q is not imported", n.Name, n.Domain)
		}
		for _, in := range n.Inputs {
			if in != "" && !made[in] {
				return fmt.Errorf("node %q: no earlier node computes the input %q", n.Name, in)
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
	for _, v := range slices.Concat(g.Outputs, g.Inner) {
		if !made[v.Name] {
			return fmt.Errorf("output or shape %q: no node computes it", v.Name)
		}
	}
	return nil
}

// validate compares the number of bytes with the shape.
func (t *Tensor) validate() error {
	want := int64(t.Type.Size())
	if want == 0 {
		return fmt.Errorf("element type %d is not supported", t.Type)
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
		return fmt.Errorf("%q is not a file in the model's folder", e.Location)
	}
	if e.Offset < 0 || e.Length > (1<<62)-e.Offset {
		return errors.New("offset and length are out of range")
	}
	if e.Length != want {
		return fmt.Errorf("shape %v needs %d bytes, has %d", t.Shape, want, e.Length)
	}
	return nil
}
