package vad

import (
	"math"
	"slices"
	"time"

	"touchline/inference"
	"touchline/internal/ticks"
)

// hysteresis is the distance of the probability below the threshold at which an utterance may end.
const hysteresis = 0.15

// cutReach is the length of the part, at the end of an utterance that is too long, in which it is cut.
const cutReach = 5 * time.Second

// Config are the settings of a Stream. The zero value of a setting is its default.
type Config struct {
	// Threshold is the least probability of speech; 0 is 0.5.
	Threshold float64
	// Pause is the silence that ends an utterance; 0 is 500 ms. Before is the length of the sound before the first speech that
	// belongs to an utterance; 0 is 300 ms, negative is none.
	Pause, Before time.Duration
	// Least is the shortest speech that begins an utterance, with breaks of less than 100 ms; 0 is any speech.
	Least time.Duration
	// Steady is the shortest speech without a break or a dip in loudness that begins an utterance; coughs and laughs have none of
	// SteadySpeech. 0 is any speech. Earlier speech belongs to the utterance, with breaks of less than Pause.
	Steady time.Duration
	// Most is the length at which an utterance is cut where it is quiet; 0 is 30 s.
	Most time.Duration
}

// maxBreak is the break in speech that is too short for an utterance, in samples.
const maxBreak = int64(100 * time.Millisecond * inference.RecognizerRate / time.Second)

// SteadySpeech is the usual Config.Steady to ignore coughs and laughs: vowels last longer in words than in laughs. It
// delays the beginning of an utterance by 64 ms, sometimes 400 ms.
const SteadySpeech = 224 * time.Millisecond

