package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
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
	b, err := readLimited(path, maxManifest)
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
		if err := bundle.checkSize(f); err != nil {
			errs = append(errs, err)
		}
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

var errMissing = errors.New("the file is missing")

// Path returns the path of one of the bundle's files.
func (b *Bundle) Path(name string) string { return filepath.Join(b.Dir, name) }

// Find returns the graph of a kind, weight format and device. It skips the
// graphs of the conformance check.
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
// with the bytes read so far, from several goroutines.
func (b *Bundle) Verify(ctx context.Context, progress func(done, total int64)) error {
	total := b.Manifest.Bytes()
	var done atomic.Int64
	errs := make([]error, len(b.Manifest.Files))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range b.Manifest.Files {
		group.Go(func() error {
			errs[i] = b.verify(ctx, f, func(n int) {
				if sum := done.Add(int64(n)); progress != nil {
					progress(sum, total)
				}
			})
			return nil
		})
	}
	_ = group.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify bundle %s: %w", b.Dir, context.Cause(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("verify bundle %s: %w", b.Dir, err)
	}
	return nil
}

func (b *Bundle) verify(ctx context.Context, want File, read func(n int)) error {
	if err := b.checkSize(want); err != nil {
		return err
	}
	sum, err := HashFile(ctx, b.Path(want.Name), read)
	if err != nil {
		return fmt.Errorf("%s: %w", want.Name, err)
	}
	if sum != want.SHA256 {
		return fmt.Errorf("%s: the content is damaged: expected SHA-256 %s, got %s", want.Name, want.SHA256, sum)
	}
	return nil
}

// HashFile returns the SHA-256 of a file in hexadecimal digits. read, if not
// nil, is called with the size of each piece read.
func HashFile(ctx context.Context, path string, read func(n int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, piece := sha256.New(), make([]byte, 1<<20)
	for {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		n, err := f.Read(piece)
		h.Write(piece[:n])
		if read != nil && n > 0 {
			read(n)
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
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
	var found []Listed
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == folder {
				return err
			}
			found = append(found, Listed{Dir: path, Err: err})
			return fs.SkipDir
		}
		if !d.IsDir() {
			return nil
		}
		below, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if path != folder && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, ManifestName)); err == nil {
			l := Listed{Dir: path}
			b, err := OpenBundle(path)
			if err == nil {
				l.Manifest = &b.Manifest
			}
			l.Err = err
			found = append(found, l)
			return fs.SkipDir
		}
		if below != "." && strings.Count(below, string(filepath.Separator)) >= listDepth-1 {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	return found, nil
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", filepath.Base(path), limit)
	}
	return b, nil
}
