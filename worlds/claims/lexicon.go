package claims

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The word lists and patterns of each language: common.LL.txt, then WORLD.LL.txt. A text is cut into words without capitals and
// accents, and marks; digits stand for numbers, "2 th" for "second", "not" for negations. The lines of a file are:
//
//	list NAME = a|b_c       alternatives, used as <NAME>; _ is a space, a * at the end any letters
//	number 2 = two twice    words of a number; ordinal as well
//	drop no doubt           words that mean nothing
//	=> T-red  the? red      a phrase and the token that replaces it, in this order
//	[KIND PLACE]            from here on, patterns of claims of a kind; of the kind "-", words that claim nothing
//	{T} score|net ~ {s}     a pattern; the patterns below it do not see its words
//
// In a pattern, a|b is either word and a? may be missing; ~0, ~ and ~~ stand for up to 1, 3 and 7 other words; ^ and $ for the beginning of
// a sentence and the end of the text. Slots are teams {T} and, against it, {O}, a keeper {K}, a shirt {N}, a score {s}, a clock {t}, counts
// {k} and {j}, a side {w}; a person {P}, a car {C}, a place {L}, a colour {c}. A "not" close before a pattern, or in it, denies its claim,
// unless the pattern has one itself; words of the list "hedge" make events mere hopes.
//
//go:embed words
var wordFiles embed.FS

// pattern finds claims of a kind.
type pattern struct {
	kind  Kind
	place string // of all claims of the pattern
	find  *regexp.Regexp
	// A negative pattern includes a negation, a hedged one a hedge.
	negative, hedged bool
}

// rewrite replaces a phrase by a token, such as "the Red team" by "T-red".
type rewrite struct {
	find *regexp.Regexp
	with string
}

// lexicon holds the words and patterns of one language for one world.
type lexicon struct {
	words    map[string]string   // canonical forms of single words: numbers, ordinals, negations
	lists    map[string][]string // word lists by name
	drops    []string
	rewrites []rewrite
	patterns []pattern
}

type lexiconKey struct{ language, world string }

// lexicons caches the compiled lexicons, which never change. Compiling one needs some tens of milliseconds.
var lexicons sync.Map //nolint:gochecknoglobals // a cache of constants

// lexiconOf returns the lexicon of a language for a world; English if the language has none.
func lexiconOf(language, world string) *lexicon {
	language, _, _ = strings.Cut(strings.ToLower(language), "-")
	key := lexiconKey{language, world}
	if l, ok := lexicons.Load(key); ok {
		return l.(*lexicon) //nolint:forcetypeassert // nothing else is stored
	}
	l, err := loadLexicon(language, world)
	if err != nil && language != "en" {
		return lexiconOf("en", world)
	}
	if err != nil {
		panic(err) // the embedded files are wrong: a test reads all
	}
	kept, _ := lexicons.LoadOrStore(key, l)
	return kept.(*lexicon) //nolint:forcetypeassert // nothing else is stored
}

func loadLexicon(language, world string) (*lexicon, error) {
	l := &lexicon{words: map[string]string{}, lists: map[string][]string{}}
	for _, file := range []string{"common", world} {
		text, err := wordFiles.ReadFile("words/" + file + "." + language + ".txt")
		if err != nil {
			return nil, fmt.Errorf("read the words of %s about the %s: %w", language, world, err)
		}
		heading := ""
		for n, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' && !strings.HasPrefix(line, "# {") {
				continue
			}
			if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
				heading = line[1 : len(line)-1]
				continue
			}
			if err := l.take(heading, line); err != nil {
				return nil, fmt.Errorf("read %s.%s.txt, line %d: %w", file, language, n+1, err)
			}
		}
	}
	return l, nil
}

// take parses one line that is not a heading.
func (l *lexicon) take(heading, line string) error {
	key, rest, _ := strings.Cut(line, " ")
	switch {
	case heading != "":
		find, err := l.compile(line)
		if err != nil {
			return err
		}
		kind, place, _ := strings.Cut(heading, " ")
		l.patterns = append(l.patterns, pattern{
			kind: kind, place: place, find: find,
			negative: l.mentions(line, "not"), hedged: l.mentions(line, "hedge"),
		})
	case key == "list":
		name, items, _ := strings.Cut(rest, " = ")
		l.lists[name] = strings.Split(items, "|")
		if name == "not" {
			for _, w := range l.lists[name] {
				l.words[w] = "not"
			}
		}
	case key == "number" || key == "ordinal":
		value, names, _ := strings.Cut(rest, " = ")
		if key == "ordinal" {
			value += " th"
		}
		for w := range strings.FieldsSeq(names) {
			l.words[w] = value
		}
	case key == "drop":
		words := strings.Fields(rest)
		for i, w := range words {
			if canonical, ok := l.words[w]; ok {
				words[i] = canonical
			}
		}
		l.drops = append(l.drops, " "+strings.Join(words, " ")+" ")
	case key == "=>":
		with, phrase, _ := strings.Cut(rest, "  ")
		find, err := l.compile(phrase)
		if err != nil {
			return err
		}
		with = regexp.MustCompile(`\{(\w)\}`).ReplaceAllString(with, "$${$1}")
		l.rewrites = append(l.rewrites, rewrite{find, "${before}" + with + " "})
	default:
		return fmt.Errorf("expected a heading, a list, a number, a drop or a rewrite, got %q", line)
	}
	return nil
}

