package vad

import (
	"math"
	"time"

	"touchline/inference"
)

// hysteresis is how far below its threshold the probability must fall before an utterance may end.
const hysteresis = 0.15

// cutReach is the end of an utterance that is too long in which its cut is searched.
const cutReach = 5 * time.Second

// Config are the settings of a Stream. The zero value of a setting is its default.
type Config struct {
	// Threshold is the probability from which on an utterance begins; 0 is 0.5.
	Threshold float64
	// Pause ends an utterance; 0 is 500 ms. Before is the sound before the first speech that belongs to it; 0 is 300 ms,
	// negative is none.
	Pause, Before time.Duration
	// Least is how long speech must last until there is an utterance, with breaks of less than 100 ms; 0 is any speech.
	Least time.Duration
	// Most is the length at which an utterance is cut where it is quiet; 0 is 30 s.
	Most time.Duration
}

// maxBreak is the break in speech that is too short for an utterance, in samples.
const maxBreak = int64(100 * time.Millisecond * inference.RecognizerRate / time.Second)

// Kind is the kind of an Event.
type Kind int

// The kinds of events. Those of an utterance are Began, Heard..., Ended, and so on in turn.
const (
	// Began begins an utterance at sample At; speech was found at Speech.
	Began Kind = iota
	// Heard is more sound of the utterance, from sample At on.
	Heard
	// Ended ends an utterance before sample At; the last speech was before Speech. With Cut the sound goes on in the next
	// utterance, and what was Heard from At on does not belong to this one: it is Heard again.
	Ended
)

// Event is one step of an utterance.
type Event struct {
	Kind       Kind
	At, Speech int64     // samples from the begin of the stream
	Sound      []float32 // of Heard; valid until the next call
	Cut        bool
}

// Stream cuts sound into utterances. Not safe for concurrent use.
type Stream struct {
	detector Detector
	cfg      Config
	before   int
	pause    int64
	least    int64
	most     int
	emit     func(Event)

	rest   []float32 // less than a frame
	sound  []float32 // of the utterance, else the last sound before one
	at     int64     // of sound's first sample
	inside bool
	speech int64 // end of the last speech
	silent int64 // begin of the silence; -1 for none
	first  int64 // begin of the speech before an utterance; -1 for none
	frames int64
	active int64 // frames with speech
}

// NewStream returns a Stream that calls emit from within its methods. Without a detector all sound is speech, and Flush ends it.
func NewStream(d Detector, c Config, emit func(Event)) *Stream {
	or := func(v, usual time.Duration) int {
		if v == 0 {
			v = usual
		}
		return int(max(v, 0) * inference.RecognizerRate / time.Second)
	}
	if c.Threshold == 0 {
		c.Threshold = 0.5
	}
	return &Stream{
		detector: d, cfg: c, emit: emit, silent: -1, first: -1, least: int64(or(c.Least, 0)),
		before: or(c.Before, 300*time.Millisecond), pause: int64(or(c.Pause, 500*time.Millisecond)),
		most: max(or(c.Most, 30*time.Second), 2*FrameSamples),
	}
}

// Share returns the frames so far, and how many of them were speech.
func (s *Stream) Share() (frames, speech int64) { return s.frames, s.active }

// Now returns the number of samples written.
func (s *Stream) Now() int64 { return s.at + int64(len(s.sound)+len(s.rest)) }

// Write adds sound of inference.RecognizerRate.
func (s *Stream) Write(sound []float32) error {
	for len(sound) > 0 {
		n := min(FrameSamples-len(s.rest), len(sound))
		s.rest, sound = append(s.rest, sound[:n]...), sound[n:]
		if len(s.rest) < FrameSamples {
			return nil
		}
		frame := s.rest
		s.rest = s.rest[:0]
		if err := s.frame(frame, FrameSamples); err != nil {
			return err
		}
	}
	return nil
}

