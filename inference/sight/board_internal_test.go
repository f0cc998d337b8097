package sight

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sight/facts"
)

// script is a textReader that finds some lines and reads what it is told.
type script struct {
	lines        []inference.Box
	texts        map[inference.Box]reading
	finds, reads int
}

func (s *script) Find(inference.Frame) ([]inference.Box, error) {
	s.finds++
	return s.lines, nil
}

func (s *script) Read(_ inference.Frame, lines []inference.Box) ([]reading, error) {
	s.reads += len(lines)
	readings := make([]reading, len(lines))
	for i, l := range lines {
		readings[i] = s.texts[l]
	}
	return readings, nil
}

// testBoard is a board with one line, on pictures of one brightness each.
type testBoard struct {
	*board
	t    *testing.T
	s    *script
	line inference.Box
	now  time.Duration
	grey byte
	half byte // more of the line's right half
}

func newTestBoard(t *testing.T) *testBoard {
	t.Helper()
	line := inference.Box{X0: 0.1, Y0: 0.1, X1: 0.5, Y1: 0.3}
	return &testBoard{board: newBoard(), t: t, line: line, s: &script{lines: []inference.Box{line}, texts: map[inference.Box]reading{}}}
}

// look shows a picture, 0.4 s after the last one; changed pictures differ in their brightness.
func (b *testBoard) look(text string, changed bool) []facts.TextChange {
	b.t.Helper()
	if changed {
		b.grey += 40
	}
	f := inference.Frame{PTS: b.now, Width: 100, Height: 60, Pix: make([]byte, 100*60*3)}
	for i := range f.Pix {
		f.Pix[i] = b.grey
		if i/3%f.Width >= 30 {
			f.Pix[i] += b.half
		}
	}
	b.s.texts[b.line] = reading{text: text, score: 0.9, sure: text != ""}
	b.now += 400 * time.Millisecond
	changes, err := b.Look(f, b.s)
	require.NoError(b.t, err)
	return changes
}

// ticks shows a line whose right half changed.
func (b *testBoard) ticks(text string) []facts.TextChange {
	b.t.Helper()
	b.half += 40
	return b.look(text, false)
}

// reads shows a text until it is confirmed and returns the number of looks and the change.
func (b *testBoard) reads(text string) (int, facts.TextChange) {
	b.t.Helper()
	for n := 1; n <= 10; n++ {
		if c := b.look(text, n == 1); len(c) > 0 {
			require.Len(b.t, c, 1)
			return n, c[0]
		}
	}
	return 0, facts.TextChange{}
}

// TestBoard: a line counts after three finds, a text after two readings, and it is read again only when its pixels change.
func TestBoard(t *testing.T) {
	b := newTestBoard(t)
	n, c := b.reads("ARS 0-0 CHE")
	require.Equal(t, 4, n) // the third find, and one more reading
	require.Equal(t, facts.TextChange{Text: "ARS 0-0 CHE"}, c)
	require.Equal(t, []string{"ARS 0-0 CHE"}, b.Texts())
	reads := b.s.reads
	for range 10 {
		require.Empty(t, b.look("never read", false))
	}
	require.Equal(t, reads, b.s.reads)
	require.Equal(t, 3, b.s.finds)

	n, c = b.reads("ARS 1-0 CHE")
	require.Equal(t, 2, n)
	require.True(t, c.Score)
	n, c = b.reads("ARS 0-0 CHE") // a correction, told as a text, or a mistake
	require.Equal(t, 4, n)
	require.False(t, c.Score)
	n, c = b.reads("ARS 7-0 CHE")
	require.Equal(t, 4, n)
	require.False(t, c.Score)
	n, c = b.reads("HALF TIME") // the score is gone
	require.Equal(t, 4, n)
	require.False(t, c.Score)
	n, _ = b.reads("FULL TIME")
	require.Equal(t, 2, n)
	n, _ = b.reads("HALF TIME")
	require.Equal(t, 2, n)
	require.Empty(t, b.look("", true)) // unreadable
	n, _ = b.reads("HALF TIME")        // not told twice
	require.Zero(t, n)

	b.s.lines = nil // gone after four searches
	for range 70 {
		b.look("HALF TIME", false)
	}
	require.Empty(t, b.Texts())
	b.board = newBoard() // after a cut
	finds := b.s.finds
	for range 5 {
		b.look("", false)
	}
	require.Equal(t, finds+2, b.s.finds)
}