// mentions reports whether a pattern has a word of a list.
func (l *lexicon) mentions(line, list string) bool {
	return slices.ContainsFunc(slices.Concat(l.lists[list], []string{list, "nobody"}), func(word string) bool { return hasWord(line, word) })
}

// hasWord reports whether a pattern has a word between blanks, bars and underscores, or as an optional word.
func hasWord(line, word string) bool {
	for from := 0; ; {
		i := strings.Index(line[from:], word)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(word)
		if (begin == 0 || strings.IndexByte(" |_", line[begin-1]) >= 0) && (end == len(line) || strings.IndexByte(" |?_", line[end]) >= 0) {
			return true
		}
		from = begin + 1
	}
}

// slots are the placeholders for names and numbers in a pattern.
func slots() map[string]string {
	return map[string]string{
		"{T}": `T-(?P<T>[a-z]*)(?:\+(?P<n>\d+))? `,
		"{O}": `T-(?P<O>[a-z]+)(?:\+\d+)? `,
		"{K}": `K-(?P<T>[a-z]*)(?:\+\d+)? `,
		"{N}": `N-(?P<n>\d+) `,
		"{c}": `[Tc]-(?P<c>[a-z]+)(?:\+\d+)? `,
		"{P}": `P-(?P<c>[a-z]*) `,
		"{C}": `C-(?P<v>[a-z]*) `,
		"{L}": `L-(?P<L>[a-z]+) `,
		"{s}": `S-(?P<a>\d+)-(?P<b>\d+) `,
		"{t}": `M-(?P<k>\d+)-(?P<s>\d+) `,
		"{k}": `(?P<k>\d+) `,
		"{j}": `(?P<j>\d+) `,
		"{w}": `(?P<w>left|right) `,
		"~0":  `(?:[a-z0-9'][^ ]* )??`,
		"~":   `(?:[a-z0-9'][^ ]* ){0,3}?`,
		"~~":  `(?:[a-z0-9',][^ ]* ){0,7}?`,
		"$":   `$`,
	}
}

// compile converts a pattern to a regular expression. Every token of a text ends with a space.
func (l *lexicon) compile(line string) (*regexp.Regexp, error) {
	known := slots()
	var b strings.Builder
	b.WriteString(`(?P<before>^| )`)
	for item := range strings.FieldsSeq(line) {
		if item == "^" {
			b.Reset()
			b.WriteString(`(?P<before>^ ?|[.!] )`)
			continue
		}
		item, optional := strings.CutSuffix(item, "?")
		expr, ok := known[item]
		if !ok {
			var err error
			if expr, err = l.alternatives(item); err != nil {
				return nil, err
			}
		}
		if optional {
			expr = "(?:" + expr + ")?"
		}
		b.WriteString(expr)
	}
	return regexp.Compile(b.String())
}

