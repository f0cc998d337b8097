package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"touchline/inference"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/schema"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
)

// Request is the input of one answer. A Session makes requests from prompts; the
// conformance check makes its own.
type Request struct {
	// Prompt of a tokenizer.Builder. Its image spans belong to Frames, in
	// order, each cut by Engine.Grid.
	Prompt tokenizer.Prompt
	Frames []inference.Frame
	// Slices is the maximum number of cells of a picture; 0 means the engine's setting.
	Slices int
	// Source identifies the source of the frames in the cache; 0 does not cache them.
	Source uint64
	// Rules are the sampling rules, including the ids that end the answer.
	Rules sample.Settings
	// MaxTokens limits the answer, as does the room in the cache.
	MaxTokens int
	// Seed of the random numbers: equal requests with equal seeds get equal answers.
	Seed uint64
	// Chunk is the number of tokens in a chunk of the speech path, whose first chunk
	// has one more; 0 for the chat path.
	Chunk int
	// Hidden requests the decoder's states with the tokens.
	Hidden bool
	// Schema is the JSON schema of the answer, for which Rules then set only the ids
	// that end it; nil for none.
	Schema []byte
	// Urgent takes the answer before the others that wait for a slot, also when the queue is full.
	Urgent bool
	// Forced, if not nil, are the ids of the answer instead of sampled ones: for the states of a given text. Where
	// the bundle's decoder can return several states of a run, they are read like a prompt.
	Forced []int32
	// Special keeps special tokens in the text.
	Special bool
	// Report, if not nil, receives the timing at the end of the answer.
	Report func(Report)
}

// Token is one step of an answer.
type Token = voice.Token

// errNothingFed is returned for a prompt without tokens.
var errNothingFed = errors.New("expected a prompt of at least one token, has none")

// Answer runs a request through the step loop. It refuses a prompt that is too long
// and a picture that cannot be embedded before any work of the device. Leaving the
// sequence cancels the answer within one token.
func (e *Engine) Answer(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		c, err := e.start(ctx, r)
		if err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		defer e.loop.Cancel(c)
		text := e.tokens.NewStream(!r.Special)
		for {
			s, ok, ended, err := c.out.Take()
			switch {
			case ok:
				t := Token{ID: s.id, Hidden: s.hidden, Stop: c.stops(s.id)}
				if !t.Stop {
					t.Text = text.Next(s.id)
				}
				if !yield(t, nil) {
					return
				}
			case ended:
				rest := text.End()
				if rest != "" && !yield(Token{ID: -1, Text: rest}, nil) {
					return
				}
				if r.Report != nil {
					r.Report(c.report)
				}
				if err != nil {
					yield(Token{ID: -1}, err)
				}
				return
			default:
				select {
				case <-c.out.Wake():
				case <-ctx.Done():
					yield(Token{ID: -1}, ctx.Err())
					return
				}
			}
		}
	}
}

// start checks a request and submits it to the loop.
func (e *Engine) start(ctx context.Context, r Request) (*cycle, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := e.now()
	most := e.loop.Layout().MaxLen
	n := len(r.Prompt.IDs)
	switch {
	case n == 0:
		return nil, errNothingFed
	case n >= most:
		return nil, &inference.TooLongError{Tokens: n, Max: most - 1}
	case r.Forced != nil && len(r.Rules.Stop) == 0:
		return nil, errors.New("expected an id that ends the given answer")
	case r.MaxTokens < 1:
		return nil, fmt.Errorf("expected an answer of at least one token, is %d", r.MaxTokens)
	}
	if err := r.Rules.Validate(e.loop.Vocab()); err != nil {
		return nil, fmt.Errorf("expected rules to draw by: %w", err)
	}
	c := &cycle{
		Answer: step.Answer{Settings: r.Rules, Seed: r.Seed, Most: min(r.MaxTokens, most-n+1), Chunk: r.Chunk, Forced: r.Forced},
		prompt: prompt{ids: r.Prompt.IDs, spans: r.Prompt.Images}, hidden: r.Hidden, urgent: r.Urgent, arrived: now,
	}
	if err := e.constrain(c, r.Schema); err != nil {
		return nil, err
	}
	if err := e.addPictures(c, r); err != nil {
		c.release()
		return nil, err
	}
	c.report.Prompt, c.report.Pictures = n, len(r.Frames)
	if e.loop.shape.several && r.Hidden && len(r.Forced) > 0 {
		c.given = min(len(r.Forced), r.MaxTokens, most-n)
		c.whole = c.given == len(r.Forced) && c.given < c.Most
		c.prompt.ids = slices.Concat(r.Prompt.IDs, r.Forced[:c.given])
	}
	c.out.Init(c.Most + 1) // with the id that ends the answer
	if r.Hidden {
		c.hiddens = make([]float32, 0, (c.Most+1)*e.hiddenSize)
	}
	if err := e.loop.submit(c); err != nil {
		c.release()
		return nil, err
	}
	// Not earlier, so that no picture is prepared for a refused answer.
	for _, p := range c.pictures {
		if !p.claimed.Load() {
			select {
			case e.workers.urgent <- p:
			case <-ctx.Done():
				e.loop.Cancel(c)
				return nil, ctx.Err()
			case <-e.Ended():
				return nil, ErrClosed
			}
		}
	}
	e.loop.Wake() // pictures may have become wanted
	return c, nil
}