// TestBoardOfManyLines: a page of text is read in turns, a few lines a look.
func TestBoardOfManyLines(t *testing.T) {
	b := newTestBoard(t)
	b.s.lines = nil
	for i := range 60 {
		y := float32(i) / 60
		l := inference.Box{Y0: y, X1: 1, Y1: y + 0.016}
		b.s.lines, b.s.texts[l] = append(b.s.lines, l), reading{text: "line", score: 0.9, sure: true}
	}
	f := inference.Frame{Width: 400, Height: 2400, Pix: make([]byte, 400*2400*3)}
	for range 16 {
		reads := b.s.reads
		_, err := b.Look(f, b.s)
		require.NoError(t, err)
		require.LessOrEqual(t, b.s.reads-reads, mostReads)
		f.PTS += 400 * time.Millisecond
	}
	require.Len(t, b.Texts(), mostLines)
}

// TestBoardClock: a clock is no change, alone or beside a score.
func TestBoardClock(t *testing.T) {
	b := newTestBoard(t)
	b.reads("ARS 0-0 CHE 63:20")
	require.Equal(t, "63:20", b.clock)
	for _, text := range []string{"ARS 0-0 CHE 63:21", "ARS 0-0 CHE 63:22", "ARS 0-0 CHE 63:23"} {
		require.Empty(t, b.ticks(text))
	}
	require.Equal(t, "63:23", b.clock)
	reads := b.s.reads
	for range 10 { // slowly, as that half changes and the text does not
		require.Empty(t, b.ticks("ARS 0-0 CHE 63:24"))
	}
	require.Equal(t, reads+5, b.s.reads)
	n, c := b.reads("ARS 1-0 CHE 63:25") // at once, as the other half changes
	require.Equal(t, 2, n)
	require.Equal(t, "ARS 1-0 CHE", c.Text)
	b = newTestBoard(t)
	n, _ = b.reads("20:15:07")
	require.Zero(t, n)
	reads = b.s.reads
	for range 10 {
		b.look("20:15:07", true)
	}
	require.LessOrEqual(t, b.s.reads-reads, 6)
	require.Equal(t, "20:15:07", b.clock)
	require.Empty(t, b.Texts())
}

// TestBoardUnreadable: a line that cannot be read is tried again only when it changes, every second look, and two of them in turns; then a
// text that stays counts.
func TestBoardUnreadable(t *testing.T) {
	b := newTestBoard(t)
	for range 10 {
		b.look("", false)
	}
	require.Equal(t, readFailed, b.s.reads)
	for range 10 {
		b.look("", true)
	}
	require.Equal(t, readFailed+5, b.s.reads)
	n, _ := b.reads("HALF TIME")
	require.LessOrEqual(t, n, 4)
	other := inference.Box{X0: 0.1, Y0: 0.5, X1: 0.5, Y1: 0.7}
	b.s.lines = append(b.s.lines, other)
	for range 40 {
		b.look("", true)
	}
	reads := b.s.reads
	for range 10 {
		b.look("", true)
	}
	require.InDelta(t, reads+10, b.s.reads, 1)
}

// TestBoardOfGoneLines: the place of a line that a search misses and that cannot be read is not read again until a search finds one there.
func TestBoardOfGoneLines(t *testing.T) {
	b := newTestBoard(t)
	b.reads("GOAL")
	lines := b.s.lines
	b.s.lines = nil
	for range 2*int(findEvery/(400*time.Millisecond)) + readFailed {
		b.look("", true)
	}
	require.Equal(t, []string{"GOAL"}, b.Texts())
	reads := b.s.reads
	for range 5 {
		b.look("", true)
	}
	require.Equal(t, reads, b.s.reads)
	b.s.lines = lines
	n := 0
	for ; len(b.look("FULL TIME", true)) == 0; n++ {
		require.Less(t, n, 20)
	}
	require.Equal(t, []string{"FULL TIME"}, b.Texts())
}

