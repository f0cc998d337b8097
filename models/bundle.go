package models

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
// exist. It reads no weights; Verify does.
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
		errs = append(errs, bundle.checkSize(f))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("open bundle %s: %w", dir, err)
	}
	return bundle, nil
}

// checkSize returns an error unless the file exists with the size of the manifest.
func (b *Bundle) checkSize(f File) error {
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
func (b *Bundle) Table(g Graph, rows, columns int) (*Table, error) {
	t := g.Table
	if t == nil {
		return nil, &NoTableError{b.Dir, g.File}
	}
	if t.Shape != [2]int64{int64(rows), int64(columns)} {
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

// Verify compares the SHA-256 of every file with the manifest, on all cores.
// The error names each missing or damaged file. progress, if not nil, is called
// by one goroutine at a time.
func (b *Bundle) Verify(ctx context.Context, progress func(done, total int64)) error {
	var errs []error
	var names []string
	for _, f := range b.Manifest.Files {
		if err := b.checkSize(f); err != nil {
			errs = append(errs, err)
		} else {
			names = append(names, f.Name)
		}
	}
	sums, err := HashFiles(ctx, b.Dir, names, progress)
	if err != nil {
		errs = append(errs, err)
	}
	for _, f := range b.Manifest.Files {
		if sum, ok := sums[f.Name]; ok && sum != f.SHA256 {
			errs = append(errs, fmt.Errorf("%s: the content is damaged: expected SHA-256 %s, got %s", f.Name, f.SHA256, sum))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("verify bundle %s: %w", b.Dir, err)
	}
	return nil
}

// Listed is a bundle found by List. Err is set if it cannot be used.
type Listed struct {
	Dir      string
	Manifest *Manifest // nil if it cannot be read
	Err      error
}

// listDepth is the number of levels that List searches: "publisher/name".
const listDepth = 2

// List finds the bundles in a folder: the folder itself, its subfolders, and
// theirs (grouped by publisher). It skips hidden folders.
func List(folder string) ([]Listed, error) {
	if _, err := os.ReadDir(folder); err != nil {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	return list(folder, listDepth), nil
}

func list(folder string, depth int) []Listed {
	if _, err := os.Stat(filepath.Join(folder, ManifestName)); err == nil {
		l := Listed{Dir: folder}
		b, err := OpenBundle(folder)
		if l.Err = err; err == nil {
			l.Manifest = &b.Manifest
		}
		return []Listed{l}
	}
	if depth == 0 {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return []Listed{{Dir: folder, Err: err}}
	}
	var found []Listed
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			found = append(found, list(filepath.Join(folder, e.Name()), depth-1)...)
		}
	}
	return found
}
