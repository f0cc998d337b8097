package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"touchline/worlds"
	"touchline/worlds/grammar"
)

// filmPath names a film by its world and seed, and by the subset of pictures that is present.
type filmPath struct {
	folder string
	world  string
	seed   uint64
	every  int // every Nth record has a picture
}

// String returns the name without the folder, as in "match/10000" or, with every third picture, "match/10000-3".
func (p filmPath) String() string {
	name := p.world + "/" + strconv.FormatUint(p.seed, 10)
	if p.every > 1 {
		name += "-" + strconv.Itoa(p.every)
	}
	return name
}

// pictures returns the number of a film's records that have a picture.
func (p filmPath) pictures(records int) int { return (records + p.every - 1) / p.every }

func parseFilm(folder, world, name string) (filmPath, error) {
	p := filmPath{folder: folder, world: world, every: 1}
	seed, every, sparse := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".jsonl"), "-")
	var err error
	if p.seed, err = strconv.ParseUint(seed, 10, 64); err == nil && sparse {
		p.every, err = strconv.Atoi(every)
	}
	if err != nil || p.every < 1 {
		return p, fmt.Errorf("film %s: its name must be SEED.jsonl, or SEED-N.jsonl with a picture of every Nth record", name)
	}
	return p, nil
}

// films lists the films of a folder, alternating between the worlds.
func films(folder string, worlds []grammar.World) ([]filmPath, error) {
	byWorld := make([][]filmPath, len(worlds))
	for i, w := range worlds {
		names, err := filepath.Glob(filepath.Join(folder, w.Name(), "*.jsonl"))
		if err != nil {
			return nil, fmt.Errorf("list the films: %w", err)
		}
		for _, name := range names {
			p, err := parseFilm(folder, w.Name(), name)
			if err != nil {
				return nil, err
			}
			byWorld[i] = append(byWorld[i], p)
		}
		slices.SortFunc(byWorld[i], func(a, b filmPath) int { return cmp.Compare(a.seed, b.seed) })
	}
	var out []filmPath
	for k := 0; ; k++ {
		n := len(out)
		for _, all := range byWorld {
			if k < len(all) {
				out = append(out, all[k])
			}
		}
		if len(out) == n {
			break
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("-data %q: no films there; draw some with worlds/render", folder)
	}
	return out, nil
}

// records reads a film's truth.
func (p filmPath) records() ([]worlds.Truth, error) {
	f, err := os.Open(filepath.Join(p.folder, p.String()+".jsonl"))
	if err != nil {
		return nil, fmt.Errorf("open a film: %w", err)
	}
	defer func() { _ = f.Close() }()
	var out []worlds.Truth
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r worlds.Truth
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("film %s, record %d: %w", p, len(out)+1, err)
		}
		out = append(out, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("film %s: %w", p, err)
	}
	return out, nil
}

// readFilms reads the films of a folder, alternating between the worlds.
func readFilms(folder string, g *grammar.Grammar) ([]filmPath, []*grammar.Film, error) {
	paths, err := films(folder, g.Worlds())
	if err != nil {
		return nil, nil, err
	}
	out := make([]*grammar.Film, len(paths))
	for i, p := range paths {
		records, err := p.records()
		if err != nil {
			return nil, nil, err
		}
		out[i] = grammar.NewFilm(g.World(p.world), records)
	}
	return paths, out, nil
}
