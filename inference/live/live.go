// Package live turns a live stream of sound into text: it finds utterances, and emits interim texts and one final text for each.
//
// A Session transcribes one speaker: a socket of the transcription service, or a microphone of a room. It owns the utterances and
// their order, and knows neither transport nor protocol.
package live

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/vad"
	"touchline/internal/rescue"
	"touchline/internal/ticks"
	"touchline/internal/wake"
)

const (
	// usualEvery is the length of sound between two interim texts, and shortest the length before the first one.
	usualEvery = 500 * time.Millisecond
	// maxBacklog is the sound that may wait for its texts before Write waits, and maxEvents the events that may wait.
	maxBacklog = 60 * inference.RecognizerRate
	maxEvents  = 256
	// maxUtterance is the longest utterance.
	maxUtterance = 30 * time.Second
	// textTimeout bounds the wait for one text, wordsTimeout for the times of its words.
	textTimeout  = 60 * time.Second
	wordsTimeout = 500 * time.Millisecond
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events, in the order of an utterance; Interim occurs any number of times. The Final of an utterance comes before
// the Interim of the next.
const (
	// StartOfSpeech: speech began at Start. The sound of the utterance begins at Begin.
	StartOfSpeech Kind = iota
	// Interim is the text so far, which replaces the previous one.
	Interim
	// EndOfSpeech: the last speech was before End.
	EndOfSpeech
	// Final is the text of the utterance; "" without words. It ends the utterance.
	Final
	// Failed ends the utterance without a text; Err is the reason.
	Failed
)

// String is the kind's name.
func (k Kind) String() string {
	return [...]string{"start_of_speech", "interim", "end_of_speech", "final", "failed"}[k]
}

// Event is one step of an utterance. Times count from the first sample of the session.
type Event struct {
	Kind       Kind
	Utterance  int // counts from 1
	Begin      time.Duration
	Start, End time.Duration
	// Text of Interim and Final, with its language and words if they are known.
	Text, Language string
	Words          []inference.Word
	// Audio and Tokens are as in inference.Transcript, summed over the utterance.
	Audio, Tokens int
	// Lag of a Final is the time from the end of the utterance's sound to its text.
	Lag time.Duration
	// Refused is set in a Final whose utterance was never admitted.
	Refused bool
	Err     error
}

// Config are the settings of a Session.
type Config struct {
	Hearing inference.Hearing
	// Detector finds speech. With nil all sound is speech, and only Flush ends an utterance. The Session closes the detector.
	Detector vad.Detector
	Speech   vad.Config
	// Every is the sound between two interim texts; 0 is 500 ms, negative disables them.
	Every time.Duration
	// Words reports whether final texts need the times of their words, as far as the recognizer's Align knows them; nil is never.
	Words func() bool
	// Admit decides whether an utterance goes to the recognizer; nil admits all. It is called with the sample of the first speech
	// for each piece of sound until it returns true, and once more at the end. Before that the recognizer gets no sound. An
	// utterance that is not admitted has an empty Final. Admit is called within Write, Flush, Detect and Close, and must not call
	// the Session.
	Admit func(start int64, ended bool) bool
}

// Session is one stream of sound. One goroutine may call Write, Flush, Clear, Set and Detect while Run runs.
type Session struct {
	recognizer inference.Recognizer
	detector   vad.Detector
	stream     *vad.Stream
	every      int
	admit      func(start int64, ended bool) bool
	words      func() bool
	emit       func(Event)

	mu      sync.Mutex
	hearing inference.Hearing
	queue   []*speech // utterances without a final text, oldest first
	count   int
	events  []Event
	backlog int // samples in queue that were not sent to the recognizer
	closed  bool
	work    wake.Signal // a change for the recognizer, for the emitter, for a waiting Write
	news    wake.Signal
	room    wake.Signal
}

// speech is one utterance.
type speech struct {
	number   int
	hearing  inference.Hearing
	sound    []float32 // all of it
	consumed int       // samples sent to the recognizer
	begin    int64
	start    int64
	ended    bool
	end      int64 // of the speech
	endedAt  time.Time
	dropped  bool
	held     bool // not admitted yet
	// stop ends the wait for the interim text of a model that has no part in the final one; nil before.
	stop context.CancelFunc
}

// finish marks the end of the sound, and ends the wait for an interim text.
func (u *speech) finish() {
	u.ended = true
	if u.stop != nil {
		u.stop()
	}
}

// New returns a Session; Run runs it. emit is called by one goroutine at a time. While emit blocks, interim texts are replaced by
// newer ones.
func New(r inference.Recognizer, c Config, emit func(Event)) *Session {
	s := &Session{
		recognizer: r, detector: c.Detector, hearing: c.Hearing, admit: c.Admit, words: c.Words, emit: emit,
		every: int(ticks.Count(cmp.Or(c.Every, usualEvery), inference.RecognizerRate)),
		work:  make(chan struct{}, 1), news: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	s.hearing.Live = true
	c.Speech = bounded(c.Speech)
	s.stream = vad.NewStream(c.Detector, c.Speech, s.found)
	return s
}

// bounded keeps utterances shorter than the sound that may wait.
func bounded(c vad.Config) vad.Config {
	c.Most = min(cmp.Or(c.Most, maxUtterance), maxUtterance)
	return c
}

// ErrClosed is returned by Write after Close or the end of Run.
var ErrClosed = errors.New("the session has ended")

// Write adds sound of inference.RecognizerRate, in pieces of a second. It waits while the recognizer is a minute behind.
func (s *Session) Write(ctx context.Context, sound []float32) error {
	for {
		piece := sound[:min(len(sound), inference.RecognizerRate)]
		if err := s.write(ctx, piece); err != nil {
			return err
		}
		if sound = sound[len(piece):]; len(sound) == 0 {
			return nil
		}
	}
}

func (s *Session) write(ctx context.Context, piece []float32) error {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return ErrClosed
		}
		if s.backlog < maxBacklog && len(s.events) < maxEvents {
			break
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer s.mu.Unlock()
	return s.stream.Write(piece)
}

// Flush ends the utterance now, and reports whether there was one.
func (s *Session) Flush() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	before := s.count
	open := s.openLocked()
	err := s.stream.Flush()
	return open || s.count > before, err
}

// Clear drops the open utterance, which gets no final text.
func (s *Session) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream.Clear() && s.openLocked() {
		last := s.queue[len(s.queue)-1]
		last.dropped = true
		last.finish()
		s.backlog -= len(last.sound) - last.consumed
		s.work.Set()
	}
}

