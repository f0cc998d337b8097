// Package sound is the camera's sound on its way to the viewers of the delayed
// picture: received, held back as long as the picture is, lowered under
// speech.
//
// A [Receiver] makes PCM of RTP packets, a [Line] holds it, and a [Player]
// reads the Line in the voice's own schedule and sends the sound alone and
// mixed with the voice. The package knows no room: packets come in and go out by
// calls.
//
// # What is aligned
//
// Sound keeps the picture's delay D, by the same two clocks. Where both tracks
// have RTCP sender reports, a sample is heard when the picture with its capture
// time is shown, so that lips match whatever each of them took on its way; without,
// each track's own smallest transit stands for its way. How far apart they are is
// [Stats.Offset].
//
// D slides while pictures play a little slower or faster; sound cannot do that
// unheard. So it stays where it is and follows in silence, where it repeats or
// leaves out some of that. When none comes it jumps, by a short crossfade: at once
// beyond half a second of difference, after ten seconds beyond 20 ms.
package sound

import (
	"math"
	"sync"
	"time"
)

const (
	// Rate of all PCM here, in Hz.
	Rate = 48000
	// spare is kept beyond what pictures may be held back, longest bounds one piece.
	spare, longest = 3 * Rate, Rate
	// block is the grain of silence: 10 ms.
	block = Rate / 100
	// silentRun is how many samples of silence there must be to move in: 100 ms.
	silentRun = Rate / 10
	// look bounds how far silence is looked for, in samples to either side.
	look = 2 * Rate
	// fade is the length of a crossfade: 10 ms.
	fade = Rate / 100
	// silenceRMS is -46 dBFS: a block below it is silence.
	silenceRMS = 164
	// leastDelay lets packets be late and out of order even where the picture is not held back.
	leastDelay = 60 * Rate / 1000
	// near is a difference that nothing is done about, close one that may stay for patience, far one that may not.
	near     = 5 * Rate / 1000
	closeBy  = 20 * Rate / 1000
	far      = Rate / 2
	patience = 10 * time.Second
	// maxLip bounds what sender reports may say about the ways of picture and sound: beyond, their clocks are not one.
	maxLip = 500 * time.Millisecond
	// maxDrift is how far arrival and media time may come apart within one stream before it is taken for a new one.
	maxDrift = 2 * Rate
	// unknownAfter is how long after its time a sample that did not come counts as silence.
	unknownAfter = 300 * Rate / 1000
	// attack and release are the times of the whole way down and up, when speech begins and ends.
	attack  = 50 * time.Millisecond
	release = 300 * time.Millisecond
	// gainStep is how often the gain changes on that way, in samples: each millisecond.
	gainStep = Rate / 1000
)

// Stats count what a Line did since the start.
type Stats struct {
	// Offset is by how much the sound is heard later than the picture with its capture time is shown; negative
	// when it is earlier.
	Offset time.Duration
	// Delay is how long after its arrival sound is heard now.
	Delay time.Duration
	// Reports is set when sender reports of both tracks are used.
	Reports bool
	// Moves is how often the delay followed the picture in silence, Jumps how often by a crossfade.
	Moves, Jumps uint64
	// Late counts samples that came after they should have been heard.
	Late uint64
}

// Line holds sound back. Its methods read no clock and are safe for concurrent use.
type Line struct {
	duck float64 // dB
	held int64   // samples that are kept

	mu   sync.Mutex
	ring []int16 // by position modulo its length
	loud []bool  // by block
	base time.Time
	end  int64 // position after the newest sample
	some bool  // anything came

	stream  uint32 // that Push was given last
	shift   int64  // position of media time 0
	drift   int64  // of arrival against position
	lag     time.Duration
	lagged  bool
	picture struct {
		known  bool
		delay  time.Duration
		lag    time.Duration
		lagged bool
	}

	reading bool
	cursor  int64 // position after the newest sample read
	behind  int64 // samples from arrival to hearing
	off     int64 // of that against the picture
	since   time.Time
	gain    float64 // dB, 0 or less

	stats Stats
}

// NewLine makes a Line for delays of up to most that lowers its sound by duckDB decibels under speech.
func NewLine(most time.Duration, duckDB float64) *Line {
	blocks := (count(max(0, most)) + spare) / block
	return &Line{duck: max(0, duckDB), held: blocks * block, ring: make([]int16, blocks*block), loud: make([]bool, blocks)}
}

