// Package live turns a live stream of sound into text: utterances that begin and end by themselves, with texts while they are
// spoken and one final text each.
//
// A Session hears one speaker: a socket of the transcription service, or a microphone of a room. It owns the utterances and
// their order, and knows neither transport nor protocol.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/vad"
	"touchline/internal/wake"
)

const (
	// usualEvery is the sound between two interim texts, and shortest that of the first one.
	usualEvery = 500 * time.Millisecond
	// maxBacklog is the sound that may wait for its texts before Write waits, and maxEvents the events that may wait.
	maxBacklog = 60 * inference.RecognizerRate
	maxEvents  = 256
	// maxUtterance is the longest utterance.
	maxUtterance = 30 * time.Second
	// textTimeout bounds the wait for one text.
	textTimeout = 60 * time.Second
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events. Those of an utterance come in this order, Interim any number of times; the Final of one comes before the
// Interim of the next.
const (
	// StartOfSpeech: somebody began to speak at Start. The sound of the utterance begins at Begin.
	StartOfSpeech Kind = iota
	// Interim is the text so far, which replaces the one before.
	Interim
	// EndOfSpeech: the last speech was before End.
	EndOfSpeech
	// Final is the text of the utterance; "" where nothing was said. It ends the utterance.
	Final
	// Failed ends the utterance without a text: Err says why.
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
	// Text of Interim and Final, with its language and words where they are known.
	Text, Language string
	Words          []inference.Word
	// Audio and Tokens are those of inference.Transcript, summed over the utterance.
	Audio, Tokens int
	// Lag of a Final is from the end of the utterance's sound to its text.
	Lag time.Duration
	// Refused is set in a Final whose utterance was never admitted.
	Refused bool
	Err     error
}

// Config are the settings of a Session.
type Config struct {
	Hearing inference.Hearing
	// Detector finds speech; nil hears everything, and only Flush ends an utterance. The Session closes it.
	Detector vad.Detector
	Speech   vad.Config
	// Every is the sound between two interim texts; 0 is 500 ms, negative makes none.
	Every time.Duration
	// Admit decides whether the recognizer may hear an utterance; nil admits all. It is asked whenever sound comes, with the sample of
	// the first speech, until it returns true, and once more at the end. The recognizer hears nothing before. An utterance that is not
	// admitted has an empty Final. Admit is called from within Write, Flush, Detect and Close, and must not call the Session.
	Admit func(start int64, ended bool) bool
}

// Session is one stream of sound. Write, Flush, Clear, Set and Detect may be called by one goroutine beside Run.
type Session struct {
	recognizer inference.Recognizer
	detector   vad.Detector
	stream     *vad.Stream
	every      int
	admit      func(start int64, ended bool) bool
	emit       func(Event)

	mu      sync.Mutex
	hearing inference.Hearing
	queue   []*speech // utterances whose final is missing, oldest first
	count   int
	events  []Event
	backlog int // samples in queue that were not heard
	closed  bool
	work    wake.Signal // a change for the recognizer, for the emitter, for a waiting Write
	news    wake.Signal
	room    wake.Signal
}

// speech is one utterance.
type speech struct {
	number  int
	hearing inference.Hearing
	sound   []float32 // all of it
	heard   int       // samples that the recognizer has
	begin   int64
	start   int64
	ended   bool
	end     int64 // of the speech
	endedAt time.Time
	dropped bool
	held    bool // it is not admitted
}

// New returns a Session, which Run runs. emit is called by one goroutine at a time, and may wait: then interim texts are left out.
func New(r inference.Recognizer, c Config, emit func(Event)) *Session {
	s := &Session{
		recognizer: r, detector: c.Detector, hearing: c.Hearing, admit: c.Admit, emit: emit,
		every: int(cmp.Or(c.Every, usualEvery) * inference.RecognizerRate / time.Second),
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

// Write adds sound of inference.RecognizerRate. It waits while the recognizer is a minute behind.
func (s *Session) Write(ctx context.Context, sound []float32) error {
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
	return s.stream.Write(sound)
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

// Clear forgets the utterance: it gets no final.
func (s *Session) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream.Clear() && s.openLocked() {
		last := s.queue[len(s.queue)-1]
		last.dropped, last.ended = true, true
		s.backlog -= len(last.sound) - last.heard
		s.work.Set()
	}
}

// Set changes how the next utterances are heard, and the open one if the recognizer has heard nothing of it.
func (s *Session) Set(h inference.Hearing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearing = h
	s.hearing.Live = true
	if s.openLocked() {
		s.queue[len(s.queue)-1].hearing = s.hearing
	}
}

// listen opens an utterance at the recognizer.
func (s *Session) listen(ctx context.Context, u *speech) (inference.Utterance, error) {
	s.mu.Lock()
	h := u.hearing
	s.mu.Unlock()
	return s.recognizer.Listen(ctx, h)
}

// Detect changes how utterances are found, after ending the one that is open. The Session closes the detector.
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

// Now is the length of the sound so far, and Share how much of it was speech.
func (s *Session) Now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at(s.stream.Now())
}

// Share returns the length of the sound that was judged, and of the speech in it.
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
	done.Go(func() { s.deliver(finished) })
	err := s.recognize(ctx)
	s.mu.Lock()
	s.closed = true
	s.room.Set()
	s.mu.Unlock()
	close(finished)
	done.Wait()
	if s.detector != nil {
		err = errors.Join(err, s.detector.Close())
	}
	return err
}

// at is the time of a sample.
func at(sample int64) time.Duration {
	return time.Duration(sample) * time.Second / inference.RecognizerRate
}

func (s *Session) openLocked() bool { return len(s.queue) > 0 && !s.queue[len(s.queue)-1].ended }

// found handles an event of the stream, under the lock.
func (s *Session) found(e vad.Event) {
	switch e.Kind {
	case vad.Began:
		s.count++
		u := &speech{number: s.count, hearing: s.hearing, begin: e.At, start: e.Speech, held: s.admit != nil}
		s.queue = append(s.queue, u)
		s.sayLocked(Event{Kind: StartOfSpeech, Utterance: u.number, Begin: at(e.At), Start: at(e.Speech)})
	case vad.Heard:
		u := s.queue[len(s.queue)-1]
		u.sound = append(u.sound, e.Sound...)
		s.backlog += len(e.Sound)
		u.held = u.held && !s.admit(u.start, false)
		if !u.held && len(u.sound)-u.heard >= s.every {
			s.work.Set()
		}
	case vad.Ended:
		u := s.queue[len(s.queue)-1]
		n := int(e.At - u.begin)
		s.backlog -= len(u.sound) - max(n, u.heard) // what goes on in the next utterance
		u.sound = u.sound[:n]
		u.ended, u.end, u.endedAt = true, e.Speech, time.Now()
		u.held = u.held && !s.admit(u.start, true)
		s.sayLocked(Event{Kind: EndOfSpeech, Utterance: u.number, Begin: at(u.begin), Start: at(u.start), End: at(u.end)})
		s.work.Set()
	}
}

// sayLocked queues an event. Of interim texts that wait the newest is kept.
func (s *Session) sayLocked(e Event) {
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

// recognize handles the utterances one after the other.
func (s *Session) recognize(ctx context.Context) error {
	for {
		s.mu.Lock()
		var u *speech
		if len(s.queue) > 0 {
			u = s.queue[0]
		}
		closed := s.closed
		s.mu.Unlock()
		switch {
		case u != nil:
			if err := s.hear(ctx, u); err != nil {
				return err
			}
			s.mu.Lock()
			s.queue = s.queue[1:]
			s.mu.Unlock()
			continue
		case closed:
			return nil
		}
		select {
		case <-s.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hear recognizes an utterance to its end.
func (s *Session) hear(ctx context.Context, u *speech) error {
	var out inference.Utterance // nil before the first interim text, and after a failure
	defer func() {
		if out != nil {
			_ = out.Close() // nothing depends on it any more
		}
	}()
	partials := s.every > 0 && s.recognizer.Recognizes().Partials
	sent := 0         // samples that out has
	var before string // the last interim text
	var sums inference.Transcript
	for {
		s.mu.Lock()
		sound, ended, dropped, held, fresh := u.sound, u.ended, u.dropped, u.held, len(u.sound)-sent
		s.mu.Unlock()
		switch {
		case dropped:
			return nil
		case held && ended:
			s.took(u, len(sound))
			s.say(u, Event{Kind: Final, End: at(u.end), Refused: true})
			return nil
		case ended:
			if out != nil && sent > len(sound) { // it was cut: the rest belongs to the next one
				_ = out.Close()
				out, sent = nil, 0
			}
			s.final(ctx, u, out, sound, sent, sums)
			return ctx.Err()
		case partials && !held && fresh >= s.every:
			t, opened, err := s.interim(ctx, u, out, sound[sent:])
			sums.Audio, sums.Tokens = sums.Audio+t.Audio, sums.Tokens+t.Tokens
			out, sent = opened, len(sound)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				partials = false // its final is made anew
				sent = 0
			case t.Text != before:
				before = t.Text
				s.say(u, Event{Kind: Interim, Text: t.Text, Language: t.Language, End: at(u.begin + int64(len(sound)))})
			}
			continue
		}
		select {
		case <-s.work:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interim lets the recognizer hear more. It returns the utterance that goes on, nil after a failure.
func (s *Session) interim(ctx context.Context, u *speech, out inference.Utterance, sound []float32,
) (t inference.Transcript, _ inference.Utterance, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, textTimeout, fmt.Errorf("no text within %v", textTimeout))
	defer cancel()
	if out == nil {
		if out, err = s.listen(context.WithoutCancel(ctx), u); err != nil {
			return t, nil, err
		}
	}
	t, err = out.Hear(ctx, slices.Clone(sound))
	s.took(u, len(sound))
	if err != nil {
		_ = out.Close() // it failed already
		return t, nil, err
	}
	return t, out, nil
}

// took counts sound that the recognizer has.
func (s *Session) took(u *speech, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = max(0, min(n, len(u.sound)-u.heard))
	u.heard += n
	if !u.dropped {
		s.backlog -= n
	}
	s.room.Set()
}

// final makes the last text of an utterance, in a second attempt with all of its sound if the first one fails.
func (s *Session) final(ctx context.Context, u *speech, out inference.Utterance, sound []float32, sent int, sums inference.Transcript) {
	ctx, cancel := context.WithTimeoutCause(ctx, textTimeout, fmt.Errorf("no text within %v", textTimeout))
	defer cancel()
	var t inference.Transcript
	err := errors.New("not heard")
	if out != nil {
		t, err = out.Finish(ctx, slices.Clone(sound[sent:]))
	}
	for range 2 {
		if err == nil || ctx.Err() != nil {
			break
		}
		t, err = s.whole(ctx, u, sound)
	}
	s.took(u, len(sound))
	e := Event{
		Kind: Final, Text: t.Text, Language: t.Language, Audio: sums.Audio + t.Audio, Tokens: sums.Tokens + t.Tokens,
		End: at(u.end), Lag: time.Since(u.endedAt),
	}
	for _, w := range t.Words {
		w.Start, w.End = w.Start+at(u.begin), w.End+at(u.begin)
		e.Words = append(e.Words, w)
	}
	if err != nil {
		e.Kind, e.Text = Failed, ""
		if e.Err = err; ctx.Err() != nil {
			e.Err = context.Cause(ctx)
		}
	}
	s.say(u, e)
}

// whole hears an utterance from its begin.
func (s *Session) whole(ctx context.Context, u *speech, sound []float32) (inference.Transcript, error) {
	out, err := s.listen(ctx, u)
	if err != nil {
		return inference.Transcript{}, err
	}
	t, err := out.Finish(ctx, slices.Clone(sound))
	return t, errors.Join(err, out.Close())
}

// say emits an event of an utterance, unless it was forgotten.
func (s *Session) say(u *speech, e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !u.dropped {
		e.Utterance, e.Begin, e.Start = u.number, at(u.begin), at(u.start)
		s.sayLocked(e)
	}
}
