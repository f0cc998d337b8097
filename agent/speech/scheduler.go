package speech

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/pacing"
)

// Settings of a Scheduler.
type Settings struct {
	// Voice of the room; nil without one.
	Voice Voice
	// Line is the delayed picture; nil shows comments as soon as they are ready.
	Line Line
	// Pacing as it is at first; see Pace.
	Pacing pacing.Config
	// Changed is called after each change of the speech except new words, from Run's goroutine and without a lock. May be nil.
	Changed func()
	Log     zerolog.Logger
}

// Scheduler says the utterances of one room in their order: a Core behind a lock, and one goroutine, in Run, which
// carries out its actions. Its methods are safe for concurrent use and do not wait for the voice, a maker or an output.
type Scheduler struct {
	settings Settings
	wake     wake.Signal

	mu    sync.Mutex // a leaf, apart from the locks of the line and the voice
	core  *Core
	level float64 // of the voice, dB
}

// NewScheduler makes a Scheduler; Run runs it.
func NewScheduler(s Settings) *Scheduler {
	return &Scheduler{settings: s, wake: wake.New(), core: NewCore(s.Line, s.Pacing)}
}

// Run speaks added utterances until ctx ends or a maker fails.
func (s *Scheduler) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error { return s.run(ctx, g) })
	return g.Wait()
}

func (s *Scheduler) run(ctx context.Context, g *rescue.Group) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	spoke := false
	for {
		acts, next, speaking := s.step()
		changed := speaking != spoke
		spoke = speaking
		for _, a := range acts {
			s.carryOut(ctx, g, a)
			changed = changed || a.Do != Show
		}
		if changed && s.settings.Changed != nil {
			s.settings.Changed()
		}
		if len(acts) > 0 {
			continue
		}
		var due <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-due:
		}
	}
}

func (s *Scheduler) step() (acts []Action, next time.Time, speaking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acts, next = s.core.Step(time.Now())
	return acts, next, s.core.Speaking()
}

// carryOut does one action.
func (s *Scheduler) carryOut(ctx context.Context, g *rescue.Group, a Action) {
	switch a.Do {
	case Make:
		ctx, cancel := context.WithCancelCause(ctx)
		a.U.Cancel = cancel
		g.Go(func() error {
			defer cancel(nil)
			return a.U.Maker.Make(ctx, a.U)
		})
	case Cancel:
		if a.U.Cancel != nil {
			a.U.Cancel(a.Cause)
		}
	case Begin:
		a.U.Maker.Begun(a.Dropped)
	case Show:
		a.U.Maker.Caption(a.Step)
	case End:
		a.U.Maker.Ended(a.Result)
	case StartVoice:
		a.sound.Start(a.At)
	case PauseVoice:
		a.sound.Pause()
	case ResumeVoice:
		a.sound.Resume()
	case CutVoice:
		if a.sound != nil {
			a.sound.Cut()
		}
	}
}

// event changes the core, and wakes Run.
func (s *Scheduler) event(f func(c *Core, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.core, time.Now())
	if level := s.core.Level(); level != s.level && s.settings.Voice != nil {
		s.level = level
		s.settings.Voice.SetGain(level)
	}
	s.wake.Set()
}

// Add is Core.Add.
func (s *Scheduler) Add(u *Utterance) (err error) {
	s.event(func(c *Core, _ time.Time) { u.s, err = s, c.Add(u) })
	return err
}

// Sound gives sound to the voice, and is Core.Sound. Only one goroutine at a time may add sound to an utterance. Converting a
// sentence takes milliseconds; the scheduler is not locked meanwhile.
func (u *Utterance) Sound(pcm media.PCM, words []inference.WordTime) (ready bool) {
	s := u.s
	sound := s.soundOf(u)
	if sound == nil {
		return false
	}
	audible, err := sound.Write(pcm)
	w := Written{Audible: audible, Lead: sound.LeadTrimmed(), Length: pcm.Duration(), Words: words}
	var refused bool
	s.event(func(c *Core, now time.Time) {
		if err != nil {
			refused = !u.wanted()
			return
		}
		ready = c.Sound(u, w, now)
	})
	if err != nil && !refused { // after a cut the voice refuses the rest
		s.settings.Log.Warn().Err(err).Msg("audio not written")
	}
	return ready
}

