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

// array is an array of numbers, which Python reads as a numpy array.
type array struct {
	Type  string `json:"type"`
	Shape []int  `json:"shape"`

	bytes []byte
}

// number is a type of an array's values.
type number interface {
	bool | int8 | int16 | int64 | float32
}

func newArray[T number](kind string, values []T, shape ...int) (array, error) {
	bytes, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		return array{}, fmt.Errorf("write an array of %s: %w", kind, err)
	}
	return array{kind, shape, bytes}, nil
}

// message is a header as a line of JSON, followed by arrays.
type message struct {
	*tables // in the mode tables
	*window // in the mode batches

	Arrays []array `json:"arrays"`
}

// window describes the windows of a batch.
type window struct {
	Pictures int  `json:"pictures"` // per window
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
