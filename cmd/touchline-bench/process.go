package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
)

type process struct {
	cmd  *exec.Cmd
	stop func()        // interrupts it and waits for its end
	says *json.Decoder // of the output of a role, after its location
}

// startProcess starts a command, which is interrupted at the end of the part. A failed scenario shows its standard error.
func startProcess(r *run, cmd *exec.Cmd) *process {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		r.Check(fmt.Errorf("start %s: %w", cmd.Path, err))
	}
	p := &process{cmd: cmd, stop: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait() // it was interrupted
	})}
	r.Cleanup(func() {
		p.stop()
		if r.Failed() && stderr.Len() > 0 {
			r.Fail(fmt.Errorf("%s wrote: %s", cmd.Path, bytes.TrimSpace(stderr.Bytes())))
		}
	})
	return p
}

// processRole is the role of a helper process that runs next to the bots.
type processRole string

// Roles: the LiveKit server, people with microphones, and hostile clients.
const (
	roleServer  processRole = "server"
	rolePeople  processRole = "people"
	roleHostile processRole = "hostile"
)

// location is a server with its keys and rooms, as it is passed between processes.
type location struct {
	URL       string    `json:"url"`
	APIKey    string    `json:"api_key"`
	APISecret string    `json:"api_secret"`
	Rooms     []string  `json:"rooms"`
	Crowd     crowd     `json:"crowd"` // of the people
	Hostile   hostility `json:"hostile"`
}

func (l location) keys() conn.Keys { return conn.Keys{APIKey: l.APIKey, APISecret: l.APISecret} }

func locationOf(s *stage.Stage) location {
	return location{URL: s.URL(), APIKey: s.Keys.APIKey, APISecret: s.Keys.APISecret}
}

// startRole starts a process of this program with a role and waits until it is ready. The process reads a location from standard
// input, writes one when it is ready, and runs until it is interrupted. People also write their utterances.
func startRole(r *run, role processRole, at location) (*process, location) {
	self := r.flags.self
	if self == nil {
		path, err := os.Executable()
		r.Check(err)
		self = func(args ...string) *exec.Cmd { return exec.Command(path, args...) } //nolint:noctx // process.stop ends it
	}
	cmd := self("role", string(role))
	if role == roleHostile {
		cmd = under(cmd, "nice", "-n", "10")
	}
	in, err := json.Marshal(at)
	r.Check(err)
	cmd.Stdin = bytes.NewReader(in)
	out, _ := cmd.StdoutPipe() // fails only when it is set already
	p := startProcess(r, cmd)
	p.says = json.NewDecoder(out)
	if err := p.says.Decode(&at); err != nil {
		r.Check(fmt.Errorf("wait for the %s: %w", role, err))
	}
	return p, at
}

// under returns the command run by another program, such as nice with its arguments, which becomes it.
func under(cmd *exec.Cmd, program ...string) *exec.Cmd {
	args := slices.Concat(program[1:], []string{cmd.Path}, cmd.Args[1:])
	out := exec.Command(program[0], args...) //nolint:noctx // process.stop ends it
	out.Env = cmd.Env
	return out
}

type roleCmd struct {
	Role processRole `arg:"" enum:"server,people,hostile"`
}

// Run plays a role until it is interrupted.
func (c *roleCmd) Run(ctx context.Context, log zerolog.Logger) error {
	announce := json.NewEncoder(os.Stdout).Encode
	var at location
	if err := json.NewDecoder(os.Stdin).Decode(&at); err != nil {
		return fmt.Errorf("read the location: %w", err)
	}
	lksdk.SetLogger(logger.GetDiscardLogger()) // this process has no bot, whose log the library would use
	if c.Role == roleHostile {
		return playHostile(ctx, at, announce)
	}
	o := stage.Options{NoBot: true, NoCamera: true, Log: log}
	if c.Role != roleServer {
		o.At, o.Keys = at.URL, at.keys()
	}
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	at.URL, at.APIKey, at.APISecret = s.URL(), s.Keys.APIKey, s.Keys.APISecret
	if c.Role == rolePeople {
		return playCrowd(ctx, s, at, announce)
	}
	if err := announce(at); err != nil {
		return fmt.Errorf("write the location: %w", err)
	}
	<-ctx.Done()
	return s.Errors()
}
