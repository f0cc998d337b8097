package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"golang.org/x/sync/errgroup"

	"touchline/agent/history"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/browser"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

// settleTime is the time until a bot's usage is read.
const settleTime = 25 * time.Second

// cost measures whole bots: one 720p30 room, one with sound, four in one process, and a worker without a room.
func cost(r *run) {
	var one, loud, four, idle usage
	for _, c := range []struct {
		result *usage
		rooms  int
		sound  bool
	}{{&one, 1, false}, {&loud, 1, true}, {&four, 4, false}, {&idle, 0, false}} {
		r.Part(func() { *c.result = costOf(r, c.rooms, c.sound, engineSetting+"scene") })
	}
	r.AtMost("whole bot, one 720p30 room, CPU", one.share(), 20, "% of a core")
	r.AtMost("whole bot, one 720p30 room, memory with its child", mega(one.RSS), 100, "MB")
	r.Note("of it pages of program files", "%.0f MB", mega(one.Files))
	r.AtMost("one room whose camera has sound, CPU", loud.share(), 20, "% of a core")
	r.AtMost("one room whose camera has sound, memory with its child", mega(loud.RSS), 100, "MB")
	r.AtMost("of it for the sound", loud.share()-one.share(), 4, "% of a core")
	r.Note("four rooms in one process", "%.1f %% of a core, %.0f MB", four.share(), mega(four.RSS))
	r.AtMost("four rooms cost as much as", four.share()/one.share(), 4.4, "rooms")
	r.Note("memory of each room more, of four", "%.1f MB", mega(four.RSS-one.RSS)/3)
	r.AtMost("idle worker, CPU", idle.share(), 0.5, "% of a core")
	r.AtMost("idle worker, memory", mega(idle.RSS), 60, "MB")
	r.Note("idle worker: of it pages of program files", "%.0f MB", mega(idle.Files))
}

// engineSetting is the variable that chooses an engine.
const engineSetting = "TOUCHLINE_INFERENCE_ENGINE="

// costOf runs an agent worker of the settings env with a bot, a 720p30 camera and a viewer in each room, and returns the worker's usage
// once settled.
func costOf(r *run, rooms int, sound bool, env ...string) usage {
	at := roomsWithCameras(r, rooms, sound, stage.Options{Width: 1280, Height: 720})
	p := worker(r, at, allCores, env)
	r.Wait(settleTime)
	return usageDuring(r, p.cmd.Process.Pid, r.flags.Cost)
}

// roomsWithCameras makes rooms with a camera and a viewer each, on a server of this process.
func roomsWithCameras(r *run, n int, sound bool, o stage.Options) location {
	o.NoBot, o.NoCamera = true, true
	s := r.stage(o)
	at := locationOf(s)
	for i := range n {
		at.Rooms = append(at.Rooms, fmt.Sprintf("%s-%d", stage.RoomName, i))
		r.Check(s.AddReplayedCamera(at.Rooms[i], sound))
		_, err := s.AddViewerTo(at.Rooms[i])
		r.Check(err)
		r.Wait(joinEvery)
	}
	return at
}

// joinEvery is the time between the joins of two rooms: joining costs the server more than watching.
const joinEvery = 200 * time.Millisecond

// dispatchesAtOnce bounds the rooms that a worker enters at the same time.
const dispatchesAtOnce = 4

// workerName is the agent name of the worker.
const workerName = "asked"

// Cores of a worker, as taskset names them.
const (
	allCores = ""
	twoCores = "0,1"
)

// worker starts the agent worker of touchline-slim, the program for an existing server, on cores, with the settings env and more flags,
// and brings an agent into each room.
func worker(r *run, at location, cores string, env []string, flags ...string) *process {
	address := freeAddress(r)
	cmd := r.program("touchline-slim", append([]string{
		"--log-level=error", "agent", "--url", at.URL, "--http", address,
		"--full-cpu", "0", "--slots", strconv.Itoa(max(16, len(at.Rooms))),
	}, flags...)...)
	cmd.Env = append(cmd.Env, "LIVEKIT_API_KEY="+at.APIKey, "LIVEKIT_API_SECRET="+at.APISecret, "LIVEKIT_AGENT_NAME="+workerName)
	cmd.Env = append(cmd.Env, env...)
	if cores != allCores {
		cmd = under(cmd, "taskset", "-c", cores)
	}
	p := startProcess(r, cmd)
	_, err := stage.Until(r.Context(), time.Minute, "the worker", func() bool { return registered(r.Context(), address) })
	r.Check(err)
	rooms := lksdk.NewRoomServiceClient(at.URL, at.APIKey, at.APISecret)
	dispatches := lksdk.NewAgentDispatchServiceClient(at.URL, at.APIKey, at.APISecret)
	g, ctx := errgroup.WithContext(r.Context())
	g.SetLimit(dispatchesAtOnce)
	for _, name := range at.Rooms {
		g.Go(func() error {
			if err := agentIn(ctx, rooms, dispatches, name); err != nil {
				return fmt.Errorf("bring an agent into room %q: %w", name, err)
			}
			return nil
		})
	}
	r.Check(g.Wait())
	return p
}

// registered reports whether the worker with an HTTP server at address takes jobs.
func registered(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/worker", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var about struct{ Registered bool }
	return json.NewDecoder(res.Body).Decode(&about) == nil && about.Registered
}

