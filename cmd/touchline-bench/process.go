package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
)

// process is a running process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed at its end
	err   error         // of its end
	stop  func()        // interrupts it and waits for its end
	says  *json.Decoder // of the output of a role, after its location
}

// startProcess starts a command. The end of ctx interrupts it.
func startProcess(ctx context.Context, command func(ctx context.Context) *exec.Cmd, stderr io.Writer) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &process{cmd: command(ctx), ended: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.Stderr = stderr
	if err := p.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", p.cmd.Path, err)
	}
	go func() { defer close(p.ended); p.err = p.cmd.Wait() }()
	p.stop = func() { cancel(); <-p.ended }
	return p, nil
}

// processRole is the part of a process beside the bots.
type processRole string

// Roles: the LiveKit server, all cameras, all viewers, a server for WHIP senders, people who speak.
const (
	roleServer  processRole = "server"
	roleCameras processRole = "cameras"
	roleViewers processRole = "viewers"
	roleWHIP    processRole = "whip"
	rolePeople  processRole = "people"
)

// location is a server with its keys and rooms, as it is passed between processes.
type location struct {
	URL       string   `json:"url"`
	APIKey    string   `json:"api_key"`
	APISecret string   `json:"api_secret"`
	WHIP      string   `json:"whip"` // endpoint without the room
	Rooms     []string `json:"rooms"`
	Crowd     crowd    `json:"crowd"` // of the people
}

func (l location) keys() conn.Keys { return conn.Keys{APIKey: l.APIKey, APISecret: l.APISecret} }

// roleRunner makes the command line of a process with a role. The process reads a location from standard input (the
// servers use its rooms at most), writes one when it is ready, and runs until it is interrupted. People also write what they said.
type roleRunner func(ctx context.Context, role processRole) *exec.Cmd

// startRole starts a process and waits until it is ready.
func startRole(ctx context.Context, command roleRunner, role processRole, at location) (*process, location, error) {
	in, err := json.Marshal(at)
	if err != nil {
		return nil, at, fmt.Errorf("write the location: %w", err)
	}
	var out io.Reader
	p, err := startProcess(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := command(ctx, role)
		cmd.Stdin = bytes.NewReader(in)
		out, _ = cmd.StdoutPipe() // fails only when it is set already
		return cmd
	}, os.Stderr)
	if err != nil {
		return nil, at, err
	}
	p.says = json.NewDecoder(out)
	if err := p.says.Decode(&at); err != nil {
		p.stop()
		return nil, at, fmt.Errorf("wait for the %s: %w", role, err)
	}
	return p, at, nil
}

// playRole is the main function of such a process.
func playRole(ctx context.Context, role processRole, in io.Reader, out io.Writer, log zerolog.Logger) error {
	var at location
	if err := json.NewDecoder(in).Decode(&at); err != nil {
		return fmt.Errorf("read the location: %w", err)
	}
	lksdk.SetLogger(logger.GetDiscardLogger()) // this process has no bot, whose log the library would use
	announce := json.NewEncoder(out).Encode
	if role == roleWHIP {
		return serveCameras(ctx, func(at location) { _ = announce(at) }, log) // the parent may have exited
	}
	o := stage.Options{NoBot: true, NoCamera: true, Width: 1280, Height: 720, Log: log}
	if role != roleServer {
		o.At, o.Keys = at.URL, at.keys()
	}
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	at.URL, at.APIKey, at.APISecret = s.URL(), s.Keys.APIKey, s.Keys.APISecret
	if role == rolePeople {
		return playCrowd(ctx, s, at, announce)
	}
	for _, name := range at.Rooms {
		switch role {
		case roleServer:
		case roleCameras:
			err = s.AddReplayedCamera(name, false)
		case roleViewers:
			_, err = s.AddViewerTo(name)
		default:
			err = fmt.Errorf("role %q: unknown; choose server, cameras, viewers, whip or people", role)
		}
		if err != nil {
			return err
		}
	}
	if err := announce(at); err != nil {
		return fmt.Errorf("write the location: %w", err)
	}
	<-ctx.Done()
	return s.Errors()
}
