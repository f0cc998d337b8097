package sight

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/vision"
	"touchline/inference/sight/facts"
)

const (
	findEvery   = 6 * time.Second // between searches for lines
	findSoon    = 3               // searches in a row after a start, and after a new line
	lineStays   = 3               // searches that found a line at one place
	lineLost    = 4               // searches that did not
	samePlace   = 0.55            // overlap of two finds of one line
	outlines    = 6               // finds whose mean is a line's place
	readAgree   = 2               // equal readings in a row
	readDoubted = 4               // of a score that does not rise by one to three
	mostLines   = 40              // of a search; more is a page of text and no board
	mostReads   = 6               // lines in one look
	readFailed  = 4               // readings in a row that do not agree
	blockChange = 12              // levels, of the mean of a block
	thumbWidth  = 64
	thumbHeight = 16
	blockWidth  = 8 // of a thumbnail: one digit of a line is enough
	blockHeight = 4
	blocks      = thumbWidth / blockWidth * thumbHeight / blockHeight

	// slowEvery is the time between readings of a line that moves and reads the same, such as a clock, or that cannot be read: every
	// second look.
	slowEvery = 750 * time.Millisecond
)

// textReader finds and reads lines of text; a reader does.
type textReader interface {
	Find(f inference.Frame) ([]inference.Box, error)
	Read(f inference.Frame, lines []inference.Box) ([]reading, error)
}

// board follows the text that stays at one place of a view: scores, clocks, captions. It searches for lines every few seconds and reads
// those whose pixels changed. Not safe for concurrent use; pure but for its textReader.
type board struct {
	lines    []*boardLine
	searched time.Duration
	soon     int // searches that are due at once
	scaler   scaler

	clock   string // the running time that a line shows, such as "63:21" or "20:15:07"; "" if none does
	clockOn *boardLine
}

// boardLine is a line at one place.
type boardLine struct {
	place        inference.Box
	seen, missed int
	thumb        []int // of the last reading
	read         time.Duration
	moved        [blocks]int // between the last two readings
	calm         [blocks]int // changes up to it did not change the text
	text         string
	pending      string // of the last readings
	same, need   int    // of them, and how many confirm their text
	failed       int    // readings since one confirmed a text
}

// newBoard returns the board of a view.
func newBoard() *board { return &board{soon: findSoon} }

// Texts returns what the lines read, without clocks, from the top to the bottom.
func (b *board) Texts() []string {
	lines := slices.Clone(b.lines)
	slices.SortStableFunc(lines, func(x, y *boardLine) int { return cmp.Compare(x.place.Y0, y.place.Y0) })
	var texts []string
	for _, l := range lines {
		if l.text != "" {
			texts = append(texts, l.text)
		}
	}
	return texts
}

