package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"

	"touchline/models"
)

// Rows reads rows [from, to) of a float tensor as float32, without loss, into dst,
// which must have (to-from)*Cols elements.
func (t Tensor) Rows(dst []float32, from, to int) error {
	rows, cols := t.TensorInfo.Rows(), t.Cols()
	if from < 0 || to < from || to > rows {
		return t.errorf("rows must be within 0 to %d, are %d to %d", rows, from, to)
	}
	if len(dst) != (to-from)*cols {
		return t.errorf("needs a buffer of %d values (%d rows of %d), has %d", (to-from)*cols, to-from, cols, len(dst))
	}
	var convert func([]float32, []byte)
	switch t.Type {
	case models.Float32:
		convert = fromFloat32
	case models.BFloat16:
		convert = fromBFloat16
	case models.Float16:
		convert = fromFloat16
	default:
		return t.errorf("dtype must be F32, F16 or BF16, is %s", t.DType)
	}
	width := cols * t.Type.Size()
	return guard(t.file, func() error {
		convert(dst, t.Data[from*width:to*width])
		return nil
	})
}

// Floats reads the whole tensor as float32.
func (t Tensor) Floats() ([]float32, error) {
	rows := t.TensorInfo.Rows()
	dst := make([]float32, rows*t.Cols())
	return dst, t.Rows(dst, 0, rows)
}

// Ints reads a whole integer tensor.
func (t Tensor) Ints() ([]int64, error) {
	dst := make([]int64, t.TensorInfo.Rows()*t.Cols())
	d := t.Data
	err := guard(t.file, func() error {
		switch t.Type {
		case models.Int64:
			for i := range dst {
				dst[i] = int64(binary.LittleEndian.Uint64(d[8*i:])) //nolint:gosec // the same bits
			}
		case models.Int32:
			for i := range dst {
				dst[i] = int64(int32(binary.LittleEndian.Uint32(d[4*i:]))) //nolint:gosec // the same bits
			}
		case models.Uint8:
			for i := range dst {
				dst[i] = int64(d[i])
			}
		case models.Int8:
			for i := range dst {
				dst[i] = int64(int8(d[i])) //nolint:gosec // the same bits
			}
		default:
			return t.errorf("dtype must be I64, I32, U8 or I8, is %s", t.DType)
		}
		return nil
	})
	return dst, err
}

// View calls read with the tensor's bytes, which must be neither written nor
// kept. Unlike an access to Data, it returns an error if the file was truncated
// after Open.
func (t Tensor) View(read func(data []byte) error) error {
	return guard(t.file, func() error { return read(t.Data) })
}

func (t Tensor) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: tensor %q: %w", t.file, t.Name, fmt.Errorf(format, args...))
}

// guard converts a fault of the memory map into an error: the file was truncated
// after it was opened, or its disk fails.
func guard(file string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // a fault, see debug.SetPanicOnFault
			err = fmt.Errorf("%s: read fault: the file was truncated while in use, or its disk fails", file)
		default:
			panic(r)
		}
	}()
	return read()
}

func fromFloat32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for len(dst) >= 2 {
		v := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(v)) //nolint:gosec // the low half
		dst[1] = math.Float32frombits(uint32(v >> 32))
		dst, src = dst[2:], src[8:]
	}
	if len(dst) == 1 {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
	}
}

// fromBFloat16 reads bfloat16, the upper half of a float32.
func fromBFloat16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for len(dst) >= 4 {
		v := binary.LittleEndian.Uint64(src)
		d := dst[:4]
		d[0] = math.Float32frombits(uint32(v) << 16)        //nolint:gosec // the low half
		d[1] = math.Float32frombits(uint32(v) & 0xffff0000) //nolint:gosec // the low half
		d[2] = math.Float32frombits(uint32(v>>32) << 16)
		d[3] = math.Float32frombits(uint32(v>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func fromFloat16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for len(dst) >= 4 {
		v := binary.LittleEndian.Uint64(src)
		d := dst[:4]
		d[0] = models.Float16FromBits(uint16(v))       //nolint:gosec // the low quarter
		d[1] = models.Float16FromBits(uint16(v >> 16)) //nolint:gosec // the low quarter
		d[2] = models.Float16FromBits(uint16(v >> 32)) //nolint:gosec // the low quarter
		d[3] = models.Float16FromBits(uint16(v >> 48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = models.Float16FromBits(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
