package vision_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"image"
	"image/draw"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/vision"
)

// testdata holds pictures and the results of the official preprocessing
// (Pillow 10.4.0): grids, sizes, hashes of the resized bytes and of the float32
// pixel values, position buckets.

func unzip(tb testing.TB, name string) []byte {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(tb, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	b, err := io.ReadAll(z)
	require.NoError(tb, err)
	return b
}

// loaded caches the pictures of load, by name.
var loaded sync.Map

// load decodes a picture to packed RGB; alpha is dropped, not blended. The result is read-only.
func load(tb testing.TB, name string) (w, h int, pix []byte) {
	tb.Helper()
	once, _ := loaded.LoadOrStore(name, sync.OnceValues(func() (image.Point, []byte) { return decode(tb, name) }))
	size, pix := once.(func() (image.Point, []byte))()
	return size.X, size.Y, pix
}

func decode(tb testing.TB, name string) (size image.Point, pix []byte) {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(tb, err)
	defer func() { _ = f.Close() }()
	m, err := png.Decode(f)
	require.NoError(tb, err)
	n, ok := m.(*image.NRGBA)
	if !ok {
		n = image.NewNRGBA(m.Bounds())
		draw.Draw(n, n.Rect, m, n.Rect.Min, draw.Src)
	}
	pix = make([]byte, 0, len(n.Pix)/4*3)
	for p := range slices.Chunk(n.Pix, 4) {
		pix = append(pix, p[:3]...)
	}
	return n.Rect.Size(), pix
}

func newPreprocessor(tb testing.TB) *vision.Preprocessor {
	tb.Helper()
	p, err := vision.New(vision.DefaultConfig(), 1)
	require.NoError(tb, err)
	return p
}

// floatBytes returns the values in memory, little-endian on all supported machines.
func floatBytes(vs []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vs))), 4*len(vs))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

type goldenCase struct {
	Image     string  `json:"image"`
	MaxSlices int     `json:"max_slice_nums"`
	Grid      *[2]int `json:"grid"`
	Slices    []struct {
		Size   [2]int `json:"size"`
		RGB    string `json:"rgb_sha256"`
		Pixels string `json:"pixel_values_sha256"`
	} `json:"slices"`
	Patches [][2]int `json:"tgt_sizes"`
}

func TestImagesAreThoseOfTheOriginal(t *testing.T) {
	var cases []goldenCase
	require.NoError(t, json.Unmarshal(unzip(t, "cases.json.gz"), &cases))
	require.Len(t, cases, 68)
	names := vision.Levels()
	for i, name := range append(names, "bands") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPreprocessor(t)
			if name == "bands" {
				var err error
				p, err = vision.New(vision.DefaultConfig(), 5)
				require.NoError(t, err)
			}
			p.UseLevel(min(i, len(names)-1))
			count, want := 0, 122
			for _, tt := range cases {
				if (name == "plain" || !thorough) && tt.MaxSlices != 2 { // the same filters, and slow
					want -= len(tt.Slices)
					continue
				}
				t.Run(tt.Image+"/"+strconv.Itoa(tt.MaxSlices), func(t *testing.T) {
					w, h, pix := load(t, tt.Image)
					plan, err := p.Config().Layout(w, h, tt.MaxSlices)
					require.NoError(t, err)
					require.Equal(t, tt.Grid != nil, plan.Grid.Sliced())
					if tt.Grid != nil {
						require.Equal(t, vision.Grid{Cols: tt.Grid[0], Rows: tt.Grid[1]}, plan.Grid)
					}
					images, err := p.Images(nil, w, h, pix, tt.MaxSlices)
					require.NoError(t, err)
					require.Len(t, images, len(tt.Slices))
					require.Len(t, images, plan.Grid.Images())
					for i, m := range images {
						want := tt.Slices[i]
						require.Equal(t, want.Size, [2]int{m.Width, m.Height})
						got := [2]int{m.Rows, m.Cols}
						require.Equal(t, tt.Patches[i], got)
						require.Equal(t, want.RGB, sum(m.AppendRGB(nil)), "resized bytes of image %d", i)
						if min(i, len(names)-1) == 0 || thorough { // the level has no part in the pixel values of the same bytes
							strip := p.Strip(make([]float32, m.Patches()*p.PatchLen()), m)
							require.Equal(t, want.Pixels, sum(floatBytes(strip)), "pixel values of image %d", i)
						}
						count++
					}
				})
			}
			require.Equal(t, want, count)
		})
	}
}

