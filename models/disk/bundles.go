package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"touchline/models"
)

// Verify compares the SHA-256 of every file with the manifest, on all cores.
// The error names each missing or damaged file. progress, if not nil, is called
// by one goroutine at a time.
func Verify(ctx context.Context, b *models.Bundle, progress func(done, total int64)) error {
	var errs []error
	var names []string
	for _, f := range b.Manifest.Files {
		if err := b.CheckSize(f); err != nil {
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
	Manifest *models.Manifest // nil if it cannot be read
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
	if _, err := os.Stat(filepath.Join(folder, models.ManifestName)); err == nil {
		l := Listed{Dir: folder}
		b, err := models.OpenBundle(folder)
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
