// Package sound brings the camera's sound to the viewers of the delayed picture:
// received, delayed as long as the picture, lowered under speech.
//
// A [Receiver] decodes RTP packets, a [Line] delays the sound, and a [Player] reads
// the Line in the schedule of the voice and sends the sound alone and mixed with
// the voice. The package does not use LiveKit: packets go in and out by calls.
//
// # What is aligned
//
// Sound has the picture's delay D, by the same two clocks. Where both tracks have
// RTCP sender reports, a sample is heard when the picture with its capture time is
// shown (lip sync); otherwise each track's smallest transit is taken for its
// transit. [Stats.Offset] is the difference between the two.
//
// D changes while pictures play slightly slower or faster, which would be audible
// in sound. The sound therefore keeps its delay and follows in silence, by
// repeating or leaving out some of it. Without silence it jumps, by a short
// crossfade: at once for a difference of half a second or more, after ten seconds
// for more than 20 ms.
package sound

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"touchline/internal/ticks"
)

const (
	// Rate is the sample rate of all PCM in this package, in Hz.
	Rate = 48000
	// spare is kept beyond the longest delay; longest bounds one piece. In samples.
	spare, longest = 3 * Rate, Rate
	// block is the unit of silence detection: 10 ms.
	block = Rate / 100
	// silentRun is the shortest silence in which the delay may change: 100 ms.
	silentRun = Rate / 10
	// look bounds the search for silence, in samples to either side.
	look = 2 * Rate
	// fade is the length of a crossfade: 10 ms.
	fade = Rate / 100
	// silenceRMS is -46 dBFS: a block below it is silence.
	silenceRMS = 164
	// leastDelay allows for late packets and reordering even where the picture is not delayed.
	leastDelay = 60 * Rate / 1000
	// A difference up to near is ignored, one up to closeBy stays, one up to far may last for patience. In samples.
	near     = 5 * Rate / 1000
	closeBy  = 20 * Rate / 1000
	far      = Rate / 2
	patience = 10 * time.Second
	// maxLip bounds the difference of transit between picture and sound by sender reports; a larger one means different clocks.
	maxLip = 500 * time.Millisecond
	// maxDrift is the largest difference between arrival and media time within one stream; a larger one begins a new stream.
	maxDrift = 2 * Rate
	// unknownAfter is how long after its time a missing sample counts as silence.
	unknownAfter = 300 * Rate / 1000
	// attack and release are the times to lower the sound when speech begins and to raise it when speech ends.
	attack  = 50 * time.Millisecond
	release = 300 * time.Millisecond
	// gainStep is the interval of gain changes, in samples: 1 ms.
	gainStep = Rate / 1000
)

// Stats are the state and the running totals of a Line.
type Stats struct {
	// Offset is the time from the picture to the sound with the same capture time; negative when the sound is earlier.
	Offset time.Duration
	// Delay is the time from arrival to playback.
	Delay time.Duration
	// Reports is set when sender reports of both tracks are used.
	Reports bool
	// Moves and Jumps count the changes of delay: in silence, and by a crossfade.
	Moves, Jumps uint64
	// Late counts samples that arrived too late to be played.
	Late uint64
}

// picture is a picture's delay, its arrival, and its capture by the sender's clock if that is known.
type picture struct {
	delay        time.Duration
	arrival, ntp time.Time
}

// Line delays sound. Its methods read no clock and are safe for concurrent use.
type Line struct {
	duck float64 // dB
	held int64   // capacity in samples

	picture atomic.Pointer[picture] // the latest; nil before the first

	mu   sync.Mutex
	ring []int16 // by position modulo held; none before the first sound, which many cameras never send: 96 kB for a second
	loud []bool  // by block
	base time.Time
	end  int64 // position after the newest sample
	some bool  // sound was pushed

	stream  uint32    // of the latest piece
	shift   int64     // position of media time 0
	drift   int64     // of arrival against position
	arrival time.Time // of the latest piece
	ntp     time.Time // of its capture, zero if unknown
	reading bool
	cursor  int64     // position after the newest sample read
	behind  int64     // samples from arrival to hearing
	off     int64     // difference to the picture, in samples
	since   time.Time // of a difference larger than near
	gain    float64   // dB, 0 or less

	stats Stats
}

