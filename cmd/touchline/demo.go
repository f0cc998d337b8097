//go:build !nodemo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/agent/command"
	"touchline/agent/room/conn"
	"touchline/agent/settings"
	"touchline/agent/sfu"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/nano"
	"touchline/inference/probe"
	"touchline/inference/sphinx"
	"touchline/models"
	"touchline/worlds/grade"
)

// demoCommand adds the demo to the command line, and with it the LiveKit server to the program. The build tag nodemo
// leaves both out, which halves the program for use with an existing server.
type demoCommand struct {
	Demo demoCmd `cmd:"" help:"Live commentary without any set-up: server, camera, bot and page in one process."`
}

type demoCmd struct {
	World   string `help:"Generated world, without a source: match or yard; the one that fits the profile if not given." default:"" enum:",match,yard"` //nolint:lll // tags
	Profile string `help:"Prompt profile, such as sports or security; overrides the settings." placeholder:"NAME"`
	Seed    uint64 `help:"Seed of the generated world, without a source." default:"1"`
	Sound   bool   `help:"Add sound to the generated world, such as crowd and whistle."`
	Hearing string `help:"Who is heard in the room: off, orders, captions or all. Orders, on a page for this machine alone, unless the settings name one." default:"" enum:",off,orders,captions,all"` //nolint:lll // tags
	Counter bool   `help:"Draw the frame counter into the generated world, for measurements."`

	sourceFlags
	modelFlags
	pageFlags
	stateFlags
}

// Room and participant names of the demo: the built-in scene, or the camera of a source.
const (
	demoRoom   = "demo"
	demoScene  = "scene"
	demoCamera = "camera"
)

// Validate refuses options of the generated world together with a source, which would have no effect.
func (d *demoCmd) Validate(kctx *kong.Context) error {
	if name := firstGiven(kctx, "world", "seed", "sound", "counter"); name != "" && d.Source != "" {
		return fmt.Errorf("--%s: belongs to the generated world, which --source replaces; leave out one of them", name)
	}
	return nil
}

// endless marks a command that serves until it is interrupted.
func (*demoCmd) endless() {}

// Run starts a LiveKit server, a camera, the bot and the page, and waits for
// Ctrl-C.
func (d *demoCmd) Run(ctx context.Context, a *app) error {
	return bot.WithOutputs(ctx, d.outputs(a.cfg), a.log, func(out *bot.Outputs) error { return d.serve(ctx, a, out) })
}

func (d *demoCmd) serve(ctx context.Context, a *app, out *bot.Outputs) error {
	cfg := a.cfg
	cfg.Agent.Profile = cmp.Or(d.Profile, cfg.Agent.Profile)
	if err := d.modelFlags.apply(&cfg); err != nil {
		return err
	}
	defer d.chooseEngine(ctx, &cfg, a.log)()
	d.pageFlags.apply(&cfg.Agent.Console.Config)
	d.chooseHearing(&cfg, a.log)
	h := ownRoom{room: demoRoom, camera: demoCamera, sources: d.sourceFlags}
	if d.Source == "" { // else the source is watched instead
		h.scene, h.world = demoScene, camera.DemoOptions{World: d.World, Seed: d.Seed, Crowd: d.Sound, Counter: d.Counter}
	}
	return h.serve(ctx, a, cfg, out)
}

// Run starts a LiveKit server, the bot, the page and the source, and waits for Ctrl-C.
func (r *runCmd) Run(ctx context.Context, a *app) error {
	cfg, port, err := r.configure(a.cfg)
	if err != nil {
		return err
	}
	h := ownRoom{
		room: cfg.Agent.LiveKit.Room, camera: demoCamera, sources: r.sourceFlags, server: sfu.Options{UDPPort: port, ExternalIP: r.MediaIP},
	}
	return bot.WithOutputs(ctx, r.outputs(cfg), a.log, func(out *bot.Outputs) error { return h.serve(ctx, a, cfg, out) })
}

// ownRoom is a room on a LiveKit server of this process, with its bot and page: the common part of demo and run.
type ownRoom struct {
	room, camera string // camera is the participant of --source
	sources      sourceFlags
	server       sfu.Options
	scene        string // the participant of the generated world; "" without one
	world        camera.DemoOptions
}

