package agent

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"touchline/inference"
	"touchline/media/window"
)

// lengthHint sets the length of spoken comments: short when little changed.
type lengthHint string

const (
	hintMinimal lengthHint = "Say it in six words or fewer."
	hintBrief   lengthHint = "One short sentence."
	hintNormal  lengthHint = "One or two short sentences."
)

// Bounds of the hint: the mean change (0 to 255) below which a comment is minimal or
// brief, and the length below which the last comment was short.
const (
	hintMinimalBelow = 15
	hintBriefBelow   = 40
	hintShortComment = 40 // bytes: a Chinese character (3 bytes) is worth about three letters
)

func hintFor(change window.Change, last string) lengthHint {
	switch {
	case change.Mean < hintMinimalBelow:
		if last != "" && len(last) < hintShortComment {
			return hintBrief // two minimal comments in a row sound like a telegram
		}
		return hintMinimal
	case change.Mean < hintBriefBelow:
		return hintBrief
	}
	return hintNormal
}

// Look is what one prompt shows and says.
type Look struct {
	// System is the profile's prompt.
	System string
	// Instruction of the viewer; "" for none.
	Instruction string
	// Spoken: the answer is spoken.
	Spoken bool
	// Change from the last look's newest picture.
	Change window.Change
	// LastComment was said Age ago; "" before the first comment.
	LastComment string
	Age         time.Duration
	// Frames are the pictures, oldest first.
	Frames []window.Frame
}

// Prompt writes the prompt of a look for an engine.
func (l Look) Prompt(cfg inference.Config, engine inference.Capabilities) inference.Prompt {
	p := inference.Prompt{
		System: l.System, Instruction: l.Instruction, MaxTokens: cfg.MaxTokens, Speech: l.Spoken, Language: cfg.Voice.Language,
	}
	// The voice follows the engine: a speech program must not read English as Dutch.
	if !engine.Speaks(p.Language) {
		p.Language = engine.Languages[0]
	}
	var hint lengthHint
	if l.Spoken {
		p.MaxTokens = cfg.Voice.MaxTokens
		hint = hintFor(l.Change, l.LastComment)
	}
	p.Text = promptText(l.Instruction, l.LastComment, l.Age, hint)
	for _, f := range l.Frames {
		p.Frames = append(p.Frames, engineFrame(f.VideoFrame))
	}
	return p
}

// promptText returns the text of a prompt, which follows the frames.
func promptText(instruction, lastComment string, age time.Duration, hint lengthHint) string {
	var b strings.Builder
	if lastComment != "" {
		fmt.Fprintf(&b, "%.0f seconds ago you said: %q. Do not say it again; tell only what is new since then.\n",
			age.Seconds(), lastComment)
	}
	if hint != "" {
		b.WriteString(string(hint))
		b.WriteByte('\n')
	}
	if instruction != "" {
		fmt.Fprintf(&b, "Focus: %s\n", instruction)
	}
	b.WriteString("Comment on the newest picture. If nothing new happened, answer only with " + inference.Silence)
	return b.String()
}

// Rule is an alert rule in a structured look: a clause such as "a goal is scored".
type Rule struct {
	Number int
	When   string
}

// RulesText returns the text of a structured look, which follows the frames and asks which of one or more alert rules hold. The
// answer is JSON: {"fired":[{"rule":1,"reason":"..."}]}, and {"fired":[]} if none holds.
func RulesText(rules []Rule) string {
	var b strings.Builder
	b.WriteString("Rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "%d. %s\n", r.Number, r.When)
	}
	fmt.Fprintf(&b, `Which rules hold in these pictures? Answer only with JSON: {"fired":[{"rule":%d,"reason":"..."}]}`, rules[0].Number)
	return b.String()
}

// verdict is the classification of an answer so far.
type verdict uint8

const (
	undecided verdict = iota
	says              // there are words
	silent            // complete, without words
)

// speakAfter is the length, in bytes, above which an unfinished answer with a
// letter counts as words rather than "...", which a speech program must not get.
// Two Chinese characters are longer.
const speakAfter = 5

// judge decides whether an answer is speech or silence.
func judge(text string, complete bool) verdict {
	trimmed := strings.TrimSpace(text)
	words := strings.ContainsFunc(trimmed, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	switch {
	case words && (complete || len(trimmed) > speakAfter):
		return says
	case complete:
		return silent
	}
	return undecided
}
