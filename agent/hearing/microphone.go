package hearing

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"touchline/agent"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/backoff"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/sound"
)

const (
	rate = inference.RecognizerRate
	// queue is how many pieces of sound may wait to be heard: two seconds of 20 ms.
	queue = 100
	// fillEvery spaces the looks for sound that does not come, as from a sender that is silent (DTX) or gone; silence takes its
	// place after lateAfter, for at most maxFill. Sound that comes after all, by more than overlap, follows the silence.
	fillEvery = 25 * time.Millisecond
	lateAfter = 120 * time.Millisecond
	maxFill   = time.Second
	overlap   = 40 * time.Millisecond
	// leastSpeech is the speech that makes an utterance.
	leastSpeech = 250 * time.Millisecond
	// talksAfter is the speech after which somebody counts as speaking.
	talksAfter = 300 * time.Millisecond
	// interimEvery spaces the texts of one utterance.
	interimEvery = 250 * time.Millisecond
	// heldPause ends an utterance during push-to-talk.
	heldPause = 5 * time.Second
	// firstRetry and maxRetry are the waits before a failed speech detector is replaced.
	firstRetry = 200 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// Sink takes the packets of one microphone.
type Sink struct{ m *microphone }

// Begin precedes the packets of another track.
func (s *Sink) Begin() { s.m.receiver.Begin() }

// WriteRTP takes a packet with its arrival.
func (s *Sink) WriteRTP(p *rtp.Packet, at time.Time) {
	if !s.m.on.Load() {
		s.m.ears.counts.skipped.Add(1)
		return
	}
	s.m.receiver.WriteRTP(p, at)
}

// SenderReport takes the two clocks of an RTCP sender report.
func (*Sink) SenderReport(time.Time, uint32) {}

// Close ends the microphone: what was said still gets its text.
func (s *Sink) Close() { s.m.close() }

// microphone is one microphone that is received.
type microphone struct {
	ears     *Ears
	number   int    // in the order of their opening
	identity string // of its participant
	track    string
	receiver *sound.Receiver
	session  *live.Session
	pieces   chan sound.Piece
	wake     wake.Signal // changes of holds, stale and ends
	closed   chan struct{}
	once     sync.Once

	on     atomic.Bool  // it is heard
	pushed atomic.Bool  // push-to-talk
	apart  atomic.Int64 // ns for which the voice sounded and it heard no speech, since the last echo

	mu       sync.Mutex
	info     agent.Microphone
	level    float64
	levelAt  time.Time
	holds    bool      // push-to-talk is to begin
	stale    bool      // how the recognizer hears is to be set anew
	zero     time.Time // of the session's first sample
	openTill time.Time // what begins until then follows a wake word
	ends     time.Time // when push-to-talk ends; zero without
	late     []agent.Heard
	floor    agent.Floor
	echo     echoPath
	ended    time.Time // the last speech

	// Of the utterance whose events come.
	utterance int // its number in the session
	segment   string
	began     time.Time
	start     int64 // sample of the session
	inside    bool
	took      bool // the floor
	addressed bool
	pressed   int       // the utterance during which push-to-talk began
	shown     time.Time // its last interim text

	// Only run touches these.
	stream uint32
	base   int64 // tick of the stream's sample fed
	from   int64 // samples that the session had then
	fed    int64 // samples of the session
	last   time.Time
	filled int64
	levels ownLevels
	filter echoFilter

	// The speech detector, which only run touches.
	speech  vad.Config      // how utterances begin and end
	deaf    bool            // it is missing or failed, and sound waits in pieces
	unheard []float32       // the sound at which it failed
	again   time.Time       // when to open another one; zero while none is wanted
	opened  time.Time       // when it was opened; zero when it is missing or failed
	retry   backoff.Backoff // of opening one
}

func newMicrophone(e *Ears, info agent.Microphone) (*microphone, error) {
	m := &microphone{
		ears: e, identity: info.Identity, track: info.Track, info: info, zero: time.Now(),
		pieces: make(chan sound.Piece, queue), wake: wake.New(), closed: make(chan struct{}),
		speech: usual(), deaf: true, again: time.Now(), retry: backoff.Backoff{First: firstRetry, Max: maxRetry},
	}
	var err error
	if m.receiver, err = sound.NewReceiver(m, rate); err != nil {
		return nil, err
	}
	m.session = live.New(e.opts.Recognizer, live.Config{Hearing: e.hearing(false), Admit: m.admit}, m.event)
	return m, nil
}

// usual is how utterances begin and end: a cough or a laugh opens none.
func usual() vad.Config { return vad.Config{Least: leastSpeech, Steady: vad.SteadySpeech} }

// hearing says how the recognizer hears people here.
func (e *Ears) hearing(addressed bool) inference.Hearing {
	words := e.bot.Hearing().WakeWords
	return inference.Hearing{Context: strings.Join(words, ", "), WakeWords: words, Addressed: addressed}
}

// update takes what the room knows of the microphone.
func (m *microphone) update(info agent.Microphone, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if info.Muted && !m.info.Muted {
		m.ends = now // its utterance ends
		m.wake.Set()
	}
	m.info = info
	if info.Level >= m.level || now.Sub(m.levelAt) > quietAfter {
		m.level, m.levelAt = info.Level, now
	}
}

// claim is how much a microphone should be heard: first who is being heard, then the loudest. The caller holds the lock of the
// Ears.
func (m *microphone) claim(e *Ears) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.level
	if _, held := e.held[m.identity]; held {
		out += 4
	}
	if m.inside && m.on.Load() {
		out += 2
	}
	if m.on.Load() {
		out += 0.05 // no change for little
	}
	return out
}

