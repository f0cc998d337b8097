package check

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/sample"
	"touchline/inference/minicpmo"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// chat compares whole answers of the engine: its prompts, vision cache, step loop
// and sampler.
func (c *checker) chat(ctx context.Context, b *models.Bundle) {
	names := c.files.in("chat")
	if len(names) == 0 && !c.files.has("llm/text.safetensors") {
		return
	}
	if c.Device != models.DeviceCPU {
		for _, name := range names {
			c.row(stageChat, name, 0, func(t *tally) { c.onCPU(t, name) })
		}
		return
	}
	var e *minicpmo.Engine
	c.progress("engine")
	c.row(stageChat, "engine", 0, func(t *tally) {
		t.row.Cases = 1
		e = need(c.engine(ctx, b, floatWeights(c.Device)))
	})
	if e == nil {
		return
	}
	defer func() { _ = e.Close() }()
	for _, name := range names {
		switch {
		case strings.HasPrefix(path.Base(name), "chat_"):
			c.row(stageChat, name, 0, func(t *tally) { c.chatAnswers(ctx, t, e, name) })
		case strings.HasPrefix(path.Base(name), "streaming_"):
			c.row(stageChat, name, 0, func(t *tally) { c.conversations(ctx, t, e, name) })
		}
	}
	for _, name := range c.files.in("llm") {
		c.row(stageChat, name, 0, func(t *tally) { c.greedy(ctx, t, e, name) })
	}
}

// onCPU notes that a device skips a fixture.
func (c *checker) onCPU(t *tally, name string) {
	t.row.Note = "compared on the CPU only, because rounding changes ties"
	c.files.mark(name)
}

// engine opens the engine on a bundle. Its sampling is greedy.
func (c *checker) engine(ctx context.Context, b *models.Bundle, weights models.Weights) (*minicpmo.Engine, error) {
	return minicpmo.Open(ctx, b, minicpmo.Options{Config: c.settings(b, weights)})
}

func (c *checker) settings(b *models.Bundle, weights models.Weights) minicpmo.Settings {
	cfg := minicpmo.DefaultSettings()
	cfg.MiniCPM.Runtime, cfg.MiniCPM.Device, cfg.MiniCPM.Weights = c.Library, string(c.Device), string(weights)
	cfg.MiniCPM.Slots, cfg.MiniCPM.MaxLen, cfg.MiniCPM.Temperature = 4, min(2048, b.Manifest.Dims.Decoder.MaxPositions), 0
	cfg.MiniCPM.SuppressTokens, cfg.MiniCPM.GPU = nil, c.DeviceIndex
	cfg.MaxInputTokens = cfg.MiniCPM.MaxLen
	return cfg
}

// answer runs a request to its end.
func answer(ctx context.Context, e *minicpmo.Engine, r minicpmo.Request) (ids []int32, text string, err error) {
	for token, err := range e.Answer(ctx, r) {
		if err != nil {
			return ids, text, err
		}
		text += token.Text
		if token.ID >= 0 && !token.Stop {
			ids = append(ids, token.ID)
		}
	}
	return ids, text, nil
}

// frames reads pictures for the engine.
func (c *checker) frames(names []string) []inference.Frame {
	var out []inference.Frame
	for i, name := range names {
		p := c.files.picture("image/" + name)
		out = append(out, inference.Frame{PTS: time.Duration(i), Width: p.w, Height: p.h, Pix: p.pix})
	}
	return out
}

// parts returns a message of pictures and a text.
func parts(e *minicpmo.Engine, text string, maxSlices int, frames []inference.Frame) []tokenizer.Part {
	var out []tokenizer.Part
	for _, f := range frames {
		g := need(e.Grid(f.Width, f.Height, maxSlices))
		out = append(out, tokenizer.Part{Image: &g})
	}
	if text != "" {
		out = append(out, tokenizer.Part{Text: text})
	}
	return out
}

func (c *checker) chatAnswers(ctx context.Context, t *tally, e *minicpmo.Engine, name string) {
	var cases []struct {
		Images  []string `json:"images"`
		Text    string   `json:"text"`
		Slices  int      `json:"max_slice_nums"`
		ImageID bool     `json:"use_image_id"`
		Most    int      `json:"max_new_tokens"`
		Penalty float64  `json:"repetition_penalty"`
		Input   []int32  `json:"input_ids"`
		Output  []int32  `json:"output_ids"`
		Stopped bool     `json:"stopped"`
		Answer  string   `json:"answer"`
	}
	c.files.json(name, &cases)
	for i, tt := range cases {
		frames := c.frames(tt.Images)
		message := parts(e, tt.Text, tt.Slices, frames)
		p := need(e.Builder().Chat([]tokenizer.Message{{Role: tokenizer.User, Parts: message}}, tokenizer.Options{ImageIDs: tt.ImageID}))
		t.exact(slices.Equal(p.IDs, tt.Input), "case %d: the prompt differs", i)
		rules := e.ChatRules()
		if tt.Penalty > 0 {
			rules.RepetitionPenalty = tt.Penalty
		}
		ids, _, err := answer(ctx, e, minicpmo.Request{
			Prompt: p, Frames: frames, Slices: tt.Slices, Rules: rules, MaxTokens: tt.Most, Special: true,
		})
		must(err)
		want := tt.Output
		if tt.Stopped && len(want) > 0 {
			want = want[:len(want)-1] // the official list includes the stop token
		}
		t.exact(slices.Equal(ids, want) && (len(ids) < tt.Most) == tt.Stopped, "case %d: expected the tokens %v, got %v", i, want, ids)
		got := official(e.Tokenizer(), ids)
		t.exact(got == strings.TrimSpace(tt.Answer), "case %d: expected the answer %q, got %q", i, tt.Answer, got)
	}
}

