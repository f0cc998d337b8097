package qwen3asr

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed" // the list
	"strings"
	"sync"
	"unicode/utf8"

	"touchline/inference/internal/asrtext"
)

// koreanList has the words of two letters and more of korean_dict_jieba.dict in the package qwen-asr 0.0.6 (Apache License
// 2.0), a line each.
//
//go:embed korean.txt.gz
var koreanList []byte

// koreanWords reads the list at its first use.
var koreanWords = sync.OnceValue(func() map[string]struct{} { //nolint:gochecknoglobals // a table
	words := map[string]struct{}{}
	z, err := gzip.NewReader(bytes.NewReader(koreanList))
	if err != nil {
		panic(err) // it is part of the program
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		words[lines.Text()] = struct{}{}
	}
	return words
})

// koreanWord returns the length of the first word of a text up to its first space, in bytes: its longest beginning that is in
// the list, of two letters at least, else all of it.
func koreanWord(text string) int {
	if i := strings.IndexFunc(text, asrtext.Space); i >= 0 {
		text = text[:i]
	}
	best, n := len(text), 0
	if utf8.RuneCountInString(text) <= 2 {
		return best
	}
	for i := range text {
		if n++; n <= 2 {
			continue
		}
		if _, ok := koreanWords()[text[:i]]; ok {
			best = i
		}
	}
	if _, ok := koreanWords()[text]; ok {
		best = len(text)
	}
	return best
}
