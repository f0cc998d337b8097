// Package tfjs reads graph models of TensorFlow.js and converts the part of a graph between an input and some outputs to ONNX.
package tfjs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
)

// Limits of a model.
const (
	maxNumbers = 1 << 30 // of a shape
	maxNodes   = 10_000
)

// Model is a graph with its weights.
type Model struct {
	nodes   map[string]*node
	tensors map[string]*Tensor
}

// Tensor is a constant: Floats or Ints has its numbers.
type Tensor struct {
	Shape  []int64
	Floats []float32
	Ints   []int64
}

// node is one operation.
type node struct {
	Name  string               `json:"name"`
	Op    string               `json:"op"`
	Input []string             `json:"input"`
	Attr  map[string]attribute `json:"attr"`
}

// attribute is a setting of a node. Only the fields that a conversion reads are here.
type attribute struct {
	Text  text    `json:"s"`
	Int   integer `json:"i"`
	Float float64 `json:"f"`
	List  struct {
		Ints []integer `json:"i"`
	} `json:"list"`
}

// integer is written as a number or as a string.
type integer int64

// UnmarshalJSON reads both forms.
func (i *integer) UnmarshalJSON(b []byte) error {
	return json.Unmarshal([]byte(strings.Trim(string(b), `"`)), (*int64)(i))
}

// text is written in base64, in older files as a list of bytes.
type text string

// UnmarshalJSON reads both forms.
func (t *text) UnmarshalJSON(b []byte) error {
	var coded []byte
	err := json.Unmarshal(b, &coded)
	if err != nil {
		var list []uint16 // []uint8 would be read as base64
		if json.Unmarshal(b, &list) != nil {
			return err
		}
		for _, c := range list {
			if c > math.MaxUint8 {
				return fmt.Errorf("text as a list of bytes: %d is no byte", c)
			}
			coded = append(coded, byte(c))
		}
	}
	*t = text(coded)
	return nil
}

// file is model.json.
type file struct {
	Topology struct {
		Nodes []*node `json:"node"`
	} `json:"modelTopology"`
	Manifest []group `json:"weightsManifest"`
}

// group is a run of weights in one or more files.
type group struct {
	Paths   []string `json:"paths"`
	Weights []struct {
		Name         string          `json:"name"`
		Shape        []int64         `json:"shape"`
		Type         string          `json:"dtype"`
		Quantization json.RawMessage `json:"quantization"`
	} `json:"weights"`
}

// Read reads model.json and the files of weights in its folder; open returns a file by its name.
func Read(open func(name string) ([]byte, error), name string) (*Model, error) {
	b, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("read TensorFlow.js model: %w", err)
	}
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("read TensorFlow.js model: %s: %w", name, err)
	}
	m := &Model{nodes: map[string]*node{}, tensors: map[string]*Tensor{}}
	if n := len(f.Topology.Nodes); n == 0 || n > maxNodes {
		return nil, fmt.Errorf("read TensorFlow.js model: %s: modelTopology.node: expected 1 to %d nodes, got %d", name, maxNodes, n)
	}
	for i, n := range f.Topology.Nodes {
		if n == nil || n.Name == "" || m.nodes[n.Name] != nil {
			return nil, fmt.Errorf("read TensorFlow.js model: %s: node %d: the name must be unique and not empty", name, i)
		}
		m.nodes[n.Name] = n
	}
	for i, g := range f.Manifest {
		if err := m.readGroup(open, path.Dir(name), g); err != nil {
			return nil, fmt.Errorf("read TensorFlow.js model: %s: weightsManifest[%d]: %w", name, i, err)
		}
	}
	return m, nil
}

// Tensor returns a constant.
func (m *Model) Tensor(name string) (*Tensor, error) {
	t := m.tensors[name]
	if t == nil {
		return nil, fmt.Errorf("the model has no constant %q", name)
	}
	return t, nil
}

func (m *Model) readGroup(open func(name string) ([]byte, error), folder string, g group) error {
	var raw []byte
	for _, p := range g.Paths {
		b, err := open(path.Join(folder, p))
		if err != nil {
			return err
		}
		raw = append(raw, b...)
	}
	for _, w := range g.Weights {
		if len(w.Quantization) > 0 || w.Type != "float32" && w.Type != "int32" {
			return fmt.Errorf("weight %q: expected plain float32 or int32, got %s %s", w.Name, w.Type, w.Quantization)
		}
		count := int64(1)
		for _, d := range w.Shape {
			if d < 0 || d > 0 && count > maxNumbers/d {
				return fmt.Errorf("weight %q: shape %v is out of range", w.Name, w.Shape)
			}
			count *= d
		}
		if 4*count > int64(len(raw)) {
			return fmt.Errorf("weight %q: shape %v needs %d bytes, the files have %d left", w.Name, w.Shape, 4*count, len(raw))
		}
		if m.tensors[w.Name] != nil {
			return fmt.Errorf("weight %q: duplicate name", w.Name)
		}
		t := &Tensor{Shape: w.Shape}
		for i := range count {
			bits := binary.LittleEndian.Uint32(raw[4*i:])
			if w.Type == "float32" {
				t.Floats = append(t.Floats, math.Float32frombits(bits))
			} else {
				t.Ints = append(t.Ints, int64(int32(bits))) //nolint:gosec // the same bits
			}
		}
		m.tensors[w.Name], raw = t, raw[4*count:]
	}
	if len(raw) > 0 {
		return fmt.Errorf("the files have %d bytes more than the weights need", len(raw))
	}
	return nil
}
