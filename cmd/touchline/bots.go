package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"touchline/agent/bot"
)

type botsCmd struct {
	URL   string   `required:""`
	Rooms []string `required:""`
}

// Run keeps a bot in each room, all on one engine, until it is interrupted.
func (b *botsCmd) Run(ctx context.Context, a *app) error {
	cfg := a.cfg
	cfg.Agent.LiveKit.URL = b.URL
	engine, err := bot.NewEngine(cfg.Bot(), a.log)
	if err != nil {
		return err
	}
	loopback, err := onLoopback(b.URL)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return engine.Run(ctx) })
	for _, name := range b.Rooms {
		cfg.Agent.LiveKit.Room = name
		bot, err := bot.New(bot.Options{Settings: cfg.Bot(), Engine: engine, LoopbackOnly: loopback, Log: a.log})
		if err != nil {
			return fmt.Errorf("make a bot for room %q: %w", name, err)
		}
		g.Go(func() error { return bot.Run(ctx) })
	}
	return g.Wait()
}
