package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// node is a schema as it was read.
type node struct {
	Type       string           `json:"type"`
	Properties map[string]*node `json:"properties"`
	Required   []string         `json:"required"`
	More       *bool            `json:"additionalProperties"`
	Items      *node            `json:"items"`
	MaxItems   int              `json:"maxItems"`
	MaxLength  int              `json:"maxLength"`
	Minimum    int              `json:"minimum"`
	Maximum    int              `json:"maximum"`
}

const maxInteger = 1000

// Parse reads a JSON schema with exactly these keywords, all required:
//
//	{"type": "object", "properties": {...}, "required": [...], "additionalProperties": false}    all properties are required
//	{"type": "array", "items": {...}, "maxItems": n}                                             not in another array
//	{"type": "string", "maxLength": n}                                                           n characters
//	{"type": "integer", "minimum": n, "maximum": n}                                              from 1 to 1000
//
// The error names any other keyword or type.
func Parse(raw []byte) (*Schema, error) {
	s := &Schema{}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("schema: expected JSON, got %.40q", raw)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&s.root)
	if err == nil {
		err = s.add(&s.root, false)
	}
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s.ops = append(s.ops, op{kind: opEnd})
	for i := len(s.ops) - 2; i >= 0; i-- {
		s.ops[i].rest = s.closing(&state{op: i})
	}
	return s, nil
}

// add appends the ops of a schema.
func (s *Schema) add(n *node, inArray bool) error {
	switch n.Type {
	case "object":
		return s.addObject(n, inArray)
	case "array":
		if inArray || n.Items == nil || n.MaxItems < 1 {
			return errors.New("an array needs items and maxItems, and cannot be in another array")
		}
		s.literal("[")
		start := len(s.ops)
		s.ops = append(s.ops, op{kind: opItems})
		if err := s.add(n.Items, true); err != nil {
			return err
		}
		s.ops = append(s.ops, op{kind: opItemEnd, most: n.MaxItems, jump: start + 1})
		s.ops[start].jump = len(s.ops)
	case "string":
		if n.MaxLength < 1 {
			return errors.New("a string needs maxLength")
		}
		s.literal(`"`)
		s.ops = append(s.ops, op{kind: opText, most: n.MaxLength})
	case "integer":
		if n.Minimum < 1 || n.Maximum < n.Minimum || n.Maximum > maxInteger {
			return fmt.Errorf("an integer needs minimum and maximum, from 1 to %d", maxInteger)
		}
		o := op{kind: opChoice}
		for v := n.Minimum; v <= n.Maximum; v++ {
			o.texts = append(o.texts, strconv.Itoa(v))
		}
		s.ops = append(s.ops, o)
	default:
		return fmt.Errorf("type %q is not supported; use object, array, string or integer", n.Type)
	}
	return nil
}

func (s *Schema) addObject(n *node, inArray bool) error {
	if n.More == nil || *n.More || len(n.Required) != len(n.Properties) {
		return errors.New("an object needs properties, all of them required, and additionalProperties false")
	}
	s.literal("{")
	for i, name := range n.Required {
		p := n.Properties[name]
		if p == nil || slices.Contains(n.Required[:i], name) {
			return fmt.Errorf("required property %q: must be one of the properties, once", name)
		}
		if i > 0 {
			s.literal(",")
		}
		key, _ := json.Marshal(name) // a string cannot fail
		s.literal(string(key) + ":")
		if err := s.add(p, inArray); err != nil {
			return fmt.Errorf("property %q: %w", name, err)
		}
	}
	s.literal("}")
	return nil
}

// literal adds fixed bytes.
func (s *Schema) literal(text string) {
	if n := len(s.ops); n > 0 && len(s.ops[n-1].texts) == 1 {
		s.ops[n-1].texts[0] += text
		return
	}
	s.ops = append(s.ops, op{kind: opChoice, texts: []string{text}})
}

// Validate returns the first place where a JSON value differs from the schema, as a JSON pointer. Whitespace and the order of
// properties are free. It ignores maxLength, since a reader can cut a text.
func (s *Schema) Validate(value []byte) error {
	if value = bytes.TrimSpace(value); !json.Valid(value) {
		return fault("", "expected JSON, got %.40q", value)
	}
	return s.root.validate("", value)
}

// fault returns the error of a place, which is a JSON pointer.
func fault(at, format string, args ...any) error {
	return fmt.Errorf("schema: at %s: %w", cmp.Or(at, "the root"), fmt.Errorf(format, args...))
}

func (n *node) validate(at string, value json.RawMessage) error {
	switch n.Type {
	case "object":
		return n.validateObject(at, value)
	case "array":
		var array []json.RawMessage
		if json.Unmarshal(value, &array) != nil || array == nil {
			return fault(at, "expected an array, got %.40s", value)
		}
		if len(array) > n.MaxItems {
			return fault(at, "expected at most %d items, got %d", n.MaxItems, len(array))
		}
		for _, v := range array {
			if err := n.Items.validate(at+"/items", v); err != nil {
				return err
			}
		}
	case "string":
		if value[0] != '"' {
			return fault(at, "expected a string, got %.40s", value)
		}
	case "integer":
		var v int
		if json.Unmarshal(value, &v) != nil || value[0] == 'n' {
			return fault(at, "expected an integer, got %.40s", value)
		}
		if v < n.Minimum || v > n.Maximum {
			return fault(at, "integer %d is out of the bounds", v)
		}
	}
	return nil
}

func (n *node) validateObject(at string, value json.RawMessage) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil || object == nil {
		return fault(at, "expected an object, got %.40s", value)
	}
	for _, name := range n.Required {
		if _, ok := object[name]; !ok {
			return fault(at, "expected the property %q", name)
		}
	}
	for name, v := range object {
		p, known := n.Properties[name]
		if !known {
			return fault(at, "unexpected property %.40q", name)
		}
		if err := p.validate(at+"/"+name, v); err != nil {
			return err
		}
	}
	return nil
}
