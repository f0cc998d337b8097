package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/inference/step"
	"touchline/internal/wake"
)

// Row is the output of the codes' language model for the last position.
type Row struct {
	Logits, TopValues []float32
	TopIDs            []int64
}

// LM runs the language model of the codes for one turn.
type LM interface {
	// Feed feeds codes, or inputs in their place, after past positions. history has the last codes.
	Feed(codes []int64, inputs []float32, past int, history []int64) Row
}

// historyCodes is the length of LM's history.
const historyCodes = 16

// Greedy replays a piece of text and the recorded codes after it, with the end of speech masked, and compares the largest logits of each
// code. exact also compares the graph's own list of the largest logits, whose order rounding changes.
func (r *Replay) Greedy(lm LM, exact bool) error {
	f := r.Fixture("lm")
	end, limit := int64(r.Dims.Speech.TTS.Codes-1), Limit{1e-4, 5e-2, OfNothing}
	inputs := slices.Concat(f.Floats("condition"), f.Floats("audio_bos_row"))
	past, history := len(inputs)/r.Dims.Speech.TTS.Hidden, make([]int64, historyCodes)
	row := lm.Feed(slices.Repeat([]int64{end}, past), inputs, 0, history)
	r.Near("logits of the prefill", f.Floats("prefill_logits_last"), row.Logits, limit)
	best, values := f.Ints("greedy_top5_codes"), f.Floats("greedy_top5_logits")
	for i, code := range f.Ints("greedy_codes") {
		want, logits := best[5*i:5*i+5], make([]float32, 5)
		for k, id := range want {
			logits[k] = row.Logits[id]
		}
		r.Near(fmt.Sprintf("logits of code %d", i), values[5*i:5*i+5], logits, limit)
		if exact {
			ids, top := slices.Clone(row.TopIDs[:6]), slices.Clone(row.TopValues[:6])
			if at := slices.Index(ids, end); at >= 0 {
				ids, top = slices.Delete(ids, at, at+1), slices.Delete(top, at, at+1)
			}
			if !slices.Equal(ids[:5], want) || ids[0] != code {
				return fmt.Errorf("step %d: expected the codes %v, got %v", i, want, ids[:5])
			}
			r.Near(fmt.Sprintf("largest logits of code %d", i), values[5*i:5*i+5], top[:5], limit)
		}
		history[i%len(history)] = code
		row = lm.Feed([]int64{code}, nil, past+i, history)
	}
	return nil
}

// Speaker is a language model of the engine that also reads the rows of a piece of text.
type Speaker interface {
	tts.LM
	// FeedRows is Feed with the condition of a piece and its marks.
	FeedRows(slot, length int, rows []float32) (int, error)
}

// Chunk is a recorded piece of text of tts/stream. It ends at its own limit, or with one draw more than codes.
type Chunk struct {
	Condition string  `json:"condition"` // its name
	Finished  bool    `json:"text_finished"`
	Draws     int     `json:"draws"`
	Codes     []int32 `json:"codes"`
}

// Stream replays the draws of the pieces of a turn from their conditions. end is the code that ends a piece.
func Stream(lm Speaker, chunks []Chunk, end int32, f, marks Fixture, draws []float64, exact bool) error {
	pieces := make([]forced, len(chunks))
	for i, c := range chunks {
		rows := slices.Clone(f.Floats(c.Condition))
		if c.Finished {
			rows = append(rows, marks.Floats("text_eos_row")...)
		}
		rows = append(rows, marks.Floats("audio_bos_row")...)
		codes := slices.Clone(c.Codes)
		if c.Draws > len(codes) {
			codes = append(codes, end)
		}
		if len(codes) != c.Draws || len(draws) < c.Draws {
			return fmt.Errorf("piece %d: expected %d draws, got %d for %d codes", i, c.Draws, len(draws), len(c.Codes))
		}
		pieces[i] = forced{
			feed:  func(length int) (int, error) { return lm.FeedRows(0, length, rows) },
			codes: codes, draws: draws[:c.Draws],
		}
		draws = draws[c.Draws:]
	}
	return force(lm, pieces, end, exact)
}

// forced is a piece of text with its recorded codes.
type forced struct {
	feed  func(length int) (int, error)
	codes []int32
	draws []float64
}

// In float16, a draw near the border between two codes may take the other one: on a CPU 29 of 2,354 recorded draws do, at most 9 of a
// turn's 537, and up to 0.004 from the border. If a position were not skipped, 36 of these 537 would, some of them anywhere.
const (
	halfMargin = 0.02
	halfOthers = 0.03 // of a turn's draws
)

// force feeds recorded codes to a language model, and compares them with the codes that it would have drawn. exact requires equal codes;
// otherwise a few draws may differ if the recorded code is near.
func force(lm tts.LM, pieces []forced, end int32, exact bool) error {
	if err := lm.Clear(0); err != nil {
		return err
	}
	s, length, full, drawn, others := tts.New(tts.Official()), 0, false, 0, 0
	var history []int32
	for _, p := range pieces {
		if full {
			if err := lm.TurnBack(0, length); err != nil {
				return err
			}
		}
		n, err := p.feed(length)
		if err != nil {
			return err
		}
		length += n
		for i, code := range p.codes {
			if i > 0 {
				at := []int32{int32(length)}
				if err := lm.Step(kvcache.Range{Size: 1}, [][]int32{history}, at); err != nil {
					return err
				}
				length++
			}
			row, err := lm.Logits(0)
			if err != nil {
				return err
			}
			got, near, err := draw(s, row, history, p.draws[i], code)
			switch {
			case err != nil:
				return err
			case got != code && (exact || !near):
				return fmt.Errorf("draw %d: expected the code %d, got %d", drawn, code, got)
			case got != code:
				others++
			}
			drawn++
			if full = code != end; full {
				history = append(history, code)
			}
		}
	}
	if most := halfOthers * float64(drawn); float64(others) > most {
		return fmt.Errorf("%d of %d draws took another code, expected at most %.0f", others, drawn, most)
	}
	return nil
}

// draw draws from a row of logits. near reports whether a slightly different number would select code.
func draw(s *tts.Sampler, row []float32, history []int32, u float64, code int32) (got int32, near bool, err error) {
	got, err = s.Full(row, history, u)
	if err != nil || got == code {
		return got, err == nil, err
	}
	low, err1 := s.Full(row, history, max(0, u-halfMargin))
	high, err2 := s.Full(row, history, min(u+halfMargin, 1))
	return got, low <= code && code <= high, errors.Join(err1, err2) // codes are in the order of their numbers
}

// Turn is a recorded turn of the official streaming call.
type Turn struct {
	Pieces   [][]int32 // ids of the text
	Finished []bool
	// Draws are the random numbers, and Drawn the codes that they selected, including the codes that end a piece.
	Draws []float64
	Drawn []int32
}

// ParseTurns reads the recorded turns. It uses the draws from a vocabulary of that many codes.
func ParseTurns(content []byte, codes int) ([]Turn, error) {
	var recorded []struct {
		Pieces   [][]int32 `json:"llm_chunk_ids"`
		Finished []bool    `json:"llm_chunk_finished"`
		Draws    []struct {
			U       float64 `json:"u"`
			ID      int32   `json:"id"`
			Classes int     `json:"classes"`
		} `json:"draws"`
	}
	if err := json.Unmarshal(content, &recorded); err != nil {
		return nil, err
	}
	turns := make([]Turn, len(recorded))
	for i, r := range recorded {
		if len(r.Pieces) != len(r.Finished) {
			return nil, fmt.Errorf("turn %d: expected as many ends as pieces, got %d and %d", i, len(r.Finished), len(r.Pieces))
		}
		turns[i] = Turn{Pieces: r.Pieces, Finished: r.Finished}
		for _, d := range r.Draws {
			if d.Classes == codes {
				turns[i].Draws, turns[i].Drawn = append(turns[i].Draws, d.U), append(turns[i].Drawn, d.ID)
			}
		}
	}
	return turns, nil
}

// windows is a tts.Wave that records the codes.
type windows struct {
	mu   sync.Mutex
	jobs []tts.Job
}

