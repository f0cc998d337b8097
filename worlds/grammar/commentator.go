package grammar

import "strings"

// pairWords is the minimum word limit for a comment about two people.
const pairWords = 10

// remembered is the number of last comments that are not repeated.
const remembered = 3

// Commentator comments on a film.
type Commentator struct {
	film           *Film
	pictures, step int
	language       string
	profile        string
	order          *Order

	last     *News // the last news that was reported
	lastText string
	recent   [][]newsID // news of the last comments
	at       int        // picture of the last comment
	past     []comment  // all comments
}

// comment is a comment and the number of its picture.
type comment struct {
	at   int
	text string
}

// NewCommentator returns a commentator without comments before picture at. The order may be nil.
func NewCommentator(f *Film, pictures, step int, language, profile string, order *Order, at int) *Commentator {
	return &Commentator{film: f, pictures: pictures, step: step, language: language, profile: profile, order: order, at: at}
}

// Look returns the answer to a look at picture i.
func (c *Commentator) Look(d Dice, i, limit int) string {
	w := c.film.Window(i, c.pictures, c.step)
	n := c.news(d, w, float64(i-c.at)/FPS)
	if n == nil {
		return Silence
	}
	shown := *n
	if limit < pairWords {
		shown.also = nil
	}
	v := Voice{Language: c.language}
	if o := c.order; o != nil && (o.Kind == calm || o.Kind == lively || o.Kind == boil) {
		v.Register = o.Kind
	} else {
		v.Register = c.film.World.style(d, c.profile, &shown)
	}
	text := c.film.World.Word(d, w, &shown, v, limit, c.lastText)
	if text == c.lastText {
		return Silence
	}
	c.tell(&shown)
	c.lastText, c.at = text, i
	c.past = append(c.past, comment{i, text})
	return text
}

// tell records reported news.
func (c *Commentator) tell(n *News) {
	now := []newsID{n.id()}
	if n.also != nil {
		now = append(now, n.also.id())
	}
	c.recent = append(c.recent, now)
	if len(c.recent) > remembered {
		c.recent = c.recent[1:]
	}
	n.known = nil
	for _, all := range c.recent {
		n.known = append(n.known, all...)
	}
	c.last = n
}

// news returns the news of a window, age seconds after the last comment.
func (c *Commentator) news(d Dice, w Window, age float64) *News {
	o, world := c.order, c.film.World
	switch {
	case o == nil, isStyle(o.Kind):
		return world.tell(d, w, c.last, age)
	case o.Kind == quietOrder, o.Kind == cannotOrder && kindOf(c.last) == cannotOrder:
		return nil
	case o.Kind == cannotOrder:
		return &News{Kind: cannotOrder}
	}
	return world.follow(d, *o, w, c.last, age)
}

// isStyle reports whether an order changes the wording and not the content.
func isStyle(kind string) bool { return oneOf(kind, "all", shortOrder, boil, calm) }

// run comments on the pictures from start until shortly before end, at the engine's pace.
func (c *Commentator) run(d Dice, start, end int) {
	for i := start; i <= end-4; {
		limit := Weighted(d, hints(c.language), hintWeights()).limit
		if c.order != nil && c.order.Kind == shortOrder {
			limit = min(limit, shortWords)
		}
		text := c.Look(d, i, limit)
		if text == Silence {
			i += d.from(2, 7)
			continue
		}
		spoken := float64(FPS * (0.5 + float64(0.33*float64(wordCount(text)))))
		i += int(spoken+d.between(0, 4)) + 1
	}
}

// forget reduces the comments before an order to the fact that there were some, if the order wants an answer.
func (c *Commentator) forget(o *Order) {
	if c.last != nil && o != nil && (strings.HasPrefix(o.Kind, "q_") || strings.HasPrefix(o.Kind, "score")) {
		c.last = &News{Kind: "other"}
	}
}