// TestBoardOfMovingThings: what is found once, at another place in each search, is not searched for again at once.
func TestBoardOfMovingThings(t *testing.T) {
	b := newTestBoard(t)
	for i := range 100 {
		x := 0.8 * float32(i%7) / 7
		b.s.lines = []inference.Box{{X0: x, Y0: x, X1: x + 0.1, Y1: x + 0.1}}
		b.look("", true)
	}
	require.Less(t, b.s.finds, 16) // of seven searches
}

// TestRegions: the pixels of random pictures are in as many regions as a search from pixel to pixel finds, with the same sums.
func TestRegions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w, h := 1+r.IntN(20), 1+r.IntN(20)
		p := make([]float32, w*h)
		for i := range p {
			p[i] = float32(r.IntN(2))
		}
		want := map[rect]int{}
		seen := make([]bool, len(p))
		var fill func(x, y int, g *region)
		fill = func(x, y int, g *region) {
			if x < 0 || y < 0 || x >= w || y >= h || seen[y*w+x] || p[y*w+x] == 0 {
				return
			}
			seen[y*w+x] = true
			g.rect = rect{min(g.x0, x), min(g.y0, y), max(g.x1, x+1), max(g.y1, y+1)}
			g.pixels++
			for d := range 9 {
				fill(x+d%3-1, y+d/3-1, g)
			}
		}
		count := 0
		for i := range p {
			g := region{rect: rect{w, h, 0, 0}}
			if fill(i%w, i/w, &g); g.pixels > 0 {
				want[g.rect] += g.pixels
				count++
			}
		}
		found := regions(p, w, 0.3)
		require.Len(t, found, count)
		for _, g := range found {
			require.InDelta(t, g.pixels, g.sum, 1e-3)
			want[g.rect] -= g.pixels
		}
		for g, n := range want {
			require.Zero(t, n, g)
		}
	}
}

// TestJoinLetters: digits with a gap are one line; words with a gap, other rows and other sizes are not.
func TestJoinLetters(t *testing.T) {
	piece := func(x0, y0, x1, y1 int) region { return region{rect: rect{x0, y0, x1, y1}} }
	require.Equal(t, []region{piece(10, 10, 64, 32)}, joinLetters([]region{piece(50, 10, 64, 32), piece(10, 11, 20, 31)}))
	for _, other := range []region{piece(70, 10, 80, 32), piece(50, 40, 64, 62), piece(50, 10, 55, 18), piece(45, 10, 120, 32)} {
		first := piece(10, 11, 20, 31)
		if other.x1 == 120 {
			first = piece(10, 11, 40, 31)
		}
		require.Equal(t, []region{first, other}, joinLetters([]region{first, other}))
	}
}

// TestClockGoes: a clock that its line no longer reads is not told any more.
func TestClockGoes(t *testing.T) {
	b := newTestBoard(t)
	b.reads("ARS 0-0 CHE 63:21")
	require.Equal(t, "63:21", b.clock)
	b.reads("FULL TIME")
	require.Empty(t, b.clock)
}

// FuzzScore: of two texts at one place, a score rises by one to three, and a clock is a part of the text.
func FuzzScore(f *testing.F) {
	for _, seed := range [][2]string{
		{"ARS 1-0 CHE 63:21", "ARS 2-0 CHE 63:24"},
		{"0 — 0", "0:3"},
		{"20:15:07", "2:1"},
		{"999-999", "1000-0"},
		{"45:00.1", "4 5"},
		{"1:2:3", "-"},
		{"5:00", ""},
		{"", "\xff1-\xff2"},
		{"١-٢", "1–2"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		b, l := newBoard(), &boardLine{}
		var was [2]int
		for _, text := range []string{first, second} {
			for range readDoubted {
				if c, ok := b.hear(l, reading{text: text, sure: true}); ok {
					is, scores := scoreOf(c.Text)
					require.Equal(t, l.text, c.Text)
					rise := is[0] + is[1] - was[0] - was[1]
					require.True(t, !c.Score || scores && 1 <= rise && rise <= 3, "%v to %v", was, is)
				}
			}
			require.True(t, strings.Contains(text, b.clock) || text == "", "nothing was read: the clock stays until the line is lost")
			require.LessOrEqual(t, len(l.text), max(len(first), len(second)))
			if score, ok := scoreOf(l.text); ok {
				was = score
				for _, n := range score {
					require.True(t, 0 <= n && n <= 999, n)
				}
			}
		}
	})
}
