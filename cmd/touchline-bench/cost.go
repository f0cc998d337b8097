package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/history"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media"
)

// clockTicks a second in /proc/PID/stat; USER_HZ is 100 on every Linux that Go runs on.
const clockTicks = 100

// usage is the resources of a process and its children.
type usage struct {
	CPU time.Duration // user and system, ended children included
	RSS int64         // bytes, of running processes
	// Files is the part of RSS that maps program files. The kernel shares and reclaims these pages; how many count
	// depends on how a file came into its cache.
	Files int64
}

// usageOf reads the usage of a process and its running children from /proc.
func usageOf(pid int) (usage, error) {
	u, err := usageOfOne(pid)
	if err != nil {
		return u, err
	}
	pids, err := children(pid)
	if err != nil {
		return u, err
	}
	for _, child := range pids {
		cu, err := usageOf(child)
		if err != nil {
			continue // the child has ended
		}
		u.CPU += cu.CPU
		u.RSS += cu.RSS
		u.Files += cu.Files
	}
	return u, nil
}

// children returns the running children of all threads of a process.
func children(pid int) ([]int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", pid, err)
	}
	var pids []int
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids, nil
}

func usageOfOne(pid int) (usage, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	// The second field, the name in brackets, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, cstime, rss = 11, 14, 21 // fields after the name (proc(5)); from utime to cstime are times
	if len(fields) <= rss {
		return usage{}, fmt.Errorf("read the usage of process %d: expected more than %d fields in stat, got %d", pid, rss, len(fields))
	}
	num := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // the kernel writes numbers
		return n
	}
	u := usage{RSS: num(rss) * int64(os.Getpagesize())}
	for i := utime; i <= cstime; i++ {
		u.CPU += media.TicksToDuration(num(i), clockTicks)
	}
	if b, err = os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err != nil {
		return usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	if pages := strings.Fields(string(b)); len(pages) > 2 { // size, resident, of it from files
		n, _ := strconv.ParseInt(pages[2], 10, 64) // the kernel writes numbers
		u.Files = n * int64(os.Getpagesize())
	}
	return u, nil
}

// usageDuring returns the CPU share of a process and its children during length, in cores, and their usage at the end.
func usageDuring(ctx context.Context, pid int, length time.Duration) (cpu float64, u usage, err error) {
	before, err := usageOf(pid)
	if err != nil {
		return 0, u, err
	}
	start := time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return 0, u, err
	}
	u, err = usageOf(pid)
	return (u.CPU - before.CPU).Seconds() / time.Since(start).Seconds(), u, err
}

// demoRunner makes the command line of a demo with an engine, which keeps its history in a folder.
type demoRunner func(ctx context.Context, engine, history string) *exec.Cmd

// demoCost is what a demo takes with and without a viewer.
type demoCost struct {
	alone, watched usage // CPU during the measurement; memory of the main process alone, at its end
	length         time.Duration
	looks          []time.Duration // from the look to the whole answer
	engine         string          // of the looks
}

// share returns a usage's share of a core, in percent.
func (c demoCost) share(u usage) float64 { return 100 * u.CPU.Seconds() / c.length.Seconds() }

// memory returns the larger memory of the main process, in MB.
func (c demoCost) memory() float64 { return float64(max(c.alone.RSS, c.watched.RSS)) / 1e6 }

func (c demoCost) rows(engine string) []row {
	mb := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	return []row{
		note(engine+", CPU: no viewer, one viewer", fmt.Sprintf("%.1f, %.1f %% of a core", c.share(c.alone), c.share(c.watched))),
		note(engine+", memory of the main process: no viewer, one viewer", fmt.Sprintf("%.0f, %.0f MB", mb(c.alone.RSS), mb(c.watched.RSS))),
		note("of it pages of program files", fmt.Sprintf("%.0f, %.0f MB", mb(c.alone.Files), mb(c.watched.Files))),
	}
}

