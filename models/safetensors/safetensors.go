// Package safetensors reads and writes files of named tensors: eight bytes with
// the length of a JSON header, the header, and the tensors' bytes. Reading maps
// the file into memory and validates the whole header; a tensor costs nothing
// until it is read.
//
// The format follows the safetensors README: little-endian numbers, row-major
// tensors, data offsets relative to the end of the header, no holes, no overlaps,
// no bytes after the last tensor.
package safetensors

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"touchline/models"
)

// MaxHeader is the maximum size of the JSON header in bytes, the same as in the
// reference implementation. The header of a 19 GB checkpoint has about 200 kB.
const MaxHeader = 100_000_000

// maxDims is the maximum number of dimensions.
const maxDims = 16

// File is an open file. It is safe for concurrent use until Close.
type File struct {
	name     string
	data     []byte // of the tensors
	tensors  map[string]Tensor
	order    []string // by position in the file
	metadata map[string]string
	mapped   []byte
}

// Tensor is one tensor of a file. Data is the mapped file: it must not be written,
// and is invalid after Close.
type Tensor struct {
	models.TensorInfo // Type is 0 for a dtype that package models lacks

	Name  string
	DType string // as in the header: "BF16"
	Data  []byte

	file string
}

// Open maps a file and validates its header. Errors name the file and the tensor or
// field.
func Open(path string) (*File, error) { return Map(path, Parse) }

// Map maps a file and reads it with parse, which keeps parts of content as the tensors' data.
// Readers of other formats of named tensors use it too.
func Map(path string, parse func(name string, content []byte) (*File, error)) (*File, error) {
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
		return nil, fmt.Errorf("%s: not a regular file (%s)", path, info.Mode().Type())
	}
	size := info.Size()
	if size < 8 {
		return nil, fmt.Errorf("%s: truncated: expected at least 8 bytes, got %d", path, size)
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%s: %d bytes exceed this machine's address space", path, size)
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	var s *File
	err = guard(path, func() error {
		s, err = parse(path, mapped)
		return err
	})
	if err != nil {
		_ = unix.Munmap(mapped)
		return nil, err
	}
	s.mapped = mapped
	return s, nil
}

// New returns a file of tensors that were read from another format. Their names must be unique and
// the length of their data must match their shapes.
func New(name string, tensors []Tensor) *File {
	f := &File{name: name, tensors: make(map[string]Tensor, len(tensors))}
	for _, t := range tensors {
		t.file = name
		f.tensors[t.Name] = t
		f.order = append(f.order, t.Name)
	}
	return f
}

// Parse reads a file from memory. The tensors are parts of content; name appears
// in errors.
func Parse(name string, content []byte) (f *File, err error) {
	err = guard(name, func() error {
		f, err = parse(name, content)
		return err
	})
	return f, err
}

// Close unmaps the file and invalidates its tensors.
func (f *File) Close() error {
	f.data, f.tensors = nil, nil
	if f.mapped == nil {
		return nil
	}
	m := f.mapped
	f.mapped = nil
	return unix.Munmap(m)
}

// Names returns the names of the tensors, in file order.
func (f *File) Names() []string { return slices.Clone(f.order) }

// Tensor returns a tensor by name, or false.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata returns the header's metadata, or nil.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }
