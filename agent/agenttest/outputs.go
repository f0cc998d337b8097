package agenttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"touchline/agent"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
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

// Voice is an AudioOutput that plays by the clock. Run must run.
type Voice struct {
	mu    sync.Mutex
	queue []*speech
	wake  wake.Signal
	Heard []Heard
	Gain  float64 // dB
}

// Heard is one utterance as it sounded.
type Heard struct {
	From, To time.Time
	Cut      bool
}

// NewVoice returns a silent voice.
func NewVoice() *Voice { return &Voice{wake: wake.New()} }

type speech struct {
	v       *Voice
	ev      agent.SpeechEvents
	audible time.Duration
	ended   bool
	at      time.Time
	cut     bool
	changed wake.Signal
}

// NewUtterance implements agent.AudioOutput.
func (v *Voice) NewUtterance(ev agent.SpeechEvents) agent.SpokenUtterance {
	return &speech{v: v, ev: ev, changed: wake.New()}
}

// SetGain implements agent.AudioOutput.
func (v *Voice) SetGain(db float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Gain = db
}

// Write implements agent.SpokenUtterance.
func (s *speech) Write(pcm media.PCM) (time.Duration, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.audible += pcm.Duration()
	s.changed.Set()
	return s.audible, nil
}

// LeadTrimmed implements agent.SpokenUtterance.
func (s *speech) LeadTrimmed() time.Duration { return 0 }

// End implements agent.SpokenUtterance.
func (s *speech) End() time.Duration {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.ended = true
	s.changed.Set()
	return s.audible
}

// Start implements agent.SpokenUtterance.
func (s *speech) Start(at time.Time) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.at = at
	s.v.queue = append(s.v.queue, s)
	s.v.wake.Set()
}

// Cut implements agent.SpokenUtterance.
func (s *speech) Cut() {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.cut = true
	s.changed.Set()
}

// Run plays started utterances until ctx ends.
func (v *Voice) Run(ctx context.Context) {
	for {
		v.mu.Lock()
		var s *speech
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

func (v *Voice) play(ctx context.Context, s *speech) {
	onset := time.Now()
	v.mu.Lock()
	cut := s.cut
	v.mu.Unlock()
	if cut {
		return
	}
	s.ev.Started(onset)
	for {
		v.mu.Lock()
		end, done := onset.Add(s.audible), s.ended
		if s.cut {
			end, done = time.Now(), true
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
		v.Heard = append(v.Heard, Heard{onset, end, cut})
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
	records []agent.Record
	states  []agent.Status
}

// Record implements agent.TextOutput.
func (l *Log) Record(r agent.Record) {
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

// Records returns the records so far.
func (l *Log) Records() []agent.Record {
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
	alerts   []agent.Alert
	frames   []agent.SeenFrame // of new alerts
	orders   []agent.OrderEvent
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
func (r *Reader) Alert(a agent.Alert, frame *agent.SeenFrame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alerts = append(r.alerts, a)
	if frame != nil {
		r.frames = append(r.frames, *frame)
	}
}

// Order implements agent.OrderOutput.
func (r *Reader) Order(e agent.OrderEvent) {
	r.mu.Lock()
	r.orders = append(r.orders, e)
	r.mu.Unlock()
}

// Orders returns what became of instructions so far.
func (r *Reader) Orders() []agent.OrderEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.orders)
}

// Alerts returns the phases of alerts so far, and the frames of new ones.
func (r *Reader) Alerts() ([]agent.Alert, []agent.SeenFrame) {
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
