package hearing

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtp"

	"touchline/agent"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/backoff"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/sound"
)

const (
	rate = inference.RecognizerRate
	// queue bounds the waiting pieces of sound: two seconds of 20 ms.
	queue = 100
	// fillEvery is the interval of checks for missing sound, as from a sender that is silent (DTX) or gone. After lateAfter, silence
	// replaces it, for at most maxFill. If sound arrives after all, late by more than overlap, it follows the silence.
	fillEvery = 25 * time.Millisecond
	lateAfter = 120 * time.Millisecond
	maxFill   = time.Second
	overlap   = 40 * time.Millisecond
	// leastSpeech is the shortest speech of an utterance.
	leastSpeech = 250 * time.Millisecond
	// talksAfter is the length of speech after which a person counts as speaking.
	talksAfter = 300 * time.Millisecond
	// interimEvery is the interval of interim texts of one utterance.
	interimEvery = 250 * time.Millisecond
	// heldPause is the pause that ends an utterance during push-to-talk.
	heldPause = 5 * time.Second
	// firstRetry and maxRetry are the waits before a failed speech detector is replaced.
	firstRetry = 200 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// Sink receives the packets of one microphone.
type Sink struct{ m *microphone }

// Begin precedes the packets of another track.
func (s *Sink) Begin() { s.m.receiver.Begin() }

// WriteRTP receives a packet that arrived at a time. Packets that may have waited while the process stood still are dropped.
func (s *Sink) WriteRTP(p *rtp.Packet, at time.Time) {
	switch {
	case !s.m.on.Load():
		s.m.ears.counts.skipped.Add(1)
	case s.m.ears.still.Stale(at, at):
		s.m.ears.counts.dropped.Add(1)
	default:
		s.m.receiver.WriteRTP(p, at)
	}
}

// SenderReport ignores the clocks of RTCP sender reports.
func (*Sink) SenderReport(time.Time, uint32) {}

// Close ends the microphone. Speech before it still gets its text.
func (s *Sink) Close() { s.m.close() }

// microphone is one received microphone.
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

	on     atomic.Bool  // active
	pushed atomic.Bool  // push-to-talk
	apart  atomic.Int64 // ns of voice without speech in the microphone, since the last echo

	mu       sync.Mutex
	info     agent.Microphone
	level    float64
	levelAt  time.Time
	holds    bool          // push-to-talk begins
	stale    bool          // the session needs new recognizer settings
	zero     time.Time     // of the session's first sample
	openTill time.Time     // speech that begins before it follows a wake word
	ends     time.Time     // when push-to-talk ends; zero without
	late     []agent.Heard // speech of the watched camera that waits for its picture
	floor    speech.Floor
	echo     echoPath
	ended    time.Time // the last speech

	unfinished map[int]*utterance // without their final text, by their number in the session

	// Of the present utterance.
	utterance int   // its number in the session
	start     int64 // sample of the session
	inside    bool
	took      bool // the floor
	pressed   int  // the utterance during which push-to-talk began

	// Used by run only.
	stream uint32
	base   int64 // media tick of the stream at sample from
	from   int64 // sample of the session
	fed    int64 // samples of the session
	last   time.Time
	filled int64
	levels ownLevels
	filter echoFilter

	// The speech detector, used by run only.
	speech  vad.Config      // how utterances begin and end
	deaf    bool            // there is none, and sound waits in pieces
	unheard []float32       // the sound at which it failed
	again   time.Time       // when to open another one; zero for never
	opened  time.Time       // when it was opened; zero when it is missing or failed
	retry   backoff.Backoff // of opening one
}

// utterance is speech without its final text. The next one may begin before that.
type utterance struct {
	segment   string
	began     time.Time
	addressed bool
	shown     time.Time // its last interim text
}

