package remote

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"touchline/inference"
	"touchline/inference/internal/asrtext"
)

// transcription is an answer, json or verbose_json.
type transcription struct {
	Text     *string `json:"text"`
	Language string  `json:"language"`
	Segments []struct {
		Start number `json:"start"`
		End   number `json:"end"`
		Text  string `json:"text"`
	} `json:"segments"`
	Words []struct {
		Word  string `json:"word"`
		Start number `json:"start"`
		End   number `json:"end"`
	} `json:"words"`
}

// number is a number that some servers send as a string. Other values are 0.
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(raw []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(raw), `" `), 64)
	if *n = number(v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		*n = 0
	}
	return nil
}

// python matches strings, and values outside them that Python writes and JSON does not have.
var python = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)`)

// withoutNaN replaces such values by null.
func withoutNaN(body []byte) []byte {
	return python.ReplaceAllFunc(body, func(b []byte) []byte {
		if b[0] == '"' {
			return b
		}
		return []byte("null")
	})
}

// readTranscription returns the parts of an answer: its segments, or the whole. length is the length of the sound.
func readTranscription(body []byte, length time.Duration, h inference.Hearing) ([]inference.Transcript, error) {
	var a transcription
	body = bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\uFEFF"))
	err := json.Unmarshal(body, &a)
	if err != nil {
		a = transcription{}
		err = json.Unmarshal(withoutNaN(body), &a)
	}
	if err != nil || a.Text == nil {
		return nil, fmt.Errorf(`expected JSON with "text", got %q`, shorten(string(body)))
	}
	seconds := func(s number) time.Duration {
		return time.Duration(min(max(float64(s), 0), length.Seconds()) * float64(time.Second)).Round(time.Millisecond)
	}
	found, text := asrtext.Parse(*a.Text, "") // servers of Qwen3-ASR leave its marks in the text
	whole := inference.Transcript{
		Text: text, Language: cmp.Or(inference.LanguageTag(a.Language), inference.LanguageTag(found), h.Language), End: length, Final: true,
	}
	var words []inference.Word
	for _, v := range a.Words {
		w := inference.Word{Text: strings.TrimSpace(v.Word), Start: seconds(v.Start)}
		if w.End = max(w.Start, seconds(v.End)); w.Text != "" {
			words = append(words, w)
		}
	}
	var parts []inference.Transcript
	for _, s := range a.Segments {
		p := whole
		_, p.Text = asrtext.Parse(s.Text, "")
		p.Start = seconds(s.Start)
		if p.End = max(p.Start, seconds(s.End)); p.Text != "" {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		parts = []inference.Transcript{whole}
	}
	if h.WordTimes {
		share(words, parts)
	}
	return parts, nil
}

// share assigns each word to the part that contains its middle, and adds the adjacent punctuation of the text.
func share(words []inference.Word, parts []inference.Transcript) {
	for i := range parts {
		n := len(words)
		if i+1 < len(parts) {
			n = 0
			for n < len(words) && (words[n].Start+words[n].End)/2 < parts[i+1].Start {
				n++
			}
		}
		parts[i].Words, words = slices.Clone(words[:n]), words[n:]
		punctuate(parts[i].Text, parts[i].Words)
	}
}

// punctuate adds punctuation from a text to its words: up to a space it belongs to the previous word, after it to the next one. Words
// that are not in the text do not change.
func punctuate(text string, words []inference.Word) {
	last := -1 // the word found last
	for i := range words {
		at := strings.Index(text, words[i].Text)
		if at < 0 {
			continue
		}
		before, behind := marks(text[:at])
		if last >= 0 {
			words[last].Text += before
		} else {
			behind = before + behind
		}
		text, last = text[at+len(words[i].Text):], i
		words[i].Text = behind + words[i].Text
	}
	if before, behind := marks(text); last >= 0 {
		words[last].Text += before + behind
	}
}

// marks returns the punctuation before and after the spaces of a text without letters or digits; "" for any other text.
func marks(text string) (before, behind string) {
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
		return "", ""
	}
	space := strings.IndexFunc(text, unicode.IsSpace)
	if space < 0 {
		return text, ""
	}
	return text[:space], strings.Join(strings.Fields(text[space:]), "")
}
