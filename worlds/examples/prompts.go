package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"touchline/inference/tokenizer"
)

// prompts writes the token ids of prompts, as the engine does.
type prompts struct {
	tokens  *tokenizer.Tokenizer
	builder *tokenizer.Builder
	noRules []int32 // the answer if no alert rule holds

	end, pad, imageEnd int32
}

// newPrompts reads a tokenizer. A picture has queries tokens.
func newPrompts(path string, queries int) (*prompts, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer: %w", err)
	}
	t, err := tokenizer.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer: %w", err)
	}
	b, err := tokenizer.NewBuilder(t, queries)
	if err != nil {
		return nil, err
	}
	ids, err := t.IDs("<|im_end|>", "<|endoftext|>", "</image>")
	if err != nil {
		return nil, err
	}
	return &prompts{tokens: t, builder: b, noRules: t.Encode(`{"fired":[]}`), end: ids[0], pad: ids[1], imageEnd: ids[2]}, nil
}

// write returns the ids of a prompt about a number of pictures, up to the beginning of the answer, and the position of its text. It uses
// the chat template or, with speech, the streaming one. system may be "".
func (p *prompts) write(system, text string, pictures int, speech bool) (ids []int32, begin int, err error) {
	user := slices.Repeat([]tokenizer.Part{{Image: &tokenizer.Image{}}}, pictures)
	messages := []tokenizer.Message{{Role: tokenizer.User, Parts: append(user, tokenizer.Part{Text: text})}}
	if system != "" {
		messages = slices.Insert(messages, 0, tokenizer.Message{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system}}})
	}
	prompt, err := p.builder.Chat(messages, tokenizer.Options{Speech: speech, Omni: speech})
	if err != nil {
		return nil, 0, fmt.Errorf("write a prompt: %w", err)
	}
	begin = prompt.Images[pictures-1].End + 1
	if !speech {
		begin++ // the line break after the picture
	}
	return prompt.IDs, begin, nil
}

// tail returns the ids of a prompt from the beginning of its text; they do not depend on the part before.
func (p *prompts) tail(text string, speech bool) ([]int32, error) {
	ids, begin, err := p.write("", text, 1, speech)
	if err != nil {
		return nil, err
	}
	return ids[begin:], nil
}

// lines returns the end positions, in ids, of the last n lines of a prompt's text. ids begin with the text.
func (p *prompts) lines(ids []int32, n int) []int {
	var ends []int
	for i, id := range ids[:slices.Index(ids, p.end)] {
		if bytes.ContainsRune(p.tokens.Piece(id), '\n') {
			ends = append(ends, i)
		}
	}
	return ends[len(ends)-n:]
}

// answer returns the ids of an answer with its end, and the weight of each: the first one, and the ids that say whether a rule fired,
// decide more.
func (p *prompts) answer(text string) (ids []int32, weights []int64) {
	ids = append(p.tokens.Encode(text), p.end)
	weights = slices.Repeat([]int64{1}, len(ids))
	if n := len(p.noRules) - 1; len(ids) > n && slices.Equal(ids[:n], p.noRules[:n]) {
		weights[n] = 6
	} else {
		weights[0] = 2
	}
	return ids, weights
}