// Slack implements sound.Sink.
func (*microphone) Slack() time.Duration { return lateAfter / 2 }

// Push implements sound.Sink; the room's reader calls it.
func (m *microphone) Push(p sound.Piece) {
	p.PCM = append([]int16(nil), p.PCM...)
	select {
	case m.pieces <- p:
	default:
		m.ears.counts.dropped.Add(1)
	}
}

func (m *microphone) close() { m.once.Do(func() { close(m.closed) }) }

// run hears until the microphone is closed, and then to the last text.
func (m *microphone) run() error {
	defer m.ears.closed(m)
	ctx, cancel := context.WithCancel(m.ears.ctx)
	defer cancel()
	done := make(chan error, 1)
	m.ears.work.Go(func() error {
		err := m.session.Run(ctx)
		done <- err
		return nil
	})
	err := m.listen(ctx)
	m.setFloor(agent.FloorFree)
	late := time.AfterFunc(lastTexts, cancel)
	defer late.Stop()
	err = errors.Join(err, m.session.Close(), <-done)
	m.sendLate(time.Time{})
	m.ears.log.Debug().AnErr("reason", err).Str("participant", m.identity).Msg("microphone ended")
	return nil
}

// listen feeds the session until the microphone is closed. A speech detector that fails is replaced.
func (m *microphone) listen(ctx context.Context) error {
	tick := time.NewTicker(fillEvery)
	defer tick.Stop()
	for {
		closed, err := m.step(ctx, tick.C)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, live.ErrClosed):
			return err
		case err != nil:
			_, _ = m.session.Flush() // what was heard gets its text; the detector fails with the error at hand
			m.deaf = true
			m.retryDetector(err, time.Now())
		}
		if closed {
			return nil
		}
	}
}

// step handles one event, and reports whether the microphone is closed and all of its sound was heard.
func (m *microphone) step(ctx context.Context, tick <-chan time.Time) (closed bool, err error) {
	if err := m.openDetector(ctx, time.Now()); err != nil {
		return false, err
	}
	pieces := m.pieces
	if m.deaf {
		pieces = nil
	}
	select {
	case <-ctx.Done():
	case <-m.closed:
		if m.deaf {
			m.again = time.Now()
			err = m.openDetector(ctx, m.again)
		}
		for err == nil && !m.deaf && len(m.pieces) > 0 {
			err = m.place(ctx, <-m.pieces)
		}
		return true, err
	case p := <-pieces:
		err = m.place(ctx, p)
	case <-m.wake:
	case <-tick:
		if !m.deaf {
			err = m.fill(ctx, time.Now())
		}
	}
	if err != nil {
		return false, err
	}
	return false, m.turn(time.Now())
}