// costOfDemo runs a demo, and shows its page in Chromium for the second half.
func costOfDemo(ctx context.Context, demo demoRunner, engine string, settle, length time.Duration) (res demoCost, err error) {
	history, err := os.MkdirTemp("", "touchline-demo-")
	if err != nil {
		return res, fmt.Errorf("make a folder for the history: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(history)) }()
	var stderr bytes.Buffer
	var out io.Reader
	p, err := startProcess(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := demo(ctx, engine, history)
		out, _ = cmd.StdoutPipe() // fails only when it is set already
		return cmd
	}, &stderr)
	if err != nil {
		return res, err
	}
	res.length = length
	err = func() error {
		home, err := addressOf(out)
		if err != nil {
			return err
		}
		if err := stage.Wait(ctx, settle); err != nil {
			return err
		}
		pid := p.cmd.Process.Pid
		if res.alone, err = demoUsage(ctx, pid, length); err != nil {
			return err
		}
		b, err := browser.Open(ctx, browser.Options{Width: 1280, Height: 800})
		if err != nil {
			return err
		}
		defer b.Close()
		if err := b.Navigate(home); err != nil {
			return err
		}
		if err := b.Until(time.Minute, "document.getElementById('picture')?.currentTime > 5"); err != nil {
			return errors.Join(err, fmt.Errorf("errors of the page: %q", b.Problems()))
		}
		res.watched, err = demoUsage(ctx, pid, length)
		return err
	}()
	p.stop()
	if err != nil {
		return res, errors.Join(err, errors.New(stderr.String()))
	}
	res.looks, res.engine, err = lookTimes(ctx, history)
	return res, err
}

// addressOf reads the address of the page from what a demo prints.
func addressOf(out io.Reader) (string, error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "on the air: "); ok {
			return address, nil
		}
	}
	return "", errors.Join(errors.New("the demo ended before it printed its address"), lines.Err())
}

// demoUsage returns the CPU time of a demo during length, and the memory of its main process at the end.
func demoUsage(ctx context.Context, pid int, length time.Duration) (usage, error) {
	cpu, _, err := usageDuring(ctx, pid, length)
	if err != nil {
		return usage{}, err
	}
	u, err := usageOfOne(pid)
	u.CPU = time.Duration(cpu * float64(length))
	return u, err
}

