package remote

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// event holds the relevant fields of one event of the stream, or of an answer without streaming.
type event struct {
	Choices []struct {
		Index        number `json:"index"`
		Delta        words  `json:"delta"`
		Message      words  `json:"message"`
		Text         loose  `json:"text"`
		FinishReason loose  `json:"finish_reason"`
	} `json:"choices"`
	// Fields of Ollama's own API. In the errors of other servers, the message is a text.
	Message    words `json:"message"`
	Response   loose `json:"response"`
	Done       truth `json:"done"`
	DoneReason loose `json:"done_reason"`

	Error  json.RawMessage `json:"error"`
	Object loose           `json:"object"`
	Type   loose           `json:"type"`

	// Gateways put the answer into one of these.
	Data   json.RawMessage `json:"data"`
	Result json.RawMessage `json:"result"`
}

// failed reports whether the event is an error.
func (e event) failed() bool {
	switch string(e.Error) {
	case "", "null", `""`, `"null"`, `"none"`, "false", "0", "{}", "[]":
		return e.Object.text == "error" || e.Type.text == "error"
	}
	return true
}

// foreign reports whether the event has no field of an answer.
func (e event) foreign() bool {
	return e.Choices == nil && !bool(e.Done) && e.Response == loose{} && e.Message.Content == loose{}
}

// unwrapped returns the answer inside an event of a gateway, else the event.
func (e event) unwrapped() event {
	for _, raw := range []json.RawMessage{e.Data, e.Result} {
		var inner event
		if e.foreign() && json.Unmarshal(raw, &inner) == nil && !inner.foreign() {
			return inner
		}
	}
	return e
}

// truth is a boolean that some servers send as a text or a number.
type truth bool

// UnmarshalJSON implements json.Unmarshaler.
func (t *truth) UnmarshalJSON(raw []byte) error {
	*t = truth(slices.Contains([]string{"true", "1"}, strings.ToLower(strings.Trim(string(raw), `"`))))
	return nil
}

// words is the text of one step. Servers use several names for reasoning, some of them two at once.
type words struct {
	Content          loose           `json:"content"`
	Reasoning        loose           `json:"reasoning"`
	ReasoningContent loose           `json:"reasoning_content"`
	ReasoningDetails loose           `json:"reasoning_details"`
	Thinking         loose           `json:"thinking"`
	Refusal          loose           `json:"refusal"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

// UnmarshalJSON implements json.Unmarshaler. A value that is no object has no words.
func (w *words) UnmarshalJSON(raw []byte) error {
	type fields words
	if raw[0] != '{' {
		return nil
	}
	return json.Unmarshal(raw, (*fields)(w))
}

// take returns the text of an event, its thoughts, and the reason of the answer's end if this was the last one.
func (a *answer) take(e event) (text, thoughts, reason string) {
	add := func(w words) {
		text += w.Content.text
		thoughts += w.Content.thought +
			cmp.Or(w.Reasoning.all(), w.ReasoningContent.all(), w.Thinking.all(), w.ReasoningDetails.all())
		a.refusal += w.Refusal.all()
		a.filter.called = a.filter.called || len(w.ToolCalls) > len("null")
	}
	add(e.Message)
	add(words{Content: e.Response})
	if e.Done {
		reason = cmp.Or(e.DoneReason.text, "stop")
	}
	if len(e.Choices) > 0 {
		c := e.Choices[0]
		if a.choice == nil {
			a.choice = &c.Index
		}
		if *a.choice == 0 && c.Index != 0 { // another answer, which was not asked for; a first index above 0 counts tokens
			return "", "", ""
		}
		add(c.Delta)
		add(words{Content: c.Text})
		if a.received == 0 && text+thoughts == "" { // A message beside or after deltas repeats their text.
			add(c.Message)
		}
		if reason = c.FinishReason.text; reason == "null" {
			reason = ""
		}
	}
	// Half a character is no text.
	return strings.ReplaceAll(text, "\uFFFD", ""), thoughts, reason
}

// loose is a text that servers send as a string, an object, a list of both, or null.
type loose struct {
	text    string
	thought string // of parts that are thoughts
}

// all returns the text and the thoughts.
func (l loose) all() string { return l.text + l.thought }

// UnmarshalJSON implements json.Unmarshaler. Values of other types are no text.
func (l *loose) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, &l.text)
	case '[':
		var parts []loose
		if err := json.Unmarshal(raw, &parts); err != nil {
			return err
		}
		for _, p := range parts {
			l.text += p.text
			l.thought += p.thought
		}
	case '{':
		var p struct {
			Type                               string
			Text, Content, Thinking, Reasoning loose
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		l.text, l.thought = p.Text.text+p.Content.text, p.Text.thought+p.Content.thought+p.Thinking.all()+p.Reasoning.all()
		if strings.Contains(p.Type, "think") || strings.Contains(p.Type, "reason") {
			l.text, l.thought = "", l.all()
		}
	}
	return nil
}

// innerCode returns the HTTP status that an error inside an answer names, else 500.
func innerCode(raw []byte) int {
	var e struct {
		Code  any
		Error struct{ Code any }
	}
	if json.Unmarshal(raw, &e) == nil {
		for _, code := range []any{e.Code, e.Error.Code} {
			if n, ok := code.(float64); ok && n >= http.StatusBadRequest && n < 600 {
				return int(n)
			}
		}
	}
	return http.StatusInternalServerError
}

// Halves of a character at the end and at the beginning of a JSON string.
var (
	highEnd  = regexp.MustCompile(`[^\\](\\u[dD][89abAB][0-9a-fA-F]{2})"`)
	lowStart = regexp.MustCompile(`"\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
)

// joinSurrogates joins the halves of a character that two events share. It returns the event, and the first half of the next one.
func joinSurrogates(text, high string) (joined, rest string) {
	if at := lowStart.FindStringIndex(text); high != "" && at != nil {
		text = text[:at[0]+1] + high + text[at[0]+1:]
	}
	if at := highEnd.FindStringSubmatchIndex(text); at != nil {
		return text[:at[2]] + text[at[3]:], text[at[2]:at[3]]
	}
	return text, ""
}
