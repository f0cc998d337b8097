package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"touchline/agent/bot"
	"touchline/configs"
)

type joinCmd struct {
	URL    string `help:"LiveKit server (ws://, wss://); overrides LIVEKIT_URL." placeholder:"URL"`
	Room   string `help:"Room to join; overrides the settings."`
	NoPage bool   `help:"Serve no page and no API."`

	sourceFlags
	modelFlags
	pageFlags
	stateFlags
}

// endless marks a command that serves until it is interrupted.
func (*joinCmd) endless() {}

// Run joins a room and waits for Ctrl-C.
func (j *joinCmd) Run(ctx context.Context, a *app) error {
	cfg := a.cfg
	cfg.Agent.LiveKit.URL = cmp.Or(j.URL, cfg.Agent.LiveKit.URL)
	cfg.Agent.LiveKit.Room = cmp.Or(j.Room, cfg.Agent.LiveKit.Room)
	j.pageFlags.apply(&cfg.Agent.Console.Config)
	if err := j.modelFlags.apply(&cfg); err != nil {
		return err
	}
	return bot.WithOutputs(ctx, j.outputs(cfg), a.log, func(out *bot.Outputs) error { return j.serve(ctx, a, cfg, out) })
}

func (j *joinCmd) serve(ctx context.Context, a *app, cfg configs.Config, out *bot.Outputs) error {
	logConfinement(a.log)
	bot, err := bot.New(bot.Options{Settings: cfg.Bot(), Outputs: out, Memory: cfg.Sources.Decoders(), Log: a.log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.Agent.LiveKit.APIKey != "" || j.Source != "" { // a ready-made token admits the bot alone
		sources, err := j.sources(ctx, bot, a, cfg.Agent.Console.Listen, "")
		if err != nil {
			return err
		}
		g.Go(func() error { return sources.Run(ctx) })
	}
	if !j.NoPage {
		page, err := bot.Console(cfg.Agent.Console.Config, func(url string) {
			fmt.Fprintf(os.Stdout, "\n  Watching room %q; the page is %s\n\n", bot.Room.RoomName(), url)
		})
		if err != nil {
			return err
		}
		g.Go(func() error { return page.Run(ctx) })
	}
	g.Go(func() error { return bot.Run(ctx) })
	return g.Wait()
}
