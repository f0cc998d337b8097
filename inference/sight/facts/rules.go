package facts

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/scene"
)

const (
	eventHolds = 5 * time.Second // so long a rule about an event holds after it: two looks of the default cadence, which vote for it
	countHolds = time.Second     // in most looks of this time a number must have been right
)

// RuleNames returns examples of the alert rules that the engine can evaluate.
func RuleNames() []string {
	return append([]string{
		"a person enters", "a person enters from the left", "a car leaves on the right", "somebody is there", "more than 3 people",
		"nobody is there", "nobody for 5 minutes", "somebody stands in the middle for 20 seconds", "a person runs", "a dog appears",
		"the text reads 2-1", "the score changes",
	}, scene.RuleNames()...)
}

// CheckRule returns an error for the sentence of an alert rule that neither facts nor package scene's measurements answer.
func CheckRule(when string, regions []inference.Region) error {
	r, ok := parseRule(when)
	switch {
	case ok && r.region != "":
		return r.checkRegion(regions)
	case ok || scene.CheckRule(when) == nil:
		return nil
	}
	return fmt.Errorf(`the sight engine answers rules about people, vehicles, animals and text, such as "a person enters from the left", `+
		`"more than 3 people", "nobody for 5 minutes", "the text reads 2-1", 'a person enters the zone "yard"', `+
		`'a car crosses the line "gate" to the left', and the rules %s; is %.60q; `+
		`for other sentences choose an engine that follows instructions`, strings.Join(scene.RuleNames(), ", "), when)
}

// rule is a sentence that facts decide.
type rule struct {
	form  string
	how   string // the comparison of a number
	n     int
	name  string // a class or group
	word  string // for a person that sounds like more than that, such as "woman"
	side  side
	place string // left, middle or right; "" anywhere
	lasts time.Duration
	text  string
	// region is the name of a zone or line as plainName has it, area the word before it.
	region, area string
}

// The words before the name of a region.
const (
	zoneArea = "zone"
	lineArea = "line"
)

// ruleForm is a form of sentences: the whole sentence must match.
type ruleForm struct {
	form    string
	pattern *regexp.Regexp
}

// ruleForms are the grammar. {noun}, {n}, {place}, {region}, {side} and {time} are parts.
var ruleForms = sync.OnceValue(func() []ruleForm { //nolint:gochecknoglobals // compiled once
	const region = `(?:the )?(?P<area>zone|line) "(?P<region>[^"]+)"`
	parts := strings.NewReplacer(
		"{n}", `(?P<n>\d{1,3}|[a-z]+)`, "{noun}", `(?: (?P<noun>[a-z ]+?))??`, "{what}", `(?P<noun>[a-z ]+?)`,
		"{region}", region,
		"{place}", `(?: (?:on the|at the|in the) (?P<place>left|right|middle|centre|center)(?: side)?| (?:in|inside) `+region+`)?`,
		"{time}", `(?P<time>\d{1,4}) ?(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?)`,
	)
	enters := `{n}{noun} (?:enters?|comes? in|arrives?|appears?|drives? in)`
	leaves := `{n}{noun} (?:leaves?|goes? out|walks? out|drives? out)`
	none := `(?:nobody|no one|there is nobody|(?:there (?:is|are) )?no {what})(?: is| are)?(?: there| in the picture| in view)?{place}`
	var out []ruleForm
	for _, f := range [][2]string{
		{"enters", `{n}{noun} (?:enters?|(?:comes?|goes|walks|drives) into) {region}`},
		{"leaves", `{n}{noun} (?:leaves?|(?:comes?|goes|walks|drives) out of) {region}`},
		{"crosses", `{n}{noun} cross(?:es)? {region}(?: (?:to the )?(?P<side>left|right|up|down))?`},
		{"enters", enters + `(?: (?:from the|on the|at the) (?P<side>left|right|top|bottom))?`},
		{"leaves", leaves + `(?: (?:on the|at the|to the) (?P<side>left|right|top|bottom))?`},
		{"runs", `{n}{noun} (?:runs|starts to run|is running)`},
		{"none", none + `(?: for {time})?`},
		{"stays", `{n}{noun} (?:stays|stands|waits|lingers){place} for {time}`},
		{"count", `(?:there (?:is|are) )?(?:(?P<how>more than|over|at least|fewer than|less than|at most|exactly) )?{n}{noun}` +
			`(?: (?:is|are))?(?: there| in the picture| in view)?{place}`},
		{"text", `the (?:text|board|screen|sign|scoreboard) (?:reads|says|shows|contains) ["“]?(?P<text>[^"“”]{1,40})["”]?`},
		{"scored", `the score changes`},
		{"text", `the score (?:is|reads) (?P<text>\d{1,3} ?[-–:] ?\d{1,3})`},
	} {
		out = append(out, ruleForm{f[0], regexp.MustCompile("^" + parts.Replace(f[1]) + "$")})
	}
	return out
})

