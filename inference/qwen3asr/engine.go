// Package qwen3asr is the engine of speech recognition with Qwen3-ASR, and of word times with
// Qwen3-ForcedAligner: it turns sound into text, for many recordings and speakers at once on one device.
//
// One goroutine on its own OS thread, the loop, owns the device. Recordings and utterances submit jobs,
// and read ids from outboxes that the loop never waits for. Features are computed by the callers.
//
// It hears mono sound at 16 kHz. Finding speech in a stream, formats of sound, and HTTP are left to other packages.
package qwen3asr

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/internal/asrtext"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/sample"
	"touchline/inference/step"
	"touchline/inference/tokenizer"
	"touchline/internal/ticks"
	"touchline/models"
)

// Engine is a loaded model. Safe for concurrent use.
type Engine struct {
	*step.Host

	name    string
	o       Options
	log     zerolog.Logger
	plan    networks.Plan
	stats   counters
	loop    *loop
	dims    models.Hearing
	tokens  *tokenizer.Tokenizer
	prompts *prompter
	stop    []int32
	aligner *alignerModel // nil without one
	seed    atomic.Uint64
	pool    *featurePool
}

var _ inference.Recognizer = (*Engine)(nil)

// ahead is the number of parts of a recording that are transcribed at once.
const ahead = 4

// Recognizes returns the model's name and languages.
func (e *Engine) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: e.name, Languages: languageTags(), WordTimes: e.aligner != nil, Partials: true}
}

// Plan returns the planned memory of the model.
func (e *Engine) Plan() networks.Plan { return e.plan }

// query is a validated Hearing in the engine's form.
type query struct {
	inference.Hearing

	name     string // of the language
	settings sample.Settings
}

func (e *Engine) ask(h inference.Hearing) (query, error) {
	name, err := languageName(h.Language)
	if err != nil {
		return query{}, err
	}
	if h.WordTimes && e.aligner == nil {
		return query{}, inference.ErrNoWordTimes
	}
	s := sample.Settings{
		Greedy: h.Temperature == 0, Temperature: h.Temperature, TopP: 1, RepetitionPenalty: 1, Stop: e.stop,
	}
	if err := s.Validate(e.loop.Vocab()); err != nil {
		return query{}, err
	}
	return query{h, name, s}, nil
}

// windows returns the windows of a whole sound.
func (e *Engine) windows(sound []float32) []*window { return e.pool.windows(e.dims, sound) }

// answer submits a job for the text of windows, which begins with prefix.
func (e *Engine) answer(a query, k class, windows []*window, prefix string, most int) (*job, error) {
	p := e.prompts.prompt(a.Context, e.o.ContextTokens, a.name, prefix, rowsOf(windows))
	room := e.loop.Layout().MaxLen - len(p.ids) + 1 // the last id is not fed
	if room < 1 {
		return nil, &inference.TooLongError{Tokens: len(p.ids), Max: e.loop.Layout().MaxLen}
	}
	j := &job{
		Answer: step.Answer{Settings: a.settings, Seed: e.seed.Add(1), Most: min(most, room)}, class: k, prompt: p, windows: windows,
	}
	return j, e.loop.submit(j)
}

// read returns the transcript of an answer.
func (e *Engine) read(a query, raw string) inference.Transcript {
	name, text := asrtext.Parse(raw, a.name)
	if a.name != "" {
		name = a.name
		if strings.Contains(text, asrtext.Mark) { // the model was not asked for it
			_, text = asrtext.Parse(text, "")
		}
	}
	return inference.Transcript{Text: text, Language: languageTag(name)}
}

// Transcribe implements inference.Recognizer. Parts of long recordings are cut where it is quiet.
func (e *Engine) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		a, err := e.ask(h)
		if err != nil {
			yield(inference.Transcript{}, err)
			return
		}
		k := file
		if h.Live {
			k = final
		}
		parts := inference.SplitSound(sound, samples(e.o.Part))
		var jobs []*job
		defer func() { e.loop.Cancel(jobs...) }()
		begin := 0
		for i, part := range parts {
			for len(jobs) < min(len(parts), i+ahead) {
				j, err := e.answer(a, k, e.windows(parts[len(jobs)]), "", e.o.MaxTokens)
				if err != nil {
					yield(inference.Transcript{}, err)
					return
				}
				jobs = append(jobs, j)
			}
			t, err := e.complete(ctx, a, jobs[i], nil)
			if err != nil {
				yield(inference.Transcript{}, err)
				return
			}
			jobs[i].windows = nil
			shift(&t, moment(begin), moment(begin+len(part)))
			begin += len(part)
			if !yield(t, nil) {
				return
			}
		}
	}
}

// complete waits for a job and returns the final text of its sound, with times from its beginning.
func (e *Engine) complete(ctx context.Context, a query, j *job, closed <-chan struct{}) (inference.Transcript, error) {
	windows := j.windows
	ids, err := e.wait(ctx, j, closed)
	if err != nil {
		return inference.Transcript{}, err
	}
	t := e.read(a, e.tokens.DecodePlain(ids))
	return e.withWords(ctx, a, j.class, windows, t, len(ids), closed)
}

// withWords makes a transcript final.
func (e *Engine) withWords(ctx context.Context, a query, k class, windows []*window, t inference.Transcript, ids int,
	closed <-chan struct{},
) (_ inference.Transcript, err error) {
	t.Final, t.Audio, t.Tokens = true, rowsOf(windows), ids
	if a.WordTimes && t.Text != "" {
		t.Words, err = e.align(ctx, k, windows, t.Text, t.Language, closed)
	}
	return t, err
}

// shift sets a part's place in the recording.
func shift(t *inference.Transcript, start, end time.Duration) {
	t.Start, t.End = start, end
	for i := range t.Words {
		t.Words[i].Start = min(t.Words[i].Start+start, end)
		t.Words[i].End = min(t.Words[i].End+start, end)
	}
}

// Align implements inference.Recognizer.
func (e *Engine) Align(ctx context.Context, sound []float32, text, language string) ([]inference.Word, error) {
	if e.aligner == nil {
		return nil, inference.ErrNoWordTimes
	}
	if most := e.aligner.longest(); len(sound) > samples(most) {
		return nil, fmt.Errorf("align %v of sound: at most %v; align it in parts", moment(len(sound)).Round(time.Second), most)
	}
	name, err := languageName(language)
	if err != nil {
		return nil, err
	}
	words, err := e.align(ctx, file, e.windows(sound), text, languageTag(name), nil)
	end := moment(len(sound))
	for i := range words {
		words[i].Start, words[i].End = min(words[i].Start, end), min(words[i].End, end)
	}
	return words, err
}

// align returns the words of a text in the sound of windows.
func (e *Engine) align(ctx context.Context, k class, windows []*window, text, tag string,
	closed <-chan struct{},
) ([]inference.Word, error) {
	name, _ := languageName(tag)
	words := alignWords(text, name)
	if len(words) == 0 {
		return nil, nil
	}
	j, err := e.aligner.job(words, windows)
	if err != nil {
		return nil, err
	}
	j.class = k
	if err := e.loop.submit(j); err != nil {
		return nil, err
	}
	classes, err := e.wait(ctx, j, closed)
	if err != nil {
		return nil, fmt.Errorf("find the times of words: %w", err)
	}
	return timed(text, words, classes, e.aligner.segment()), nil
}

// alignerModel describes the aligner before its networks are loaded.
type alignerModel struct {
	bundle *models.Bundle
	// open reads the tokenizer, once.
	open func() (*tokenizer.Tokenizer, error)
}

func openAligner(dir string) (*alignerModel, error) {
	b, err := models.OpenBundle(dir)
	if err != nil {
		return nil, err
	}
	if b.Manifest.Task != models.TaskAligner {
		return nil, fmt.Errorf("open %s: expected an aligner, such as Qwen3-ForcedAligner, it is %s", dir, b.Manifest.Name)
	}
	path := b.Path(models.TokenizerName)
	return &alignerModel{b, sync.OnceValues(func() (*tokenizer.Tokenizer, error) { return tokenizer.Open(path) })}, nil
}

func (m *alignerModel) dims() models.Hearing { return *m.bundle.Manifest.Dims.Hearing }

// segment is the time between two classes.
func (m *alignerModel) segment() time.Duration {
	return time.Duration(m.dims().StepMS) * time.Millisecond
}

// maxAligned is the longest sound that the official code aligns.
const maxAligned = 180 * time.Second

// longest is the longest sound that can be aligned.
func (m *alignerModel) longest() time.Duration {
	return min(time.Duration(m.dims().Classes)*m.segment(), maxAligned)
}

// job returns the job that aligns words.
func (m *alignerModel) job(words []word, windows []*window) (*job, error) {
	t, err := m.open()
	if err != nil {
		return nil, err
	}
	ids, err := t.IDs("<|audio_start|>", "<|audio_pad|>", "<timestamp>")
	if err != nil {
		return nil, err
	}
	j := &job{windows: make([]*window, len(windows))}
	for i, w := range windows {
		j.windows[i] = &window{mel: w.mel, frames: w.frames, rows: m.dims().Rows(w.frames), aligner: true}
	}
	j.prompt = prompt{from: 1, rows: rowsOf(j.windows)}
	j.prompt.ids = slices.Concat(ids[:1], slices.Repeat(ids[1:2], j.prompt.rows), t.Encode("<|audio_end|>"+alignPrompt(words)))
	for i, id := range j.prompt.ids {
		if id == ids[2] {
			j.slots = append(j.slots, int64(i))
		}
	}
	if len(j.slots) != 2*len(words) {
		return nil, fmt.Errorf("align %d words: the prompt has %d places for times", len(words), len(j.slots))
	}
	if most := m.bundle.Manifest.Dims.Decoder.MaxPositions; len(j.prompt.ids) > most {
		return nil, &inference.TooLongError{Tokens: len(j.prompt.ids), Max: most}
	}
	return j, nil
}

// samples returns the number of samples of a time, and moment the time of a number of samples.
func samples(d time.Duration) int { return int(ticks.Count(d, rate)) }

func moment(samples int) time.Duration { return ticks.Duration(int64(samples), rate) }
