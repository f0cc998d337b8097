package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/mel"
	"touchline/inference/qwen3asr"
	"touchline/inference/vad"
	"touchline/models"
)

// recognized are the fixtures of the engine of speech recognition.
func (c *checker) recognized(ctx context.Context, recognizer, aligner *models.Bundle) {
	work := map[string]func(context.Context, *tally, string, *models.Bundle, *models.Bundle) error{
		"transcribe.json": c.transcribed, "long.json": c.transcribedLong, "streaming.json": c.streamed, "split.json": c.split,
	}
	for _, name := range c.files.in(stageTranscribe) {
		run, known := work[path.Base(name)]
		if !known {
			continue
		}
		c.progress("engine: " + name)
		c.row(stageTranscribe, name, 0, func(t *tally) error {
			if c.Device != models.DeviceCPU {
				t.row.Note = "compared on the CPU only, because rounding changes ties"
				_, err := c.files.bytes(name)
				return err
			}
			return run(ctx, t, name, recognizer, aligner)
		})
	}
}

// texts compares what needs no network: the reading of answers, and the words of the aligner.
func (c *checker) texts() {
	for _, name := range c.files.in(stageText) {
		run, known := map[string]func([]byte, qwen3asr.Same) error{
			"parse.json": qwen3asr.ReplayAnswers, "align.json": qwen3asr.ReplayWords,
		}[path.Base(name)]
		if !known {
			continue
		}
		c.row(stageText, name, 0, func(t *tally) error {
			raw, err := c.files.bytes(name)
			if err != nil {
				return err
			}
			return run(raw, t.exact)
		})
	}
}

// speech compares the network that finds speech, where its file is.
func (c *checker) speech() {
	for _, name := range c.files.in(stageVAD) {
		c.row(stageVAD, name, 1e-5, func(t *tally) (err error) {
			raw, err := c.files.bytes(name)
			if err != nil {
				return err
			}
			g := vad.Open(c.Library)
			defer func() { err = errors.Join(err, g.Close()) }()
			if g.Err() != nil {
				t.row.Note = "not compared: " + g.Err().Error()
				return nil
			}
			return vad.Replay(g, raw, c.sound, func(got, want float64, clip string, frame int) {
				t.row.Cases++
				t.row.Worst = max(t.row.Worst, math.Abs(got-want))
				if !(math.Abs(got-want) <= t.row.Bound) {
					t.fail(fmt.Errorf("%s: frame %d: expected %g, got %g", clip, frame, want, got))
				}
			})
		})
	}
}

// listener opens the engine of speech recognition.
func (c *checker) listener(ctx context.Context, b, aligner *models.Bundle, o qwen3asr.Options) (*qwen3asr.Engine, error) {
	o.Runtime, o.Device, o.Slots, o.ContextTokens, o.MaxTokens = c.Library, string(c.Device), 4, 64, 40
	if aligner != nil {
		o.Aligner = aligner.Dir
	}
	return qwen3asr.Open(ctx, b, o)
}

// transcribed compares whole texts, and the times of the words of the aligner's fixtures.
func (c *checker) transcribed(ctx context.Context, t *tally, name string, b, aligner *models.Bundle) (err error) {
	var all struct {
		Cases []struct {
			Clip, Context, Text string
			Language            string  `json:"language_in"`
			Padded              *string `json:"text_padded100"`
		}
	}
	if err := c.files.json(name, &all); err != nil {
		return err
	}
	e, err := c.listener(ctx, b, aligner, qwen3asr.Options{Part: time.Minute, MaxLen: 2048})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	for _, tt := range all.Cases {
		samples, err := c.sound(tt.Clip)
		if err != nil {
			return err
		}
		if len(samples) < mel.Rate/2 {
			continue // the engine pads it
		}
		if tt.Padded != nil {
			tt.Text = *tt.Padded
		}
		parts, err := transcribe(ctx, e, samples, inference.Hearing{Language: tt.Language, Context: tt.Context})
		if err != nil {
			return err
		}
		t.exact(strings.Join(parts, "") == tt.Text, "%s: expected %q, got %q", tt.Clip, tt.Text, parts)
	}
	if aligner == nil || !c.files.has(alignName) {
		return nil
	}
	return c.timedWords(ctx, t, e)
}

func transcribe(ctx context.Context, e *qwen3asr.Engine, samples []float32, h inference.Hearing) (texts []string, err error) {
	for part, err := range e.Transcribe(ctx, samples, h) {
		if err != nil {
			return nil, err
		}
		texts = append(texts, part.Text)
	}
	return texts, nil
}

