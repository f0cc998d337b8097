package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the formats of pictures
	_ "image/png"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"touchline/agent/bot"
	"touchline/agent/events"
	"touchline/inference"
)

// askCmd asks the configured engine a question about pictures.
type askCmd struct {
	Args   []string `arg:"" name:"image... question" help:"PNG or JPEG files, the oldest first, then the question."`
	JSON   bool     `help:"Print one JSON object, with the exact requests and raw answers." name:"json"`
	Repeat int      `help:"Cycles: ask so many times, each with the whole work for the pictures." default:"1" placeholder:"N"`

	modelFlags
}

// asked is the result, as --json prints it.
type asked struct {
	Engine   string         `json:"engine"`
	Question string         `json:"question"`
	Pictures []askedPicture `json:"pictures"`
	LoadSec  float64        `json:"load_sec"`
	Cycles   []askedCycle   `json:"cycles"`
}

// askedPicture is a picture as the engine receives it.
type askedPicture struct {
	Path   string `json:"path"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	frame  inference.Frame
}

// askedCycle is one answer.
type askedCycle struct {
	Answer string `json:"answer"`
	// FirstWordSec and CycleSec count from the question. Rate is tokens per second after the first, 0 for an answer of one token.
	FirstWordSec float64 `json:"first_word_sec"`
	CycleSec     float64 `json:"cycle_sec"`
	Tokens       int     `json:"tokens"` // text chunks, where the engine streams tokens
	Rate         float64 `json:"tokens_per_sec"`

	Exchanges []inference.Exchange `json:"exchanges"`
}

// Run loads the engine, asks it and prints the answer as it arrives, then the figures.
func (c *askCmd) Run(ctx context.Context, a *app) error {
	cfg := a.cfg
	if err := c.modelFlags.apply(&cfg); err != nil {
		return err
	}
	out, err := c.prepare(cfg.Media.LongSide)
	if err != nil {
		return err
	}
	engine, err := bot.NewEngine(cfg.Bot(), a.log)
	if err != nil {
		return err
	}
	if !engine.Capabilities().Instructions {
		return fmt.Errorf("the %s engine reads no questions; set inference.engine to remote, nano or minicpmo, or name a model with --model",
			engine.Name())
	}
	return with(ctx, engine, func(ctx context.Context) error {
		return c.ask(ctx, engine, cfg.Inference.Config, out, os.Stdout)
	})
}

// with runs an engine until f returns, and returns the first error of both.
func with(ctx context.Context, engine *bot.Engine, f func(ctx context.Context) error) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := engine.Run(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer done()
		return f(ctx)
	})
	return g.Wait()
}

// prepare reads the arguments.
func (c *askCmd) prepare(longSide int) (*asked, error) {
	n := len(c.Args) - 1
	switch {
	case n < 1:
		return nil, errors.New(`expected one or more pictures and then a question, such as: touchline ask frame.png "What happens?"`)
	case strings.TrimSpace(c.Args[n]) == "":
		return nil, errors.New("the question, which is the last argument, is empty")
	case c.Repeat < 1 || c.Repeat > 1000:
		return nil, fmt.Errorf("--repeat %d: must be between 1 and 1000", c.Repeat)
	}
	if _, err := os.Stat(c.Args[n]); err == nil {
		return nil, fmt.Errorf("expected a question as the last argument, got the file %s", c.Args[n])
	}
	out := &asked{Question: strings.TrimSpace(c.Args[n])}
	for i, path := range c.Args[:n] {
		f, err := readPicture(path, longSide)
		if err != nil {
			return nil, err
		}
		f.PTS = time.Duration(i) * time.Second
		out.Pictures = append(out.Pictures, askedPicture{path, f.Width, f.Height, f})
	}
	return out, nil
}

// Bounds of a picture file.
const (
	maxPictureBytes  = 64 << 20
	maxPicturePixels = 100_000_000
)

// readPicture reads a PNG or JPEG file and scales it down to the size of a room's pictures.
func readPicture(path string, longSide int) (inference.Frame, error) {
	fail := func(err error) (inference.Frame, error) {
		return inference.Frame{}, fmt.Errorf("picture %s: %w", path, err)
	}
	file, err := os.Open(path)
	if err != nil {
		var inPath *os.PathError
		if errors.As(err, &inPath) {
			err = inPath.Err // it includes the path
		}
		return fail(err)
	}
	defer file.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(bufio.NewReader(file), maxPictureBytes+1))
	if err != nil {
		return fail(err)
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case len(data) > maxPictureBytes:
		return fail(fmt.Errorf("expected at most %d MiB", maxPictureBytes>>20))
	case err != nil:
		return fail(fmt.Errorf("expected a PNG or JPEG file: %w", err))
	case size.Width < 1 || size.Height < 1 || size.Width > maxPicturePixels/size.Height:
		return fail(fmt.Errorf("expected at most %d megapixels, got %dx%d", maxPicturePixels/1_000_000, size.Width, size.Height))
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return fail(err)
	}
	f := events.FromImage(img, longSide)
	return inference.Frame{Width: f.Width, Height: f.Height, Pix: f.Pix}, nil
}

// ask asks the question in cycles and prints the answers.
func (c *askCmd) ask(ctx context.Context, model inference.Model, cfg inference.Config, out *asked, w io.Writer) error {
	began := time.Now()
	if err := ready(ctx, model); err != nil {
		return err
	}
	out.Engine, out.LoadSec = model.Name(), time.Since(began).Seconds()
	session, err := model.NewSession()
	if err != nil {
		return err
	}
	stream := w
	if c.JSON {
		stream = io.Discard
	}
	for n := range c.Repeat {
		cycle, err := askOnce(ctx, session, cfg, out, uint32(n), stream)
		if err != nil {
			return errors.Join(err, session.Close())
		}
		out.Cycles = append(out.Cycles, cycle)
	}
	if err := session.Close(); err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	return out.print(w)
}

// readyInterval is the polling interval of the loading state.
const readyInterval = 20 * time.Millisecond

// ready waits until a model is loaded.
func ready(ctx context.Context, model inference.Model) error {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		switch s := model.Status(); s.Phase {
		case inference.PhaseReady:
			return nil
		case inference.PhaseFailed:
			return fmt.Errorf("load the %s engine: %s", model.Name(), s.Detail)
		case inference.PhaseUnloaded, inference.PhaseLoading, inference.PhaseWarming:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// askOnce asks once and writes the answer as it arrives. A new epoch keeps the engine from reusing the pictures.
func askOnce(ctx context.Context, session inference.Session, cfg inference.Config, out *asked, epoch uint32, w io.Writer,
) (askedCycle, error) {
	var cycle askedCycle
	p := inference.Prompt{
		Text: out.Question, Instruction: out.Question, MaxTokens: cfg.MaxTokens, MaxSlices: cfg.MaxSlices, Language: cfg.Voice.Language,
		Trace: func(x inference.Exchange) { cycle.Exchanges = append(cycle.Exchanges, x) },
	}
	for _, picture := range out.Pictures {
		f := picture.frame
		f.Epoch = epoch
		p.Frames = append(p.Frames, f)
	}
	began := time.Now()
	for chunk, err := range session.Generate(ctx, p) {
		if err != nil {
			return cycle, fmt.Errorf("ask: %w", err)
		}
		if chunk.Text == "" {
			continue
		}
		if cycle.Tokens++; cycle.Tokens == 1 {
			cycle.FirstWordSec = time.Since(began).Seconds()
		}
		cycle.Answer += chunk.Text
		if _, err := io.WriteString(w, chunk.Text); err != nil {
			return cycle, err
		}
	}
	cycle.CycleSec = time.Since(began).Seconds()
	// The rate counts to the end of the cycle, not to the last token: on a busy machine several
	// tokens arrive at once.
	if d := cycle.CycleSec - cycle.FirstWordSec; cycle.Tokens > 1 && d > 0 {
		cycle.Rate = float64(cycle.Tokens-1) / d
	}
	_, err := fmt.Fprintln(w)
	return cycle, err
}

// print writes the figures.
func (a *asked) print(w io.Writer) error {
	size := a.Pictures[0]
	_, err := fmt.Fprintf(w, "\nengine      %s, pictures: %d, the first %dx%d\nload        %.2f s\n",
		a.Engine, len(a.Pictures), size.Width, size.Height, a.LoadSec)
	for i, c := range a.Cycles {
		if len(a.Cycles) > 1 {
			fmt.Fprintf(w, "cycle %d\n", i+1)
		}
		rate := "rate unknown"
		if c.Rate > 0 {
			rate = fmt.Sprintf("%.1f tokens/s", c.Rate)
		}
		_, err = fmt.Fprintf(w, "first word  %.2f s\nanswer      %.2f s, %d tokens, %s\n", c.FirstWordSec, c.CycleSec, c.Tokens, rate)
	}
	return err
}
