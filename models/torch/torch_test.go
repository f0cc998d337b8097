package torch_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/safetensors"
	"touchline/models/torch"
)

func open(t *testing.T, name string) *safetensors.File {
	t.Helper()
	f, err := torch.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func TestTypes(t *testing.T) {
	f := open(t, "types.pt")
	floats := map[string]struct {
		typ    models.Type
		shape  []int
		values []float32
	}{
		"float32":   {models.Float32, []int{3, 4}, []float32{0, .125, .25, .375, .5, .625, .75, .875, 1, 1.125, 1.25, 1.375}},
		"float16":   {models.Float16, []int{2}, []float32{1.5, -65504}},
		"bfloat16":  {models.BFloat16, []int{2, 1}, []float32{1, -3}},
		"scalar":    {models.Float32, []int{}, []float32{7}},
		"empty":     {models.Float32, []int{0, 3}, []float32{}},
		"view":      {models.Float32, []int{2, 2}, []float32{4, 5, 6, 7}},
		"column":    {models.Float32, []int{1, 1}, []float32{0}},
		"parameter": {models.Float32, []int{1}, []float32{2}},
	}
	for name, want := range floats {
		got, ok := f.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, models.TensorInfo{Type: want.typ, Shape: want.shape}, got.TensorInfo, name)
		values, err := got.Floats()
		require.NoError(t, err, name)
		require.Equal(t, want.values, values, name)
	}
	whole, ok := f.Tensor("int64")
	require.True(t, ok)
	ints, err := whole.Ints()
	require.NoError(t, err)
	require.Equal(t, []int64{-1, 1 << 40}, ints)

	wide, ok := f.Tensor("float64") // known, but not readable
	require.True(t, ok)
	_, err = wide.Floats()
	require.ErrorContains(t, err, `testdata/types.pt: tensor "float64": dtype must be F32, F16 or BF16, is F64`)
	require.Len(t, f.Names(), 10) // "steps" is no tensor
}

// TestNested reads the state dict of a module, alone and inside another dictionary.
func TestNested(t *testing.T) {
	for _, name := range []string{"module.pt", "protocol2.pt", "protocol3.pt", "protocol4.pt", "protocol5.pt"} {
		f := open(t, name)
		require.Equal(t, []string{
			"conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
		}, f.Names(), name)
		bias, _ := f.Tensor("norm.bias")
		values, err := bias.Floats()
		require.NoError(t, err)
		require.Equal(t, []float32{3, 3, 3}, values, name)
	}
}

func TestRefused(t *testing.T) {
	tests := map[string]string{
		"command":   `posix.system" is refused: a file of weights needs no such object`,
		"module":    `torch.nn.modules.linear.Linear" is refused`,
		"complex":   `torch.ComplexFloatStorage" is refused`,
		"columns":   `tensor "a": shape [3 2] with strides [1 3]: the numbers are not in row order`,
		"expanded":  `tensor "a": shape [4] with strides [0]: the numbers are not in row order`,
		"list":      "expected a dictionary of tensors, got a list",
		"set":       `__builtin__.set" is refused`,
		"plain":     "expected a dictionary of tensors, got one without tensors",
		"two":       `expected one dictionary of tensors, got several: "a", "b"`,
		"number":    "expected a unique name, got 3",
		"protocol0": "expected a pickle of protocol 2 to 5",
		"legacy":    "not a file of torch.save (1.6 or newer), or truncated",
	}
	for name, want := range tests {
		_, err := torch.Open(filepath.Join("testdata", name+".bad.pt"))
		require.ErrorContains(t, err, want, name)
		require.ErrorContains(t, err, filepath.Join("testdata", name+".bad.pt"))
	}
	found, err := filepath.Glob("testdata/*.bad.pt")
	require.NoError(t, err)
	require.Len(t, found, len(tests))
}

// packed returns an archive with a pickle and two storages of four bytes.
func packed(tb testing.TB, pickle string, method uint16) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range [][2]string{{"x/data.pkl", pickle}, {"x/data/0", "\x00\x00\x80?"}, {"x/data/1", "\x00\x00\x00@"}} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e[0], Method: method})
		require.NoError(tb, err)
		_, err = io.WriteString(w, e[1])
		require.NoError(tb, err)
	}
	require.NoError(tb, z.Close())
	return b.Bytes()
}

