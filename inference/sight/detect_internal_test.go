package sight

import (
	"compress/gzip"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sight/facts"
	bundle "touchline/models/sight"
)

const bin = "../../bin"

// openBundle opens the bundle that `models pull sight bin/sight` makes.
func openBundle(tb testing.TB) *bundle.Bundle {
	tb.Helper()
	b, err := bundle.Open(filepath.Join(bin, "sight"))
	if err != nil {
		tb.Skip(err)
	}
	return b
}

func testDetector(tb testing.TB) *detector {
	tb.Helper()
	d, err := openDetector(openBundle(tb), filepath.Join(bin, "runtime"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	return d
}

// picture reads a PNG file.
func picture(tb testing.TB, path string) inference.Frame {
	tb.Helper()
	file, err := os.Open(path)
	require.NoError(tb, err)
	defer file.Close()
	decoded, err := png.Decode(file)
	require.NoError(tb, err)
	return frameOf(decoded)
}

func frameOf(p image.Image) inference.Frame {
	s := p.Bounds()
	f := inference.Frame{Width: s.Dx(), Height: s.Dy()}
	for y := s.Min.Y; y < s.Max.Y; y++ {
		for x := s.Min.X; x < s.Max.X; x++ {
			c := color.NRGBAModel.Convert(p.At(x, y)).(color.NRGBA) //nolint:forcetypeassert // by the model
			f.Pix = append(f.Pix, c.R, c.G, c.B)
		}
	}
	return f
}

// TestNetwork: every number of the converted network is that of the original runtime, within 2e-4.
func TestNetwork(t *testing.T) {
	d := testDetector(t)
	for name, r := range map[string]rect{"astronaut": {0, 0, 300, 300}, "chelsea": {75, 0, 375, 300}} {
		l, err := d.take()
		require.NoError(t, err)
		require.NoError(t, l.look(picture(t, "testdata/"+name+".png"), r, 0))
		file, err := os.Open("testdata/" + name + ".golden.gz")
		require.NoError(t, err)
		unpacked, err := gzip.NewReader(file)
		require.NoError(t, err)
		planes, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		n := len(planes) / 3
		require.Equal(t, len(l.boxes)+len(l.logits), n)
		for i := range n {
			want := 2e-4 * float64(int(planes[i])+int(planes[n+i])<<8+int(planes[2*n+i])<<16-1<<23)
			var have float32
			if i < len(l.boxes) {
				have = l.boxes[i]
			} else {
				have = l.logits[i-len(l.boxes)]
			}
			if diff := want - float64(have); diff > 2e-4 || diff < -2e-4 {
				require.Failf(t, "differs", "%s: number %d: expected %f, got %f", name, i, want, have)
			}
		}
		d.put(l)
	}
}

// TestDetect: from pictures to boxes, within 1e-3 of another implementation, also from several goroutines.
func TestDetect(t *testing.T) {
	d := testDetector(t)
	content, err := os.ReadFile("testdata/boxes.json")
	require.NoError(t, err)
	var golden map[string][]facts.Box
	require.NoError(t, json.Unmarshal(content, &golden))
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, name := range []string{"astronaut", "chelsea"} {
		f := picture(t, "testdata/"+name+".png")
		for how, parts := range map[string]bool{" whole": false, " parts": true} {
			wg.Go(func() {
				boxes, err := d.detect(f, parts, nil)
				if err != nil || len(boxes) != len(golden[name+how]) {
					t.Errorf("%s: expected %d boxes, got %v, %v", name+how, len(golden[name+how]), boxes, err)
					return
				}
				for i, want := range golden[name+how] {
					have := boxes[i]
					if have.Class != want.Class {
						t.Errorf("%s: expected %v, got %v", name+how, want, have)
					}
					for _, v := range [][2]float32{
						{want.X0, have.X0},
						{want.Y0, have.Y0},
						{want.X1, have.X1},
						{want.Y1, have.Y1},
						{want.Score, have.Score},
					} {
						if diff := v[0] - v[1]; diff > 1e-3 || diff < -1e-3 {
							t.Errorf("%s: expected %v, got %v", name+how, want, have)
						}
					}
				}
			})
		}
	}
}

func TestDetectRefuses(t *testing.T) {
	d := testDetector(t)
	_, err := d.detect(inference.Frame{Width: 2, Height: 2, Pix: make([]byte, 11)}, false, nil)
	require.EqualError(t, err, "detect: a picture of 2x2 pixels must have 12 bytes, has 11")
	_, err = d.detect(inference.Frame{Width: 1, Height: 1, Pix: make([]byte, 3)}, true, nil)
	require.NoError(t, err)
	_, err = openDetector(&bundle.Bundle{Dir: t.TempDir(), Manifest: bundle.Manifest{Detector: bundle.Detector{File: "none"}}},
		filepath.Join(bin, "runtime"))
	require.ErrorContains(t, err, "open the detector: load ")
}

// TestJoin: boxes of one thing become one; a piece of another look lies in its whole; a box at the inner edge of a part is cut.
func TestJoin(t *testing.T) {
	person := candidate{Box: inference.Box{X0: 10, Y0: 10, X1: 50, Y1: 110}, score: 0.9, class: 1}
	again, piece, truck := person, person, person
	again.X0, again.score, again.look = 12, 0.8, 1
	piece.Y1, piece.score, piece.look = 40, 0.7, 2
	truck.class, truck.score = 2, 0.6
	other := candidate{Box: inference.Box{X0: 60, Y0: 10, X1: 90, Y1: 110}, score: 0.5, class: 1}
	require.Equal(t, []candidate{person, other}, join([]candidate{other, truck, piece, again, person}))
	piece.look = 0 // in one look these are two
	require.Len(t, join([]candidate{person, piece}), 2)

	f := inference.Frame{Width: 100, Height: 50}
	parts := halves(f)
	require.Equal(t, []rect{{0, 0, 60, 50}, {40, 0, 100, 50}}, parts)
	require.Equal(t, []rect{{0, 0, 50, 60}, {0, 40, 50, 100}}, halves(inference.Frame{Width: 50, Height: 100}))
	require.True(t, cut(inference.Box{X0: 30, X1: 59.5, Y1: 50}, f, parts[0]))
	require.False(t, cut(inference.Box{X0: 0, X1: 58, Y1: 50}, f, parts[0]))
	require.True(t, cut(inference.Box{X0: 41, X1: 100, Y1: 50}, f, parts[1]))
}

func BenchmarkDetect(b *testing.B) {
	d := testDetector(b)
	f := picture(b, "testdata/chelsea.png")
	for name, parts := range map[string]bool{"whole": false, "parts": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := d.detect(f, parts, nil)
				require.NoError(b, err)
			}
		})
	}
}

