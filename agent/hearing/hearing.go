// Package hearing recognizes the speech of people in a room: it turns the sound of each microphone into text, and spoken orders
// into actions.
//
// Each microphone has a decoder, a speech detector and a session of package live; all share one recognizer. Ears choose the active
// microphones and pass recognized speech to the commentator, which publishes it. The package knows neither LiveKit nor the
// presentation of texts.
package hearing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/vad"
	"touchline/internal/limit"
	"touchline/internal/quantile"
	"touchline/internal/rescue"
)

const (
	// maxMicrophones bounds the received microphones, maxOfLink those of the participants by one link, and maxOwn those of one participant.
	maxMicrophones = 100
	maxOfLink      = maxMicrophones / 2
	maxOwn         = 2
	// quietAfter is how long a reported level counts.
	quietAfter = 2 * time.Second
	// maxHeld bounds a push-to-talk.
	maxHeld = time.Minute
	// heldAfter is how long sound still arrives after the end of push-to-talk.
	heldAfter = 250 * time.Millisecond
	// openFor is how long an order may follow a wake word alone.
	openFor = 6 * time.Second
	// lastTexts bounds the wait for the last texts of a closed microphone, lastTextsAtEnd the wait at the end of Run.
	lastTexts      = 10 * time.Second
	lastTextsAtEnd = time.Second
)

// Commentator is the commentator that people speak to.
type Commentator interface {
	agent.Steerer
	// Hearing returns the hearing settings.
	Hearing() settings.Hearing
	// Hear receives recognized speech.
	Hear(h agent.Heard)
	// Floor receives whether an authorised person speaks.
	Floor(f speech.Floor, now time.Time)
}

// Options of Ears.
type Options struct {
	// Recognizer recognizes speech, and is held while there is a microphone. Detector opens a speech detector for a microphone.
	Recognizer inference.Recognizer
	Detector   func() (vad.Detector, error)
	// Step is the interval of interim texts; 0 is 500 ms.
	Step time.Duration
	Log  zerolog.Logger
}

// Ears recognize the speech in one room. They implement command.Ears and agent.TextOutput. Safe for concurrent use.
type Ears struct {
	opts Options
	log  zerolog.Logger
	work *rescue.Group
	ctx  context.Context //nolint:containedctx // of the goroutines of microphones
	end  context.CancelFunc

	// spoken and voice hold the texts and levels of the voice, for the detection of echoes.
	spoken echoTexts
	voice  voiceLevels

	outsiders outsiders
	still     limit.Standstill

	counts counts

	mu     sync.Mutex
	bot    Commentator
	mics   map[string]*microphone // by track
	opened int                    // microphones since the start
	left   int                    // microphones that are not received, as there are too many
	over   bool                   // Run is ending: no microphone opens
	held   map[string]time.Time   // start of a push-to-talk, by identity
	free   func()                 // releases the recognizer
	lags   []time.Duration        // from the end of speech to its text, the last maxLags
	floor  speech.Floor
}

// counts are the totals of Ears.
type counts struct {
	utterances, orders, refused, echoes, failed, skipped, dropped atomic.Uint64
}

// New returns Ears; Run runs them.
func New(o Options) *Ears {
	ctx, cancel := context.WithCancel(context.Background())
	work, ctx := rescue.WithContext(ctx)
	return &Ears{
		opts: o, log: o.Log.With().Str("component", "hearing").Logger(), work: work, ctx: ctx, end: cancel,
		mics: map[string]*microphone{}, held: map[string]time.Time{}, voice: voiceLevels{zero: time.Now()},
	}
}

// Attach sets the commentator, before Run.
func (e *Ears) Attach(bot Commentator) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bot = bot
}

// Run recognizes speech until ctx ends, then waits up to lastTextsAtEnd for the last texts.
func (e *Ears) Run(ctx context.Context) error {
	tidy := time.NewTicker(time.Second)
	defer tidy.Stop()
	for over := false; !over; {
		select {
		case now := <-tidy.C: // also while the server is away
			e.outsiders.forget(now)
			e.still.Check(time.Now())
		case <-ctx.Done():
			over = true
		case <-e.ctx.Done(): // a microphone's goroutine panicked
			over = true
		}
	}
	e.mu.Lock()
	e.over = true
	for _, m := range e.mics {
		m.close()
	}
	e.mu.Unlock()
	late := time.AfterFunc(lastTextsAtEnd, e.end)
	defer late.Stop()
	err := e.work.Wait()
	e.end()
	return rescue.UnlessCanceled(err)
}

// errOrdersOnly is returned for captions with a recognizer that recognizes orders only.
var errOrdersOnly = errors.New(`this recognizer knows orders alone and makes no captions: "orders" works; ` +
	"for captions set inference.recognizer.program to model or remote")

// CheckHearing implements command.Ears.
func (e *Ears) CheckHearing(c settings.Hearing) error {
	if c.Captions() && e.opts.Recognizer.Recognizes().OrdersOnly {
		return errOrdersOnly
	}
	if r, ok := e.opts.Recognizer.(interface{ CheckWakeWords([]string) error }); ok {
		return r.CheckWakeWords(c.WakeWords) // it may not know their pronunciation
	}
	return nil
}

// wants reports whether the settings require a microphone's sound: for captions, for orders, and that of others and of the watched camera
// for comparison with orders.
func wants(c settings.Hearing, m agent.Microphone) bool {
	return c.Mode != settings.HearingOff && (m.Instructs || !m.Watched || c.Camera || c.Orders())
}

// Choose returns the tracks to receive, and chooses the active microphones: at most MaxSpeakers. It is called several times a second.
func (e *Ears) Choose(all []agent.Microphone, now time.Time) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.bot.Hearing()
	var chosen []agent.Microphone
	for _, m := range all {
		if wants(c, m) {
			chosen = append(chosen, m)
		}
	}
	many := len(chosen)
	chosen = bounded(chosen)
	// Authorised microphones come first, those of no link before all; of each kind, received ones stay.
	slices.SortStableFunc(chosen, func(a, b agent.Microphone) int {
		rank := func(m agent.Microphone) int {
			_, open := e.mics[m.Track]
			switch {
			case m.Instructs && m.Link == "":
				return 0
			case open && m.Instructs:
				return 1
			case m.Instructs:
				return 2
			case open:
				return 3
			}
			return 4
		}
		return cmp.Compare(rank(a), rank(b))
	})
	ofLink := map[string]int{}
	chosen = slices.DeleteFunc(chosen, func(m agent.Microphone) bool {
		ofLink[m.Link]++
		return m.Link != "" && ofLink[m.Link] > maxOfLink
	})
	chosen = chosen[:min(len(chosen), maxMicrophones)]
	e.left = many - len(chosen)
	tracks := make([]string, len(chosen))
	for i, m := range chosen {
		tracks[i] = m.Track
		if mic := e.mics[m.Track]; mic != nil {
			mic.update(m, now)
		}
	}
	e.chooseSpeakersLocked(c.MaxSpeakers)
	for identity, since := range e.held {
		if now.Sub(since) > maxHeld {
			e.releaseLocked(identity, now)
		}
	}
	return tracks
}

// bounded sorts microphones by participant and returns at most maxOwn of each: the watched one first, then those that are not muted.
func bounded(all []agent.Microphone) []agent.Microphone {
	flag := func(a, b bool) int { // true first
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	slices.SortFunc(all, func(a, b agent.Microphone) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), flag(a.Watched, b.Watched), flag(b.Muted, a.Muted), cmp.Compare(a.Track, b.Track))
	})
	own, of := 0, ""
	return slices.DeleteFunc(all, func(m agent.Microphone) bool {
		if m.Identity != of {
			own, of = 0, m.Identity
		}
		own++
		return own > maxOwn
	})
}

// chooseSpeakersLocked chooses the active microphones. Silent people that may instruct have at most half of the places before others.
func (e *Ears) chooseSpeakersLocked(most int) {
	open := make([]*microphone, 0, len(e.mics))
	for _, m := range e.mics {
		open = append(open, m)
	}
	if len(open) <= most {
		for _, m := range open {
			m.on.Store(true)
		}
		return
	}
	claims := map[*microphone]float64{}
	for _, m := range open {
		claims[m] = m.claim(e)
	}
	first := func(a, b *microphone) int {
		return cmp.Or(cmp.Compare(claims[b], claims[a]), cmp.Compare(a.number, b.number))
	}
	slices.SortFunc(open, first)
	silent := 0
	for _, m := range open {
		if c := claims[m]; c < claimInstructs || c >= claimInstructs+claimSpeaks {
			continue
		}
		if silent++; silent > most/2 {
			claims[m] -= claimInstructs
		}
	}
	slices.SortFunc(open, first)
	for i, m := range open {
		m.on.Store(i < most)
	}
}

