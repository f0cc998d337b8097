package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"touchline/inference"
)

// Role is the speaker of a Message.
type Role string

// The roles of the chat template.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Image is a picture in a prompt: an overview and, if it is sliced, Cols x Rows
// cells.
type Image struct{ Cols, Rows int }

// Blocks returns the picture's number of images for the vision tower.
func (m Image) Blocks() int { return 1 + m.Cols*m.Rows }

// Part is one piece of a message: a picture, or text if Image is nil.
type Part struct {
	Text  string
	Image *Image
	// Literal marks user text, in which control tokens are plain text.
	Literal bool
}

// Message is one message of a conversation.
type Message struct {
	Role  Role
	Parts []Part
}

// Options select the form of a prompt.
type Options struct {
	ImageIDs bool // number the pictures
	Thinking bool // leave the thinking block to the model instead of writing an empty one
	Speech   bool // open the answer with <|tts_bos|>
	Omni     bool // join a message's parts without line breaks
	MaxLen   int  // longest prompt in tokens; 0 means no limit
}

// Span is a half-open range [Start, End).
type Span struct{ Start, End int }

// Prompt is the input of the model.
type Prompt struct {
	Template string  // with one marker per picture
	Text     string  // with the placeholders of the pictures
	IDs      []int32 // of Text
	Images   []Span  // positions in IDs for the embeddings of the image blocks, in order
}

// ErrReserved is returned when a text contains the markup of a picture.
var ErrReserved = errors.New("text contains image markup")

// ErrCutImage is returned by Cut when the cut goes through an image block.
var ErrCutImage = errors.New("the cut goes through an image")

const (
	imageMarker   = "<image>./</image>"
	literalMarker = "\x00literal\x00"

	nameUnknown = "<unk>"
	nameStart   = "<|im_start|>"
	nameEnd     = "<|im_end|>"
	nameListen  = "<|listen|>"
	nameTTSBOS  = "<|tts_bos|>"
	nameTTSEOS  = "<|tts_eos|>"
	emptyThink  = "<think>\n\n</think>\n\n"
)

// Builder builds the prompts of one tokenizer. Safe for concurrent use.
type Builder struct {
	t        *Tokenizer
	features int    // positions of an image block
	slots    string // the placeholders of an image block

	image, imageEnd, slice, sliceEnd, listen int32
}

// NewBuilder returns a Builder. It fails if the tokenizer lacks a special token of the prompts. features is the number of embeddings of one
// image block (image_feature_size, 64 as published).
func NewBuilder(t *Tokenizer, features int) (*Builder, error) {
	if features < 1 || features > 4096 {
		return nil, fmt.Errorf("image_feature_size: must be between 1 and 4096, is %d", features)
	}
	ids, err := t.IDs("<image>", "</image>", "<slice>", "</slice>", nameUnknown,
		nameStart, nameEnd, "<image_id>", "</image_id>", "<think>", "</think>")
	if err != nil {
		return nil, err
	}
	b := &Builder{
		t: t, features: features, slots: strings.Repeat(nameUnknown, features),
		image: ids[0], imageEnd: ids[1], slice: ids[2], sliceEnd: ids[3], listen: -1,
	}
	if id, ok := t.ID(nameListen); ok {
		b.listen = id
	}
	return b, nil
}

// Chat builds the prompt of a whole conversation, up to the start of the answer.
func (b *Builder) Chat(messages []Message, o Options) (Prompt, error) {
	if len(messages) == 0 {
		return Prompt{}, errors.New("expected at least one message")
	}
	if err := b.check(o); err != nil {
		return Prompt{}, err
	}
	text, marked, err := b.template(messages, o)
	if err != nil {
		return Prompt{}, err
	}
	return b.fill(text+answer(o), marked, o)
}

// check checks that the tokenizer has the speech tokens if they are needed.
func (b *Builder) check(o Options) error {
	if o.Speech {
		_, err := b.t.IDs(nameTTSBOS, nameTTSEOS)
		return err
	}
	return nil
}

// answer opens the model's turn.
func answer(o Options) string {
	s := nameStart + string(Assistant) + "\n"
	if !o.Thinking {
		s += emptyThink
	}
	if o.Speech {
		s += nameTTSBOS
	}
	return s
}

// content returns the text of a message with a marker for each picture and each
// literal text, and these parts in order.
func content(m Message, o Options) (text string, marked []Part, err error) {
	parts := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		switch {
		case p.Image == nil && p.Literal:
			parts[i] = literalMarker
			marked = append(marked, p)
		case p.Image == nil:
			parts[i] = p.Text
		case p.Image.Cols < 0 || p.Image.Rows < 0 || (p.Image.Cols == 0) != (p.Image.Rows == 0) ||
			p.Image.Cols > 1<<10 || p.Image.Rows > 1<<10:
			return "", nil, fmt.Errorf("expected a picture's grid, got %dx%d", p.Image.Cols, p.Image.Rows)
		default:
			parts[i] = imageMarker
			marked = append(marked, p)
		}
	}
	between := "\n"
	if o.Omni {
		between = ""
	}
	return strings.Join(parts, between), marked, nil
}

