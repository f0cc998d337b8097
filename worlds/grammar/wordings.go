package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"touchline/worlds/train/words"
)

// Registers of a comment, from calm to excited.
const (
	calm   = "calm"
	lively = "lively"
	boil   = "boil"
)

// Kinds of orders that change the wording, or whether there is a comment.
const (
	shortOrder  = "short"
	quietOrder  = "quiet"
	cannotOrder = "cannot"
)

// saying has the wordings of a kind of news.
type saying struct {
	kind      string
	registers []register // in the file's order, then registers without wordings of their own
}

// register has the wordings of one register, or of "any".
type register struct {
	name string
	pool []template
}

func (s *saying) register(name string) *register {
	i := slices.IndexFunc(s.registers, func(r register) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &s.registers[i]
}

// complete gives registers without wordings the wordings of "any" or of a calmer register.
func (s *saying) complete() error {
	from := s.register("any")
	if from == nil {
		from = s.register(calm)
	}
	if from == nil {
		return fmt.Errorf("wordings of %q: none for calm or any", s.kind)
	}
	for _, name := range []string{calm, lively, boil} {
		if s.register(name) == nil {
			s.registers = append(s.registers, register{name, from.pool})
		}
		from = s.register(name)
	}
	return nil
}

// orderTexts are the wordings of a kind of order.
type orderTexts struct {
	trained []pattern
	heldOut []string
	barred  map[string]bool // the held-out ones, without punctuation
}

// names are nouns and clauses for a topic, to fill the frames.
type names struct{ nouns, clauses []pattern }

// topic has the names of a kind of order for training, and the held-out ones.
type topic struct{ trained, heldOut names }

// frames are the patterns around a topic.
type frames struct{ trained, heldOut []frame }

// frame is one pattern around a topic.
type frame struct {
	pattern

	noun bool // for a noun, else for a clause
}

// wordings are the wordings for a world in a language.
type wordings struct {
	world, language string

	sayings []saying
	byKind  map[string]*saying
	shared  *wordings // wordings that all worlds share are the match's

	kinds  []string // kinds of orders
	orders map[string]*orderTexts
	topics map[string]*topic
	frames frames
}

func readWordings(world, language string) (*wordings, error) {
	w := &wordings{
		world: world, language: language, byKind: map[string]*saying{}, orders: map[string]*orderTexts{}, topics: map[string]*topic{},
	}
	w.shared = w
	return w, errors.Join(w.readSayings(), w.readOrders(), w.readTopics(), w.readFrames())
}

func (w *wordings) readSayings() error {
	lines, err := words.Lines(w.world + "." + w.language)
	if err != nil {
		return err
	}
	var in *register
	for _, line := range lines {
		if head, ok := strings.CutPrefix(line, "["); ok {
			kind, name, ok := strings.Cut(strings.TrimSuffix(head, "]"), " ")
			if !ok {
				return fmt.Errorf("wordings of the %s in %q: expected [kind register], got %q", w.world, w.language, line)
			}
			in = w.section(kind, name)
			continue
		}
		for _, text := range newPattern(line).all() {
			in.pool = append(in.pool, newTemplate(text))
		}
	}
	for i := range w.sayings {
		if err := w.sayings[i].complete(); err != nil {
			return err
		}
		w.byKind[w.sayings[i].kind] = &w.sayings[i]
	}
	return nil
}

// section returns the register of a kind, and creates it if necessary.
func (w *wordings) section(kind, name string) *register {
	i := slices.IndexFunc(w.sayings, func(s saying) bool { return s.kind == kind })
	if i < 0 {
		i = len(w.sayings)
		w.sayings = append(w.sayings, saying{kind: kind})
	}
	s := &w.sayings[i]
	if s.register(name) == nil {
		s.registers = append(s.registers, register{name: name})
	}
	return s.register(name)
}

func (w *wordings) readOrders() error {
	lines, err := words.Sections("orders." + w.world + "." + w.language)
	if err != nil {
		return err
	}
	for _, l := range lines {
		o := w.orders[l.Kind]
		if o == nil {
			o = &orderTexts{barred: map[string]bool{}}
			w.orders[l.Kind] = o
			w.kinds = append(w.kinds, l.Kind)
		}
		if p := newPattern(l.Text); !l.HeldOut {
			o.trained = append(o.trained, p)
		} else {
			o.heldOut = append(o.heldOut, p.all()...)
		}
	}
	for _, o := range w.orders {
		for _, text := range o.heldOut {
			o.barred[bare(text)] = true
		}
	}
	return nil
}

func (w *wordings) readTopics() error {
	lines, err := words.Sections("topics." + w.world + "." + w.language)
	if err != nil {
		return err
	}
	for _, l := range lines {
		t := w.topics[l.Kind]
		if t == nil {
			t = &topic{}
			w.topics[l.Kind] = t
			if w.orders[l.Kind] == nil {
				w.kinds = append(w.kinds, l.Kind)
			}
		}
		in := &t.trained
		if l.HeldOut {
			in = &t.heldOut
		}
		if p := newPattern(l.Text); l.Clause {
			in.clauses = append(in.clauses, p)
		} else {
			in.nouns = append(in.nouns, p)
		}
	}
	return nil
}

func (w *wordings) readFrames() error {
	lines, err := words.Sections("frames." + w.language)
	if err != nil {
		return err
	}
	for _, l := range lines {
		f := frame{newPattern(l.Text), strings.Contains(l.Text, "{X}")}
		if l.HeldOut {
			w.frames.heldOut = append(w.frames.heldOut, f)
		} else {
			w.frames.trained = append(w.frames.trained, f)
		}
	}
	return nil
}

// order draws a wording of an order: a pattern of its own, or a frame with its topic. All patterns are equally likely, whatever their
// number of texts. Patterns, frames and names of topics can be held out of training.
func (w *wordings) order(d Dice, kind string, heldOut bool) string {
	if heldOut {
		return w.heldOut(d, kind)
	}
	text := ""
	for range 20 {
		text = w.trained(d, kind)
		if d.chance(0.2) {
			text = slip(d, text)
		}
		if o := w.orders[kind]; o == nil || !o.barred[bare(text)] {
			break
		}
	}
	if !d.chance(0.15) {
		return text
	}
	text = strings.TrimLeft(strings.TrimRight(text, ".!?"), "¿¡") // as people type
	if d.chance(0.5) && !strings.HasPrefix(text, "I ") && !strings.HasPrefix(text, "I'") && !strings.HasPrefix(text, "{T}") {
		text = small(text)
	}
	return text
}

// trained draws a wording of an order for training.
func (w *wordings) trained(d Dice, kind string) string {
	var own []pattern
	if o := w.orders[kind]; o != nil {
		own = o.trained
	}
	t := w.topics[kind]
	if t == nil {
		return Pick(d, own).pick(d)
	}
	framed := 0.3
	if len(t.trained.nouns) > 0 {
		framed = 0.8
	}
	if d.Float64() > framed && len(own) > 0 {
		return Pick(d, own).pick(d)
	}
	return framedTopic(d, t, w.frames.trained, t.trained)
}

// heldOut draws a held-out wording of an order.
func (w *wordings) heldOut(d Dice, kind string) string {
	var own []string
	if o := w.orders[kind]; o != nil {
		own = o.heldOut
	}
	t := w.topics[kind]
	if t == nil || d.Float64() > 0.6 && len(own) > 0 {
		return Pick(d, own)
	}
	if len(t.usable(w.frames.heldOut)) > 0 && d.chance(0.5) {
		return framedTopic(d, t, w.frames.heldOut, t.trained)
	}
	return framedTopic(d, t, w.frames.trained, t.heldOut)
}

// usable omits the frames for nouns if the topic has none.
func (t *topic) usable(all []frame) []frame {
	if len(t.trained.nouns) > 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f frame) bool { return f.noun })
}