// openDetector opens a speech detector when one is wanted, and feeds what the last one did not hear.
func (m *microphone) openDetector(ctx context.Context, now time.Time) error {
	if m.again.IsZero() || now.Before(m.again) {
		return nil
	}
	d, err := m.ears.opts.Detector()
	if err == nil {
		err = m.session.Detect(d, m.speech)
	}
	if errors.Is(err, live.ErrClosed) {
		return err
	}
	if err != nil {
		m.retryDetector(err, now)
		return nil
	}
	if m.deaf && !m.last.IsZero() {
		m.last = now // the sound that waits comes before silence
	}
	m.deaf, m.again, m.opened = false, time.Time{}, now
	missing := max(0, m.fed-samples(m.session.Now()))
	sound := make([]float32, missing)
	n := min(int(missing), len(m.unheard))
	copy(sound[len(sound)-n:], m.unheard[len(m.unheard)-n:])
	m.unheard = nil
	return m.feed(ctx, sound)
}

func (m *microphone) feed(ctx context.Context, sound []float32) error {
	err := m.session.Write(ctx, sound)
	if err != nil {
		m.unheard = sound
	}
	return err
}

// retryDetector has another speech detector opened after a wait.
func (m *microphone) retryDetector(err error, now time.Time) {
	stood := time.Duration(0)
	if !m.opened.IsZero() {
		stood = now.Sub(m.opened)
	}
	wait := m.retry.Lost(stood, now, mathrand.Float64())
	m.again, m.opened = now.Add(wait), time.Time{}
	m.ears.log.Warn().Err(err).Str("participant", m.identity).Str("track", m.track).Int64("retry_in_ms", wait.Milliseconds()).
		Msg("speech detector failed")
}

// place hears a piece where it belongs: silence takes the place of what is missing, and what comes again is left out.
func (m *microphone) place(ctx context.Context, p sound.Piece) error {
	const tick = sound.Rate / rate
	filled := m.filled
	m.last, m.filled = time.Now(), 0
	if p.Stream != m.stream {
		m.stream, m.base, m.from = p.Stream, p.Media, m.fed
	}
	at := m.from + (p.Media-m.base)/tick
	if filled > 0 && m.fed-at > samples(overlap) {
		m.base, m.from, at = p.Media, m.fed, m.fed
	}
	if at-m.fed > samples(maxFill) { // a pause: the utterance is over
		if err := m.write(ctx, make([]float32, samples(maxFill))); err != nil {
			return err
		}
		m.base, m.from, at = p.Media, m.fed, m.fed
	}
	pcm := p.PCM
	if at < m.fed {
		pcm = pcm[min(m.fed-at, int64(len(pcm))):]
	}
	sound := make([]float32, max(0, at-m.fed), max(0, at-m.fed)+int64(len(pcm)))
	for _, v := range pcm {
		sound = append(sound, float32(v)/32768)
	}
	m.mu.Lock()
	m.zero = p.Arrival.Add(-length(at))
	m.mu.Unlock()
	return m.write(ctx, sound)
}

// fill hears silence where no sound comes, so that an utterance ends.
func (m *microphone) fill(ctx context.Context, now time.Time) error {
	quiet := now.Sub(m.last)
	if m.last.IsZero() || quiet < lateAfter {
		return nil
	}
	missing := min(samples(quiet), samples(maxFill)) - m.filled
	if missing <= 0 {
		return nil
	}
	m.filled += missing
	return m.write(ctx, make([]float32, missing))
}

func (m *microphone) write(ctx context.Context, sound []float32) error {
	if len(sound) == 0 {
		return nil
	}
	m.fed += int64(len(sound))
	m.levels.add(sound)
	m.listenApart(len(sound))
	return m.feed(ctx, sound)
}

// turn follows who speaks, and ends push-to-talk.
func (m *microphone) turn(now time.Time) error {
	m.sendLate(now)
	m.follow(now)
	m.mu.Lock()
	closes := !m.openTill.IsZero() && !m.inside && now.After(m.openTill)
	if closes {
		m.openTill = time.Time{}
	}
	open := !m.openTill.IsZero()
	ends := !m.ends.IsZero() && !now.Before(m.ends)
	if ends {
		m.ends = time.Time{}
	}
	begins := m.holds
	sets := begins || ends || closes || m.stale
	m.holds, m.stale = false, false
	m.mu.Unlock()
	if sets {
		m.session.Set(m.ears.hearing(open || m.ears.talks(m.identity)))
	}
	if begins {
		m.push(now)
	}
	if !ends {
		return nil
	}
	_, err := m.session.Flush()
	m.pushed.Store(false)
	m.detect(usual(), now)
	return err
}

// detect changes how utterances begin and end.
func (m *microphone) detect(c vad.Config, now time.Time) {
	if m.speech == c {
		return
	}
	if m.speech = c; !m.deaf { // else it is about to change
		m.again = now
	}
}

