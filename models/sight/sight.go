// Package sight opens the bundle of the engine sight: a network that finds things in pictures, one that finds lines of text and
// one that reads them. Package pack makes it. See inference/sight for the engine.
package sight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"touchline/models"
	"touchline/models/disk"
)

// Format is the version of the bundle.
const Format = 1

// ManifestName is the name of a bundle's manifest.
const ManifestName = "sight.json"

const maxManifest = 4 << 20

// Manifest describes a bundle, with all parameters of the networks.
type Manifest struct {
	Format   int           `json:"format"`
	Packages []Package     `json:"packages"` // that the networks come from
	Detector Detector      `json:"detector"`
	Finder   Finder        `json:"finder"`
	Reader   Reader        `json:"reader"`
	Files    []models.File `json:"files"`
}

// Package is a package of a registry.
type Package struct {
	Registry string `json:"registry"` // npm or PyPI
	Name     string `json:"name"`
	Version  string `json:"version"`
	File     string `json:"file"`
	SHA256   string `json:"sha256"`
	License  string `json:"license"`
}

// Detector is SSDLite MobileNetV2: input "image" [1,3,Side,Side], RGB, 0 to 255; outputs "boxes" [1,n,4] and "classes"
// [1,n,len(Classes)], logits.
type Detector struct {
	File string `json:"file"`
	Side int    `json:"side"`
	// Classes are the names of the logits; "" for the background and for numbers that COCO does not use.
	Classes []string `json:"classes"`
	Least   float32  `json:"least"`  // score of a box
	Same    float32  `json:"same"`   // overlap (intersection over union) of two boxes of one thing, in a class
	Across  float32  `json:"across"` // and across classes
	// Anchors are the boxes that the outputs are relative to: y0, x0, y1, x1, 0 to 1.
	Anchors [][4]float32 `json:"anchors"`
}

// Finder marks lines of text: input "x" [1,3,h,w], BGR, -1 to 1, h and w multiples of 32; one output of the same size, the probability of
// text.
type Finder struct {
	File   string  `json:"file"`
	Output string  `json:"output"`
	Least  float32 `json:"least"` // probability of a pixel
	Sure   float32 `json:"sure"`  // mean probability of a line
	Grow   float32 `json:"grow"`  // of a line's outline: area times Grow, by its circumference
}

// Reader reads a line: input "x" [1,3,Height,w], BGR, -1 to 1, w a multiple of 8; one output [1,steps,len(Characters)], probabilities.
type Reader struct {
	File   string `json:"file"`
	Output string `json:"output"`
	Height int    `json:"height"`
	Widest int    `json:"widest"` // picture of a line
	// Characters are those of the outputs; the first one is empty, for no character.
	Characters []string `json:"characters"`
	Least      float32  `json:"least"` // mean score of a reading that counts
}

// Bundle is an opened bundle.
type Bundle struct {
	Dir      string
	Manifest Manifest
}

// ErrNoBundle is returned when a folder has no bundle.
var ErrNoBundle = errors.New("no bundle of sight: fetch one with `touchline models pull sight`")

// Open reads a bundle's manifest and checks that its files exist with the right sizes.
func Open(dir string) (*Bundle, error) {
	path := filepath.Join(dir, ManifestName)
	content, err := models.ReadFile(path, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", dir, ErrNoBundle)
	}
	if err != nil {
		return nil, fmt.Errorf("open bundle %s: %w", dir, err)
	}
	b := &Bundle{Dir: dir}
	if err := json.Unmarshal(content, &b.Manifest); err != nil {
		return nil, fmt.Errorf("open bundle: %s: %w", path, err)
	}
	if err := b.Manifest.validate(); err != nil {
		return nil, fmt.Errorf("open bundle: %s: %w", path, err)
	}
	files := &models.Bundle{Dir: dir}
	for _, f := range b.Manifest.Files {
		if err := files.CheckSize(f); err != nil {
			return nil, fmt.Errorf("open bundle %s: %w", dir, err)
		}
	}
	return b, nil
}

// Path returns the path of a file of the bundle.
func (b *Bundle) Path(name string) string { return filepath.Join(b.Dir, name) }

// Verify compares the SHA-256 of every file with the manifest.
func (b *Bundle) Verify(ctx context.Context) error {
	return disk.Verify(ctx, &models.Bundle{Dir: b.Dir, Manifest: models.Manifest{Files: b.Manifest.Files}}, nil)
}

func (m *Manifest) validate() error {
	d, r := &m.Detector, &m.Reader
	switch {
	case m.Format != Format:
		return fmt.Errorf("format: must be %d, is %d: fetch the bundle again", Format, m.Format)
	case d.Side < 1 || d.Side > 4096 || len(d.Classes) < 2 || len(d.Anchors) == 0:
		return fmt.Errorf("detector: side %d, %d classes and %d anchors are not possible", d.Side, len(d.Classes), len(d.Anchors))
	case r.Height < 8 || r.Height > 4096 || r.Widest < r.Height || r.Widest > 1<<14 || len(r.Characters) < 2:
		return fmt.Errorf("reader: height %d, widest %d and %d characters are not possible", r.Height, r.Widest, len(r.Characters))
	}
	known := map[string]bool{}
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("files: %q is not a file in the bundle's folder", f.Name)
		}
		known[f.Name] = true
	}
	for _, name := range []string{d.File, m.Finder.File, r.File} {
		if !known[name] {
			return fmt.Errorf("files: %q is missing", name)
		}
	}
	return nil
}

// Locate returns the folder of a bundle: dir, or with "" the first one of sight/ next to the program, bin/sight in the working folder, and
// Default.
func Locate(dir string) (*Bundle, error) {
	if dir != "" {
		return Open(dir)
	}
	folders := []string{filepath.Join("bin", "sight"), Default()}
	if program, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(program); err == nil {
			program = target
		}
		folders = append([]string{filepath.Join(filepath.Dir(program), "sight")}, folders...)
	}
	for _, folder := range folders {
		b, err := Open(folder)
		if err == nil || !errors.Is(err, ErrNoBundle) {
			return b, err
		}
	}
	return nil, fmt.Errorf("%w: looked in %v", ErrNoBundle, folders)
}

// Default returns the folder of the bundle in the user's cache.
func Default() string { return filepath.Join(models.Cache(), fmt.Sprintf("sight-%d", Format)) }
