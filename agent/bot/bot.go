// Package bot puts one commentator together: the session with its engine, the
// room, the codec process, the voice and the page's view of it.
//
// It owns the choice and the wiring of the parts, and the loading and loss of engines.
// It depends neither on the settings file nor on the worker that may run many commentators.
package bot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/audioapi"
	"touchline/agent/camera"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/hearing"
	"touchline/agent/prompt"
	"touchline/agent/region"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/room/publish"
	"touchline/agent/room/watch"
	"touchline/agent/settings"
	agentspeech "touchline/agent/speech"
	"touchline/agent/whep"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/minicpmo"
	"touchline/inference/remote"
	"touchline/inference/sight"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/delay"
	"touchline/media/fanout"
	"touchline/media/signaling"
	"touchline/media/sound"
	"touchline/media/speech"
	"touchline/pacing"
)

// Settings of one commentator, each part as its own package defines it.
type Settings struct {
	Agent   settings.Config
	Media   media.Config
	Pacing  pacing.Config
	LiveKit room.Config
	Control control.Config
	// Engine chooses the model; Remote, MiniCPM and Sight set the engines that have settings.
	Engine  inference.Config
	Remote  remote.Config
	MiniCPM minicpmo.Config
	Sight   sight.Config
	// Auto is what the engine "auto" stands for.
	Auto    Auto
	Sources camera.Config
	WHEP    whep.Config
	// Transcription sets the limits of transcription as a service.
	Transcription audioapi.Config
	ICE           signaling.ICEConfig
	// Alert lists the alert rules that the room begins with.
	Alert alert.Config
	// Regions lists the masks, zones and lines that the room begins with.
	Regions region.Config
	// Profiles to choose from, at least the one that Agent names.
	Profiles []prompt.Profile
	// Presets to choose from, and the name of the one that the settings are of.
	Presets []settings.Preset
	Preset  string
	// Comments is the number of comments that a late joiner is shown.
	Comments int
}

// Auto is the engine that "auto" stands for.
type Auto struct {
	// Engine is scene if empty.
	Engine string
	// Why says why it is not a better one; "" if it is the best.
	Why string
}

// Options of a Bot.
type Options struct {
	Settings Settings
	// Keys open the room; the settings' own when empty.
	Keys conn.Keys
	// Engines are shared by several bots, and run by the caller; when nil, the bot has its own.
	Engines *Engines
	// Engine replaces the engine in the settings. The caller runs and closes it. May be nil.
	Engine *Engine
	// Recognition replaces the recognizer in the settings. The caller runs it. May be nil.
	Recognition *Recognition
	// Admission decides whether prompts of the room may begin; nil for all.
	Admission engine.Admission
	// LoopbackOnly keeps media sockets on 127.0.0.1, for a server in this process.
	LoopbackOnly bool
	// BuiltIn is the identity of the built-in camera, which the source "scene" means; "" when there is none.
	BuiltIn string
	// Worlds is the built-in camera if it can show several worlds; may be nil. The caller runs it.
	Worlds *camera.Worlds
	// Grader judges the comments on Worlds; may be nil.
	Grader Grader
	// Texts are further outputs.
	Texts []agent.TextOutput
	// Replaced is passed to the room.
	Replaced func(ctx context.Context, sid string) (bool, error)
	// Kept are people's changes in the room, from Bot.Kept of its previous bot. They replace those of the state file.
	Kept map[string]json.RawMessage
	// Hooks are called for each connection to the room.
	Hooks []room.Hooks
	// OnCrash is called, perhaps twice, with a panic that ends Run, while the bot is still in the room. May be nil.
	OnCrash func(err error)
	// Memory is shared by all decoders of the process; nil for no bound.
	Memory *codec.Memory
	// Outputs are shared by all bots of the process; may be nil.
	Outputs *Outputs
	Log     zerolog.Logger
}

// Bot is one commentator in one room with its page.
type Bot struct {
	*agent.Session
	Room   *room.Supervisor
	Voice  *speech.Writer
	Hub    *events.Hub
	Tokens console.Tokens
	Alerts *alert.Set
	// Regions are the masks, zones and lines of the room.
	Regions *region.Set

	opts     Options
	engine   *engineSwitcher
	captions *control.Captions
	control  *control.Control
	delayed  *fanout.Pictures
	scenery  *scenery
	camera   cameraSound
	player   *sound.Player
	players  *whep.Feed
	ears     *hearing.Ears // nil without a recognizer
	sources  *Sources      // nil without NewSources
	kept     *roomState
	// chosen is the source that people chose, as in command.Change; nil before.
	chosen  atomic.Pointer[string]
	outputs roomOutputs

	announcing sync.Mutex // orders the lists of rules that outputs get
	log        zerolog.Logger
}

