package check

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/conformance/stages"
	"touchline/inference/internal/mel"
	"touchline/inference/qwen3asr"
	"touchline/inference/vad"
	"touchline/models"
)

// recognized compares the speech recognition engine with its fixtures.
func (c ears) recognized(ctx context.Context, recognizer, aligner *models.Bundle) {
	work := map[string]func(context.Context, *tally, string, *models.Bundle, *models.Bundle){
		"transcribe.json": c.transcribed, "long.json": c.transcribedLong, "streaming.json": c.streamed, "split.json": c.split,
	}
	for _, name := range c.files.in(stageTranscribe) {
		run, known := work[path.Base(name)]
		if !known {
			continue
		}
		c.progress("engine: " + name)
		c.row(stageTranscribe, name, 0, func(t *tally) {
			if c.Device != models.DeviceCPU {
				c.onCPU(t, name)
				return
			}
			run(ctx, t, name, recognizer, aligner)
		})
	}
}

// texts compares the stages without a network: the parsing of answers, and the aligner's words.
func (c ears) texts() {
	for _, name := range c.files.in(stageText) {
		run, known := map[string]func([]byte, qwen3asr.Same) error{
			"parse.json": qwen3asr.ReplayAnswers, "align.json": qwen3asr.ReplayWords,
		}[path.Base(name)]
		if !known {
			continue
		}
		c.row(stageText, name, 0, func(t *tally) { must(run(need(c.files.bytes(name)), t.exact)) })
	}
}

// speech compares the voice activity detector, if its file is present.
func (c ears) speech() {
	for _, name := range c.files.in(stageVAD) {
		c.row(stageVAD, name, 1e-5, func(t *tally) {
			raw := need(c.files.bytes(name))
			g := vad.Open(c.Library)
			defer func() { _ = g.Close() }()
			if g.Err() != nil {
				t.row.Note = "not compared: " + g.Err().Error()
				return
			}
			sound := func(clip string) ([]float32, error) { return c.sound(clip), nil }
			must(stages.Speech(g, raw, sound, func(got, want float64, clip string, frame int) {
				t.row.Cases++
				t.row.Worst = max(t.row.Worst, math.Abs(got-want))
				if !(math.Abs(got-want) <= t.row.Bound) {
					t.fail(fmt.Errorf("%s: frame %d: expected %g, got %g", clip, frame, want, got))
				}
			}))
		})
	}
}

// listener opens the engine of speech recognition.
func (c ears) listener(ctx context.Context, b, aligner *models.Bundle, o qwen3asr.Options) (*qwen3asr.Engine, error) {
	o.Runtime, o.Device, o.Slots, o.ContextTokens, o.MaxTokens = c.Library, string(c.Device), 4, 64, 40
	if aligner != nil {
		o.Aligner = aligner.Dir
	}
	return qwen3asr.Open(ctx, b, o)
}