func TestResizedPictures(t *testing.T) {
	tests := []struct {
		image, resized string
		maxSlices      int
	}{
		{"1x1.png", "resized_1x1_m1_0.png", 1},
		{"200x700.png", "resized_200x700_m3_0.png", 3},
		{"320x240.png", "resized_320x240_m1_0.png", 1},
		{"90x130_RGBA.png", "resized_90x130_RGBA_m1_0.png", 1},
	}
	p := newPreprocessor(t)
	for _, tt := range tests {
		t.Run(tt.resized, func(t *testing.T) {
			w, h, pix := load(t, tt.image)
			images, err := p.Images(nil, w, h, pix, tt.maxSlices)
			require.NoError(t, err)
			w, h, want := load(t, tt.resized)
			require.Equal(t, [2]int{w, h}, [2]int{images[0].Width, images[0].Height})
			require.Equal(t, want, images[0].AppendRGB(nil))
		})
	}
}

// tensor reads one float32 tensor of a safetensors file.
func tensor(t *testing.T, file []byte, name string) []float32 {
	t.Helper()
	n := binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(file[8:8+n], &raw))
	delete(raw, "__metadata__")
	b, err := json.Marshal(raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &header))
	require.Equal(t, "F32", header[name].DType)
	data := file[8+int(n):][header[name].Offsets[0]:header[name].Offsets[1]]
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

func TestPixelValues(t *testing.T) {
	tests := []struct {
		image, file      string
		maxSlices, index int
	}{
		{"448x448.png", "pixel_values_448x448_m1_0.safetensors.gz", 1, 0},
		{"640x360.png", "pixel_values_640x360_m2_2.safetensors.gz", 2, 2},
	}
	p := newPreprocessor(t)
	for _, tt := range tests {
		t.Run(tt.image, func(t *testing.T) {
			w, h, pix := load(t, tt.image)
			images, err := p.Images(nil, w, h, pix, tt.maxSlices)
			require.NoError(t, err)
			m := images[tt.index]
			want := tensor(t, unzip(t, tt.file), "pixel_values")
			strip := p.Strip(make([]float32, len(want)), m)
			require.True(t, slices.Equal(want, strip))
			// A patch row is the strip's block of 14 columns, channel by channel.
			rows := p.Patches(make([]float32, len(want)), m)
			halves, wide := p.HalfPatches(make([]uint16, len(want)), m), p.BFloat16Patches(make([]uint16, len(want)), m)
			for patch := range m.Patches() {
				for c := range 3 {
					for y := range 14 {
						for x := range 14 {
							at := patch*p.PatchLen() + (c*14+y)*14 + x
							v := strip[(c*14+y)*14*m.Patches()+patch*14+x]
							if rows[at] != v {
								t.Fatalf("patch %d channel %d y %d x %d: is %g, want %g", patch, c, y, x, rows[at], v)
							}
							if h := fromHalf(halves[at]); math.Abs(h-float64(v)) > math.Abs(float64(v))/2048 {
								t.Fatalf("half of %g is %g", v, h)
							}
							if w := math.Float32frombits(uint32(wide[at]) << 16); math.Abs(float64(w)-float64(v)) > math.Abs(float64(v))/256 {
								t.Fatalf("bfloat16 of %g is %g", v, w)
							}
						}
					}
				}
			}
		})
	}
}

func fromHalf(h uint16) float64 {
	exp, mant := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(1+mant/1024, exp-15)
	if exp == 0 {
		v = math.Ldexp(mant, -24)
	}
	if h>>15 == 1 {
		v = -v
	}
	return v
}

