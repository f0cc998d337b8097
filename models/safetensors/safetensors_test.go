package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/safetensors"
)

// file joins a header and data without checks.
func file(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func write(tb testing.TB, content []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "model.safetensors")
	require.NoError(tb, os.WriteFile(path, content, 0o600))
	return path
}

func entry(name string, typ models.Type, shape ...int) safetensors.Entry {
	return safetensors.Entry{Name: name, TensorInfo: models.TensorInfo{Type: typ, Shape: shape}}
}

func TestWrittenIsRead(t *testing.T) {
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, []safetensors.Entry{
		entry("f32", models.Float32, 2, 3),
		entry("bf16", models.BFloat16, 5),
		entry("f16", models.Float16, 3, 1, 3),
		entry("i64", models.Int64, 2),
		entry("i32", models.Int32, 2),
		entry("u8", models.Uint8, 3),
		entry("i8", models.Int8, 1),
		entry("scalar", models.Float32),
		entry("empty", models.Float32, 0, 4),
	}, map[string]string{"info": `{"k":1}`, "format": "pt"})
	require.NoError(t, err)
	var data []byte
	for i := range 6 {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)-2.5))
	}
	for i := range 5 {
		data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(i)*-0.5)>>16))
	}
	for i := range 9 {
		data = binary.LittleEndian.AppendUint16(data, uint16(0x3c00+i))
	}
	data = binary.LittleEndian.AppendUint64(data, math.MaxUint64)
	data = binary.LittleEndian.AppendUint64(data, 1<<40)
	data = binary.LittleEndian.AppendUint32(data, math.MaxUint32)
	data = binary.LittleEndian.AppendUint32(data, 7)
	data = append(data, 0, 1, 255, 255)
	data = binary.LittleEndian.AppendUint32(data, math.Float32bits(42))
	for len(data) > 0 { // in pieces that end anywhere
		n, err := w.Write(data[:min(7, len(data))])
		require.NoError(t, err)
		data = data[n:]
	}
	require.NoError(t, w.Close())

	f, err := safetensors.Open(write(t, b.Bytes()))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.Equal(t, []string{"f32", "bf16", "f16", "i64", "i32", "u8", "i8", "scalar", "empty"}, f.Names())
	require.Equal(t, `{"k":1}`, f.Metadata()["info"])

	floats := func(name string, from, to int) []float32 {
		x, ok := f.Tensor(name)
		require.True(t, ok)
		dst := make([]float32, (to-from)*x.Cols())
		require.NoError(t, x.Rows(dst, from, to))
		return dst
	}
	require.Equal(t, []float32{0.5, 1.5, 2.5}, floats("f32", 1, 2))
	require.Equal(t, []float32{-0.5, -1, -1.5, -2}, floats("bf16", 1, 5))
	require.Equal(t, []float32{1 + 3./1024, 1 + 4./1024, 1 + 5./1024, 1 + 6./1024, 1 + 7./1024, 1 + 8./1024}, floats("f16", 1, 3))
	require.Equal(t, []float32{42}, floats("scalar", 0, 1))
	require.Empty(t, floats("empty", 0, 0))
	for name, want := range map[string][]int64{"i64": {-1, 1 << 40}, "i32": {-1, 7}, "u8": {0, 1, 255}, "i8": {-1}} {
		x, _ := f.Tensor(name)
		got, err := x.Ints()
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = x.Floats()
		require.ErrorContains(t, err, "dtype must be F32, F16 or BF16")
	}
	x, _ := f.Tensor("f32")
	require.ErrorContains(t, x.Rows(nil, 1, 3), `tensor "f32": rows must be within 0 to 2`)
	require.ErrorContains(t, x.Rows(make([]float32, 2), 0, 1), "needs a buffer of 3 values")
	_, err = x.Ints()
	require.ErrorContains(t, err, "dtype must be I64")
	_, ok := f.Tensor("none")
	require.False(t, ok)
}

func TestWriterRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []safetensors.Entry
		want    string
	}{
		{"twice", []safetensors.Entry{entry("a", models.Int8, 1), entry("a", models.Int8, 1)}, "duplicate name"},
		{"reserved", []safetensors.Entry{entry("__metadata__", models.Int8, 1)}, "duplicate name"},
		{"type", []safetensors.Entry{entry("a", 0, 1)}, "the format has no type"},
		{"negative", []safetensors.Entry{entry("a", models.Int8, -1)}, "is out of range"},
		{"overflow", []safetensors.Entry{entry("a", models.Int64, math.MaxInt64, 16)}, "is out of range"},
		{"sum", []safetensors.Entry{entry("a", models.Int8, math.MaxInt64), entry("b", models.Int8, 2)}, "is out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := safetensors.NewWriter(&bytes.Buffer{}, tt.entries, nil)
			require.ErrorContains(t, err, tt.want)
		})
	}
	w, err := safetensors.NewWriter(&bytes.Buffer{}, []safetensors.Entry{entry("a", models.Int8, 2), entry("b", models.Int8, 2)}, nil)
	require.NoError(t, err)
	_, err = w.Write([]byte{1, 2, 3})
	require.NoError(t, err)
	require.ErrorContains(t, w.Close(), `"b": 1 bytes are missing`)
	_, err = w.Write([]byte{1, 2})
	require.ErrorContains(t, err, "more than the 4 declared bytes")
}

