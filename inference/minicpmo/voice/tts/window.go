package tts

import "time"

const (
	// Duration of a code: 25 a second.
	Duration = 40 * time.Millisecond
	// Burst is the number of new codes in a window.
	Burst = 25
	// LookAhead is how many of the next codes a window sees.
	LookAhead = 3
	// WindowCodes is the length of a window.
	WindowCodes = Burst + LookAhead
	// LeadSilence is the number of silence codes in front of a turn.
	LeadSilence = 3
)

// Windows cuts the codes of a turn into windows: each has Burst codes that become
// sound and LookAhead codes that only inform it and begin the next window. The
// turn begins with LeadSilence codes of silence.
type Windows struct {
	codes []int32
	from  int
}

// NewWindows begins a turn with the code of silence.
func NewWindows(silence int32) *Windows {
	w := &Windows{codes: make([]int32, 0, 1024)}
	for range LeadSilence {
		w.codes = append(w.codes, silence)
	}
	return w
}

// Push adds a code, and returns the window that it completes, else nil. The window
// is valid until the turn ends.
func (w *Windows) Push(code int32) []int32 {
	w.codes = append(w.codes, code)
	if len(w.codes)-w.from < WindowCodes {
		return nil
	}
	window := w.codes[w.from : w.from+WindowCodes]
	w.from += Burst
	return window
}

// End returns the last window of the turn, LookAhead to Burst+LookAhead-1 codes,
// all become sound.
func (w *Windows) End() []int32 { return w.codes[w.from:] }

// Pending returns the number of codes that no window has turned into sound yet.
func (w *Windows) Pending() int { return len(w.codes) - w.from }

// Codes returns the codes of the turn without the silence in front, for Sampler.
func (w *Windows) Codes() []int32 { return w.codes[LeadSilence:] }

// Start returns the time of the n-th code of a turn in its sound.
func Start(n int) time.Duration { return time.Duration(LeadSilence+n) * Duration }