func TestLayoutOfManySizes(t *testing.T) {
	var sizes []struct {
		Size      [2]int  `json:"size"`
		MaxSlices int     `json:"max_slice_nums"`
		Grid      *[2]int `json:"grid"`
		Overview  [2]int  `json:"overview"`
		Refine    *[2]int `json:"refine"`
	}
	require.NoError(t, json.Unmarshal(unzip(t, "sizes.json.gz"), &sizes))
	require.Len(t, sizes, 300)
	for _, tt := range sizes {
		plan, err := vision.DefaultConfig().Layout(tt.Size[0], tt.Size[1], tt.MaxSlices)
		require.NoError(t, err)
		got := [2]int{plan.Overview.W, plan.Overview.H}
		require.Equal(t, tt.Overview, got, "%v", tt)
		require.Equal(t, tt.Grid != nil, plan.Grid.Sliced())
		if tt.Grid != nil {
			grid := [2]int{plan.Grid.Cols, plan.Grid.Rows}
			require.Equal(t, tt.Grid, &grid, "%v", tt)
			got = [2]int{plan.Refine.W, plan.Refine.H}
			require.Equal(t, tt.Refine, &got, "%v", tt)
		}
	}
}

func TestPositionBuckets(t *testing.T) {
	var buckets map[string][]int64
	require.NoError(t, json.Unmarshal(unzip(t, "position_buckets.json.gz"), &buckets))
	cfg := vision.DefaultConfig()
	for n := 1; n <= 256; n++ {
		want := buckets[strconv.Itoa(n)]
		require.Equal(t, want, cfg.Positions(make([]int64, n), 1, n))
		for i, id := range cfg.Positions(make([]int64, n), n, 1) {
			require.Equal(t, want[i]*70, id, "row %d of %d", i, n)
		}
	}
	ids := cfg.Positions(make([]int64, 24*43), 24, 43)
	for y := range 24 {
		for x := range 43 {
			require.Equal(t, int64(70*y/24*70+70*x/43), ids[y*43+x])
		}
	}
}

// noise returns a picture of random bytes.
func noise(rng *rand.Rand, w, h int) []byte {
	pix := make([]byte, w*h*3)
	for i := range pix {
		pix[i] = byte(rng.Uint32())
	}
	return pix
}

func TestFastEqualsPlain(t *testing.T) {
	if len(vision.Levels()) == 1 {
		return // plain Go only
	}
	rng := rand.New(rand.NewPCG(1, 2))
	plain := newPreprocessor(t)
	plain.UseLevel(0)
	for i := range 24 {
		fast := newPreprocessor(t)
		fast.UseLevel(1 + i%max(len(vision.Levels())-1, 1))
		w, h := 1+rng.IntN(300), 1+rng.IntN(300)
		pix := noise(rng, w, h)
		if rng.IntN(4) == 0 { // black and white only: overshoot on both ends
			for i := range pix {
				pix[i] = byte(int8(pix[i]) >> 7)
			}
		}
		pix = pix[:len(pix):len(pix)]
		n := 1 + rng.IntN(4)
		a, err := fast.Images(nil, w, h, pix, n)
		require.NoError(t, err)
		b, err := plain.Images(nil, w, h, pix, n)
		require.NoError(t, err)
		require.Len(t, a, len(b))
		for i := range a {
			require.Equal(t, b[i].AppendRGB(nil), a[i].AppendRGB(nil), "%dx%d, image %d", w, h, i)
		}
	}
}

