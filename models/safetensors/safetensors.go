// Package safetensors reads and writes files of named tensors: eight bytes
// with the length of a JSON header, the header, and the tensors' bytes one
// after another. Reading maps the file into memory, so that a tensor costs
// nothing until it is looked at; nothing is trusted before it is checked.
//
// The format is that of the safetensors README: little-endian numbers,
// row-major tensors, data offsets relative to the end of the header, no holes,
// no overlaps, nothing behind the last tensor.
package safetensors

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"touchline/models"
)

// MaxHeader bounds the JSON header in bytes, as the reference implementation
// does. That of a 19 GB checkpoint has about 200 kB.
const MaxHeader = 100_000_000

// maxDims bounds the dimensions of a tensor.
const maxDims = 16

// File is an open file. It is safe for concurrent use until Close.
type File struct {
	name     string
	data     []byte // the tensors
	tensors  map[string]Tensor
	order    []string // by position in the file
	metadata map[string]string
	mapped   []byte
}

// Tensor is one tensor of a file. Data is the file itself, not a copy: it must
// not be written and is gone after Close.
type Tensor struct {
	models.TensorInfo // Type is 0 for a dtype that package models does not know

	Name  string
	DType string // as the header has it, "BF16"
	Data  []byte

	file string
}

// Open maps a file and checks its header. Errors name the file and the tensor
// or field.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a file of tensors, is a %s", path, info.Mode().Type())
	}
	size := info.Size()
	if size < 8 {
		return nil, fmt.Errorf("%s: truncated: expected at least 8 bytes, has %d", path, size)
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%s: %d bytes are more than this machine can map", path, size)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	s, err := Parse(path, mapped)
	if err != nil {
		_ = unix.Munmap(mapped)
		return nil, err
	}
	s.mapped = mapped
	return s, nil
}

// Parse reads a file that is in memory already. The tensors are parts of
// content; name is for errors.
func Parse(name string, content []byte) (f *File, err error) {
	err = guard(name, func() error {
		f, err = parse(name, content)
		return err
	})
	return f, err
}

// Close unmaps the file. Tensors must not be used afterwards.
func (f *File) Close() error {
	f.data, f.tensors = nil, nil
	if f.mapped == nil {
		return nil
	}
	m := f.mapped
	f.mapped = nil
	return unix.Munmap(m)
}

// Names of the tensors, in the order of their bytes.
func (f *File) Names() []string { return slices.Clone(f.order) }

// Tensor of a name; false if there is none.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata is the header's free text by key; nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }
