// Package agenttest holds scripted inputs and recording outputs for tests of
// package agent: a camera, a decoder, a voice, a screen and an engine that keep
// time by the clock alone, so that they run in a synctest bubble.
//
// They stand in for latency and faults only; the real parts have tests of their own.
package agenttest

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"touchline/agent"
	"touchline/inference"
	"touchline/media"
	"touchline/media/delay"
)

// Camera is a VideoInput: a steady source behind a jittery network.
type Camera struct {
	FPS    int
	Jitter time.Duration // the largest lateness of a frame
	Rand   *rand.Rand

	mu       sync.Mutex
	start    time.Time
	n        int
	epoch    uint32
	paused   chan struct{} // not nil, and open, during a pause
	lastRead time.Time
	asked    int
}

// ReadFrame implements agent.VideoInput.
func (c *Camera) ReadFrame(ctx context.Context) (media.EncodedFrame, error) {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		select {
		case <-ctx.Done():
			return media.EncodedFrame{}, ctx.Err()
		case <-paused:
		}
	}
	c.mu.Lock()
	now := time.Now()
	if c.start.IsZero() {
		c.start, c.n = now, 0
	}
	pts := media.TicksToDuration(int64(c.n), int64(c.FPS))
	arrival := c.start.Add(pts)
	at := arrival
	if c.Jitter > 0 {
		at = at.Add(time.Duration(c.Rand.Int64N(int64(c.Jitter))))
	}
	if at.Before(c.lastRead) {
		at = c.lastRead
	}
	c.lastRead = at
	f := media.EncodedFrame{
		Codec: media.VP8, KeyFrame: c.n%c.FPS == 0, PTS: pts, Arrival: arrival, Received: at,
		Epoch: c.epoch, Width: 640, Height: 360, SpatialLayers: 1, Data: make([]byte, 500),
	}
	c.n++
	c.mu.Unlock()
	return f, sleep(ctx, at.Sub(now))
}

// RequestKeyFrame implements agent.VideoInput.
func (c *Camera) RequestKeyFrame() {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
}

// Pause stops the frames until the returned function is called; then another
// source begins, with a new epoch, if fresh is set.
func (c *Camera) Pause(fresh bool) (resume func()) {
	gate := make(chan struct{})
	c.mu.Lock()
	c.paused = gate
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.paused = nil
		c.start, c.n = time.Time{}, 0
		if fresh {
			c.epoch++
		}
		c.mu.Unlock()
		close(gate)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Decoder is an agent.Decoder that makes a small grey picture of every access
// unit at once.
type Decoder struct {
	OnPicture func(media.VideoFrame)

	mu   sync.Mutex
	luma func(pts time.Duration) byte
	last media.VideoFrame
	any  bool
}

// Run implements agent.Decoder.
func (d *Decoder) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Decode implements agent.Decoder.
func (d *Decoder) Decode(f media.EncodedFrame, sample bool) error {
	luma := byte(f.PTS / (20 * time.Millisecond))
	d.mu.Lock()
	if d.luma != nil {
		luma = d.luma(f.PTS)
	}
	d.mu.Unlock()
	const side = 4
	v := media.VideoFrame{
		PTS: f.PTS, Arrival: f.Arrival, Epoch: f.Epoch, Width: side, Height: side,
		Pix: []byte(strings.Repeat(string([]byte{luma}), side*side*3)),
	}
	d.mu.Lock()
	d.last, d.any = v, true
	d.mu.Unlock()
	if sample {
		d.OnPicture(v)
	}
	return nil
}

// Latest implements agent.Decoder.
func (d *Decoder) Latest(context.Context) (media.VideoFrame, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.any {
		return media.VideoFrame{}, errors.New("no picture was decoded yet")
	}
	return d.last, nil
}

// SetLuma sets the grey of the pictures by media time; without it they change
// all the time.
func (d *Decoder) SetLuma(luma func(pts time.Duration) byte) {
	d.mu.Lock()
	d.luma = luma
	d.mu.Unlock()
}

// SetTranscode implements agent.Decoder; nothing is ever encoded.
func (d *Decoder) SetTranscode(bool) {}

// ForceKeyFrame implements agent.Decoder.
func (d *Decoder) ForceKeyFrame() {}

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
	return append([]Shown(nil), s.Shown...)
}

// Voice is an AudioOutput that plays by the clock. Run must run.
type Voice struct {
	mu    sync.Mutex
	queue []*speech
	wake  chan struct{}
	Heard []Heard
}

// Heard is one utterance as it sounded.
type Heard struct {
	From, To time.Time
	Cut      bool
}

// NewVoice returns a silent voice.
func NewVoice() *Voice { return &Voice{wake: make(chan struct{}, 1)} }

type speech struct {
	v       *Voice
	ev      agent.SpeechEvents
	audible time.Duration
	ended   bool
	at      time.Time
	cut     bool
	changed chan struct{}
}

// NewUtterance implements agent.AudioOutput.
func (v *Voice) NewUtterance(ev agent.SpeechEvents) agent.SpokenUtterance {
	return &speech{v: v, ev: ev, changed: make(chan struct{}, 1)}
}

// Write implements agent.SpokenUtterance.
func (s *speech) Write(pcm media.PCM) (time.Duration, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.audible += pcm.Duration()
	s.kick()
	return s.audible, nil
}

// LeadTrimmed implements agent.SpokenUtterance.
func (s *speech) LeadTrimmed() time.Duration { return 0 }

// End implements agent.SpokenUtterance.
func (s *speech) End() time.Duration {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.ended = true
	s.kick()
	return s.audible
}

// Start implements agent.SpokenUtterance.
func (s *speech) Start(at time.Time) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.at = at
	s.v.queue = append(s.v.queue, s)
	select {
	case s.v.wake <- struct{}{}:
	default:
	}
}

// Cut implements agent.SpokenUtterance.
func (s *speech) Cut() {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.cut = true
	s.kick()
}

func (s *speech) kick() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
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
			t := time.NewTimer(max(left, time.Millisecond))
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-s.changed:
			case <-t.C:
			}
			t.Stop()
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
	return append([]Heard(nil), v.Heard...)
}

// Reader is a TextOutput that keeps everything, with its time.
type Reader struct {
	mu       sync.Mutex
	captions []ReadCaption
	records  []agent.Record
	states   []agent.Status
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

// Record implements agent.TextOutput.
func (r *Reader) Record(rec agent.Record) {
	r.mu.Lock()
	r.records = append(r.records, rec)
	r.mu.Unlock()
}

// State implements agent.TextOutput.
func (r *Reader) State(s agent.Status) {
	r.mu.Lock()
	r.states = append(r.states, s)
	r.mu.Unlock()
}

// Captions returns the captions so far.
func (r *Reader) Captions() []ReadCaption {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]ReadCaption(nil), r.captions...)
}

// Records returns the records so far.
func (r *Reader) Records() []agent.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]agent.Record(nil), r.records...)
}

// States returns the states so far.
func (r *Reader) States() []agent.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]agent.Status(nil), r.states...)
}

// Answer is the answer of an Engine to one prompt.
type Answer struct {
	Latency time.Duration // to the first word and sound
	Text    string
	Speech  time.Duration // length of the audio, sent in two halves
	// Second is the time between the halves.
	Second time.Duration
	Err    error // after the text
	// TimedWords gives each word its time in the audio.
	TimedWords bool
}

// Engine is an inference.Model with scripted answers.
type Engine struct {
	Answer func(n int, p inference.Prompt) Answer
	Phase  func() inference.Status // nil: ready
	Can    *inference.Capabilities // nil: it reads instructions

	mu      sync.Mutex
	asked   int
	Prompts []Asked
}

// Asked is a prompt with its time.
type Asked struct {
	At time.Time
	inference.Prompt
}

// Name implements inference.Model.
func (e *Engine) Name() string { return "scripted" }

// NewSession implements inference.Model.
func (e *Engine) NewSession() (inference.Session, error) { return engineSession{e}, nil }

// Status implements inference.Model.
func (e *Engine) Status() inference.Status {
	if e.Phase != nil {
		return e.Phase()
	}
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}

// Capabilities implements inference.Model.
func (e *Engine) Capabilities() inference.Capabilities {
	if e.Can != nil {
		return *e.Can
	}
	return inference.Capabilities{Instructions: true}
}

// Close implements inference.Model.
func (e *Engine) Close() error { return nil }

// Questions returns the prompts so far.
func (e *Engine) Questions() []Asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Asked(nil), e.Prompts...)
}

// words spreads half of the text over half of the audio, a word for each.
func (a Answer) words(half int) []inference.WordTime {
	if !a.TimedWords {
		return nil
	}
	all := strings.Fields(a.Text)
	n := (len(all) + 1) / 2
	mine := all[:n]
	if half == 1 {
		mine = all[n:]
	}
	out := make([]inference.WordTime, len(mine))
	for i, w := range mine {
		out[i] = inference.WordTime{
			Text:  strings.Trim(w, ".,"),
			Start: a.Speech / 2 * time.Duration(i) / time.Duration(len(mine)),
			End:   a.Speech / 2 * time.Duration(i+1) / time.Duration(len(mine)),
		}
	}
	return out
}

type engineSession struct{ e *Engine }

// Observe implements inference.Session.
func (engineSession) Observe(inference.Frame) {}

// Close implements inference.Session.
func (engineSession) Close() error { return nil }

const speechRate = 24000

// Generate implements inference.Session.
func (s engineSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		s.e.mu.Lock()
		n := s.e.asked
		s.e.asked++
		s.e.Prompts = append(s.e.Prompts, Asked{time.Now(), p})
		s.e.mu.Unlock()
		a := s.e.Answer(n, p)
		if err := sleep(ctx, a.Latency); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		if !yield(inference.Chunk{Text: a.Text}, nil) {
			return
		}
		if p.Speech && a.Speech > 0 {
			half := make([]int16, int(a.Speech.Seconds()*speechRate/2))
			for i := range half {
				half[i] = 5000
			}
			for i := range 2 {
				if i == 1 {
					if err := sleep(ctx, a.Second); err != nil {
						yield(inference.Chunk{}, err)
						return
					}
				}
				if !yield(inference.Chunk{Audio: half, AudioRate: speechRate, Words: a.words(i)}, nil) {
					return
				}
			}
		}
		if a.Err != nil {
			yield(inference.Chunk{}, a.Err)
		}
	}
}
