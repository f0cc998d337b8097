package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"

	"touchline/models"
)

// Entry declares a tensor to a Writer.
type Entry struct {
	models.TensorInfo

	Name string
}

// Writer writes a file as a stream: the header, then the bytes of the declared
// tensors in order, in pieces of any size.
type Writer struct {
	w       io.Writer
	entries []Entry
	ends    []uint64 // end offsets of the tensors in the data
	at      uint64
}

// NewWriter writes the header for the tensors and the metadata, which may be nil.
func NewWriter(w io.Writer, tensors []Entry, metadata map[string]string) (*Writer, error) {
	s := &Writer{w: w, entries: tensors}
	text := jsonObject{buf: []byte{'{'}}
	if len(metadata) > 0 {
		if err := text.field("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	var at uint64
	for _, e := range tensors {
		if seen[e.Name] {
			return nil, fmt.Errorf("write tensor %q: duplicate name", e.Name)
		}
		seen[e.Name] = true
		end, err := text.tensor(e, at)
		if err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", e.Name, err)
		}
		at = end
		s.ends = append(s.ends, at)
	}
	text.buf = append(text.buf, '}')
	// The data begins at a multiple of 8.
	text.buf = append(text.buf, "        "[:-len(text.buf)&7]...)
	if len(text.buf) > MaxHeader {
		return nil, fmt.Errorf("write header: %d bytes exceed the maximum of %d", len(text.buf), MaxHeader)
	}
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(text.buf)))
	if _, err := w.Write(append(head, text.buf...)); err != nil {
		return nil, err
	}
	return s, nil
}

// jsonObject is a JSON object under construction, with its fields in order.
type jsonObject struct{ buf []byte }

func (o *jsonObject) field(name string, value any) error {
	k, err := json.Marshal(name)
	if err != nil {
		return err
	}
	v, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(o.buf) > 1 {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(append(append(o.buf, k...), ':'), v...)
	return nil
}

// tensor adds the entry of a tensor at offset at and returns its end.
func (o *jsonObject) tensor(e Entry, at uint64) (end uint64, err error) {
	dtype, ok := dtypeOf(e.Type)
	if !ok {
		return 0, fmt.Errorf("the format has no type %v", e.Type)
	}
	size := uint64(e.Type.Size()) //nolint:gosec // not negative
	for _, d := range e.Shape {
		hi, lo := bits.Mul64(size, uint64(max(d, 0)))
		if d < 0 || hi != 0 || lo > math.MaxInt64-at {
			return 0, fmt.Errorf("shape %d is out of range", e.Shape)
		}
		size = lo
	}
	shape := e.Shape
	if shape == nil {
		shape = []int{}
	}
	return at + size, o.field(e.Name, struct {
		DType   string    `json:"dtype"`
		Shape   []int     `json:"shape"`
		Offsets [2]uint64 `json:"data_offsets"`
	}{dtype, shape, [2]uint64{at, at + size}})
}

// Write writes the next bytes of the tensors.
func (w *Writer) Write(p []byte) (int, error) {
	if w.at+uint64(len(p)) > w.size() {
		return 0, fmt.Errorf("write tensors: more than the %d declared bytes", w.size())
	}
	n, err := w.w.Write(p)
	w.at += uint64(n) //nolint:gosec // not negative
	return n, err
}

// Close checks that all declared tensors are complete. It does not close the
// underlying writer.
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
