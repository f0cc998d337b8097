package alert

import (
	"encoding/json"
	"strings"
)

// Fired is a rule whose condition holds, according to the answer to a structured look.
type Fired struct {
	Rule   int    `json:"rule"`
	Reason string `json:"reason"`
}

const (
	// maxAnswer bounds the answer that is read, in bytes.
	maxAnswer = 64 << 10
	// maxTries bounds the places where an object may begin.
	maxTries = 32
)

// ReadAnswer reads the answer to a look with the text of prompt.Look: the first JSON object with the list "fired". It
// ignores thoughts in <think>, code fences and text around the object. It returns false for any other answer.
func ReadAnswer(text string) (fired []Fired, ok bool) {
	if len(text) > maxAnswer {
		return nil, false
	}
	if end := strings.LastIndex(text, "</think>"); end >= 0 {
		text = text[end:]
	} else if begin := strings.Index(text, "<think>"); begin >= 0 {
		text = text[:begin] // the answer ended within the thoughts
	}
	for range maxTries {
		begin := strings.IndexByte(text, '{')
		if begin < 0 {
			return nil, false
		}
		text = text[begin:]
		var answer struct {
			Fired *[]Fired `json:"fired"`
		}
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&answer); err == nil && answer.Fired != nil {
			return *answer.Fired, true
		}
		text = text[1:]
	}
	return nil, false
}