// NewLine makes a Line for delays up to most that lowers its sound by duckDB decibels under speech.
func NewLine(most time.Duration, duckDB float64) *Line {
	blocks := (count(max(0, most)) + spare) / block
	return &Line{duck: max(0, duckDB), held: blocks * block, loud: make([]bool, blocks)}
}

// Piece is decoded sound.
type Piece struct {
	// Stream changes when media time restarts.
	Stream uint32
	// Media is the media time of the first sample, in ticks of Rate.
	Media int64
	// Arrival is Media on the local clock, without network jitter.
	Arrival time.Time
	// NTP is its capture time by the sender's clock; zero when unknown.
	NTP time.Time
	PCM []int16
}

// Push adds sound.
func (l *Line) Push(p Piece) {
	if len(p.PCM) == 0 || len(p.PCM) > longest {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.some {
		l.some, l.base, l.stream = true, p.Arrival, p.Stream-1
	}
	arrived := l.place(p.Arrival)
	if l.drift = arrived - (p.Media + l.shift); p.Stream != l.stream || l.drift > maxDrift || l.drift < -maxDrift {
		if p.Stream != l.stream {
			l.end = min(l.end, arrived) // drops the rest of the previous stream
		}
		l.stream, l.shift, l.drift = p.Stream, arrived-p.Media, 0
	}
	l.arrival, l.ntp = p.Arrival, p.NTP
	l.store(p.Media+l.shift, p.PCM)
}

// Picture sets the times of a picture: its arrival, its capture by the sender's clock
// (zero when unknown) and when it is due.
func (l *Line) Picture(arrival, ntp, due time.Time) {
	l.picture.Store(&picture{due.Sub(arrival), arrival, ntp})
}

// Heard reports whether sound was ever pushed.
func (l *Line) Heard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.some
}

// Slack returns how late a packet may arrive and still be played.
func (l *Line) Slack() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return span(max(0, l.wanted()-leastDelay/2))
}

// Stats returns the counters and the present state.
func (l *Line) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Offset, s.Delay = span(l.off), span(l.behind)
	_, s.Reports = l.lip(l.picture.Load())
	return s
}

// place converts a time to a position.
func (l *Line) place(t time.Time) int64 { return count(t.Sub(l.base)) }

// count converts a duration to samples, span samples to a duration.
func count(d time.Duration) int64 { return ticks.Count(d, Rate) }

func span(n int64) time.Duration { return ticks.Duration(n, Rate) }

// store writes samples to the ring.
func (l *Line) store(at int64, pcm []int16) {
	if l.ring == nil {
		l.ring = make([]int16, l.held)
	}
	if at > l.end {
		l.clear(max(l.end, at-l.held), at)
	}
	for i, v := range pcm {
		l.ring[l.index(at+int64(i))] = v
	}
	stop := at + int64(len(pcm))
	l.end = max(l.end, stop)
	if l.reading && stop <= l.cursor {
		l.stats.Late += uint64(len(pcm))
	}
	for b := floor(at); b < stop; b += block {
		l.measure(b)
	}
}

// clear fills a gap with silence.
func (l *Line) clear(from, to int64) {
	for p := from; p < to; p++ {
		l.ring[l.index(p)] = 0
	}
	for b := floor(from); b < to; b += block {
		l.measure(b)
	}
}

// measure marks a block as loud or silent.
func (l *Line) measure(b int64) {
	sum := 0.0
	i := l.index(b)
	for _, v := range l.ring[i : i+block] {
		sum += float64(v) * float64(v)
	}
	l.loud[i/block] = sum > silenceRMS*silenceRMS*block
}

func (l *Line) index(p int64) int { return int(((p % l.held) + l.held) % l.held) }

// floor returns the start of p's block.
func floor(p int64) int64 { return p - ((p%block)+block)%block }

// sample returns the sample of a position, 0 if there is none.
func (l *Line) sample(p int64) int16 {
	if l.ring == nil || p >= l.end || p < l.end-l.held {
		return 0
	}
	return l.ring[l.index(p)]
}

