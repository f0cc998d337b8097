package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"touchline/agent/access"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/fakes"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

const (
	// operatorToken is the console's token in a flood.
	operatorToken = "the-operator-of-this-bench"
	// orderEvery is the time between two orders of the operator, orderMost the longest wait for the model to see one.
	orderEvery, orderMost = 5 * time.Second, 10 * time.Second
)

// flooded is a worker with honest rooms.
type flooded struct {
	*run

	out     io.Writer
	model   *modelServer
	process *process
	console string
	room    string
	rooms   int
	orders  int
	seen    atomic.Int64 // pictures, by the viewers
}

// allKinds is the phase with all kinds of flood.
const allKinds = "flood"

// phase is a part of a flood.
type phase struct {
	name      string
	from, to  time.Time
	usage     usage // of the bot
	peak, end float64
	acted     []time.Duration // from an order to the model's look with it
	aligned   []time.Duration

	goroutines, files int // of the bot, at most

	pictures float64 // a second that a viewer saw
}

// flood measures a worker with honest rooms before, while and after hostile clients flood each of its interfaces.
func (c *soakCmd) flood(r *run, out io.Writer) {
	f := &flooded{run: r, out: out, model: newModelServer(c.Seed, longText, 300*time.Millisecond, time.Second)}
	r.Cleanup(f.model.close)
	texts := httptest.NewServer(fakes.Speech())
	r.Cleanup(texts.Close)
	at := roomsWithCameras(r, max(c.Rooms, 1), false, stage.Options{Width: 640, Height: 360, Seed: c.Seed})
	f.room, f.rooms, f.console = at.Rooms[0], len(at.Rooms), freeAddress(r)
	store := r.folder()
	f.process = worker(r, at, allCores, append(f.model.settings(),
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store, "TOUCHLINE_AGENT_CONSOLE_TOKEN="+operatorToken,
		"TOUCHLINE_INFERENCE_RECOGNIZER_PROGRAM=remote", "TOUCHLINE_INFERENCE_RECOGNIZER_URL="+texts.URL+"/good/v1",
	), "--console", f.console)
	floods := []string{allKinds}
	if c.Apart {
		floods = apart()
	}
	part := c.Length / time.Duration(len(floods)+2)
	at.Hostile = hostility{
		Clients: c.Hostile, Seed: c.Seed, Console: f.console, Length: part, Links: map[string]string{}, Steering: map[string]string{},
	}
	for _, room := range at.Rooms {
		at.Hostile.Links[room] = f.link(room, access.Watch|access.Transcribe)
		at.Hostile.Steering[room] = f.link(room, access.AllInRoom)
	}
	for _, room := range at.Rooms {
		r.Cleanup(f.view(room))
	}
	r.Wait(min(settleTime, part))
	phases := []*phase{f.phase("before", part)}
	answers := map[string]int{}
	for _, at.Hostile.Kind = range floods {
		clients, _ := startRole(r, roleHostile, at)
		phases = append(phases, f.phase(at.Hostile.Kind, part))
		if err := clients.says.Decode(&answers); err != nil {
			r.Check(fmt.Errorf("read the answers to the hostile clients: %w", err))
		}
		clients.stop()
	}
	phases = append(phases, f.phase("after", part))
	f.process.stop()
	for _, e := range alignedComments(r, store) {
		for _, p := range phases {
			if at := e.Record.StartedAt; at.After(p.from) && at.Before(p.to) {
				p.aligned = append(p.aligned, seconds(e.Record.AlignmentError).Abs())
			}
		}
	}
	f.figures(phases)
	for _, answer := range slices.Sorted(maps.Keys(answers)) {
		r.Note("hostile: "+answer, "%d", answers[answer])
	}
	r.Note("load of the machine", "%s", loadAverage())
}

// phase lets an operator give orders for a while, and measures the bot.
func (f *flooded) phase(name string, length time.Duration) *phase {
	p := &phase{name: name, from: time.Now()}
	pid := f.process.cmd.Process.Pid
	f.seen.Store(0)
	begin := usageOf(f.run, pid, true)
	for next := p.from; time.Since(p.from) < length; f.Wait(time.Second) {
		u := usageOf(f.run, pid, true)
		p.peak, p.end = max(p.peak, mega(u.RSS)), mega(u.RSS)
		if !time.Now().Before(next) {
			next = next.Add(orderEvery)
			p.acted = append(p.acted, f.order())
			goroutines, files := f.held()
			p.goroutines, p.files = max(p.goroutines, goroutines), max(p.files, files)
		}
	}
	p.usage, p.to = usageOf(f.run, pid, true).since(begin), time.Now()
	p.pictures = float64(f.seen.Load()) / p.to.Sub(p.from).Seconds() / float64(f.rooms)
	fmt.Fprintf(f.out, "  %s: CPU %.0f %% of a core, memory up to %.0f MB, %.0f MB at the end, %s, orders act after %.0f ms at most\n",
		name, p.usage.share(), p.peak, p.end, p.held(), bench.MS(slices.Max(p.acted)))
	return p
}

