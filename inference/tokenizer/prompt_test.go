package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"touchline/inference"
	"touchline/inference/tokenizer"
)

// gridOf returns the grid of a picture, whose name contains its size, by the rule
// of package vision.
func gridOf(t *testing.T, image string, slices int) *tokenizer.Image {
	t.Helper()
	var w, h int
	_, err := fmt.Sscanf(image, "%dx%d.png", &w, &h)
	require.NoError(t, err)
	want := min(int(math.Ceil(float64(w*h)/(448*448))), slices)
	if want <= 1 {
		return &tokenizer.Image{}
	}
	best, shape := tokenizer.Image{Cols: 1, Rows: 1}, math.Inf(1)
	for n := max(want-1, 2); n <= min(want+1, slices); n++ {
		for cols := 1; cols <= n; cols++ {
			if d := math.Abs(math.Log(float64(w)/float64(h)) - math.Log(float64(cols*cols)/float64(n))); n%cols == 0 && d < shape {
				best, shape = tokenizer.Image{Cols: cols, Rows: n / cols}, d
			}
		}
	}
	return &best
}

type chatCase struct {
	Messages []struct {
		Role    tokenizer.Role  `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Options struct {
		MaxSlices *int  `json:"max_slice_nums"`
		ImageID   *bool `json:"use_image_id"`
		Thinking  bool  `json:"enable_thinking"`
		TTS       bool  `json:"use_tts_template"`
		Omni      bool  `json:"omni_mode"`
		MaxLen    int   `json:"max_inp_length"`
	} `json:"options"`
	Template string   `json:"template"`
	Prompt   string   `json:"prompt"`
	IDs      []int32  `json:"ids"`
	Bound    [][2]int `json:"image_bound"`
	Error    string   `json:"error"`
}

func (c chatCase) messages(t *testing.T) []tokenizer.Message {
	t.Helper()
	slices := 9
	if c.Options.MaxSlices != nil {
		slices = *c.Options.MaxSlices
	}
	var out []tokenizer.Message
	for _, m := range c.Messages {
		message := tokenizer.Message{Role: m.Role}
		var parts []json.RawMessage
		if json.Unmarshal(m.Content, &parts) != nil {
			parts = []json.RawMessage{m.Content}
		}
		for _, raw := range parts {
			var part tokenizer.Part
			var picture struct {
				Image string `json:"image"`
			}
			if json.Unmarshal(raw, &part.Text) != nil {
				require.NoError(t, json.Unmarshal(raw, &picture))
				part.Image = gridOf(t, picture.Image, slices)
			}
			message.Parts = append(message.Parts, part)
		}
		out = append(out, message)
	}
	return out
}

func TestChat(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		b, err := tokenizer.NewBuilder(tok, 64)
		require.NoError(t, err)
		var cases []chatCase
		golden(t, which+"_chat.json.gz", &cases)
		require.Len(t, cases, 57)
		for i, tt := range cases {
			o := tokenizer.Options{
				ImageIDs: tt.Options.ImageID == nil || *tt.Options.ImageID,
				Thinking: tt.Options.Thinking, Speech: tt.Options.TTS, Omni: tt.Options.Omni,
			}
			p, err := b.Chat(tt.messages(t), o)
			require.NoError(t, err, "case %d", i)
			require.Equal(t, tt.Template, p.Template, "case %d", i)
			require.Equal(t, tt.Prompt, p.Text, "case %d", i)
			if tt.Options.MaxLen > 0 {
				p, err = b.Cut(p, tt.Options.MaxLen)
			}
			if tt.Error != "" {
				require.ErrorIs(t, err, tokenizer.ErrCutImage, "case %d", i)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, tt.IDs, p.IDs, "case %d", i)
			require.Len(t, p.Images, len(tt.Bound))
			for j, s := range p.Images {
				bound := [2]int{s.Start, s.End}
				require.Equal(t, tt.Bound[j], bound, "case %d", i)
			}
		}
	})
}

func TestPieces(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		var pieces []struct {
			Text string  `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		golden(t, which+"_pieces.json", &pieces)
		b, err := tokenizer.NewBuilder(tok, 64)
		require.NoError(t, err)
		generate := func(o tokenizer.Options) tokenizer.Prompt {
			c, err := b.NewConversation(o)
			require.NoError(t, err)
			p, err := c.Generate()
			require.NoError(t, err)
			return p
		}
		for i, o := range []tokenizer.Options{{Speech: true}, {}, {Speech: true, Thinking: true}} {
			p := generate(o)
			require.Equal(t, pieces[i].Text, p.Text)
			require.Equal(t, pieces[i].IDs, p.IDs)
		}
		for _, p := range pieces {
			require.Equal(t, p.IDs, tok.Encode(p.Text))
		}
	})
}

