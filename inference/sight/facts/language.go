package facts

import (
	"embed"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"touchline/inference"
)

//go:embed language/*.txt
var languageFiles embed.FS

// Languages returns the BCP 47 tags of the languages of the sentences, English first.
func Languages() []string {
	tags := slices.DeleteFunc(slices.Sorted(maps.Keys(languages())), func(tag string) bool { return tag == english })
	return slices.Insert(tags, 0, english)
}

const english = "en"

// language has the texts of one language by key. language/en.txt explains the keys.
type language map[string][]string

// languages has the languages by their tags. Nothing changes them.
var languages = sync.OnceValue(func() map[string]language { //nolint:gochecknoglobals // files of the program, which a test reads
	all := map[string]language{}
	entries, _ := languageFiles.ReadDir("language")
	for _, e := range entries {
		text, _ := languageFiles.ReadFile("language/" + e.Name())
		all[strings.TrimSuffix(e.Name(), ".txt")] = readLanguage(string(text))
	}
	return all
})

// languageOf returns the texts of a BCP 47 tag; English if there are none.
func languageOf(tag string) language {
	if l, ok := languages()[inference.Primary(tag)]; ok {
		return l
	}
	return languages()[english]
}

func readLanguage(text string) language {
	l := language{}
	for line := range strings.Lines(text) {
		key, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || key[0] == '#' {
			continue
		}
		for text := range strings.SplitSeq(list, "|") {
			l[key] = append(l[key], strings.TrimSpace(text))
		}
	}
	// "[comes|come]" was cut at its bar.
	for key, list := range l {
		l[key] = rejoin(list)
	}
	return l
}

func rejoin(list []string) []string {
	var out []string
	for _, part := range list {
		if n := len(out) - 1; n >= 0 && strings.Count(out[n], "[") > strings.Count(out[n], "]") {
			out[n] += "|" + part
			continue
		}
		out = append(out, part)
	}
	return out
}

// one returns the only text of a key; "" without one.
func (l language) one(key string) string {
	if len(l[key]) == 0 {
		return ""
	}
	return l[key][0]
}

func (l language) number(n int) string {
	if words := l["numbers"]; n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}

// form is a case of a noun.
type form int

const (
	formOne form = iota
	formThe
	formAnother
	formMany
	formNone
	formSeen // one, as what is seen
	formSeenAnother
)

// noun returns a form of a class or group. The forms for what is seen are usually the others.
func (l language) noun(name string, f form) string {
	forms := l["noun."+name]
	switch {
	case int(f) < len(forms):
		return forms[f]
	case f == formSeen && len(forms) > 0:
		return forms[formOne]
	case f == formSeenAnother && len(forms) > 0:
		return forms[formAnother]
	}
	return name
}

// count returns "two people". Above exactMost it is a lower bound.
func (l language) count(n int, name string, seen bool) string {
	switch {
	case n == 0:
		return l.noun(name, formNone)
	case n == 1 && seen:
		return l.noun(name, formSeen)
	case n == 1:
		return l.noun(name, formOne)
	case n > exactMost:
		return l.fill("least", values{"n": l.number(n), "many": l.noun(name, formMany)})
	}
	return l.number(n) + " " + l.noun(name, formMany)
}

func (l language) list(parts []string) string {
	if n := len(parts) - 1; n > 0 {
		return strings.Join(parts[:n], ", ") + " " + l.one("and") + " " + parts[n]
	}
	return strings.Join(parts, "")
}

func (l language) duration(seconds int) string {
	switch {
	case seconds < 60:
		return l.fill("seconds", values{"n": l.number(seconds)})
	case seconds < 120:
		return l.one("minute")
	}
	return l.fill("minutes", values{"n": l.number(seconds / 60)})
}

// values are the texts of a template's {names}.
type values map[string]string

// fill returns the text of a key with values.
func (l language) fill(key string, v values) string { return fill(l.one(key), 1, v) }

// fill fills in a template, whose verbs "[comes|come]" are for a subject of n.
func fill(template string, n int, v values) string {
	template = verbs.ReplaceAllStringFunc(template, func(s string) string {
		one, many, _ := strings.Cut(s[1:len(s)-1], "|")
		if n == 1 {
			return one
		}
		return many
	})
	for name, text := range v {
		template = strings.ReplaceAll(template, "{"+name+"}", text)
	}
	return template
}

var verbs = regexp.MustCompile(`\[[^\]]*\]`)

// wordings returns the templates of a fact in a register, for a group if there are own ones.
func (l language) wordings(key, group string, r Register) []string {
	for _, k := range []string{key + "." + group + "." + string(r), key + "." + string(r), key + "." + string(Plain), key} {
		if list := l[k]; len(list) > 0 {
			return list
		}
	}
	return nil
}

// sentence begins a text with a capital letter, and what follows a question or an exclamation.
func sentence(text string) string {
	begins := true
	return strings.Map(func(r rune) rune {
		switch {
		case begins && unicode.IsLetter(r):
			begins = false
			return unicode.ToUpper(r)
		case r == '?' || r == '!':
			begins = true
		case unicode.IsDigit(r):
			begins = false
		}
		return r
	}, text)
}

// placeOf returns the key of where something is.
func placeOf(x float64) string {
	switch {
	case x < 0.36:
		return "left"
	case x > 0.64:
		return "right"
	}
	return "middle"
}

func (l language) placesOf(tracks []*track) string {
	var out []string
	for _, t := range tracks {
		x, _ := t.box.centre()
		if at := l.one("at." + placeOf(x)); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return l.list(out)
}
