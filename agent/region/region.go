// Package region keeps the regions of a room: privacy masks, and the zones and lines that alert rules name.
//
// It owns their checks, their names and whether they fit the present picture. The codec process covers the masks, engines decide
// the rules. The package starts no goroutine and reads no clock.
package region

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/internal/check"
	"touchline/internal/polygon"
)

// MaxRegions is the largest number of regions of a room.
const MaxRegions = 32

// maxName bounds a name, in characters.
const maxName = 40

// The kinds of regions.
const (
	Mask = "mask" // covered in every picture
	Zone = "zone" // rules name it
	Line = "line" // rules name it; it has two sides
)

// Region is a polygon or a line over the picture.
type Region struct {
	Name string `json:"name" yaml:"name" doc:"At most 40 characters; another name than in the path renames it."`
	Kind string `json:"kind" yaml:"kind" enum:"mask,zone,line"`

	polygon.Shape `yaml:",inline"`
}

// Validate returns all that is wrong with a region, joined.
func (r Region) Validate() error {
	var errs []error
	n := utf8.RuneCountInString(r.Name)
	bad := func(c rune) bool { return unicode.IsControl(c) || c == '"' || c == '/' || c == utf8.RuneError }
	if n < 1 || n > maxName || strings.TrimSpace(r.Name) != r.Name || strings.ContainsFunc(r.Name, bad) {
		errs = append(errs, fmt.Errorf(
			"name: must be 1 to %d characters without quotes, slashes and outer spaces, is %.60q", maxName, r.Name))
	}
	if r.Kind != Mask && r.Kind != Zone && r.Kind != Line {
		errs = append(errs, fmt.Errorf("kind: must be mask, zone or line, is %.20q", r.Kind))
	}
	return errors.Join(append(errs, r.Shape.Validate(r.Kind == Line))...)
}

// Config is the section "agent.regions" of the settings.
type Config struct {
	// List has the regions that each room begins with, at most MaxRegions.
	List []Item `yaml:"list" env:"LIST"`
}

// Item is a region of the settings.
type Item Region

// UnmarshalText reads the form of environment variables: the kind, the aspect, each corner as x:y, and the name.
func (r *Item) UnmarshalText(text []byte) error {
	wrong := fmt.Errorf("must be a kind, the aspect, corners as x:y and a name, such as \"mask 1.7778 0:0 0.2:0 0:0.4 door\", is %.60q", text)
	words := strings.Fields(string(text))
	if len(words) < 3 {
		return wrong
	}
	*r = Item{Kind: words[0]}
	var err error
	if r.Aspect, err = strconv.ParseFloat(words[1], 64); err != nil {
		return wrong
	}
	for words = words[2:]; len(words) > 0; words = words[1:] {
		p, ok := corner(words[0])
		if !ok {
			break
		}
		r.Points = append(r.Points, p)
	}
	r.Name = strings.Join(words, " ")
	return nil
}

// corner reads "x:y".
func corner(text string) (p polygon.Point, ok bool) {
	x, y, ok := strings.Cut(text, ":")
	for i, number := range []string{x, y} {
		v, err := strconv.ParseFloat(number, 64)
		p[i], ok = v, ok && err == nil
	}
	return p, ok
}

// Validate checks every region and reports all that is wrong, joined. Each message begins with the YAML path below "agent.regions".
func (c Config) Validate() error { return c.regions().Validate() }

func (c Config) regions() List {
	out := make(List, len(c.List))
	for i, r := range c.List {
		out[i] = Region(r)
	}
	return out
}

// List is the regions of a room.
type List []Region

// Validate returns all that is wrong with the regions, joined.
func (l List) Validate() error {
	var s check.Settings
	s.That(len(l) <= MaxRegions, "list", fmt.Sprintf("at most %d regions", MaxRegions), len(l))
	for i, r := range l {
		path := fmt.Sprintf("list[%d]", i)
		s.Part(path, r.Validate())
		if j := l[:i].find(r.Name); j >= 0 {
			s.That(false, path+".name", fmt.Sprintf("another name than that of list[%d]", j), fmt.Sprintf("%q", r.Name))
		}
	}
	return s.Err()
}

// find returns the index of a name, in capitals or not; -1 for none.
func (l List) find(name string) int {
	for i, r := range l {
		if strings.EqualFold(r.Name, name) {
			return i
		}
	}
	return -1
}

// Saved is a room's regions in the form that survives restarts.
type Saved struct {
	Regions []SavedRegion `json:"regions"`
}

// SavedRegion is a region with its last change.
type SavedRegion struct {
	Region

	// By is the client that changed it last, At when; empty for a region of the settings.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
}
