package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"touchline/models"
)

// entry is a tensor's description in the header.
type entry struct {
	name       string
	dtype      string
	shape      []int
	begin, end uint64
}

// dtypes has the size of an element in bytes of each known dtype, and its type in
// package models, or 0 if that lacks it.
//
//nolint:gochecknoglobals // a table
var dtypes = map[string]struct {
	t    models.Type
	size uint64
}{
	"F32": {models.Float32, 4}, "F16": {models.Float16, 2}, "BF16": {models.BFloat16, 2},
	"I64": {models.Int64, 8}, "I32": {models.Int32, 4}, "U8": {models.Uint8, 1}, "I8": {models.Int8, 1},
	"F64": {0, 8}, "U64": {0, 8}, "C64": {0, 8}, "U32": {0, 4}, "I16": {0, 2}, "U16": {0, 2},
	"BOOL": {0, 1}, "F8_E4M3": {0, 1}, "F8_E5M2": {0, 1}, "F8_E8M0": {0, 1},
}

// dtypeOf returns the dtype of a type of package models.
func dtypeOf(t models.Type) (string, bool) {
	for dtype, e := range dtypes {
		if e.t == t && t != 0 {
			return dtype, true
		}
	}
	return "", false
}

func parse(name string, content []byte) (*File, error) {
	if len(content) < 8 {
		return nil, fmt.Errorf("%s: truncated: expected at least 8 bytes, got %d", name, len(content))
	}
	n := binary.LittleEndian.Uint64(content)
	if n > MaxHeader {
		return nil, fmt.Errorf("%s: header length: expected at most %d bytes, got %d: not a safetensors file?", name, MaxHeader, n)
	}
	if n > uint64(len(content)-8) { //nolint:gosec // not negative
		return nil, fmt.Errorf("%s: truncated: expected a header of %d bytes, got %d", name, n, len(content)-8)
	}
	f := &File{name: name, data: content[8+n:], tensors: map[string]Tensor{}}
	entries, err := f.header(content[8 : 8+n])
	if err != nil {
		return nil, fmt.Errorf("%s: header: %w", name, err)
	}
	if err := f.place(entries); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// header parses the JSON. Unlike encoding/json it refuses repeated names and text
// after the end.
func (f *File) header(text []byte) ([]entry, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	var entries []entry
	seen := map[string]bool{}
	err := object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("tensor %q: duplicate name", key)
		}
		seen[key] = true
		if key == "__metadata__" {
			return f.readMetadata(d)
		}
		e, err := readEntry(d, key)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if rest := bytes.Trim(text[d.InputOffset():], " \n\r\t"); len(rest) != 0 {
		return nil, fmt.Errorf("%d bytes after the end of the JSON", len(rest))
	}
	return entries, nil
}

// object reads a JSON object. It calls value for each key; value must consume the
// key's value.
func object(d *json.Decoder, value func(key string) error) error {
	t, err := d.Token()
	if err != nil {
		return fmt.Errorf("expected a JSON object: %w", err)
	}
	if t != json.Delim('{') {
		return fmt.Errorf("expected a JSON object, got %v", t)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("expected a key, got %v", t)
		}
		if err := value(key); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

func (f *File) readMetadata(d *json.Decoder) error {
	f.metadata = map[string]string{}
	return object(d, func(key string) error {
		if _, ok := f.metadata[key]; ok {
			return fmt.Errorf("__metadata__: duplicate key %q", key)
		}
		var s string
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("__metadata__: %q: expected text: %w", key, err)
		}
		f.metadata[key] = s
		return nil
	})
}

func readEntry(d *json.Decoder, name string) (entry, error) {
	e := entry{name: name}
	var shape, offsets []uint64
	seen := map[string]bool{}
	err := object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("%s: duplicate field", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "dtype":
			err = d.Decode(&e.dtype)
		case "shape":
			err = d.Decode(&shape)
		case "data_offsets":
			err = d.Decode(&offsets)
		default:
			return fmt.Errorf("unknown field %q", key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	for _, field := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[field] {
			return e, fmt.Errorf("%s: missing", field)
		}
	}
	if e.dtype == "" {
		return e, errors.New("dtype: empty")
	}
	if len(offsets) != 2 {
		return e, fmt.Errorf("data_offsets: expected 2 numbers, got %d", len(offsets))
	}
	if shape == nil {
		return e, errors.New("shape: expected a list, got null")
	}
	if len(shape) > maxDims {
		return e, fmt.Errorf("shape: expected at most %d dimensions, got %d", maxDims, len(shape))
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, e.checkSize(shape)
}

// checkSize compares the shape with the offsets.
func (e *entry) checkSize(shape []uint64) error {
	if e.begin > e.end {
		return fmt.Errorf("data_offsets: the end %[2]d is before the start %[1]d", e.begin, e.end)
	}
	// For an unknown dtype only the overflow check applies. The product without zeros
	// must fit too, because readers multiply parts of shapes.
	size := dtypes[e.dtype].size
	count, empty := max(size, 1), false
	for _, dim := range shape {
		if dim == 0 {
			empty = true
			dim = 1
		}
		hi, lo := bits.Mul64(count, dim)
		if hi != 0 || lo > math.MaxInt64 || dim > math.MaxInt {
			return fmt.Errorf("shape: %d overflows", shape)
		}
		count = lo
	}
	if empty {
		count = 0
	}
	if size != 0 && e.end-e.begin != count {
		return fmt.Errorf("data_offsets: expected %d bytes for shape %d of %s, got %d", count, shape, e.dtype, e.end-e.begin)
	}
	e.shape = make([]int, len(shape))
	for i, dim := range shape {
		e.shape[i] = int(dim) //nolint:gosec // checked above
	}
	return nil
}

// place checks that the tensors cover the data exactly, and slices it.
func (f *File) place(entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	var at uint64
	before := ""
	for _, e := range entries {
		switch {
		case e.end > uint64(len(f.data)):
			return fmt.Errorf("truncated: tensor %q ends at byte %d of the data, the file has %d", e.name, e.end, len(f.data))
		case e.begin < at:
			return fmt.Errorf("tensor %q: data_offsets: overlaps with %q", e.name, before)
		case e.begin > at:
			return fmt.Errorf("tensor %q: data_offsets: a hole of %d bytes before it", e.name, e.begin-at)
		}
		at, before = e.end, e.name
		f.order = append(f.order, e.name)
		f.tensors[e.name] = Tensor{
			TensorInfo: models.TensorInfo{Type: dtypes[e.dtype].t, Shape: e.shape},
			Name:       e.name, DType: e.dtype, Data: f.data[e.begin:e.end:e.end], file: f.name,
		}
	}
	if at != uint64(len(f.data)) {
		return fmt.Errorf("%d bytes after the last tensor", uint64(len(f.data))-at)
	}
	return nil
}