const (
	tensorOf = "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" // and the key
	cpu      = "X\x03\x00\x00\x00cpu"
	ones     = tensorOf + "0" + cpu + "K\x01tQK\x00K\x01\x85K\x01\x85\x89)tR"
)

// TestPickles gives pickles that torch.save does not write.
func TestPickles(t *testing.T) {
	named := func(value string) string { return "\x80\x02}X\x01\x00\x00\x00a" + value + "s." }
	_, err := torch.Parse("x", packed(t, named(ones), zip.Store))
	require.NoError(t, err)
	// Tuples of the same tuple, doubled 60 times: not to be shown.
	deep := ")" + strings.Repeat("q\x00h\x00\x86", 60)
	tests := []struct{ name, pickle, want string }{
		{"empty", "", "expected a pickle"},
		{"no end", "\x80\x02}", "byte 3: truncated"},
		{"rest", "\x80\x02}..", "expected the end"},
		{"stack", "\x80\x02}}.", "expected the end"},
		{"mark", "\x80\x02(.", "expected a value, got a mark"},
		{"nothing", "\x80\x02.", "the stack is empty"},
		{"call of text", "\x80\x02X\x01\x00\x00\x00a)R.", "expected a call of a function"},
		{"eval", "\x80\x02cbuiltins\neval\n.", `byte 2: "builtins.eval" is refused`},
		{"from the stack", "\x80\x04\x8c\x02os\x8c\x06system\x93.", `"os.system" is refused`},
		{"long name", "\x80\x02c" + strings.Repeat("a", 300), "at most 200 bytes"},
		{"new object", "\x80\x02)\x81.", `operation 0x81`},
		{"instance", "\x80\x02(ios\nsystem\n.", `operation 0x69 ('i') is refused`},
		{"extension", "\x80\x02\x82\x01.", "operation 0x82"},
		{"duplicate", "\x80\x022.", `operation 0x32 ('2') is refused`},
		{"text beyond the end", "\x80\x02X\xff\xff\xff\xff.", "truncated"},
		{"large integer", "\x80\x02\x8a\x09123456789.", "an integer of 9 bytes is too large"},
		{"unknown memory", "\x80\x02h\x07.", "no stored value 7"},
		{"half a pair", "\x80\x02}(Nu.", "expected pairs"},
		{"set of a list", "\x80\x02](NNu.", "expected a dictionary, got a list"},
		{"tensor of nothing", named("ctorch._utils\n_rebuild_tensor_v2\n(NK\x00K\x00\x85K\x00\x85\x89)tR"), "expected a storage and an offset, got None and 0"},
		{"parameter of nothing", named("ctorch._utils\n_rebuild_parameter\n(N\x89)tR"), "_rebuild_parameter: unknown arguments"},
		{"storage of text", "\x80\x02X\x01\x00\x00\x00aQ.", "expected a storage"},
		{"another storage", named(tensorOf + "9" + cpu + "K\x01tQK\x00K\x01\x85K\x01\x85\x89)tR"), `storage "9": missing in the zip`},
		{"large storage", named(tensorOf + "0" + cpu + "K\x02tQK\x00K\x01\x85K\x01\x85\x89)tR"), "expected 2 numbers of 4 bytes, got 4 bytes"},
		{"negative storage", named(tensorOf + "0" + cpu + "J\xff\xff\xff\xfftQ"), "expected a storage"},
		{"large tensor", named(tensorOf + "0" + cpu + "K\x01tQK\x00K\x02\x85K\x01\x85\x89)tR"), "exceeds the storage of 1 numbers"},
		{"late tensor", named(tensorOf + "0" + cpu + "K\x01tQK\x01K\x01\x85K\x01\x85\x89)tR"), "exceeds the storage"},
		{"huge tensor", named(tensorOf + "0" + cpu + "K\x01tQK\x00" + "J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86J\xff\xff\xff\x7fK\x01\x86\x89)tR"), "overflows"},
		{"negative shape", named(tensorOf + "0" + cpu + "K\x01tQK\x00J\xff\xff\xff\xff\x85K\x01\x85\x89)tR"), "expected a size, got -1"},
		{"deep shape", named(tensorOf + "0" + cpu + "K\x01tQK\x00" + deep + "K\x01\x85\x89)tR"), "expected a size, got a tuple"},
		{"deep name", "\x80\x02}" + deep + ones + "s.", "expected a unique name, got a tuple"},
		{"strides", named(tensorOf + "0" + cpu + "K\x01tQK\x00K\x01\x85)\x89)tR"), "as many strides as dimensions"},
		{"same name", "\x80\x02}X\x01\x00\x00\x00a" + ones + "sX\x01\x00\x00\x00a" + ones + "s.", `expected a unique name, got "a"`},
		{"itself", "\x80\x02}q\x00h\x00h\x00s.", "got one without tensors"},
		{"too many operations", "\x80\x02" + strings.Repeat("N", 3<<20), "more than 2097152 operations"},
		{"too large", "\x80\x02" + strings.Repeat("N", 17<<20), "at most 16777216 bytes"},
	}
	for _, tt := range tests {
		_, err := torch.Parse("x.pt", packed(t, tt.pickle, zip.Store))
		require.ErrorContains(t, err, tt.want, tt.name)
		require.Less(t, len(err.Error()), 400, tt.name)
	}
}

