package check

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// folder is a tree of fixtures that records which of them were read. Names are
// relative, with slashes; ".gz" may be omitted.
type folder struct {
	root string
	read map[string]bool // by name on disk
}

// ignored reports whether a file describes the fixtures.
func ignored(name string) bool {
	return path.Ext(name) == ".md" || strings.HasPrefix(path.Base(name), ".")
}

func openFolder(root string) (*folder, error) {
	f := &folder{root: root, read: map[string]bool{}}
	if err := f.add(""); err != nil {
		return nil, fmt.Errorf("expected a folder of fixtures: %w", err)
	}
	return f, nil
}

// add lists the files below a folder. A link may point to a folder, such as a checkpoint at another place.
func (f *folder) add(dir string) error {
	entries, err := os.ReadDir(filepath.Join(f.root, filepath.FromSlash(dir)))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := os.Stat(filepath.Join(f.root, filepath.FromSlash(name)))
		switch {
		case err != nil:
			return err
		case info.IsDir():
			if err := f.add(name); err != nil {
				return err
			}
		case !ignored(name):
			f.read[name] = false
		}
	}
	return nil
}

// find returns the name on disk, with or without ".gz".
func (f *folder) find(name string) (string, bool) {
	for _, n := range []string{name, name + ".gz"} {
		if _, ok := f.read[n]; ok {
			return n, true
		}
	}
	return "", false
}

func (f *folder) has(name string) bool {
	_, ok := f.find(name)
	return ok
}

// in returns the names in a stage's folder, sorted, without ".gz".
func (f *folder) in(dir string) []string {
	var out []string
	for name := range f.read {
		if path.Dir(name) == dir {
			out = append(out, strings.TrimSuffix(name, ".gz"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tensors returns the names of a stage's files of tensors.
func (f *folder) tensors(dir string) []string {
	return slices.DeleteFunc(f.in(dir), func(name string) bool { return path.Ext(name) != ".safetensors" })
}

// mark records a file as read.
func (f *folder) mark(name string) {
	if n, ok := f.find(name); ok {
		f.read[n] = true
	}
}

func (f *folder) unread() []string {
	var out []string
	for name, done := range f.read {
		if !done {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// maxFixture is the maximum size of an unpacked fixture in bytes.
const maxFixture = 1 << 31

// bytes reads a file, unpacked.
func (f *folder) bytes(name string) ([]byte, error) {
	n, ok := f.find(name)
	if !ok {
		return nil, fmt.Errorf("expected the file %s: %w", name, fs.ErrNotExist)
	}
	f.read[n] = true
	file, err := os.Open(filepath.Join(f.root, filepath.FromSlash(n)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var r io.Reader = file
	if strings.HasSuffix(n, ".gz") {
		z, err := gzip.NewReader(file)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", n, err)
		}
		r = z
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFixture))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", n, err)
	}
	return b, nil
}

// json decodes a file into v, or ends the row.
func (f *folder) json(name string, v any) {
	if err := json.Unmarshal(need(f.bytes(name)), v); err != nil {
		must(fmt.Errorf("read %s: %w", name, err))
	}
}

// picture is a decoded fixture image in packed RGB, without alpha as in the original.
type picture struct {
	w, h int
	pix  []byte
}

func (f *folder) picture(name string) picture {
	m, err := png.Decode(bytes.NewReader(need(f.bytes(name))))
	if err != nil {
		must(fmt.Errorf("read %s: %w", name, err))
	}
	b := m.Bounds()
	p := picture{w: b.Dx(), h: b.Dy(), pix: make([]byte, 0, b.Dx()*b.Dy()*3)}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c, _ := color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA)
			p.pix = append(p.pix, c.R, c.G, c.B)
		}
	}
	return p
}