// New checks the settings and makes the parts; nothing runs and nothing connects yet.
func New(opts Options) (_ *Bot, err error) {
	if opts.Keys == (conn.Keys{}) {
		opts.Keys = opts.Settings.LiveKit.Keys()
	}
	opts.Keys.Links = opts.Outputs.Links()
	b := &Bot{opts: opts, scenery: newScenery(opts), log: opts.Log}
	if err := b.makeRules(); err != nil {
		return nil, err
	}
	b.engine = newEngineSwitcher(b)
	if err := b.makeEars(); err != nil {
		return nil, err
	}
	if err := b.makeRoom(); err != nil {
		return nil, err
	}
	kept, values, err := newRoomState(b)
	if err != nil {
		return nil, err
	}
	if err := b.engine.begin(kept.engine(values)); err != nil {
		kept.end()
		return nil, err
	}
	defer func() {
		if err != nil {
			kept.end()
			b.outputs.close()
			err = errors.Join(err, b.engine.close())
		}
	}()
	// A ready token names its room.
	b.Tokens = &minter{keys: opts.Keys, room: b.Room.RoomName(), agent: b.Room.Identity()}
	if err := b.makeVoice(); err != nil {
		return nil, err
	}
	if err := b.makeSession(b.makeOutputs()); err != nil {
		return nil, err
	}
	kept.restore(values)
	b.Alerts.OnChange(b.rulesChanged)
	b.announceRules()
	b.scenery.suggest(b.Live().Profile)
	b.SetRoom("joining the room")
	return b, nil
}

// makeSession makes the Session with the engine in force.
func (b *Bot) makeSession(texts []agent.TextOutput) error {
	cfg := b.opts.Settings
	talk, err := b.engine.now.Open(b.opts.Admission)
	if err != nil {
		return err
	}
	options := agent.Options{
		Agent: cfg.Agent, Pacing: cfg.Pacing, Media: cfg.Media, Inference: cfg.Engine,
		Profiles: cfg.Profiles, Presets: cfg.Presets, Preset: cfg.Preset,
		Engine: talk, EngineNote: b.engine.now.Note, OpenSensor: b.engine.openSensor,
		Input: b.Room.Watcher(), NewDecoder: b.newDecoder,
		Video: b.delayed, Carries: b.Room.Carries, Audio: voiceOutput{b.Voice},
		Texts: texts, Alerts: b.Alerts, Regions: b.Regions, Commit: b.outputs.commit, OnChange: b.save,
		Log: b.log,
	}
	if b.ears != nil { // a nil pointer in an interface is not nil
		options.Ears, options.Texts = b.ears, append(options.Texts, b.ears)
		b.ears.Attach(b)
	}
	if b.Session, err = agent.New(options); err != nil {
		return errors.Join(fmt.Errorf("prepare the session: %w", err), talk.Close())
	}
	return nil
}

// makeEars makes the speech recognition of the room, if there is a recognizer.
func (b *Bot) makeEars() error {
	r, err := b.engine.engines.recognition(b.opts.Settings)
	if r != nil {
		b.ears = r.ears(b.log)
	}
	return err
}

// microphones connects the room's microphones to the ears.
type microphones struct {
	*hearing.Ears

	log zerolog.Logger
}

// Open implements watch.Microphones.
func (m microphones) Open(mic agent.Microphone) watch.MicrophoneSink {
	sink, err := m.Ears.Open(mic)
	if errors.Is(err, hearing.ErrEnded) {
		return nil
	}
	if err != nil {
		m.log.Warn().Err(err).Str("participant", mic.Identity).Msg("microphone not heard")
		return nil
	}
	return sink
}

// errDeaf is returned for push-to-talk while speech recognition is off.
var errDeaf = errors.New("speech recognition is off: set inference.recognizer.program")

// Talk begins or ends a push-to-talk; see hearing.Ears.
func (b *Bot) Talk(identity string, held bool) error {
	if b.ears == nil {
		return errDeaf
	}
	return b.ears.Talk(identity, held)
}

// hearVoice passes the voice to the ears, which distinguish its echo from people.
func (b *Bot) hearVoice(ctx context.Context) error {
	frames, cancel := b.Voice.Frames()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f, ok := <-frames:
			if !ok {
				return nil
			}
			b.ears.Voice(f.PCM, f.Due)
		}
	}
}

