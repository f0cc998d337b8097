package check

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"touchline/models/safetensors"
)

// tensors is one fixture file of tensors, in memory. Reading a missing tensor, or
// one of another type, ends the row.
type tensors struct {
	name string
	file *safetensors.File
}

func (c *checker) tensors(name string) *tensors {
	return &tensors{name: name, file: need(safetensors.Parse(name, need(c.files.bytes(name))))}
}

func (t *tensors) fail(format string, args ...any) { must(fmt.Errorf(t.name+": "+format, args...)) }

func (t *tensors) has(name string) bool {
	_, ok := t.file.Tensor(name)
	return ok
}

func (t *tensors) get(name string) safetensors.Tensor {
	v, ok := t.file.Tensor(name)
	if !ok {
		t.fail("expected a tensor %s, got %s", name, strings.Join(t.file.Names(), ", "))
	}
	return v
}

// floats returns a tensor as float32, row-major.
func (t *tensors) floats(name string) []float32 { return numbers(t, name, safetensors.Tensor.Floats) }

// ints returns an integer tensor.
func (t *tensors) ints(name string) []int64 { return numbers(t, name, safetensors.Tensor.Ints) }

func numbers[T any](t *tensors, name string, to func(safetensors.Tensor) ([]T, error)) []T {
	values, err := to(t.get(name))
	if err != nil {
		t.fail("%w", err)
	}
	return values
}

// doubles returns a float64 tensor, a type that checkpoints do not have.
func (t *tensors) doubles(name string) []float64 {
	v := t.get(name)
	if v.DType != "F64" {
		t.fail("%s: expected dtype F64, got %s", name, v.DType)
	}
	out := make([]float64, len(v.Data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(v.Data[8*i:]))
	}
	return out
}

// ids returns an integer tensor as token ids.
func (t *tensors) ids(name string) []int32 {
	wide := t.ints(name)
	out := make([]int32, len(wide))
	for i, id := range wide {
		if out[i] = int32(id); int64(out[i]) != id {
			t.fail("%s: expected token ids, got %d", name, id)
		}
	}
	return out
}

// info decodes the file's settings, JSON in its metadata.
func (t *tensors) info(v any) {
	if err := json.Unmarshal([]byte(t.file.Metadata()["info"]), v); err != nil {
		t.fail("expected settings in the metadata's info: %w", err)
	}
}
