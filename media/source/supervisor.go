package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/internal/backoff"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
)

const (
	defaultStall = 5 * time.Second
	// defaultFirst bounds the wait for the first picture. Key frames of cameras can be 10 s apart.
	defaultFirst = 15 * time.Second

	// The wait before each retry.
	backoffFirst = 100 * time.Millisecond
	backoffSoon  = time.Second // the longest in the first backoffYoung of an outage
	backoffYoung = 5 * time.Minute
	backoffLate  = 15 * time.Second
	// The wait before each retry of a refusal.
	refusedFirst = 15 * time.Second
	refusedMax   = 5 * time.Minute
	// endTime is the wait for a source that is to end, before its state says why.
	endTime = time.Second
	// settled is the live time after which the next outage counts as a new one.
	settled = 5 * time.Second
)

// Options of a Supervisor. Puller, Sink.Frame, Now and Random are required.
type Options struct {
	Puller Puller
	// Sink receives the frames, with unique epochs.
	Sink Sink
	// OnStatus is called for every change of state, codec or size. It must not block. May be nil.
	OnStatus func(Status)
	// Stall bounds the time without a picture, 0 for 5 s; First bounds the wait for the first one after the
	// opening, 0 for 15 s.
	Stall, First time.Duration
	// Hide removes secrets from a text before it is shown or logged; nil for none.
	Hide func(string) string
	// Now returns the time; Random a number in [0, 1).
	Now    func() time.Time
	Random func() float64
	Log    zerolog.Logger
}

// Supervisor keeps one source open. New, then Run once.
type Supervisor struct {
	opts    Options
	tracker *Tracker
	epoch   uint32 // of the newest frame
}

// NewSupervisor checks the options and starts nothing.
func NewSupervisor(o Options) (*Supervisor, error) {
	if o.Puller == nil || o.Sink.Frame == nil || o.Now == nil || o.Random == nil {
		return nil, errors.New("source.Options: Puller, Sink.Frame, Now or Random is not set")
	}
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	if o.First <= 0 {
		o.First = max(defaultFirst, o.Stall)
	}
	if o.Hide == nil {
		o.Hide = func(s string) string { return s }
	}
	s := &Supervisor{opts: o}
	s.tracker = NewTracker(o.Now(), s.report)
	return s, nil
}

// Status returns the present status.
func (s *Supervisor) Status() Status { return s.tracker.Status() }

// KeyFrameAsked records a viewer's request for a key frame.
func (s *Supervisor) KeyFrameAsked() { s.tracker.KeyFrameAsked(s.opts.Now()) }

// RequestKeyFrame asks the source for a key frame, if it is a KeyFramer.
func (s *Supervisor) RequestKeyFrame() {
	if k, ok := s.opts.Puller.(KeyFramer); ok {
		k.RequestKeyFrame()
	}
}

// Run keeps the source open until ctx or the source ends, and then returns nil, or
// until a permanent error. A panic of the source or the sink ends this source alone.
func (s *Supervisor) Run(ctx context.Context) error {
	wait := backoff.Backoff{First: backoffFirst, Max: backoffLate, EarlyMax: backoffSoon, Early: backoffYoung}
	slow := backoff.Backoff{First: refusedFirst, Max: refusedMax}
	for {
		s.tracker.Opening(s.opts.Now())
		lived, err := s.attempt(ctx)
		now := s.opts.Now()
		if err == nil {
			err = Errorf("the source hung up")
		}
		if ctx.Err() != nil || errors.Is(err, ErrEnded) {
			s.tracker.End(now)
			return nil //nolint:nilerr // an error while ending does not matter
		}
		if lived >= settled {
			wait.Reset()
			slow.Reset()
		}
		reason := s.describe(err)
		var pause time.Duration
		_, crash := rescue.Of(err)
		began := s.tracker.Status().Frames > 0
		switch c := classOf(err); {
		case crash, c == permanent && !began:
			if crash {
				s.opts.Log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("source crashed")
			}
			s.tracker.Fail(reason, now)
			return fmt.Errorf("open the source: %w", hidden{reason, err})
		case c == locked && !began:
			reason += "; it is asked again every 5 minutes only, as cameras lock accounts"
			pause = refusedMax
		case c != passing:
			pause = slow.Next(now, 1)
		default:
			pause = wait.Next(now, s.opts.Random())
		}
		if !errors.Is(err, ErrStalled) {
			s.tracker.Lost(reason, now)
		}
		if wake.Sleep(ctx, pause) != nil {
			s.tracker.End(s.opts.Now())
			return nil //nolint:nilerr // the end that was asked for
		}
	}
}

