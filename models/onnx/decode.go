package onnx

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"touchline/models"
)

// errWire is returned for invalid protocol buffers.
var errWire = errors.New("not an ONNX file, or damaged or truncated")

// Constants reads the constants of a model in the order of the file. The tensors are not
// validated and share memory with b.
func Constants(b []byte) ([]Tensor, error) {
	var tensors []Tensor
	graphs := 0
	err := messages(b, modelGraph, func(graph []byte) error {
		graphs++
		return messages(graph, graphInitializer, func(b []byte) error {
			t, err := readTensor(b)
			tensors = append(tensors, t)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if graphs != 1 {
		return nil, fmt.Errorf("expected one graph in the ONNX file, got %d", graphs)
	}
	return tensors, nil
}

// Places returns the places of a model's constants that are in data files, in the order of Constants.
func Places(b []byte) ([]models.Tensor, error) {
	constants, err := Constants(b)
	if err != nil {
		return nil, err
	}
	var places []models.Tensor
	for _, w := range constants {
		if w.External == nil {
			continue
		}
		t := models.Tensor{Name: w.Name, File: w.External.Location, Offset: w.External.Offset, Type: w.Type, Shape: w.Shape}
		if w.External.Length != t.Bytes() {
			return nil, fmt.Errorf("%s has %d bytes for %d numbers of type %s", t.Name, w.External.Length, t.Shape, t.Type)
		}
		places = append(places, t)
	}
	return places, nil
}

func readTensor(b []byte) (t Tensor, err error) {
	var external External
	err = fields(b, func(f field) error {
		switch f.number {
		case tensorDims:
			return f.appendInts(&t.Shape)
		case tensorDataType:
			if f.value > math.MaxUint8 {
				return fmt.Errorf("element type %d is not supported", f.value)
			}
			t.Type = models.Type(f.value)
		case tensorName:
			t.Name = string(f.bytes)
		case tensorRaw:
			t.Raw = f.bytes
		case tensorExternal:
			return external.read(f.bytes)
		case tensorLocation:
			if f.value == locationExternal {
				t.External = &external
			}
		}
		return nil
	})
	return t, err
}

// read sets the field of an entry of TensorProto.external_data.
func (e *External) read(b []byte) error {
	key, value, err := readEntry(b)
	if err != nil {
		return err
	}
	switch key {
	case keyLocation:
		e.Location = value
	case keyOffset:
		e.Offset, err = strconv.ParseInt(value, 10, 64)
	case keyLength:
		e.Length, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("external data: %s: expected a number, got %q", key, value)
	}
	return nil
}

// readEntry reads a StringStringEntryProto.
func readEntry(b []byte) (key, value string, err error) {
	err = fields(b, func(f field) error {
		switch f.number {
		case entryKey:
			key = string(f.bytes)
		case entryValue:
			value = string(f.bytes)
		}
		return nil
	})
	return key, value, err
}

// field is one encoded field of a message.
type field struct {
	number int
	value  uint64 // of numbers
	bytes  []byte // of messages, strings and lists; nil for numbers
}

// fields calls do for every field of a message.
func fields(b []byte, do func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		f := field{number: int(number)}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return errWire
		}
		switch kind {
		case protowire.VarintType:
			f.value, _ = protowire.ConsumeVarint(b[n:])
		case protowire.Fixed32Type:
			x, _ := protowire.ConsumeFixed32(b[n:])
			f.value = uint64(x)
		case protowire.BytesType:
			f.bytes, _ = protowire.ConsumeBytes(b[n:])
		default: // a field that this package does not use
		}
		if err := do(f); err != nil {
			return err
		}
		b = b[n+size:]
	}
	return nil
}

// messages calls do for every field of that number, which must be a message.
func messages(b []byte, number int, do func(b []byte) error) error {
	return fields(b, func(f field) error {
		if f.number != number {
			return nil
		}
		if f.bytes == nil {
			return errWire
		}
		return do(f.bytes)
	})
}

// appendInts appends one number or a packed list.
func (f field) appendInts(to *[]int64) error {
	if f.bytes == nil {
		*to = append(*to, int64(f.value)) //nolint:gosec // the same bits
		return nil
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return errWire
		}
		*to, b = append(*to, int64(v)), b[n:] //nolint:gosec // the same bits
	}
	return nil
}