// transcribed compares whole texts, and the word times of the aligner's fixtures.
func (c ears) transcribed(ctx context.Context, t *tally, name string, b, aligner *models.Bundle) {
	var all struct {
		Cases []struct {
			Clip, Context, Text string
			Language            string  `json:"language_in"`
			Padded              *string `json:"text_padded100"`
		}
	}
	c.files.json(name, &all)
	e := need(c.listener(ctx, b, aligner, qwen3asr.Options{Part: time.Minute, MaxLen: 2048}))
	defer func() { _ = e.Close() }()
	for _, tt := range all.Cases {
		samples := c.sound(tt.Clip)
		if len(samples) < mel.Rate/2 {
			continue // the engine pads it
		}
		if tt.Padded != nil {
			tt.Text = *tt.Padded
		}
		parts := need(transcribe(ctx, e, samples, inference.Hearing{Language: tt.Language, Context: tt.Context}))
		t.exact(strings.Join(parts, "") == tt.Text, "%s: expected %q, got %q", tt.Clip, tt.Text, parts)
	}
	if aligner == nil || !c.files.has(alignName) {
		return
	}
	c.timedWords(ctx, t, e)
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

func (c ears) timedWords(ctx context.Context, t *tally, e *qwen3asr.Engine) {
	var cases []struct {
		Clip, Language, Text string
		Items                []struct {
			Start float64 `json:"start_time"`
			End   float64 `json:"end_time"`
		}
	}
	c.files.json(alignName, &cases)
	for _, tt := range cases {
		samples := c.sound(tt.Clip)
		words := need(e.Align(ctx, samples, tt.Text, tt.Language))
		if len(words) != len(tt.Items) {
			must(fmt.Errorf("%q: expected %d words, got %d", tt.Text, len(tt.Items), len(words)))
		}
		end := float64(len(samples)) / mel.Rate // the original may go beyond it
		for i, w := range words {
			same := func(got time.Duration, want float64) bool { return math.Abs(got.Seconds()-min(want, end)) < 1e-4 }
			t.exact(same(w.Start, tt.Items[i].Start) && same(w.End, tt.Items[i].End), "%q: word %d: got %v to %v", tt.Text, i, w.Start, w.End)
		}
	}
}

// transcribedLong compares a recording that is cut into parts.
func (c ears) transcribedLong(ctx context.Context, t *tally, name string, b, _ *models.Bundle) {
	var want struct {
		Clip, Text string
		Max        float64 `json:"max_chunk_sec"`
		Raw        []string
	}
	c.files.json(name, &want)
	samples := c.sound(want.Clip)
	e := need(c.listener(ctx, b, nil, qwen3asr.Options{Part: time.Duration(want.Max * float64(time.Second))}))
	defer func() { _ = e.Close() }()
	parts := need(transcribe(ctx, e, samples, inference.Hearing{}))
	t.exact(len(parts) == len(want.Raw), "expected %d parts, got %d", len(want.Raw), len(parts))
	t.exact(strings.Join(parts, "") == want.Text, "expected %q, got %q", want.Text, parts)
}

// split compares the places where recordings are cut.
func (c ears) split(_ context.Context, t *tally, name string, _, _ *models.Bundle) {
	var cases []struct {
		Clip    string
		Max     float64 `json:"max_chunk_sec"`
		Search  float64 `json:"search_expand_sec"`
		Lengths []int
	}
	c.files.json(name, &cases)
	for _, tt := range cases {
		if tt.Search != 0 {
			continue // a finer cut than this program's
		}
		samples := c.sound(tt.Clip)
		parts := inference.SplitSound(samples, int(tt.Max*mel.Rate))
		if len(parts) != len(tt.Lengths) {
			must(fmt.Errorf("%s in parts of %g s: expected %d parts, got %d", tt.Clip, tt.Max, len(tt.Lengths), len(parts)))
		}
		for i, part := range parts {
			n := len(part)
			if len(parts) > 1 {
				n = max(n, mel.Rate/2) // the original pads them
			}
			t.exact(n == tt.Lengths[i], "%s: part %d: expected %d samples, got %d", tt.Clip, i, tt.Lengths[i], n)
		}
	}
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
func (c ears) streamed(ctx context.Context, t *tally, name string, b, _ *models.Bundle) {
	var runs []live
	c.files.json(name, &runs)
	for _, r := range runs {
		if r.Short {
			continue // its first chunks are shorter than the engine's
		}
		t.where = r.Clip
		c.stream1(ctx, t, r, b)
	}
}

func (c ears) stream1(ctx context.Context, t *tally, r live, b *models.Bundle) {
	samples := c.sound(r.Clip)
	e, err := c.listener(ctx, b, nil, qwen3asr.Options{
		Official: true, Step: time.Duration(r.Chunk * float64(time.Second)),
		FreeSteps: r.FreeSteps, FreeTokens: r.FreeTokens, StepTokens: r.StepTokens,
	})
	must(err)
	defer func() { _ = e.Close() }()
	u := need(e.Listen(ctx, inference.Hearing{Context: r.Context, Language: r.Language}))
	defer func() { _ = u.Close() }()
	from := 0
	for i, s := range r.Steps {
		if s.Samples < from || s.Samples > len(samples) {
			must(fmt.Errorf("step %d: expected %d to %d samples, got %d", i, from, len(samples), s.Samples))
		}
		hear := u.Hear
		if s.Kind == "finish" {
			hear = u.Finish
		}
		got := need(hear(ctx, samples[from:s.Samples]))
		t.exact(got.Text == strings.TrimSpace(s.Text), "%s: step %d: expected %q, got %q", r.Clip, i, s.Text, got.Text)
		from = s.Samples
	}
}
