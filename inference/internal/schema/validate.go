package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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
	if at == "" {
		at = "the root"
	}
	return fmt.Errorf("schema: at %s: %w", at, fmt.Errorf(format, args...))
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