// soundOf returns the sound of an utterance; nil if none is wanted.
func (s *Scheduler) soundOf(u *Utterance) Sound {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.dropped || !u.wanted() || s.settings.Voice == nil:
		return nil
	case u.sound == nil:
		u.sound = s.settings.Voice.NewUtterance(Events{
			Started: func(onset time.Time) { s.event(func(c *Core, _ time.Time) { c.VoiceStarted(u, onset) }) },
			Slipped: func(lost time.Duration) {
				s.event(func(c *Core, now time.Time) { c.VoiceSlipped(u, lost, now) })
			},
			Ended: func(end time.Time, cut bool) { s.event(func(c *Core, _ time.Time) { c.VoiceEnded(u, end, cut) }) },
		})
	}
	return u.sound
}

// Clear is Core.Clear.
func (s *Scheduler) Clear(cause error, cut bool) {
	s.event(func(c *Core, now time.Time) { c.Clear(cause, cut, now) })
}

// Mute is Core.Mute.
func (s *Scheduler) Mute() { s.event((*Core).Mute) }

// Floor is Core.Floor.
func (s *Scheduler) Floor(f Floor, now time.Time) {
	s.event(func(c *Core, _ time.Time) { c.Floor(f, now) })
}

// Behave is Core.Behave.
func (s *Scheduler) Behave(m BargeIn, maxWait time.Duration, gain float64) {
	s.event(func(c *Core, now time.Time) { c.Behave(m, maxWait, gain, now) })
}

// Pace is Core.Pace.
func (s *Scheduler) Pace(pause time.Duration, cfg pacing.Config, retarget bool) {
	s.event(func(c *Core, _ time.Time) { c.Pace(pause, cfg, retarget) })
}

// Forget is Core.Forget.
func (s *Scheduler) Forget(voice bool) { s.event(func(c *Core, _ time.Time) { c.Forget(voice) }) }

// look reads something of the core.
func look[T any](s *Scheduler, f func(c *Core) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(s.core)
}

// VoiceEnd is Core.VoiceEnd.
func (s *Scheduler) VoiceEnd(now time.Time) time.Time {
	return look(s, func(c *Core) time.Time { return c.VoiceEnd(now) })
}

// Speaking is Core.Speaking.
func (s *Scheduler) Speaking() bool { return look(s, (*Core).Speaking) }

// Busy is Core.Busy.
func (s *Scheduler) Busy() bool { return look(s, (*Core).Busy) }

// SetAnchor moves the anchor of a comment that is not ready yet.
func (u *Utterance) SetAnchor(pts time.Duration, arrival time.Time) {
	u.s.event(func(*Core, time.Time) { u.Anchor = &Anchor{Epoch: u.Anchor.Epoch, PTS: pts, Arrival: arrival} })
}

// Write is Core.Text.
func (u *Utterance) Write(delta string) (ready bool) {
	u.s.event(func(c *Core, now time.Time) { ready = c.Text(u, delta, now) })
	return ready
}

// EndText is Core.EndText.
func (u *Utterance) EndText(keep, failed bool) (said, sound bool) {
	u.s.event(func(c *Core, now time.Time) { said, sound = c.EndText(u, keep, failed, now) })
	return said, sound
}

// EndSound ends the sound of an utterance in the voice, and is Core.EndSound.
func (u *Utterance) EndSound(err error) {
	sound := look(u.s, func(*Core) Sound { return u.sound })
	var audible time.Duration
	if sound != nil {
		audible = sound.End()
	}
	u.s.event(func(c *Core, now time.Time) { c.EndSound(u, audible, err, now) })
}

// Withdraw is Core.Withdraw.
func (u *Utterance) Withdraw(again bool) (ok bool) {
	u.s.event(func(c *Core, _ time.Time) { ok = c.Withdraw(u, again) })
	return ok
}

// Words returns the text so far.
func (u *Utterance) Words() string { return look(u.s, func(*Core) string { return u.text }) }

// Ready reports whether an utterance has something to begin with.
func (u *Utterance) Ready() bool { return look(u.s, func(*Core) bool { return u.state != Queued }) }

// Began reports whether an utterance has begun to be spoken or shown.
func (u *Utterance) Began() bool { return look(u.s, func(*Core) bool { return u.started() }) }

// Result returns the result of an utterance so far.
func (u *Utterance) Result() Result {
	return look(u.s, func(c *Core) Result { return u.result(c.line, time.Now()) })
}
