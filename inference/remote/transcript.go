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
	"touchline/inference/internal/fault"
)

// transcription is an answer, json or verbose_json.
type transcription struct {
	Text     json.RawMessage `json:"text"` // a string, or null for silence
	Language loose           `json:"language"`
	Segments lenient[struct {
		span
		Text  loose              `json:"text"`
		Words lenient[timedWord] `json:"words"` // of whisper.cpp
	}] `json:"segments"`
	Words lenient[timedWord] `json:"words"`
}

type timedWord struct {
	span
	Word string `json:"word"`
	Text string `json:"text"` // in place of Word
}

// span has the times of a segment or a word, in seconds, by the names that servers use.
type span struct {
	Start     number          `json:"start"`
	End       number          `json:"end"`
	StartTime number          `json:"start_time"`
	EndTime   number          `json:"end_time"`
	Timestamp lenient[number] `json:"timestamp"` // both
}

// times returns the span within sound of a length.
func (s span) times(length time.Duration) (start, end time.Duration) {
	both := slices.Concat(s.Timestamp, []number{0, 0})
	seconds := func(n number) time.Duration {
		return time.Duration(min(max(float64(n), 0), length.Seconds()) * float64(time.Second)).Round(time.Millisecond)
	}
	start = seconds(cmp.Or(s.Start, s.StartTime, both[0]))
	return start, max(start, seconds(cmp.Or(s.End, s.EndTime, both[1])))
}

// lenient is a list. Values of other types are empty.
type lenient[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *lenient[T]) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, (*[]T)(l)) != nil {
		*l = nil
	}
	return nil
}

// number is a number that some servers send as a string, also as 00:01:02.5. Other values are 0.
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(raw []byte) error {
	*n = 0
	sum := 0.0
	for part := range strings.SplitSeq(strings.Trim(strings.ReplaceAll(string(raw), ",", "."), `" `), ":") {
		v, err := strconv.ParseFloat(part, 64)
		if sum = 60*sum + v; err != nil || math.IsNaN(sum) || math.IsInf(sum, 0) {
			return nil // it is no number
		}
	}
	*n = number(sum)
	return nil
}

// silence matches the text of an answer without words.
var silence = regexp.MustCompile(`^(?:null|\[\s*\])$|""`)

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

// tokens matches the control tokens of Whisper and SenseVoice, and the marks and times that whisper.cpp writes into its text.
var tokens = regexp.MustCompile(`<\|[^<>|]{0,40}\|>|</?s>|\[_[A-Z]+_\d*\]|\[BLANK_AUDIO\]|(?i:[\[(] ?silence ?[\])])|` +
	`\[[\d:.,]+ --> [\d:.,]+\] *`)

// withoutMarks returns the text without the marks that some servers leave in it, and the language that those of Qwen3-ASR name.
func withoutMarks(raw string) (language, text string) {
	return asrtext.Parse(tokens.ReplaceAllString(raw, ""), "")
}

// parseTranscription reads an answer, which may be the only one of a list.
func parseTranscription(body []byte) (a transcription, err error) {
	if list := []json.RawMessage(nil); json.Unmarshal(body, &list) == nil && len(list) == 1 {
		body = list[0]
	}
	if err = json.NewDecoder(bytes.NewReader(body)).Decode(&a); err != nil {
		a = transcription{}
		err = json.Unmarshal(withoutNaN(body), &a)
	}
	return a, err
}

// readTranscription returns the parts of an answer: its segments, or the whole. length is the length of the sound. The error is
// ErrNoWordTimes for an answer with text, but without the words that were asked for.
func readTranscription(body []byte, length time.Duration, h inference.Hearing) ([]inference.Transcript, error) {
	a, err := parseTranscription(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\uFEFF")))
	var said loose
	_ = json.Unmarshal(a.Text, &said) // null for segments alone
	if err != nil || said.text == "" && len(a.Segments) == 0 && !silence.Match(a.Text) {
		return nil, fmt.Errorf(`expected JSON with "text", got %q`, fault.Shorten(string(body)))
	}
	found, text := withoutMarks(said.text)
	whole := inference.Transcript{
		Text: text, Language: cmp.Or(inference.LanguageTag(a.Language.text), inference.LanguageTag(found), h.Language), End: length, Final: true,
	}
	var parts []inference.Transcript
	nested := len(a.Words) == 0
	for _, s := range a.Segments {
		p := whole
		_, p.Text = withoutMarks(s.Text.text)
		if p.Start, p.End = s.times(length); p.Text != "" {
			parts = append(parts, p)
		}
		if nested {
			a.Words = append(a.Words, s.Words...)
		}
	}
	var words []inference.Word
	for _, v := range a.Words {
		text := cmp.Or(v.Word, v.Text)
		w := inference.Word{Text: strings.TrimSpace(text)}
		w.Start, w.End = v.times(length)
		switch n := len(words) - 1; {
		case w.Text == "":
		case nested && n >= 0 && strings.HasPrefix(a.Words[0].Word, " ") && text[0] != ' ': // the rest of a word
			words[n] = inference.Word{Text: words[n].Text + w.Text, Start: words[n].Start, End: max(words[n].End, w.End)}
		default:
			words = append(words, w)
		}
	}
	if len(parts) == 0 {
		parts = []inference.Transcript{whole}
	}
	if !h.WordTimes {
		return parts, nil
	}
	letters := func(p inference.Transcript) bool { return strings.ContainsFunc(p.Text, unicode.IsLetter) }
	if (len(words) == 0 || words[len(words)-1].End == 0) && slices.ContainsFunc(parts, letters) {
		return nil, inference.ErrNoWordTimes
	}
	share(words, parts)
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