func newMicrophone(e *Ears, info agent.Microphone) (*microphone, error) {
	m := &microphone{
		ears: e, identity: info.Identity, track: info.Track, info: info, zero: time.Now(),
		pieces: make(chan sound.Piece, queue), wake: wake.New(), closed: make(chan struct{}), unfinished: map[int]*utterance{},
		speech: usual(), deaf: true, again: time.Now(), retry: backoff.Backoff{First: firstRetry, Max: maxRetry},
	}
	var err error
	if m.receiver, err = sound.NewReceiver(m, rate); err != nil {
		return nil, err
	}
	cfg := live.Config{
		Hearing: e.hearing(false, info.Instructs), Admit: m.admit, Every: e.opts.Step,
		Words: func() bool { return e.bot.Hearing().Orders() },
	}
	m.session = live.New(e.opts.Recognizer, cfg, m.event)
	return m, nil
}

// usual returns the settings of the speech detector, in which a cough or a laugh begins no utterance.
func usual() vad.Config { return vad.Config{Least: leastSpeech, Steady: vad.SteadySpeech} }

// hearing returns the recognizer's settings for a microphone.
func (e *Ears) hearing(addressed, instructs bool) inference.Hearing {
	words := e.bot.Hearing().WakeWords
	return inference.Hearing{Context: strings.Join(words, ", "), WakeWords: words, Addressed: addressed, First: instructs}
}

// update sets the room's information about the microphone.
func (m *microphone) update(info agent.Microphone, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if info.Muted && !m.info.Muted {
		m.ends = now // its utterance ends
		m.wake.Set()
	}
	if info.Instructs != m.info.Instructs {
		m.stale = true
		m.wake.Set()
	}
	m.info = info
	if info.Level >= m.level || now.Sub(m.levelAt) > quietAfter {
		m.level, m.levelAt = info.Level, now
	}
}

// The parts of a claim. The loudness is at most 1.
const (
	claimInstructs = 8
	claimHeld      = 4
	claimSpeaks    = 2
	claimOn        = 0.05 // hysteresis
)

// claim returns the priority of a microphone: an authorised one that is not muted first, then push-to-talk, present speech, loudness. The
// caller holds the lock of the Ears.
func (m *microphone) claim(e *Ears) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.level
	if m.info.Instructs && !m.info.Muted {
		out += claimInstructs
	}
	if _, held := e.held[m.identity]; held {
		out += claimHeld
	}
	if m.inside && m.on.Load() {
		out += claimSpeaks
	}
	if m.on.Load() {
		out += claimOn
	}
	return out
}

// Slack implements sound.Sink.
func (*microphone) Slack() time.Duration { return lateAfter / 2 }

// Push implements sound.Sink. The room's reader calls it.
func (m *microphone) Push(p sound.Piece) {
	p.PCM = append([]int16(nil), p.PCM...)
	select {
	case m.pieces <- p:
	default:
		m.ears.counts.dropped.Add(1)
	}
}

func (m *microphone) close() { m.once.Do(func() { close(m.closed) }) }

// run recognizes speech until the microphone is closed, then waits for the last text.
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
	m.setFloor(speech.FloorFree)
	late := time.AfterFunc(lastTexts, cancel)
	defer late.Stop()
	err = errors.Join(err, m.session.Close(), <-done)
	m.sendLate(time.Time{})
	m.ears.log.Debug().AnErr("reason", err).Str("participant", m.identity).Msg("microphone ended")
	if _, crash := rescue.Of(err); crash {
		return err
	}
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
			_, _ = m.session.Flush() // earlier speech gets its text; the error is the same
			m.deaf = true
			m.retryDetector(err, time.Now())
		}
		if closed {
			return nil
		}
	}
}

// step handles one event. It reports whether the microphone is closed and all of its sound is processed.
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

// turn follows the speaker, and begins and ends push-to-talk.
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
	instructs := m.info.Instructs
	m.mu.Unlock()
	if sets {
		m.session.Set(m.ears.hearing(open || m.ears.talks(m.identity), instructs))
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

// push begins push-to-talk. An open utterance continues as an order.
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
	if u := m.unfinished[open]; u != nil {
		u.addressed = true
	}
}

