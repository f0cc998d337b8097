package remote

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// effect is what a mark in a model's text means.
type effect uint8

const (
	drops  effect = iota // never shown
	opens                // thoughts begin
	closes               // thoughts end; without an opening mark, all text before was thoughts
	body                 // the answer begins, so thoughts end
	stops                // the message ends; another one may follow a header
	ends                 // the turn ends, if it has text
	header               // the header of a message begins: a role and a channel
	begins               // the header ends and its message begins
	calls                // a call of a tool follows
)

// mark is a control token or tag that some servers leave in the text.
type mark struct {
	text   string
	effect effect
}

// marksTable has the marks of all known families of models, without the tags that tagEffect knows. Other words between <| and |> are
// dropped as well.
var marksTable = slices.Concat( //nolint:gochecknoglobals // a table
	marksOf(opens, "◁think▷", "[THINK]", "<|inner_prefix|>", "<|channel>", "<unused94>"),
	marksOf(closes, "◁/think▷", "[/THINK]", "<|inner_suffix|>", "<channel|>", "<unused95>"),
	marksOf(body, "<answer>", "<response>", "<|START_RESPONSE|>", "<|begin_of_solution|>", "<|begin_of_box|>", "<|START_TEXT|>"),
	marksOf(drops, "</answer>", "</response>", "<s>", "<bos>", "<pad>", "<image>", "<img>", "</img>"),
	marksOf(stops, "<|end|>", "<|call|>"),
	marksOf(ends, "</s>", "<eos>", "<end_of_turn>", "<end_of_utterance>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>",
		"<|return|>", "<|end_of_text|>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<|user|>", "<|observation|>", "<｜end▁of▁sentence｜>",
		"<｜User｜>", "<turn|>", "[/INST]"),
	marksOf(header, "<|start|>", "<|channel|>", "<|start_header_id|>", "<|im_start|>", "<start_of_turn>", "<|turn>"),
	marksOf(begins, "<|message|>", "<|end_header_id|>"),
	marksOf(calls, "<tool_call>", "[TOOL_CALLS]", "<|tool_call|>", "<|tool_calls_section_begin|>", "<|python_tag|>"),
)

func marksOf(e effect, texts ...string) (out []mark) {
	for _, t := range texts {
		out = append(out, mark{t, e})
	}
	return out
}

// Words between bars, as control tokens are written, and the beginning of one.
var (
	control     = regexp.MustCompile(`^<[|｜]/?[\pL\pN_▁:.-]{1,40}[|｜]>`)
	controlPart = regexp.MustCompile(`^<[|｜](/?[\pL\pN_▁:.-]{0,40}[|｜]?)$`)
)

// Tags of thoughts, such as <think>, <seed:think> and <thinking type="x">, and the beginning of one.
var (
	tag     = regexp.MustCompile(`(?i)^</?(?:[a-z]{1,12}[:_-])?` + thoughts + `(?:\s[^<>]{0,60})?>`)
	tagPart = regexp.MustCompile(`(?i)^</?(?:[a-z]{0,12}(?:[:_-][a-z]{0,12})?|(?:[a-z]{1,12}[:_-])?` + thoughts + `\s[^<>]{0,60})$`)
)

// Such tags, in small letters, that switch thinking off, and those of its end without a slash.
var (
	negated = regexp.MustCompile(`^<[|｜]?/?no(?:\PL|think|thought|reason)`)
	ending  = regexp.MustCompile(`^<[|｜]?end|\PLend\PL`)
)

const thoughts = `(?:think|thinking|thoughts?|reason|reasoning|analysis|reflection|scratchpad)`

// tagEffect returns the effect of such a tag, or of a control token that is in no table.
func tagEffect(name string) effect {
	name = strings.ToLower(name)
	switch {
	case !strings.Contains(name, "think") && !strings.Contains(name, "thought") && !tag.MatchString(name), negated.MatchString(name):
		return drops
	case strings.Contains(name, "/"), ending.MatchString(name):
		return closes
	}
	return opens
}

