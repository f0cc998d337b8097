package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/tokenizer"
	"touchline/models"
	"touchline/worlds"
)

// boundLooks is the share of looks that may have another text than in float32: rounded weights flip close decisions.
const boundLooks = 0.02

// recordedLooks are prompts about pictures of generated worlds, with greedy answers of the original network in float32.
type recordedLooks struct {
	Width  int `json:"width"`
	Height int `json:"height"`
	FPS    int `json:"fps"`
	// Weights is the SHA-256 of the model.safetensors behind the answers.
	Weights string `json:"weights"`
	Looks   []look `json:"looks"`
}

// look is one prompt. Its pictures are drawn again.
type look struct {
	World  string   `json:"world"`
	Seed   uint64   `json:"seed"`
	Frames []uint32 `json:"frames"`
	// Pixels is the SHA-256 of the RGB pictures.
	Pixels string  `json:"pixels"`
	System string  `json:"system"`
	Text   string  `json:"text"`
	Input  []int32 `json:"input_ids"`
	Output []int32 `json:"output_ids"` // without the stop token
	Answer string  `json:"answer"`
}

// looks compares whole answers of a trained network, in the device's floats and in int4. The stages before have
// converted the checkpoint.
func (c *checker) looks(ctx context.Context) {
	float := floatWeights(c.Device)
	exact := boundLooks
	if float == models.WeightsFloat32 {
		exact = 0
	}
	for _, name := range c.files.in("looks") {
		var r recordedLooks
		c.row(stageLooks, name, 0, func(t *tally) {
			c.files.json(name, &r)
			t.row.Cases = len(r.Looks)
			must(c.sameWeights(r.Weights))
		})
		if c.report.Rows[len(c.report.Rows)-1].Err != nil {
			continue
		}
		c.progress("looks")
		c.row(stageLooks, name+" in "+string(float), exact, func(t *tally) {
			c.answers(ctx, t, r, "checkpoint-"+string(float), float)
		})
		c.row(stageLooks, name+" in int4", boundLooks, func(t *tally) {
			c.answers(ctx, t, r, "int4-8", models.WeightsInt4)
		})
	}
}

// sameWeights returns an error if the checkpoint has other weights than the recorded answers.
func (c *checker) sameWeights(want string) error {
	f, err := os.Open(filepath.Join(c.Golden, "checkpoint", "model.safetensors"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return fmt.Errorf("the answers were recorded with other weights than %s: record them again", f.Name())
	}
	return nil
}

// answers runs the looks on a bundle of the work folder. The row's figure is the share of answers that differ.
func (c *checker) answers(ctx context.Context, t *tally, r recordedLooks, bundle string, weights models.Weights) {
	b := need(models.OpenBundle(filepath.Join(c.Work, bundle)))
	e := need(c.engine(ctx, b, weights))
	defer func() { _ = e.Close() }()
	rules := e.ChatRules()
	rules.RepetitionPenalty = 1
	var first error
	others := 0
	for i, l := range r.Looks {
		t.where = fmt.Sprintf("look %d", i)
		frames := need(r.draw(l))
		p := need(l.prompt(e, frames))
		t.exact(slices.Equal(p.IDs, l.Input), "look %d: the prompt differs", i)
		// One more token, so that an answer that does not stop differs.
		ids, text, err := answer(ctx, e, minicpmo.Request{Prompt: p, Frames: frames, Rules: rules, MaxTokens: len(l.Output) + 1, Special: true})
		must(err)
		if !slices.Equal(ids, l.Output) || text != l.Answer {
			others++
			if first == nil {
				first = fmt.Errorf("look %d: expected %q, got %q", i, l.Answer, text)
			}
		}
	}
	t.where = ""
	t.row.Worst = float64(others) / float64(max(1, len(r.Looks)))
	if t.row.Worst > t.row.Bound {
		must(fmt.Errorf("%d of %d answers differ; %w", others, len(r.Looks), first))
	}
}

// prompt writes the prompt as a session of the engine does.
func (l look) prompt(e *minicpmo.Engine, frames []inference.Frame) (tokenizer.Prompt, error) {
	return e.Builder().Chat([]tokenizer.Message{
		{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: l.System}}}, {Role: tokenizer.User, Parts: parts(e, l.Text, 0, frames)},
	}, tokenizer.Options{})
}

// draw returns a look's pictures.
func (r recordedLooks) draw(l look) ([]inference.Frame, error) {
	w, err := worlds.New(worlds.Options{World: l.World, Seed: l.Seed, Width: r.Width, Height: r.Height, FPS: r.FPS})
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	var out []inference.Frame
	for _, n := range l.Frames {
		pix := rgb(w.Frame(n), r.Width, r.Height)
		_, _ = h.Write(pix) // never fails
		out = append(out, inference.Frame{PTS: w.PTS(n), Width: r.Width, Height: r.Height, Pix: pix})
	}
	if hex.EncodeToString(h.Sum(nil)) != l.Pixels {
		return nil, fmt.Errorf("the pictures of %s %d differ from the recorded ones: record the answers again", l.World, l.Seed)
	}
	return out, nil
}

// rgb converts a picture from I420 of BT.601, in integers, so that the result is the same everywhere.
func rgb(i420 []byte, w, h int) []byte {
	out := make([]byte, 0, 3*w*h)
	for y := range h {
		for x := range w {
			at := w*h + y/2*(w/2) + x/2
			l := (int(i420[y*w+x]) - 16) * 298
			u, v := int(i420[at])-128, int(i420[at+w*h/4])-128
			for _, c := range [3]int{l + 409*v, l - 100*u - 208*v, l + 516*u} {
				out = append(out, byte(max(0, min(255, (c+128)>>8)))) // clipped
			}
		}
	}
	return out
}
