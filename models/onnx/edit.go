package onnx

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Metadata reads the notes of a model: texts by name.
func Metadata(b []byte) (map[string]string, error) {
	notes := map[string]string{}
	err := messages(b, modelMetadata, func(entry []byte) error {
		key, value, err := readEntry(entry)
		notes[key] = value
		return err
	})
	return notes, err
}

// Replace returns a model with other constants of the same names, and with other outputs, in place of its own. Metadata and the shapes
// of inner values are left out.
func Replace(b []byte, constants []Tensor, outputs []Value) ([]byte, error) {
	changed := map[string]*Tensor{}
	for i := range constants {
		if err := constants[i].validate(); err != nil {
			return nil, err
		}
		changed[constants[i].Name] = &constants[i]
	}
	return copyFields(b, func(number protowire.Number, graph []byte) ([]byte, bool, error) {
		if number != modelGraph {
			return nil, number == modelMetadata, nil
		}
		g, err := copyFields(graph, func(number protowire.Number, content []byte) ([]byte, bool, error) {
			if number != graphInitializer {
				return nil, number == graphOutput || number == graphValueInfo, nil
			}
			old, err := readTensor(content)
			if t := changed[old.Name]; err == nil && t != nil {
				return appendMessage(nil, graphInitializer, appendTensor(nil, t)), true, nil
			}
			return nil, false, err
		})
		for _, v := range outputs {
			g = appendMessage(g, graphOutput, appendValue(v))
		}
		return appendMessage(nil, modelGraph, g), true, err
	})
}

// copyFields copies a message. edit returns what replaces a field, if anything, and whether the field is left out. content is that of
// messages and texts.
func copyFields(b []byte, edit func(number protowire.Number, content []byte) (instead []byte, drop bool, err error)) ([]byte, error) {
	var out []byte
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errWire
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return nil, errWire
		}
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(b[n:])
		}
		instead, drop, err := edit(number, content)
		if err != nil {
			return nil, err
		}
		if !drop {
			instead = b[:n+size]
		}
		out, b = append(out, instead...), b[n+size:]
	}
	return out, nil
}