// lip returns by how much the picture's transit exceeds the sound's, by sender reports. It compares times of one clock only: the
// wall clocks of the sender and of this machine may be set at any time.
func (l *Line) lip(p *picture) (time.Duration, bool) {
	if p == nil || l.ntp.IsZero() || p.ntp.IsZero() {
		return 0, false
	}
	d := p.arrival.Sub(l.arrival) - p.ntp.Sub(l.ntp)
	return d, d.Abs() <= maxLip
}

// wanted returns the delay from arrival to hearing that matches the picture, in samples.
func (l *Line) wanted() int64 {
	d, p := time.Duration(0), l.picture.Load()
	if p != nil {
		d = p.delay
	}
	if lip, ok := l.lip(p); ok {
		d += lip
	}
	return max(leastDelay, count(d)) + l.drift
}

// Read fills dst with the sound for playback from a given time on, lowered when speech is set.
// Calls are in order of time; a gap between them skips sound. some is false for
// silence.
func (l *Line) Read(at time.Time, dst []int16, speech bool) (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(dst)
	if !l.some || l.picture.Load() == nil {
		l.adjustGain(dst, speech)
		return false
	}
	now := l.place(at)
	from, to := l.follow(now, at)
	l.cursor = to + int64(len(dst))
	for i := range dst {
		p := to + int64(i)
		v := int32(l.sample(p))
		if from != to && i < fade {
			v = (v*int32(i) + int32(l.sample(from+int64(i)))*int32(fade-i)) / fade
		}
		dst[i] = int16(v)
		some = some || v != 0
	}
	l.adjustGain(dst, speech)
	return some
}

// follow returns where to read: from is the next position without a change of delay, to the one with it.
func (l *Line) follow(now int64, at time.Time) (from, to int64) {
	want := l.wanted()
	from = now - l.behind
	if !l.reading || from >= l.end+far || from < l.end-l.held {
		l.reading, l.behind, l.off = true, want, 0 // no sound yet, or no longer
		l.since = at
		return now - want, now - want
	}
	off := l.behind - want
	if size := max(off, -off); size <= near {
		l.since = at
	} else if move := l.inSilence(from, now, off); move != 0 && size-max(move, -move) <= far {
		l.behind -= move
		l.stats.Moves++
		l.since = at
	} else if size > far || size > closeBy && at.Sub(l.since) > patience {
		l.behind = want
		l.stats.Jumps++
		l.since = at
	}
	l.off = l.behind - want
	return from, now - l.behind
}

// inSilence returns how far reading can skip (repeat when negative) within the silence around p.
func (l *Line) inSilence(p, now, off int64) int64 {
	known := max(l.end, now-unknownAfter)
	silent := func(b int64) bool {
		switch {
		case b >= l.end:
			return b < known
		case b < l.end-l.held+block:
			return true
		}
		return !l.loud[l.index(b)/block]
	}
	if !silent(floor(p)) {
		return 0
	}
	first, stop := floor(p), floor(p)+block
	for p-first < look && silent(first-block) {
		first -= block
	}
	for stop-p < look && silent(stop) {
		stop += block
	}
	if stop-first < silentRun {
		return 0
	}
	if off > 0 {
		return max(0, min(off, stop-fade-block-p))
	}
	return min(0, max(off, first+fade-p))
}

// adjustGain moves the gain towards its target and applies it.
func (l *Line) adjustGain(dst []int16, speech bool) {
	target, step := 0.0, l.duck*float64(time.Millisecond)/float64(release)
	if speech {
		target, step = -l.duck, l.duck*float64(time.Millisecond)/float64(attack)
	}
	for i := 0; i < len(dst); i += gainStep {
		if l.gain > target {
			l.gain = max(target, l.gain-step)
		} else {
			l.gain = min(target, l.gain+step)
		}
		if l.gain == 0 {
			continue
		}
		factor := int32(math.Round(math.Pow(10, l.gain/20) * 32768))
		for j := i; j < min(i+gainStep, len(dst)); j++ {
			dst[j] = int16(int32(dst[j]) * factor >> 15)
		}
	}
}