// framedTopic draws a frame and its content.
func framedTopic(d Dice, t *topic, all []frame, n names) string {
	f := Pick(d, t.usable(all))
	inside := n.clauses
	if f.noun {
		inside = n.nouns
	}
	before, rest, _ := strings.Cut(f.pick(d), "{")
	_, after, _ := strings.Cut(rest, "}") // of {X} or {W}
	return capital(before + Pick(d, inside).pick(d) + after)
}

// rule draws an alert rule in free words: a clause about a topic.
func (w *wordings) rule(d Dice, kind string, heldOut bool) string {
	if heldOut {
		return Pick(d, w.topics[kind].heldOut.clauses).pick(d)
	}
	return Pick(d, w.topics[kind].trained.clauses).pick(d)
}

// slip makes one typing error: it omits a short word, or swaps two letters of a longer one. Slots stay whole.
func slip(d Dice, text string) string {
	all := strings.Split(text, " ")
	var little, long []int
	for k, word := range all {
		if isLittle(word) {
			little = append(little, k)
		}
		if utf8.RuneCountInString(word) > 3 && !strings.ContainsFunc(word, notLetter) {
			long = append(long, k)
		}
	}
	switch {
	case len(little) > 0 && len(all) > 4 && d.chance(0.5):
		k := Pick(d, little)
		all = slices.Delete(all, k, k+1)
	case len(long) > 0:
		k := Pick(d, long)
		letters := []rune(all[k])
		at := d.from(1, len(letters)-1)
		letters[at], letters[at+1] = letters[at+1], letters[at]
		all[k] = string(letters)
	}
	return strings.Join(all, " ")
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

// shared reports whether all worlds have a kind of news.
func shared(kind string) bool { return kind == "cannot" || kind == "unknown" || kind == "dark" }

// say draws a wording of a kind of news, of at most limit words if there is one (0 means no limit), other than the one to avoid.
func (w *wordings) say(d Dice, kind, in string, v values, limit int, avoid string) string {
	if shared(kind) {
		w = w.shared
	}
	pool := w.byKind[kind].register(in).pool
	best := ""
	for i := range d.shuffled(len(pool)) {
		text, ok := pool[i].fill(v)
		if !ok || text == avoid {
			continue
		}
		if limit == 0 || wordCount(text) <= limit {
			return text
		}
		if best == "" || utf8.RuneCountInString(text) < utf8.RuneCountInString(best) {
			best = text
		}
	}
	if best == "" {
		return avoid
	}
	return best
}

func wordCount(text string) int { return len(strings.Fields(text)) }
