package speech

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"touchline/internal/resample"
	"touchline/media"
)

const (
	block     = sampleRate / 100      // 10 ms, the grain of silence detection
	keep      = 2 * block             // silence kept before and after
	lateLead  = sampleRate / 200      // of it, kept before a late utterance
	onsetSpan = sampleRate / 10       // the onset lies at most this far behind the first audible block
	maxHeld   = 180 * sampleRate      // bound of one utterance's unplayed audio
	maxQueue  = 64                    // bound of utterances waiting to play
	fadeLen   = 8 * sampleRate / 1000 // length of the fade of a cut

	// silenceRMS is -50 dBFS: a 10 ms block below it is silence.
	silenceRMS = 104
	// onsetLevel is -40 dBFS, RMS over 10 ms and then for the sample itself.
	onsetLevel = 328
)

// ErrEnded is returned by Write after End or Cut.
var ErrEnded = errors.New("the utterance has ended; make a new one")

// ErrTooLong is returned by Write when three minutes of audio are queued.
var ErrTooLong = errors.New("180 s of audio are queued; write it in step with the playback")

// Events are called from the goroutine of Writer.Run after the packet was written;
// they must not block. Any may be nil.
type Events struct {
	// Started: the packet with the onset was written. onset is the time of hearing
	// (see the package comment).
	Started func(onset time.Time)
	// Slipped: frames were skipped or the audio came too late, and the rest is played
	// later by lost in total since the onset. Pauses do not count.
	Slipped func(lost time.Duration)
	// Ended: the packet with the last audible sample was written. end is when that
	// sample has been played. cut is set when it was stopped before its end.
	Ended func(end time.Time, cut bool)
}

// Utterance is one utterance of the voice track. Utterances play in the order of
// Start; one that is started while another plays waits for it. All methods are
// safe for concurrent use and do not block for long.
//
// Silence is detected in blocks of 10 ms, at -50 dBFS RMS. Sound before the first
// louder block is cut off except for 20 ms, so that a soft beginning (an h, an f)
// is not clipped, and so is sound after the last one. The onset is the first sample
// of -40 dBFS in the first 10 ms of -40 dBFS RMS, at most 100 ms after the first
// block, or else the beginning of that block.
type Utterance struct {
	w  *Writer
	ev Events

	// Writers only, one at a time.
	in struct {
		sync.Mutex
		rate    int
		rs      *resample.Resampler[int16]
		scratch []int16
	}

	// The rest is guarded by w.mu. Positions count 48 kHz samples from the
	// first one ever written.
	buf     []int16 // not yet played, from base on
	base    int64
	blocked int64 // end of the detection so far: a multiple of block, or the end after End
	audible int64 // end of the last audible block
	first   int64 // first audible block; -1: none yet
	onset   int64 // -1: not known yet
	scan    int64 // the onset is not before this
	cursor  int64 // next sample to play
	offset  int64 // place in the schedule minus position, of the latest render
	origin  int64 // offset at the onset, plus all pauses since
	heard   int64 // place of the end of the last sound rendered
	at      time.Time
	state   state
	ended   bool // no more audio comes
	cut     bool
	began   bool // the onset has been sent
	starved bool // in an underrun
	paused  bool // by Pause
	rests   bool // the pause has begun: nothing sounds
}

type state uint8

const (
	stateWaiting state = iota // not started
	stateQueued
	statePlaying
	stateDone
)

// Write appends audio of any rate from 4 to 192 kHz and returns the audible time so far: from
// the onset to the end of the last sound. Silence at the end is held back until
// more sound follows or End is called. It fails with ErrEnded, ErrTooLong, or for
// another rate.
func (u *Utterance) Write(pcm media.PCM) (audible time.Duration, err error) {
	u.in.Lock()
	defer u.in.Unlock()
	if u.in.rs == nil || u.in.rate != pcm.Rate {
		if err := u.retune(pcm.Rate); err != nil {
			return u.audibleTime(), err
		}
	}
	// Pieces of 100 ms hold the lock for a short time.
	step := max(pcm.Rate/10, 1)
	for from := 0; from < len(pcm.Samples); from += step {
		u.in.scratch = u.in.rs.Append(u.in.scratch[:0], pcm.Samples[from:min(from+step, len(pcm.Samples))])
		if err := u.append(u.in.scratch); err != nil {
			return u.audibleTime(), err
		}
	}
	return u.audibleTime(), nil
}

// retune ends the current conversion and begins one from another rate.
func (u *Utterance) retune(rate int) error {
	f, err := u.w.filterFor(rate)
	if err != nil {
		return err
	}
	if u.in.rs != nil {
		u.in.scratch = u.in.rs.Flush(u.in.scratch[:0])
		if err := u.append(u.in.scratch); err != nil {
			return err
		}
	}
	u.in.rate, u.in.rs = rate, resample.New[int16](f)
	return nil
}

