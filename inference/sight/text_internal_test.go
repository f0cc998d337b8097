package sight

import (
	"encoding/json"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	bundle "touchline/models/sight"
)

func testReader(tb testing.TB, b *bundle.Bundle) *reader {
	tb.Helper()
	r, err := openReader(tb.Context(), b, filepath.Join(bin, "runtime"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Close()) })
	return r
}

// drawn is a picture of testdata/boards.py.
type drawn struct {
	File, Text, Kind, Font string
	Style                  string
	Size                   int
	Box                    [4]float32
	Side                   int // 0 for the 240 boards; for the 24 lines the longer side of the picture
}

// read returns the lines within the board, from left to right, and their least score.
func (d drawn) read(tb testing.TB, r *reader, folder string) (text string, score float32) {
	tb.Helper()
	file, err := os.Open(filepath.Join(folder, d.File))
	require.NoError(tb, err)
	defer file.Close()
	decoded, err := jpeg.Decode(file)
	require.NoError(tb, err)
	f := frameOf(decoded)
	found, err := r.Find(f)
	require.NoError(tb, err)
	found = slices.DeleteFunc(found, func(l inference.Box) bool {
		x, y := (l.X0+l.X1)/2, (l.Y0+l.Y1)/2
		return x < d.Box[0] || x > d.Box[2] || y < d.Box[1] || y > d.Box[3]
	})
	slices.SortFunc(found, func(a, b inference.Box) int { return int(1e4 * (a.X0 - b.X0)) })
	readings, err := r.Read(f, found)
	require.NoError(tb, err)
	score = 1
	for _, l := range readings {
		text += l.text
		score = min(score, l.score)
	}
	return strings.ReplaceAll(text, " ", ""), score
}

// TestDrawnBoards: 240 boards over photos and 24 lines of 18 to 40 pixels in 720p at two sizes, if testdata/boards.py drew them into
// bin/boards.
func TestDrawnBoards(t *testing.T) {
	folder := filepath.Join(bin, "boards")
	content, err := os.ReadFile(filepath.Join(folder, "boards.json"))
	if err != nil {
		t.Skip(err)
	}
	var boards []drawn
	require.NoError(t, json.Unmarshal(content, &boards))
	b := openBundle(t)
	r := testReader(t, b)
	all, right, wrong, kinds := map[int]int{}, map[int]int{}, map[int]int{}, map[string][2]int{}
	for _, d := range boards {
		text, score := d.read(t, r, folder)
		k := kinds[d.Kind]
		k[1]++
		all[d.Side]++
		if text == strings.ReplaceAll(d.Text, " ", "") {
			right[d.Side]++
			k[0]++
		} else {
			t.Logf("%d: %q instead of %q in %s of %d pixels, %s, score %.2f", d.Side, text, d.Text, d.Font, d.Size, d.Style, score)
			if text != "" && score >= b.Manifest.Reader.Least {
				wrong[d.Side]++
			}
		}
		kinds[d.Kind] = k
	}
	t.Logf("figures: of %v right %v, wrong but sure %v; %v", all, right, wrong, kinds)
	require.GreaterOrEqual(t, right[0]*100, 97*all[0])
	require.LessOrEqual(t, wrong[0], 1)
	// The others have a 0 behind letters, or seven segments of 6 to 16 pixels.
	require.GreaterOrEqual(t, right[448], 20)
	require.GreaterOrEqual(t, right[640], 23)
}

// TestFaintSigns: a dash or colon between two digits and a space count at a low probability, and a single O behind capitals is a digit.
func TestFaintSigns(t *testing.T) {
	characters := []string{"", " ", "-", ":", "1", "4", "A", "O", "o"}
	r := &reader{read: bundle.Reader{Characters: characters, Least: 0.75}, signs: map[rune]int{' ': 1, '-': 2, ':': 3}}
	for _, tt := range []struct {
		steps  string // the likeliest character; a sign that is fainter than none in upper case
		faint  float32
		want   string
		counts bool
	}{
		{"1D4", 0.12, "1-4", false},
		{"1D4", 0.5, "1-4", true},
		{"1.C.4", 0.2, "1:4", false},
		{"1D4", 0.04, "14", true},
		{"1DA", 0.4, "1A", true},
		{"A.S.O", 0.4, "A 0", true},
		{"A.S.O", 0.2, "AO", true},
		{"o O", 0, "o O", true},
		{"A 1-O", 0, "A 1-O", true},
		{"...", 0, "", false},
	} {
		var p []float32
		for _, c := range tt.steps {
			scores := make([]float32, len(characters))
			switch at := strings.IndexRune("SDC", c); {
			case at >= 0:
				scores[0], scores[at+1] = 1-tt.faint, tt.faint
			case c == '.':
				scores[0] = 1
			default:
				scores[slices.Index(characters, string(c))] = 1
			}
			p = append(p, scores...)
		}
		got := r.decode(p)
		require.Equal(t, tt.want, got.text, tt.steps)
		require.Equal(t, tt.counts, got.sure, tt.steps)
	}
}

// TestReaderRefuses: pictures of a wrong size are refused; lines too small to read have no text.
func TestReaderRefuses(t *testing.T) {
	r := testReader(t, openBundle(t))
	_, err := r.Find(inference.Frame{Width: 1})
	require.EqualError(t, err, "find text: a picture of 1x0 pixels must have 0 bytes, has 0")
	f := inference.Frame{Width: 40, Height: 20, Pix: make([]byte, 40*20*3)}
	_, err = r.Read(inference.Frame{}, nil)
	require.ErrorContains(t, err, "read text: a picture of 0x0 pixels")
	readings, err := r.Read(f, []inference.Box{{X0: 0.5, Y0: 0.5, X1: 0.6, Y1: 0.6}, {X0: -1, Y0: -1, X1: 2, Y1: 2}})
	require.NoError(t, err)
	require.Equal(t, []reading{{}, {}}, readings)
	found, err := r.Find(f)
	require.NoError(t, err)
	require.Empty(t, found)
}
