package check

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"touchline/models/safetensors"
)

// tensors is one fixture file of tensors, in memory.
type tensors struct {
	name string
	file *safetensors.File
}

func (c *checker) tensors(name string) (*tensors, error) {
	b, err := c.files.bytes(name)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Parse(name, b)
	if err != nil {
		return nil, err
	}
	return &tensors{name: name, file: f}, nil
}

func (t *tensors) has(name string) bool {
	_, ok := t.file.Tensor(name)
	return ok
}

func (t *tensors) get(name string) (safetensors.Tensor, error) {
	v, ok := t.file.Tensor(name)
	if !ok {
		return v, fmt.Errorf("%s: expected a tensor %s, it has %s", t.name, name, strings.Join(t.file.Names(), ", "))
	}
	return v, nil
}

// floats returns a tensor as float32, row-major.
func (t *tensors) floats(name string) ([]float32, error) {
	v, err := t.get(name)
	if err != nil {
		return nil, err
	}
	return v.Floats()
}

// ints returns an integer tensor.
func (t *tensors) ints(name string) ([]int64, error) {
	v, err := t.get(name)
	if err != nil {
		return nil, err
	}
	return v.Ints()
}

// raw returns a tensor's bytes.
func (t *tensors) raw(name string) ([]byte, error) {
	v, err := t.get(name)
	return v.Data, err
}

// doubles returns a float64 tensor, a type that checkpoints do not have.
func (t *tensors) doubles(name string) ([]float64, error) {
	v, err := t.get(name)
	if err != nil {
		return nil, err
	}
	if v.DType != "F64" {
		return nil, fmt.Errorf("%s: %s: expected dtype F64, is %s", t.name, name, v.DType)
	}
	out := make([]float64, len(v.Data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(v.Data[8*i:]))
	}
	return out, nil
}

// ids returns an integer tensor as token ids.
func (t *tensors) ids(name string) ([]int32, error) {
	wide, err := t.ints(name)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(wide))
	for i, id := range wide {
		if out[i] = int32(id); int64(out[i]) != id { //nolint:gosec // compared
			return nil, fmt.Errorf("%s: %s: expected token ids, has %d", t.name, name, id)
		}
	}
	return out, nil
}

// info decodes the file's settings, JSON in its metadata.
func (t *tensors) info(v any) error {
	text, ok := t.file.Metadata()["info"]
	if !ok {
		return fmt.Errorf("%s: expected settings in the metadata's info, it has none", t.name)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%s: metadata: %w", t.name, err)
	}
	return nil
}
