package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"touchline/worlds/grammar"
)

// Sizes of a batch.
const (
	maxRows = 128
	rowSize = 1024 // tokens of a window's row: system part, pictures, and some texts
	longest = 160  // tokens of nearly all texts with their answers
	answers = 80   // tokens of the answers, on average of the rows, of which the rest is dropped; texts and lines alike
	texts   = 12
	asks    = 24
)

// Kinds of pictures that belong to no film.
const (
	strangePicture = -1
	darkPicture    = -2
)

// maker makes batches: windows of one size. When the model reads, each window has as many texts as fit into its row after their common
// beginning.
type maker struct {
	g       *grammar.Grammar
	films   []*grammar.Film
	paths   []filmPath
	starts  []int   // the films' first pictures among all pictures
	byWorld [][]int // indices of films by world
	heads   []int   // of texts, the first of each world, and the number of all
	prompts *prompts
	dice    grammar.Dice
	most    int // the largest number of pictures in a batch
}

// batches answers each request line of in with a batch. A request has the number of films whose pictures are loaded and whether the model
// reads.
func (s *settings) batches(g *grammar.Grammar, in io.Reader, out *bufio.Writer) error {
	p, err := newPrompts(s.tokenizer, s.queries)
	if err != nil {
		return err
	}
	paths, films, err := readFilms(s.data, g)
	if err != nil {
		return err
	}
	m := newMaker(g, paths, films)
	m.prompts, m.dice, m.most = p, grammar.NewDice(s.seed), s.pictures
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var loaded, reading int
		if _, err := fmt.Sscan(lines.Text(), &loaded, &reading); err != nil {
			return fmt.Errorf("request %q: must be two numbers: %w", lines.Text(), err)
		}
		batch, err := m.batch(loaded, reading != 0)
		if err != nil {
			return err
		}
		if err := batch.write(out); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func newMaker(g *grammar.Grammar, paths []filmPath, films []*grammar.Film) *maker {
	m := &maker{g: g, films: films, paths: paths, byWorld: make([][]int, len(g.Worlds())), heads: []int{0}}
	start := 0
	for i, f := range films {
		m.starts = append(m.starts, start)
		start += paths[i].pictures(len(f.Facts))
		w := slices.Index(g.Worlds(), f.World)
		m.byWorld[w] = append(m.byWorld[w], i)
	}
	for i, w := range g.Worlds() {
		m.heads = append(m.heads, m.heads[i]+len(w.Tables().Texts))
	}
	return m
}

// row is one window of a batch.
type row struct {
	film          *grammar.Film // nil for pictures of no film and for dark ones
	dark          bool
	first, every  int // the film's first picture, and the distance between records with a picture
	i             int // the window's last record in the film
	pictures, gap int
}

// batch makes one batch; loaded is the number of films whose pictures are loaded.
func (m *maker) batch(loaded int, reading bool) (message, error) {
	n := grammar.Weighted(m.dice, []int{4, 2, 1, 8}, []int{76, 8, 10, 6})
	rows := min(m.most/n, maxRows)
	heads := m.heads[len(m.heads)-1]
	b := batch{frames: make([]int64, 0, rows*n), truths: slices.Repeat([]int8{-1}, rows*n*heads), rows: rows, pictures: n, heads: heads}
	if reading {
		b.inputs = make([]int16, 3*rows*rowSize)
		for i := range rows * rowSize {
			b.inputs[i], b.inputs[rows*rowSize+i] = int16(m.prompts.pad), -1
		}
	}
	for k := range rows {
		r := m.row(n, loaded)
		b.frames = append(b.frames, r.frames()...)
		if !reading {
			continue
		}
		if r.film != nil {
			m.truths(b.truths[k*n*heads:(k+1)*n*heads], r)
		}
		if err := m.read(&b, k, r); err != nil {
			return message{}, err
		}
	}
	return b.message(reading, int16(m.prompts.imageEnd))
}

// row draws a window of a number of pictures.
func (m *maker) row(pictures, loaded int) row {
	strange, dark := m.dice.Float64() < 0.1, m.dice.Float64() < 0.1
	r := row{dark: dark, pictures: pictures, gap: grammar.Weighted(m.dice, []int{1, 2, 3, 5}, []int{16, 8, 64, 12})}
	some := m.byWorld[0]
	if m.dice.Float64() < 0.56 {
		some = m.byWorld[1]
	}
	there, _ := slices.BinarySearch(some, loaded)
	film := some[m.dice.IntN(max(1, there))]
	for tries := 0; tries < 30 && pictures > 1 && r.gap%m.paths[film].every != 0; tries++ { // the film lacks a picture of the window
		film = some[m.dice.IntN(max(1, there))]
	}
	r.every = m.paths[film].every
	r.gap += (r.every - r.gap%r.every) % r.every
	r.i = m.films[film].Pick(m.dice, r.gap*(pictures-1))
	r.i -= r.i % r.every
	if !strange {
		r.film, r.first = m.films[film], m.starts[film]
	}
	return r
}

// frames returns the numbers of a window's pictures.
func (r row) frames() []int64 {
	out := make([]int64, r.pictures)
	for j := range out {
		switch {
		case r.film != nil:
			out[j] = int64(r.first + (r.i-r.gap*(r.pictures-1-j))/r.every)
		case r.dark:
			out[j] = darkPicture
		default:
			out[j] = strangePicture
		}
	}
	return out
}

// truths sets the classes of the window up to each of its pictures.
func (m *maker) truths(dst []int8, r row) {
	all := m.heads[len(m.heads)-1]
	window := r.film.Window(r.i, r.pictures, r.gap)
	from := m.heads[slices.Index(m.g.Worlds(), r.film.World)]
	for j := range window {
		copy(dst[j*all+from:], r.film.World.TextTruth(window[:j+1]))
	}
}

// read fills row k with texts about a window.
func (m *maker) read(b *batch, k int, r row) error {
	setting, speech := m.g.Setting(m.dice), m.dice.Float64() < 0.5
	ids, begun, err := m.prompts.write(setting.System, "", r.pictures, speech)
	if err != nil {
		return err
	}
	b.add(k, 0, 0, ids[:begun], 0)
	length, branch := begun, 0
	for length+longest <= rowSize {
		var t grammar.Text
		if r.film == nil {
			t = m.g.Stranger(m.dice, setting, r.dark)
		} else {
			t = m.g.Make(m.dice, setting, r.film, r.i, r.pictures, r.gap)
		}
		prompt, err := m.prompts.tail(t.Text, speech)
		if err != nil {
			return err
		}
		answer, weights := m.prompts.answer(t.Answer)
		if length+len(prompt)+len(answer) > rowSize+1 {
			continue
		}
		at := int64(k*rowSize + length)
		for j, end := range m.prompts.lines(prompt, len(t.Asked)) {
			b.lines = append(b.lines, [3]int64{at + int64(end), int64(t.Asked[j].Kind), int64(t.Asked[j].Holds)})
		}
		last := at + int64(len(prompt)) - 1
		b.ends = append(b.ends, [2]int64{last, int64(k)})
		for j, id := range answer {
			b.answers = append(b.answers, [3]int64{last + int64(j), int64(id), weights[j]})
		}
		branch++
		text := slices.Concat(prompt, answer[:len(answer)-1])
		b.add(k, length, branch, text, begun)
		length += len(text)
	}
	return nil
}

// batch is a batch under construction.
type batch struct {
	rows, pictures, heads int

	frames []int64
	inputs []int16 // ids, branches and positions, row after row
	truths []int8

	answers [][3]int64 // position, token and weight of each token of the answers
	ends    [][2]int64 // position where each answer begins, and its row
	lines   [][3]int64 // position of each line, and its question
}

// add puts ids into row k.
func (b *batch) add(k, at, branch int, ids []int32, place int) {
	size := b.rows * rowSize
	for j, id := range ids {
		i := k*rowSize + at + j
		b.inputs[i], b.inputs[size+i], b.inputs[2*size+i] = int16(id), int16(branch), int16(place+j)
	}
}

// message returns the batch in Python's form. Positions of images, answers and lines are positions in the flattened inputs. Their numbers
// are fixed, because a recorded step has one shape.
func (b *batch) message(reading bool, imageEnd int16) (message, error) {
	m := message{window: &window{b.pictures, reading}}
	frames, err := newArray(typeInt64, b.frames, b.rows, b.pictures)
	m.Arrays = append(m.Arrays, frames)
	if !reading || err != nil {
		return m, err
	}
	var images []int64
	for i, id := range b.inputs[:b.rows*rowSize] {
		if id == imageEnd {
			images = append(images, int64(i))
		}
	}
	add := func(a array, failed error) {
		m.Arrays = append(m.Arrays, a)
		if err == nil {
			err = failed
		}
	}
	add(newArray(typeInt16, b.inputs, 3, b.rows, rowSize))
	add(padded(b.answers, answers*b.rows, [3]int64{}))
	add(padded(b.ends, texts*b.rows, [2]int64{0, -1}))
	add(newArray(typeInt64, images, len(images)))
	add(newArray(typeInt8, b.truths, b.rows, b.pictures, b.heads))
	add(padded(b.lines, asks*b.rows, [3]int64{0, -1, -1}))
	return m, err
}

// padded returns an array with a fixed number of rows.
func padded[R [2]int64 | [3]int64](some []R, count int, nothing R) (array, error) {
	for len(some) < count {
		some = append(some, nothing)
	}
	var flat []int64
	for _, r := range some[:count] {
		for i := range len(r) {
			flat = append(flat, r[i])
		}
	}
	return newArray(typeInt64, flat, count, len(nothing))
}
