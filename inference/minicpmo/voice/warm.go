package voice

import (
	"context"
	"fmt"
	"slices"
	"time"

	"touchline/inference/minicpmo/voice/tts"
)

// Warm feeds a piece of every length and steps every captured range of the voice's language model, because the first run of a shape is
// slow.
func (m *LM) Warm(ctx context.Context) error {
	if !m.onGPU() { // the CPU captures nothing
		return nil
	}
	// The condition has runs of every length. The longest first: it grows the arena for all others.
	for n := ChunkTokens; n >= 0; n-- {
		p := tts.Piece{IDs: make([]int32, n), Hidden: make([]float32, n*m.hidden), Last: true}
		if _, err := m.Feed(0, 0, p); err != nil {
			return fmt.Errorf("warm up a piece of %d tokens: %w", n, err)
		}
	}
	l := m.layout
	history, lengths := make([][]int32, l.Slots), make([]int32, l.Slots)
	for i := range history {
		history[i] = []int32{0}
	}
	for _, r := range slices.Backward(l.Ranges(l.Slots)) { // as above
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.Step(r, history, lengths); err != nil {
			return fmt.Errorf("warm up slots %d to %d: %w", r.Start, r.Start+r.Size-1, err)
		}
	}
	for slot := range l.Slots {
		if err := m.Clear(slot); err != nil {
			return err
		}
	}
	return m.dev.Synchronize()
}

// warm runs every captured size of the voice's sound and every shape of a turn's end: the first run of a shape takes up to half a
// second. Ends of up to tts.Burst codes have one, and a shape for each longer one; in older bundles each has its own.
func (w *Wave) warm(ctx context.Context) error {
	if w.single { // the CPU captures nothing
		return nil
	}
	run := func(slot, n int, first, last bool) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		jobs := []tts.Job{{Slot: slot, Codes: make([]int32, n), First: first, Last: last}}
		w.Run(jobs)
		if jobs[0].Err != nil {
			return fmt.Errorf("warm up a window of %d codes in slot %d: %w", n, slot, jobs[0].Err)
		}
		return nil
	}
	for size := w.slots.Slots; size > 0; size /= 2 { // the largest first: the others use its memory
		for slot := size - 1; slot >= size/2; slot -= together {
			for _, first := range []bool{false, true} { // the longer sound first, as above
				if err := run(slot, tts.WindowCodes, first, false); err != nil {
					return err
				}
			}
		}
	}
	begin := time.Now()
	for n := tts.WindowCodes - 1; n >= tts.LeadSilence; n-- {
		for _, first := range []bool{true, false} {
			if first && n == tts.LeadSilence { // a turn without codes
				continue
			}
			if w.ending != nil && (first || n < tts.Burst) { // of one shape
				continue
			}
			w.turns[0] = waveTurn{}
			if err := run(0, n, first, true); err != nil {
				return err
			}
		}
	}
	clear(w.turns)
	w.EndsTook = time.Since(begin)
	return nil
}
