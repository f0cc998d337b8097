package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest/apart"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/internal/e2e/netfault"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/worlds"
)

// Options of a Stage.
type Options struct {
	// Model of the bot, with a voice if the settings ask for speech; nil for the settings' engine.
	Model inference.Model
	// Recognizer of the bot; nil for the settings' recognizer.
	Recognizer inference.Recognizer
	// Config of the bot; the defaults when nil.
	Config *configs.Config
	// Width, Height and FPS of the camera; 640, 360 and 30 when 0.
	Width, Height, FPS int
	Codec              media.Codec
	Seed               uint64
	// Clip of AddReplayedCamera; nil for a match.
	Clip *Clip
	// Crowd adds the sound of the match to the camera.
	Crowd bool
	// NoCamera leaves the room without one; NoBot without the bot.
	NoCamera, NoBot bool
	// Room is the name of the room; RoomName when "".
	Room string
	// At is another process's server, with its Keys; "" starts a server for the stage.
	At   string
	Keys conn.Keys
	// Texts are further outputs of the bot.
	Texts []agent.TextOutput
	// Network puts a proxy that can impair the network between bot and server.
	Network bool
	Log     zerolog.Logger
}

// Stage is a room with a server, a camera, a bot and viewers, all in this process except the codecs.
type Stage struct {
	Server *sfu.Server
	Keys   conn.Keys
	Bot    *bot.Bot
	Camera *camera.Demo
	Reader *Reader
	// Network of the bot; nil without it.
	Network *netfault.Proxy
	Log     zerolog.Logger

	opts    Options
	ctx     context.Context //nolint:containedctx // the stage's own life, ended by Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
	viewers int
	stopSFU context.CancelFunc
	sent    []uint32 // numbers of the pictures that the last camera published
	clip    *Clip
	sounds  *soundBook // nil if the bot's own settings choose the model, or without speech
	// stopCamera stops the last camera.
	stopCamera func()
	sfuDone    chan struct{}
}

// RoomName is the room of a stage.
const RoomName = "stage"

// Reader records the records of a bot.
type Reader struct{ agenttest.Log }

// Caption implements agent.TextOutput; captions are dropped.
func (r *Reader) Caption(agent.Caption) {}

// New starts everything and returns when the bot is in the room.
func New(ctx context.Context, opts Options) (*Stage, error) {
	if opts.Width == 0 {
		opts.Width, opts.Height = 640, 360
	}
	opts.Room = cmp.Or(opts.Room, RoomName)
	s := &Stage{opts: opts, Reader: &Reader{}, Log: opts.Log, clip: opts.Clip}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stage) start(ctx context.Context) error {
	s.Keys = s.opts.Keys
	if s.opts.At == "" {
		if err := s.startServer(ctx, sfu.Options{Log: s.Log}); err != nil {
			return err
		}
		s.Keys = conn.Keys{APIKey: s.Server.APIKey(), APISecret: s.Server.APISecret()}
	}
	var err error
	if !s.opts.NoBot {
		cfg := configs.Default()
		if s.opts.Config != nil {
			cfg = *s.opts.Config
		}
		cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = s.URL(), s.Room()
		cfg.Agent.Repeats = settings.RepeatsAllow // each comment counts, and scripted engines have few sentences
		if s.opts.Network {
			if err := s.addNetwork(ctx); err != nil {
				return err
			}
			cfg.Agent.LiveKit.URL = s.Network.URL()
		}
		var given *bot.Engine
		if s.opts.Model != nil {
			given = &bot.Engine{ModelManager: engine.Of(s.opts.Model, nil)}
			if cfg.Inference.Voice.Enabled {
				spoken, err := bot.WithVoice(s.opts.Model, cfg.Inference.Voice, s.Log)
				if err != nil {
					return err
				}
				s.sounds = newSoundBook(spoken)
				given.ModelManager = engine.Of(s.sounds, nil)
			}
		}
		var ears *bot.Recognition
		if r := s.opts.Recognizer; r != nil {
			ears = bot.RecognitionBy(bot.AlwaysLoaded(r), cfg.Inference.MiniCPM.Runtime, s.Log)
			s.Run(ears.Run)
		}
		s.Bot, err = bot.New(bot.Options{
			Settings: cfg.Bot(), Keys: s.Keys, Engine: given, Recognition: ears, BuiltIn: "camera", LoopbackOnly: true,
			Texts: append([]agent.TextOutput{s.Reader}, s.opts.Texts...), Log: s.Log,
		})
		if err != nil {
			return err
		}
		s.Run(s.Bot.Run)
	}
	if !s.opts.NoCamera {
		_, err = s.AddCamera("camera", s.opts.Seed)
	}
	return err
}

// URL returns the address of the stage's server.
func (s *Stage) URL() string {
	if s.opts.At != "" {
		return s.opts.At
	}
	return s.Server.URL()
}

// Room returns the name of the stage's room.
func (s *Stage) Room() string { return cmp.Or(s.opts.Room, RoomName) }

func (s *Stage) addNetwork(ctx context.Context) error {
	media, err := netip.ParseAddrPort(s.Server.UDPAddr())
	if err != nil {
		return fmt.Errorf("read the server's media address: %w", err)
	}
	s.Network, err = netfault.New(ctx, netfault.Options{Signal: s.Server.HTTPAddr(), Media: media, Seed: s.opts.Seed, Log: s.Log})
	if err != nil {
		return err
	}
	s.Run(s.Network.Run)
	return nil
}

