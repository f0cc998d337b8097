package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/camera"
	"touchline/agent/sfu"
	"touchline/internal/e2e/stage"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source/whip"
)

// serveCameras runs a LiveKit server and takes WHIP senders into its rooms,
// without a rate limit and without a bot, until ctx ends. announce is called once, when the server is ready.
func serveCameras(ctx context.Context, announce func(location), log zerolog.Logger) error {
	server, err := sfu.New(sfu.Options{Log: log})
	if err != nil {
		return fmt.Errorf("prepare the server: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error {
		if err := server.Ready(ctx); err != nil {
			return err
		}
		return serveWHIP(ctx, location{URL: server.URL(), APIKey: server.APIKey(), APISecret: server.APISecret()}, nil, announce, log)
	})
	if err := rescue.UnlessCanceled(g.Wait()); err != nil {
		return fmt.Errorf("serve cameras: %w", err)
	}
	return nil
}

// serveWHIP takes senders into the rooms of a LiveKit server until ctx ends. arrived, if set, is called for each access unit.
func serveWHIP(ctx context.Context, at location, arrived func(), announce func(location), log zerolog.Logger) error {
	senders := camera.NewSenders(camera.Options{URL: at.URL, Keys: at.keys(), LoopbackOnly: true, Log: log})
	open := func(x *whip.Session) (whip.Place, error) {
		place, err := senders.Open(x)
		if frame := place.Sink.Frame; err == nil && arrived != nil {
			place.Sink.Frame = func(f media.EncodedFrame) { frame(f); arrived() }
		}
		return place, err
	}
	ingest, err := whip.New(whip.Options{
		Authorize: camera.Authorize(at.keys()), Open: open, Now: time.Now, Log: log,
		Bounds: signaling.Bounds{PerMinute: -1}, PortOptions: signaling.PortOptions{LoopbackOnly: true},
	})
	if err != nil {
		return fmt.Errorf("prepare WHIP: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for WHIP senders: %w", err)
	}
	at.WHIP = "http://" + listener.Addr().String() + "/whip/"
	web := &http.Server{Handler: ingest, ReadHeaderTimeout: 10 * time.Second}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return senders.Run(ctx) })
	g.Go(func() error { return ingest.Run(ctx) })
	g.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return web.Close()
	})
	g.Go(func() error {
		if _, err := stage.Until(ctx, 10*time.Second, "the port of WHIP", func() bool { return ingest.UDPPort() > 0 }); err != nil {
			return err
		}
		announce(at)
		return nil
	})
	return g.Wait()
}

// locationOf returns the location of a stage's server.
func locationOf(s *stage.Stage) location {
	return location{URL: s.URL(), APIKey: s.Keys.APIKey, APISecret: s.Keys.APISecret}
}

// stageWHIP takes senders into the rooms of a stage's server until the stage is closed, and returns once it is ready.
func stageWHIP(ctx context.Context, s *stage.Stage, arrived func()) (at location, err error) {
	ready := make(chan location, 1)
	s.Run(func(ctx context.Context) error {
		return serveWHIP(ctx, locationOf(s), arrived, func(at location) { ready <- at }, s.Log)
	})
	select {
	case at = <-ready:
		return at, nil
	case <-ctx.Done():
		return at, context.Cause(ctx)
	}
}
