package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"touchline/worlds/grammar"
)

// look is a prompt about pictures of a film.
type look struct {
	// Pictures are numbers of pictures in the film, Frames of frames in the world.
	Pictures []int    `json:"pictures"`
	Frames   []uint32 `json:"frames"`
	System   string   `json:"system"`
	Text     string   `json:"text"`
	IDs      []int32  `json:"ids"`
}

// looks answers each line of in, the name of a film such as "match/5000", with a look as a line of JSON.
func (s *settings) looks(g *grammar.Grammar, in io.Reader, out *bufio.Writer) error {
	p, err := newPrompts(s.tokenizer, s.queries)
	if err != nil {
		return err
	}
	paths, films, err := readFilms(s.data, g)
	if err != nil {
		return err
	}
	byName := map[string]*grammar.Film{}
	for i, path := range paths {
		if path.every == 1 {
			byName[path.String()] = films[i]
		}
	}
	dice, write := grammar.NewDice(s.seed), json.NewEncoder(out)
	write.SetEscapeHTML(false)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		film := byName[lines.Text()]
		if film == nil {
			return fmt.Errorf("request %q: must be a film of -data %s", lines.Text(), s.data)
		}
		l, err := p.look(g, dice, film)
		if err != nil {
			return err
		}
		if err := write.Encode(l); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// look draws one look.
func (p *prompts) look(g *grammar.Grammar, d grammar.Dice, film *grammar.Film) (look, error) {
	count := grammar.Weighted(d, []int{4, 2, 1, 8}, []int{5, 2, 2, 2})
	step := grammar.Pick(d, []int{1, 2, 3})
	i := film.Pick(d, step*(count-1))
	t := g.Make(d, g.Setting(d), film, i, count, step)
	l := look{System: t.System, Text: t.Text}
	for j := range count {
		at := i - step*(count-1-j)
		l.Pictures, l.Frames = append(l.Pictures, at), append(l.Frames, film.Facts[at].Frame)
	}
	var err error
	l.IDs, _, err = p.write(t.System, t.Text, count, false)
	return l, err
}
