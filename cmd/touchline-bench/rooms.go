package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"

	"touchline/agent/room"
	"touchline/internal/e2e/stage"
)

// processRole is the part of a process beside the bots.
type processRole string

// Roles: the LiveKit server, all cameras, all viewers.
const (
	roleServer  processRole = "server"
	roleCameras processRole = "cameras"
	roleViewers processRole = "viewers"
)

// location is a server with its keys and rooms, as it is passed between processes.
type location struct {
	URL       string   `json:"url"`
	APIKey    string   `json:"api_key"`
	APISecret string   `json:"api_secret"`
	Rooms     []string `json:"rooms"`
}

// roleRunner makes the command line of a process with a role. The process reads a location from standard input (a
// server uses its rooms only), writes one when it is ready, and runs until it is interrupted.
type roleRunner func(ctx context.Context, role processRole) *exec.Cmd

// playRole is the main function of such a process.
func playRole(ctx context.Context, role processRole, in io.Reader, out io.Writer, log zerolog.Logger) error {
	var at location
	if err := json.NewDecoder(in).Decode(&at); err != nil {
		return fmt.Errorf("read the location: %w", err)
	}
	lksdk.SetLogger(logger.GetDiscardLogger()) // this process has no bot, whose log the library would use
	o := stage.Options{NoBot: true, NoCamera: true, Width: 1280, Height: 720, Log: log}
	if role != roleServer {
		o.At = at.URL
		o.Keys = room.Keys{APIKey: at.APIKey, APISecret: at.APISecret}
	}
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, name := range at.Rooms {
		switch role {
		case roleServer:
		case roleCameras:
			err = s.AddReplayedCamera(name, false)
		case roleViewers:
			_, err = s.AddViewerTo(name)
		default:
			err = fmt.Errorf("role %q: unknown; choose server, cameras or viewers", role)
		}
		if err != nil {
			return err
		}
	}
	at.URL, at.APIKey, at.APISecret = s.URL(), s.Keys.APIKey, s.Keys.APISecret
	if err := json.NewEncoder(out).Encode(at); err != nil {
		return fmt.Errorf("write the location: %w", err)
	}
	<-ctx.Done()
	return s.Errors()
}

// player is a running process with a role.
type player struct {
	cmd  *exec.Cmd
	stop func()
}

// startRole starts a process and waits until it is ready.
func startRole(ctx context.Context, command roleRunner, role processRole, at location) (*player, location, error) {
	cctx, cancel := context.WithCancel(ctx)
	cmd := command(cctx, role)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	in, err := json.Marshal(at)
	if err != nil {
		cancel()
		return nil, at, fmt.Errorf("write the location: %w", err)
	}
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, at, fmt.Errorf("start the %s: %w", role, err)
	}
	p := &player{cmd: cmd, stop: func() { cancel(); _ = cmd.Wait() }} // it was interrupted
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		p.stop()
		return nil, at, fmt.Errorf("wait for the %s: %w", role, err)
	}
	return p, at, nil
}

// machineTime returns the used and the total processor time of the machine since its start.
func machineTime() (used, all float64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read the machine's usage: %w", err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	const idle, iowait, guest = 3, 4, 8 // of what follows "cpu" (proc(5)); guests are counted in user already
	for i, f := range strings.Fields(first)[1:] {
		v, _ := strconv.ParseFloat(f, 64) // the kernel writes numbers
		if i >= guest {
			break
		}
		all += v
		if i != idle && i != iowait {
			used += v
		}
	}
	return used, all, nil
}

// shares are the shares of a core by process, and the memory of the bots.
type shares struct {
	server, bot, codecs, cameras, viewers float64
	machine                               float64 // of all cores
	rss                                   int64   // of bot and codecs
}

func (s shares) String() string {
	const format = "bot %.1f, its codecs %.1f, server %.1f, cameras %.1f, viewers %.1f %% of a core; machine %.0f %%; bot and codecs %.0f MB"
	return fmt.Sprintf(format,
		100*s.bot, 100*s.codecs, 100*s.server, 100*s.cameras, 100*s.viewers, 100*s.machine, float64(s.rss)/1e6)
}

