package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"touchline/inference"
	"touchline/inference/internal/sample"
	"touchline/inference/tokenizer"
)

// Request is one answer as the model sees it. A Session makes them from
// prompts; the conformance check and the bench make their own.
type Request struct {
	// Prompt as a tokenizer.Builder wrote it. Its image spans are those of
	// Frames, in order, each cut as Engine.Grid says.
	Prompt tokenizer.Prompt
	Frames []inference.Frame
	// Slices is how many cells a picture is cut into at most; 0 is the engine's setting.
	Slices int
	// Source names whose frames these are, for the cache; 0 keeps them out of it.
	Source uint64
	// Rules of the draws, with the ids that end the answer.
	Rules sample.Settings
	// MaxTokens caps the answer; it is less where the cache has no room for so many.
	MaxTokens int
	// Seed of the random numbers: the same request with the same seed gets the same answer.
	Seed uint64
	// Chunk counts the tokens of a chunk of the speech path, whose first has
	// one more; 0 for the chat path.
	Chunk int
	// Hidden asks for the decoder's states with the tokens.
	Hidden bool
	// Special keeps special tokens in the text.
	Special bool
	// Report, if not nil, is told where the time went when the answer has ended.
	Report func(Report)
}

// Token is one step of an answer.
type Token struct {
	// ID that was chosen; one of the Rules' Stop at the end, if Hidden was asked for.
	ID   int32
	Stop bool
	// Text that it completes. Characters whose bytes are not complete yet come
	// with a later token, at the latest with an empty one (ID -1) at the end.
	Text string
	// Hidden is the state after the final norm of the token before this one,
	// or of the prompt's end for the first; nil unless asked for.
	Hidden []float32
}

// errNothingFed is returned for a prompt without tokens.
var errNothingFed = errors.New("expected a prompt of at least one token, has none")

// Answer runs a request through the step loop. A prompt that is too long, or a
// picture that cannot be used, is refused before the device is asked anything.
// Breaking out of the sequence cancels it within one token.
func (e *Engine) Answer(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		c, err := e.start(ctx, r)
		if err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		defer func() { // Harmless if it has ended.
			c.cancelled.Store(true)
			e.loop.inbox.wake.Set()
		}()
		text := e.tokens.NewStream(!r.Special)
		for {
			id, hidden, ok, ended, err := c.out.take()
			switch {
			case ok:
				t := Token{ID: id, Hidden: hidden, Stop: c.stops(id)}
				if !t.Stop {
					t.Text = text.Next(id)
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
				case <-c.out.wake:
				case <-ctx.Done():
					yield(Token{ID: -1}, ctx.Err())
					return
				}
			}
		}
	}
}

// start checks a request and hands it to the loop.
func (e *Engine) start(ctx context.Context, r Request) (*cycle, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := e.now()
	most := e.loop.shape.layout.MaxLen
	n := len(r.Prompt.IDs)
	switch {
	case n == 0:
		return nil, errNothingFed
	case n >= most:
		return nil, &tokenizer.TooLongError{Tokens: n, Max: most - 1}
	case r.MaxTokens < 1:
		return nil, fmt.Errorf("expected an answer of at least one token, is %d", r.MaxTokens)
	}
	if err := r.Rules.Validate(e.loop.shape.vocab); err != nil {
		return nil, fmt.Errorf("expected rules to draw by: %w", err)
	}
	c := &cycle{
		prompt:   prompt{ids: r.Prompt.IDs, spans: r.Prompt.Images},
		settings: r.Rules, seed: r.Seed, most: min(r.MaxTokens, most-n+1),
		chunk: r.Chunk, hidden: r.Hidden, arrived: now,
	}
	if err := e.look(c, r); err != nil {
		c.letGo()
		return nil, err
	}
	c.report.Prompt, c.report.Pictures = n, len(r.Frames)
	width, room := 0, c.most
	if r.Hidden {
		width, room = e.hiddenSize, c.most+1
	}
	c.out.init(room, width)
	if err := e.loop.submit(c, e.queue); err != nil {
		c.letGo()
		return nil, err
	}
	// Only now, so that nothing is prepared for an answer that is refused.
	for _, p := range c.pictures {
		if !p.claimed.Load() {
			select {
			case e.workers.urgent <- p:
			case <-ctx.Done():
				c.cancelled.Store(true)
				e.loop.inbox.wake.Set()
				return nil, ctx.Err()
			case <-e.done:
				return nil, ErrClosed
			}
		}
	}
	e.loop.inbox.wake.Set() // A picture may have become a wanted one.
	return c, nil
}

// look finds or makes the pictures of a request.
func (e *Engine) look(c *cycle, r Request) error {
	if len(r.Frames) > 0 && !e.sees {
		return ErrNoVision
	}
	for i, f := range r.Frames {
		p, fresh, err := e.picture(r.Source, f, r.Slices, true)
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
		if fresh {
			e.stats.misses.Add(1)
		} else {
			e.stats.hits.Add(1)
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

// picture finds a frame in the cache or puts it there. It is wanted by an
// answer, or else early: nobody has asked about it yet.
func (e *Engine) picture(source uint64, f inference.Frame, cells int, want bool) (p *picture, fresh bool, err error) {
	if cells == 0 {
		cells = e.slices
	}
	key := pictureKey{source, inferenceTime{int64(f.PTS), f.Epoch}, f.Width, f.Height, cells}
	fill := func() (*picture, error) {
		p, err := newPicture(e.vision, key, f, e.maxSide)
		if err == nil {
			p.early = !want
		}
		return p, err
	}
	return e.cache.get(key, want, fill)
}

// Grid is how a picture of that size is cut, for the prompt; 0 slices means
// the engine's setting.
func (e *Engine) Grid(width, height, cells int) (tokenizer.Image, error) {
	if cells == 0 {
		cells = e.slices
	}
	l, err := e.vision.Layout(width, height, cells)
	if err != nil {
		return tokenizer.Image{}, &ImageError{Width: width, Height: height, Err: err}
	}
	return tokenizer.Image{Cols: l.Grid.Cols, Rows: l.Grid.Rows}, nil
}

// ChatRules are those of the official chat call with the engine's settings.
func (e *Engine) ChatRules() sample.Settings { return e.chat }

// SpeechRules are those of the official streaming call with the engine's
// settings: its text is meant to be spoken.
func (e *Engine) SpeechRules() sample.Settings { return e.speech }

// SpeechChunk is the tokens of a chunk of the official streaming call.
const SpeechChunk = 10