// find returns the mark at the beginning of a text, and its length; part reports whether the text is the beginning of one.
func find(text string) (m mark, length int, part bool) {
	for _, m := range marksTable {
		n := min(len(m.text), len(text))
		switch {
		case !strings.EqualFold(text[:n], m.text[:n]):
		case n == len(m.text):
			return m, n, false
		default:
			part = true
		}
	}
	if part {
		return mark{}, 0, true
	}
	name := cmp.Or(control.FindString(text), tag.FindString(text))
	return mark{name, tagEffect(name)}, len(name), controlPart.MatchString(text) || tagPart.MatchString(text)
}

// thinkFilter removes thoughts and control tokens from a stream of text. The result does not depend on how the stream is split.
type thinkFilter struct {
	hold bool // text waits for a closing mark or the end of the answer
	form bool // the answer is JSON, which may quote end marks

	rest     string // may begin with a part of a mark
	text     string // visible, not returned yet
	head     string // of the present message
	inHead   bool
	thinking bool
	silent   bool // after the end of a message
	begun    bool // there is visible text; blanks before it are dropped
	reasoned bool // the answer has thoughts
	closed   bool // thoughts ended with a mark that no opening one preceded
	called   bool // the model called a tool
}

// write adds text and returns the text that can be shown.
func (f *thinkFilter) write(text string) string {
	f.rest += text
	f.scan(false)
	if f.hold {
		return ""
	}
	return f.take()
}

// flush returns the held text at the end of the answer.
func (f *thinkFilter) flush() string {
	f.scan(true)
	return f.take()
}

func (f *thinkFilter) take() string {
	out := f.text
	f.text = ""
	return out
}

// scan handles the text up to a mark that is not complete; at the end of the answer, all text.
func (f *thinkFilter) scan(end bool) {
	for f.rest != "" {
		at := strings.IndexAny(f.rest, "<[◁")
		if at != 0 {
			if at < 0 {
				at = len(f.rest)
			}
			f.add(f.rest[:at])
			f.rest = f.rest[at:]
			continue
		}
		m, n, part := find(f.rest)
		switch {
		case n > 0:
			f.rest = f.rest[n:]
			f.apply(m.effect)
		case part && !end:
			return
		case part && controlPart.MatchString(f.rest): // cut off inside a control token
			f.rest = ""
		default:
			_, n = utf8.DecodeRuneInString(f.rest)
			f.add(f.rest[:n])
			f.rest = f.rest[n:]
		}
	}
}

// add adds text between marks to the header, the answer, or nothing.
func (f *thinkFilter) add(text string) {
	if f.inHead {
		line, after, found := strings.Cut(text, "\n")
		f.head += line
		if !found {
			return
		}
		f.begin()
		text = after
	}
	if f.thinking || f.silent {
		return
	}
	if !f.begun {
		text = strings.TrimLeft(text, " \t\r\n")
		f.begun = text != ""
	}
	f.text += text
}

// apply handles a mark.
func (f *thinkFilter) apply(e effect) {
	switch e {
	case opens:
		f.thinking, f.reasoned, f.inHead = true, true, false
	case closes:
		if !f.thinking {
			f.unmarked()
		}
		f.thinking = false
	case body:
		f.thinking = false
	case stops:
		f.thinking, f.silent = false, f.silent || f.begun
	case ends:
		f.silent = f.silent || f.begun && !f.thinking && !f.form
	case header:
		f.inHead, f.thinking = true, false
	case begins:
		f.begin()
	case calls:
		f.silent, f.called = true, true
	case drops:
	}
}

// unmarked handles the end of thoughts that no mark opened: the text so far was thoughts. A second such end is none.
func (f *thinkFilter) unmarked() {
	if f.closed {
		return
	}
	f.closed, f.reasoned = true, true
	f.text, f.hold, f.begun, f.silent = "", false, false, false
}

// begin begins a message after its header. The channel final follows the thoughts of the channels analysis and commentary.
func (f *thinkFilter) begin() {
	head := strings.ToLower(f.head)
	f.inHead, f.head = false, ""
	switch {
	case strings.Contains(head, "final"):
		if f.begun {
			f.unmarked()
		}
		f.thinking, f.silent = false, false
	case strings.Contains(head, "analysis"), strings.Contains(head, "commentary"), strings.Contains(head, "thought"):
		f.thinking, f.reasoned = true, true
	case f.begun: // another turn
		f.silent = true
	}
}
