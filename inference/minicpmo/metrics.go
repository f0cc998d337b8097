package minicpmo

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
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

// newDistribution returns an empty distribution of n buckets that grow by a constant factor.
func newDistribution(low, factor float64, n int) Distribution {
	d := Distribution{Bounds: make([]float64, n), Counts: make([]uint64, n+1)}
	for i := range n {
		d.Bounds[i] = low
		low *= factor
	}
	return d
}

func (d *Distribution) add(v float64) {
	i, _ := slices.BinarySearch(d.Bounds, v)
	d.Counts[i]++
	d.Count++
	d.Sum += v
}

func (d *Distribution) took(t time.Duration) { d.add(t.Seconds()) }

// Stats are the counters of an engine since it was opened. Times are in seconds.
type Stats struct {
	// Wait is from an answer's arrival to its slot; FirstToken and Answer are
	// from the arrival to the first token and to the end.
	Wait, FirstToken, Answer Distribution
	// Preprocess is one picture on one core; Vision, Prefill and Step are one
	// run of the device. Gap is between two tokens of an answer. Host is from
	// the end of a decode step's run to the call of the next.
	Preprocess, Vision, Prefill, Step, Gap, Host Distribution
	// Batch is the number of answers in a step, Images the number of images in a vision run.
	Batch, Images Distribution
	// Prompt counts the prompt tokens that were fed, Tokens the generated tokens.
	Prompt, Tokens uint64
	// PrefixHits and PrefixMisses count the prompts whose beginning was or was not in the store, PrefixTokens the tokens copied from it.
	PrefixHits, PrefixMisses, PrefixTokens uint64
	// Steps counts the decode steps of each weight set.
	Steps map[string]uint64
	// Hits and Misses count lookups of pictures in the cache, Early the pictures embedded before a prompt showed them. Cached is the number
	// of images in the cache now.
	Hits, Misses, Early uint64
	Cached              int
	// Done, Cancelled, Failed and Overloaded count the answers that ended normally, were cancelled, failed, or were refused.
	Done, Cancelled, Failed, Overloaded uint64
	// FailedRuns counts failed runs of the device; WholeRows the rows read in full because the largest logits were not enough.
	FailedRuns, WholeRows uint64
	// Slots is the number of slots in use now, SlotsMost the maximum so far, SlotsAll the number of all slots. Waiting is the number of
	// answers that wait for a slot.
	Slots, SlotsMost, SlotsAll, Waiting int
	// LongTurns and LostTurns count spoken answers without a spoken end: too long, or after a failure.
	LongTurns, LostTurns uint64
	// VoiceSlots is the number of voice slots in use now, VoiceSlotsAll the number of answers that can be spoken at once.
	VoiceSlots, VoiceSlotsAll int
	// Busy is the device's working time for text, VoiceBusy its working time for voices; the two can overlap.
	Busy, VoiceBusy time.Duration
	// MemoryPlanned is the planned memory of the model, MemoryUsed the memory that loading used, MemoryFree the free memory of the device
	// after it, in bytes.
	MemoryPlanned, MemoryUsed, MemoryFree int64
	// Switch is the batch size from which the second weight set decodes; 0 means never.
	Switch int
	// OwnKernels is whether own CUDA kernels run the decode steps of few answers.
	OwnKernels bool
	// NoOwnKernels is the kind of the reason why they do not: off, bundle, card, nvrtc, lost, check or error; else it is empty.
	NoOwnKernels string
}

// distributions returns the distributions of times and of sizes.
func (s *Stats) distributions() (times, sizes []*Distribution) {
	return []*Distribution{
		&s.Wait, &s.FirstToken, &s.Answer, &s.Preprocess, &s.Vision, &s.Prefill, &s.Step, &s.Gap, &s.Host,
	}, []*Distribution{&s.Batch, &s.Images}
}

// counters collects Stats. Safe for concurrent use.
type counters struct {
	mu    sync.Mutex
	stats Stats
	sets  []string
}

func newCounters(sets []string) *counters {
	c := &counters{stats: Stats{Steps: map[string]uint64{}}, sets: sets}
	times, sizes := c.stats.distributions()
	for _, d := range times {
		*d = newDistribution(50e-6, 1.25, 64) // 50 us to 64 s
	}
	for _, d := range sizes {
		*d = newDistribution(1, 2, 9)
	}
	c.stats.Host = newDistribution(1e-6, 1.25, 64)
	for _, name := range sets {
		c.stats.Steps[name] = 0
	}
	return c
}

// count changes the counters.
func (c *counters) count(change func(s *Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

func (c *counters) step(rows, set int, took time.Duration) {
	c.count(func(s *Stats) {
		s.Step.took(took)
		s.Batch.add(float64(rows))
		if set < len(c.sets) {
			s.Steps[c.sets[set]]++
		}
	})
}

func (c *counters) held(n int) {
	c.count(func(s *Stats) { s.Slots, s.SlotsMost = n, max(n, s.SlotsMost) })
}

func (c *counters) ended(answer *cycle, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.stats
	switch {
	case err == nil:
		s.Done++
		s.Answer.took(answer.report.Total)
	case errors.Is(err, step.ErrCancelled) || errors.Is(err, ErrClosed):
		s.Cancelled++
	default:
		s.Failed++
	}
	if answer.Count > 0 {
		s.FirstToken.took(answer.report.FirstToken)
		s.Wait.took(answer.report.Wait)
	}
}

func (c *counters) read() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.stats
	times, sizes := out.distributions()
	for _, d := range slices.Concat(times, sizes) {
		d.Counts = slices.Clone(d.Counts)
	}
	out.Steps = maps.Clone(out.Steps)
	return out
}
