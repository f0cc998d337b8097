package facts

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	missedMost = 2  // sentences about what was not told
	askersMost = 64 // that are remembered
)

// order is what to speak of, and how.
type order struct {
	only, ignore []string // groups and classes
	register     Register // "" for that of the prompt
}

func (o order) wants(group, name string) bool {
	listed := func(l []string) bool { return slices.Contains(l, group) || slices.Contains(l, name) }
	return (len(o.only) == 0 || listed(o.only)) && !listed(o.ignore)
}

// ask is an order or a question that was understood.
type ask struct {
	form  string // the key of its patterns without "ask."
	nouns []string
	who   bool // a noun says more of a person than can be told
}

// asks returns the forms, orders first.
func asks() []string {
	return []string{
		"all", "brief", "lively", "plain", "many", "there", "where", "clock", "score", "reads", "happened", "ignore", "only",
	}
}

// instruct takes a new instruction and returns what to say to it: answers, or help if it was not understood.
func (w *Watcher) instruct(l language, text string) string {
	var next order
	var answers []string
	orders, lost := text == "", false
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(".;!?¿¡\n", r) }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		a, ok := l.understand(part)
		switch {
		case !ok:
			lost = true
		case !a.order():
			answers = append(answers, w.reply(l, a))
		case a.form == "only" && !slices.ContainsFunc(a.nouns, func(name string) bool { return groupOf(name) != thing }):
			answers = append(answers, l.one("answer.only.thing"))
		default:
			orders = true
			next.apply(a)
			if a.who {
				answers = append(answers, l.one("answer.who"))
			}
		}
	}
	if orders {
		w.telling.order = next
	}
	if lost {
		answers = append(answers, l.one("answer.help"))
	}
	return strings.Join(answers, " ")
}

func (a ask) order() bool {
	return slices.Contains([]string{"all", "brief", "lively", "plain", "ignore", "only"}, a.form)
}

func (o *order) apply(a ask) {
	switch a.form {
	case "only":
		o.only = append(o.only, a.nouns...)
	case "ignore":
		o.ignore = append(o.ignore, a.nouns...)
	case "all":
		o.only, o.ignore = nil, nil
	default:
		o.register = Register(a.form)
	}
}

// understand reads an order or a question, in the language or else in English.
func (l language) understand(text string) (ask, bool) {
	text = strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(text, "’", "'"))), " ")
	for _, l := range []language{l, languageOf(english)} {
		for _, text := range []string{text, strings.ReplaceAll(text, ",", "")} {
			if a, ok := l.match(l.bare(text)); ok {
				return a, true
			}
		}
	}
	return ask{}, false
}

func (l language) match(text string) (ask, bool) {
	for _, form := range asks() {
		for _, pattern := range l["ask."+form] {
			m := matchers()[pattern].FindStringSubmatch(text)
			if m == nil {
				continue
			}
			if nouns, who, ok := l.nounsOf(m[1:]); ok {
				return ask{form, nouns, who}, true
			}
		}
	}
	return ask{}, false
}

// bare takes polite words and signs off both ends.
func (l language) bare(text string) string {
	for {
		was := text
		text = strings.Trim(text, " .,!?¿¡:;\"“”«»")
		for _, word := range l["polite"] {
			text = strings.TrimPrefix(text, word+" ")
			text = strings.TrimSuffix(text, " "+word)
		}
		if text == was {
			return text
		}
	}
}

// matchers has the expressions of all patterns. Nothing changes them.
var matchers = sync.OnceValue(func() map[string]*regexp.Regexp { //nolint:gochecknoglobals // compiled once
	all := map[string]*regexp.Regexp{}
	for _, l := range languages() {
		for _, form := range asks() {
			for _, pattern := range l["ask."+form] {
				all[pattern] = matcher(pattern)
			}
		}
	}
	return all
})

var brackets = regexp.MustCompile(`\([^)]*\)`)

// matcher returns the expression of a pattern.
func matcher(pattern string) *regexp.Regexp {
	pattern = brackets.ReplaceAllStringFunc(pattern, func(s string) string {
		inside := s[1 : len(s)-1]
		choices := strings.Split(inside, "/")
		for i := range choices {
			choices[i] = strings.TrimSpace(choices[i])
		}
		all := "(?:" + strings.Join(choices, "|") + ")"
		switch {
		case strings.HasPrefix(inside, " "):
			return "(?: " + all + ")?"
		case strings.HasSuffix(inside, " "):
			return "(?:" + all + " )?"
		}
		return all
	})
	return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "{nouns}", "(.+?)") + "$")
}