func (w *windows) Begin(int, string) error { return nil }

func (w *windows) SharedSlots(int) int { return 0 }

func (w *windows) Run(jobs []tts.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, jobs...)
}

// Speak lets a language model of the engine choose the codes of a turn with its draws, from the hidden states of its text, and compares
// them. end is the code that ends a piece.
func (t Turn) Speak(
	ctx context.Context, lm tts.LM, layout kvcache.Layout, end int32, states Fixture, width int, now func() time.Time,
) error {
	w, sound := wake.New(), &windows{}
	begin := now()
	fast := func() time.Time { return begin.Add(100 * now().Sub(begin)) } // codes are never far ahead of the sound
	client := step.NewOwner(fast).Join(step.Commentary)
	sounder := tts.NewSounder(sound, client, fast, w.Set)
	talker, err := tts.NewTalker(tts.TalkerOptions{
		LM: lm, Layout: layout, Settings: tts.Official(), End: end, Silence: silence, Client: client, Now: fast, Wake: w.Set,
	}, sounder)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = sounder.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	draws := 0
	spoken := tts.NewTurn("", func() float64 {
		draws++
		return t.Draws[min(draws, len(t.Draws))-1]
	})
	if err := talker.Submit(spoken); err != nil {
		return err
	}
	ids := slices.Concat(t.Pieces...)
	for k := range t.Pieces {
		hidden := states.Floats(fmt.Sprintf("llm_hidden.%d", k))
		n, last := len(hidden)/width, k == len(t.Pieces)-1
		spoken.Feed(tts.Piece{IDs: ids[:n], Hidden: hidden, Last: last, Cut: last && !t.Finished[k]})
		ids = ids[n:]
	}
	for ended := false; !ended; {
		if err := talker.Intake(); err != nil {
			return err
		}
		if _, err := talker.Work(0, false, false); err != nil {
			return err
		}
		if _, _, ended, err = spoken.Take(); err != nil {
			return err
		}
	}
	return t.compare(sound, draws, end)
}

// Force is Speak for float16, where rounding changes draws: the language model receives the recorded codes.
func (t Turn) Force(lm tts.LM, end int32, states Fixture, width int) error {
	pieces, ids, drawn, draws := make([]forced, 0, len(t.Pieces)), slices.Concat(t.Pieces...), t.Drawn, t.Draws
	for k := range t.Pieces {
		hidden := states.Floats(fmt.Sprintf("llm_hidden.%d", k))
		n, last := len(hidden)/width, k == len(t.Pieces)-1
		p := tts.Piece{IDs: ids[:n], Hidden: hidden, Last: last, Cut: last && !t.Finished[k]}
		codes := min(tts.PieceCodes, len(drawn))
		if at := slices.Index(drawn[:codes], end); at >= 0 {
			codes = at + 1
		}
		pieces = append(pieces, forced{
			feed:  func(length int) (int, error) { return lm.Feed(0, length, p) },
			codes: drawn[:codes], draws: draws[:codes],
		})
		ids, drawn, draws = ids[n:], drawn[codes:], draws[codes:]
	}
	if len(drawn) > 0 {
		return fmt.Errorf("%d draws are of no piece", len(drawn))
	}
	return force(lm, pieces, end, false)
}

// compare compares the windows with the codes of the turn.
func (t Turn) compare(sound *windows, draws int, end int32) error {
	if draws != len(t.Drawn) {
		return fmt.Errorf("expected %d draws, got %d", len(t.Drawn), draws)
	}
	sound.mu.Lock()
	defer sound.mu.Unlock()
	var codes []int32
	for _, j := range sound.jobs {
		if !j.Last { // the next window repeats the last codes
			j.Codes = j.Codes[:tts.Burst]
		}
		codes = append(codes, j.Codes...)
	}
	want := slices.DeleteFunc(slices.Clone(t.Drawn), func(c int32) bool { return c == end })
	if len(codes) < tts.LeadSilence || !slices.Equal(codes[tts.LeadSilence:], want) {
		return errors.New("the codes of the windows differ from those that were drawn")
	}
	return nil
}
