package qwen3asr

import (
	"slices"

	"touchline/inference/internal/asrtext"
	"touchline/inference/tokenizer"
)

// marks are the ids of the tokens that frame a prompt.
type marks struct{ start, end, audioStart, audioPad, audioEnd int32 }

// prompter writes prompts. Safe for concurrent use.
type prompter struct {
	tokens *tokenizer.Tokenizer
	marks
	between, user []int32 // after the context, and before the answer
}

func newPrompter(t *tokenizer.Tokenizer) (*prompter, error) {
	ids, err := t.IDs("<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>", asrtext.Mark)
	if err != nil {
		return nil, err
	}
	p := &prompter{tokens: t, marks: marks{ids[0], ids[1], ids[2], ids[3], ids[4]}}
	line := t.Encode("\n")
	p.between = slices.Concat([]int32{p.end}, line, []int32{p.start}, t.Encode("user\n"), []int32{p.audioStart})
	p.user = slices.Concat([]int32{p.audioEnd, p.end}, line, []int32{p.start})
	return p, nil
}

// prompt is a prompt with a place for rows of sound.
type prompt struct {
	ids  []int32
	from int // the first row of sound
	rows int
}

// prompt returns the prompt for sound of a number of rows. Text in the context that looks like a token is plain text. Of a context with
// more than most tokens, the last ones are used, because recent words help most. language is the model's name, or "" if the model detects
// the language. prefix is the beginning of the answer, as the model wrote it.
func (p *prompter) prompt(context string, most int, language, prefix string, rows int) prompt {
	const system = "system\n"
	t := p.tokens
	head := t.EncodeLiteral(system + context)
	if n := len(t.Encode(system)); len(head)-n > most {
		head = append(t.Encode(system), head[len(head)-most:]...)
	}
	out := prompt{rows: rows}
	out.ids = slices.Concat([]int32{p.start}, head, p.between)
	out.from = len(out.ids)
	for range rows {
		out.ids = append(out.ids, p.audioPad)
	}
	out.ids = append(out.ids, p.user...)
	answer := "assistant\n"
	if language != "" {
		answer += "language " + language + asrtext.Mark
	}
	// An answer has no special tokens, so text that looks like one does not become one now.
	out.ids = append(out.ids, slices.DeleteFunc(t.Encode(answer+prefix), t.Special)...)
	return out
}