// official returns the text of the official chat call: decoded as a whole without
// token 0, cut at the end of speech, without surrounding space.
func official(tok *tokenizer.Tokenizer, ids []int32) string {
	text := tok.Decode(slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id == 0 }))
	text, _, _ = strings.Cut(text, "<|tts_eos|>")
	return strings.TrimSpace(text)
}

// recordedTurn is a question of a recorded conversation with the official answer.
type recordedTurn struct {
	Images   []string  `json:"images"`
	Text     string    `json:"text"`
	Prompt   string    `json:"prompt"`
	Chunks   [][]int32 `json:"chunk_ids"`
	Finished []bool    `json:"chunk_finished"`
	Texts    [][]any   `json:"text_chunks"`
	Error    *string   `json:"error"`
	Length   int       `json:"kv_length_after"`
}

// answer returns the official tokens and text.
func (r recordedTurn) answer() (ids []int32, text string) {
	var b strings.Builder
	for n, chunk := range r.Chunks {
		ids = append(ids, chunk...)
		if n < len(r.Texts) && len(r.Texts[n]) > 0 {
			if s, ok := r.Texts[n][0].(string); ok {
				b.WriteString(s)
			}
		}
	}
	return ids, b.String()
}

// conversation is the state of a recorded conversation in the engine.
type conversation struct {
	talk   *tokenizer.Conversation
	slices int // max_slice_nums
	most   int // max_new_tokens
	fed    tokenizer.Prompt
	seen   []inference.Frame
}

func (c *checker) conversations(ctx context.Context, t *tally, e *minicpmo.Engine, name string) {
	var sessions []struct {
		Slices int            `json:"max_slice_nums"`
		Most   int            `json:"max_new_tokens"`
		Turns  []recordedTurn `json:"turns"`
	}
	c.files.json(name, &sessions)
	for i, s := range sessions {
		talk := need(e.Builder().NewConversation(tokenizer.Options{Omni: true, Speech: true}))
		x := &conversation{talk: talk, slices: s.Slices, most: s.Most}
		for k, turn := range s.Turns {
			c.turn(ctx, t, e, x, turn, fmt.Sprintf("session %d, turn %d", i, k))
		}
	}
}

// turn runs one question of a conversation and compares prompt, tokens, text and
// the length of the cache. what names the turn in messages.
func (c *checker) turn(ctx context.Context, t *tally, e *minicpmo.Engine, x *conversation, turn recordedTurn, what string) {
	frames := c.frames(turn.Images)
	x.seen = append(x.seen, frames...)
	message := parts(e, turn.Text, x.slices, frames)
	p := need(x.talk.Prefill(tokenizer.Message{Role: tokenizer.User, Parts: message}))
	t.exact(p.Template == turn.Prompt, "%s: expected the prompt %q, got %q", what, turn.Prompt, p.Template)
	x.fed = minicpmo.Join(x.fed, p)
	x.fed = minicpmo.Join(x.fed, need(x.talk.Generate()))
	ids, text, err := answer(ctx, e, minicpmo.Request{
		Prompt: x.fed, Frames: x.seen, Slices: x.slices, Rules: e.SpeechRules(), Special: true,
		MaxTokens: (x.most+9)/10*10 + 1, Chunk: voice.ChunkTokens,
	})
	must(err)
	if turn.Error != nil {
		// The original fails on an empty answer; this engine returns no tokens.
		t.exact(len(ids) == 0, "%s: expected no answer (the original: %s), got %v", what, *turn.Error, ids)
		return
	}
	want, wantText := turn.answer()
	finished := len(turn.Finished) > 0 && turn.Finished[len(turn.Finished)-1]
	t.exact(slices.Equal(ids, want), "%s: expected the tokens %v, got %v", what, want, ids)
	if !finished && len(ids) > 0 {
		// The last token of a truncated answer is neither spoken nor fed.
		ids = ids[:len(ids)-1]
		text = e.Tokenizer().Decode(ids)
	}
	t.exact(text == wantText, "%s: expected the text %q, got %q", what, wantText, text)
	x.fed.IDs = append(x.fed.IDs, ids...)
	t.exact(len(x.fed.IDs) == turn.Length, "%s: expected %d positions in the cache, got %d", what, turn.Length, len(x.fed.IDs))
}

// greedy runs a fixture of the language model whose prompt has no pictures. The pictures of other
// prompts are not among the fixtures.
func (c *checker) greedy(ctx context.Context, t *tally, e *minicpmo.Engine, name string) {
	f := c.tensors(name)
	ids, want := f.ids("input_ids"), f.ids("greedy_ids")
	if len(f.ints("image_bound")) > 0 {
		t.row.Note = "has pictures that are not among the fixtures: compared as embeddings only"
		return
	}
	// Several in parallel, so that they share decode steps.
	const rooms = 3
	type result struct {
		ids []int32
		err error
	}
	results := make(chan result, rooms)
	for range rooms {
		go func() {
			got, _, err := answer(ctx, e, minicpmo.Request{
				Prompt: tokenizer.Prompt{IDs: ids}, MaxTokens: len(want),
				Rules: sample.Settings{Greedy: true, Temperature: 1, TopP: 1, RepetitionPenalty: 1},
			})
			results <- result{got, err}
		}()
	}
	for range rooms {
		r := <-results
		must(r.err)
		t.exact(slices.Equal(r.ids, want), "expected the tokens %v, got %v", want, r.ids)
	}
}