func (c *checker) timedWords(ctx context.Context, t *tally, e *qwen3asr.Engine) error {
	var cases []struct {
		Clip, Language, Text string
		Items                []struct {
			Start float64 `json:"start_time"`
			End   float64 `json:"end_time"`
		}
	}
	if err := c.files.json(alignName, &cases); err != nil {
		return err
	}
	for _, tt := range cases {
		samples, err := c.sound(tt.Clip)
		if err != nil {
			return err
		}
		words, err := e.Align(ctx, samples, tt.Text, tt.Language)
		if err != nil {
			return err
		}
		if len(words) != len(tt.Items) {
			return fmt.Errorf("%q: expected %d words, got %d", tt.Text, len(tt.Items), len(words))
		}
		end := float64(len(samples)) / mel.Rate // the original may go beyond it
		for i, w := range words {
			same := func(got time.Duration, want float64) bool { return math.Abs(got.Seconds()-min(want, end)) < 1e-4 }
			t.exact(same(w.Start, tt.Items[i].Start) && same(w.End, tt.Items[i].End), "%q: word %d: got %v to %v", tt.Text, i, w.Start, w.End)
		}
	}
	return nil
}

// transcribedLong compares a recording that is cut into parts.
func (c *checker) transcribedLong(ctx context.Context, t *tally, name string, b, _ *models.Bundle) error {
	var want struct {
		Clip, Text string
		Max        float64 `json:"max_chunk_sec"`
		Raw        []string
	}
	if err := c.files.json(name, &want); err != nil {
		return err
	}
	samples, err := c.sound(want.Clip)
	if err != nil {
		return err
	}
	e, err := c.listener(ctx, b, nil, qwen3asr.Options{Part: time.Duration(want.Max * float64(time.Second))})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	parts, err := transcribe(ctx, e, samples, inference.Hearing{})
	t.exact(len(parts) == len(want.Raw), "expected %d parts, got %d", len(want.Raw), len(parts))
	t.exact(strings.Join(parts, "") == want.Text, "expected %q, got %q", want.Text, parts)
	return err
}

// split compares the places where recordings are cut.
func (c *checker) split(_ context.Context, t *tally, name string, _, _ *models.Bundle) error {
	var cases []struct {
		Clip    string
		Max     float64 `json:"max_chunk_sec"`
		Search  float64 `json:"search_expand_sec"`
		Lengths []int
	}
	if err := c.files.json(name, &cases); err != nil {
		return err
	}
	for _, tt := range cases {
		if tt.Search != 0 {
			continue // closer to the place than this program cuts
		}
		samples, err := c.sound(tt.Clip)
		if err != nil {
			return err
		}
		parts := inference.SplitSound(samples, int(tt.Max*mel.Rate))
		if len(parts) != len(tt.Lengths) {
			return fmt.Errorf("%s in parts of %g s: expected %d parts, got %d", tt.Clip, tt.Max, len(tt.Lengths), len(parts))
		}
		for i, part := range parts {
			n := len(part)
			if len(parts) > 1 {
				n = max(n, mel.Rate/2) // the original pads them
			}
			t.exact(n == tt.Lengths[i], "%s: part %d: expected %d samples, got %d", tt.Clip, i, tt.Lengths[i], n)
		}
	}
	return nil
}

// live is a recorded run of live speech.
type live struct {
	Clip, Context, Language string
	Chunk                   float64 `json:"chunk_size_sec"`
	FreeSteps               int     `json:"unfixed_chunk_num"`
	FreeTokens              int     `json:"unfixed_token_num"`
	StepTokens              int     `json:"max_new_tokens"`
	Short                   bool    `json:"short_chunks"`
	Steps                   []struct {
		Kind, Text string
		Samples    int
	}
}

// streamed compares the texts of live speech, step by step.
func (c *checker) streamed(ctx context.Context, t *tally, name string, b, _ *models.Bundle) error {
	var runs []live
	if err := c.files.json(name, &runs); err != nil {
		return err
	}
	for _, r := range runs {
		if r.Short {
			continue // its first chunks are shorter than the engine's
		}
		if err := c.stream1(ctx, t, r, b); err != nil {
			return fmt.Errorf("%s: %w", r.Clip, err)
		}
	}
	return nil
}

func (c *checker) stream1(ctx context.Context, t *tally, r live, b *models.Bundle) error {
	samples, err := c.sound(r.Clip)
	if err != nil {
		return err
	}
	e, err := c.listener(ctx, b, nil, qwen3asr.Options{
		Official: true, Step: time.Duration(r.Chunk * float64(time.Second)),
		FreeSteps: r.FreeSteps, FreeTokens: r.FreeTokens, StepTokens: r.StepTokens,
	})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	u, err := e.Listen(ctx, inference.Hearing{Context: r.Context, Language: r.Language})
	if err != nil {
		return err
	}
	defer func() { _ = u.Close() }()
	from := 0
	for i, s := range r.Steps {
		if s.Samples < from || s.Samples > len(samples) {
			return fmt.Errorf("step %d: expected %d to %d samples, got %d", i, from, len(samples), s.Samples)
		}
		hear := u.Hear
		if s.Kind == "finish" {
			hear = u.Finish
		}
		got, err := hear(ctx, samples[from:s.Samples])
		if err != nil {
			return err
		}
		t.exact(got.Text == strings.TrimSpace(s.Text), "%s: step %d: expected %q, got %q", r.Clip, i, s.Text, got.Text)
		from = s.Samples
	}
	return nil
}
