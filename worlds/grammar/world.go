package grammar

import (
	"strings"

	"touchline/worlds"
)

// World is what can be said and asked about a generated world.
type World interface {
	// Name is that of package worlds.
	Name() string
	// Tables lists what can be learnt from its pictures.
	Tables() Tables
	// PictureTruth returns the classes and places of a picture, in the order of the tables; -1 and -9 where there is none.
	PictureTruth(f *Fact) (classes []int8, places []float32)
	// TextTruth returns the classes of a window.
	TextTruth(w Window) []int8
	// Holds returns what fires an alert rule in a window, nil if nothing does.
	Holds(d Dice, o Order, w Window) *News
	// Word puts news into words, at most limit of them if that can be. With room for it a second sentence follows, which is as true.
	Word(d Dice, w Window, n *News, v Voice, limit int, avoid string) string

	// facts returns what a film's pictures show.
	facts(records []worlds.Truth) []Fact
	// points returns where things are in each picture.
	points(records []worlds.Truth) [][]Point
	// order draws an order or an alert rule; with a window, it is often about what shows there.
	order(d Dice, kind string, a asking) Order
	// orders has what holds for its orders.
	orders() *orderTables
	// tell returns what is worth saying, age seconds after the last comment; nil if there is nothing new.
	tell(d Dice, w Window, last *News, age float64) *News
	// follow returns the news that an order lets through, or its answer. last is the last comment under the order.
	follow(d Dice, o Order, w Window, last *News, age float64) *News
	// unclear reports whether a rule is about something just past or about to begin, so that the pictures do not decide.
	unclear(o Order, w Window) bool
	// moments lists what of the rare shows in a window.
	moments(w Window) []string
	// style draws the register that fits a profile and news.
	style(d Dice, profile string, n *News) string
	// wordings in a language.
	wordings(language string) *wordings
}

// Fact is what one picture shows, as far as it matters to a comment.
type Fact struct {
	// Frame is the number of the frame in its world.
	Frame uint32

	t     float64 // since the world's start, in seconds
	light float64

	*matchFact // in the match
	*yardFact  // in the yard
}

// Window is what a few pictures show, oldest first; the last is now.
type Window []*Fact

func (w Window) first() *Fact { return w[0] }
func (w Window) now() *Fact   { return w[len(w)-1] }

// Voice is how a comment is said.
type Voice struct {
	Language string
	// Register is "calm", "lively" or "boil".
	Register string
}

// Head is a choice between classes that is learnt from pictures or texts.
type Head struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// Tables list what can be learnt from a world's pictures.
type Tables struct {
	// Pictures and Texts are classes of a picture and of a window.
	Pictures, Texts []Head
	// Places are numbers of a picture.
	Places []string
	// Points are kinds of things that are somewhere in a picture.
	Points []string
}

// Point is where a thing is in a picture, in fractions of its size from the top left corner.
type Point struct {
	X, Y float64
	// What is an index of the table of points.
	What int
}

// asking is how an order is drawn.
type asking struct {
	language string
	window   Window // nil for any
	heldOut  bool   // in words that are held out of training
	rule     bool   // an alert rule
}

// text draws the words.
func (a asking) text(d Dice, w *wordings, kind string) string {
	if a.rule {
		return w.rule(d, kind, a.heldOut)
	}
	return w.order(d, kind, a.heldOut)
}

// orderTables are what holds for a world's orders.
type orderTables struct {
	// filters are the orders that let some news through, with the kinds that pass.
	filters map[string][]string
	// weights say how often an order is given; 2 where it has none.
	weights map[string]int
	// near are rules that are easily taken for each other.
	near [][]string
	// elsewhere are orders that cannot be followed in the other world.
	elsewhere []string
	// rules are the kinds of alert rules.
	rules []string
	// borrowed are orders that the world has no wordings of its own for.
	borrowed []string
	// momentShare is how often a moment is picked for the rare that shows there.
	momentShare float64
}

// weight of a kind of order.
func (t *orderTables) weight(kind string) int {
	if w, ok := t.weights[kind]; ok {
		return w
	}
	return 2
}

// split reads lists of kinds.
func split(lists ...string) [][]string {
	var out [][]string
	for _, list := range lists {
		out = append(out, strings.Fields(list))
	}
	return out
}

// Covered reports whether graphics cover the picture of a match.
func (f *Fact) Covered() bool { return f.matchFact != nil && f.covered }
