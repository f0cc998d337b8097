package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"
)

// Compiler is NVRTC.
type Compiler struct {
	lib     *library
	version string
	cache   string // folder; empty for none
}

// NewCompiler opens NVRTC by a function that returns the handle of a library. Results are kept in a folder, unless it is empty.
func NewCompiler(library func(name string) (unsafe.Pointer, error), cache string) (*Compiler, error) {
	lib, err := open(library, "libnvrtc.so.13", ErrNVRTC)
	if err != nil {
		return nil, err
	}
	c := &Compiler{lib: lib, cache: cache}
	var p pinned
	defer p.Unpin()
	major, minor := new(int32), new(int32)
	if err := c.do("nvrtcVersion", at(&p, major), at(&p, minor)); err != nil {
		return nil, err
	}
	c.version = fmt.Sprintf("%d.%d", *major, *minor)
	return c, nil
}

func (c *Compiler) do(function string, args ...uintptr) error {
	code, err := c.lib.call(function, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: error %d", function, code)
	}
	return err
}

// Compile compiles a source for a compute capability with macros, and returns a cubin.
func (c *Compiler) Compile(source string, arch int, macros map[string]string) ([]byte, error) {
	options, file := c.options(source, arch, macros)
	if cubin := read(file); cubin != nil {
		return cubin, nil
	}
	cubin, err := c.compile(source, options)
	if err != nil {
		return nil, fmt.Errorf("compile the kernels: %w", err)
	}
	if file != "" {
		_ = keep(file, cubin) // the next start compiles again
	}
	return cubin, nil
}

// options returns NVRTC's options, and the file of the cache for the result; "" without a cache.
func (c *Compiler) options(source string, arch int, macros map[string]string) (options []string, file string) {
	options = []string{fmt.Sprintf("-arch=sm_%d", arch), "-std=c++17", "-default-device", "-use_fast_math"}
	for _, name := range slices.Sorted(maps.Keys(macros)) {
		options = append(options, "-D"+name+"="+macros[name])
	}
	if c.cache == "" {
		return options, ""
	}
	sum := sha256.Sum256([]byte(strings.Join(append(slices.Clone(options), c.version, source), "\x00")))
	return options, filepath.Join(c.cache, hex.EncodeToString(sum[:])+".cubin")
}

// Version is NVRTC's.
func (c *Compiler) Version() string { return c.version }

// read returns the cubin of a file of keep, nil if there is none or it is damaged.
func read(file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil || len(content) < sha256.Size {
		return nil
	}
	cubin, sum := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if sha256.Sum256(cubin) != [sha256.Size]byte(sum) {
		return nil
	}
	return cubin
}

// keep writes a cubin and its SHA-256 to a file, whole or not at all.
func keep(file string, cubin []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".kernels-")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(cubin)
	_, err = f.Write(slices.Concat(cubin, sum[:]))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (c *Compiler) compile(source string, options []string) ([]byte, error) {
	var p pinned
	defer p.Unpin()
	text := append([]byte(source), 0)
	list := make([]unsafe.Pointer, len(options))
	for i, o := range options {
		option := append([]byte(o), 0)
		p.Pin(&option[0])
		list[i] = unsafe.Pointer(&option[0]) //nolint:gosec // read by NVRTC during the call
	}
	program := new(uintptr)
	if err := c.do("nvrtcCreateProgram", at(&p, program), at(&p, &text[0]), 0, 0, 0, 0); err != nil {
		return nil, err
	}
	defer func() { _ = c.do("nvrtcDestroyProgram", at(&p, program)) }()
	if err := c.do("nvrtcCompileProgram", *program, uintptr(len(list)), at(&p, &list[0])); err != nil {
		log, _ := c.result(*program, "nvrtcGetProgramLog")
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimRight(log, "\x00\n"))
	}
	cubin, err := c.result(*program, "nvrtcGetCUBIN")
	if err == nil && len(cubin) == 0 {
		err = errors.New("NVRTC returned no code")
	}
	return cubin, err
}

// result reads the result of a function that comes with another for its size.
func (c *Compiler) result(program uintptr, function string) ([]byte, error) {
	var p pinned
	defer p.Unpin()
	size := new(uintptr)
	if err := c.do(function+"Size", program, at(&p, size)); err != nil || *size == 0 {
		return nil, err
	}
	out := make([]byte, *size)
	return out, c.do(function, program, at(&p, &out[0]))
}
