package agent

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/alert"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/packet"
	"touchline/media/window"
	"touchline/pacing"
)

// Options are the parts and settings of a Session. Model, Input and NewDecoder
// are required; an output that is nil is not published.
type Options struct {
	Agent     settings.Config
	Pacing    pacing.Config
	Media     media.Config
	Inference inference.Config
	Profiles  []prompt.Profile // at least the one that Agent.Profile names
	// Presets are the presets to choose from, Preset is the name of the configured one.
	Presets []settings.Preset
	Preset  string

	Engine Engine
	// EngineNote describes the limits of the engine for the page.
	EngineNote string
	// OpenSensor is as look.Options.OpenSensor.
	OpenSensor func(looked func(news bool)) (inference.Sensor, error)

	Input VideoInput
	// NewDecoder makes the decoder.
	NewDecoder func(DecoderSinks) (Decoder, error)

	Video VideoOutput
	// Carries reports whether the room takes the delayed picture in a codec; nil for all. A picture in another one is transcoded.
	Carries func(media.Codec) bool
	Audio   speech.Voice
	Texts   []TextOutput
	// Commit is called with each phase of an alert after the outputs got it, with the frame of a new one, so that it can
	// be delivered also after a crash. It must not wait for the disk. May be nil.
	Commit func(a alert.Alert, frame *window.Frame)
	// Alerts are the room's alert rules; nil for none.
	Alerts *alert.Set
	// Regions are the room's masks, zones and lines; nil for none.
	Regions *region.Set
	// Ears recognize speech in the room; nil without a recognizer.
	Ears command.Ears
	// OnChange is called after each change by people, perhaps concurrently; Live returns the result. May be nil.
	OnChange func()

	Log zerolog.Logger
}

// Session is the bot in one room: it connects its parts and owns their lifetime. Its methods are safe for concurrent use; Run
// must be called once.
type Session struct {
	// Steering has what people want, Looks makes the comments.
	*command.Steering

	Looks *look.Loop

	opts    Options
	log     zerolog.Logger
	engine  *look.Engine
	picture *look.Picture
	line    *delay.Line
	dec     Decoder
	cover   *cover
	speech  *speech.Scheduler // says comments and announcements

	transcodes atomic.Bool   // the source cannot be relayed as it is
	work       *rescue.Group // has the goroutines of Run and of alerts

	statusMu sync.Mutex // held while a status is computed and published, so that the newest is published last
	last     Status     // published; guarded by statusMu

	heardMu   sync.Mutex // held while speech and records are passed on or deleted, so that none is passed on after its deletion
	forgotten forgotten  // guarded by heardMu

	mu      sync.Mutex
	started time.Time // when Run began
	latest  *comment  // the last that began
	room    string    // why the room is away; "" when connected
	tally   tally
}

// New checks the options and makes a Session; Run runs it.
func New(opts Options) (_ *Session, err error) {
	if opts.Engine == nil || opts.Input == nil || opts.NewDecoder == nil {
		return nil, errors.New("agent.Options: Engine, Input and NewDecoder are required")
	}
	s := &Session{
		opts:    opts,
		log:     opts.Log.With().Str("component", "agent").Logger(),
		picture: look.NewPicture(opts.Media.WindowSize),
		tally:   tally{outcomes: map[string]uint64{}},
	}
	s.picture.Configure(opts.Media.CaptureFPS, opts.Agent.Reach())
	s.line = delay.New(delay.Options{
		MaxBytes: opts.Media.RelayMaxBytes,
		MaxAge:   time.Duration(opts.Media.RelayMaxSeconds * float64(time.Second)),
		Slew:     opts.Pacing.Slew,
		Initial:  pacing.NewDelayEstimator(opts.Pacing).Target(),
		Log:      opts.Log,
	})
	s.speech = speech.NewScheduler(speech.Settings{
		Voice: opts.Audio, Line: s.line, Pacing: opts.Pacing, Changed: s.speechChanged, Log: s.log,
	})
	if s.dec, err = opts.NewDecoder(DecoderSinks{
		Picture: s.onPicture,
		Encoded: func(f media.EncodedFrame) {
			if s.transcodes.Load() {
				s.line.Push(f, time.Now())
			}
		},
		NeedKeyFrame: opts.Input.RequestKeyFrame,
	}); err != nil {
		return nil, fmt.Errorf("make the decoder: %w", err)
	}
	s.cover = newCover(opts.Regions, s.dec)
	s.engine = look.NewEngine(opts.Engine, opts.EngineNote)
	if s.Steering, err = command.NewSteering(command.Options{
		Configured: settings.InForce{Agent: opts.Agent, Pacing: opts.Pacing, Media: opts.Media, Inference: opts.Inference},
		Profiles:   opts.Profiles, Presets: opts.Presets, Preset: opts.Preset, Engine: s.engine, Ears: opts.Ears, Room: steered{s},
		Mute: opts.Audio == nil, PictureSize: s.picture.Size, SetLongSide: s.dec.SetLongSide, Log: s.log,
	}); err != nil {
		return nil, err
	}
	state := s.State()
	o := look.Options{
		Task: s.task(state), Engine: s.engine, Picture: s.picture, Newest: s.cover.newest, Ahead: s.delayAhead,
		Speech: commentary{s.speech, s}, OpenSensor: opts.OpenSensor, Output: lookOutput{s}, Log: s.log,
	}
	if opts.Alerts != nil {
		o.Rules = ruleLooks{opts.Alerts, s}
	}
	if opts.Regions != nil {
		o.Regions = func() []inference.Region { return opts.Regions.Zones(false) }
	}
	s.Looks = look.New(o)
	s.speech.Pace(state.Pace().PauseAfter, state.Pacing, false)
	s.behave(state.InForce)
	s.cover.change()
	if language := state.Inference.Voice.Language; !opts.Engine.Capabilities().Speaks(language) {
		s.log.Warn().Str("engine", opts.Engine.Name()).Str("language", language).
			Strs("engine_languages", opts.Engine.Capabilities().Languages).Msg("language not spoken by the engine")
	}
	return s, nil
}

