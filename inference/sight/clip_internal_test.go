package sight

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sight/facts"
)

// clipFile is a surveillance camera of 768x576 in Debian's package opencv-doc.
const (
	clipFile = "usr/share/doc/opencv-doc/examples/data/vtest.avi"
	clipSum  = "45cddc9490be69345cbdab64ca583be65987e864ca408038e648db99e10516cf"
)

// clip decodes the surveillance clip through filters of ffmpeg, scales it to 448 or 640 pixels, and passes each picture to use. Its PTS
// counts steps.
func clip(t *testing.T, width int, filters string, step time.Duration, use func(inference.Frame)) {
	t.Helper()
	file := "/" + clipFile
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		content, file = fetched(t, "opencv-doc", clipFile), filepath.Join(bin, "photos", "opencv-doc", clipFile)
	} else {
		require.NoError(t, err)
	}
	require.Equal(t, clipSum, fmt.Sprintf("%x", sha256.Sum256(content)),
		"the SHA-256 of %s: it is not the clip whose people were listed; install opencv-doc 4.6.0", file)
	scale := map[int]string{448: "448:336", 640: "640:480"}[width]
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", file, "-vf", filters+",scale="+scale+":flags=area",
		"-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	f := inference.Frame{Width: width, Height: width * 3 / 4}
	for n := 0; ; n++ {
		f.PTS, f.Pix = time.Duration(n)*step, make([]byte, f.Width*f.Height*3)
		if _, err := io.ReadFull(out, f.Pix); errors.Is(err, io.EOF) {
			break
		}
		use(f)
	}
	require.NoError(t, cmd.Wait())
}

// TestBoardOnClip: a score and a running clock that are drawn into the clip: each change is told within a second, no wrong one, and the
// clock is right to two seconds.
func TestBoardOnClip(t *testing.T) {
	fonts, _ := filepath.Glob("/usr/share/fonts/truetype/*/*Sans-Bold.ttf")
	if len(fonts) == 0 {
		t.Skip("needs a font, such as Debian's fonts-dejavu-core")
	}
	text := func(words, from, to string) string {
		return "drawtext=fontfile=" + fonts[0] + ":fontsize=26:fontcolor=white:x=40:y=36:text='" + words + "':enable='between(t," + from +
			"," + to + ")'"
	}
	filters := strings.Join([]string{
		"drawbox=x=30:y=28:w=215:h=40:color=0x101830@1:t=fill", text("ARS 0-0 CHE", "0", "19.99"), text("ARS 1-0 CHE", "20", "44.99"),
		text("ARS 1-1 CHE", "45", "100"), "drawbox=x=250:y=28:w=110:h=40:color=black@1:t=fill",
		"drawtext=fontfile=" + fonts[0] + `:fontsize=26:fontcolor=white:x=260:y=36:text='%{pts\:gmtime\:3780\:%M\\\:%S}'`, "fps=2.5",
	}, ",")
	for _, width := range []int{448, 640} {
		r, b := testReader(t, openBundle(t)), newBoard()
		var told []string
		var at []time.Duration
		clocks, wrongClocks, reads := 0, 0, &counted{textReader: r}
		clip(t, width, filters, 400*time.Millisecond, func(f inference.Frame) {
			c, err := b.Look(f, reads)
			require.NoError(t, err)
			for _, c := range c {
				t.Logf("%d pixels, %v: %q, score %v", width, f.PTS, c.Text, c.Score)
				told, at = append(told, c.Text), append(at, f.PTS)
			}
			if b.clock != "" {
				clocks++
				var m, s int
				if n, err := time.Parse("04:05", b.clock); err == nil {
					m, s = n.Minute(), n.Second()
				}
				if d := 60*m + s - 180 - int(f.PTS/time.Second); d < -2 || d > 2 {
					wrongClocks++
					t.Logf("%v: clock %s", f.PTS, b.clock)
				}
			}
		})
		t.Logf("figures: %d pixels: %d finds, %d readings, %d clocks, %d of them wrong", width, reads.finds, reads.reads, clocks, wrongClocks)
		require.Equal(t, []string{"ARS 0-0 CHE", "ARS 1-0 CHE", "ARS 1-1 CHE"}, told)
		require.Less(t, at[1], 21*time.Second)
		require.Less(t, at[2], 46*time.Second)
		require.Greater(t, clocks, 60)
		require.Zero(t, wrongClocks)
	}
}

// counted counts the runs of the networks.
type counted struct {
	textReader

	finds, reads int
}

func (c *counted) Find(f inference.Frame) ([]inference.Box, error) {
	c.finds++
	return c.textReader.Find(f)
}

func (c *counted) Read(f inference.Frame, lines []inference.Box) ([]reading, error) {
	c.reads += len(lines)
	return c.textReader.Read(f, lines)
}

// still is a picture of the clip with the people in it.
type still struct {
	At     float64
	People []struct {
		X, Y   float32
		Hidden bool // more than half of it
	}
}

// in returns the people in a box, to a hundredth of the picture.
func (s still) in(b facts.Box) (inside []int) {
	for i, p := range s.People {
		if p.X >= b.X0-0.01 && p.X <= b.X1+0.01 && p.Y >= b.Y0-0.01 && p.Y <= b.Y1+0.01 {
			inside = append(inside, i)
		}
	}
	return inside
}

// TestPeopleOnClip: the people of twelve stills, whose places were listed by eye, at 448 pixels. A box is right if it has one of them that
// no better box has.
func TestPeopleOnClip(t *testing.T) {
	content, err := os.ReadFile("testdata/people.json")
	require.NoError(t, err)
	var stills []still
	require.NoError(t, json.Unmarshal(content, &stills))
	d := testDetector(t)
	for _, parts := range []bool{false, true} {
		found, all := map[bool]int{}, map[bool]int{} // by hidden
		again, wrong, n := 0, 0, 0
		clip(t, 448, `select='gte(n,30)*not(mod(n-30,65))'`, time.Second, func(f inference.Frame) {
			boxes, err := d.detect(f, parts, nil)
			require.NoError(t, err)
			taken := map[int]bool{}
			for _, b := range boxes {
				if b.Class != "person" || b.Score < 0.5 {
					continue
				}
				inside := stills[n].in(b)
				free := slices.IndexFunc(inside, func(i int) bool { return !taken[i] })
				switch {
				case len(inside) == 0:
					wrong++
					t.Logf("%.1f s: nobody in %+v", stills[n].At, b)
				case free < 0:
					again++
				default:
					taken[inside[free]] = true
				}
			}
			for i, p := range stills[n].People {
				all[p.Hidden]++
				if taken[i] {
					found[p.Hidden]++
				} else if !p.Hidden {
					t.Logf("%.1f s: missed the person at %.2f, %.2f", stills[n].At, p.X, p.Y)
				}
			}
			n++
		})
		require.Equal(t, len(stills), n)
		t.Logf("figures: parts %v: %d of %d people, %d of %d that are hidden by half; %d second boxes, %d false", parts, found[false], all[false],
			found[true], all[true], again, wrong)
		require.Zero(t, wrong)
		require.GreaterOrEqual(t, found[false]*100, map[bool]int{false: 75, true: 90}[parts]*all[false])
	}
}