var broken = []struct {
	name    string
	content []byte
	want    string
}{
	{"empty", nil, "truncated: expected at least 8 bytes, got 0"},
	{"short", []byte{1, 2, 3}, "truncated"},
	{"huge header", binary.LittleEndian.AppendUint64(nil, 1<<60), "header length: expected at most"},
	{"header beyond the file", binary.LittleEndian.AppendUint64(nil, 100), "truncated: expected a header of 100 bytes"},
	{"not JSON", file(`{"a`, nil), "header"},
	{"a list", file(`[]`, nil), "expected a JSON object"},
	{"nothing", file(``, nil), "expected a JSON object"},
	{"more JSON", file(`{}{}`, nil), "2 bytes after the end of the JSON"},
	{"an entry that is no object", file(`{"a":1}`, nil), `tensor "a": expected a JSON object`},
	{"twice", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": duplicate name`},
	{"field twice", file(`{"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": dtype: duplicate field`},
	{"no dtype", file(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": dtype: missing`},
	{"empty dtype", file(`{"a":{"dtype":"","shape":[1],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": dtype: empty`},
	{"no shape", file(`{"a":{"dtype":"I8","data_offsets":[0,1]}}`, []byte{1}), `tensor "a": shape: missing`},
	{"null shape", file(`{"a":{"dtype":"I8","shape":null,"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": shape: expected a list`},
	{"unknown field", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"stride":1}}`, []byte{1}), `unknown field "stride"`},
	{"negative", file(`{"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": shape: `},
	{"fraction", file(`{"a":{"dtype":"I8","shape":[1.5],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": shape: `},
	{"beyond 64 bits", file(`{"a":{"dtype":"I8","shape":[99999999999999999999],"data_offsets":[0,1]}}`, []byte{1}), `tensor "a": shape: `},
	{"overflow", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, nil), `tensor "a": shape: [4294967296 4294967296] overflows`},
	{"overflow hidden by zero", file(`{"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}`, nil), "overflows"},
	{"many dimensions", file(`{"a":{"dtype":"I8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, []byte{1}), "at most 16 dimensions"},
	{"size", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, make([]byte, 4)), `data_offsets: expected 8 bytes for shape [2] of F32, got 4`},
	{"three offsets", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}}`, []byte{1}), "data_offsets: expected 2 numbers, got 3"},
	{"backwards", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[1,0]}}`, []byte{1}), "is before the start"},
	{"truncated data", file(`{"a":{"dtype":"I8","shape":[9],"data_offsets":[0,9]}}`, []byte{1}), `truncated: tensor "a" ends at byte 9 of the data, the file has 1`},
	{"overlap", file(`{"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}}`, make([]byte, 3)), `tensor "b": data_offsets: overlaps with "a"`},
	{"hole", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[1],"data_offsets":[2,3]}}`, make([]byte, 3)), `tensor "b": data_offsets: a hole of 1 bytes`},
	{"rest", file(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, make([]byte, 3)), "2 bytes after the last tensor"},
	{"metadata", file(`{"__metadata__":{"a":1}}`, nil), `__metadata__: "a": expected text`},
	{"metadata twice", file(`{"__metadata__":{"a":"","a":""}}`, nil), `duplicate key "a"`},
}

func TestBrokenFiles(t *testing.T) {
	for _, tt := range broken {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, tt.content)
			_, err := safetensors.Open(path)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, path)
		})
	}
	_, err := safetensors.Open(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	_, err = safetensors.Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Every truncation of a valid file is an error that names it.
func TestTruncated(t *testing.T) {
	whole := file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[1],"data_offsets":[8,9]}}`, make([]byte, 9))
	_, err := safetensors.Parse("x", whole)
	require.NoError(t, err)
	for n := range whole {
		_, err := safetensors.Parse("model.safetensors", whole[:n])
		require.ErrorContains(t, err, "model.safetensors", "%d bytes", n)
	}
}

// A dtype without a type in package models is listed but cannot be read.
func TestOtherTypes(t *testing.T) {
	f, err := safetensors.Parse("x", file(
		`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"F6_NEW","shape":[4],"data_offsets":[8,11]}}`, make([]byte, 11)))
	require.NoError(t, err)
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		require.ErrorContains(t, x.Rows(make([]float32, x.Cols()), 0, 1), "is "+x.DType)
	}
}

func TestCutShortWhileInUse(t *testing.T) {
	const rows = 1 << 16
	path := write(t, file(fmt.Sprintf(`{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, rows, 4*rows), make([]byte, 4*rows)))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.NoError(t, os.Truncate(path, 100))
	x, _ := f.Tensor("a")
	_, err = x.Floats()
	require.ErrorContains(t, err, path+": read fault: the file was truncated")
}

func FuzzParse(f *testing.F) {
	for _, tt := range broken {
		f.Add(tt.content)
	}
	f.Add(file(`{"__metadata__":{"info":"x"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}`, make([]byte, 8)))
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := safetensors.Parse("fuzz", content)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "fuzz: "), "%v", err)
			return
		}
		total := 0
		for _, name := range s.Names() {
			x, ok := s.Tensor(name)
			require.True(t, ok)
			total += len(x.Data)
			if x.Type == 0 {
				continue
			}
			require.Equal(t, len(x.Data), x.TensorInfo.Rows()*x.Cols()*x.Type.Size())
			_, errFloats := x.Floats()
			_, errInts := x.Ints()
			require.NotEqual(t, errFloats == nil, errInts == nil)
		}
		require.LessOrEqual(t, total, len(content))
	})
}

func BenchmarkRows(b *testing.B) {
	const cols, rows = 4096, 256
	for _, typ := range []models.Type{models.BFloat16, models.Float16, models.Float32} {
		b.Run(typ.String(), func(b *testing.B) {
			var buf bytes.Buffer
			w, err := safetensors.NewWriter(&buf, []safetensors.Entry{entry("a", typ, rows, cols)}, nil)
			require.NoError(b, err)
			data := make([]byte, rows*cols*typ.Size())
			for i := range data {
				data[i] = byte(i*7+i>>8) & 0x3f
			}
			_, err = w.Write(data)
			require.NoError(b, err)
			f, err := safetensors.Open(write(b, buf.Bytes()))
			require.NoError(b, err)
			defer func() { require.NoError(b, f.Close()) }()
			x, _ := f.Tensor("a")
			dst := make([]float32, rows*cols)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				require.NoError(b, x.Rows(dst, 0, rows))
			}
		})
	}
}