// TestZips changes the archive.
func TestZips(t *testing.T) {
	good, err := os.ReadFile("testdata/types.pt")
	require.NoError(t, err)
	for n := range good {
		_, err := torch.Parse("x", good[:n])
		require.Error(t, err, n)
	}
	_, err = torch.Parse("x", packed(t, "\x80\x02}.", zip.Deflate))
	require.ErrorContains(t, err, "must be neither compressed nor encrypted")

	broken := bytes.Clone(good)
	broken[bytes.Index(good, []byte("bfloat16"))]++
	_, err = torch.Parse("x", broken)
	require.ErrorContains(t, err, "the checksum does not match")

	order := bytes.Replace(good, []byte("little"), []byte("bigger"), 1)
	_, err = torch.Parse("x", order)
	require.ErrorContains(t, err, `byteorder: must be little, is "bigger"`)

	many := packed(t, "\x80\x02}.", zip.Store)
	end := many[len(many)-22:]
	binary.LittleEndian.PutUint16(end[10:], 0xffff)
	_, err = torch.Parse("x", many)
	require.ErrorContains(t, err, "or truncated")
}

// written returns a file of this package's writer.
func written(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := torch.NewWriter(&b, []safetensors.Entry{
		{Name: "a.weight", TensorInfo: models.TensorInfo{Type: models.Float32, Shape: []int{2, 3}}},
		{Name: "b", TensorInfo: models.TensorInfo{Type: models.Float32, Shape: []int{}}},
	})
	require.NoError(t, err)
	data := make([]byte, 28)
	for i := range 7 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)))
	}
	for len(data) > 0 { // in pieces
		n := min(5, len(data))
		_, err := w.Write(data[:n])
		require.NoError(t, err)
		data = data[n:]
	}
	require.NoError(t, w.Close())
	_, err = w.Write([]byte{1})
	require.ErrorContains(t, err, "more bytes than declared")
	return b.Bytes()
}

func TestWrittenIsRead(t *testing.T) {
	content := written(t)
	f, err := torch.Parse("x", content)
	require.NoError(t, err)
	a, _ := f.Tensor("a.weight")
	require.Equal(t, []int{2, 3}, a.Shape)
	values, err := a.Floats()
	require.NoError(t, err)
	require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, values)
	b, _ := f.Tensor("b")
	values, err = b.Floats()
	require.NoError(t, err)
	require.Equal(t, []float32{6}, values)

	var out bytes.Buffer
	w, err := torch.NewWriter(&out, []safetensors.Entry{{Name: "a", TensorInfo: models.TensorInfo{Type: models.Float32, Shape: []int{1}}}})
	require.NoError(t, err)
	require.ErrorContains(t, w.Close(), `tensor "a": bytes are missing`)
	for _, info := range []models.TensorInfo{{Type: models.Float32, Shape: []int{0}}, {Type: 99, Shape: []int{1}}} {
		_, err := torch.NewWriter(&out, []safetensors.Entry{{Name: "a", TensorInfo: info}})
		require.ErrorContains(t, err, `write tensor "a"`)
	}
}