// push begins push-to-talk. An utterance that is open goes on, and is an order.
func (m *microphone) push(now time.Time) {
	m.pushed.Store(true)
	open := m.session.Open()
	if open == 0 {
		m.detect(vad.Config{Pause: heldPause}, now)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pressed = open
	m.addressed = m.addressed || m.utterance == open
}

// hold begins push-to-talk, in the goroutine of listen.
func (m *microphone) hold() {
	m.mu.Lock()
	m.ends, m.holds = time.Time{}, true
	m.mu.Unlock()
	m.wake.Set()
}

// renew sets anew how the recognizer hears, in the goroutine of listen.
func (m *microphone) renew() {
	m.mu.Lock()
	m.stale = true
	m.mu.Unlock()
	m.wake.Set()
}

// release ends push-to-talk at a time.
func (m *microphone) release(at time.Time) {
	m.mu.Lock()
	m.ends = at
	m.mu.Unlock()
}

// event takes a step of an utterance.
func (m *microphone) event(v live.Event) {
	switch v.Kind {
	case live.StartOfSpeech:
		m.begin(v)
	case live.Interim:
		m.interim(v)
	case live.EndOfSpeech:
		m.mu.Lock()
		m.inside, m.ended = false, time.Now()
		if m.floor == agent.FloorTaken {
			m.floor = agent.FloorFree
		}
		m.mu.Unlock()
		m.ears.takeFloor()
	case live.Final:
		m.final(v)
	case live.Failed:
		m.judge(false)
		m.ears.counts.failed.Add(1)
		m.ears.log.Warn().Err(v.Err).Str("participant", m.identity).Msg("speech got no text")
	}
}

func (m *microphone) begin(v live.Event) {
	held := m.ears.talks(m.identity)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segment, m.began, m.inside, m.shown, m.took = "SG_"+rand.Text()[:12], m.zero.Add(v.Start), true, time.Time{}, false
	m.start, m.utterance = samples(v.Start), v.Utterance
	m.addressed = held || m.began.Before(m.openTill) || m.pressed == v.Utterance
}

// said returns what the events of an utterance have in common.
func (m *microphone) said(v live.Event) agent.Heard {
	m.mu.Lock()
	defer m.mu.Unlock()
	return agent.Heard{
		Segment: m.segment, Identity: m.identity, Name: m.info.Name, Track: m.track, Text: v.Text, Language: v.Language,
		Began: m.began,
	}
}

func (m *microphone) interim(v live.Event) {
	now := time.Now()
	h := m.said(v)
	if strings.TrimSpace(v.Text) == "" || !m.captions() || m.ears.spoken.echoes(v.Text, h.Began, now) {
		return
	}
	m.mu.Lock()
	shows := m.inside && now.Sub(m.shown) >= interimEvery
	if shows {
		m.shown = now
	}
	m.mu.Unlock()
	if shows {
		h.Caption = true
		m.send(h)
	}
}

// captions reports whether what is said here is for everybody.
func (m *microphone) captions() bool {
	c := m.ears.bot.Hearing()
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.Captions() && (m.info.Instructs || !m.info.Watched || c.Camera)
}

// send gives what was said to the commentator; from the watched camera, with its picture.
func (m *microphone) send(h agent.Heard) {
	m.mu.Lock()
	wait := m.info.Watched && !m.info.Instructs
	if wait {
		m.late = append(m.late, h)
	}
	m.mu.Unlock()
	if !wait {
		m.ears.bot.Hear(h)
	}
}

// sendLate gives what was said in the watched camera's sound and is now shown to the commentator; all of it at the zero time.
func (m *microphone) sendLate(now time.Time) {
	m.mu.Lock()
	waits := len(m.late) > 0
	m.mu.Unlock()
	if !waits {
		return
	}
	delay := time.Duration(m.ears.bot.Snapshot().Delay * float64(time.Second))
	for {
		m.mu.Lock()
		var h agent.Heard
		due := false
		if len(m.late) > 0 {
			h = m.late[0]
			if due = now.IsZero() || !now.Before(h.Began.Add(delay)); due {
				m.late = m.late[1:]
			}
		}
		m.mu.Unlock()
		if !due {
			return
		}
		m.ears.bot.Hear(h)
	}
}

func samples(d time.Duration) int64 { return media.DurationToTicks(d, rate) }

func length(n int64) time.Duration { return media.TicksToDuration(n, rate) }
