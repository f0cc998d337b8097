package schema

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Validate returns the first place where a JSON value differs from a JSON schema,
// as a JSON pointer. It ignores maxLength, since a reader can cut a text, and
// keywords that Parse does not support.
func Validate(schema, value []byte) error {
	if value = bytes.TrimSpace(value); !json.Valid(value) {
		return place{}.errorf("expected JSON, got %.40q", value)
	}
	return place{}.validate(schema, value)
}

// rules are the keywords of a schema that are checked.
type rules struct {
	Type       string                     `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	More       *bool                      `json:"additionalProperties"`
	Items      json.RawMessage            `json:"items"`
	MaxItems   *int                       `json:"maxItems"`
	Minimum    *int64                     `json:"minimum"`
	Maximum    *int64                     `json:"maximum"`
}

func (p place) validate(schema, value json.RawMessage) error {
	if p.depth > maxDepth {
		return p.errorf("nested deeper than %d; flatten the schema", maxDepth)
	}
	var s rules
	if json.Unmarshal(schema, &s) != nil {
		return nil //nolint:nilerr // a schema of another dialect says nothing
	}
	if len(s.Enum) > 0 {
		got, _ := scalar(value)
		if !slices.ContainsFunc(s.Enum, func(v json.RawMessage) bool { text, _ := scalar(v); return text != "" && text == got }) {
			return p.errorf("expected one of %s, got %.40s", s.Enum, value)
		}
		return nil
	}
	switch s.Type {
	case "object":
		return p.validateObject(s, value)
	case "array":
		return p.validateArray(s, value)
	case "string":
		if value[0] != '"' {
			return p.errorf("expected a string, got %.40s", value)
		}
	case "boolean":
		if value[0] != 't' && value[0] != 'f' {
			return p.errorf("expected true or false, got %.40s", value)
		}
	case "integer":
		var n int64
		if json.Unmarshal(value, &n) != nil || value[0] == 'n' {
			return p.errorf("expected an integer, got %.40s", value)
		}
		if s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum {
			return p.errorf("integer %d is out of the bounds", n)
		}
	}
	return nil
}

func (p place) validateObject(s rules, value json.RawMessage) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil || object == nil {
		return p.errorf("expected an object, got %.40s", value)
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return p.errorf("expected the property %q", name)
		}
	}
	for name, v := range object {
		of, known := s.Properties[name]
		switch {
		case known:
			if err := p.in(name).validate(of, v); err != nil {
				return err
			}
		case s.More != nil && !*s.More:
			return p.errorf("unexpected property %.40q", name)
		}
	}
	return nil
}

func (p place) validateArray(s rules, value json.RawMessage) error {
	var array []json.RawMessage
	if json.Unmarshal(value, &array) != nil || array == nil {
		return p.errorf("expected an array, got %.40s", value)
	}
	if s.MaxItems != nil && len(array) > *s.MaxItems {
		return p.errorf("expected at most %d items, got %d", *s.MaxItems, len(array))
	}
	for _, v := range array {
		if err := p.in("items").validate(s.Items, v); err != nil {
			return err
		}
	}
	return nil
}
