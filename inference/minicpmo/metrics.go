package minicpmo

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference/step"
)

// Distribution is a histogram of durations in seconds, or of counts.
type Distribution struct {
	// Bounds are the upper ends of the buckets. Counts are not cumulative and have
	// one more element, for larger values.
	Bounds []float64
	Counts []uint64
	Sum    float64
	Count  uint64
}

// Quantile returns the upper end of the bucket of the q-quantile, q from 0 to 1:
// at most the last bound, and 0 for an empty distribution.
func (d Distribution) Quantile(q float64) float64 {
	want := uint64(math.Ceil(q * float64(d.Count)))
	var n uint64
	for i, c := range d.Counts {
		if n += c; n >= want && c > 0 {
			return d.Bounds[min(i, len(d.Bounds)-1)]
		}
	}
	return 0
}

// Mean returns Sum/Count, or 0 for an empty distribution.
func (d Distribution) Mean() float64 {
	if d.Count == 0 {
		return 0
	}
	return d.Sum / float64(d.Count)
}

// histogram collects a Distribution. Its buckets grow by a constant factor.
type histogram struct {
	bounds []float64
	counts []atomic.Uint64
	sum    atomic.Uint64 // bits
	n      atomic.Uint64
}

func newHistogram(low, factor float64, n int) *histogram {
	h := &histogram{bounds: make([]float64, n), counts: make([]atomic.Uint64, n+1)}
	for i := range n {
		h.bounds[i] = low
		low *= factor
	}
	return h
}

func (h *histogram) add(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	h.n.Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) took(d time.Duration) { h.add(d.Seconds()) }

func (h *histogram) read() Distribution {
	d := Distribution{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: math.Float64frombits(h.sum.Load())}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
		d.Count += d.Counts[i]
	}
	return d
}

// Stats are the counters of an engine since it was opened. Times are in seconds.
type Stats struct {
	// Wait is from an answer's arrival to its slot; FirstToken and Answer are
	// from the arrival to the first token and to the end.
	Wait, FirstToken, Answer Distribution
	// Preprocess is one picture on one core; Vision, Prefill and Step are one
	// run of the device. Gap is between two tokens of an answer. Host is from
	// the end of a decode step's run to the call of the next.
	Preprocess, Vision, Prefill, Step, Gap, Host Distribution
	// Batch is the number of answers of a step, Images that of images in a vision run.
	Batch, Images Distribution
	// Prompt counts tokens fed, Tokens those generated.
	Prompt, Tokens uint64
	// Steps by weight set.
	Steps map[string]uint64
	// Hits and Misses count pictures in the cache, Early those embedded before
	// a prompt showed them. Cached is the number of images in the cache now.
	Hits, Misses, Early uint64
	Cached              int
	// Answers that ended normally, were cancelled, failed, or were refused.
	Done, Cancelled, Failed, Overloaded uint64
	// FailedRuns of the device; WholeRows read because the largest logits were not enough.
	FailedRuns, WholeRows uint64
	// Slots in use and answers Waiting for one now; the maximum in use so far; all slots.
	Slots, SlotsMost, SlotsAll, Waiting int
	// LongTurns and LostTurns count spoken answers whose end the voice did not say: too long, or a failure.
	LongTurns, LostTurns uint64
	// VoiceSlots in use now, and all: answers that are spoken at once.
	VoiceSlots, VoiceSlotsAll int
	// Busy is the device's working time for text, VoiceBusy that for voices, at the same time.
	Busy, VoiceBusy time.Duration
	// Bytes planned for the model, used by loading it, and free on the device afterwards.
	MemoryPlanned, MemoryUsed, MemoryFree int64
	// Switch is the batch size from which the second weight set decodes; 0 means never.
	Switch int
}

// counters collects Stats. Safe for concurrent use.
type counters struct {
	wait, first, answer                      *histogram
	preprocess, vision, prefill, steps, gaps *histogram
	host                                     *histogram
	batches, images                          *histogram

	prompt, tokens                           atomic.Uint64
	hits, misses, early                      atomic.Uint64
	completed, cancelled, failed, overloaded atomic.Uint64
	failedRuns, wholeRows                    atomic.Uint64
	slots, slotsMost                         atomic.Int64
	switchAt                                 atomic.Int64
	memoryUsed, memoryFree                   atomic.Int64

	mu    sync.Mutex
	names []string
	bySet []uint64
}

func newCounters(sets []string) *counters {
	times := func() *histogram { return newHistogram(50e-6, 1.25, 64) } // 50 us to 64 s
	sizes := func() *histogram { return newHistogram(1, 2, 9) }
	return &counters{
		wait: times(), first: times(), answer: times(),
		preprocess: times(), vision: times(), prefill: times(), steps: times(), gaps: times(),
		host:    newHistogram(1e-6, 1.25, 64),
		batches: sizes(), images: sizes(),
		names: sets, bySet: make([]uint64, len(sets)),
	}
}

func (s *counters) step(rows, set int, took time.Duration) {
	s.steps.took(took)
	s.batches.add(float64(rows))
	s.mu.Lock()
	if set < len(s.bySet) {
		s.bySet[set]++
	}
	s.mu.Unlock()
}

func (s *counters) prefilled(n int, took time.Duration) {
	s.prefill.took(took)
	s.prompt.Add(uint64(n)) //nolint:gosec // not negative
}

func (s *counters) embedded(n int, took time.Duration) {
	s.vision.took(took)
	s.images.add(float64(n))
}

func (s *counters) held(n int) {
	s.slots.Store(int64(n))
	s.slotsMost.Store(max(int64(n), s.slotsMost.Load())) // only the loop writes it
}

func (s *counters) ended(c *cycle, err error) {
	switch {
	case err == nil:
		s.completed.Add(1)
		s.answer.took(c.report.Total)
	case errors.Is(err, step.ErrCancelled) || errors.Is(err, ErrClosed):
		s.cancelled.Add(1)
	default:
		s.failed.Add(1)
	}
	if c.Count > 0 {
		s.first.took(c.report.FirstToken)
		s.wait.took(c.report.Wait)
	}
}

func (s *counters) read() Stats {
	out := Stats{
		Wait: s.wait.read(), FirstToken: s.first.read(), Answer: s.answer.read(),
		Preprocess: s.preprocess.read(), Vision: s.vision.read(), Prefill: s.prefill.read(),
		Step: s.steps.read(), Gap: s.gaps.read(), Host: s.host.read(),
		Batch: s.batches.read(), Images: s.images.read(),
		Prompt: s.prompt.Load(), Tokens: s.tokens.Load(),
		Steps: map[string]uint64{},
		Hits:  s.hits.Load(), Misses: s.misses.Load(), Early: s.early.Load(),
		Done: s.completed.Load(), Cancelled: s.cancelled.Load(), Failed: s.failed.Load(), Overloaded: s.overloaded.Load(),
		FailedRuns: s.failedRuns.Load(), WholeRows: s.wholeRows.Load(),
		Slots: int(s.slots.Load()), SlotsMost: int(s.slotsMost.Load()),
		MemoryUsed: s.memoryUsed.Load(), MemoryFree: s.memoryFree.Load(), Switch: int(s.switchAt.Load()),
	}
	s.mu.Lock()
	for i, n := range s.names {
		out.Steps[n] = s.bySet[i]
	}
	s.mu.Unlock()
	return out
}