func (u *Utterance) append(samples []int16) error {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if u.ended {
		return ErrEnded
	}
	if len(u.buf)+len(samples) > maxHeld {
		return ErrTooLong
	}
	u.buf = append(u.buf, samples...)
	u.detect()
	return nil
}

// detect finds where sound begins and ends in the new audio.
func (u *Utterance) detect() {
	total := u.base + int64(len(u.buf))
	for u.blocked < total {
		end := min(u.blocked+block, total)
		if end < u.blocked+block && !u.ended {
			break
		}
		loud := rms(u.buf[u.blocked-u.base:end-u.base]) >= silenceRMS
		if loud {
			u.audible = end
			if end <= u.cursor {
				u.heard = u.offset + end // played before it was detected
			}
			if u.first < 0 {
				u.first = u.blocked
			}
		}
		if u.first >= 0 && u.onset < 0 {
			u.findOnset(end)
		}
		u.blocked = end
	}
	if u.first < 0 {
		// Of leading silence, only the possible lead is kept.
		u.dropBefore(u.blocked - keep)
		u.cursor = u.base
	}
	if u.ended && u.first >= 0 && u.onset < 0 {
		u.onset = u.first
	}
}

// findOnset looks for the onset in the audio up to end.
func (u *Utterance) findOnset(end int64) {
	limit := min(end, u.first+onsetSpan)
	for u.scan = max(u.scan, u.first); u.scan+block <= limit; u.scan += block / 10 {
		window := u.buf[u.scan-u.base:][:block]
		if rms(window) < onsetLevel {
			continue
		}
		for i, s := range window {
			if s >= onsetLevel || s <= -onsetLevel {
				u.onset = u.scan + int64(i)
				return
			}
		}
	}
	if end >= u.first+onsetSpan {
		u.onset = u.first
	}
}

func (u *Utterance) dropBefore(pos int64) {
	n := min(pos-u.base, int64(len(u.buf)))
	if n <= 0 {
		return
	}
	u.buf = u.buf[:copy(u.buf, u.buf[n:])]
	u.base += n
}

func rms(s []int16) float64 {
	if len(s) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range s {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(s)))
}

// audibleTime is the time from the onset to the end of the last sound so far.
func (u *Utterance) audibleTime() time.Duration {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	return u.audibleLocked()
}

func (u *Utterance) audibleLocked() time.Duration {
	if u.onset < 0 {
		return 0
	}
	return duration(u.audible - u.onset)
}

// LeadTrimmed returns the duration of the written audio before the onset: the
// silence cut off, the 20 ms kept of it, and a soft beginning. A word at time t of
// the written audio is audible at t - LeadTrimmed after Started's onset. Before the
// first sound it is the duration of all audio.
func (u *Utterance) LeadTrimmed() time.Duration {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	switch {
	case u.onset >= 0:
		return duration(u.onset)
	case u.first >= 0:
		return duration(u.first)
	}
	return duration(u.blocked)
}

// End marks the audio as complete and returns its audible time. A silent utterance
// is dropped: neither event is called.
func (u *Utterance) End() time.Duration {
	u.in.Lock()
	defer u.in.Unlock()
	if u.in.rs != nil {
		u.in.scratch = u.in.rs.Flush(u.in.scratch[:0])
		_ = u.append(u.in.scratch) // if it is too long or has ended, the audio so far is played
		u.in.rs, u.in.scratch, u.in.rate = nil, nil, 0
	}
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if !u.ended {
		u.ended = true
		u.detect()
	}
	return u.audibleLocked()
}

// Start queues the utterance: its onset is audible (see the package comment) at the
// given time, exact to the sample. If that is not possible, it plays as soon as
// possible, with the silence before it shortened to 5 ms. Starting again does nothing.
func (u *Utterance) Start(at time.Time) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if u.state != stateWaiting {
		return
	}
	if len(u.w.queue) >= maxQueue {
		u.state = stateDone
		u.ended = true
		u.w.stats.Refused++
		return
	}
	u.state = stateQueued
	u.at = at
	u.w.queue = append(u.w.queue, u)
}

// Cut stops the utterance: silent within 40 ms, by a fade of 8 ms. Ended follows if
// Started was called; an utterance that is not audible yet is dropped without events.
func (u *Utterance) Cut() {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if u.state == stateDone {
		return
	}
	u.cut, u.ended = true, true
	if u.state != statePlaying {
		u.finish()
	}
}

