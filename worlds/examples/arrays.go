package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Types of numbers, as numpy names them.
const (
	typeBool    = "|b1"
	typeInt8    = "|i1"
	typeInt16   = "<i2"
	typeInt64   = "<i8"
	typeFloat32 = "<f4"
)

// array is one of numbers, of which Python makes a numpy array.
type array struct {
	Type  string `json:"type"`
	Shape []int  `json:"shape"`

	bytes []byte
}

// number is what arrays hold.
type number interface {
	bool | int8 | int16 | int64 | float32
}

// newArray is an array of values of a type.
func newArray[T number](kind string, values []T, shape ...int) (array, error) {
	bytes, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		return array{}, fmt.Errorf("write an array of %s: %w", kind, err)
	}
	return array{kind, shape, bytes}, nil
}

// message is a header in a line of JSON, and arrays.
type message struct {
	*tables // in their mode
	*window // in the mode "batches"

	Arrays []array `json:"arrays"`
}

// window is what a batch is of.
type window struct {
	Pictures int  `json:"pictures"` // in each window
	Reading  bool `json:"reading"`  // it has texts
}

// write writes the header and the arrays.
func (m message) write(w io.Writer) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write a header: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	for _, a := range m.Arrays {
		if err == nil {
			_, err = w.Write(a.bytes)
		}
	}
	return err
}
