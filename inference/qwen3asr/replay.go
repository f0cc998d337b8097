package qwen3asr

import (
	"encoding/json"
	"errors"
	"slices"

	"touchline/inference/internal/asrtext"
)

// Same is called once per recorded case; equal reports whether the result matches.
type Same func(equal bool, format string, args ...any)

// ReplayAnswers compares the reading of raw answers, the repair of repetitions and the names of languages with recorded results of the
// official package.
func ReplayAnswers(raw []byte, same Same) error {
	var want struct {
		Parse []struct {
			Raw, Forced    string
			Language, Text string
		}
		Normalize   []struct{ Input, Output string } `json:"normalize_language"`
		Repetitions []struct{ Input, Output string }
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		return err
	}
	for _, tt := range want.Parse {
		language, text := asrtext.Parse(tt.Raw, tt.Forced)
		same(text == tt.Text && language == tt.Language, "%q: expected %q in %q, got %q in %q", tt.Raw, tt.Text, tt.Language, text, language)
	}
	for _, tt := range want.Normalize {
		got := asrtext.LanguageName(tt.Input)
		same(got == tt.Output, "language %q: expected %q, got %q", tt.Input, tt.Output, got)
	}
	for _, tt := range want.Repetitions {
		got := asrtext.FixRepetitions(tt.Input)
		same(got == tt.Output, "repetitions in %q: expected %q, got %q", tt.Input, tt.Output, got)
	}
	return nil
}

// ReplayWords compares the words of texts for the aligner, and the repair of their times.
func ReplayWords(raw []byte, same Same) error {
	var want struct {
		Words []struct {
			Language, Text, Prompt string
			Words                  []string
		}
		Fix []struct{ MS, Fixed []float64 } `json:"fix_timestamp"`
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		return err
	}
	const sound = "<|audio_start|><|audio_pad|><|audio_end|>"
	for _, tt := range want.Words {
		words := alignWords(tt.Text, tt.Language)
		got := make([]string, len(words))
		for i, w := range words {
			got[i] = w.text
		}
		equal := slices.Equal(got, tt.Words)
		if len(tt.Words) > 0 { // else the original has slots without a word, and fails
			equal = equal && sound+alignPrompt(words) == tt.Prompt
		}
		same(equal, "%q: expected the words %q, got %q", tt.Text, tt.Words, got)
	}
	for i, tt := range want.Fix {
		got := slices.Clone(tt.MS)
		repair(got)
		for k := range got {
			got[k] = float64(int(got[k]))
		}
		same(slices.Equal(got, tt.Fixed), "times %d: expected %v, got %v", i, tt.Fixed, got)
	}
	if len(want.Words) == 0 {
		return errors.New("expected texts with their words, found none")
	}
	return nil
}
