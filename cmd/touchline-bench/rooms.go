package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"touchline/internal/e2e/stage"
)

// machineTime returns the used and the total processor time of the machine since its start.
func machineTime() (used, all float64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read the machine's usage: %w", err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	const idle, iowait, guest = 3, 4, 8 // fields after "cpu" (proc(5)); user includes guests
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
		var p *process
		if p, at, err = startRole(ctx, roles, role, at); err != nil {
			return s, err
		}
		defer p.stop()
		pids[role] = p.cmd.Process.Pid
	}
	bot, err := startProcess(ctx, worker.command(at, dispatchName), os.Stderr)
	if err != nil {
		return s, err
	}
	defer bot.stop()
	if err := newCalls(at.URL, at.keys()).agentsIn(ctx, at.Rooms); err != nil {
		return s, err
	}
	if err := stage.Wait(ctx, settle); err != nil {
		return s, err
	}
	return readShares(ctx, pids, bot.cmd.Process.Pid, length)
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
	var one shares
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
		// A tenth over linear: 6.6 for six.
		rows = append(rows,
			atMost(fmt.Sprintf("%d rooms cost as much as", n), (s.bot+s.codecs)/(one.bot+one.codecs), 1.1*float64(n), "rooms"),
			note(fmt.Sprintf("memory of each room more, of %d", n), fmt.Sprintf("%.1f MB", float64(s.rss-one.rss)/1e6/float64(n-1))))
	}
	return rows, nil
}