// TestStill: a part counts as still after three looks that found the same, while no cell of it changed, compared with the first of
// these looks and not with the last picture.
func TestStill(t *testing.T) {
	var l detection
	var seen partSeen
	f := street(0, 0)
	part := halves(f)[0]
	still := func() bool {
		if l.still(f, part, &seen) {
			return true
		}
		for range stillLooks {
			seen.note(nil)
		}
		return false
	}
	require.False(t, still())
	require.True(t, still())
	f.Pix[3*f.Width-3] ^= 255 // in the other part
	require.True(t, still())
	drift := 0
	for ; drift < 20; drift++ { // darker, slowly
		for i := range f.Pix {
			f.Pix[i] -= min(f.Pix[i], 1)
		}
		if !still() {
			break
		}
	}
	require.InDelta(t, stillChange, drift, 2)
	require.True(t, still())
	for y := 60; y < 66; y++ { // a small thing
		for x := 40; x < 44; x++ {
			f.Pix[3*(y*f.Width+x)] = 255
		}
	}
	require.False(t, still())
	f.Width, f.Height = f.Height, f.Width
	part = whole(f)
	require.False(t, still())
}

// TestStillNeedsAgreement: what one look finds and the next one does not is not kept; doubtful boxes do not count.
func TestStillNeedsAgreement(t *testing.T) {
	person := candidate{Box: inference.Box{X1: 10, Y1: 20}, score: 0.9, class: 1}
	doubt, moved, dog := person, person, person
	doubt.score, moved.X0, moved.X1, dog.class = 0.4, 8, 18, 18
	var seen partSeen
	for _, tt := range []struct {
		found []candidate
		looks int
	}{
		{nil, 1},
		{[]candidate{person}, 1},
		{nil, 1},
		{[]candidate{doubt}, 2},
		{nil, 3},
		{[]candidate{person}, 1},
		{[]candidate{person, doubt}, 2},
		{[]candidate{dog}, 1},
		{[]candidate{person}, 1},
		{[]candidate{moved}, 1},
		{[]candidate{moved, person}, 1},
		{[]candidate{person, moved}, 2},
	} {
		seen.note(tt.found)
		require.Equal(t, tt.looks, seen.looks, "%+v", tt.found)
	}
}