func TestConversation(t *testing.T) {
	tok := load(t, "tiny")
	b, err := tokenizer.NewBuilder(tok, 64)
	require.NoError(t, err)
	var sessions []struct {
		Turns []struct {
			Images []string `json:"images"`
			Text   string   `json:"text"`
			Prompt string   `json:"prompt"`
		} `json:"turns"`
	}
	golden(t, "streaming_greedy.json", &sessions)
	require.NotEmpty(t, sessions)
	for _, s := range sessions {
		c, err := b.NewConversation(tokenizer.Options{Omni: true, Speech: true})
		require.NoError(t, err)
		for _, turn := range s.Turns {
			m := tokenizer.Message{Role: tokenizer.User}
			for range turn.Images {
				m.Parts = append(m.Parts, tokenizer.Part{Image: &tokenizer.Image{}})
			}
			m.Parts = append(m.Parts, tokenizer.Part{Text: turn.Text})
			p, err := c.Prefill(m)
			require.NoError(t, err)
			require.Equal(t, turn.Prompt, p.Template)
			require.Len(t, p.Images, len(turn.Images))
			_, err = c.Generate()
			require.NoError(t, err)
		}
	}
}

func say(role tokenizer.Role, texts ...string) tokenizer.Message {
	m := tokenizer.Message{Role: role}
	for _, s := range texts {
		m.Parts = append(m.Parts, tokenizer.Part{Text: s})
	}
	return m
}

func TestConversationTurns(t *testing.T) {
	b, err := tokenizer.NewBuilder(load(t, "tiny"), 64)
	require.NoError(t, err)
	c, err := b.NewConversation(tokenizer.Options{Omni: true})
	require.NoError(t, err)
	steps := []struct {
		m    tokenizer.Message
		want string
	}{
		{say("system", "Be brief."), "<|im_start|>system\nBe brief.<|im_end|>\n"},
		{say("user", "a", "b"), "<|im_start|>user\nab"},
		{say("user", "c"), "c"},
		{say("", ""), "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
		{say("user", "d"), "<|tts_eos|><|im_end|>\n<|im_start|>user\nd"},
		{say("assistant", "e"), "e"},
		{say("user", "f"), "<|tts_eos|><|im_end|>\n<|im_start|>user\nf"},
	}
	for i, tt := range steps {
		var p tokenizer.Prompt
		if tt.m.Role == "" {
			p, err = c.Generate()
		} else {
			p, err = c.Prefill(tt.m)
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, p.Text, "step %d", i)
	}
	_, err = c.Prefill(say("tool", "x"))
	require.ErrorContains(t, err, `expected role system, user or assistant, got "tool"`)
}

func TestTemplateKeepsTheLastThought(t *testing.T) {
	b, err := tokenizer.NewBuilder(load(t, "tiny"), 64)
	require.NoError(t, err)
	p, err := b.Chat([]tokenizer.Message{
		say("user", "q"), say("assistant", "<think>\nold\n</think>\n\nsaid"), say("user", "r"),
		say("assistant", "<think>\nnew\n</think>\n\nmore"),
	}, tokenizer.Options{})
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nsaid<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"+
		"<|im_start|>assistant\n<think>\nnew\n</think>\n\nmore<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", p.Text)
}

func TestRefusedPrompts(t *testing.T) {
	tok := load(t, "tiny")
	b, err := tokenizer.NewBuilder(tok, 64)
	require.NoError(t, err)
	picture := tokenizer.Part{Image: &tokenizer.Image{Cols: 2, Rows: 1}}
	long := tokenizer.Message{Role: "user", Parts: []tokenizer.Part{picture, picture, {Text: "What now?"}}}

	p, err := b.Chat([]tokenizer.Message{long}, tokenizer.Options{})
	require.NoError(t, err)
	_, err = b.Chat([]tokenizer.Message{long}, tokenizer.Options{MaxLen: len(p.IDs)})
	require.NoError(t, err)
	for _, limit := range []int{len(p.IDs) - 1, 200, 1} {
		_, err = b.Chat([]tokenizer.Message{long}, tokenizer.Options{MaxLen: limit})
		var tooLong *inference.TooLongError
		require.ErrorAs(t, err, &tooLong)
		require.Equal(t, limit, tooLong.Max)
		require.Greater(t, tooLong.Tokens, limit)
	}

	for _, text := range []string{"<image>./</image>", "<image>", "</image>", "a <slice> b", "</slice><slice>", "<image></image>"} {
		_, err = b.Chat([]tokenizer.Message{say("user", text)}, tokenizer.Options{})
		require.ErrorIs(t, err, tokenizer.ErrReserved, text)
	}
	_, err = b.Chat(nil, tokenizer.Options{})
	require.ErrorContains(t, err, "expected at least one message")
	_, err = b.Chat([]tokenizer.Message{say("robot", "x")}, tokenizer.Options{})
	require.ErrorContains(t, err, `message 0: expected role system, user or assistant, got "robot"`)
	bad := tokenizer.Message{Role: "user", Parts: []tokenizer.Part{{Image: &tokenizer.Image{Cols: 2}}}}
	_, err = b.Chat([]tokenizer.Message{bad}, tokenizer.Options{})
	require.ErrorContains(t, err, "message 0: expected a picture's grid, got 2x0")

	_, err = b.Cut(p, 80)
	require.ErrorIs(t, err, tokenizer.ErrCutImage)
	short, err := b.Cut(p, p.Images[0].End+1)
	require.NoError(t, err)
	require.Len(t, short.Images, 1)

	_, err = tokenizer.NewBuilder(tok, 0)
	require.ErrorContains(t, err, "image_feature_size: must be between 1 and 4096, is 0")
	file := strings.ReplaceAll(string(read(t, "tiny_tokenizer.json.gz")), `"<slice>"`, `"<slize>"`)
	other, err := tokenizer.Parse([]byte(file))
	require.NoError(t, err)
	_, err = tokenizer.NewBuilder(other, 64)
	require.ErrorContains(t, err, `expected tokens ["<slice>"]`)
}

