package source

import (
	"slices"
	"sync"
	"time"

	"touchline/media"
)

// State of a source.
type State uint8

// The states. A source stays Waiting during retries, until a picture comes.
const (
	Waiting    State = iota // not reachable, or no picture yet
	Connecting              // first attempt, or a new sender
	Live                    // sends pictures
	Stalled                 // connected, without a picture for some seconds
	Failed                  // no retry; see the reason
	Ended                   // at its end, or stopped
)

// String returns the state's name as the API writes it.
func (s State) String() string {
	names := [...]string{"waiting", "connecting", "live", "stalled", "failed", "ended"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Status of a source at one time.
type Status struct {
	State State
	// Since is when the state began.
	Since time.Time
	// Reason why the source is not live, without passwords; empty when it is.
	Reason string
	// Attempt counts the openings since the last picture.
	Attempt int
	// Codec, Width and Height of the newest access unit, zero before the first.
	Codec         media.Codec
	Width, Height int
	// Frames and KeyFrames count since the start. Changes counts changes of codec or size.
	Frames, KeyFrames, Changes uint64
	// KeyEvery is the newest interval between key frames without packet loss, in media time; 0 when unknown.
	KeyEvery time.Duration
	// FPS in access units a second and BitRate in bit/s, of the last second or two; 0 without pictures.
	FPS     float64
	BitRate int
	// Slow is set when key frames are more than KeyFrameLimit apart after two requests.
	Slow bool
	// Missing counts the lost video packets since the start; Lossy is set for repeated loss.
	Missing uint64
	Lossy   bool
	// Sound reports whether the source has sound.
	Sound bool
	// Advice names what the source does not show as it should.
	Advice string
}

// Tracker keeps a source's status. It reads no clock. All methods are safe for
// concurrent use.
type Tracker struct {
	notify func(Status)

	mu        sync.Mutex
	status    Status
	lastFrame time.Time
	due       time.Time     // of the next picture, zero when unknown
	began     time.Time     // of the latest opening
	pictures  int           // since then, up to known
	stalls    int           // in a row, before the interval was known
	interval  time.Duration // the longest of the newest pictures
	lastKey   time.Duration
	haveKey   bool
	epoch     uint32
	keys      keyWatch
	loss      lossWatch

	rateFrom  time.Time // start of the measurement
	rateCount int
	rateBytes int
}

const (
	// rateSpan is the length of a measurement of FPS and BitRate.
	rateSpan = time.Second
	// known is the number of pictures that tell the interval of a source.
	known = 5
	// maxLate bounds the wait for the next picture of a slow source.
	maxLate = time.Minute
)

// NewTracker returns a Tracker in state Waiting. notify is called for every change of
// state, codec or size, in order, on the goroutine that caused it; it may be nil.
func NewTracker(now time.Time, notify func(Status)) *Tracker {
	return &Tracker{notify: notify, status: Status{Since: now}, began: now, lastFrame: now}
}

// Status returns the present status.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Opening records an attempt to open the source.
func (t *Tracker) Opening(now time.Time) {
	t.change(func(s *Status) bool {
		t.began, t.due, t.pictures = now, time.Time{}, 0
		t.haveKey, s.Advice = false, ""
		t.keys.open()
		s.Attempt++
		return s.Reason == "" && t.enter(s, Connecting, "", now)
	})
}

// Frame records an access unit.
func (t *Tracker) Frame(f media.EncodedFrame, now time.Time) {
	t.change(func(s *Status) bool {
		changed := t.enter(s, Live, "", now)
		t.interval = max(now.Sub(t.from()), t.interval-t.interval/8)
		if t.pictures < known {
			if t.pictures++; t.pictures == known {
				t.stalls = 0
			}
		}
		t.lastFrame, t.due = now, time.Time{}
		s.Attempt = 0
		s.Frames++
		if f.Epoch != t.epoch {
			t.epoch, t.haveKey = f.Epoch, false
			t.keys.open()
		}
		t.rate(s, len(f.Data), now)
		if f.KeyFrame {
			s.KeyFrames++
			var every time.Duration
			if t.haveKey {
				every = f.PTS - t.lastKey
				if t.keys.gap.IsZero() {
					s.KeyEvery = every
				}
			}
			t.keys.key(now, every)
			t.haveKey, t.lastKey = true, f.PTS
		}
		if !t.haveKey || f.PTS-t.lastKey > KeyFrameLimit { // in media time: a slow machine reads a file late
			t.keys.check(now)
		}
		t.loss.check(now)
		if s.Slow != t.keys.slow || s.Lossy != t.loss.lossy {
			s.Slow, s.Lossy, changed = t.keys.slow, t.loss.lossy, true
		}
		size := f.Width > 0 && (f.Width != s.Width || f.Height != s.Height)
		if size || f.Codec != s.Codec {
			if s.Codec != media.CodecUnknown {
				s.Changes++
			}
			s.Codec = f.Codec
			if f.Width > 0 {
				s.Width, s.Height = f.Width, f.Height
			}
			changed = true
		}
		return changed
	})
}

// rate measures FPS and BitRate.
func (t *Tracker) rate(s *Status, size int, now time.Time) {
	if span := now.Sub(t.rateFrom); t.rateFrom.IsZero() || span >= rateSpan {
		if !t.rateFrom.IsZero() {
			s.FPS = float64(t.rateCount) / span.Seconds()
			s.BitRate = int(float64(8*t.rateBytes) / span.Seconds())
		}
		t.rateFrom, t.rateCount, t.rateBytes = now, 0, 0
	}
	t.rateCount++
	t.rateBytes += size
}

// KeyFrameAsked records a viewer's request for a key frame.
func (t *Tracker) KeyFrameAsked(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status.State == Live {
		t.keys.ask(now)
	}
}

// Missing records the number of video packets lost before the next frame.
func (t *Tracker) Missing(packets uint64, now time.Time) {
	t.change(func(s *Status) bool {
		s.Missing += packets
		t.keys.missing(now)
		t.loss.missing(now)
		changed := s.Lossy != t.loss.lossy
		s.Lossy = t.loss.lossy
		return changed
	})
}

// Heard records a packet of sound.
func (t *Tracker) Heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Sound = true
}

// Due records when the next picture is due.
func (t *Tracker) Due(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = at
}

// Advise records what the source does not show as it should.
func (t *Tracker) Advise(text string) {
	t.change(func(s *Status) bool {
		changed := s.Advice != text
		s.Advice = text
		return changed
	})
}

// Lost records that the connection ended and will be retried.
func (t *Tracker) Lost(reason string, now time.Time) {
	t.change(func(s *Status) bool { return t.enter(s, Waiting, reason, now) })
}

// Late returns how long the next picture may still take, or an error when it is overdue: by stall, or by first before the first picture
// of an opening, where 0 is no bound. A slow source has three of its own intervals, and twice the time after each stall that came before
// its interval was known.
func (t *Tracker) Late(stall, first time.Duration, now time.Time) (left time.Duration, err error) {
	t.change(func(s *Status) bool {
		limit := first
		if s.State == Live {
			limit = stall
		}
		if limit == 0 {
			left = maxLate
			return false
		}
		limit = max(limit, min(limit<<t.stalls, maxLate), min(3*t.interval, maxLate))
		if left = limit - now.Sub(t.from()); left > 0 {
			return false
		}
		if t.pictures < known {
			t.stalls++
			if stall<<t.stalls > maxLate {
				t.stalls = 0
			}
		}
		if s.State != Live {
			err = Errorf("connected, but no picture within %v", limit)
			return false
		}
		err = ErrStalled
		return t.enter(s, Stalled, err.Error(), now)
	})
	return left, err
}

// from returns the time from which on the next picture is awaited.
func (t *Tracker) from() time.Time {
	return slices.MaxFunc([]time.Time{t.began, t.lastFrame, t.due}, time.Time.Compare)
}

// Fail records a permanent failure.
func (t *Tracker) Fail(reason string, now time.Time) {
	t.change(func(s *Status) bool { return t.enter(s, Failed, reason, now) })
}

// End records the end of the source.
func (t *Tracker) End(now time.Time) {
	t.change(func(s *Status) bool { return t.enter(s, Ended, "", now) })
}

func (t *Tracker) enter(s *Status, state State, reason string, now time.Time) bool {
	if s.State == state && s.Reason == reason {
		return false
	}
	if s.State != state {
		s.Since = now
	}
	if state != Live {
		s.FPS, s.BitRate, t.rateFrom = 0, 0, time.Time{}
	}
	s.State, s.Reason = state, reason
	return true
}

// change runs f under the lock and notifies if it returns true.
func (t *Tracker) change(f func(*Status) bool) {
	t.mu.Lock()
	changed := f(&t.status)
	status := t.status
	t.mu.Unlock()
	if changed && t.notify != nil {
		t.notify(status)
	}
}
