package torch

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"touchline/models/safetensors"
)

// Writer writes a file as a stream: the pickle, then the bytes of the declared
// tensors in order, in pieces of any size.
type Writer struct {
	zip     *zip.Writer
	tensors []safetensors.Entry
	next    int       // the first tensor without an entry
	data    io.Writer // of the previous tensor
	left    int       // bytes of that tensor
}

// NewWriter writes the pickle of tensors, a dictionary by name. None may be empty.
func NewWriter(w io.Writer, tensors []safetensors.Entry) (*Writer, error) {
	p := pickler{opProto, 2, opEmptyDict, opMark}
	for i, t := range tensors {
		if err := p.tensor(t, i); err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	p = append(p, opSetItems, opStop)
	f := &Writer{zip: zip.NewWriter(w), tensors: tensors}
	for _, e := range []struct{ name, content string }{{"data.pkl", string(p)}, {"byteorder", "little"}, {"version", "3\n"}} {
		out, err := f.create(e.name)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(out, e.content); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (w *Writer) create(name string) (io.Writer, error) {
	return w.zip.CreateHeader(&zip.FileHeader{Name: "archive/" + name, Method: zip.Store})
}

// Write writes the next bytes of the tensors.
func (w *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if w.left == 0 {
			if err := w.begin(); err != nil {
				return n, err
			}
		}
		piece := p[:min(len(p), w.left)]
		if _, err := w.data.Write(piece); err != nil {
			return n, err
		}
		n, p, w.left = n+len(piece), p[len(piece):], w.left-len(piece)
	}
	return n, nil
}

// begin begins the entry of the next tensor.
func (w *Writer) begin() (err error) {
	if w.next == len(w.tensors) {
		return errors.New("write tensors: more bytes than declared")
	}
	t := w.tensors[w.next]
	w.data, err = w.create("data/" + strconv.Itoa(w.next))
	w.next++
	w.left = t.Rows() * t.Cols() * t.Type.Size()
	return err
}

// Close writes the zip's directory. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.next < len(w.tensors) || w.left > 0 {
		return fmt.Errorf("write tensor %q: bytes are missing", w.tensors[max(w.next-1, 0)].Name)
	}
	return w.zip.Close()
}

// pickler writes a pickle.
type pickler []byte

func (p *pickler) op(ops ...byte) { *p = append(*p, ops...) }

func (p *pickler) text(s string) {
	p.op(opText4)
	*p = append(binary.LittleEndian.AppendUint32(*p, uint32(len(s))), s...) //nolint:gosec // short
}

func (p *pickler) integer(n int) {
	p.op(opLong, 8)
	*p = binary.LittleEndian.AppendUint64(*p, uint64(n)) //nolint:gosec // not negative
}

func (p *pickler) global(module, name string) {
	p.op(opGlobal)
	*p = append(*p, module+"\n"+name+"\n"...)
}

// tensor writes a name and its tensor, the only one in its storage.
func (p *pickler) tensor(t safetensors.Entry, storage int) error {
	class, ok := class(t.Type)
	if !ok {
		return fmt.Errorf("no storage of %s", t.Type)
	}
	strides := make([]int, len(t.Shape))
	count := 1
	for i, d := range slices.Backward(t.Shape) {
		strides[i] = count
		count *= d
	}
	if count < 1 {
		return fmt.Errorf("shape %d: must not be empty", t.Shape)
	}
	p.text(t.Name)
	p.global("torch._utils", "_rebuild_tensor_v2")
	p.op(opMark, opMark)
	p.text("storage")
	p.global("torch", class)
	p.text(strconv.Itoa(storage))
	p.text("cpu")
	p.integer(count)
	p.op(opTuple, opPersistentLoad)
	p.integer(0) // the offset
	for _, list := range [][]int{t.Shape, strides} {
		p.op(opMark)
		for _, n := range list {
			p.integer(n)
		}
		p.op(opTuple)
	}
	p.op(opFalse)
	p.global("collections", "OrderedDict")
	p.op(opEmptyTuple, opCall, opTuple, opCall)
	return nil
}

// WriteFile writes all tensors of a file as torch.save does, and replaces an existing file.
func WriteFile(path string, f *safetensors.File) (err error) {
	var entries []safetensors.Entry
	var data []byte
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		entries = append(entries, safetensors.Entry{Name: name, TensorInfo: x.TensorInfo})
		data = append(data, x.Data...)
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w, err := NewWriter(out, entries)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}
