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
	"touchline/media"
)

const (
	defaultStall = 5 * time.Second
	// defaultFirst is the time in which the first picture must come. Key frames of cameras can be 10 s apart.
	defaultFirst = 15 * time.Second

	// The wait before each attempt to open a source that is not there.
	backoffFirst = 100 * time.Millisecond
	backoffSoon  = time.Second     // the most in the first minutes of an outage
	backoffYoung = 5 * time.Minute // these minutes
	backoffLate  = 15 * time.Second
	// settled is how long a source must have been live for its next outage to be a new one.
	settled = 5 * time.Second
)

// Options of a Supervisor. Puller, Sink.Frame, Now and Random are required.
type Options struct {
	Puller Puller
	// Sink gets what comes, with epochs that are never used twice.
	Sink Sink
	// OnStatus gets every change of state, codec or size. It must not block. May be nil.
	OnStatus func(Status)
	// Stall is how long pictures may stay away, 0 for 5 s; First how long the first one may take after the
	// source was opened, 0 for 15 s.
	Stall, First time.Duration
	// Hide takes secrets out of a text before it is shown or logged; nil when there are none.
	Hide func(string) string
	// Now reads the clock; Random is in [0, 1).
	Now    func() time.Time
	Random func() float64
	Log    zerolog.Logger
}

// Supervisor keeps one source open. New, then Run once.
type Supervisor struct {
	opts    Options
	tracker *Tracker
	epoch   uint32 // of the newest frame handed on
}

// NewSupervisor checks the options and starts nothing.
func NewSupervisor(o Options) (*Supervisor, error) {
	if o.Puller == nil || o.Sink.Frame == nil || o.Now == nil || o.Random == nil {
		return nil, errors.New("source.Options needs Puller, Sink.Frame, Now and Random")
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
	s.tracker = NewTracker(o.Now(), s.tell)
	return s, nil
}

// Status returns what is known now.
func (s *Supervisor) Status() Status { return s.tracker.Status() }

// KeyFrameAsked notes a viewer's request for a key frame, whatever answered it.
func (s *Supervisor) KeyFrameAsked() { s.tracker.KeyFrameAsked(s.opts.Now()) }

// RequestKeyFrame asks the source for a key frame, if it can be asked.
func (s *Supervisor) RequestKeyFrame() {
	if k, ok := s.opts.Puller.(KeyFramer); ok {
		k.RequestKeyFrame()
	}
}

// Run keeps the source open until ctx ends or the source came to its end,
// which is nil, or until trying again is of no use. A panic
// of the source, or of what takes its pictures, ends it alone.
func (s *Supervisor) Run(ctx context.Context) error {
	wait := backoff.Backoff{First: backoffFirst, Max: backoffLate, EarlyMax: backoffSoon, Early: backoffYoung}
	for {
		s.tracker.Opening(s.opts.Now())
		lived, err := s.attempt(ctx)
		now := s.opts.Now()
		if err == nil {
			err = errors.New("the source hung up")
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrEnded):
			s.tracker.End(now)
			return nil //nolint:nilerr // whatever went wrong while it was ending does not matter
		case IsPermanent(err):
			if _, crash := rescue.Of(err); crash {
				s.opts.Log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("source crashed")
			}
			reason := s.words(err)
			s.tracker.Fail(reason, now)
			return fmt.Errorf("open the source: %w", hidden{reason, err})
		}
		if lived >= settled {
			wait.Reset()
		}
		if !errors.Is(err, ErrStalled) {
			s.tracker.Lost(s.words(err), now)
		}
		timer := time.NewTimer(wait.Next(now, s.opts.Random()))
		select {
		case <-ctx.Done():
			timer.Stop()
			s.tracker.End(s.opts.Now())
			return nil
		case <-timer.C:
		}
	}
}

// words are an error's in one line, without secrets, and each only once.
func (s *Supervisor) words(err error) string {
	all := strings.Split(s.opts.Hide(err.Error()), "\n")
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
	began bool
	own   uint32 // the source's epoch
}

// frame forwards a picture, numbered with the supervisor's epoch.
func (a *attempt) frame(f media.EncodedFrame) {
	defer rescue.Guard(a.cancel) // it may be a library's goroutine
	if a.ctx.Err() != nil {
		return
	}
	now := a.s.opts.Now()
	a.mu.Lock()
	if a.first.IsZero() {
		a.first = now
	}
	if !a.began || f.Epoch != a.own {
		a.began, a.own = true, f.Epoch
		a.s.epoch++
	}
	f.Epoch = a.s.epoch
	a.mu.Unlock()
	a.s.tracker.Frame(f, now)
	a.s.opts.Sink.Frame(f)
}

// sink returns the supervisor's sink with the attempt's watch in front.
func (a *attempt) sink() Sink {
	sink := a.s.opts.Sink
	sink.Frame = a.frame
	sink.Missing = func(packets uint64) {
		if a.ctx.Err() == nil {
			a.s.tracker.Missing(packets, a.s.opts.Now())
		}
	}
	if next := sink.Opus; next != nil {
		sink.Opus = func(o Opus) {
			defer rescue.Guard(a.cancel)
			a.s.tracker.Heard()
			next(o)
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
			if cause := context.Cause(actx); cause != nil && ctx.Err() == nil {
				err = cause
			}
			return a.lived(), err
		case <-watch.C:
		}
		now := s.opts.Now()
		quiet, live := s.tracker.Quiet(now)
		limit := s.opts.First
		if live {
			limit = s.opts.Stall
		}
		switch {
		case quiet < limit:
			watch.Reset(limit - quiet)
		case s.tracker.Check(s.opts.Stall, now):
			cancel(ErrStalled)
		default:
			cancel(fmt.Errorf("connected, but no picture within %v", s.opts.First))
		}
	}
}

func (s *Supervisor) tell(status Status) {
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

// hidden is an error whose text was cleared of secrets.
type hidden struct {
	text string
	err  error
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.err }