// ErrEnded is returned by Open once Run ends.
var ErrEnded = errors.New("microphones are no longer heard: the room is being left")

// Open returns the sink of a microphone.
func (e *Ears) Open(m agent.Microphone) (*Sink, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return nil, ErrEnded
	}
	mic, err := newMicrophone(e, m)
	if err != nil {
		return nil, err
	}
	e.opened++
	mic.number = e.opened
	if len(e.mics) == 0 {
		e.free = live.Hold(e.opts.Recognizer)
	}
	mic.on.Store(len(e.mics) < e.bot.Hearing().MaxSpeakers)
	e.mics[m.Track] = mic
	e.work.Go(mic.run)
	return &Sink{mic}, nil
}

// maxLags is the number of lags for the percentile.
const maxLags = 100

// lagged records the time from the end of speech to its text.
func (e *Ears) lagged(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lags = append(e.lags[max(0, len(e.lags)+1-maxLags):], d)
}

// closed forgets a microphone whose goroutine ends.
func (e *Ears) closed(m *microphone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outsiders.end(m, 0, "", nil, time.Now())
	if e.mics[m.track] == m {
		delete(e.mics, m.track)
	}
	if len(e.mics) == 0 && e.free != nil {
		e.free()
		e.free = nil
	}
}

var (
	errNoOrders = errors.New("nobody is heard for orders in this room: set hearing to orders or all")
	errNoTalk   = errors.New("push-to-talk has ended already")
)

// Talk begins or ends a push-to-talk, during which speech is an order. It implements agent.Talker.
func (e *Ears) Talk(identity string, held bool) error {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	_, was := e.held[identity]
	switch {
	case !held && !was:
		return errNoTalk
	case !held:
		e.releaseLocked(identity, now)
		return nil
	case !e.bot.Hearing().Orders():
		return errNoOrders
	}
	e.held[identity] = now
	for _, m := range e.mics {
		if m.identity == identity {
			m.hold()
		}
	}
	return nil
}

func (e *Ears) releaseLocked(identity string, now time.Time) {
	delete(e.held, identity)
	for _, m := range e.mics {
		if m.identity == identity {
			m.release(now.Add(heldAfter))
		}
	}
}

// talks reports whether a person uses push-to-talk now.
func (e *Ears) talks(identity string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, held := e.held[identity]
	return held
}

// takeFloor passes the floor to the commentator: whether an authorised person speaks.
func (e *Ears) takeFloor() {
	e.mu.Lock()
	defer e.mu.Unlock()
	floor := speech.FloorFree
	for _, m := range e.mics {
		m.mu.Lock()
		floor = max(floor, m.floor)
		m.mu.Unlock()
	}
	if floor == e.floor {
		return
	}
	e.floor = floor
	e.bot.Floor(floor, time.Now())
}

// Stats are totals since the start, but for Microphones, Speakers and Left.
type Stats struct {
	// Microphones counts the received microphones, Speakers the active ones, and Left those that are too many to receive.
	Microphones, Speakers, Left int
	// Utterances counts the utterances with a text, Orders the orders that were carried out, Refused the refused orders.
	Utterances, Orders, Refused uint64
	// Echoes counts echoes of the voice, Failed the utterances without a text because of an error.
	Echoes, Failed uint64
	// Lag95 is the 95th percentile of the time from the end of speech to its text, of the last 100; 0 before the first.
	Lag95 time.Duration
	// Skipped counts packets of inactive microphones, Dropped sound that arrived faster than it was processed, or waited while the process
	// stood still.
	Skipped, Dropped uint64
}

// Stats returns the totals.
func (e *Ears) Stats() Stats {
	c := &e.counts
	out := Stats{
		Utterances: c.utterances.Load(), Orders: c.orders.Load(), Refused: c.refused.Load(), Echoes: c.echoes.Load(),
		Failed: c.failed.Load(), Skipped: c.skipped.Load(), Dropped: c.dropped.Load(),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out.Microphones, out.Left = len(e.mics), e.left
	out.Lag95 = quantile.Of(e.lags, 0.95)
	for _, m := range e.mics {
		if m.on.Load() {
			out.Speakers++
		}
	}
	return out
}