// makeOutputs makes the outputs of picture, texts and alerts, and returns those of texts.
func (b *Bot) makeOutputs() []agent.TextOutput {
	cfg := b.opts.Settings
	b.Hub = events.NewHub(events.Options{History: cfg.Comments, JPEGQuality: cfg.Media.JPEGQuality})
	b.captions = control.NewCaptions(b.Room, cfg.Agent.CopyToChat, b.log)
	pictures := fanout.Options{Room: b.Room.Relay(), AskKeyFrame: b.Room.Watcher().RequestKeyFrame}
	if sound := b.camera.line; sound != nil {
		pictures.Before = func(f delay.OutFrame) { sound.Picture(f.Arrival, f.NTP, f.Due) }
	}
	b.delayed = fanout.NewPictures(pictures)
	b.Room.Relay().Replay = b.delayed.Replay
	b.players = whep.NewFeed(whep.FeedOptions{Pictures: b.delayed, Mix: b.player.Mix, Past: cfg.Comments})
	texts := []agent.TextOutput{b.captions, b.Hub, b.players}
	if b.opts.Grader != nil {
		texts = append(texts, b.opts.Grader)
	}
	b.outputs = b.opts.Outputs.of(b.Room.RoomName(), cfg.LiveKit.Identity, append(texts, b.opts.Texts...)...)
	return b.outputs.texts
}

// makeRoom makes the room's client, its control and the receiver of the camera's sound.
func (b *Bot) makeRoom() (err error) {
	cfg, opts := b.opts.Settings, b.opts
	lk := cfg.LiveKit
	if b.camera, err = newCameraSound(cfg); err != nil {
		return fmt.Errorf("prepare the camera's sound: %w", err)
	}
	b.control = control.New(cfg.Control, opts.Keys, b, b.Alerts, b.Regions, opts.Log)
	back := func(*lksdk.Room) { b.SetRoom("") }
	options := room.Options{
		URL: lk.URL, Keys: opts.Keys, Token: string(lk.Token),
		Room: lk.Room, Identity: lk.Identity, Name: lk.Name,
		Watch: cfg.Media.Watch, Relay: cfg.Media.Relay, LongSide: cfg.Media.LongSide, LoopbackOnly: opts.LoopbackOnly,
		Sound:          b.camera.sink(),
		Replaced:       opts.Replaced,
		ReconnectDelay: lk.ReconnectDelay, MaxReconnectDelay: lk.MaxReconnectDelay,
		OnOutage: func(err error) {
			if b.Session != nil {
				b.SetRoom("disconnected from the room: " + err.Error())
			}
		},
		OnCrash: opts.OnCrash,
		Control: b.control,
		Hooks:   append([]room.Hooks{{Joined: back, Reconnected: back, Left: func(r *lksdk.Room) { b.captions.Left(r) }}}, opts.Hooks...),
		Log:     opts.Log,
	}
	if b.ears != nil {
		options.Microphones = microphones{b.ears, opts.Log}
	}
	if b.Room, err = room.New(options); err != nil {
		return fmt.Errorf("prepare the room: %w", err)
	}
	return nil
}

// makeVoice makes the voice in the room and the player of the camera's sound.
func (b *Bot) makeVoice() (err error) {
	b.Voice, err = speech.New(speech.Options{Out: b.Room.Voice(), Log: b.opts.Log})
	if err != nil {
		return fmt.Errorf("prepare the voice: %w", err)
	}
	b.player, err = sound.NewPlayer(sound.PlayerOptions{Voice: b.Voice, Line: b.camera.line, Out: b.Room.Sound()})
	if err != nil {
		return fmt.Errorf("prepare the camera's sound: %w", err)
	}
	return nil
}

// newDecoder starts no process yet; the session runs the decoder.
func (b *Bot) newDecoder(sinks agent.DecoderSinks) (agent.Decoder, error) {
	return codec.New(codec.Options{
		LongSide: b.opts.Settings.Media.LongSide, OnPicture: sinks.Picture, OnRestart: sinks.NeedKeyFrame,
		OnUndecodable: func(error) { sinks.NeedKeyFrame() },
		Transcode:     codec.TranscodeOptions{OnFrame: sinks.Encoded, Choose: func() media.Codec { return publish.Encodable(b.Room.Carries) }},
		Memory:        b.opts.Memory, Log: b.opts.Log,
	})
}