// Pause silences the utterance within 40 ms, by a fade of 8 ms; utterances behind it wait. Resume continues at the same position.
// One that does not play yet does not begin.
func (u *Utterance) Pause() {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.paused = true
}

// Resume ends a pause within 40 ms.
func (u *Utterance) Resume() {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.paused = false
}

// waits reports whether the utterance keeps its place in silence.
func (u *Utterance) waits() bool { return u.paused && !u.cut && (u.rests || u.state != statePlaying) }

// silentEnd reports whether the utterance has ended without sound.
func (u *Utterance) silentEnd() bool { return u.ended && u.first < 0 }

// begin starts playing when the onset is known: onset is its place, now the earliest
// free place, limit the end of the frame. It returns the place of the first sample.
func (u *Utterance) begin(onset, now, limit int64) (from int64, ok bool) {
	if u.onset < 0 {
		return 0, false
	}
	lead := max(u.base, u.first-keep)
	from = onset - (u.onset - lead)
	if from >= limit {
		return 0, false // not in this frame
	}
	u.cursor = lead
	if late := now - from; late > 0 {
		sound := u.first
		if u.onset-u.first < block {
			sound = u.onset
		}
		u.cursor += min(late, max(0, sound-lateLead-lead))
		from = now
	}
	u.state = statePlaying
	return from, true
}

// render copies the due samples to dst, whose first sample's place is at. more is
// set when the utterance goes on after them.
func (u *Utterance) render(dst []int16, at int64) (n int, more bool) {
	end := u.base + int64(len(u.buf))
	if u.ended && !u.cut {
		end = min(end, u.audible+keep)
	}
	if u.paused && !u.cut && (u.cursor < end || !u.ended) {
		return u.rest(dst, at, end), true
	}
	switch {
	case u.cut && u.rests:
		end = u.cursor
	case u.cut:
		end = min(end, u.cursor+fadeLen)
	}
	n = copy(dst, u.buf[u.cursor-u.base:max(end, u.cursor)-u.base])
	if u.cut {
		fade(dst[:n])
		end = u.cursor + int64(n) // the rest is not played
	}
	next := u.cursor + int64(n)
	w := u.w
	if n > 0 {
		u.slip(at - u.cursor)
		u.starved = false
	}
	if u.rests && n > 0 {
		rise(dst[:min(n, fadeLen)])
		u.rests = false
	}
	frame := at - int64(frameLen-len(dst)) // place of the frame's first sample
	if u.onset >= u.cursor && u.onset < next {
		u.began, u.origin = true, u.offset
		w.events = append(w.events, event{u: u, place: int(u.offset + u.onset - frame)})
	}
	if u.audible > u.cursor || u.cut {
		u.heard = u.offset + min(u.audible, next)
	}
	u.cursor = next
	if next < end || !u.ended {
		if next >= end && n < len(dst) && !u.starved {
			u.starved = true
			w.stats.Underruns++
		}
		// Played sound is dropped a second at a time.
		if old := min(u.cursor, u.blocked); old-u.base > sampleRate {
			u.dropBefore(old)
		}
		return n, true
	}
	if u.began {
		w.events = append(w.events, event{u: u, place: int(u.heard - frame), end: true, cut: u.cut})
	}
	u.finish()
	return n, false
}

// slip moves the utterance in the schedule; a move after the onset that is no pause is lost time.
func (u *Utterance) slip(offset int64) {
	moved := offset - u.offset
	u.offset = offset
	switch {
	case !u.began || moved == 0:
	case u.rests:
		u.origin += moved
	default:
		u.w.events = append(u.w.events, event{u: u, lost: duration(offset - u.origin)})
	}
}

// rest begins a pause. The sound that fades out is repeated after it.
func (u *Utterance) rest(dst []int16, at, end int64) (n int) {
	n = copy(dst[:min(fadeLen, len(dst))], u.buf[u.cursor-u.base:max(end, u.cursor)-u.base])
	fade(dst[:n])
	u.rests = true
	if u.audible > u.cursor {
		u.heard = at + int64(n)
	}
	return n
}

// rise fades the sound in within s.
func rise(s []int16) {
	for i := range s {
		s[i] = int16(int32(s[i]) * int32(i+1) / int32(len(s)+1))
	}
}

// fade fades the sound out within s.
func fade(s []int16) {
	for i := range s {
		s[i] = int16(int32(s[i]) * int32(len(s)-i) / int32(len(s)+1))
	}
}

// finish removes the utterance from the queue and frees its audio.
func (u *Utterance) finish() {
	u.state = stateDone
	u.ended = true
	u.buf = nil
	u.base = u.blocked
	u.w.queue = slices.DeleteFunc(u.w.queue, func(q *Utterance) bool { return q == u })
}