// lookTimes reads from a history how long each look took to its whole answer, and the engine of the last.
func lookTimes(ctx context.Context, path string) (took []time.Duration, engine string, err error) {
	store, err := history.OpenReader(ctx, path)
	if err != nil {
		return nil, "", fmt.Errorf("read the demo's history: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for e, err := range store.Entries(ctx, history.Query{Everything: true}) {
		if err != nil {
			return nil, "", fmt.Errorf("read the demo's history: %w", err)
		}
		if r := e.Record; r.InferenceSec > 0 && r.Announced == "" && !r.Skipped {
			took, engine = append(took, seconds(r.InferenceSec)), r.Engine
		}
	}
	return took, engine, nil
}

// measureDemo measures the demo with the scene engine and with nano: once it is settled, without and then with a viewer.
func measureDemo(ctx context.Context, demo demoRunner, settle, length time.Duration) ([]row, error) {
	scene, err := costOfDemo(ctx, demo, "scene", settle, length)
	if err != nil {
		return nil, fmt.Errorf("scene: %w", err)
	}
	nano, err := costOfDemo(ctx, demo, "auto", settle, length) // which is nano, with the settings of the demo for it
	if err != nil {
		return nil, fmt.Errorf("nano: %w", err)
	}
	if nano.engine != "nano" {
		return nil, fmt.Errorf("the demo chose the engine %q: make runtime fetches what nano needs", nano.engine)
	}
	return append(append(scene.rows("scene"), nano.rows("nano")...),
		atMost("demo with nano and one viewer, CPU", nano.share(nano.watched), 85, "% of a core"),
		atMost("demo with nano, memory of the main process", nano.memory(), 200, "MB"),
		atMost("nano above scene, CPU without a viewer", nano.share(nano.alone)-scene.share(scene.alone), 40, "% of a core"),
		atMost("nano above scene, memory", nano.memory()-scene.memory(), 90, "MB"),
		note("looks of nano", strconv.Itoa(len(nano.looks))),
		atMost("nano, look to whole answer, median", ms(quantile.Of(nano.looks, 0.5)), 100, "ms"),
		atMost("nano, look to whole answer, p90", ms(quantile.Of(nano.looks, 0.9)), 200, "ms"),
		note("load of the machine", loadAverage()),
	), nil
}

// workerRunner makes the command line of an agent worker at a server, with keys in its environment, that
// serves rooms that ask for agentName, or every new room when it is "".
type workerRunner func(ctx context.Context, url string, keys conn.Keys, agentName string) *exec.Cmd

// command returns the command line for startProcess.
func (w workerRunner) command(at location, agentName string) func(ctx context.Context) *exec.Cmd {
	return func(ctx context.Context) *exec.Cmd { return w(ctx, at.URL, at.keys(), agentName) }
}

// costResult is the usage of a worker with some rooms.
type costResult struct {
	usage

	cpu float64 // of a core
}

func (c costResult) String() string {
	return fmt.Sprintf("%.1f %% of a core, %.0f MB", 100*c.cpu, float64(c.RSS)/1e6)
}

// cost runs an agent worker with a bot in each room, beside a 720p30 camera and a viewer, and reads the
// worker's usage once settled.
func cost(
	ctx context.Context, worker workerRunner, rooms int, sound bool, settle, length time.Duration, log zerolog.Logger,
) (res costResult, err error) {
	s, err := stage.New(ctx, stage.Options{NoBot: true, NoCamera: true, Width: 1280, Height: 720, Log: log})
	if err != nil {
		return res, err
	}
	defer s.Close()
	var names []string
	for i := range rooms {
		name := fmt.Sprintf("%s-%d", stage.RoomName, i)
		names = append(names, name)
		if err := s.AddReplayedCamera(name, sound); err != nil {
			return res, err
		}
		if _, err := s.AddViewerTo(name); err != nil {
			return res, err
		}
	}
	var stderr bytes.Buffer
	p, err := startProcess(ctx, worker.command(locationOf(s), dispatchName), &stderr)
	if err != nil {
		return res, err
	}
	err = newCalls(s.URL(), s.Keys).agentsIn(ctx, names)
	if err == nil {
		err = stage.Wait(ctx, settle)
	}
	if err == nil {
		res.cpu, res.usage, err = usageDuring(ctx, p.cmd.Process.Pid, length)
	}
	p.stop()
	if err != nil {
		return res, errors.Join(err, errors.New(stderr.String()))
	}
	return res, s.Errors()
}

// measureCost measures whole bots: one 720p30 room, one with sound, four in one process, and a worker without a room.
func measureCost(ctx context.Context, worker workerRunner, length time.Duration, log zerolog.Logger) ([]row, error) {
	const settle = 25 * time.Second
	var one, loud, four, idle costResult
	for _, run := range []struct {
		result *costResult
		rooms  int
		sound  bool
	}{{&one, 1, false}, {&loud, 1, true}, {&four, 4, false}, {&idle, 0, false}} {
		var err error
		if *run.result, err = cost(ctx, worker, run.rooms, run.sound, settle, length, log); err != nil {
			return nil, err
		}
	}
	return []row{
		atMost("whole bot, one 720p30 room, CPU", 100*one.cpu, 20, "% of a core"),
		atMost("whole bot, one 720p30 room, memory with its child", float64(one.RSS)/1e6, 100, "MB"),
		note("of it pages of program files", fmt.Sprintf("%.0f MB", float64(one.Files)/1e6)),
		atMost("one room whose camera has sound, CPU", 100*loud.cpu, 20, "% of a core"),
		atMost("one room whose camera has sound, memory with its child", float64(loud.RSS)/1e6, 100, "MB"),
		atMost("of it for the sound", 100*(loud.cpu-one.cpu), 4, "% of a core"),
		note("four rooms in one process", four.String()),
		atMost("four rooms cost as much as", four.cpu/one.cpu, 4.4, "rooms"),
		atMost("idle worker, CPU", 100*idle.cpu, 0.5, "% of a core"),
		atMost("idle worker, memory", float64(idle.RSS)/1e6, 60, "MB"),
		note("idle worker: of it pages of program files", fmt.Sprintf("%.0f MB", float64(idle.Files)/1e6)),
	}, nil
}
