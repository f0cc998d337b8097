package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
	"touchline/pacing"
)

// Options are the parts and settings of a Session. Model, Input and NewDecoder
// are required; a missing output means that this kind is not published.
type Options struct {
	Agent     Config
	Pacing    pacing.Config
	Media     media.Config
	Inference inference.Config
	Profiles  []Profile // at least the one that Agent.Profile names

	Model inference.Model
	// EngineNote says in plain words what the engine cannot do; shown on the page.
	EngineNote string

	Input VideoInput
	// NewDecoder makes the decoder.
	NewDecoder func(DecoderSinks) (Decoder, error)

	Video VideoOutput
	Audio AudioOutput
	Texts []TextOutput

	Log zerolog.Logger
}

// errReplaced is the cause of a look that was ended by a new order.
var errReplaced = errors.New("a new instruction came")

// errStopped is the cause of a look that was ended by stop.
var errStopped = errors.New("commenting was stopped")

// errSourceChanged ends a look whose pictures belong to a source that is gone.
var errSourceChanged = errors.New("the source has just changed")

// freshFor is how long after its last frame a source counts as there.
const freshFor = 2 * time.Second

// A frame is overdue after the time of some frames, at least after what a network may hold one back.
const (
	overdue       = 250 * time.Millisecond
	overdueFrames = 3
)

// Session is the bot in one room. Its exported methods are safe for concurrent
// use; Run must be called once.
type Session struct {
	opts   Options
	log    zerolog.Logger
	model  inference.Model
	engine inference.Session
	line   *delay.Line
	dec    Decoder

	wake    wake.Signal // think checks again what is due
	deliver wake.Signal // deliverLoop checks its queue again
	started time.Time   // when Run began, guarded by mu

	transcodes bool // the source cannot be relayed as it is; only intake touches it

	// work is the goroutines of Run; utterances being performed add theirs.
	work *rescue.Group

	telling sync.Mutex // held while a status is computed and told, so that the newest is told last

	mu         sync.Mutex
	agent      Config
	pace       pacing.Config
	media      media.Config
	infer      inference.Config
	profile    Profile
	active     bool
	order      string
	orderBy    string
	gate       pacing.Gate
	delays     *pacing.DelayEstimator
	clock      pacing.PlaybackClock
	window     *window.Window
	lastSign   *window.Signature
	lastChange window.Change
	carry      string // the last comment
	carryAt    time.Time
	cycle      uint64
	inFlight   *utterance
	queue      []*utterance // not yet heard, oldest first
	speaking   *utterance
	unsent     []Record // of comments dropped by a new order; nudge publishes them
	lastEpoch  uint32   // of the last look's anchor
	lastPTS    time.Duration
	looked     bool
	failures   int
	retryAt    time.Time
	quiet      string // why the last look said nothing

	grid     window.Grid
	source   sourceMeter
	room     string // why the room is away, "" when connected
	last     Status
	counters counters
	aligned  []time.Duration // the last alignment errors, oldest first
}

type counters struct {
	comments, silent, skipped, late, dropped, failed uint64
}

// New checks the options and builds a session; nothing runs yet.
func New(opts Options) (*Session, error) {
	if opts.Model == nil || opts.Input == nil || opts.NewDecoder == nil {
		return nil, errors.New("expected a model, a video input and a decoder: give all three in Options")
	}
	s := &Session{
		opts:    opts,
		log:     opts.Log.With().Str("component", "agent").Logger(),
		model:   opts.Model,
		wake:    wake.New(),
		deliver: wake.New(),
		agent:   opts.Agent,
		pace:    opts.Pacing,
		media:   opts.Media,
		infer:   opts.Inference,
		order:   opts.Agent.Instruction,
		active:  opts.Agent.AutoStart || opts.Agent.Instruction != "",
		delays:  pacing.NewDelayEstimator(opts.Pacing),
		window:  window.New(opts.Media.WindowSize),
	}
	s.window.Limit(windowNeeds(opts.Agent))
	profile, err := s.findProfile(opts.Agent.Profile)
	if err != nil {
		return nil, err
	}
	s.profile = profile
	s.line = delay.New(delay.Options{
		MaxBytes: opts.Media.RelayMaxBytes,
		MaxAge:   time.Duration(opts.Media.RelayMaxSeconds * float64(time.Second)),
		Slew:     opts.Pacing.Slew,
		Initial:  s.delays.Target(),
		Log:      opts.Log,
	})
	if s.dec, err = opts.NewDecoder(DecoderSinks{
		Picture:      s.onPicture,
		Encoded:      func(f media.EncodedFrame) { s.line.Push(f, time.Now()) },
		NeedKeyFrame: opts.Input.RequestKeyFrame,
	}); err != nil {
		return nil, fmt.Errorf("make the decoder: %w", err)
	}
	if s.engine, err = opts.Model.NewSession(); err != nil {
		return nil, fmt.Errorf("open a session of the %s engine: %w", opts.Model.Name(), err)
	}
	if language := opts.Inference.Voice.Language; !opts.Model.Capabilities().Speaks(language) {
		s.log.Warn().Str("engine", opts.Model.Name()).Str("language", language).
			Strs("engine_languages", opts.Model.Capabilities().Languages).Msg("language not spoken by the engine")
	}
	return s, nil
}

