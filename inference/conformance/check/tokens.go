package check

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"touchline/inference/internal/vision"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/models/checkpoint"
)

// texts is the check of tokenizers and prompts.
type texts struct{ *checker }

// tokenizers holds the tokenizers of a folder: "tiny", of the checkpoint, and
// "real", the published one.
type tokenizers map[string]*tokenizer.Tokenizer

func (c texts) tokenizers() tokenizers {
	out := tokenizers{}
	for which, name := range map[string]string{"tiny": "checkpoint/tokenizer.json", "real": "tokenizer/real_tokenizer.json"} {
		read := c.files.bytes
		if vocab := path.Dir(name) + "/" + models.VocabName; !c.files.has(name) && c.files.has(vocab) {
			dir := path.Dir(name) // published without tokenizer.json
			name, read = vocab, func(string) ([]byte, error) {
				return checkpoint.JoinTokenizer(func(name string) ([]byte, error) { return c.files.bytes(path.Join(dir, name)) })
			}
		}
		if !c.files.has(name) {
			continue
		}
		c.row(stageTokenizer, name, 0, func(t *tally) {
			out[which] = need(tokenizer.Parse(need(read(name))))
			t.row.Cases = 1
		})
	}
	return out
}

// of returns the tokenizer of a fixture: the published one if the fixture's name
// starts with "real_", else the checkpoint's.
func (ts tokenizers) of(name string, t *tally) *tokenizer.Tokenizer {
	which, _, _ := strings.Cut(path.Base(name), "_")
	if which != "real" {
		which = "tiny"
	}
	tok := ts[which]
	if tok == nil {
		t.row.Note = "not compared: the folder lacks the " + which + " tokenizer"
	}
	return tok
}

func (c texts) tokenizer(ts tokenizers) {
	for _, name := range c.files.in("tokenizer") {
		_, kind, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".json"), "_")
		check, known := map[string]func(*tally, *tokenizer.Tokenizer, string){
			"encode": c.encode, "decode": c.decode, "stream": c.stream, "tokenizer_config": c.badTokens,
		}[kind]
		if !known {
			continue
		}
		c.row(stageTokenizer, name, 0, func(t *tally) { check(t, ts.of(name, t), name) })
	}
}

func (c texts) encode(t *tally, tok *tokenizer.Tokenizer, name string) {
	var cases []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	}
	if c.files.json(name, &cases); tok == nil {
		return
	}
	for _, tt := range cases {
		got := tok.Encode(tt.Text)
		t.exact(slices.Equal(got, tt.IDs), "%q: expected %v, got %v", tt.Text, tt.IDs, got)
	}
}

func (c texts) decode(t *tally, tok *tokenizer.Tokenizer, name string) {
	var cases []struct {
		IDs   []int32 `json:"ids"`
		Text  string  `json:"text"`
		Plain string  `json:"text_skip_special"`
	}
	if c.files.json(name, &cases); tok == nil {
		return
	}
	for _, tt := range cases {
		got, plain := tok.Decode(tt.IDs), tok.DecodePlain(tt.IDs)
		t.exact(got == tt.Text && plain == tt.Plain, "%v: expected %q and %q, got %q and %q", tt.IDs, tt.Text, tt.Plain, got, plain)
	}
}

func (c texts) stream(t *tally, tok *tokenizer.Tokenizer, name string) {
	var cases []struct {
		Chunks   [][]int32 `json:"chunks"`
		Finished []bool    `json:"finished"`
		Out      []string  `json:"out"`
	}
	if c.files.json(name, &cases); tok == nil {
		return
	}
	for _, tt := range cases {
		if len(tt.Finished) != len(tt.Chunks) {
			must(fmt.Errorf("expected as many flags as chunks, got %d for %d", len(tt.Finished), len(tt.Chunks)))
		}
		s := tok.NewStream(false)
		var out []string
		for i, ids := range tt.Chunks {
			text := s.Next(ids...)
			if tt.Finished[i] {
				text += s.End()
			}
			out = append(out, text)
		}
		t.exact(slices.Equal(out, tt.Out), "%v: expected %q, got %q", tt.Chunks, tt.Out, out)
	}
}

