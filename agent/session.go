package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/prompt"
	"touchline/agent/repeat"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
	"touchline/pacing"
)

// Options are the parts and settings of a Session. Model, Input and NewDecoder
// are required; an output that is nil is not published.
type Options struct {
	Agent     Config
	Pacing    pacing.Config
	Media     media.Config
	Inference inference.Config
	Profiles  []prompt.Profile // at least the one that Agent.Profile names
	// Presets to choose from, and the name of the one that the settings are of; PresetAuto goes on from there.
	Presets []Preset
	Preset  string

	Engine Engine
	// EngineNote describes the limits of the engine for the page.
	EngineNote string

	Input VideoInput
	// NewDecoder makes the decoder.
	NewDecoder func(DecoderSinks) (Decoder, error)

	Video VideoOutput
	Audio AudioOutput
	Texts []TextOutput
	// Commit is called with each phase of an alert after the outputs got it, with the frame of a new one, so that it can
	// be delivered also after a crash. It must not wait for the disk. May be nil.
	Commit func(a Alert, frame *SeenFrame)
	// Alerts are the room's alert rules; nil for none.
	Alerts Alerts
	// Ears hear the room; nil where nobody can be heard.
	Ears Ears
	// OnChange is called after each change by people, perhaps concurrently; Live returns the result. May be nil.
	OnChange func()

	Log zerolog.Logger
}

// errReplaced is the cause of a cycle ended by a new instruction.
var errReplaced = errors.New("a new instruction came")

// errStopped is the cause of a cycle ended by Stop.
var errStopped = errors.New("commenting was stopped")

// errSourceChanged is the cause of a cycle whose pictures are of an earlier source.
var errSourceChanged = errors.New("the source changed")

// Session is the bot in one room. Its exported methods are safe for concurrent
// use; Run must be called once.
type Session struct {
	opts   Options
	log    zerolog.Logger
	engine *engine
	line   *delay.Line
	// lexicon is read only.
	lexicon *repeat.Lexicon
	dec     Decoder

	// speech says comments and announcements. It may be called with mu held.
	speech *speech.Scheduler

	wake    wake.Signal // wakes think
	started time.Time   // when Run began, guarded by mu

	transcodes bool // the source cannot be relayed as it is; only intake touches it

	// work has the goroutines of Run and of utterances.
	work *rescue.Group

	trying sync.Mutex // held by TryRule

	picture picture

	raw rawLooks

	statusMu sync.Mutex // held while a status is computed and published, so that the newest is published last

	mu            sync.Mutex
	live          *settings.Set
	ladder        *pacing.Ladder // of PresetAuto; nil without it
	presetReason  string
	profile       prompt.Profile
	own           []prompt.Profile // read only once it is here
	background    prompt.Background
	active        bool
	instruction   string
	instructionBy string
	gate          pacing.Gate
	lastSign      *window.Signature
	lastChange    window.Change
	said          []prompt.PastComment // the last keptComments, oldest first
	cycle         uint64
	inFlight      *cycle
	latest        *cycle    // the last whose comment began
	past          []order   // the last orders, oldest first
	done          *Done     // the last command
	orderedAt     time.Time // when the instruction began to act
	waiting       []WaitingOrder
	remarks       []prompt.Remark // the last keptRemarks, oldest first
	orders        []OrderEvent    // nudge publishes them
	lastEpoch     uint32          // of the last cycle's anchor
	lastPTS       time.Duration
	cycled        bool // lastEpoch and lastPTS are set
	failures      int
	retryAt       time.Time
	readyAt       time.Time // when the engine was seen to become ready
	quiet         string    // why the last cycle has no comment

	alerts   alerting
	looks    [][]*pastPicture // of the last looks, oldest first
	room     string           // why the room is away; "" when connected
	last     Status
	counters counters
	aligned  []time.Duration // recent alignment errors, oldest first
}

type counters struct {
	comments, silent, skipped, repeated, late, dropped, failed uint64
}