// A dip in loudness is a part of dipFrame samples whose level is below one before it and one after it. In steady speech a dip is at
// most maxDip (dB). The syllables of a laugh have deeper ones, as have words where a consonant closes the mouth.
const (
	dipFrame = FrameSamples / 2
	maxDip   = 5.0
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events. An utterance has Began, Heard any number of times, and Ended, in this order.
const (
	// Began begins an utterance at sample At; speech was found at Speech.
	Began Kind = iota
	// Heard is more sound of the utterance, from sample At on.
	Heard
	// Ended ends an utterance before sample At; the last speech was before Speech. With Cut the sound continues in the next
	// utterance: the samples from At on belong to that one, and come again in a Heard of it.
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
	steady   int   // frames; 0 for any speech
	maxBreak int64 // samples
	most     int
	emit     func(Event)

	rest   []float32 // less than a frame
	sound  []float32 // of the utterance, else the last sound before one
	at     int64     // of sound's first sample
	inside bool
	speech int64     // end of the last speech
	silent int64     // begin of the silence; -1 for none
	first  int64     // begin of the speech before an utterance; -1 for none
	levels []float64 // of the last steady frames of dipFrame in a row that are surely speech, in dB
	proved bool      // the speech from first on was steady
	frames int64
	active int64 // frames with speech
}

// NewStream returns a Stream that calls emit within its methods. Without a detector all sound is speech, and Flush ends an utterance.
func NewStream(d Detector, c Config, emit func(Event)) *Stream {
	or := func(v, usual time.Duration) int {
		if v == 0 {
			v = usual
		}
		return int(ticks.Count(max(v, 0), inference.RecognizerRate))
	}
	if c.Threshold == 0 {
		c.Threshold = 0.5
	}
	s := &Stream{
		detector: d, cfg: c, emit: emit, silent: -1, first: -1, least: int64(or(c.Least, 0)),
		before: or(c.Before, 300*time.Millisecond), pause: int64(or(c.Pause, 500*time.Millisecond)),
		most: max(or(c.Most, 30*time.Second), 2*FrameSamples), maxBreak: maxBreak,
	}
	if c.Steady > 0 {
		s.steady, s.maxBreak = (or(c.Steady, 0)+FrameSamples-1)/FrameSamples, max(s.maxBreak, s.pause)
	}
	return s
}

// surely is the least probability of a frame of steady speech: 0.9 with the usual threshold.
func (s *Stream) surely() float64 { return s.cfg.Threshold + 0.8*(1-s.cfg.Threshold) }

// prove updates proved with a frame.
func (s *Stream) prove(p float64, frame []float32) {
	if s.steady == 0 || s.detector == nil {
		s.proved = true
		return
	}
	if p < s.surely() {
		s.levels = s.levels[:0]
		return
	}
	for half := range slices.Chunk(frame, dipFrame) {
		sum := 0.0
		for _, v := range half {
			sum += float64(v) * float64(v)
		}
		s.levels = append(s.levels, 10*math.Log10(max(sum/dipFrame, 1e-10)))
	}
	n := s.steady * FrameSamples / dipFrame
	if len(s.levels) < n {
		return
	}
	s.levels = slices.Delete(s.levels, 0, len(s.levels)-n)
	s.proved = s.proved || dip(s.levels) <= maxDip
}

// dip returns the depth of the deepest dip: a level's distance below one before it and one after it.
func dip(levels []float64) float64 {
	deepest, before := 0.0, math.Inf(-1)
	for i, v := range levels {
		before = max(before, v)
		deepest = max(deepest, min(before, slices.Max(levels[i:]))-v)
	}
	return deepest
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

// Flush ends the utterance with all sound so far, also if the detector fails. The stream continues.
func (s *Stream) Flush() (err error) {
	if n := len(s.rest); n > 0 {
		frame := make([]float32, FrameSamples)
		copy(frame, s.rest)
		s.rest = s.rest[:0]
		err = s.frame(frame, n)
	}
	if s.inside {
		s.end()
	}
	return err
}

// Clear drops the open utterance and the sound before it, and reports whether there was one. The count of samples continues.
func (s *Stream) Clear() bool {
	s.at, s.sound, s.rest = s.Now(), s.sound[:0], s.rest[:0]
	was := s.inside
	s.inside, s.silent, s.first, s.proved, s.levels = false, -1, -1, false, s.levels[:0]
	return was
}

// frame handles a frame, whose first n samples are sound.
func (s *Stream) frame(frame []float32, n int) error {
	for i, v := range frame {
		if v != v || v > math.MaxInt16 || v < -math.MaxInt16 { // not a number, or out of any range of samples
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
	} else {
		s.prove(p, frame)
		if !s.begins(p, from, now) {
			return nil
		}
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

// begins reports whether an utterance begins with a frame.
func (s *Stream) begins(p float64, from, now int64) bool {
	switch {
	case p >= s.cfg.Threshold:
		if s.first < 0 {
			s.first = from
		}
		s.speech = now
	case s.first >= 0 && now-s.speech >= s.maxBreak:
		s.first = -1
	}
	if s.first < 0 {
		s.proved = false
		s.forget()
		return false
	}
	if s.detector != nil && (p < s.cfg.Threshold || now-s.first < s.least || !s.proved) {
		if drop := len(s.sound) - s.most; drop > 0 { // a long laugh
			s.drop(drop)
			s.first = max(s.first, s.at)
		}
		return false
	}
	if drop := int(s.first-s.at) - s.before; drop > 0 {
		s.drop(drop)
	}
	s.inside, s.silent = true, -1
	s.emit(Event{Kind: Began, At: s.at, Speech: s.first})
	s.emit(Event{Kind: Heard, At: s.at, Sound: s.sound})
	s.first, s.proved, s.levels = -1, false, s.levels[:0]
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

// cut ends an utterance that is too long at a quiet place, and begins the next one there.
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

// Reset changes the detector and the settings, as in NewStream. The count of samples continues.
func (s *Stream) Reset(d Detector, c Config) {
	now, emit := s.Now(), s.emit
	*s = *NewStream(d, c, emit)
	s.at = now
}