// hold requests push-to-talk from the goroutine of listen.
func (m *microphone) hold() {
	m.mu.Lock()
	m.ends, m.holds = time.Time{}, true
	m.mu.Unlock()
	m.wake.Set()
}

// renew makes the listen goroutine apply the current recognizer settings.
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

// event handles an event of the session.
func (m *microphone) event(v live.Event) {
	switch v.Kind {
	case live.StartOfSpeech:
		m.begin(v)
	case live.Interim:
		m.interim(v)
	case live.EndOfSpeech:
		m.mu.Lock()
		m.inside, m.ended = false, time.Now()
		if m.floor == speech.FloorTaken {
			m.floor = speech.FloorFree
		}
		m.mu.Unlock()
		m.ears.takeFloor()
	case live.Final:
		m.final(v)
	case live.Failed:
		m.judge(false)
		m.mu.Lock()
		delete(m.unfinished, v.Utterance)
		m.mu.Unlock()
		m.ears.outsiders.end(m, v.Utterance, "", nil, time.Now())
		m.ears.counts.failed.Add(1)
		m.ears.log.Warn().Err(v.Err).Str("participant", m.identity).Msg("speech got no text")
	}
}

func (m *microphone) begin(v live.Event) {
	held := m.ears.talks(m.identity)
	m.mu.Lock()
	defer m.mu.Unlock()
	began := m.zero.Add(v.Start)
	m.start, m.utterance, m.inside, m.took = samples(v.Start), v.Utterance, true, false
	m.unfinished[v.Utterance] = &utterance{
		segment: "SG_" + rand.Text()[:12], began: began,
		addressed: held || began.Before(m.openTill) || m.pressed == v.Utterance,
	}
	if !m.info.Instructs {
		m.ears.outsiders.begin(outside{mic: m, watched: m.info.Watched, number: v.Utterance, from: began})
	}
}

// heard returns the common fields of the events of an utterance. The caller holds the lock.
func (m *microphone) heard(v live.Event, u *utterance) agent.Heard {
	return agent.Heard{
		Segment: u.segment, Identity: m.identity, Name: m.info.Name, Track: m.track, Text: v.Text, Language: v.Language,
		Began: u.began,
	}
}

func (m *microphone) interim(v live.Event) {
	now := time.Now()
	m.mu.Lock()
	u := m.unfinished[v.Utterance]
	h := m.heard(v, u)
	m.mu.Unlock()
	if strings.TrimSpace(v.Text) == "" || !m.captions() || m.ears.still.Stale(h.Began, now) || m.ears.spoken.echoes(v.Text, h.Began, now) {
		return
	}
	m.mu.Lock()
	shows := m.inside && now.Sub(u.shown) >= interimEvery
	if shows {
		u.shown = now
	}
	m.mu.Unlock()
	if shows {
		h.Caption = true
		m.send(h)
	}
}

// captions reports whether speech of this microphone is captioned.
func (m *microphone) captions() bool {
	c := m.ears.bot.Hearing()
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.Captions() && (m.info.Instructs || !m.info.Watched || c.Camera)
}

// send passes speech to the commentator. Speech of the watched camera waits for its delayed picture.
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

// sendLate passes on speech of the watched camera whose picture is shown now; all of it at the zero time.
func (m *microphone) sendLate(now time.Time) {
	m.mu.Lock()
	waits := len(m.late) > 0
	m.mu.Unlock()
	if !waits {
		return
	}
	delay := time.Duration(m.ears.bot.Snapshot().Delay * float64(time.Second))
	m.mu.Lock()
	n := slices.IndexFunc(m.late, func(h agent.Heard) bool { return !now.IsZero() && now.Before(h.Began.Add(delay)) })
	if n < 0 {
		n = len(m.late)
	}
	due := m.late[:n]
	m.late = m.late[n:]
	m.mu.Unlock()
	for _, h := range due {
		if m.ears.still.Stale(h.Began, now) {
			h.Text, h.Order = "", nil
		}
		m.ears.bot.Hear(h)
	}
}