// New checks the options and makes a Session; Run runs it.
func New(opts Options) (*Session, error) {
	if opts.Engine == nil || opts.Input == nil || opts.NewDecoder == nil {
		return nil, errors.New("agent.Options: Engine, Input and NewDecoder are required")
	}
	s := &Session{
		opts:        opts,
		log:         opts.Log.With().Str("component", "agent").Logger(),
		wake:        wake.New(),
		instruction: opts.Agent.Instruction,
		active:      opts.Agent.AutoStart || opts.Agent.Instruction != "",
		lexicon:     repeat.New(),
		picture:     picture{window: window.New(opts.Media.WindowSize)},
	}
	configured := settings.InForce{Agent: opts.Agent, Pacing: opts.Pacing, Media: opts.Media, Inference: opts.Inference}
	configured.Agent.Talkativeness = cmp.Or(opts.Agent.Talkativeness, settings.UsualTalk)
	s.live = settings.New(configured, opts.Presets, opts.Preset)
	s.picture.configure(opts.Media.CaptureFPS, windowNeeds(opts.Agent))
	s.startLadder()
	profile, err := s.findProfile(opts.Agent.Profile)
	if err != nil {
		return nil, err
	}
	s.line = delay.New(delay.Options{
		MaxBytes: opts.Media.RelayMaxBytes,
		MaxAge:   time.Duration(opts.Media.RelayMaxSeconds * float64(time.Second)),
		Slew:     opts.Pacing.Slew,
		Initial:  pacing.NewDelayEstimator(opts.Pacing).Target(),
		Log:      opts.Log,
	})
	s.speech = speech.NewScheduler(speech.Settings{
		Voice: opts.Audio, Line: shownPicture{s.line, s.relays()}, Pacing: opts.Pacing, Changed: s.speechChanged, Log: s.log,
	})
	s.profile = profile
	s.live.UseProfile(settingsOf(profile))
	if s.dec, err = opts.NewDecoder(DecoderSinks{
		Picture:      s.onPicture,
		Encoded:      func(f media.EncodedFrame) { s.line.Push(f, time.Now()) },
		NeedKeyFrame: opts.Input.RequestKeyFrame,
	}); err != nil {
		return nil, fmt.Errorf("make the decoder: %w", err)
	}
	s.engine = &engine{now: &engineInForce{Engine: opts.Engine, note: opts.EngineNote}}
	if err := s.checkHearingLocked(Settings{Hearing: &opts.Agent.Hearing.Mode}); err != nil {
		return nil, err
	}
	s.speech.Pace(s.paceLocked().PauseAfter, s.live.Pacing, false)
	s.behaveLocked()
	if language := s.live.Inference.Voice.Language; !opts.Engine.Capabilities().Speaks(language) {
		s.log.Warn().Str("engine", opts.Engine.Name()).Str("language", language).
			Strs("engine_languages", opts.Engine.Capabilities().Languages).Msg("language not spoken by the engine")
	}
	return s, nil
}

// Run watches, thinks and speaks until ctx ends or a part fails for good. On
// return, all goroutines have ended and the engine's session is closed.
func (s *Session) Run(ctx context.Context) error {
	g, ctx := rescue.WithContext(ctx)
	s.mu.Lock()
	s.started, s.work = time.Now(), g
	s.mu.Unlock()
	g.Go(func() error { return s.dec.Run(ctx) })
	g.Go(func() error { return s.intake(ctx) })
	g.Go(func() error { return s.think(ctx) })
	g.Go(func() error { return s.speech.Run(ctx) })
	g.Go(func() error { return s.watchStatus(ctx) })
	if s.relays() {
		g.Go(func() error { return s.line.Run(ctx, s.opts.Video) })
	}
	err := g.Wait()
	cerr := s.engine.current().Close()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if cerr != nil {
			s.log.Warn().Err(cerr).Msg("engine session not closed")
		}
		return context.Cause(ctx)
	}
	return errors.Join(err, cerr)
}

// windowNeeds returns the number of pictures that a cycle reaches back.
func windowNeeds(cfg Config) int { return (cfg.Frames-1)*cfg.Stride + 1 }

func (s *Session) relays() bool { return s.opts.Video != nil && s.opts.Media.Relay }

// intake passes each access unit to the delay line and to the decoder.
func (s *Session) intake(ctx context.Context) error {
	for {
		f, err := s.opts.Input.ReadFrame(ctx)
		if err != nil {
			return fmt.Errorf("read the watched track: %w", err)
		}
		now := time.Now()
		fresh, back, sample := s.picture.admit(f, now)
		if fresh {
			s.onNewSource(f)
		} else if back {
			s.wake.Set()
		}
		if s.relays() {
			s.relay(f, now)
		}
		if err := s.dec.Decode(f, sample); err != nil {
			s.log.Debug().Err(err).Msg("frame not decoded")
			s.opts.Input.RequestKeyFrame()
		}
		if fresh {
			s.wake.Set()
		}
	}
}

// relay sends an access unit to the delay line, or turns on transcoding: no common
// browser plays H265, and the dependency descriptors of VP9 and AV1 with spatial
// layers cannot be relayed.
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
		s.dec.ForceKeyFrame() // answers the key frame requests of viewers
	}
}

// onNewSource clears the state of the previous source.
func (s *Session) onNewSource(f media.EncodedFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = nil
	s.lastSign = nil
	s.said = nil
	if s.opts.Alerts != nil {
		s.opts.Alerts.Forget()
	}
	s.log.Info().Uint32("epoch", f.Epoch).Stringer("codec", f.Codec).
		Int("width", f.Width).Int("height", f.Height).Msg("watching")
}

// onPicture takes a sampled picture from the decoder.
func (s *Session) onPicture(f media.VideoFrame) {
	ours, first := s.picture.add(f)
	if !ours {
		return // of the previous source
	}
	s.engine.current().Observe(engineFrame(f))
	if first {
		s.wake.Set()
	}
}

// Pictures returns pictures as they are in a prompt.
func Pictures(frames []window.Frame) []inference.Frame {
	out := make([]inference.Frame, len(frames))
	for i, f := range frames {
		out[i] = engineFrame(f.VideoFrame)
	}
	return out
}

func engineFrame(f media.VideoFrame) inference.Frame {
	return inference.Frame{PTS: f.PTS, Epoch: f.Epoch, Width: f.Width, Height: f.Height, Pix: f.Pix}
}
