//go:build integration

package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
)

// compiler opens NVRTC in the folder NVRTC, which must then have it, else in bin/nvrtc, without which the test is left out.
func compiler(t *testing.T, cache string) *Compiler {
	t.Helper()
	folder, required := os.LookupEnv("NVRTC")
	if !required {
		folder = filepath.Join("..", "..", "..", "bin", "nvrtc")
		if _, err := os.Stat(filepath.Join(folder, "libnvrtc.so.13")); err != nil {
			t.Skip("left out: no NVRTC in bin/nvrtc, which `make setup-test` fetches")
		}
	}
	folder, err := filepath.Abs(folder)
	require.NoError(t, err)
	c, err := NewCompiler(func(name string) (unsafe.Pointer, error) { return ort.OpenCUDA(folder, name) }, cache)
	require.NoError(t, err)
	return c
}

// usage is what a kernel needs of a multiprocessor: registers and bytes of local memory of a thread, bytes of static shared memory.
type usage struct{ registers, local, shared int }

// Attributes of .nv.info, with a symbol's index and a value.
const (
	infoFrame     = 0x11
	infoStack     = 0x12
	infoRegisters = 0x2f
)

// readCubin returns the usage of each kernel. .nv.info is a list of formats (one byte), attributes (one byte) and values (two bytes); in
// format 4 the value is the number of bytes that follow.
func readCubin(t *testing.T, cubin []byte) map[string]usage {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(cubin))
	require.NoError(t, err)
	symbols, err := f.Symbols()
	require.NoError(t, err)
	info, err := f.Section(".nv.info").Data()
	require.NoError(t, err)
	out := map[string]usage{}
	for len(info) >= 4 {
		format, attribute, size := info[0], info[1], int(binary.LittleEndian.Uint16(info[2:]))
		info = info[4:]
		if format != 4 {
			continue
		}
		if attribute == infoFrame || attribute == infoStack || attribute == infoRegisters {
			name, value := symbols[binary.LittleEndian.Uint32(info)-1].Name, int(binary.LittleEndian.Uint32(info[4:]))
			u := out[name]
			if attribute == infoRegisters {
				u.registers = value
			} else {
				u.local = max(u.local, value)
			}
			out[name] = u
		}
		info = info[size:]
	}
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".nv.shared."); ok {
			u := out[name]
			u.shared = int(s.Size)
			out[name] = u
		}
	}
	return out
}

// reserved is the shared memory of CUDA in each block, which cubins count from sm_90 on and the limits leave out.
const reserved = 1024

// spilled is the most local memory of a thread, in bytes. Decode spills up to 32 on sm_80 and sm_90, and nothing elsewhere.
const spilled = 32

// TestKernelsFitEachCard compiles the kernels as NewDecoder does, for a choice of architectures, rows and shapes. With CUBINS=all they are
// all of the published shape.
func TestKernelsFitEachCard(t *testing.T) {
	c := compiler(t, "")
	tiny := Shape{
		Layers: 3, Hidden: 256, FFN: 384, Heads: 6, KVHeads: 3, HeadDim: 64, Vocab: 1362, Head: 4, Top: 256, Epsilon: 1e-6, MaxLen: 1088,
	}
	wide, awq, tinyAWQ := published, published, tiny
	wide.Head, awq.Head = 8, 8
	awq.Zeros, tinyAWQ.Zeros = true, true
	type test struct {
		arch, rows int
		shape      Shape
	}
	tests := []test{
		{80, 8, wide},
		{86, 4, published},
		{89, 2, wide},
		{100, 8, published},
		{120, 4, wide},
		{89, 8, tiny},
		{90, 1, published},
		{90, 2, wide},
		{90, 4, published},
		{90, 8, wide},
		{90, 8, awq},
		{86, 4, awq},
		{90, 1, tinyAWQ},
	}
	if os.Getenv("CUBINS") == "all" {
		light := awq
		light.Head = 4
		for _, card := range cards {
			for _, s := range []Shape{published, wide, light, awq} {
				plans, err := plansFor(s, card.blocks, card.shared)
				require.NoError(t, err)
				for _, p := range plans {
					tests = append(tests, test{card.arch, p.rows, s})
				}
			}
		}
	}
	for _, tt := range tests {
		name := fmt.Sprintf("sm_%d, %d rows, hidden %d, head %d, zeros %t", tt.arch, tt.rows, tt.shape.Hidden, tt.shape.Head, tt.shape.Zeros)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			card := cards[slices.IndexFunc(cards, func(c card) bool { return c.arch == tt.arch })]
			p, err := planFor(tt.shape, tt.rows, card.blocks, card.shared)
			require.NoError(t, err)
			cubin, err := c.Compile(decodeSource, tt.arch, tt.shape.macros(p))
			require.NoError(t, err)
			kernels := readCubin(t, cubin)
			for name, block := range map[string]struct{ threads, shared int }{
				"decode": {p.warps * 32, p.shared}, "best": {512, 0}, "top": {512, 0},
			} {
				u := kernels[name]
				if tt.arch >= 90 {
					u.shared -= reserved
				}
				t.Logf("%s: %+v, %+v", name, block, u)
				require.Positive(t, u.registers, name)
				require.LessOrEqual(t, (u.registers+7)/8*8*block.threads, registers, name)
				require.LessOrEqual(t, u.local, spilled, name)
				require.LessOrEqual(t, u.shared, 48<<10, name)
				require.LessOrEqual(t, u.shared+block.shared, card.shared, name)
			}
		})
	}
}