// Look takes a picture and returns the changes that it confirms.
func (b *board) Look(f inference.Frame, t textReader) ([]facts.TextChange, error) {
	if b.soon > 0 || f.PTS-b.searched >= findEvery || f.PTS < b.searched {
		found, err := t.Find(f)
		if err != nil {
			return nil, err
		}
		b.search(f.PTS, found)
	}
	stale, places := b.stale(f)
	if len(stale) == 0 {
		return nil, nil
	}
	readings, err := t.Read(f, places)
	if err != nil {
		return nil, err
	}
	if len(readings) != len(stale) {
		return nil, fmt.Errorf("read text: expected %d readings, got %d", len(stale), len(readings))
	}
	var changes []facts.TextChange
	for i, l := range stale {
		if c, ok := b.hear(l, readings[i]); ok {
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// stale takes the lines that must be read from the front of lines to its end, and returns them with their places. One of them may be slow.
func (b *board) stale(f inference.Frame) (stale []*boardLine, places []inference.Box) {
	anySlow := false
	for _, l := range b.lines {
		if len(stale) == mostReads || l.seen < lineStays {
			continue
		}
		thumb := b.thumb(pixels(l.place, f), f)
		if thumb == nil {
			continue
		}
		moved := changes(l.thumb, thumb)
		due, slow := l.due(moved, f.PTS)
		if !due || slow && anySlow {
			continue
		}
		anySlow = anySlow || slow
		l.thumb, l.moved, l.read = thumb, moved, f.PTS
		stale, places = append(stale, l), append(places, l.place)
	}
	// The others of a page of text come first in the next look.
	b.lines = append(slices.DeleteFunc(b.lines, func(l *boardLine) bool { return slices.Contains(stale, l) }), stale...)
	return stale, places
}

// due reports whether a line must be read: its last readings differ, or its pixels changed since. A slow one changed no more than it did
// while its text stayed, as a clock does, or cannot be read.
func (l *boardLine) due(moved [blocks]int, now time.Duration) (due, slow bool) {
	unsure, fails := l.same < l.need, l.failed >= readFailed
	switch {
	case fails && l.missed > 0: // gone, by all signs
		return false, false
	case l.thumb == nil || unsure && !fails:
		return true, false
	}
	changed := unsure && l.same > 0
	for i, m := range moved {
		if m >= blockChange && m > l.calm[i] && !fails {
			return true, false
		}
		changed = changed || m >= blockChange
	}
	return changed && (now-l.read >= slowEvery || now < l.read), true
}

// search takes the lines of a search.
func (b *board) search(now time.Duration, found []inference.Box) {
	regular, again := b.soon == 0, false
	b.searched, b.soon = now, max(0, b.soon-1)
	found = found[:min(len(found), mostLines)]
	for _, l := range b.lines {
		l.missed++
	}
	for _, r := range found {
		var best *boardLine
		share := float32(samePlace)
		for _, l := range b.lines {
			if _, s := shared(l.place, r); s > share {
				best, share = l, s
			}
		}
		if best == nil {
			b.lines = append(b.lines, &boardLine{place: r, seen: 1, need: readAgree})
			if regular {
				b.soon = findSoon - 1
			}
			continue
		}
		best.seen++
		best.missed = 0
		again = again || best.seen <= lineStays
		if n := float32(best.seen); best.seen <= outlines {
			p := &best.place
			p.X0, p.Y0, p.X1, p.Y1 = p.X0+(r.X0-p.X0)/n, p.Y0+(r.Y0-p.Y0)/n, p.X1+(r.X1-p.X1)/n, p.Y1+(r.Y1-p.Y1)/n
		}
	}
	if b.soon == 1 && !again { // the new lines moved
		b.soon = 0
	}
	b.lines = slices.DeleteFunc(b.lines, func(l *boardLine) bool { return l.missed >= lineLost })
	if b.clockOn != nil && b.clockOn.missed >= lineLost {
		b.clock, b.clockOn = "", nil
	}
}

// thumb returns the small grey picture of a line; nil if it is too small.
func (b *board) thumb(r rect, f inference.Frame) []int {
	if min(r.x1-r.x0, r.y1-r.y0) < leastCrop {
		return nil
	}
	pix, stride := b.scaler.scale(f, r, vision.Size{W: thumbWidth, H: thumbHeight})
	thumb := make([]int, 0, thumbWidth*thumbHeight)
	for y := range thumbHeight {
		for x := range thumbWidth {
			p := pix[y*stride+3*x:]
			thumb = append(thumb, (299*int(p[0])+587*int(p[1])+114*int(p[2]))/1000)
		}
	}
	return thumb
}

// changes returns the mean change of each block of a thumbnail, in levels.
func changes(was, is []int) (moved [blocks]int) {
	if was == nil {
		return moved
	}
	for i, v := range is {
		x, y := i%thumbWidth/blockWidth, i/thumbWidth/blockHeight
		moved[y*(thumbWidth/blockWidth)+x] += max(v-was[i], was[i]-v)
	}
	for i := range moved {
		moved[i] /= blockWidth * blockHeight
	}
	return moved
}

var (
	clockText = regexp.MustCompile(`(?:^|\D)(\d{1,3}:[0-5]\d(?:[.:]\d{1,2})?)(?:$|\D)`)
	scoreText = regexp.MustCompile(`(?:^|\D)(\d{1,3})\s*[-–—:]\s*(\d{1,3})(?:$|\D)`)
)

// hear takes a reading of a line. A text counts when two in a row agree; clocks do not count as a part of it. A score that is lost, or
// does not rise by one to three, may be misread and needs twice as many.
func (b *board) hear(l *boardLine, r reading) (facts.TextChange, bool) {
	l.failed++
	if !r.sure || r.text == "" {
		l.same = 0
		return facts.TextChange{}, false
	}
	text := r.text
	if at := clockText.FindStringSubmatchIndex(text); at != nil {
		b.clock, b.clockOn = text[at[2]:at[3]], l
		text = strings.TrimSpace(text[:at[2]] + text[at[3]:])
	} else if b.clockOn == l {
		b.clock, b.clockOn = "", nil
	}
	if text != l.pending {
		l.pending, l.same, l.calm, l.moved = text, 0, [blocks]int{}, [blocks]int{}
	}
	for i, m := range l.moved {
		l.calm[i] = max(l.calm[i], m+m/4)
	}
	l.same++
	was, scored := scoreOf(l.text)
	is, scores := scoreOf(text)
	rise := is[0] + is[1] - was[0] - was[1]
	goal := scored && scores && rise >= 1 && rise <= 3 && is[0] >= was[0] && is[1] >= was[1]
	l.need = readAgree
	if scored && !goal && is != was {
		l.need = readDoubted
	}
	if l.same >= l.need {
		l.failed = 0
	}
	if text == "" || text == l.text || l.same < l.need {
		return facts.TextChange{}, false
	}
	l.text = text
	return facts.TextChange{Text: text, Score: goal}, true
}

// scoreOf returns the two numbers of a score.
func scoreOf(text string) (score [2]int, ok bool) {
	m := scoreText.FindStringSubmatch(text)
	if m == nil {
		return score, false
	}
	for i := range score {
		score[i], _ = strconv.Atoi(m[i+1]) // up to three digits
	}
	return score, true
}