// fullMachine is the load of the machine above which cost is not judged.
const fullMachine = 0.8

// manyRooms measures n rooms, each with a 720p30 camera and a viewer. The bots share one process; server, cameras and
// viewers have processes of their own.
func manyRooms(ctx context.Context, worker workerRunner, roles roleRunner, n int, settle, length time.Duration) (s shares, err error) {
	var at location
	for i := range n {
		at.Rooms = append(at.Rooms, fmt.Sprintf("%s-%d", stage.RoomName, i))
	}
	pids := map[processRole]int{}
	for _, role := range []processRole{roleServer, roleCameras, roleViewers} {
		var p *player
		if p, at, err = startRole(ctx, roles, role, at); err != nil {
			return s, err
		}
		defer p.stop()
		pids[role] = p.cmd.Process.Pid
	}
	cctx, cancel := context.WithCancel(ctx)
	keys := room.Keys{APIKey: at.APIKey, APISecret: at.APISecret}
	cmd := worker(cctx, at.URL, keys, dispatchName)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		cancel()
		return s, fmt.Errorf("start the worker: %w", err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // it was interrupted
	if err := newCalls(at.URL, keys).agentsIn(ctx, at.Rooms); err != nil {
		return s, err
	}
	if err := stage.Wait(ctx, settle); err != nil {
		return s, err
	}
	return readShares(ctx, pids, cmd.Process.Pid, length)
}

// readShares measures processes for a while.
func readShares(ctx context.Context, pids map[processRole]int, bot int, length time.Duration) (s shares, err error) {
	read := func() (s shares, err error) {
		one := func(pid int) float64 {
			u, e := usageOfOne(pid)
			err = errors.Join(err, e)
			return u.CPU.Seconds()
		}
		s.server, s.cameras, s.viewers, s.bot = one(pids[roleServer]), one(pids[roleCameras]), one(pids[roleViewers]), one(bot)
		all, e := usageOf(bot)
		s.codecs, s.rss = all.CPU.Seconds()-s.bot, all.RSS
		return s, errors.Join(err, e)
	}
	used, all, err := machineTime()
	if err != nil {
		return s, err
	}
	before, err := read()
	if err != nil {
		return s, err
	}
	start := time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return s, err
	}
	after, err := read()
	if err != nil {
		return s, err
	}
	took := time.Since(start).Seconds()
	usedNow, allNow, err := machineTime()
	return shares{
		server: (after.server - before.server) / took, bot: (after.bot - before.bot) / took,
		codecs: (after.codecs - before.codecs) / took, cameras: (after.cameras - before.cameras) / took,
		viewers: (after.viewers - before.viewers) / took,
		machine: (usedNow - used) / max(allNow-all, 1), rss: after.rss,
	}, err
}

// measureRooms measures the cost of 1, 2, 4 and 6 rooms of 720p30 in one process.
func measureRooms(ctx context.Context, worker workerRunner, roles roleRunner, length time.Duration) ([]row, error) {
	const settle = 25 * time.Second
	var rows []row
	var one, last shares
	for _, n := range []int{1, 2, 4, 6} {
		s, err := manyRooms(ctx, worker, roles, n, settle, length)
		if err != nil {
			return rows, fmt.Errorf("%d rooms: %w", n, err)
		}
		name := fmt.Sprintf("%d rooms in one process", n)
		if s.machine >= fullMachine {
			rows = append(rows, note(name, s.String()+": machine too busy to judge"))
			break
		}
		rows = append(rows, note(name, s.String()))
		if n == 1 {
			one = s
			continue
		}
		last = s
		// A tenth over linear: 6.6 for six.
		rows = append(rows,
			atMost(fmt.Sprintf("%d rooms cost as much as", n), (s.bot+s.codecs)/(one.bot+one.codecs), 1.1*float64(n), "rooms"),
			note(fmt.Sprintf("memory of each room more, of %d", n), fmt.Sprintf("%.1f MB", float64(last.rss-one.rss)/1e6/float64(n-1))))
	}
	return rows, nil
}