// Run runs f until it returns, or until stop or Close, which wait for it. Errors includes its error.
func (s *Stage) Run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	s.wg.Go(func() {
		defer close(done)
		s.fail(f(ctx))
	})
	return func() { cancel(); <-done }
}

// fail records the error of a part that has ended.
func (s *Stage) fail(err error) {
	if rescue.UnlessCanceled(err) != nil {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
	}
}

func (s *Stage) startServer(ctx context.Context, o sfu.Options) error {
	server, err := sfu.New(o)
	if err != nil {
		return fmt.Errorf("prepare the server: %w", err)
	}
	s.Server = server
	run, ready := apart.Of(server)
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	s.stopSFU, s.sfuDone = cancel, done
	go func() {
		defer close(done)
		s.fail(run(sctx))
	}()
	if err := ready(ctx); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	return nil
}

// StopServer stops the server and waits for it.
func (s *Stage) StopServer() {
	s.stopSFU()
	<-s.sfuDone
}

// RestartServer starts the server again after StopServer, with the same ports and keys.
func (s *Stage) RestartServer(ctx context.Context) error {
	return s.startServer(ctx, s.Server.Options())
}

// AddCamera publishes a generated match under an identity until stop is called.
func (s *Stage) AddCamera(identity string, seed uint64) (stop func(), err error) {
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	var cam *camera.Demo
	cam, err = camera.NewDemo(camera.DemoOptions{
		URL: s.URL(), Keys: s.Keys, Room: s.Room(), Identity: identity, Seed: seed,
		Width: s.opts.Width, Height: s.opts.Height, FPS: s.opts.FPS, Codec: s.opts.Codec,
		Crowd: s.opts.Crowd, LoopbackOnly: true, Counter: true, Log: s.Log,
		OnSent: func(pts time.Duration) {
			s.mu.Lock()
			s.sent = append(s.sent, numberOf(cam.World, pts))
			s.mu.Unlock()
		},
	})
	if err != nil {
		return nil, err
	}
	s.Camera = cam
	s.stopCamera = s.Run(cam.Run)
	return s.stopCamera, nil
}

// StopCamera stops the last camera.
func (s *Stage) StopCamera() { s.stopCamera() }

// WordTimes returns the onset of each word of an answer after its first audible moment; nil without speech.
func (s *Stage) WordTimes(text string) []time.Duration {
	if s.sounds == nil {
		return nil
	}
	return s.sounds.words(text)
}

// AddViewer adds a viewer until leave is called. A deaf viewer decodes nothing.
func (s *Stage) AddViewer(deaf bool) (v *Viewer, leave func(), err error) {
	return s.viewer(s.Room(), deaf)
}

// AddViewerTo adds a viewer that decodes nothing to a room until leave is called.
func (s *Stage) AddViewerTo(roomName string) (leave func(), err error) {
	_, leave, err = s.viewer(roomName, true)
	return leave, err
}

func (s *Stage) viewer(roomName string, deaf bool) (v *Viewer, leave func(), err error) {
	s.mu.Lock()
	s.viewers++
	identity := fmt.Sprintf("viewer-%d", s.viewers)
	s.mu.Unlock()
	token, err := conn.ViewerToken(s.Keys, conn.Person{Room: roomName, Identity: identity})
	if err != nil {
		return nil, nil, fmt.Errorf("mint a viewer's token: %w", err)
	}
	v, err = NewViewer(ViewerOptions{URL: s.URL(), Token: token, Deaf: deaf, Log: s.Log})
	if err != nil {
		return nil, nil, err
	}
	return v, s.Run(v.Run), nil
}

// numberOf returns the frame counter of the picture with a PTS, which may be rounded to an RTP clock.
func numberOf(w *worlds.World, pts time.Duration) uint32 {
	step := w.PTS(1)
	return uint32((pts + step/2) / step)
}

// Lost compares a viewer's pictures with the camera's published pictures, between the first and the last picture whose
// number the viewer could read. A picture that the camera skipped is not lost.
func (s *Stage) Lost(seen Seen) (lost, sent int) {
	var first, last *Picture
	for i := range seen.Pictures {
		if p := &seen.Pictures[i]; p.Read {
			if first == nil {
				first = p
			}
			last = p
		}
	}
	if first == nil {
		return 0, 0
	}
	s.mu.Lock()
	for _, n := range s.sent {
		if n >= first.Counter && n <= last.Counter {
			sent++
		}
	}
	s.mu.Unlock()
	came := 0
	for _, pts := range seen.Arrived {
		if pts >= first.PTS && pts <= last.PTS {
			came++
		}
	}
	return sent - came, sent
}

// Errors returns the errors of parts that have ended.
func (s *Stage) Errors() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// Close stops everything and waits.
func (s *Stage) Close() {
	s.cancel()
	s.wg.Wait()
	if s.stopSFU != nil {
		s.StopServer()
	}
}

// ParseRecords decodes the records that a viewer received on the data topic.
func ParseRecords(raw [][]byte) ([]look.Record, error) {
	out := make([]look.Record, len(raw))
	for i, b := range raw {
		if err := json.Unmarshal(b, &out[i]); err != nil {
			return nil, fmt.Errorf("read record %d: %w", i, err)
		}
	}
	return out, nil
}
