package sight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
	bundle "touchline/models/sight"
)

const (
	findSide   = 960      // the longest side that the finder looks at
	findStep   = 32       // of its sides
	readStep   = 8        // of the width of a line, and of the reader's steps
	leastLine  = 3        // pixels of the smaller side
	leastArea  = 12       // pixels
	leastCrop  = 8        // pixels of a side of a line that is read
	sameHeight = 0.6      // of two pieces of a line, and their overlap
	letterGap  = 1.6      // heights between a letter and the next piece of its line
	faintSpace = 0.3      // probability of a space that counts
	faintSign  = 0.05     // of a dash or colon between two digits
	signedGain = 2. / 255 // of a byte to -1 to 1
)

// pixels returns a part of a picture in pixels, at most the picture.
func pixels(b inference.Box, f inference.Frame) rect {
	at := func(share float32, side int) int { return max(0, min(side, int(share*float32(side)))) }
	return rect{at(b.X0, f.Width), at(b.Y0, f.Height), min(f.Width, at(b.X1, f.Width)+1), min(f.Height, at(b.Y1, f.Height)+1)}
}

// reading is what a line reads; the text is empty if it cannot be read.
type reading struct {
	text  string
	score float32 // 0 to 1
	sure  bool    // the score is that of a reading that counts
}

// reader finds lines of text in pictures and reads them. Safe for concurrent use; each run uses one thread.
type reader struct {
	finder, reader *ort.Network
	find           bundle.Finder
	read           bundle.Reader
	signs          map[rune]int // the space, dash and colon of read.Characters
	scalers        sync.Pool
}