// delayAhead returns the delay of a frame that arrives now.
func (s *Session) delayAhead(now time.Time) time.Duration {
	if !s.relays() {
		return 0
	}
	source := s.picture.Source()
	due, ok := s.line.Due(source.Epoch, source.PTS, now)
	if !ok {
		return s.line.Delay()
	}
	return due.Sub(source.Arrival)
}

// Newest returns the newest decoded picture, for snapshots.
func (s *Session) Newest(ctx context.Context) (media.VideoFrame, error) {
	return s.dec.Latest(ctx)
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
	g.Go(func() error { return s.Looks.Run(ctx) })
	g.Go(func() error { return s.speech.Run(ctx) })
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

func (s *Session) relays() bool { return s.opts.Video != nil && s.opts.Media.Relay }

// intake passes each access unit to the delay line and to the decoder.
func (s *Session) intake(ctx context.Context) error {
	for {
		f, err := s.opts.Input.ReadFrame(ctx)
		if err != nil {
			return fmt.Errorf("read the watched track: %w", err)
		}
		now := time.Now()
		fresh, back, sample := s.picture.Admit(f, now)
		if fresh {
			s.onNewSource(f)
		} else if back {
			s.Looks.Wake()
		}
		if s.relays() {
			s.relay(f, now)
		}
		if err := s.dec.Decode(f, sample); err != nil {
			s.log.Debug().Err(err).Msg("frame not decoded")
			s.opts.Input.RequestKeyFrame()
		}
		if fresh {
			s.Looks.Wake()
		}
	}
}

// relay sends an access unit to the delay line, or turns on transcoding: no common
// browser plays H265, the dependency descriptors of VP9 and AV1 with spatial
// layers cannot be relayed, the room may not take every codec, and masks need new pictures. Where the
// room takes no codec to transcode to, the lowest layer of VP9 is relayed.
func (s *Session) relay(f media.EncodedFrame, now time.Time) {
	carries := s.opts.Carries
	if carries == nil {
		carries = func(media.Codec) bool { return true }
	}
	if f.SpatialLayers > 1 && carries(f.Codec) && !carries(media.H264) && !carries(media.VP8) {
		f = packet.BaseLayer(f)
	}
	transcode := f.Codec == media.H265 || f.SpatialLayers > 1 || !carries(f.Codec) || s.cover.masksDelayed()
	if s.transcodes.Load() && !transcode && !f.KeyFrame {
		s.opts.Input.RequestKeyFrame() // viewers cannot decode the source's own units before it
		transcode = true
	}
	if transcode != s.transcodes.Load() {
		s.transcodes.Store(transcode)
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
	s.cover.size.Store(&image.Point{})
	s.Looks.SourceChanged()
	if s.opts.Alerts != nil {
		s.opts.Alerts.Forget()
	}
	s.log.Info().Uint32("epoch", f.Epoch).Stringer("codec", f.Codec).
		Int("width", f.Width).Int("height", f.Height).Msg("watching")
}

// onPicture takes a sampled picture from the decoder.
func (s *Session) onPicture(f media.VideoFrame) {
	s.cover.size.Store(&image.Point{X: f.Width, Y: f.Height})
	if s.cover.whole(f) {
		s.picture.Clear() // nothing to look at
		return
	}
	ours, first := s.picture.Add(f)
	if !ours {
		return // of the previous source
	}
	s.Looks.Observe(look.EngineFrame(f))
	if first {
		s.Looks.Wake()
	}
}