// TestLargeOffsets reads a directory whose entries use the 64-bit fields.
func TestLargeOffsets(t *testing.T) {
	good := packed(t, "\x80\x02}X\x01\x00\x00\x00a"+ones+"s.", zip.Store)
	at := bytes.LastIndex(good, []byte("PK\x05\x06"))
	end := bytes.Clone(good[at:])
	le := binary.LittleEndian
	directory := good[le.Uint32(end[16:]):at]
	var wide []byte
	for len(directory) > 0 {
		names, extras := int(le.Uint16(directory[28:])), int(le.Uint16(directory[30:]))
		h := bytes.Clone(directory[:46+names])
		extra := []byte{7, 0, 1, 0, 9, 1, 0, 24, 0} // another field before it
		extra = le.AppendUint64(extra, uint64(le.Uint32(h[24:])))
		extra = le.AppendUint64(extra, uint64(le.Uint32(h[20:])))
		extra = le.AppendUint64(extra, uint64(le.Uint32(h[42:])))
		for _, field := range []int{20, 24, 42} {
			le.PutUint32(h[field:], 0xffffffff)
		}
		le.PutUint16(h[30:], uint16(len(extra)))
		wide = append(append(wide, h...), extra...)
		directory = directory[46+names+extras:]
	}
	offset := uint64(le.Uint32(end[16:]))
	file := append(bytes.Clone(good[:offset]), wide...)
	end64 := uint64(len(file))
	record := append([]byte("PK\x06\x06"), make([]byte, 52)...)
	le.PutUint64(record[32:], 3)
	le.PutUint64(record[40:], uint64(len(wide)))
	le.PutUint64(record[48:], offset)
	file = append(file, record...)
	file = append(le.AppendUint64(append(file, "PK\x06\x07\x00\x00\x00\x00"...), end64), 1, 0, 0, 0)
	le.PutUint16(end[10:], 0xffff)
	le.PutUint32(end[12:], 0xffffffff)
	le.PutUint32(end[16:], 0xffffffff)
	file = append(file, end...)
	f, err := torch.Parse("x", file)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, f.Names())
	for n := range file {
		_, err := torch.Parse("x", file[:n])
		require.Error(t, err, n)
	}
	le.PutUint64(file[end64+32:], 1<<40)
	_, err = torch.Parse("x", file)
	require.ErrorContains(t, err, "not a valid zip file")
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pt")
	require.NoError(f, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := torch.Parse("x", content)
		check(t, file, err)
	})
}

// FuzzPickle gives pickles in an intact archive.
func FuzzPickle(f *testing.F) {
	f.Add("\x80\x02}X\x01\x00\x00\x00a" + ones + "s.")
	files, err := filepath.Glob("testdata/*.pt")
	require.NoError(f, err)
	for _, name := range files {
		if z, err := zip.OpenReader(name); err == nil {
			pickle, err := z.File[0].Open()
			require.NoError(f, err)
			content, err := io.ReadAll(pickle)
			require.NoError(f, err)
			f.Add(string(content))
			require.NoError(f, z.Close())
		}
	}
	f.Fuzz(func(t *testing.T, pickle string) {
		file, err := torch.Parse("x", packed(t, pickle, zip.Store))
		check(t, file, err)
	})
}

// check reads every tensor of a file that was accepted.
func check(t *testing.T, f *safetensors.File, err error) {
	t.Helper()
	if err != nil {
		return
	}
	for _, name := range f.Names() {
		tensor, ok := f.Tensor(name)
		require.True(t, ok)
		if tensor.Type.Size() > 0 {
			require.Len(t, tensor.Data, tensor.TensorInfo.Rows()*tensor.Cols()*tensor.Type.Size())
		}
	}
}
