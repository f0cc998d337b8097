package minicpmo_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/tokenizer"
	"touchline/models/safetensors"
)

// TestChat compares whole answers with the official chat call, with real graphs and
// the real loop.
func TestChat(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	var cases []struct {
		Images  []string `json:"images"`
		Text    string   `json:"text"`
		Slices  int      `json:"max_slice_nums"`
		Most    int      `json:"max_new_tokens"`
		Input   []int32  `json:"input_ids"`
		Output  []int32  `json:"output_ids"`
		Stopped bool     `json:"stopped"`
	}
	golden(t, "chat_greedy.json", &cases)
	for i, c := range cases {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			var frames []inference.Frame
			for k, name := range c.Images {
				frames = append(frames, frame(t, name, time.Duration(k)))
			}
			r := minicpmo.Request{
				Prompt: chatPrompt(t, e, c.Text, c.Slices, frames), Frames: frames, Slices: c.Slices, Rules: e.ChatRules(), MaxTokens: c.Most,
			}
			require.Equal(t, c.Input, r.Prompt.IDs)
			ids, _, err := ask(t, e, r)
			require.NoError(t, err)
			want := c.Output
			if c.Stopped {
				want = want[:len(want)-1]
			}
			require.Equal(t, want, ids)
		})
	}
}

// TestStreaming compares whole conversations with the official streaming call. Each
// turn's prompt contains all earlier ones.
func TestStreaming(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	var sessions []struct {
		Slices int `json:"max_slice_nums"`
		Most   int `json:"max_new_tokens"`
		Turns  []struct {
			Images   []string  `json:"images"`
			Text     string    `json:"text"`
			Chunks   [][]int32 `json:"chunk_ids"`
			Finished []bool    `json:"chunk_finished"`
			Texts    [][]any   `json:"text_chunks"`
			Length   int       `json:"kv_length_after"`
		} `json:"turns"`
	}
	golden(t, "streaming_greedy.json", &sessions)
	for i, s := range sessions {
		talk, err := e.Builder().NewConversation(tokenizer.Options{Omni: true, Speech: true})
		require.NoError(t, err)
		var fed tokenizer.Prompt
		var frames []inference.Frame
		for k, turn := range s.Turns {
			t.Run(fmt.Sprintf("%d.%d", i, k), func(t *testing.T) {
				var shown []inference.Frame
				for n, name := range turn.Images {
					shown = append(shown, frame(t, name, time.Duration(n)))
				}
				frames = append(frames, shown...)
				p, err := talk.Prefill(tokenizer.Message{Role: tokenizer.User, Parts: parts(t, e, turn.Text, s.Slices, shown)})
				require.NoError(t, err)
				fed = minicpmo.Join(fed, p)
				p, err = talk.Generate()
				require.NoError(t, err)
				fed = minicpmo.Join(fed, p)

				ids, text, err := ask(t, e, minicpmo.Request{
					Prompt: fed, Frames: frames, Slices: s.Slices, Rules: e.SpeechRules(), Special: true,
					MaxTokens: (s.Most+9)/10*10 + 1, Chunk: voice.ChunkTokens,
				})
				require.NoError(t, err)
				var want []int32
				var wantText strings.Builder
				for c := range turn.Chunks {
					want = append(want, turn.Chunks[c]...)
					wantText.WriteString(turn.Texts[c][0].(string))
				}
				require.Equal(t, want, ids)
				// The last token of a truncated answer is neither spoken nor fed.
				if finished := turn.Finished[len(turn.Finished)-1]; finished {
					require.Equal(t, wantText.String(), text)
				} else {
					require.Equal(t, wantText.String(), e.Tokenizer().Decode(ids[:len(ids)-1]))
					ids = ids[:len(ids)-1]
				}
				fed.IDs = append(fed.IDs, ids...)
				require.Len(t, fed.IDs, turn.Length)
			})
		}
	}
}

// hiddenBound is the agreed error of a hidden state against its largest value.
const hiddenBound = 1e-4

// TestHiddenStates compares the hidden states of tokens with recorded ones.
func TestHiddenStates(t *testing.T) {
	orttest.NoLeaks(t)
	e := open(t, tiny(t), settings(t))
	packed, err := os.Open("testdata/llm_text.safetensors.gz")
	require.NoError(t, err)
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	f, err := safetensors.Parse("llm_text", raw)
	require.NoError(t, err)
	ints := func(name string) (out []int32) {
		x, ok := f.Tensor(name)
		require.True(t, ok, name)
		v, err := x.Ints()
		require.NoError(t, err)
		for _, i := range v {
			out = append(out, int32(i))
		}
		return out
	}
	x, ok := f.Tensor("greedy_hidden_first8")
	require.True(t, ok)
	want, err := x.Floats()
	require.NoError(t, err)
	largest := float32(0)
	for _, v := range want {
		largest = max(largest, v, -v)
	}
	rules := e.ChatRules()
	rules.RepetitionPenalty, rules.Stop = 1, nil
	width := len(want) / 8
	r := minicpmo.Request{Prompt: tokenizer.Prompt{IDs: ints("input_ids")}, Rules: rules, MaxTokens: 48, Hidden: true}
	greedy := ints("greedy_ids")
	n := 0
	for tok, err := range e.Answer(t.Context(), r) {
		require.NoError(t, err)
		if tok.ID < 0 {
			continue
		}
		require.Equal(t, greedy[n], tok.ID)
		require.Len(t, tok.Hidden, width)
		if n >= 1 && n <= 8 {
			require.InDeltaSlice(t, want[(n-1)*width:n*width], tok.Hidden, float64(largest)*hiddenBound, "of token %d", n-1)
		}
		n++
	}
	require.Len(t, greedy, n)
	// The last token's state comes with the stop id.
	r.Rules.Stop = []int32{greedy[10]}
	stopped := false
	for tok, err := range e.Answer(t.Context(), r) {
		require.NoError(t, err)
		if stopped = tok.Stop; stopped {
			require.NotNil(t, tok.Hidden)
			require.Empty(t, tok.Text)
		}
	}
	require.True(t, stopped)
}
