package agent

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"touchline/inference"
	"touchline/media/window"
)

// lengthHint tells a speaking engine how much to say: little when little
// changed.
type lengthHint string

const (
	hintMinimal lengthHint = "Say it in six words or fewer."
	hintBrief   lengthHint = "One short sentence."
	hintNormal  lengthHint = "One or two short sentences."
)

// Bounds of the hint: mean change (0 to 255) below which there is little or
// not much to say, and the length under which the last comment was short.
const (
	hintMinimalBelow = 15
	hintBriefBelow   = 40
	hintShortComment = 40 // bytes: a Chinese character says as much as three letters
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

// promptText puts together what goes with the frames.
func promptText(order, carry string, carryAge time.Duration, hint lengthHint) string {
	var b strings.Builder
	if carry != "" {
		fmt.Fprintf(&b, "%.0f seconds ago you said: %q. Do not say it again; tell only what is new since then.\n",
			carryAge.Seconds(), carry)
	}
	if hint != "" {
		b.WriteString(string(hint))
		b.WriteByte('\n')
	}
	if order != "" {
		fmt.Fprintf(&b, "Focus: %s\n", order)
	}
	b.WriteString("Comment on the newest picture. If nothing new happened, answer only with " + inference.Silence)
	return b.String()
}

// verdict says what is known about an answer so far.
type verdict uint8

const (
	undecided verdict = iota
	says              // there are words
	silent            // complete, and nothing but dots
)

// speakAfter is the length, in bytes, above which an unfinished answer with a
// letter in it counts as more than "...": a speech program babbles on dots. Two
// Chinese characters are enough.
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