// Run watches, thinks and speaks until ctx ends or a part fails for good. When
// it returns, every goroutine and the engine's session are gone.
func (s *Session) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	s.mu.Lock()
	s.started, s.work = time.Now(), g
	s.mu.Unlock()
	g.Go(func() error { return s.dec.Run(ctx) })
	g.Go(func() error { return s.intake(ctx) })
	g.Go(func() error { return s.think(ctx) })
	g.Go(func() error { return s.deliverLoop(ctx) })
	g.Go(func() error { return s.watchStatus(ctx) })
	if s.relays() {
		g.Go(func() error { return s.line.Run(ctx, s.opts.Video) })
	}
	err := g.Wait()
	cerr := s.engine.Close()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if cerr != nil {
			s.log.Warn().Err(cerr).Msg("engine session not closed")
		}
		return context.Cause(ctx)
	}
	return errors.Join(err, cerr)
}

// windowNeeds is how many pictures a look reaches back over.
func windowNeeds(cfg Config) int { return (cfg.Frames-1)*cfg.Stride + 1 }

func (s *Session) relays() bool { return s.opts.Video != nil && s.opts.Media.Relay }

// intake tees every access unit: to the delay line as it is, to the decoder.
func (s *Session) intake(ctx context.Context) error {
	for {
		f, err := s.opts.Input.ReadFrame(ctx)
		if err != nil {
			return fmt.Errorf("read the watched track: %w", err)
		}
		now := time.Now()
		fresh, sample := s.admit(f, now)
		if s.relays() {
			s.relay(f, now)
		}
		if err := s.dec.Decode(f, sample); err != nil {
			s.log.Debug().Err(err).Msg("decoder refuses a frame")
			s.opts.Input.RequestKeyFrame()
		}
		if fresh {
			s.wake.Set()
		}
	}
}

// admit notes an access unit: whether it begins another source, and whether its
// picture is wanted.
func (s *Session) admit(f media.EncodedFrame, now time.Time) (fresh, sample bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh = s.source.add(f, now); fresh {
		s.onNewSourceLocked(f)
	}
	return fresh, s.grid.Take(f, s.media.CaptureFPS)
}

// relay sends one access unit to the delay line as it is, or has it encoded anew: no
// common browser plays H265, and the dependency descriptors of VP9 and AV1 with
// spatial layers do not survive the way through the bot.
func (s *Session) relay(f media.EncodedFrame, now time.Time) {
	transcode := f.Codec == media.H265 || f.SpatialLayers > 1
	if transcode != s.transcodes {
		s.transcodes = transcode
		s.dec.SetTranscode(transcode)
		s.log.Info().Stringer("codec", f.Codec).Int("spatial_layers", f.SpatialLayers).
			Bool("transcode", transcode).Msg("relay")
	}
	switch {
	case !transcode:
		s.line.Push(f, now)
	case f.KeyFrame:
		s.dec.ForceKeyFrame() // viewers who asked the source for one get ours
	}
}

// onNewSourceLocked forgets everything that belongs to the pictures before.
func (s *Session) onNewSourceLocked(f media.EncodedFrame) {
	s.window.Clear()
	s.lastSign = nil
	s.carry = ""
	s.grid = window.Grid{}
	s.log.Info().Uint32("epoch", f.Epoch).Stringer("codec", f.Codec).
		Int("width", f.Width).Int("height", f.Height).Msg("watching")
}

// onPicture takes a sampled picture from the decoder.
func (s *Session) onPicture(f media.VideoFrame) {
	ours, first := s.keepPicture(f)
	if !ours {
		return // a straggler of the source before
	}
	s.engine.Observe(engineFrame(f))
	if first {
		s.wake.Set()
	}
}

func (s *Session) keepPicture(f media.VideoFrame) (ours, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Epoch != s.source.epoch {
		return false, false
	}
	s.window.Push(f)
	return true, s.window.Len() == 1
}

func engineFrame(f media.VideoFrame) inference.Frame {
	return inference.Frame{PTS: f.PTS, Epoch: f.Epoch, Width: f.Width, Height: f.Height, Pix: f.Pix}
}

// sourceMeter knows what comes in: epoch, size, measured rate, last frame.
type sourceMeter struct {
	any    bool
	epoch  uint32
	codec  media.Codec
	width  int
	height int
	lastAt time.Time
	// pts and arrival of the newest frame.
	pts     time.Duration
	arrival time.Time
	from    time.Time
	count   int
	fps     float64
}

// add counts a frame and tells whether it begins another source.
func (m *sourceMeter) add(f media.EncodedFrame, now time.Time) bool {
	fresh := !m.any || f.Epoch != m.epoch
	if fresh {
		*m = sourceMeter{any: true, epoch: f.Epoch, from: now}
	}
	m.codec, m.lastAt, m.pts, m.arrival = f.Codec, now, f.PTS, f.Arrival
	if f.Width > 0 {
		m.width, m.height = f.Width, f.Height
	}
	m.count++
	if d := now.Sub(m.from); d >= freshFor {
		m.fps = float64(m.count) / d.Seconds()
		m.from, m.count = now, 0
	}
	return fresh
}

// stopped tells whether the next frame is overdue: it is lost, or the camera
// has gone and is fresh for a moment only.
func (m *sourceMeter) stopped(now time.Time) bool {
	if m.fps <= 0 {
		return false // not known yet
	}
	return now.Sub(m.lastAt) > max(overdue, time.Duration(overdueFrames/m.fps*float64(time.Second)))
}

func (m *sourceMeter) fresh(now time.Time) bool {
	return m.any && now.Sub(m.lastAt) <= freshFor
}