// parseRule reads a sentence; false if it is not wholly understood.
func parseRule(when string) (rule, bool) {
	when = strings.TrimRight(strings.Join(strings.Fields(strings.ToLower(when)), " "), ".! ")
	for _, f := range ruleForms() {
		m := f.pattern.FindStringSubmatch(when)
		if m == nil {
			continue
		}
		got := map[string]string{}
		for i, name := range f.pattern.SubexpNames() {
			if m[i] != "" {
				got[name] = m[i]
			}
		}
		if r, ok := newRule(f.form, got); ok {
			return r, true
		}
	}
	return rule{}, false
}

func newRule(form string, got map[string]string) (rule, bool) {
	r := rule{
		form: form, how: got["how"], n: 1, name: person, side: side(got["side"]), place: got["place"], text: got["text"],
		region: got["region"], area: got["area"],
	}
	l := languageOf(english)
	if noun, ok := got["noun"]; ok {
		var who bool
		if r.name, who = l.classOf(noun); who {
			r.word = noun
		}
	}
	if r.name == "" || groupOf(r.name) == thing {
		return r, false
	}
	switch {
	case r.place == "centre" || r.place == "center":
		r.place = "middle"
	case r.region != "":
		r.place = placeOfZone(r.region)
	}
	if word, ok := got["n"]; ok {
		_, named := got["noun"]
		anyone := slices.Contains([]string{"somebody", "someone", "anybody", "anyone"}, word)
		n, err := strconv.Atoi(word)
		switch i := slices.Index(l["numbers"], word); {
		case err == nil:
			r.n = n
		case i > 0:
			r.n = i
		case anyone != named && (anyone || word == "a" || word == "an" || word == "another"):
			r.n = 1
		default:
			return r, false
		}
		if !named && !anyone {
			return r, false // "two enter"
		}
		if form == "count" && r.how == "" && (anyone || err != nil && r.n == 1) {
			r.how = "at least"
		}
	}
	if got["time"] != "" {
		n, _ := strconv.Atoi(got["time"]) // digits
		unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[got["unit"][0]]
		r.lasts = time.Duration(n) * unit
	}
	return r, true
}

// key is the counter of a rule's things.
func (r rule) key() string { return r.name + "@" + r.place }

// Holds evaluates a rule that CheckRule accepts, but for those of package scene.
func (w *Watcher) Holds(when string) (inference.Finding, bool) {
	r, known := parseRule(when)
	if !known || !w.viewTold {
		return inference.Finding{Unknown: known}, false
	}
	f, ok := w.evaluate(r)
	if r.word != "" {
		f.Reason += fmt.Sprintf(" (%q counts as person.)", r.word)
	}
	return f, ok
}

func (w *Watcher) evaluate(r rule) (inference.Finding, bool) {
	since := w.viewAt
	if r.region != "" {
		g := w.ground(r.region)
		if g == nil {
			return inference.Finding{}, false
		}
		since = max(since, g.since, w.shaken)
	}
	switch r.form {
	case "enters":
		return w.happened(r, enterFact, appearFact, zoneInFact)
	case "leaves":
		return w.happened(r, leaveFact, zoneOutFact)
	case "crosses":
		return w.happened(r, lineFact)
	case "runs":
		return w.happened(r, runFact)
	case "scored":
		return w.happened(r, scoreFact)
	case "stays":
		return w.stays(r)
	case "text":
		return w.reads(r)
	}
	if w.now-since < countHolds {
		return inference.Finding{Unknown: true}, false
	}
	if r.form == "none" {
		empty := w.now - max(w.counter(r.key()).seenAt, since)
		if empty <= countHolds || empty < r.lasts {
			return inference.Finding{}, false
		}
		none := sentence(languageOf(english).count(0, r.name, false))
		return inference.Finding{Reason: fmt.Sprintf("%s%s for %.0f seconds.", none, r.where(), empty.Seconds()), PTS: w.now}, true
	}
	return w.counts(r)
}

