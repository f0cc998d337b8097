package grammar

import (
	"strings"

	"touchline/worlds"
)

// World describes the comments, orders and questions about a generated world.
type World interface {
	// Name is the name in package worlds.
	Name() string
	// Tables lists the classes, places and points of its pictures.
	Tables() Tables
	// PictureTruth returns the classes and places of a picture, in the order of the tables; -1 and -9 where it has none.
	PictureTruth(f *Fact) (classes []int8, places []float32)
	// TextTruth returns the classes of a window.
	TextTruth(w Window) []int8
	// Holds returns the news that fires an alert rule in a window, or nil.
	Holds(d Dice, o Order, w Window) *News
	// Word puts news into words, at most limit of them if possible. If there is room, a second true sentence follows.
	Word(d Dice, w Window, n *News, v Voice, limit int, avoid string) string

	// facts returns the content of a film's pictures.
	facts(records []worlds.Truth) []Fact
	// points returns the positions of things in each picture.
	points(records []worlds.Truth) [][]Point
	// order draws an order or an alert rule; with a window, it is often about content of the window.
	order(d Dice, kind string, a asking) Order
	// orders returns the tables of its orders.
	orders() *orderTables
	// tell returns the news to comment on, age seconds after the last comment; nil if there is none.
	tell(d Dice, w Window, last *News, age float64) *News
	// follow returns the news that an order allows, or its answer. last is the last comment under the order.
	follow(d Dice, o Order, w Window, last *News, age float64) *News
	// unclear reports whether a rule is about something just past or about to begin, so that the pictures do not decide.
	unclear(o Order, w Window) bool
	// moments lists the rare contents of a window.
	moments(w Window) []string
	// style draws the register for a profile and news.
	style(d Dice, profile string, n *News) string
	// wordings returns the wordings of a language.
	wordings(language string) *wordings
}

// Fact is the content of one picture, as far as a comment needs it.
type Fact struct {
	// Frame is the number of the frame in its world.
	Frame uint32

	t     float64 // since the world's start, in seconds
	light float64

	*matchFact // in the match
	*yardFact  // in the yard
}

// Window is the content of a few pictures, oldest first; the last is the present.
type Window []*Fact

func (w Window) first() *Fact { return w[0] }
func (w Window) now() *Fact   { return w[len(w)-1] }

// Voice is the style of a comment.
type Voice struct {
	Language string
	// Register is "calm", "lively" or "boil".
	Register string
}

// Head is a set of classes that the model learns from pictures or texts.
type Head struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// Tables list what a model can learn from a world's pictures.
type Tables struct {
	// Pictures and Texts are classes of a picture and of a window.
	Pictures, Texts []Head
	// Places are names of numbers of a picture.
	Places []string
	// Points are kinds of things with a position in a picture.
	Points []string
}

// Point is the position of a thing, in fractions of the picture's size from the top left corner.
type Point struct {
	X, Y float64
	// What is an index of the table of points.
	What int
}

// asking holds the parameters for drawing an order.
type asking struct {
	language string
	window   Window // nil for any order
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

// orderTables are the tables of a world's orders.
type orderTables struct {
	// filters are the orders that allow only some news, with the allowed kinds.
	filters map[string][]string
	// weights say how often an order is given; the default is 2.
	weights map[string]int
	// near are groups of rules that are easily confused.
	near [][]string
	// elsewhere are orders that cannot be followed in the other world.
	elsewhere []string
	// rules are the kinds of alert rules.
	rules []string
	// borrowed are orders without wordings of their own.
	borrowed []string
	// momentShare is how often a rare moment of the window is picked.
	momentShare float64
}

// weight returns the weight of a kind of order.
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
