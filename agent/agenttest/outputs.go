package agenttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/speech"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
)

// Screen is a VideoOutput that records the time of each picture.
type Screen struct {
	mu    sync.Mutex
	Shown []Shown
}

// Shown is one picture on the screen.
type Shown struct {
	Epoch   uint32
	PTS     time.Duration
	Due, At time.Time
}

// WriteFrame implements agent.VideoOutput.
func (s *Screen) WriteFrame(f delay.OutFrame) (time.Time, error) {
	now := time.Now()
	s.mu.Lock()
	s.Shown = append(s.Shown, Shown{f.Epoch, f.PTS, f.Due, now})
	s.mu.Unlock()
	return now, nil
}

// Pictures returns the pictures so far.
func (s *Screen) Pictures() []Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.Shown)
}

// Voice is a speech.Voice that plays by the clock. It needs a running Run.
type Voice struct {
	mu    sync.Mutex
	queue []*sound
	wake  wake.Signal
	Heard []Heard
	Gain  float64 // dB
	// Forgets: Heard stays empty, for long runs.
	Forgets bool
}

// Heard is one utterance as it sounded.
type Heard struct {
	From, To time.Time
	Cut      bool
	Pauses   []Pause
}

// Pause is a pause within an utterance; one that ends with a cut has no end.
type Pause struct{ From, To time.Time }

// NewVoice returns a silent voice.
func NewVoice() *Voice { return &Voice{wake: wake.New()} }

type sound struct {
	v       *Voice
	ev      speech.Events
	audible time.Duration
	ended   bool
	at      time.Time
	cut     bool
	paused  bool
	changed wake.Signal
}

// NewUtterance implements speech.Voice.
func (v *Voice) NewUtterance(ev speech.Events) speech.Sound {
	return &sound{v: v, ev: ev, changed: wake.New()}
}

// SetGain implements speech.Voice.
func (v *Voice) SetGain(db float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Gain = db
}

// Write implements speech.Sound.
func (s *sound) Write(pcm media.PCM) (time.Duration, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.audible += pcm.Duration()
	s.changed.Set()
	return s.audible, nil
}

// LeadTrimmed implements speech.Sound.
func (s *sound) LeadTrimmed() time.Duration { return 0 }

// End implements speech.Sound.
func (s *sound) End() time.Duration {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.ended = true
	s.changed.Set()
	return s.audible
}

// Start implements speech.Sound.
func (s *sound) Start(at time.Time) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.at = at
	s.v.queue = append(s.v.queue, s)
	s.v.wake.Set()
}

// Cut implements speech.Sound.
func (s *sound) Cut() {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.cut = true
	s.changed.Set()
}

// Pause implements speech.Sound.
func (s *sound) Pause() { s.pause(true) }

// Resume implements speech.Sound.
func (s *sound) Resume() { s.pause(false) }

func (s *sound) pause(on bool) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.paused = on
	s.changed.Set()
}

// Run plays started utterances until ctx ends.
func (v *Voice) Run(ctx context.Context) {
	for {
		v.mu.Lock()
		var s *sound
		if len(v.queue) > 0 {
			s = v.queue[0]
			v.queue = v.queue[1:]
		}
		v.mu.Unlock()
		if s == nil {
			select {
			case <-ctx.Done():
				return
			case <-v.wake:
			}
			continue
		}
		if sleep(ctx, time.Until(s.at)) != nil {
			return
		}
		v.play(ctx, s)
	}
}

func (v *Voice) play(ctx context.Context, s *sound) {
	onset := time.Now()
	v.mu.Lock()
	cut := s.cut
	v.mu.Unlock()
	if cut {
		return
	}
	s.ev.Started(onset)
	var pauses []Pause
	rested := time.Duration(0)
	for {
		v.mu.Lock()
		end, done := onset.Add(s.audible+rested), s.ended
		now, rests := time.Now(), len(pauses) > 0 && pauses[len(pauses)-1].To.IsZero()
		switch {
		case s.cut && rests:
			end, done = pauses[len(pauses)-1].From, true
		case s.cut:
			end, done = now, true
		case s.paused && !rests && end.After(now):
			pauses = append(pauses, Pause{From: now})
			done, rests = false, true
		case !s.paused && rests:
			p := &pauses[len(pauses)-1]
			p.To, rests = now, false
			rested += now.Sub(p.From)
			end = end.Add(now.Sub(p.From))
		}
		if rests && !s.cut {
			done = false
		}
		cut := s.cut
		v.mu.Unlock()
		if left := time.Until(end); left > 0 || !done {
			select {
			case <-ctx.Done():
				return
			case <-s.changed:
			case <-time.After(max(left, time.Millisecond)):
			}
			continue
		}
		v.mu.Lock()
		if !v.Forgets {
			v.Heard = append(v.Heard, Heard{onset, end, cut, pauses})
		}
		v.mu.Unlock()
		s.ev.Ended(end, cut)
		return
	}
}

// Utterances returns the played utterances.
func (v *Voice) Utterances() []Heard {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.Heard)
}

// Log keeps the records and states of a session.
type Log struct {
	mu      sync.Mutex
	records []look.Record
	states  []agent.Status
}

// Record implements agent.TextOutput.
func (l *Log) Record(r look.Record) {
	l.mu.Lock()
	l.records = append(l.records, r)
	l.mu.Unlock()
}

// State implements agent.TextOutput.
func (l *Log) State(s agent.Status) {
	l.mu.Lock()
	l.states = append(l.states, s)
	l.mu.Unlock()
}

// Forget drops what was kept so far.
func (l *Log) Forget() {
	l.mu.Lock()
	l.records, l.states = nil, nil
	l.mu.Unlock()
}

// Records returns the records so far.
func (l *Log) Records() []look.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

// States returns the states so far.
func (l *Log) States() []agent.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.states)
}

// Reader is a TextOutput that keeps everything, captions with their time.
type Reader struct {
	Log
	captions []ReadCaption
	alerts   []alert.Alert
	frames   []window.Frame // of new alerts
	orders   []command.OrderEvent
}

// ReadCaption is a caption with its time.
type ReadCaption struct {
	At time.Time
	agent.Caption
}

// Caption implements agent.TextOutput.
func (r *Reader) Caption(c agent.Caption) {
	r.mu.Lock()
	r.captions = append(r.captions, ReadCaption{time.Now(), c})
	r.mu.Unlock()
}

// Alert implements agent.AlertOutput.
func (r *Reader) Alert(a alert.Alert, frame *window.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alerts = append(r.alerts, a)
	if frame != nil {
		r.frames = append(r.frames, *frame)
	}
}

// Order implements agent.OrderOutput.
func (r *Reader) Order(e command.OrderEvent) {
	r.mu.Lock()
	r.orders = append(r.orders, e)
	r.mu.Unlock()
}

// Orders returns the outcomes of instructions so far.
func (r *Reader) Orders() []command.OrderEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.orders)
}

// Alerts returns the phases of alerts so far, and the frames of new ones.
func (r *Reader) Alerts() ([]alert.Alert, []window.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.alerts), slices.Clone(r.frames)
}

// Captions returns the captions so far.
func (r *Reader) Captions() []ReadCaption {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.captions)
}