// happened evaluates a rule about events of some kinds.
func (w *Watcher) happened(r rule, kinds ...kind) (inference.Finding, bool) {
	var who []int // the tracks' numbers: what is lost and found has one
	for _, f := range slices.Backward(w.log) {
		if w.now-f.due > eventHolds || !slices.Contains(kinds, f.kind) || r.side != noSide && r.side != f.side && r.side != f.way {
			continue
		}
		var box *inference.Box
		for _, t := range f.tracks {
			if (t.group == r.name || t.name() == r.name) && !slices.Contains(who, t.id) && w.within(r, f, t) {
				who, box = append(who, t.id), cmp.Or(box, t.boxAt(f.at))
			}
		}
		if f.kind == scoreFact || len(who) >= r.n {
			return inference.Finding{Reason: w.reason(f), PTS: f.at, Box: box}, true
		}
	}
	return inference.Finding{}, false
}

// boxAt returns the box of a look, within the picture; nil if it is not known any more.
func (t *track) boxAt(at time.Duration) *inference.Box {
	i := slices.IndexFunc(t.path, func(p point) bool { return p.at == at })
	if i < 0 {
		return nil
	}
	b := t.path[i].box
	within := func(v float64) float32 { return float32(min(max(v, 0), 1)) }
	return &inference.Box{X0: within(b.x0), Y0: within(b.y0), X1: within(b.x1), Y1: within(b.y1)}
}

func (w *Watcher) stays(r rule) (inference.Finding, bool) {
	n := 0
	for _, t := range w.present(r.name) {
		if t.pace != resting || w.now-t.stood.since < r.lasts || r.place != "" && !slices.Contains(w.places(t), r.place) {
			continue
		}
		if n++; n >= r.n {
			reason := fmt.Sprintf("It has been there for %.0f seconds.", (w.now - t.stood.since).Seconds())
			return inference.Finding{Reason: reason, PTS: t.at, Box: t.boxAt(t.at)}, true
		}
	}
	return inference.Finding{}, false
}

// reads looks for a text on the board: case, spaces and the kind of dash do not count.
func (w *Watcher) reads(r rule) (inference.Finding, bool) {
	flat := strings.NewReplacer(" ", "", "–", "-", "—", "-", ":", "-")
	for _, text := range w.texts {
		if strings.Contains(flat.Replace(strings.ToLower(text)), flat.Replace(r.text)) {
			return inference.Finding{Reason: fmt.Sprintf("The text reads %q.", text), PTS: w.now}, true
		}
	}
	return inference.Finding{}, false
}

// counts evaluates a rule about a number, which must have been right in most looks of the last moment. If it was in half, it is unknown.
func (w *Watcher) counts(r rule) (inference.Finding, bool) {
	numbers := w.counter(r.key()).during(w.now, countHolds)
	right := slices.DeleteFunc(slices.Clone(numbers), func(n int) bool {
		return !map[string]bool{
			"more than": n > r.n, "over": n > r.n, "at least": n >= r.n, "fewer than": n < r.n, "less than": n < r.n, "at most": n <= r.n,
			"exactly": n == r.n, "": n == r.n,
		}[r.how]
	})
	if 2*len(right) <= len(numbers) {
		return inference.Finding{Unknown: 2*len(right) == len(numbers), Reason: "The number is not clear."}, false
	}
	n := slices.Min(right)
	who := values{"who": languageOf(english).count(n, r.name, false)}
	f := inference.Finding{Reason: fill("There [is|are] {who}", n, who) + r.where() + ".", PTS: w.now}
	for _, t := range w.present(r.name) {
		if r.place == "" || slices.Contains(w.places(t), r.place) {
			f.Box = cmp.Or(f.Box, t.boxAt(w.now))
		}
	}
	return f, true
}