// nounsOf returns the classes and groups that words name, and whether one says who a person is; false if one is unknown.
func (l language) nounsOf(texts []string) (out []string, who, ok bool) {
	for _, text := range texts {
		for _, word := range []string{"and", "or"} {
			text = strings.ReplaceAll(text, " "+l.one(word)+" ", ",")
		}
		for part := range strings.SplitSeq(text, ",") {
			name, more := l.classOf(strings.TrimSpace(part))
			if name == "" {
				return nil, false, false
			}
			out, who = append(out, name), who || more
		}
	}
	return out, who, true
}

// classOf returns the class or group that a word names, "" if none, and whether it says who a person is.
func (l language) classOf(word string) (name string, who bool) {
	for _, article := range l["article"] {
		if !strings.HasSuffix(article, "'") {
			article += " "
		}
		word = strings.TrimPrefix(word, article)
	}
	if slices.Contains(l["who"], word) {
		return person, true
	}
	for _, key := range slices.Sorted(maps.Keys(l)) {
		if name, ok := strings.CutPrefix(key, "words."); ok && slices.Contains(l[key], word) {
			return name, false
		}
	}
	return "", false
}

// reply answers a question.
func (w *Watcher) reply(l language, a ask) string {
	switch a.form {
	case "many", "there", "where":
		var answers []string
		if a.who {
			answers = append(answers, l.one("answer.who"))
		}
		for _, name := range a.nouns {
			form := a.form
			if a.who && name == person && form == "there" {
				form = "many" // neither yes nor no
			}
			answers = append(answers, w.replyThing(l, form, name))
		}
		return strings.Join(answers, " ")
	case "clock":
		return shown(l, "clock", w.clock)
	case "reads", "score":
		return shown(l, "reads", strings.Join(w.texts, ", "))
	}
	since, known := w.telling.asked[w.telling.askedBy]
	key := "answer.happened"
	if !known {
		since, key = never, "answer.happened.first"
	}
	w.telling.noteAsked(w.now)
	came, left := w.traffic(since)
	values := values{"in": l.traffic(came), "out": l.traffic(left), "now": w.replyThing(l, "many", person)}
	return sentence(l.fill(key, values)) + w.missed(l, since)
}

// noteAsked notes when the viewer asked what happened, and drops the oldest beyond askersMost.
func (t *telling) noteAsked(now time.Duration) {
	t.asked[t.askedBy] = now
	if len(t.asked) > askersMost {
		delete(t.asked, slices.MinFunc(slices.Sorted(maps.Keys(t.asked)), func(a, b string) int {
			return cmp.Compare(t.asked[a], t.asked[b])
		}))
	}
}

// missed returns sentences about what was not told since a time and still holds, the newest first. Arrivals and departures are counted.
func (w *Watcher) missed(l language, since time.Duration) string {
	out, most := "", missedMost
	for _, f := range slices.Backward(w.log) {
		if f.told || f.due <= since || f.kind == numberFact || f.kind != stopFact && !f.kind.lasting() || most == 0 {
			continue
		}
		if text := w.word(l, f, Plain); text != "" {
			out, most = out+" "+text, most-1
			w.take(f)
			f.told = true
		}
	}
	return out
}

func shown(l language, key, text string) string {
	if text == "" {
		return l.one("answer." + key + ".none")
	}
	return l.fill("answer."+key, values{"text": text})
}

// replyThing answers how many there are of a class or group, whether there is one, and where.
func (w *Watcher) replyThing(l language, form, name string) string {
	if groupOf(name) == thing {
		s := w.things[name]
		if s == nil || len(s.looks) < thingLooks {
			return l.one("answer.unsure")
		}
		x, _ := s.box.centre()
		return sentence(l.fill("answer."+form+".thing", values{"place": l.one("at." + placeOf(x))}))
	}
	seen := w.present(name)
	n := len(seen)
	if name == person {
		n = w.people()
	}
	key := "answer." + form
	switch unnamed := len(w.present(groupOf(name))) > n; {
	case n == 0 && unnamed:
		return l.one("answer.unsure") // an animal or a vehicle whose class is not clear
	case form == "there" && n == 0:
		key = "answer.no"
	case form == "there":
		key = "answer.yes"
	case n == 0:
		key = "answer.none"
	}
	return sentence(l.fill(key, values{"see": l.count(n, name, true), "place": l.placesOf(seen)}))
}