// openReader loads the finder and the reader of a bundle, as openDetector. ctx ends it before a network.
func openReader(ctx context.Context, b *bundle.Bundle, library string) (*reader, error) {
	r := &reader{
		find: b.Manifest.Finder, read: b.Manifest.Reader, signs: map[rune]int{}, scalers: sync.Pool{New: func() any { return &scaler{} }},
	}
	for _, sign := range []rune{' ', '-', ':'} {
		r.signs[sign] = max(0, slices.Index(r.read.Characters, string(sign)))
	}
	shapes := ort.SessionOptions{Threads: 1, NoMemoryPattern: true, Arena: true} // that change with every run
	err := ctx.Err()
	if err != nil {
		return nil, err
	}
	if r.finder, err = ort.OpenNetwork(library, b.Path(r.find.File), shapes); err != nil {
		return nil, fmt.Errorf("open the finder of text: %w", err)
	}
	if err = ctx.Err(); err == nil {
		r.reader, err = ort.OpenNetwork(library, b.Path(r.read.File), shapes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the reader: %w", err), r.finder.Close())
	}
	return r, nil
}

// Close frees the networks when neither Find nor Read runs.
func (r *reader) Close() error { return errors.Join(r.finder.Close(), r.reader.Close()) }

// output is an output of a network: its name, its shape, and what takes its numbers.
type output struct {
	name  string
	shape []int64
	use   func([]float32)
}

// run runs a network on a part of a picture, scaled to size.
func (r *reader) run(n *ort.Network, f inference.Frame, part rect, size vision.Size, o output) error {
	c, err := n.NewCall()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	in, err := ort.Input[float32](c, "x", 1, 3, int64(size.H), int64(size.W))
	if err != nil {
		return err
	}
	out, err := ort.Output[float32](c, o.name, o.shape...)
	if err != nil {
		return err
	}
	s := r.scalers.Get().(*scaler) //nolint:forcetypeassert // by New
	s.fill(in, size, f, part, [3]int{2, 1, 0}, signedGain, -1)
	r.scalers.Put(s)
	if err := c.Run(); err != nil {
		return err
	}
	o.use(out)
	return nil
}

// Find returns the lines of text in a picture.
func (r *reader) Find(f inference.Frame) ([]inference.Box, error) {
	if err := checkFrame(f); err != nil {
		return nil, fmt.Errorf("find text: %w", err)
	}
	scale := min(1, findSide/float64(max(f.Width, f.Height)))
	side := func(n int) int { return max(findStep, int(math.RoundToEven(float64(n)*scale/findStep))*findStep) }
	size := vision.Size{W: side(f.Width), H: side(f.Height)}
	var found []inference.Box
	use := func(p []float32) {
		cores := slices.DeleteFunc(regions(p, size.W, r.find.Least), func(g region) bool {
			return min(g.x1-g.x0, g.y1-g.y0) < leastLine || g.pixels < leastArea || g.sum/float32(g.pixels) < r.find.Sure
		})
		for _, g := range joinLetters(cores) {
			w, h := g.x1-g.x0, g.y1-g.y0
			// The network marks the core of a line; this is its outline.
			d := float32(w*h) * r.find.Grow / float32(2*(w+h))
			found = append(found, inference.Box{
				X0: max(0, (float32(g.x0)-d)/float32(size.W)), Y0: max(0, (float32(g.y0)-d)/float32(size.H)),
				X1: min(1, (float32(g.x1)+d)/float32(size.W)), Y1: min(1, (float32(g.y1)+d)/float32(size.H)),
			})
		}
	}
	o := output{r.find.Output, []int64{1, 1, int64(size.H), int64(size.W)}, use}
	if err := r.run(r.finder, f, whole(f), size, o); err != nil {
		return nil, fmt.Errorf("find text: %w", err)
	}
	return found, nil
}

// joinLetters joins single letters to what is beside them: the network finds the digits of "1 - 4", and may not find the dash.
func joinLetters(cores []region) []region {
	slices.SortFunc(cores, func(a, b region) int { return a.x0 - b.x0 })
	var lines []region
next:
	for _, g := range cores {
		for i := range lines {
			l := &lines[i]
			gh, lh := g.y1-g.y0, l.y1-l.y0
			least, most := float32(min(gh, lh)), float32(max(gh, lh))
			letter := g.x1-g.x0 <= gh || l.x1-l.x0 <= lh
			if letter && least >= sameHeight*most && float32(min(g.y1, l.y1)-max(g.y0, l.y0)) >= sameHeight*least &&
				float32(g.x0-l.x1) <= letterGap*most {
				l.rect = rect{l.x0, min(l.y0, g.y0), max(l.x1, g.x1), max(l.y1, g.y1)}
				continue next
			}
		}
		lines = append(lines, g)
	}
	return lines
}

// Read reads lines of a picture.
func (r *reader) Read(f inference.Frame, lines []inference.Box) ([]reading, error) {
	if err := checkFrame(f); err != nil {
		return nil, fmt.Errorf("read text: %w", err)
	}
	readings := make([]reading, len(lines))
	for i, line := range lines {
		part := pixels(line, f)
		w, h := part.x1-part.x0, part.y1-part.y0
		if min(w, h) < leastCrop {
			continue
		}
		width := (r.read.Height*w + readStep*h - 1) / (readStep * h) * readStep
		size := vision.Size{W: min(max(width, r.read.Height), r.read.Widest), H: r.read.Height}
		o := output{r.read.Output, []int64{1, int64(size.W / readStep), int64(len(r.read.Characters))}, func(p []float32) {
			readings[i] = r.decode(p)
		}}
		if err := r.run(r.reader, f, part, size, o); err != nil {
			return nil, fmt.Errorf("read text: %w", err)
		}
	}
	return readings, nil
}

// decode takes the likeliest character of each step, without repetitions and steps without one, and faint signs.
func (r *reader) decode(p []float32) reading {
	n := len(r.read.Characters)
	likeliest := make([]int, len(p)/n)
	for step := range likeliest {
		for i, v := range p[step*n:][:n] {
			if v > p[step*n+likeliest[step]] {
				likeliest[step] = i
			}
		}
	}
	var text strings.Builder
	var sum float32
	count, last, before := 0, 0, ""
	for step, best := range likeliest {
		scores := p[step*n:][:n]
		if best == 0 {
			best = r.faint(scores, before, likeliest[step+1:])
		}
		if best != last && best != 0 {
			before = r.read.Characters[best]
			text.WriteString(before)
			sum += scores[best]
			count++
		}
		last = best
	}
	if count == 0 {
		return reading{}
	}
	score := sum / float32(count)
	return reading{lastZero(strings.TrimSpace(text.String())), score, score >= r.read.Least}
}

// faint returns a thin sign in a step that the network takes for none, as the characters beside it are likelier: a space, and a dash or a
// colon between two digits.
func (r *reader) faint(scores []float32, before string, after []int) int {
	if scores[r.signs[' ']] >= faintSpace {
		return r.signs[' ']
	}
	next := slices.IndexFunc(after, func(c int) bool { return c != 0 })
	if next < 0 || !isDigit(before) || !isDigit(r.read.Characters[after[next]]) {
		return 0
	}
	for _, sign := range []rune{'-', ':'} {
		if scores[r.signs[sign]] >= faintSign {
			return r.signs[sign]
		}
	}
	return 0
}

func isDigit(c string) bool { return len(c) == 1 && c[0] >= '0' && c[0] <= '9' }

// lastZero reads a single O at the end of a line of capitals as a digit: "ARS O" is a score.
func lastZero(text string) string {
	head, ok := strings.CutSuffix(text, " O")
	if !ok || head != strings.ToUpper(head) {
		return text
	}
	return head + " 0"
}

// region is a group of pixels that touch, in the box that encloses it.
type region struct {
	rect
	pixels int
	sum    float32 // of their values
	parent int     // a larger region that it is part of; its own index if none
}

// regions returns the groups of pixels above a value, corners included, of a picture of the given width. It joins the runs of each row
// with those of the row above.
func regions(p []float32, width int, least float32) []region {
	var all []region
	root := func(i int) int {
		for all[i].parent != i {
			all[i].parent = all[all[i].parent].parent
			i = all[i].parent
		}
		return i
	}
	type run struct{ x0, x1, region int }
	var above, row []run
	for y := 0; y*width < len(p); y++ {
		line := p[y*width:][:width]
		row = row[:0]
		for x := 0; x < width; x++ {
			if line[x] <= least {
				continue
			}
			g := region{rect: rect{x0: x, y0: y, y1: y + 1}, parent: len(all)}
			for ; x < width && line[x] > least; x++ {
				g.sum += line[x]
				g.pixels++
			}
			g.x1 = x
			all = append(all, g)
			for _, a := range above {
				if a.x0 <= g.x1 && g.x0 <= a.x1 {
					merge(all, root(g.parent), root(a.region))
				}
			}
			row = append(row, run{g.x0, g.x1, g.parent})
		}
		above, row = row, above
	}
	var found []region
	for i, g := range all {
		if g.parent == i {
			found = append(found, g)
		}
	}
	return found
}

// merge makes a region part of another one, unless it is the same.
func merge(all []region, part, into int) {
	if part == into {
		return
	}
	a, b := &all[part], &all[into]
	a.parent = into
	b.rect = rect{min(a.x0, b.x0), min(a.y0, b.y0), max(a.x1, b.x1), max(a.y1, b.y1)}
	b.pixels += a.pixels
	b.sum += a.sum
}