// Run runs all parts until ctx ends or one fails for good. A panic of a part is such a failure. When ctx ends, the parts end in the
// order of the data: what people said gets its text, the captions are sent, the bot leaves the room, and its engines are closed.
func (b *Bot) Run(ctx context.Context) (err error) {
	defer b.outputs.close()
	defer b.kept.end()
	defer func() {
		if !errors.Is(err, conn.ErrReplaced) { // another bot serves the room
			b.outputs.failed(err)
		}
	}()
	g, failed := rescue.WithContext(context.WithoutCancel(ctx))
	var parts []context.Context // each ends with its part
	// part runs a part until before or parent ends.
	part := func(parent, before context.Context, run func(context.Context) error) context.Context {
		over, end := context.WithCancel(context.WithoutCancel(ctx))
		parts = append(parts, over)
		g.Go(func() error {
			defer end()
			ctx, cancel := context.WithCancelCause(parent)
			defer cancel(nil)
			defer context.AfterFunc(before, func() { cancel(context.Cause(before)) })()
			err := rescue.Call(func() error { return run(ctx) })
			if _, crash := rescue.Of(err); crash && b.opts.OnCrash != nil {
				b.opts.OnCrash(err)
			}
			if before.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(before))) {
				return nil // as it was asked to
			}
			return err
		})
		return over
	}
	heard := ctx
	if b.ears != nil {
		heard = part(failed, ctx, b.ears.Run)
		part(failed, ctx, b.hearVoice)
	}
	told := part(failed, heard, b.captions.Run)
	part(failed, told, b.Room.Run)
	for _, run := range []func(context.Context) error{
		b.Voice.Run, b.player.Run, b.Session.Run, b.control.Run, b.engine.run,
		func(ctx context.Context) error {
			b.Hub.Remember(b.opts.Outputs.past(ctx, b.Room.RoomName(), b.opts.Settings.Comments))
			return nil
		},
	} {
		part(failed, ctx, run)
	}
	if b.opts.Engines == nil {
		rest, left := context.WithCancel(context.WithoutCancel(ctx))
		others := parts
		g.Go(func() error {
			defer left()
			for _, p := range others {
				<-p.Done()
			}
			return nil
		})
		part(context.WithoutCancel(ctx), rest, b.engine.engines.Run)
	}
	return errors.Join(rescue.UnlessCanceled(g.Wait()), b.engine.close())
}

// Console returns the server of the page for this bot. announce is called with
// its address once it listens.
func (b *Bot) Console(cfg console.Config, announce func(url string)) (*console.Server, error) {
	registry := prometheus.NewRegistry()
	err := registry.Register(b.opts.Outputs)
	err = errors.Join(err, registry.Register(b.engine.engines))
	if err != nil {
		return nil, fmt.Errorf("register the bot's metrics: %w", err)
	}
	var players console.Players
	if b.opts.Settings.WHEP.Enabled {
		server, err := NewPlayers(PlayersOptions{
			Config: b.opts.Settings.WHEP, ICE: b.opts.Settings.ICE, Keys: b.opts.Keys, LoopbackOnly: OnLoopback(cfg.Listen), Log: b.log,
		})
		if err != nil {
			return nil, err
		}
		if _, err := server.Add(b.Room.RoomName(), b.players); err != nil {
			return nil, fmt.Errorf("serve WHEP players: %w", err)
		}
		players = server
	}
	speech, err := b.engine.engines.Speech(b.opts.Settings.Engine.Voice, func() *Engine { return b.engine.inForce().Engine }, b.log)
	if err != nil {
		return nil, err
	}
	words, err := b.engine.engines.Transcription(b.opts.Settings, func() inference.Model { return b.engine.inForce() })
	if err != nil {
		return nil, err
	}
	s, err := console.New(console.Options{
		Config: cfg, Room: b.ConsoleRoom(), SignalURL: b.opts.Settings.LiveKit.URL, WHEP: players,
		Keys:   b.opts.Keys,
		Speech: speech, Transcription: words, WHIP: b.sources.handler(), Registry: registry, Announce: announce, Log: b.log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the page: %w", err)
	}
	return s, nil
}

// ConsoleRoom returns the bot's room as a console shows it.
func (b *Bot) ConsoleRoom() console.Room {
	out := console.Room{
		Name: b.Room.RoomName(), Bot: b, Hub: b.Hub, Pictures: pictures{b}, Sound: b.Voice,
		Tokens: b.Tokens, Rules: b.Alerts, Regions: b.Regions, Prompts: b, Looks: b.Looks, Engines: b, TryRule: b.TryRule,
		Metrics: metrics.Func(b.collect), Viewers: b.Room.Viewers,
		Forget:      b.forget,
		JPEGQuality: b.opts.Settings.Media.JPEGQuality, PictureRate: b.opts.Settings.Media.MJPEGFPS,
	}
	if b.sources != nil { // a nil pointer in an interface is not nil
		out.Sources = b.sources
	}
	return out
}

// voiceOutput adapts the speech writer to speech.Voice.
type voiceOutput struct{ w *speech.Writer }

// SetGain implements speech.Voice.
func (v voiceOutput) SetGain(db float64) { v.w.SetGain(db) }

// NewUtterance implements speech.Voice.
func (v voiceOutput) NewUtterance(ev agentspeech.Events) agentspeech.Sound {
	return v.w.NewUtterance(speech.Events(ev))
}
