package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/camera"
	"touchline/agent/room"
	"touchline/agent/sfu"
	"touchline/internal/e2e/stage"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source/whip"
)

// cameraServer is the address of a server for WHIP senders, with its keys.
type cameraServer struct {
	URL       string `json:"url"` // of LiveKit
	APIKey    string `json:"api_key"`
	APISecret string `json:"api_secret"`
	WHIP      string `json:"whip"` // endpoint without the room
}

// Keys returns the LiveKit keys of the server.
func (c cameraServer) Keys() room.Keys { return room.Keys{APIKey: c.APIKey, APISecret: c.APISecret} }

// serveCameras runs a LiveKit server and takes WHIP senders into its rooms,
// without a rate limit and without a bot, until ctx ends. announce is called once, when the server is ready.
func serveCameras(ctx context.Context, announce func(cameraServer), log zerolog.Logger) error {
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
		return serveWHIP(ctx, cameraServer{URL: server.URL(), APIKey: server.APIKey(), APISecret: server.APISecret()}, nil, announce, log)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve cameras: %w", err)
	}
	return nil
}

// serveWHIP takes senders into the rooms of a LiveKit server until ctx ends. arrived, if set, is called for each access unit.
func serveWHIP(ctx context.Context, at cameraServer, arrived func(), announce func(cameraServer), log zerolog.Logger) error {
	senders := camera.NewSenders(camera.Options{URL: at.URL, Keys: at.Keys(), LoopbackOnly: true, Log: log})
	open := func(x *whip.Session) (whip.Place, error) {
		place, err := senders.Open(x)
		if frame := place.Sink.Frame; err == nil && arrived != nil {
			place.Sink.Frame = func(f media.EncodedFrame) { frame(f); arrived() }
		}
		return place, err
	}
	ingest, err := whip.New(whip.Options{
		Authorize: camera.Authorize(at.Keys()), Open: open, LoopbackOnly: true, Bounds: signaling.Bounds{PerMinute: -1}, Now: time.Now, Log: log,
	})
	if err != nil {
		return fmt.Errorf("prepare WHIP: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for WHIP senders: %w", err)
	}
	at.WHIP = "http://" + listener.Addr().String() + "/whip/"
	web := &http.Server{Handler: ingest.Handler(), ReadHeaderTimeout: 10 * time.Second}
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

// cameraServerRunner makes the command line of a process that runs
// serveCameras and announces it as a line of JSON.
type cameraServerRunner func(ctx context.Context) *exec.Cmd

// cameraProcess is a running process of a cameraServerRunner.
type cameraProcess struct {
	cameraServer
	cmd  *exec.Cmd
	stop context.CancelFunc
	wait sync.WaitGroup
}

func startCameraServer(ctx context.Context, command cameraServerRunner) (*cameraProcess, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &cameraProcess{cmd: command(ctx), stop: stop}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		stop()
		return nil, fmt.Errorf("start the server for cameras: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("start the server for cameras: %w", err)
	}
	ready := make(chan error, 1)
	p.wait.Go(func() {
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			ready <- errors.New("start the server for cameras: it exited before its announcement")
			return
		}
		ready <- json.Unmarshal(lines.Bytes(), &p.cameraServer)
		for lines.Scan() { // until it ends
		}
	})
	select {
	case err = <-ready:
	case <-time.After(30 * time.Second):
		err = errors.New("start the server for cameras: no announcement after 30 s")
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close stops the process and waits for its end.
func (p *cameraProcess) Close() {
	p.stop()
	p.wait.Wait()
	_ = p.cmd.Wait() // it was killed
}
