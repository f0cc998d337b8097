package main

import (
	"bufio"
	"fmt"

	"touchline/worlds/grammar"
)

// maxPoints is the number of things in a picture.
const maxPoints = 24

// nowhere is the place of a thing that is absent.
const nowhere = -9

// tables describe the classes, places and points of all worlds, and the films. Names begin with the name of their world.
type tables struct {
	PictureHeads []grammar.Head `json:"picture_heads"`
	TextHeads    []grammar.Head `json:"text_heads"`
	Places       []string       `json:"places"`
	Points       []string       `json:"points"`
	Kinds        []string       `json:"kinds"` // of orders and rules
	Films        []film         `json:"films"`
}

// film is a film's name, with the number of its available pictures.
type film struct {
	Name     string `json:"name"`
	Pictures int    `json:"pictures"`
}

// tables writes the tables, and the truth of all pictures: points, classes, places, and whether graphics cover it. For a picture of one
// world, the classes of the other are unknown.
func (s *settings) tables(g *grammar.Grammar, w *bufio.Writer) error {
	t := &tables{Kinds: g.Kinds()}
	var starts []part
	for _, world := range g.Worlds() {
		starts = append(starts, part{len(t.PictureHeads), len(t.Places), len(t.Points)})
		t.add(world)
	}
	paths, err := films(s.data, g.Worlds())
	if err != nil {
		return err
	}
	truth := &pictures{tables: t}
	for _, p := range paths {
		records, err := p.records()
		if err != nil {
			return err
		}
		world := g.World(p.world)
		f := grammar.NewFilm(world, records)
		t.Films = append(t.Films, film{p.String(), p.pictures(len(f.Facts))})
		at := starts[0]
		if world != g.Worlds()[0] {
			at = starts[1]
		}
		for i, points := range grammar.Points(world, records) {
			if i%p.every != 0 {
				continue
			}
			if err := truth.add(at, &f.Facts[i], world, points); err != nil {
				return fmt.Errorf("film %s, picture %d: %w", p, i, err)
			}
		}
	}
	m, err := truth.message()
	if err != nil {
		return err
	}
	return m.write(w)
}

func (t *tables) add(world grammar.World) {
	of := world.Tables()
	prefix := world.Name() + " "
	for _, h := range of.Pictures {
		t.PictureHeads = append(t.PictureHeads, grammar.Head{Name: prefix + h.Name, Size: h.Size})
	}
	for _, h := range of.Texts {
		t.TextHeads = append(t.TextHeads, grammar.Head{Name: prefix + h.Name, Size: h.Size})
	}
	for _, name := range of.Places {
		t.Places = append(t.Places, prefix+name)
	}
	for _, name := range of.Points {
		t.Points = append(t.Points, prefix+name)
	}
}

// part is the offset of a world's tables.
type part struct{ heads, places, points int }

// pictures holds the truth of all pictures.
type pictures struct {
	*tables

	count          int
	points, places []float32
	classes        []int8
	covered        []bool
}

// add adds a picture of a world whose tables begin at a part.
func (p *pictures) add(at part, f *grammar.Fact, world grammar.World, points []grammar.Point) error {
	if len(points) > maxPoints {
		return fmt.Errorf("expected at most %d points, got %d", maxPoints, len(points))
	}
	for _, x := range points {
		p.points = append(p.points, float32(x.X), float32(x.Y), float32(x.What+at.points))
	}
	for range maxPoints - len(points) {
		p.points = append(p.points, nowhere, nowhere, 0)
	}
	classes, places := world.PictureTruth(f)
	p.classes = append(p.classes, among(classes, at.heads, len(p.PictureHeads), -1)...)
	p.places = append(p.places, among(places, at.places, len(p.tables.Places), nowhere)...)
	p.covered = append(p.covered, f.Covered())
	p.count++
	return nil
}

// among puts one world's truth into the tables of all worlds.
func among[T int8 | float32](values []T, at, count int, unknown T) []T {
	out := make([]T, count)
	for i := range out {
		out[i] = unknown
	}
	copy(out[at:], values)
	return out
}

// message returns the form that Python reads.
func (p *pictures) message() (message, error) {
	m := message{tables: p.tables}
	points, err := newArray(typeFloat32, p.points, p.count, maxPoints, 3)
	if err != nil {
		return m, err
	}
	classes, err := newArray(typeInt8, p.classes, p.count, len(p.PictureHeads))
	if err != nil {
		return m, err
	}
	places, err := newArray(typeFloat32, p.places, p.count, len(p.tables.Places))
	if err != nil {
		return m, err
	}
	covered, err := newArray(typeBool, p.covered, p.count)
	m.Arrays = []array{points, classes, places, covered}
	return m, err
}