// agentIn brings an agent of a registered worker into a room.
func agentIn(ctx context.Context, rooms *lksdk.RoomServiceClient, dispatches *lksdk.AgentDispatchClient, name string) error {
	if _, err := dispatches.CreateDispatch(ctx, &livekit.CreateAgentDispatchRequest{Room: name, AgentName: workerName}); err != nil {
		return err
	}
	_, err := stage.Until(ctx, time.Minute, "the agent", func() bool {
		in, err := rooms.ListParticipants(ctx, &livekit.ListParticipantsRequest{Room: name})
		return err == nil && slices.ContainsFunc(in.GetParticipants(), func(p *livekit.ParticipantInfo) bool {
			return p.GetKind() == livekit.ParticipantInfo_AGENT && len(p.GetTracks()) > 0
		})
	})
	return err
}

// demoSettle is the time until the demo is settled: nano is loaded, and its looks are regular.
const demoSettle = 80 * time.Second

// demo measures the demo with the scene engine and with nano: once it is settled, without and then with a viewer.
func demo(r *run) {
	var scene, nano demoCost
	r.Part(func() { scene = costOfDemo(r, "scene", demoSettle) })
	r.Part(func() { nano = costOfDemo(r, "auto", demoSettle) }) // which is nano, with the settings of the demo for it
	if nano.engine != "nano" {
		r.Check(fmt.Errorf("the demo chose the engine %q: make runtime fetches what nano needs", nano.engine))
	}
	scene.figures(r, "scene")
	nano.figures(r, "nano")
	r.AtMost("demo with nano and one viewer, CPU", nano.watched.share(), 85, "% of a core")
	r.AtMost("demo with nano, memory of the main process", nano.memory(), 200, "MB")
	r.AtMost("nano above scene, CPU without a viewer", nano.alone.share()-scene.alone.share(), 40, "% of a core")
	r.AtMost("nano above scene, memory", nano.memory()-scene.memory(), 90, "MB")
	r.Note("looks of nano", "%d", len(nano.looks))
	r.AtMost("nano, look to whole answer, median", bench.MS(quantile.Of(nano.looks, 0.5)), 100, "ms")
	r.AtMost("nano, look to whole answer, p90", bench.MS(quantile.Of(nano.looks, 0.9)), 200, "ms")
	r.Note("load of the machine", "%s", loadAverage())
}

// demoCost is the resource usage of a demo with and without a viewer.
type demoCost struct {
	alone, watched usage           // with children; memory of the main process alone
	looks          []time.Duration // from the look to the whole answer
	engine         string          // of the looks
}

// memory returns the larger memory of the main process, in MB.
func (c demoCost) memory() float64 { return mega(max(c.alone.RSS, c.watched.RSS)) }

func (c demoCost) figures(r *run, engine string) {
	r.Note(engine+", CPU: no viewer, one viewer", "%.1f, %.1f %% of a core", c.alone.share(), c.watched.share())
	r.Note(engine+", memory of the main process: no viewer, one viewer", "%.0f, %.0f MB", mega(c.alone.RSS), mega(c.watched.RSS))
	r.Note("of it pages of program files", "%.0f, %.0f MB", mega(c.alone.Files), mega(c.watched.Files))
}

// costOfDemo runs a demo, and shows its page in Chromium for the second half.
func costOfDemo(r *run, engine string, settle time.Duration) (res demoCost) {
	history := r.folder()
	cmd := r.program("touchline", "--log-level=error", "demo", "--listen", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, engineSetting+engine,
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+history)
	out, _ := cmd.StdoutPipe() // fails only when it is set already
	p := startProcess(r, cmd)
	home, err := addressOf(out)
	r.Check(err)
	r.Wait(settle)
	res.alone = demoUsage(r, p)
	b, err := browser.Open(r.Context(), browser.Options{Width: 1280, Height: 800})
	r.Check(err)
	r.Cleanup(b.Close)
	r.Check(b.Navigate(home))
	if err := b.Until(3*time.Minute, "document.getElementById('picture')?.currentTime > 5"); err != nil {
		r.Check(errors.Join(err, fmt.Errorf("errors of the page: %q", b.Problems())))
	}
	res.watched = demoUsage(r, p)
	p.stop()
	res.looks, res.engine = lookTimes(r, history)
	return res
}

// demoUsage returns the CPU time of a demo for a while, and the memory of its main process at the end.
func demoUsage(r *run, p *process) usage {
	u, own := usageDuring(r, p.cmd.Process.Pid, r.flags.Cost), usageOf(r, p.cmd.Process.Pid, false)
	u.RSS, u.Files = own.RSS, own.Files
	return u
}

// addressOf reads the address of the page from a demo's output.
func addressOf(out io.Reader) (string, error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "on the air: "); ok {
			return address, nil
		}
	}
	return "", errors.Join(errors.New("the demo ended before it printed its address"), lines.Err())
}

// lookTimes reads from a history the time of each look up to its complete answer, and the engine of the last look.
func lookTimes(r *run, path string) (took []time.Duration, engine string) {
	store, err := history.OpenReader(r.Context(), path)
	r.Check(err)
	r.Cleanup(func() { r.Fail(store.Close()) })
	for e, err := range store.Entries(r.Context(), history.Query{Everything: true}) {
		r.Check(err)
		if rec := e.Record; rec.InferenceSec > 0 && rec.Announced == "" && !rec.Skipped {
			took, engine = append(took, seconds(rec.InferenceSec)), rec.Engine
		}
	}
	return took, engine
}