// describe returns an error's text in one line, without secrets and repetitions.
func (s *Supervisor) describe(err error) string {
	all := strings.Split(text(err, s.opts.Hide), "\n")
	lines := slices.DeleteFunc(slices.Clone(all), func(l string) bool {
		return strings.TrimSpace(l) == "" || slices.ContainsFunc(all, func(o string) bool { return len(o) > len(l) && strings.Contains(o, l) })
	})
	return strings.Join(slices.Compact(lines), "; ")
}

// attempt is one opening of the source.
type attempt struct {
	s      *Supervisor
	ctx    context.Context //nolint:containedctx // lives as long as the attempt
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	first time.Time // when the first picture came
	own   uint32    // the source's epoch
}

// frame forwards a picture, numbered with the supervisor's epoch.
func (a *attempt) frame(f media.EncodedFrame) {
	defer rescue.Guard(a.cancel) // the goroutine may be a library's
	if a.ctx.Err() != nil {
		return
	}
	now := a.s.opts.Now()
	a.mu.Lock()
	if a.first.IsZero() || f.Epoch != a.own {
		a.own = f.Epoch
		a.s.epoch++
	}
	if a.first.IsZero() {
		a.first = now
	}
	f.Epoch = a.s.epoch
	a.mu.Unlock()
	a.s.tracker.Frame(f, now)
	a.s.opts.Sink.Frame(f)
}

// sink returns the supervisor's sink with tracking.
func (a *attempt) sink() Sink {
	sink := a.s.opts.Sink
	sink.Frame = a.frame
	sink.Due, sink.Advice = a.s.tracker.Due, a.s.tracker.Advise
	sink.Missing = func(packets uint64) {
		if a.ctx.Err() == nil {
			a.s.tracker.Missing(packets, a.s.opts.Now())
		}
	}
	if next := sink.Opus; next != nil {
		sink.Opus = func(o Opus) {
			defer rescue.Guard(a.cancel)
			if a.ctx.Err() == nil {
				a.s.tracker.Heard()
				next(o)
			}
		}
	}
	return sink
}

// lived returns the time since the first picture; 0 without one.
func (a *attempt) lived() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first.IsZero() {
		return 0
	}
	return a.s.opts.Now().Sub(a.first)
}

// attempt opens the source once. lived is the time from its first picture on.
func (s *Supervisor) attempt(ctx context.Context) (lived time.Duration, err error) {
	actx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{s: s, ctx: actx, cancel: cancel}
	done := make(chan error, 1)
	go func() {
		done <- rescue.Call(func() error { return s.opts.Puller.Pull(actx, a.sink()) })
	}()

	watch := time.NewTimer(s.opts.Stall)
	defer watch.Stop()
	for {
		select {
		case err = <-done:
			if cause := context.Cause(actx); cause != nil && ctx.Err() == nil && !errors.Is(err, cause) {
				err = cause
			}
			return a.lived(), err
		case <-watch.C:
		}
		now := s.opts.Now()
		switch cause := context.Cause(actx); {
		case ctx.Err() != nil:
			continue
		case cause != nil: // it was to end long ago
			s.tracker.Lost(s.describe(cause), now)
			continue
		}
		left, late := s.tracker.Late(s.opts.Stall, s.opts.First, now)
		if late == nil {
			watch.Reset(left)
			continue
		}
		cancel(late)
		watch.Reset(endTime)
	}
}

// report logs a change of status.
func (s *Supervisor) report(status Status) {
	level := zerolog.InfoLevel
	if status.State == Waiting || status.State == Stalled {
		level = zerolog.WarnLevel
	}
	s.opts.Log.WithLevel(level).Stringer("state", status.State).Str("reason", status.Reason).
		Stringer("codec", status.Codec).Int("width", status.Width).Int("height", status.Height).Msg("source changed")
	if s.opts.OnStatus != nil {
		s.opts.OnStatus(status)
	}
}

// hidden is an error with a text without secrets.
type hidden struct {
	text string
	err  error
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.err }