// constrain limits an answer to a JSON schema, if there is one.
func (e *Engine) constrain(c *cycle, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	s, err := schema.Parse(text)
	if err != nil {
		return err
	}
	// The slot is full before the shortest answer closes: a shorter prompt helps, more tokens do not.
	if n, most := len(c.prompt.ids), e.loop.Layout().MaxLen+1; s.Shortest() > most-n {
		return &inference.TooLongError{Tokens: n, Max: max(most-s.Shortest(), 0)}
	}
	vocabulary, err := e.vocabulary()
	if err != nil {
		return err
	}
	constraint, err := vocabulary.Constrain(s, c.Most)
	if err != nil {
		return err
	}
	c.Settings.Constraint, c.Settings.Forbidden = constraint, nil
	return nil
}

// addPictures adds the pictures of a request, from the cache or to be embedded.
func (e *Engine) addPictures(c *cycle, r Request) error {
	if len(r.Frames) > 0 && !e.sees {
		return ErrNoVision
	}
	for i, f := range r.Frames {
		p, fresh, err := e.picture(r.Source, f, r.Slices, true)
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
		if fresh {
			e.stats.count(func(s *Stats) { s.Misses++ })
		} else {
			e.stats.count(func(s *Stats) { s.Hits++ })
			c.report.Cached++
		}
		c.pictures = append(c.pictures, p)
		c.prompt.images = append(c.prompt.images, p.images...)
	}
	if len(c.prompt.images) != len(c.prompt.spans) {
		return fmt.Errorf("expected a prompt with places for %d images, has %d", len(c.prompt.images), len(c.prompt.spans))
	}
	at := 0
	for i, s := range c.prompt.spans {
		if s.Start < at || s.End < s.Start || s.End > len(c.prompt.ids) || s.End-s.Start != e.features {
			return fmt.Errorf("expected place %d for an image to be of %d tokens after %d, is [%d,%d)", i, e.features, at, s.Start, s.End)
		}
		at = s.End
	}
	return nil
}

// cells returns the most cells of a picture, of which a prompt asks for a number; 0 means the engine's setting.
func (e *Engine) cells(asked int) int {
	if e.uncut {
		return 1
	}
	return cmp.Or(asked, e.slices)
}

// key returns the key of a frame in the cache.
func (e *Engine) key(source uint64, f inference.Frame, cells int) pictureKey {
	return pictureKey{source, f.PTS, f.Epoch, f.Width, f.Height, e.cells(cells)}
}

// picture returns a frame's picture from the cache, which adds missing ones. want
// is set for an answer, and not for a frame that no prompt has shown yet.
func (e *Engine) picture(source uint64, f inference.Frame, cells int, want bool) (p *picture, fresh bool, err error) {
	key := e.key(source, f, cells)
	fill := func() (*picture, error) {
		p, err := newPicture(e.vision, key, f, e.maxSide)
		if err == nil {
			p.early = !want
		}
		return p, err
	}
	return e.cache.get(key, want, fill)
}

// Grid returns the grid of a picture of that size, for the prompt, with at most
// the given cells; 0 means the engine's setting.
func (e *Engine) Grid(width, height, cells int) (tokenizer.Image, error) {
	l, err := e.vision.Layout(width, height, e.cells(cells))
	if err != nil {
		return tokenizer.Image{}, &ImageError{Width: width, Height: height, Err: err}
	}
	return tokenizer.Image{Cols: l.Grid.Cols, Rows: l.Grid.Rows}, nil
}

// ChatRules returns the rules of the official chat call with the engine's settings.
func (e *Engine) ChatRules() sample.Settings { return e.chat }

// SpeechRules returns the rules of the official streaming call, whose text is
// spoken, with the engine's settings.
func (e *Engine) SpeechRules() sample.Settings { return e.speech }