func (h ownRoom) serve(ctx context.Context, a *app, cfg configs.Config, out *bot.Outputs) error {
	logConfinement(a.log)
	// The page proxies signalling, but media goes straight to the server. Camera and bot of this process use loopback.
	ip, err := mediaIP(ctx, cfg.Agent.Console.Listen)
	if err != nil {
		return err
	}
	h.server.MediaIP, h.server.Log = ip, a.log
	server, err := sfu.New(h.server)
	if err != nil {
		return fmt.Errorf("prepare the LiveKit server: %w", err)
	}
	if ip != "" {
		a.log.Info().Str("address", server.UDPAddr()).Str("external_ip", h.server.ExternalIP).Msg("media open to other machines")
	}
	keys := conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room, cfg.Agent.LiveKit.Token = server.URL(), h.room, ""

	options := bot.Options{Settings: cfg.Bot(), Keys: keys, LoopbackOnly: true, Outputs: out, Memory: cfg.Sources.Decoders(), Log: a.log}
	if h.scene != "" {
		options.BuiltIn, h.world.URL, h.world.Keys, h.world.Room, h.world.Identity = h.scene, server.URL(), keys, h.room, h.scene
		h.world.LoopbackOnly, h.world.Log = true, a.log
		if options.Worlds, err = camera.NewWorlds(h.world); err != nil {
			return err
		}
		options.Grader = grade.New(options.Worlds, cfg.Inference.Voice.Language)
	}
	commentator, err := bot.New(options)
	if err != nil {
		return err
	}
	sources, err := h.sources.sources(ctx, commentator, a, cfg.Agent.Console.Listen, h.camera)
	if err != nil {
		return err
	}
	pictures := sources.Run
	if worlds := options.Worlds; worlds != nil {
		pictures = func(ctx context.Context) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return sources.Run(ctx) })
			g.Go(func() error { return worlds.Run(ctx) })
			return g.Wait()
		}
	}
	page, err := commentator.Console(cfg.Agent.Console.Config, func(url string) {
		if h.server.ExternalIP != "" { // clients reach the page at the media's address
			url = strings.Replace(url, "//"+ip+":", "//"+h.server.ExternalIP+":", 1)
		}
		fmt.Fprintf(os.Stdout, "\n  Touchline is on the air: %s\n  (Ctrl-C ends it)\n\n", url)
	})
	if err != nil {
		return err
	}
	return runOwnRoom(ctx, server, page.Run, pictures, commentator.Run)
}

// chooseEngine chooses nano for a generated world if the settings leave the choice, ONNX Runtime loads here and nano's bundle is there or
// can be made. The runtime stays open until release.
func (d *demoCmd) chooseEngine(ctx context.Context, cfg *configs.Config, log zerolog.Logger) (release func()) {
	if cfg.Inference.Engine != "auto" || d.Source != "" {
		return func() {}
	}
	cfg.Inference.Auto = bot.Auto{} // sight knows no drawings
	release, err := probe.Hold(cfg.Inference.MiniCPM.Runtime)
	if err != nil {
		log.Warn().Err(err).Str("hint", "make runtime").Msg("ONNX Runtime missing; using the scene engine")
		return func() {}
	}
	if _, err := nano.Bundle(ctx, models.Cache(), nano.RunProgram); err != nil {
		log.Warn().Err(err).Msg("nano missing; using the scene engine")
		release()
		return func() {}
	}
	cfg.Inference.Engine = "nano"
	cfg.Agent.Stride = max(cfg.Agent.Stride, nano.Stride)
	return release
}

// chooseHearing lets the demo accept spoken orders if only the person at this machine can speak, with the settings' recognizer or else
// the recognizer of orders.
func (d *demoCmd) chooseHearing(cfg *configs.Config, log zerolog.Logger) {
	hearing := &cfg.Agent.Hearing
	hearing.Mode = cmp.Or(d.Hearing, hearing.Mode)
	own := d.Hearing == "" && hearing.Mode == settings.HearingOff && bot.OnLoopback(cfg.Agent.Console.Listen)
	if own {
		hearing.Mode = settings.HearingOrders
	}
	if hearing.Mode != settings.HearingOrders || cfg.Inference.Recognizer.Program != inference.RecognizerOff {
		return
	}
	cfg.Inference.Recognizer.Program = inference.RecognizerSphinx
	r, err := sphinx.Open(sphinx.Options{Orders: command.SpokenOrders()})
	if err == nil {
		err = r.Close()
	}
	if err != nil && own {
		log.Info().Err(err).Msg("spoken orders off")
		hearing.Mode, cfg.Inference.Recognizer.Program = settings.HearingOff, inference.RecognizerOff
	}
}

// runOwnRoom runs the page, and the camera and the bot once the server is up. The server stops last, after its participants
// have left.
func runOwnRoom(ctx context.Context, server *sfu.Server, page, pictures, commentator func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	sctx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServer()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(sctx) }()
	g.Go(func() error { return page(ctx) })
	g.Go(func() error {
		if err := server.Ready(ctx); err != nil {
			return fmt.Errorf("start the LiveKit server: %w", err)
		}
		inner, ctx := errgroup.WithContext(ctx)
		inner.Go(func() error { return pictures(ctx) })
		inner.Go(func() error { return commentator(ctx) })
		return inner.Wait()
	})
	g.Go(func() error {
		select {
		case err := <-ended:
			ended <- nil
			return errors.Join(errors.New("the LiveKit server has stopped"), err)
		case <-ctx.Done():
			return nil
		}
	})
	err := g.Wait()
	stopServer()
	return errors.Join(err, <-ended)
}
