// Package phrases holds the phrases that the program says and understands, in a text file for each language. A line of a file
// is a key and its phrases: "stop: be quiet | enough"; a key may come again. For a key that a language lacks, the program says the English
// phrase, and understands none.
package phrases

import (
	"embed"
	"fmt"
	"strings"

	"touchline/inference"
)

//go:embed *.txt
var files embed.FS

// english is the language that has all keys.
const english = "en"

// Language has the phrases of one language by key.
type Language map[string][]string

// All returns every language, English first.
func All() []Language {
	out := []Language{read(english)}
	entries, _ := files.ReadDir(".") // of the program: a test reads them
	for _, e := range entries {
		if tag := strings.TrimSuffix(e.Name(), ".txt"); tag != english {
			out = append(out, read(tag))
		}
	}
	return out
}

// In returns the phrases of a key in the language of a BCP 47 tag, or else in English.
func In(tag, key string) []string {
	list, _ := in(tag, key)
	return list
}

// Say returns the phrase of a key with its values, in the language of a BCP 47 tag or else in English, and its language; "" if English
// lacks it too.
func Say(tag, key string, values ...any) (text, language string) {
	list, language := in(tag, key)
	if len(list) == 0 {
		return "", language
	}
	return fmt.Sprintf(list[0], values...), language
}

func in(tag, key string) (list []string, language string) {
	if list := read(inference.Primary(tag))[key]; len(list) > 0 {
		return list, tag
	}
	return read(english)[key], english
}

// read returns the phrases of a language; none without a file.
func read(tag string) Language {
	out := Language{}
	text, _ := files.ReadFile(tag + ".txt")
	for line := range strings.Lines(string(text)) {
		key, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || key[0] == '#' {
			continue
		}
		for phrase := range strings.SplitSeq(list, "|") {
			out[key] = append(out[key], strings.TrimSpace(phrase))
		}
	}
	return out
}