// template writes the messages as turns. It drops the reasoning of answers
// before the last question.
func (b *Builder) template(messages []Message, o Options) (string, []Part, error) {
	texts := make([]string, len(messages))
	var marked []Part
	question := len(messages) - 1
	for i, m := range messages {
		text, more, err := content(m, o)
		if err != nil {
			return "", nil, fmt.Errorf("message %d: %w", i, err)
		}
		texts[i] = text
		marked = append(marked, more...)
	}
	for i := range slices.Backward(messages) {
		toolAnswer := strings.HasPrefix(texts[i], "<tool_response>") && strings.HasSuffix(texts[i], "</tool_response>")
		if messages[i].Role == User && !toolAnswer {
			question = i
			break
		}
	}
	var out strings.Builder
	for i, m := range messages {
		text := texts[i]
		switch m.Role {
		case System, User:
		case Assistant:
			thought, answer := thinking(text)
			text = answer
			last := i == len(messages)-1
			if i > question && (last || thought != "") {
				text = "<think>\n" + strings.Trim(thought, "\n") + "\n</think>\n\n" + strings.TrimLeft(answer, "\n")
			}
		default:
			return "", nil, fmt.Errorf("message %d: expected role system, user or assistant, got %q", i, m.Role)
		}
		out.WriteString(nameStart + string(m.Role) + "\n" + text + nameEnd + "\n")
	}
	return out.String(), marked, nil
}

// thinking separates the reasoning of an answer from its text.
func thinking(text string) (thought, answer string) {
	first := strings.Index(text, "</think>")
	if first < 0 {
		return "", text
	}
	last := strings.LastIndex(text, "</think>")
	thought = strings.TrimRight(text[:first], "\n")
	if i := strings.LastIndex(thought, "<think>"); i >= 0 {
		thought = thought[i+len("<think>"):]
	}
	return strings.TrimLeft(thought, "\n"), strings.TrimLeft(text[last+len("</think>"):], "\n")
}

// fill inserts the placeholders and the literal texts, tokenises the text and
// finds the image blocks.
func (b *Builder) fill(template string, marked []Part, o Options) (Prompt, error) {
	p := Prompt{Template: template}
	images := 0
	for _, m := range marked {
		if m.Image != nil {
			images++
		}
	}
	if n := strings.Count(template, imageMarker); n != images {
		return p, fmt.Errorf("%w: expected %d markers %q, found %d", ErrReserved, images, imageMarker, n)
	}
	if n := strings.Count(template, literalMarker); n != len(marked)-images {
		return p, fmt.Errorf("%w: expected %d markers %q, found %d", ErrReserved, len(marked)-images, literalMarker, n)
	}
	f := filler{b: b, o: o, normal: len(marked) > images}
	rest := template
	for _, m := range marked {
		marker := literalMarker
		if m.Image != nil {
			marker = imageMarker
		}
		before, after, _ := strings.Cut(rest, marker)
		rest = after
		f.template.WriteString(before)
		f.text(before)
		if m.Image == nil {
			f.literal(m.Text)
			continue
		}
		f.template.WriteString(marker)
		if err := f.image(*m.Image); err != nil {
			return p, err
		}
	}
	f.template.WriteString(rest)
	f.text(rest)
	p.Template, p.Text = f.template.String(), f.out.String()
	p.IDs = make([]int32, 0, f.blocks*(b.features+2)+len(template)/2)
	if len(f.literals) > 0 {
		p.IDs = b.t.appendLiteral(p.IDs, p.Text, f.literals)
	} else {
		p.IDs = b.t.AppendEncode(p.IDs, p.Text)
	}
	if b.listen >= 0 {
		p.IDs = slices.DeleteFunc(p.IDs, func(id int32) bool { return id == b.listen })
	}
	if o.MaxLen > 0 && len(p.IDs) > o.MaxLen {
		return p, &inference.TooLongError{Tokens: len(p.IDs), Max: o.MaxLen}
	}
	spans, ok := b.spans(p.IDs)
	if !ok || len(spans) != f.blocks {
		return p, fmt.Errorf("%w: expected %d image blocks, found %d marks", ErrReserved, f.blocks, len(spans))
	}
	for _, s := range spans {
		if s.End-s.Start != b.features {
			return p, fmt.Errorf("%w: expected %d positions in an image block, found %d", ErrReserved, b.features, s.End-s.Start)
		}
	}
	p.Images = spans
	return p, nil
}

