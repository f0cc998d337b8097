package sight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // most photos
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/draw"

	"touchline/inference"
	"touchline/inference/sight/facts"
)

// photo is a photo of testdata/photos.json.
type photo struct {
	Path, SHA256 string
	Things       []labelled
}

// labelled is what a photo has of a group.
type labelled struct {
	Group string
	Box   [4]float32
	Hard  bool // hidden by half, cut off, blurred or tiny
	Crowd bool // a region with more of the group than the list counts
}

// fetchPhotos runs testdata/photos.py, in make test alone, as it needs registries. It returns why it could not.
var fetchPhotos = sync.OnceValue(func() error {
	const command = "python3 inference/sight/testdata/photos.py bin/photos"
	if os.Getenv("TOUCHLINE_BIN") == "" {
		return errors.New("not in bin/photos; fetch it with: " + command)
	}
	out, err := exec.Command("python3", "testdata/photos.py", filepath.Join(bin, "photos")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("not fetched with %s: %w\n%s", command, err, out)
	}
	return nil
})

// fetched returns the content of a file in bin/photos.
func fetched(t *testing.T, folder, path string) []byte {
	t.Helper()
	file := filepath.Join(bin, "photos", folder, path)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		failed := fetchPhotos()
		if content, err = os.ReadFile(file); err != nil && failed != nil { // another package may have failed
			t.Skipf("%s: %v", path, failed)
		}
	}
	require.NoError(t, err)
	return content
}

// photos reads the list and its photos, as pictures of 448 pixels.
func photos(t *testing.T, use func(p photo, f inference.Frame)) {
	t.Helper()
	content, err := os.ReadFile("testdata/photos.json")
	require.NoError(t, err)
	var list struct {
		Packages []struct {
			Name   string
			Photos []photo
		}
	}
	require.NoError(t, json.Unmarshal(content, &list))
	for _, pack := range list.Packages {
		for _, p := range pack.Photos {
			content := fetched(t, strings.ReplaceAll(strings.Trim(pack.Name, "@"), "/", "-"), p.Path)
			sum := sha256.Sum256(content)
			require.Equal(t, p.SHA256, hex.EncodeToString(sum[:]), p.Path)
			decoded, _, err := image.Decode(strings.NewReader(string(content)))
			require.NoError(t, err, p.Path)
			use(p, frameOf(shrunk(decoded, 448)))
		}
	}
}

// shrunk returns a picture whose longer side has at most so many pixels.
func shrunk(p image.Image, side int) image.Image {
	b := p.Bounds()
	longer := max(b.Dx(), b.Dy())
	if longer <= side {
		return p
	}
	small := image.NewNRGBA(image.Rect(0, 0, b.Dx()*side/longer, b.Dy()*side/longer))
	draw.BiLinear.Scale(small, small.Bounds(), p, b, draw.Src, nil)
	return small
}

// over returns the area that a box and one drawn by eye share, divided by that of either, to a hundredth of the picture.
func (w labelled) over(b facts.Box) float32 {
	const slack = 0.01
	_, overlap := shared(
		inference.Box{X0: w.Box[0] - slack, Y0: w.Box[1] - slack, X1: w.Box[2] + slack, Y1: w.Box[3] + slack},
		inference.Box{X0: b.X0 - slack, Y0: b.Y0 - slack, X1: b.X1 + slack, Y1: b.Y1 + slack})
	return overlap
}

// in reports whether the middle of a box lies in a crowd.
func (w labelled) in(b facts.Box) bool {
	x, y := (b.X0+b.X1)/2, (b.Y0+b.Y1)/2
	return w.Crowd && x >= w.Box[0] && y >= w.Box[1] && x <= w.Box[2] && y <= w.Box[3]
}

// judge returns which thing of a photo a box of a group shows, -1 for none, and whether it counts: not in a crowd.
func (p photo) judge(b facts.Box, group string, taken map[int]bool) (found int, counts bool) {
	found, counts = -1, true
	best := float32(0.4)
	for i, w := range p.Things {
		switch {
		case w.Group != group || taken[i]:
		case w.Crowd:
			counts = counts && !w.in(b)
		case w.over(b) >= best:
			found, best = i, w.over(b)
		}
	}
	return found, counts || found >= 0
}

// groupOf returns the group of a class that the labels have; "" for others.
func groupOf(class string) string {
	switch class {
	case "person", "bicycle":
		return class
	case "car", "motorcycle", "bus", "truck", "train", "boat", "airplane":
		return "vehicle"
	case "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe":
		return "animal"
	}
	return ""
}

// TestPhotos: people, vehicles, animals and bicycles in 72 photos, whose boxes were drawn by eye, at 448 pixels with parts. A box is right if
// it shares two fifths with a thing of its group that no better box has. A second box of a thing is wrong.
func TestPhotos(t *testing.T) {
	d := testDetector(t)
	type counts struct{ things, found, hard, hardFound, boxes, right int }
	groups := map[string]*counts{"person": {}, "vehicle": {}, "animal": {}, "bicycle": {}}
	var all counts
	photos(t, func(p photo, f inference.Frame) {
		boxes, err := d.detect(f, true, nil)
		require.NoError(t, err)
		taken := map[int]bool{}
		for _, b := range boxes {
			group := groupOf(b.Class)
			g := groups[group]
			if g == nil || b.Score < facts.SureScore {
				continue
			}
			found, count := p.judge(b, group, taken)
			if !count {
				continue
			}
			g.boxes++
			if found >= 0 {
				taken[found] = true
				g.right++
			} else {
				t.Logf("%s: wrong: %s %.2f at %.2f,%.2f to %.2f,%.2f", filepath.Base(p.Path), b.Class, b.Score, b.X0, b.Y0, b.X1, b.Y1)
			}
		}
		for i, w := range p.Things {
			g := groups[w.Group]
			switch {
			case w.Crowd:
			case w.Hard:
				g.hard++
				if taken[i] {
					g.hardFound++
				}
			default:
				g.things++
				if taken[i] {
					g.found++
				} else {
					t.Logf("%s: missed: %s at %v", filepath.Base(p.Path), w.Group, w.Box)
				}
			}
		}
	})
	for name, g := range groups {
		t.Logf("%s: %d boxes, %d right; found %d of %d, and %d of %d hard ones", name, g.boxes, g.right, g.found, g.things, g.hardFound, g.hard)
		all.boxes, all.right = all.boxes+g.boxes, all.right+g.right
		all.things, all.found = all.things+g.things, all.found+g.found
	}
	t.Logf("figures: %d boxes, %d right, precision %.3f; found %d of %d (%.2f)", all.boxes, all.right, float64(all.right)/float64(all.boxes),
		all.found, all.things, float64(all.found)/float64(all.things))
	require.GreaterOrEqual(t, all.right, 98)
	require.LessOrEqual(t, all.boxes-all.right, 6)
}
