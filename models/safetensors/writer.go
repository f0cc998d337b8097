package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"

	"touchline/models"
)

// Entry announces a tensor to a Writer.
type Entry struct {
	models.TensorInfo

	Name string
}

// Writer writes a file as a stream: the header first, then the bytes of the
// announced tensors, in order, in pieces of any size.
type Writer struct {
	w       io.Writer
	entries []Entry
	ends    []uint64 // of the tensors, in the data
	at      uint64
}

// NewWriter writes the header for the tensors and the metadata, which may be nil.
func NewWriter(w io.Writer, tensors []Entry, metadata map[string]string) (*Writer, error) {
	s := &Writer{w: w, entries: tensors}
	var text strings.Builder
	text.WriteByte('{')
	field := func(name string, value any) error {
		k, err := json.Marshal(name)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if text.Len() > 1 {
			text.WriteByte(',')
		}
		text.Write(k)
		text.WriteByte(':')
		text.Write(v)
		return nil
	}
	if len(metadata) > 0 {
		if err := field("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	var at uint64
	for _, e := range tensors {
		if seen[e.Name] {
			return nil, fmt.Errorf("write tensor %q: the name is taken", e.Name)
		}
		seen[e.Name] = true
		dtype, ok := dtypeOf(e.Type)
		if !ok {
			return nil, fmt.Errorf("write tensor %q: type %v has no name in this format", e.Name, e.Type)
		}
		size := uint64(e.Type.Size())
		for _, d := range e.Shape {
			hi, lo := bits.Mul64(size, uint64(max(d, 0)))
			if d < 0 || hi != 0 || lo > math.MaxInt64-at {
				return nil, fmt.Errorf("write tensor %q: shape %d is impossible", e.Name, e.Shape)
			}
			size = lo
		}
		shape := e.Shape
		if shape == nil {
			shape = []int{}
		}
		err := field(e.Name, struct {
			DType   string    `json:"dtype"`
			Shape   []int     `json:"shape"`
			Offsets [2]uint64 `json:"data_offsets"`
		}{dtype, shape, [2]uint64{at, at + size}})
		if err != nil {
			return nil, err
		}
		at += size
		s.ends = append(s.ends, at)
	}
	text.WriteByte('}')
	// The data begins at a multiple of 8.
	text.WriteString(strings.Repeat(" ", -text.Len()&7))
	if text.Len() > MaxHeader {
		return nil, fmt.Errorf("write header: expected at most %d bytes, has %d", MaxHeader, text.Len())
	}
	head := binary.LittleEndian.AppendUint64(nil, uint64(text.Len()))
	if _, err := w.Write(append(head, text.String()...)); err != nil {
		return nil, err
	}
	return s, nil
}

// Write writes the next bytes of the tensors.
func (w *Writer) Write(p []byte) (int, error) {
	if w.at+uint64(len(p)) > w.size() {
		return 0, fmt.Errorf("write tensors: %d bytes were announced, here come more", w.size())
	}
	n, err := w.w.Write(p)
	w.at += uint64(n)
	return n, err
}

// Close checks that all that was announced was written. It does not close the
// writer beneath.
func (w *Writer) Close() error {
	for i, end := range w.ends {
		if w.at < end {
			return fmt.Errorf("write tensor %q: %d bytes are missing", w.entries[i].Name, end-w.at)
		}
	}
	return nil
}

func (w *Writer) size() uint64 {
	if len(w.ends) == 0 {
		return 0
	}
	return w.ends[len(w.ends)-1]
}