// filler writes the text of a prompt piece by piece.
type filler struct {
	b             *Builder
	o             Options
	template, out strings.Builder
	images        int
	blocks        int
	literals      []Span // of bytes of out
	normal        bool   // write normalised text, for the byte positions of literals
}

func (f *filler) text(s string) {
	if f.normal {
		s = f.b.t.normalize(s)
	}
	f.out.WriteString(s)
}

func (f *filler) literal(s string) {
	f.template.WriteString(s)
	from := f.out.Len()
	f.text(s)
	f.literals = append(f.literals, Span{from, f.out.Len()})
}

func (f *filler) image(m Image) error {
	f.blocks += m.Blocks() // of features positions and two marks each
	if n := f.blocks * (f.b.features + 2); f.o.MaxLen > 0 && n > f.o.MaxLen {
		return &inference.TooLongError{Tokens: n, Max: f.o.MaxLen}
	}
	if f.o.ImageIDs {
		f.out.WriteString("<image_id>" + strconv.Itoa(f.images) + "</image_id>")
	}
	f.images++
	f.out.WriteString("<image>" + f.b.slots + "</image>")
	for y := range m.Rows {
		if y > 0 {
			f.out.WriteByte('\n')
		}
		for range m.Cols {
			f.out.WriteString("<slice>" + f.b.slots + "</slice>")
		}
	}
	return nil
}

// spans pairs the marks of image blocks in order; ok is false if they do not
// match.
func (b *Builder) spans(ids []int32) (spans []Span, ok bool) {
	ends := 0
	for i, id := range ids {
		switch id {
		case b.image, b.slice:
			spans = append(spans, Span{Start: i + 1, End: -1})
		case b.imageEnd, b.sliceEnd:
			if ends == len(spans) {
				return spans, false
			}
			spans[ends].End = i
			ends++
		}
	}
	return spans, ends == len(spans)
}

// Cut keeps the first n tokens, as the original does with long prompts, for
// comparisons with it. It cuts off the instruction at the end.
func (b *Builder) Cut(p Prompt, n int) (Prompt, error) {
	if n >= len(p.IDs) {
		return p, nil
	}
	p.IDs = p.IDs[:max(n, 0)]
	spans, ok := b.spans(p.IDs)
	if !ok {
		return p, fmt.Errorf("cut to %d tokens: %w", n, ErrCutImage)
	}
	p.Images = spans
	return p, nil
}

// Conversation builds the prompts of a streaming conversation, in which each
// message is tokenised separately. ImageIDs and MaxLen of its Options apply to
// each message; the original sets Omni.
type Conversation struct {
	b         *Builder
	o         Options
	started   bool
	newTurn   bool
	generated bool
}

// NewConversation starts a conversation.
func (b *Builder) NewConversation(o Options) (*Conversation, error) {
	if err := b.check(o); err != nil {
		return nil, err
	}
	if _, err := b.t.IDs(nameTTSEOS); err != nil {
		return nil, err
	}
	return &Conversation{b: b, o: o, newTurn: true}, nil
}

// Prefill builds the input for one message. Messages of one turn follow each
// other without marks; Generate ends the turn.
func (c *Conversation) Prefill(m Message) (Prompt, error) {
	text, marked, err := content(m, c.o)
	if err != nil {
		return Prompt{}, err
	}
	next := *c
	switch {
	case m.Role != System && m.Role != User && m.Role != Assistant:
		return Prompt{}, fmt.Errorf("expected role system, user or assistant, got %q", m.Role)
	case m.Role != User && !c.started:
		if text, marked, err = c.b.template([]Message{m}, c.o); err != nil {
			return Prompt{}, err
		}
		next.newTurn = true
	case m.Role != User:
		next.newTurn = true
	case !c.started || c.newTurn && !c.generated:
		text = nameStart + string(User) + "\n" + text
		next.newTurn = false
	case c.newTurn:
		// Here the original marks each previous answer as interrupted.
		text = nameTTSEOS + nameEnd + "\n" + nameStart + string(User) + "\n" + text
		next.newTurn = false
	}
	next.started = true
	p, err := c.b.fill(text, marked, c.o)
	if err != nil {
		return p, err
	}
	*c = next
	return p, nil
}

// Generate builds the input for the answer: the end of the turn and the start of the model's turn.
func (c *Conversation) Generate() (Prompt, error) {
	p, err := c.b.fill(nameEnd+"\n"+answer(c.o), nil, c.o)
	if err != nil {
		return p, err
	}
	c.newTurn, c.generated = true, true
	return p, nil
}