// Piece is some decoded sound.
type Piece struct {
	// Stream changes when media time starts anew.
	Stream uint32
	// Media time of the first sample, in samples.
	Media int64
	// Arrival is that on the local clock, without the network's jitter.
	Arrival time.Time
	// NTP is its capture time by the sender's clock; zero when not known.
	NTP time.Time
	PCM []int16
}

// Push takes sound.
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
			l.end = min(l.end, arrived) // what the stream before has for later is not heard
		}
		l.stream, l.shift, l.drift = p.Stream, arrived-p.Media, 0
	}
	l.lag, l.lagged = p.Arrival.Sub(p.NTP), !p.NTP.IsZero()
	l.store(p.Media+l.shift, p.PCM)
}

// Picture takes the times of a shown picture: it arrived, was captured by the sender's
// clock (zero when not known) and is due.
func (l *Line) Picture(arrival, ntp, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picture.known, l.picture.delay = true, due.Sub(arrival)
	l.picture.lag, l.picture.lagged = arrival.Sub(ntp), !ntp.IsZero()
}

// Heard reports whether sound has ever come.
func (l *Line) Heard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.some
}

// Slack is how long a packet may be waited for.
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
	_, s.Reports = l.lip()
	return s
}

// place converts a moment to a position.
func (l *Line) place(t time.Time) int64 { return count(t.Sub(l.base)) }

// count converts a time to samples, span samples to their time.
func count(d time.Duration) int64 { return int64(d) * 6 / 125000 }

func span(n int64) time.Duration { return time.Duration(n * 125000 / 6) }

// store puts samples where they belong.
func (l *Line) store(at int64, pcm []int16) {
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
		l.judge(b)
	}
}

// clear makes silence of what did not come.
func (l *Line) clear(from, to int64) {
	for p := from; p < to; p++ {
		l.ring[l.index(p)] = 0
	}
	for b := floor(from); b < to; b += block {
		l.judge(b)
	}
}

// judge marks a block as loud or silent.
func (l *Line) judge(b int64) {
	sum := 0.0
	i := l.index(b)
	for _, v := range l.ring[i : i+block] {
		sum += float64(v) * float64(v)
	}
	l.loud[i/block] = sum > silenceRMS*silenceRMS*block
}

func (l *Line) index(p int64) int { return int(((p % l.held) + l.held) % l.held) }

// floor is the beginning of p's block.
func floor(p int64) int64 { return p - ((p%block)+block)%block }

// sample is what came for a position, or nothing.
func (l *Line) sample(p int64) int16 {
	if p >= l.end || p < l.end-l.held {
		return 0
	}
	return l.ring[l.index(p)]
}

// lip is how much longer the picture's way is than the sound's, by sender reports.
func (l *Line) lip() (time.Duration, bool) {
	if !l.lagged || !l.picture.lagged {
		return 0, false
	}
	d := l.picture.lag - l.lag
	return d, d.Abs() <= maxLip
}

// wanted is how many samples after its arrival sound should be heard.
func (l *Line) wanted() int64 {
	d := l.picture.delay
	if lip, ok := l.lip(); ok {
		d += lip
	}
	return max(leastDelay, count(d)) + l.drift
}

// Read makes the sound that is heard from a moment on, lowered when speech is set.
// Frames follow each other; one that was left out is skipped. some is false when
// there is nothing but silence.
func (l *Line) Read(at time.Time, dst []int16, speech bool) (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(dst)
	if !l.some || !l.picture.known {
		l.turn(dst, speech)
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
	l.turn(dst, speech)
	return some
}

// follow decides where to read: from is where it would have gone on, to where it goes on.
func (l *Line) follow(now int64, at time.Time) (from, to int64) {
	want := l.wanted()
	from = now - l.behind
	if !l.reading || from >= l.end+far || from < l.end-l.held {
		l.reading, l.behind, l.off = true, want, 0 // there is nothing to be heard yet, or not any more
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

// inSilence returns how far reading can move on (back when negative) without leaving the silence around p.
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

// turn follows the gain that is wanted.
func (l *Line) turn(dst []int16, speech bool) {
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
