package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Bundle is an opened bundle: a folder with a valid manifest, whose files
// exist with the sizes of the manifest.
type Bundle struct {
	Dir      string
	Manifest Manifest
}

// ErrNoBundle is returned when a folder has no manifest.
var ErrNoBundle = errors.New("no " + ManifestName + " in the folder: make a bundle with `touchline models convert`")

// OpenBundle reads and validates a bundle's manifest and checks that its files
// exist. It reads no weights; disk.Verify does.
func OpenBundle(dir string) (*Bundle, error) {
	path := filepath.Join(dir, ManifestName)
	b, err := ReadFile(path, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open bundle %s: %w", dir, ErrNoBundle)
	}
	if err != nil {
		return nil, fmt.Errorf("open bundle %s: %w", dir, err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %s: %w", path, err)
	}
	bundle := &Bundle{Dir: dir, Manifest: *m}
	var errs []error
	for _, f := range m.Files {
		errs = append(errs, bundle.CheckSize(f))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("open bundle %s: %w", dir, err)
	}
	return bundle, nil
}

// CheckSize returns an error unless the file exists with the size of the manifest.
func (b *Bundle) CheckSize(f File) error {
	info, err := os.Stat(b.Path(f.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: convert or copy the bundle again", f.Name, errMissing)
	case err != nil:
		return fmt.Errorf("%s: %w", f.Name, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file (%s)", f.Name, info.Mode().Type())
	case info.Size() != f.Size:
		return fmt.Errorf("%s: expected %d bytes, got %d: convert or copy the bundle again", f.Name, f.Size, info.Size())
	}
	return nil
}

// NoTableError is returned for a graph of an older bundle that lacks the place of its table.
type NoTableError struct{ Dir, File string }

// Error names the remedy.
func (e *NoTableError) Error() string {
	return fmt.Sprintf("bundle %s has no place of the table of %s: add it with `touchline models upgrade %s`", e.Dir, e.File, e.Dir)
}

// Table returns the place of a graph's table of embeddings, with at least the given sizes. The error is a *NoTableError for an
// older bundle.
func (b *Bundle) Table(g Graph, rows, columns int) (*Tensor, error) {
	t := g.Table
	if t == nil {
		return nil, &NoTableError{b.Dir, g.File}
	}
	if !slices.Equal(t.Shape, []int64{int64(rows), int64(columns)}) {
		return nil, fmt.Errorf("the table of %s: must have %d rows of %d numbers, has %d", g.File, rows, columns, t.Shape)
	}
	return t, nil
}

var errMissing = errors.New("the file is missing")

// Path returns the path of one of the bundle's files.
func (b *Bundle) Path(name string) string { return filepath.Join(b.Dir, name) }

// Find returns the graph of a kind, weight format and device; false if the bundle has none. It skips the graphs of the conformance check.
func (b *Bundle) Find(kind Kind, weights Weights, device Device) (Graph, bool) {
	return b.Manifest.find(kind, weights, device, false)
}

// FindCheck is Find for the graphs of the conformance check.
func (b *Bundle) FindCheck(kind Kind, weights Weights, device Device) (Graph, bool) {
	return b.Manifest.find(kind, weights, device, true)
}

func (m *Manifest) find(kind Kind, weights Weights, device Device, check bool) (Graph, bool) {
	for _, g := range m.Graphs {
		if g.Kind == kind && g.Weights == weights && g.Device == device && g.Check == check {
			return g, true
		}
	}
	return Graph{}, false
}

// Bytes returns the size of the bundle without its manifest.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}