// Flush ends the utterance with all sound so far. The stream goes on.
func (s *Stream) Flush() error {
	if n := len(s.rest); n > 0 {
		frame := make([]float32, FrameSamples)
		copy(frame, s.rest)
		s.rest = s.rest[:0]
		if err := s.frame(frame, n); err != nil {
			return err
		}
	}
	if s.inside {
		s.end()
	}
	return nil
}

// Clear forgets the utterance and the sound before it, and returns whether there was one. Time goes on.
func (s *Stream) Clear() bool {
	s.at, s.sound, s.rest = s.Now(), s.sound[:0], s.rest[:0]
	was := s.inside
	s.inside, s.silent, s.first = false, -1, -1
	return was
}

// frame handles a frame, whose first n samples are sound.
func (s *Stream) frame(frame []float32, n int) error {
	for i, v := range frame {
		if v != v || v > math.MaxInt16 || v < -math.MaxInt16 { // no number, or none of sound
			frame[i] = 0
		}
	}
	p := 1.0
	if s.detector != nil {
		var err error
		if p, err = s.detector.Detect(frame); err != nil {
			return err
		}
	}
	s.frames++
	speech := p >= s.cfg.Threshold
	if speech {
		s.active++
	}
	from := s.at + int64(len(s.sound))
	s.sound = append(s.sound, frame[:n]...)
	now := from + int64(n)
	if s.inside {
		s.emit(Event{Kind: Heard, At: from, Sound: s.sound[len(s.sound)-n:]})
	} else if !s.begins(p, from, now) {
		return nil
	}
	switch {
	case speech:
		s.speech, s.silent = now, -1
	case p < s.cfg.Threshold-hysteresis:
		if s.silent < 0 {
			s.silent = from
		}
		if now-s.silent >= s.pause {
			s.end()
			return nil
		}
	}
	for len(s.sound) >= s.most {
		s.cut()
	}
	return nil
}

// begins reports whether an utterance begins, by a frame outside of one.
func (s *Stream) begins(p float64, from, now int64) bool {
	switch {
	case p >= s.cfg.Threshold:
		if s.first < 0 {
			s.first = from
		}
		s.speech = now
	case s.first >= 0 && now-s.speech >= maxBreak:
		s.first = -1
	}
	if s.first < 0 {
		s.forget()
		return false
	}
	if s.detector != nil && (p < s.cfg.Threshold || now-s.first < s.least) {
		return false
	}
	if drop := int(s.first-s.at) - s.before; drop > 0 {
		s.drop(drop)
	}
	s.inside, s.silent = true, -1
	s.emit(Event{Kind: Began, At: s.at, Speech: s.first})
	s.emit(Event{Kind: Heard, At: s.at, Sound: s.sound})
	s.first = -1
	return true
}

// forget keeps the last sound before an utterance.
func (s *Stream) forget() {
	if drop := len(s.sound) - s.before - FrameSamples; drop > 0 {
		s.drop(drop)
	}
}

func (s *Stream) drop(n int) {
	s.at += int64(n)
	s.sound = s.sound[:copy(s.sound, s.sound[n:])]
}

func (s *Stream) end() {
	now := s.at + int64(len(s.sound))
	s.emit(Event{Kind: Ended, At: now, Speech: min(s.speech, now)})
	s.at, s.sound, s.inside, s.silent = now, s.sound[:0], false, -1
}

// cut ends an utterance that is too long where it is quiet, and begins the next one there.
func (s *Stream) cut() {
	reach := min(int(cutReach*inference.RecognizerRate/time.Second), s.most/2)
	n := s.most - reach
	n = max(1, n+inference.Quietest(s.sound[n:s.most]))
	at := s.at + int64(n)
	s.emit(Event{Kind: Ended, At: at, Speech: min(s.speech, at), Cut: true})
	s.drop(n)
	s.emit(Event{Kind: Began, At: at, Speech: at})
	if len(s.sound) > 0 {
		s.emit(Event{Kind: Heard, At: at, Sound: s.sound})
	}
}

// Reset changes detector and settings, as NewStream. Time goes on.
func (s *Stream) Reset(d Detector, c Config) {
	now, emit := s.Now(), s.emit
	*s = *NewStream(d, c, emit)
	s.at = now
}