func TestOddPictures(t *testing.T) {
	p := newPreprocessor(t)
	for _, s := range []vision.Size{{1, 1}, {1, 2000}, {2000, 1}, {3, 3}, {vision.MaxSide, 1}, {1, vision.MaxSide}, {5000, 5000}} {
		images, err := p.Images(nil, s.W, s.H, make([]byte, s.W*s.H*3), 1)
		require.NoError(t, err)
		require.Len(t, images, 1)
		require.LessOrEqual(t, images[0].Patches(), 4096)
	}
	tests := []struct {
		name      string
		w, h, len int
		slices    int
		want      string
	}{
		{"no width", 0, 5, 0, 1, "expected a picture of 1x1 to 16384x16384 pixels, got 0x5"},
		{"negative", 4, -5, 0, 1, "got 4x-5"},
		{"too wide", vision.MaxSide + 1, 1, 3 * (vision.MaxSide + 1), 1, "got 16385x1"},
		{"overflow", math.MaxInt, math.MaxInt, 3, 1, "expected a picture of"},
		{"too few bytes", 4, 4, 47, 1, "expected 48 bytes of RGB for a picture of 4x4, got 47"},
		{"too many bytes", 4, 4, 64, 1, "expected 48 bytes"},
		{"slices", 4, 4, 48, -1, "expected 1 to 64 slices"},
		{"too many slices", 4, 4, 48, 65, "expected 1 to 64 slices for a picture, got 65"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			images, err := p.Images(nil, tt.w, tt.h, make([]byte, tt.len), tt.slices)
			require.ErrorContains(t, err, tt.want)
			require.Empty(t, images)
		})
	}
}

func TestBadConstants(t *testing.T) {
	cfg := vision.DefaultConfig()
	cfg.PatchSize, cfg.Scale, cfg.MaxSlices, cfg.PositionTable = 0, 5000, 0, -1
	cfg.Std[1], cfg.Mean[2] = 0, math.NaN()
	_, err := vision.New(cfg, 1)
	for _, want := range []string{
		"patch_size: must be between 1 and 64, is 0", "scale_resolution: must be between",
		"max_slice_nums: must be", "position table: must be", "norm_std[1]: must be a positive number, is 0",
		"norm_mean[2]: must be a number, is NaN",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	p := newPreprocessor(t)
	pix := noise(rand.New(rand.NewPCG(3, 4)), 640, 360)
	var images []vision.Image
	out := make([]float32, 1100*p.PatchLen())
	require.Zero(t, testing.AllocsPerRun(3, func() {
		var err error
		images, err = p.Images(images[:0], 640, 360, pix, 2)
		if err != nil {
			t.Error(err)
		}
		for _, m := range images {
			p.Patches(out, m)
		}
	}))
}

func FuzzLayout(f *testing.F) {
	f.Add(1280, 720, 2)
	f.Add(1, 16384, 9)
	f.Add(0, -1, 65)
	f.Fuzz(func(t *testing.T, w, h, n int) {
		plan, err := vision.DefaultConfig().Layout(w, h, n)
		if err != nil {
			return
		}
		for _, s := range []vision.Size{plan.Overview, plan.Refine, plan.Cell} {
			if s.W%14 != 0 || s.H%14 != 0 || s.W/14*(s.H/14) > 64*4096 {
				t.Fatalf("%dx%d in %d: %+v", w, h, n, plan)
			}
		}
		if plan.Overview.W == 0 || plan.Overview.H == 0 || plan.Grid.Cols*plan.Grid.Rows > max(n, 9) {
			t.Fatalf("%dx%d in %d: %+v", w, h, n, plan)
		}
	})
}

func BenchmarkFrame1280x720(b *testing.B) {
	for _, slices := range []int{1, 2, 9} {
		b.Run("slices="+strconv.Itoa(slices), func(b *testing.B) {
			w, h, pix := load(b, "1280x720.png")
			p := newPreprocessor(b)
			out := make([]uint16, 1100*p.PatchLen())
			ids := make([]int64, 1100)
			var images []vision.Image
			b.ReportAllocs()
			for b.Loop() {
				var err error
				images, err = p.Images(images[:0], w, h, pix, slices)
				if err != nil {
					b.Fatal(err)
				}
				for _, m := range images {
					p.HalfPatches(out, m)
					p.Config().Positions(ids, m.Rows, m.Cols)
				}
			}
		})
	}
}

func BenchmarkLevels(b *testing.B) {
	w, h, pix := load(b, "1280x720.png")
	for level, name := range vision.Levels() {
		b.Run(name, func(b *testing.B) {
			p := newPreprocessor(b)
			p.UseLevel(level)
			for b.Loop() {
				if _, err := p.Images(nil, w, h, pix, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
