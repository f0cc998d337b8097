// Package torch reads the files that torch.save writes (.pt): a zip archive with
// a pickle of the names and shapes, and the numbers of each tensor. It also
// writes them, for checkpoints of random weights.
//
// A pickle is a program that can run anything. This reader executes only the
// operations that build a dictionary of tensors, and refuses everything else by
// its name. Reading maps the file into memory; a tensor costs nothing until it
// is read.
package torch

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"path"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/safetensors"
)

// Open maps a file and reads the names, types and shapes of its tensors. Errors
// name the file and the tensor or operation.
func Open(path string) (*safetensors.File, error) { return safetensors.Map(path, Parse) }

// Parse reads a file from memory. The tensors are parts of content; name appears
// in errors.
//
// The file must hold a dictionary of tensors by name (a state dict), or a
// dictionary with one such dictionary as a value ("state_dict"). Values that are
// not tensors are ignored.
func Parse(name string, content []byte) (*safetensors.File, error) {
	tensors, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return safetensors.New(name, tensors), nil
}

// maxPickle is the maximum size of the pickle. A file with 1,500 tensors needs about 200 kB.
const maxPickle = 16 << 20

func parse(content []byte) ([]safetensors.Tensor, error) {
	entries, err := readDirectory(content)
	if err != nil {
		return nil, err
	}
	a := archive{entries: map[string]entry{}}
	for _, e := range entries {
		if _, ok := a.entries[e.name]; ok {
			return nil, fmt.Errorf("zip: entry %.100q: duplicate name", e.name)
		}
		a.entries[e.name] = e
		if folder, ok := strings.CutSuffix(e.name, "/data.pkl"); ok && a.folder == "" {
			a.folder = folder
		}
	}
	if order, ok := a.entries[path.Join(a.folder, "byteorder")]; ok && string(order.data) != "little" {
		return nil, fmt.Errorf("byteorder: must be little, is %.20q", order.data)
	}
	pickle, ok := a.entries[path.Join(a.folder, "data.pkl")]
	switch {
	case !ok:
		return nil, errors.New("data.pkl: missing: not a file of torch.save")
	case len(pickle.data) > maxPickle:
		return nil, fmt.Errorf("data.pkl: must have at most %d bytes, has %d", maxPickle, len(pickle.data))
	case crc32.ChecksumIEEE(pickle.data) != pickle.sum:
		return nil, errors.New("data.pkl: the checksum does not match: the file is damaged")
	}
	value, err := unpickle(pickle.data)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	state, err := stateDict(value)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	return a.tensors(state)
}

// stateDict returns the dictionary that holds tensors: the outermost, or the only one among its
// values.
func stateDict(value any) (*dict, error) {
	outer, ok := value.(*dict)
	if !ok {
		return nil, fmt.Errorf("expected a dictionary of tensors, got %s", kind(value))
	}
	if outer.hasTensors() {
		return outer, nil
	}
	var found *dict
	var keys []string
	for _, p := range outer.pairs {
		inner, ok := p.value.(*dict)
		if ok && inner.hasTensors() {
			found = inner
			keys = append(keys, kind(p.key))
		}
	}
	switch len(keys) {
	case 0:
		return nil, errors.New("expected a dictionary of tensors, got one without tensors")
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("expected one dictionary of tensors, got several: %s", strings.Join(keys[:min(len(keys), 5)], ", "))
}

// archive is the content of a file: its entries by name, in one folder.
type archive struct {
	folder  string
	entries map[string]entry
}

// tensors returns the tensors of a state dict, in its order.
func (a archive) tensors(state *dict) ([]safetensors.Tensor, error) {
	var list []safetensors.Tensor
	seen := map[string]bool{}
	for _, p := range state.pairs {
		t, ok := p.value.(tensor)
		if !ok {
			continue
		}
		name, ok := p.key.(string)
		if !ok || seen[name] {
			return nil, fmt.Errorf("data.pkl: tensor: expected a unique name, got %s", kind(p.key))
		}
		seen[name] = true
		data, err := a.data(t)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		list = append(list, safetensors.Tensor{
			TensorInfo: models.TensorInfo{Type: t.storage.of.typ, Shape: t.shape}, Name: name, DType: t.storage.of.name, Data: data,
		})
	}
	return list, nil
}

// data returns the bytes of a tensor. Several tensors can share a storage.
func (a archive) data(t tensor) ([]byte, error) {
	size := t.storage.of.size
	stored, ok := a.entries[path.Join(a.folder, "data", t.storage.key)]
	if !ok {
		return nil, fmt.Errorf("storage %.20q: missing in the zip", t.storage.key)
	}
	if t.storage.count > len(stored.data)/size || t.storage.count*size != len(stored.data) {
		return nil, fmt.Errorf("storage %s: expected %d numbers of %d bytes, got %d bytes",
			t.storage.key, t.storage.count, size, len(stored.data))
	}
	count, empty := 1, false
	// From the last dimension on, the stride must be the product of the sizes so far. A dimension
	// of 1 has no stride.
	for i, d := range slices.Backward(t.shape) {
		if d != 1 && t.strides[i] != count && !empty {
			return nil, fmt.Errorf("shape %d with strides %d: the numbers are not in row order: save the tensor with .contiguous()",
				t.shape, t.strides)
		}
		if d == 0 {
			empty = true
			d = 1
		}
		hi, lo := bits.Mul64(uint64(count), uint64(d)) //nolint:gosec // not negative
		if hi != 0 || lo > 1<<50 {
			return nil, fmt.Errorf("shape %d overflows", t.shape)
		}
		count = int(lo)
	}
	if empty {
		return nil, nil
	}
	if t.offset > t.storage.count || count > t.storage.count-t.offset {
		return nil, fmt.Errorf("shape %d at %d: exceeds the storage of %d numbers", t.shape, t.offset, t.storage.count)
	}
	return stored.data[t.offset*size : (t.offset+count)*size : (t.offset+count)*size], nil
}
