package qwen3asr

import (
	"time"

	"touchline/inference"
	"touchline/inference/tokenizer"
)

// Parts of the engine without a graph.
var (
	Parse          = parse
	FixRepetitions = fixRepetitions
	NormalName     = normalName
	LanguageName   = languageName
	LanguageTag    = languageTag
	Repair         = repair
	AlignPrompt    = alignPrompt
)

// PromptIDs returns the ids of a prompt.
func PromptIDs(t *tokenizer.Tokenizer, context string, most int, language, prefix string, rows int) ([]int32, int, error) {
	p, err := newPrompter(t)
	if err != nil {
		return nil, 0, err
	}
	out := p.prompt(context, most, language, prefix, rows)
	return out.ids, out.from, nil
}

// AlignWords returns the words of a text and what of it each is shown as.
func AlignWords(text, language string) (words []string, shown []inference.Word, prompt string) {
	ws := alignWords(text, language)
	for _, w := range ws {
		words = append(words, w.text)
	}
	return words, timed(text, ws, make([]int32, 2*len(ws)), time.Millisecond), alignPrompt(ws)
}

// Timed returns the words of a text with the times of classes.
func Timed(text, language string, classes []int32, segment time.Duration) []inference.Word {
	return timed(text, alignWords(text, language), classes, segment)
}

// Follower is the state machine of live speech.
type Follower = follower

// NewFollower returns one at its start.
func NewFollower(t *tokenizer.Tokenizer, freeChunks, freeTokens int) *Follower {
	return &follower{tokens: t, freeChunks: freeChunks, freeTokens: freeTokens}
}

// Step hears n new chunks.
func (f *Follower) Step(n int, last bool, generate func(prefix string) (string, error)) error {
	return f.step(n, last, generate)
}

// Raw is the last answer.
func (f *Follower) Raw() string { return f.raw }
