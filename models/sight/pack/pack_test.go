package pack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/disk"
	"touchline/models/onnx"
	"touchline/models/sight"
)

// small writes a bundle without networks.
func small(t *testing.T, dir string) {
	t.Helper()
	m := sight.Manifest{
		Format:   sight.Format,
		Detector: sight.Detector{File: "net", Side: 300, Classes: []string{"", "person"}, Anchors: make([][4]float32, 1)},
		Finder:   sight.Finder{File: "net"}, Reader: sight.Reader{File: "net", Height: 48, Widest: 960, Characters: []string{"", "a"}},
		Files: []models.File{{Name: "net", Size: 3, SHA256: "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"}}, // "aaa"
	}
	content, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "net"), []byte("aaa"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, sight.ManifestName), content, 0o600))
}

// TestMake: a start that meets another one waits for it; a folder without the packages is named; a registry's client that fails is named
// with its last line, and one that brings another file is refused.
func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sight")
	from := t.TempDir()
	_, err := Make(t.Context(), dir, Options{From: from})
	require.EqualError(t, err, "make the bundle of sight: rapidocr-3.10.0-py3-none-any.whl: no such package in "+from)

	lock, err := disk.LockFolder(dir + ".packages")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = Make(ctx, dir, Options{})
	require.ErrorIs(t, err, context.Canceled)
	made := make(chan error)
	go func() {
		_, err := Make(t.Context(), dir, Options{})
		made <- err
	}()
	small(t, dir+".new")
	require.NoError(t, os.Rename(dir+".new", dir))
	require.NoError(t, os.RemoveAll(dir+".packages"))
	require.NoError(t, lock.Close())
	require.NoError(t, <-made)

	programs := t.TempDir()
	t.Setenv("PATH", programs)
	script := filepath.Join(programs, "python3")
	other := filepath.Join(t.TempDir(), "sight")
	program := func(lines string) {
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+lines+"\n"), 0o700))
	}
	program("echo first\necho 'no route to the registry' >&2\nexit 1")
	_, err = Make(t.Context(), other, Options{})
	require.EqualError(t, err,
		"make the bundle of sight: download rapidocr 3.10.0 from PyPI: python3: exit status 1: no route to the registry")
	program("echo x >rapidocr-3.10.0-py3-none-any.whl")
	_, err = Make(t.Context(), other, Options{})
	require.ErrorContains(t, err, "rapidocr-3.10.0-py3-none-any.whl: expected SHA-256 2fc34e26")
	require.NoDirExists(t, other)
}

// network is a graph of TensorFlow.js with the nodes of the detector that are converted.
const network = `{"modelTopology":{"node":[
 {"name":"Preprocessor/map/TensorArrayStack/TensorArrayGatherV3","op":"Placeholder"},{"name":"w","op":"Const"},
 {"name":"conv","op":"Conv2D","input":["Preprocessor/map/TensorArrayStack/TensorArrayGatherV3","w"],
  "attr":{"strides":{"list":{"i":[1,100,100,1]}},"padding":{"s":"U0FNRQ=="}}},
 {"name":"Squeeze","op":"Relu6","input":["conv"]},{"name":"concat_1","op":"Relu6","input":["conv"]}
]},"weightsManifest":[{"paths":["weights"],"weights":[
 {"name":"w","shape":[1,1,3,4],"dtype":"float32"},{"name":"Postprocessor/ExpandDims","shape":[2,4],"dtype":"float32"}]}]}`

// writePackages writes small packages like those of the registries into a folder.
func writePackages(t *testing.T, folder string) (text, detector origin) {
	t.Helper()
	sum := func(o *origin, content []byte) {
		o.SHA256 = fmt.Sprintf("%x", sha256.Sum256(content))
		require.NoError(t, os.WriteFile(filepath.Join(folder, o.File), content, 0o600))
	}
	var weights []byte
	for i := range 20 {
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(float32(i)))
	}
	var tgz bytes.Buffer
	z := gzip.NewWriter(&tgz)
	w := tar.NewWriter(z)
	for name, content := range map[string]string{
		"package/models/coco-ssd/model.json": network, "package/models/coco-ssd/weights": string(weights), "package/LICENSE": "of the detector",
		"package/index.js": "never read",
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), z.Close()))
	detector = detectorPackage()
	sum(&detector, tgz.Bytes())

	const characters = "\x0a\x09character\x12\x0b中\n7\nß\nő" // a note of ONNX: field 1, the key, and field 2, with their lengths
	var wheel bytes.Buffer
	packed := zip.NewWriter(&wheel)
	for name, content := range map[string]string{
		"rapidocr/models/PP-OCRv6_det_small.onnx":              "finder",
		"rapidocr/models/PP-OCRv6_rec_small.onnx":              string(smallReader(t)) + "\x72" + string(rune(len(characters))) + characters,
		"rapidocr-3.10.0.dist-info/licenses/LICENSE":           "of the text",
		"rapidocr-3.10.0.dist-info/licenses/MODEL_LICENSES.md": "of the models",
		"rapidocr/models/PP-OCRv4_cls_mobile.onnx":             "never read",
	} {
		f, err := packed.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, packed.Close())
	text = textPackage()
	sum(&text, wheel.Bytes())
	return text, detector
}