func TestNoKernels(t *testing.T) {
	missing := errors.New("libnvrtc.so.13 is not here")
	_, err := NewCompiler(func(string) (unsafe.Pointer, error) { return nil, missing }, "")
	require.ErrorIs(t, err, ErrNone)
	require.ErrorIs(t, err, ErrNVRTC)
	require.ErrorIs(t, err, missing)

	_, err = NewDriver(orttest.CPU(t, orttest.Open(t)))
	require.ErrorIs(t, err, ErrCard)
}

// TestCheck has kernels in the cache as of a former start.
func TestCheck(t *testing.T) {
	d := &Driver{dev: orttest.CPU(t, orttest.Open(t)), Arch: 90, Blocks: 132, Shared: 227 << 10}
	c := &Compiler{version: "13.0", cache: t.TempDir()} // has no NVRTC to call
	require.NoError(t, Check(d, c, published), "they did not run yet")
	plans, err := plansFor(published, d.Blocks, d.Shared)
	require.NoError(t, err)
	var cubins [][]byte
	for i, p := range plans {
		_, file := c.options(decodeSource, d.Arch, published.macros(p))
		cubins = append(cubins, []byte{byte(i)})
		require.NoError(t, keep(file, cubins[i]))
	}
	require.NoError(t, Check(d, c, published))
	m := newMark(c.cache, d.dev.Name(), cubins)
	m.Begin()
	require.ErrorIs(t, m.End(fmt.Errorf("%w: two rows, 0.04 of the largest", ErrCheck)), ErrCheck)
	require.NoError(t, m.refuse(), "they are checked again")
	require.ErrorIs(t, Check(d, c, published), ErrCheck)
	require.ErrorContains(t, Check(d, c, published), "at the last start: no own kernels: two rows, 0.04 of the largest")
	m.Begin()
	require.NoError(t, m.End(nil))
	require.NoError(t, Check(d, c, published), "a good check")
	require.ErrorIs(t, m.End(errLost), ort.ErrDeviceLost)
	require.ErrorIs(t, Check(d, c, published), ErrLost)
	require.ErrorContains(t, Check(d, c, published), "these kernels lost the GPU")

	other := published
	other.MaxLen *= 4
	require.NoError(t, Check(d, c, other), "slots of another length have other kernels")
	other.Head = 16
	require.ErrorIs(t, Check(d, c, other), ErrBundle)
	d.Shared = 10 << 10
	require.ErrorIs(t, Check(d, c, published), ErrCard)
}

func TestCache(t *testing.T) {
	const source = `extern "C" __global__ void kernel(int *to) { *to = VALUE; }`
	macros := map[string]string{"VALUE": "3"}
	folder := filepath.Join(t.TempDir(), "kernels")
	c := compiler(t, folder)
	first, err := c.Compile(source, 90, macros)
	require.NoError(t, err)
	require.Contains(t, readCubin(t, first), "kernel")

	cached := &Compiler{version: c.version, cache: folder} // has no NVRTC to call
	second, err := cached.Compile(source, 90, macros)
	require.NoError(t, err)
	require.Equal(t, first, second)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)

	whole, err := os.ReadFile(files[0])
	require.NoError(t, err)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for _, damaged := range [][]byte{nil, whole[:20], whole[:len(whole)-1], flipped} {
		require.NoError(t, os.WriteFile(files[0], damaged, 0o600))
		again, err := c.Compile(source, 90, macros)
		require.NoError(t, err)
		require.Equal(t, first, again)
		repaired, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.Equal(t, whole, repaired)
	}

	_, err = c.Compile(source, 90, map[string]string{"VALUE": "4"})
	require.NoError(t, err)
	files, err = filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, files, 2, "other macros, another file")

	other, err := c.Compile(source, 80, macros)
	require.NoError(t, err)
	require.NotEqual(t, first, other, "another architecture, other code")
	_, err = (&Compiler{lib: c.lib, version: c.version + ".1", cache: folder}).Compile(source, 90, macros)
	require.NoError(t, err)
	all, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, all, 4, "another architecture or version of NVRTC, another file")

	c.cache = filepath.Join(files[0], "below a file")
	again, err := c.Compile(source, 90, macros)
	require.NoError(t, err, "a folder that cannot be written to")
	require.Equal(t, first, again)

	_, err = c.Compile("this is no source", 90, nil)
	require.ErrorContains(t, err, "compile the kernels: nvrtcCompileProgram: error 6: ")
}
