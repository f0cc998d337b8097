package pack

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
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

// TestCutReader: the characters of four languages stay, with their columns of the last layer.
func TestCutReader(t *testing.T) {
	characters := []string{"", "中", "7", "ß", "ő", " "}
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