// Set changes the settings of the next utterances, and of the open one if the recognizer has no sound of it yet.
func (s *Session) Set(h inference.Hearing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearing = h
	s.hearing.Live = true
	if s.openLocked() {
		s.queue[len(s.queue)-1].hearing = s.hearing
	}
}

// Detect ends the open utterance and changes how the next ones are found. The Session closes the detector.
func (s *Session) Detect(d vad.Detector, c vad.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if d != nil {
			return errors.Join(ErrClosed, d.Close())
		}
		return ErrClosed
	}
	err := s.stream.Flush()
	old := s.detector
	s.detector = d
	s.stream.Reset(d, bounded(c))
	if old != nil {
		err = errors.Join(err, old.Close())
	}
	return err
}

// Open returns the number of the open utterance, whose StartOfSpeech may not have been emitted yet; 0 without one.
func (s *Session) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.openLocked() {
		return 0
	}
	return s.queue[len(s.queue)-1].number
}

// Pending returns the number of utterances without their final text.
func (s *Session) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Now returns the length of the sound so far.
func (s *Session) Now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at(s.stream.Now())
}

// Share returns the length of the sound that the detector has judged, and of the speech in it.
func (s *Session) Share() (all, speech time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, b := s.stream.Share()
	return at(a * vad.FrameSamples), at(b * vad.FrameSamples)
}

// Close ends the sound: the open utterance ends, and Run returns after the last final.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.stream.Flush()
	s.closed = true
	s.work.Set()
	s.room.Set()
	return err
}

// Run recognizes until Close, and then until the last utterance has its final, or until ctx ends.
func (s *Session) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done sync.WaitGroup
	finished := make(chan struct{})
	var panicked error
	done.Go(func() {
		if panicked = rescue.Call(func() error { s.deliver(finished); return nil }); panicked != nil {
			cancel()
		}
	})
	err := s.recognize(ctx)
	s.mu.Lock()
	s.closed = true
	s.room.Set()
	s.mu.Unlock()
	close(finished)
	done.Wait()
	if panicked != nil { // the cause of err
		err = panicked
	}
	if s.detector != nil {
		err = errors.Join(err, s.detector.Close())
	}
	return err
}

// at is the time of a sample.
func at(sample int64) time.Duration {
	return ticks.Duration(sample, inference.RecognizerRate)
}

// due reports whether an interim text is due at a length of sound, after one of a shorter length. The lengths are counted from the
// beginning of the utterance, because sound comes in whole frames.
func (s *Session) due(sound, sent int) bool { return s.every > 0 && sound/s.every > sent/s.every }

func (s *Session) openLocked() bool { return len(s.queue) > 0 && !s.queue[len(s.queue)-1].ended }

// found handles an event of the stream, under the lock.
func (s *Session) found(e vad.Event) {
	switch e.Kind {
	case vad.Began:
		s.count++
		u := &speech{number: s.count, hearing: s.hearing, begin: e.At, start: e.Speech, held: s.admit != nil}
		s.queue = append(s.queue, u)
		s.queueLocked(Event{Kind: StartOfSpeech, Utterance: u.number, Begin: at(e.At), Start: at(e.Speech)})
	case vad.Heard:
		u := s.queue[len(s.queue)-1]
		u.sound = append(u.sound, e.Sound...)
		s.backlog += len(e.Sound)
		u.held = u.held && !s.admit(u.start, false)
		if !u.held && s.due(len(u.sound), u.consumed) {
			s.work.Set()
		}
	case vad.Ended:
		u := s.queue[len(s.queue)-1]
		n := int(e.At - u.begin)
		s.backlog -= len(u.sound) - max(n, u.consumed) // the rest belongs to the next utterance
		u.sound = u.sound[:n]
		u.finish()
		u.end, u.endedAt = e.Speech, time.Now()
		u.held = u.held && !s.admit(u.start, true)
		s.queueLocked(Event{Kind: EndOfSpeech, Utterance: u.number, Begin: at(u.begin), Start: at(u.start), End: at(u.end)})
		s.work.Set()
	}
}

// queueLocked queues an event. An interim text replaces a queued one of the same utterance.
func (s *Session) queueLocked(e Event) {
	if n := len(s.events) - 1; n >= 0 && e.Kind == Interim && s.events[n].Kind == Interim && s.events[n].Utterance == e.Utterance {
		s.events[n] = e
	} else {
		s.events = append(s.events, e)
	}
	s.news.Set()
}

// deliver emits the events.
func (s *Session) deliver(finished <-chan struct{}) {
	for last := false; ; {
		s.mu.Lock()
		events := s.events
		s.events = nil
		s.room.Set()
		s.mu.Unlock()
		for _, e := range events {
			s.emit(e)
		}
		if len(events) > 0 {
			continue
		}
		if last {
			return
		}
		select {
		case <-s.news:
		case <-finished:
			last = true
		}
	}
}
