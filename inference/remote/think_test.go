package remote_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/remote"
)

// TestMarks: thoughts and control tokens of each family are not shown.
func TestMarks(t *testing.T) {
	const answer = "A red player shoots."
	for _, text := range []string{
		answer, "<think>hm</think>" + answer, "<THINK>hm\n</Think>\n\n" + answer, "<thinking>a</thinking>" + answer,
		"<think>hm</think><answer>" + answer + "</answer>", "<think>hm<answer>" + answer + "</answer>",
		"<|begin_of_box|>" + answer + "<|end_of_box|>", "◁think▷hm◁/think▷" + answer, "[THINK]hm[/THINK]" + answer,
		"<seed:think>hm</seed:think>" + answer, "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>" + answer + "<|END_RESPONSE|>",
		"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>" + answer + "<|return|>",
		"<|start|>assistant<|channel|>commentary to=x <|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>" + answer,
		"<|channel>thought\nhm<channel|>" + answer + "<turn|>", "<start_of_turn>model\n" + answer + "<end_of_turn>\n<start_of_turn>user\nmore",
		answer + "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nmore", "<|start_header_id|>assistant<|end_header_id|>\n\n" + answer,
		answer + "</s>", answer + "<|im_end|>\n<|im_start|>user\nmore", "<s>" + answer + "<｜end▁of▁sentence｜>", answer + "<|end|>",
		answer + "<|vision_end|>", "<|assistant|>" + answer + "<|endof", "<think></think>" + answer, "</think>" + answer,
		"<think>a</think>A red <think>b</think>player shoots.", "<mm:think>hm</mm:think>" + answer, "<longcat_think>hm</longcat_think>" + answer,
		`<thinking type="brief">hm</thinking>` + answer, "<scratchpad>hm</scratchpad>" + answer, "<|no_think|>" + answer,
		"<no_think>" + answer, "<no-think></no-think>" + answer, "<｜no▁think｜>" + answer, "<nova:think>hm</nova:think>" + answer,
		"<|extended_thinking|>hm<|end_extended_thinking|>" + answer, "<trend_analysis>hm</trend_analysis>" + answer,
		"<|thinking_start|>hm<|thinking_end|>" + answer,
		"<|begin_of_thought|>hm<|end_of_thought|>" + answer, "<|begin_internal_thought|>hm<|end_internal_thought|>" + answer,
	} {
		atOnce, held := remote.Visible(text)
		require.Equal(t, answer, strings.TrimSpace(atOnce), text)
		require.Equal(t, answer, strings.TrimSpace(held), text)
	}
	for _, text := range []string{
		"Okay, the user wants one sentence.</think>" + answer, "hm◁/think▷" + answer, "hm\n[/THINK]\n" + answer,
		"hm<|end|><|start|>assistant<|channel|>final<|message|>" + answer, "a</think>b</think>" + answer,
	} {
		_, held := remote.Visible(text)
		require.Equal(t, answer, strings.TrimPrefix(strings.TrimSpace(held), "b"), text)
	}
	for _, text := range []string{"1 < 2", "[see] a<b", "1 <thi", "1 <think about it", "goal [2", "<b>bold</b>", "a <|> b", "<3"} {
		atOnce, held := remote.Visible(text)
		require.Equal(t, []string{text, text}, []string{atOnce, held})
	}
}

// TestThoughtsInPieces: what is shown does not depend on how the stream is split, and never contains marked thoughts.
func TestThoughtsInPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	marks := append(remote.Marks(), "<|other|>", "<", "[", "◁", "<|", "final", "analysis")
	pairs := [][2]string{
		{"<think>", "</think>"},
		{"<thinking>", "</thinking>"},
		{"◁think▷", "◁/think▷"},
		{"[THINK]", "[/THINK]"},
		{"<seed:think>", "</seed:think>"},
		{`<reasoning effort="low">`, "</reasoning>"},
		{"<|begin_of_thought|>", "<|end_of_thought|>"},
		{"<|channel|>analysis<|message|>", "<|end|>"},
		{"<|START_THINKING|>", "<|END_THINKING|>"},
		{"<|channel>", "<channel|>"},
	}
	for range 3000 {
		var text strings.Builder
		for range random.IntN(8) {
			switch random.IntN(4) {
			case 0:
				text.WriteString(marks[random.IntN(len(marks))])
			case 1:
				pair := pairs[random.IntN(len(pairs))]
				text.WriteString(pair[0] + "SECRET é" + pair[1])
			default:
				text.WriteString([]string{"Red ", "shöots\n", " ⚽", "x"}[random.IntN(4)])
			}
		}
		_, whole := remote.Visible(text.String())
		var pieces []string
		for rest := []rune(text.String()); len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 5))
			pieces = append(pieces, string(rest[:n]))
			rest = rest[n:]
		}
		atOnce, held := remote.Visible(pieces...)
		require.Equal(t, whole, held, "%q", pieces)
		require.NotContains(t, atOnce+held, "SECRET", "%q", text.String())
	}
}