// link makes a link of a room.
func (f *flooded) link(room string, rights access.Rights) (token string) {
	var link struct{ Token string }
	f.post("/api/rooms/"+room+"/links", map[string]any{"rights": rights.Names(), "for": "24h"}, &link)
	return link.Token
}

// view shows the delayed picture of a room to a viewer until leave. The memory of its decoder is not that of a flood.
func (f *flooded) view(room string) (leave func()) {
	ctx, cancel := context.WithCancel(f.Context())
	res, err := f.do(ctx, http.MethodGet, "/api/rooms/"+room+"/mjpeg", nil)
	f.Check(err)
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	f.Check(err)
	var done sync.WaitGroup
	done.Go(func() {
		for parts := multipart.NewReader(res.Body, params["boundary"]); ; f.seen.Add(1) {
			if _, err := parts.NextPart(); err != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		_ = res.Body.Close() // only read
	}
}

// order gives an order, and returns the time until the model looks with it; orderMost if it does not.
func (f *flooded) order() time.Duration {
	f.orders++
	text := fmt.Sprintf("Order %d: name the colours.", f.orders)
	seen := f.model.await(text)
	from := time.Now()
	f.post("/api/rooms/"+f.room+"/instruction", map[string]string{"instruction": text}, nil)
	select {
	case at := <-seen:
		return at.Sub(from)
	case <-time.After(orderMost):
		return orderMost
	case <-f.Context().Done():
		f.Check(f.Context().Err())
		return 0
	}
}

func (p *phase) held() string { return fmt.Sprintf("%d goroutines, %d files", p.goroutines, p.files) }

// held returns the numbers of goroutines and open files of the bot, by its metrics.
func (f *flooded) held() (goroutines, files int) {
	for line := range strings.Lines(string(f.ask(http.MethodGet, "/metrics", nil))) {
		_, _ = fmt.Sscanf(line, "go_goroutines %d", &goroutines) // other lines do not match
		_, _ = fmt.Sscanf(line, "process_open_fds %d", &files)
	}
	return goroutines, files
}

// post sends JSON as the operator, and reads the answer into out, which may be nil.
func (f *flooded) post(path string, in, out any) {
	b, err := json.Marshal(in)
	f.Check(err)
	b = f.ask(http.MethodPost, path, b)
	if out != nil {
		f.Check(json.Unmarshal(b, out))
	}
}

// ask sends a request as the operator, and returns the answer.
func (f *flooded) ask(method, path string, body []byte) []byte {
	res, err := f.do(f.Context(), method, path, body)
	f.Check(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	f.Check(err)
	return b
}

func (f *flooded) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+f.console+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode < http.StatusBadRequest {
		return res, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, res.Status, b), err)
}

func (f *flooded) figures(phases []*phase) {
	p95 := func(p *phase) float64 { return bench.MS(quantile.Of(p.aligned, 0.95)) }
	before, after := phases[0], phases[len(phases)-1]
	f.Note("comments with a picture before and after", "%d, %d", len(before.aligned), len(after.aligned))
	f.Note("alignment p95 before and after", "%.1f, %.1f ms", p95(before), p95(after))
	f.Note("CPU of the bot before and after", "%.0f, %.0f %% of a core", before.usage.share(), after.usage.share())
	f.Note("memory of the bot before", "%.0f MB", before.peak)
	f.Note("pictures a second of a viewer before and after", "%.1f, %.1f", before.pictures, after.pictures)
	f.Note("held by the bot at most before and after", "%s; %s", before.held(), after.held())
	f.Note("orders before, median until the model looks with one", "%.0f ms", bench.MS(quantile.Of(before.acted, 0.5)))
	for _, p := range phases[1 : len(phases)-1] {
		in := " during the " + p.name
		memory := 80.0
		f.Note("CPU of the bot"+in, "%.0f %% of a core", p.usage.share())
		if p.name == allKinds {
			memory = 150
			f.AtMost("CPU of the bot"+in+", times that before", p.usage.share()/before.usage.share(), 3, "")
		}
		f.AtLeast("comments"+in, float64(len(p.aligned)), 1, "")
		f.AtMost("alignment p95 of honest rooms"+in, p95(p), 20, "ms")
		f.AtMost("memory above that before"+in, p.peak-before.peak, memory, "MB")
		f.Note("pictures a second of a viewer"+in, "%.1f", p.pictures)
		f.Note("held by the bot at most"+in, "%s", p.held())
		f.Note("orders"+in+", median until the model looks with one", "%.0f ms", bench.MS(quantile.Of(p.acted, 0.5)))
		f.AtMost(fmt.Sprintf("the latest of %d orders%s", len(p.acted), in), quantile.Of(p.acted, 1).Seconds(), 1, "s")
	}
	f.AtMost("memory above that before, at the end", after.end-before.peak, 50, "MB")
}

// freeAddress returns an address on this machine that is free now.
func freeAddress(r *run) string {
	l, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "127.0.0.1:0")
	r.Check(err)
	r.Check(l.Close())
	return l.Addr().String()
}