func FuzzChat(f *testing.F) {
	b, err := tokenizer.NewBuilder(load(f, "tiny"), 8)
	require.NoError(f, err)
	f.Add("Hello", 2, 1, 100)
	f.Add("<image>./</image>", 0, 0, 0)
	f.Add("</think><think>", -1, 3, 5)
	f.Fuzz(func(t *testing.T, text string, cols, rows, limit int) {
		p, err := b.Chat([]tokenizer.Message{
			say("assistant", text),
			{Role: "user", Parts: []tokenizer.Part{{Image: &tokenizer.Image{Cols: cols, Rows: rows}}, {Text: text}}},
		}, tokenizer.Options{ImageIDs: true, MaxLen: min(limit, 5000)%5000 + 1})
		if err == nil && len(p.Images) != 1+cols*rows {
			t.Fatalf("%d blocks for %dx%d", len(p.Images), cols, rows)
		}
	})
}

func BenchmarkChat(b *testing.B) {
	build, err := tokenizer.NewBuilder(load(b, "real"), 64)
	require.NoError(b, err)
	m := say("user", sample)
	for range 4 {
		m.Parts = append(m.Parts, tokenizer.Part{Image: &tokenizer.Image{}})
	}
	n := 0
	for b.Loop() {
		p, err := build.Chat([]tokenizer.Message{say("system", sample), m}, tokenizer.Options{})
		if err != nil {
			b.Fatal(err)
		}
		n = len(p.IDs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/token")
}

// TestLiteralText: user text contains no markup. The ids are those of the official tokenizer without its added
// tokens.
func TestLiteralText(t *testing.T) {
	both(t, func(t *testing.T, which string, tok *tokenizer.Tokenizer) {
		t.Helper()
		b, err := tokenizer.NewBuilder(tok, 64)
		require.NoError(t, err)
		var cases []struct {
			Text string  `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		golden(t, which+"_literal.json", &cases)
		require.Len(t, cases, 13)
		picture := &tokenizer.Image{Cols: 2, Rows: 1}
		around := func(between string) tokenizer.Prompt {
			p, err := b.Chat([]tokenizer.Message{
				{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: "comment"}}},
				{Role: tokenizer.User, Parts: []tokenizer.Part{{Image: picture}, {Text: between}}},
			}, tokenizer.Options{})
			require.NoError(t, err)
			return p
		}
		mark := tok.Encode("|") // one token in place of the text
		require.Len(t, mark, 1)
		plain := around("|").IDs
		for _, tt := range cases {
			p, err := b.Chat([]tokenizer.Message{
				{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: "comment"}}},
				{Role: tokenizer.User, Parts: []tokenizer.Part{{Image: picture}, {Text: tt.Text, Literal: true}}},
			}, tokenizer.Options{})
			require.NoError(t, err, tt.Text)
			require.Len(t, p.Images, 3, tt.Text)
			at := slices.Index(plain[p.Images[2].End:], mark[0]) + p.Images[2].End
			require.Contains(t, tok.Decode(p.IDs), norm.NFC.String(tt.Text))
			want := slices.Concat(plain[:at], tt.IDs, plain[at+1:])
			require.Equal(t, tok.Decode(want), tok.Decode(p.IDs), tt.Text)
			require.Equal(t, want, p.IDs, tt.Text)

			talk, err := b.NewConversation(tokenizer.Options{Omni: true, Speech: true})
			require.NoError(t, err)
			fed, err := talk.Prefill(tokenizer.Message{Role: tokenizer.User, Parts: []tokenizer.Part{{Text: tt.Text, Literal: true}}})
			require.NoError(t, err)
			require.Equal(t, slices.Concat(tok.Encode("<|im_start|>user\n"), tt.IDs), fed.IDs, tt.Text)
		}
	})
}