// alternatives converts an item: words and lists between bars, with _ for a space and * for any ending.
func (l *lexicon) alternatives(item string) (string, error) {
	var all []string
	for word := range strings.SplitSeq(item, "|") {
		if slot, ok := slots()[word]; ok {
			all = append(all, slot)
			continue
		}
		if name, ok := strings.CutPrefix(word, "<"); ok {
			list, ok := l.lists[strings.TrimSuffix(name, ">")]
			if !ok {
				return "", fmt.Errorf("no list %s", word)
			}
			expr, err := l.alternatives(strings.Join(list, "|"))
			if err != nil {
				return "", err
			}
			all = append(all, expr)
			continue
		}
		words := strings.Split(word, "_")
		for i, w := range words {
			if canonical, ok := l.words[w]; ok {
				w = canonical
			}
			words[i] = strings.ReplaceAll(regexp.QuoteMeta(w), `\*`, `[a-z]*`)
		}
		all = append(all, strings.Join(words, " ")+" ")
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return "(?:" + strings.Join(all, "|") + ")", nil
}

// token matches one token of a text.
var token = regexp.MustCompile(`\d+:\d\d|\d+|[a-z]+|'[a-z]*|[.,!?:;#-]`)

// plainLetters removes accents and normalises punctuation.
var plainLetters = strings.NewReplacer( //nolint:gochecknoglobals // constant
	"á", "a", "é", "e", "í", "i", "ó", "o", "ú", "u", "ü", "u", "ñ", "n", "Á", "a", "É", "e", "Í", "i", "Ó", "o", "Ú", "u", "Ñ", "n",
	"’", "'", "‘", "'", "…", ".", "–", "-", "—", ", ", "¡", " ", "¿", " ", "“", " ", "”", " ", "\"", " ", "(", ", ", ")", ", ", "\n", " . ",
)

var (
	numbered = regexp.MustCompile(`\b(?:no|nr|n)[.º°] ?(\d)`)
	longGoal = regexp.MustCompile(`\bgo+a*l+(a+[zs]+o+)?\b`) // "gooool", "golazo"
	ordinal  = regexp.MustCompile(`(\d)(?:st|nd|rd|th|º|°)\b`)
)

// tokens converts a text to canonical tokens, each followed by a space, without its questions.
func (l *lexicon) tokens(text string) string {
	text = strings.ToLower(plainLetters.Replace(text))
	text = numbered.ReplaceAllString(text, "number $1")
	text = ordinal.ReplaceAllString(text, "$1 th ")
	found := token.FindAllString(text, -1)
	var out []string
	for i, t := range found {
		out = append(out, l.canonical(t, out, next(found, i))...)
	}
	line := " " + strings.Join(withoutQuestions(l.merge(out)), " ") + " "
	for _, d := range l.drops {
		line = strings.ReplaceAll(line, d, " ")
	}
	line = strings.TrimPrefix(line, " ")
	for _, r := range l.rewrites {
		for range 3 { // one pass does not find phrases that share a space
			was := line
			if line = r.find.ReplaceAllString(line, r.with); line == was {
				break
			}
		}
	}
	return line
}

func next(all []string, i int) string {
	if i+1 < len(all) {
		return all[i+1]
	}
	return ""
}

// canonical returns the tokens for one word, given the tokens before it.
func (l *lexicon) canonical(t string, before []string, next string) []string {
	last := ""
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	if m, s, ok := strings.Cut(t, ":"); ok && m != "" {
		return []string{"M-" + strconv.Itoa(atoi(m)) + "-" + strconv.Itoa(atoi(s))}
	}
	if longGoal.MatchString(t) && t != "go" {
		if strings.HasPrefix(t, "goa") || t[len(t)-1] == 'l' && strings.Contains(t, "a") {
			return []string{"goal"}
		}
		return []string{"gol"}
	}
	switch t {
	case "'s":
		switch last {
		case "it", "that", "he", "she", "there", "here", "who", "what", "everything", "everyone", "everybody", "nobody", "where":
			return []string{"is"}
		case "let":
			return []string{"us"}
		}
	case "'t", "'re", "'ve", "'ll", "'m", "'d":
		return map[string][]string{"'t": {"not"}, "'re": {"are"}, "'ve": {"have"}, "'ll": {"will"}, "'m": {"am"}, "'d": {"would"}}[t]
	case "'":
		return nil
	case ";":
		return []string{"."}
	case ":":
		if isNumber(last) && l.isNumber(next) {
			return []string{":"}
		}
		return []string{","}
	}
	if next == "'t" { // can't, won't, isn't
		t = strings.TrimSuffix(t, "n")
		if t == "ca" {
			t = "can"
		}
	}
	if w, ok := l.words[t]; ok {
		return strings.Fields(w)
	}
	return []string{t}
}

func (l *lexicon) isNumber(word string) bool { return isNumber(word) || isNumber(l.words[word]) }

// merge joins "20", "-" and "3", and keeps a hyphen only between two numbers.
func (l *lexicon) merge(in []string) (out []string) {
	for i := 0; i < len(in); i++ {
		if in[i] == "-" && (len(out) == 0 || !isNumber(out[len(out)-1]) || !isNumber(next(in, i))) {
			continue
		}
		j := i + 1
		for j < len(in) && (in[j] == "-" || in[j] == "y") {
			j++
		}
		ones := j < len(in) && j <= i+2 && isNumber(in[j]) && len(in[j]) == 1 && in[j] != "0"
		if n := atoi(in[i]); ones && isNumber(in[i]) && n >= 20 && n%10 == 0 {
			out = append(out, strconv.Itoa(n+atoi(in[j])))
			i = j
			continue
		}
		out = append(out, in[i])
	}
	return out
}

// withoutQuestions drops the sentences that end with a question mark. A question claims nothing, except one of wonder ("How did he keep
// that out?").
func withoutQuestions(in []string) (out []string) {
	begin := 0
	for _, t := range in {
		if t == "?" && begin < len(out) && out[begin] != "how" && out[begin] != "como" {
			out = out[:begin]
		}
		if t == "?" {
			t = "."
		}
		out = append(out, t)
		if t == "." || t == "!" {
			begin = len(out)
		}
	}
	return out
}

func isNumber(t string) bool { return t != "" && t[0] >= '0' && t[0] <= '9' }

func atoi(t string) int {
	n, _ := strconv.Atoi(t)
	return n
}