// badTokens checks that every id that must not be spoken exists.
func (c texts) badTokens(t *tally, tok *tokenizer.Tokenizer, name string) {
	var cfg struct {
		Bad []int32 `json:"bad_token_ids"`
	}
	if c.files.json(name, &cfg); tok == nil {
		return
	}
	for _, id := range cfg.Bad {
		t.exact(id >= 0 && int(id) < tok.Size(), "bad_token_ids: expected ids below %d, got %d", tok.Size(), id)
	}
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
	// Patches are rows and columns of the image blocks, in one list per conversation.
	Patches [][][2]int `json:"tgt_sizes"`
	Error   string     `json:"error"`
}

// messages reads the messages of a case, and the patches of their images.
func (c texts) messages(tt chatCase, cfg vision.Config) ([]tokenizer.Message, [][2]int) {
	maxSlices := 0
	if tt.Options.MaxSlices != nil {
		maxSlices = *tt.Options.MaxSlices
	}
	var out []tokenizer.Message
	var patches [][2]int
	for _, m := range tt.Messages {
		message := tokenizer.Message{Role: m.Role}
		var parts []json.RawMessage
		if json.Unmarshal(m.Content, &parts) != nil {
			parts = []json.RawMessage{m.Content}
		}
		for _, raw := range parts {
			var part tokenizer.Part
			if json.Unmarshal(raw, &part.Text) == nil {
				message.Parts = append(message.Parts, part)
				continue
			}
			var named struct {
				Image string `json:"image"`
			}
			if err := json.Unmarshal(raw, &named); err != nil {
				must(fmt.Errorf("expected a text or a picture: %w", err))
			}
			p := c.files.picture("image/" + named.Image)
			plan := need(cfg.Layout(p.w, p.h, maxSlices))
			part.Image = &tokenizer.Image{Cols: plan.Grid.Cols, Rows: plan.Grid.Rows}
			message.Parts = append(message.Parts, part)
			patches = append(patches, [2]int{plan.Overview.H / cfg.PatchSize, plan.Overview.W / cfg.PatchSize})
			for range plan.Grid.Cols * plan.Grid.Rows {
				patches = append(patches, [2]int{plan.Cell.H / cfg.PatchSize, plan.Cell.W / cfg.PatchSize})
			}
		}
		out = append(out, message)
	}
	return out, patches
}

func (c texts) prompt(ts tokenizers, cfg vision.Config, features int) {
	for _, name := range c.files.in("prompt") {
		switch {
		case strings.HasSuffix(name, "_chat.json"):
			c.row(stagePrompt, name, 0, func(t *tally) { c.chatPrompts(t, ts.of(name, t), name, cfg, features) })
		case strings.HasSuffix(name, "_pieces.json"):
			c.row(stagePrompt, name, 0, func(t *tally) { c.encode(t, ts.of(name, t), name) })
		}
	}
}

func (c texts) chatPrompts(t *tally, tok *tokenizer.Tokenizer, name string, cfg vision.Config, features int) {
	var cases []chatCase
	if c.files.json(name, &cases); tok == nil {
		return
	}
	b := need(tokenizer.NewBuilder(tok, features))
	for i, tt := range cases {
		t.where = fmt.Sprintf("case %d", i)
		messages, patches := c.messages(tt, cfg)
		p, err := b.Chat(messages, tokenizer.Options{
			ImageIDs: tt.Options.ImageID == nil || *tt.Options.ImageID,
			Thinking: tt.Options.Thinking, Speech: tt.Options.TTS, Omni: tt.Options.Omni,
		})
		must(err)
		whole := p
		if tt.Options.MaxLen > 0 {
			p, err = b.Cut(p, tt.Options.MaxLen)
		}
		if tt.Error != "" {
			t.exact(err != nil, "case %d: expected the error of the original (%s), got none", i, tt.Error)
			continue
		}
		must(err)
		bound := make([][2]int, len(p.Images))
		for j, s := range p.Images {
			bound[j] = [2]int{s.Start, s.End}
		}
		t.exact(whole.Template == tt.Template && whole.Text == tt.Prompt && slices.Equal(p.IDs, tt.IDs) &&
			slices.Equal(bound, tt.Bound) && (tt.Options.MaxLen > 0 || slices.Equal(patches, slices.Concat(tt.Patches...))),
			"case %d: expected %q as %v, got %q as %v", i, tt.Prompt, tt.IDs, whole.Text, p.IDs)
	}
}