// TestBundle makes the bundle out of packages in a folder, which stay: with the characters of four languages, and with all.
func TestBundle(t *testing.T) {
	from := t.TempDir()
	text, detector := writePackages(t, from)
	for whole, want := range map[bool][]string{false: {"", "7", "ß", " "}, true: {"", "中", "7", "ß", "ő", " "}} {
		work, dir := t.TempDir(), filepath.Join(t.TempDir(), "sight")
		o := Options{From: from, WholeAlphabet: whole}
		require.NoError(t, o.bundle(t.Context(), work, dir, text, detector))
		b, err := sight.Open(dir)
		require.NoError(t, err)
		require.NoError(t, b.Verify(t.Context()))
		require.Equal(t, want, b.Manifest.Reader.Characters)
		require.Equal(t, [][4]float32{{12, 13, 14, 15}, {16, 17, 18, 19}}, b.Manifest.Detector.Anchors)
		require.Equal(t, "person", b.Manifest.Detector.Classes[1])
		require.Equal(t, "toothbrush", b.Manifest.Detector.Classes[90])
		require.Equal(t, []sight.Package{sight.Package(text), sight.Package(detector)}, b.Manifest.Packages)
		reader, err := os.ReadFile(b.Path(readerName))
		require.NoError(t, err)
		columns, err := onnx.Constants(reader)
		require.NoError(t, err)
		require.Equal(t, []int64{2, int64(len(want))}, columns[0].Shape)
		notices, err := os.ReadFile(b.Path("NOTICE"))
		require.NoError(t, err)
		require.Regexp(t, `(?s)detector\.onnx .*model zoo, out of the package node-red.*finder\.onnx .*out of the package rapidocr`, string(notices))
		require.Equal(t, whole, strings.Contains(string(notices), "the reader is unchanged"))
	}
	require.NoError(t, errors.Join(text.check(t.Context(), from), detector.check(t.Context(), from)))
	detector.SHA256 = text.SHA256
	err := Options{From: from}.bundle(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "sight"), text, detector)
	require.ErrorContains(t, err, "expected SHA-256")
}

// smallReader is a network that reads six characters: none, a Chinese sign, 7, ß, ő and the space.
func smallReader(t *testing.T) []byte {
	t.Helper()
	numbers := func(n int) (raw []byte) {
		for i := range n {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(i))
		}
		return raw
	}
	model := onnx.Model{Opsets: []onnx.Opset{{Version: 11}}, Graph: onnx.Graph{
		Name:   "reader",
		Inputs: []onnx.Value{{Name: "x", Type: models.Float32, Shape: []onnx.Dim{{Size: 1}, {Name: "steps"}, {Size: 2}}}},
		Nodes: []onnx.Node{
			{Name: "product", Op: "MatMul", Inputs: []string{"x", "w"}, Outputs: []string{"h"}},
			{Name: "sum", Op: "Add", Inputs: []string{"h", "b"}, Outputs: []string{textOutput}},
		},
		Outputs: []onnx.Value{{Name: textOutput, Type: models.Float32, Shape: []onnx.Dim{{Size: 6}}}},
		Initializers: []onnx.Tensor{
			{Name: "w", Type: models.Float32, Shape: []int64{2, 6}, Raw: numbers(12)},
			{Name: "b", Type: models.Float32, Shape: []int64{6}, Raw: numbers(6)},
		},
	}}
	content, err := model.Marshal()
	require.NoError(t, err)
	return content
}

// TestCutReader: the characters of four languages stay, with their columns of the last layer.
func TestCutReader(t *testing.T) {
	characters, content := []string{"", "中", "7", "ß", "ő", " "}, smallReader(t)
	cut, left, err := cutReader(content, characters)
	require.NoError(t, err)
	require.Equal(t, []string{"", "7", "ß", " "}, left)
	tensors, err := onnx.Constants(cut)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 4}, tensors[0].Shape)
	require.Equal(t, uint32(9), binary.LittleEndian.Uint32(tensors[0].Raw[6*4:]))
	require.Equal(t, uint32(5), binary.LittleEndian.Uint32(tensors[1].Raw[3*4:]))
	_, _, err = cutReader(content, append(characters, "x"))
	require.EqualError(t, err, "expected weights and biases of 7 characters, got 0 such constants")
}
