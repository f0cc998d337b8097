package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

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
	orders  int
}

// phase is a part of a flood.
type phase struct {
	from, to  time.Time
	usage     usage // of the bot
	peak, end float64
	acted     []time.Duration // from an order to the model's look with it
	aligned   []time.Duration
}

// flood measures a worker with honest rooms before, while and after hostile clients flood each of its interfaces.
func (c *soakCmd) flood(r *run, out io.Writer) {
	f := &flooded{run: r, out: out, model: newModelServer(c.Seed, longText, 300*time.Millisecond, time.Second)}
	r.Cleanup(f.model.close)
	texts := httptest.NewServer(fakes.Speech())
	r.Cleanup(texts.Close)
	at := roomsWithCameras(r, max(c.Rooms, 1), false, stage.Options{Width: 640, Height: 360, Seed: c.Seed})
	f.room, f.console = at.Rooms[0], freeAddress(r)
	store := r.folder()
	f.process = worker(r, at, allCores, append(f.model.settings(),
		"TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store, "TOUCHLINE_AGENT_CONSOLE_TOKEN="+operatorToken,
		"TOUCHLINE_INFERENCE_RECOGNIZER_PROGRAM=remote", "TOUCHLINE_INFERENCE_RECOGNIZER_URL="+texts.URL+"/good/v1",
	), "--console", f.console)
	at.Hostile = hostility{Clients: c.Hostile, Seed: c.Seed, Console: f.console, Length: c.Length / 3, Links: map[string]string{}}
	for _, room := range at.Rooms {
		var link struct{ Token string }
		f.post("/api/rooms/"+room+"/links", map[string]any{"rights": []string{"watch", "transcribe"}, "for": "24h"}, &link)
		at.Hostile.Links[room] = link.Token
	}
	r.Wait(min(settleTime, c.Length/3))
	before := f.phase("before", c.Length/3)
	clients, _ := startRole(r, roleHostile, at)
	during := f.phase("flood", c.Length/3)
	var answers map[string]int
	if err := clients.says.Decode(&answers); err != nil {
		r.Check(fmt.Errorf("read the answers to the hostile clients: %w", err))
	}
	clients.stop()
	after := f.phase("after", c.Length/3)
	f.process.stop()
	phases := []*phase{before, during, after}
	for _, e := range alignedComments(r, store) {
		for _, p := range phases {
			if at := e.Record.StartedAt; at.After(p.from) && at.Before(p.to) {
				p.aligned = append(p.aligned, seconds(e.Record.AlignmentError).Abs())
			}
		}
	}
	f.figures(before, during, after)
	for _, answer := range slices.Sorted(maps.Keys(answers)) {
		r.Note("hostile: "+answer, "%d", answers[answer])
	}
	r.Note("load of the machine", "%s", loadAverage())
}

// phase lets an operator give orders for a while, and measures the bot.
func (f *flooded) phase(name string, length time.Duration) *phase {
	p := &phase{from: time.Now()}
	pid := f.process.cmd.Process.Pid
	begin := usageOf(f.run, pid, true)
	for next := p.from; time.Since(p.from) < length; f.Wait(time.Second) {
		u := usageOf(f.run, pid, true)
		p.peak, p.end = max(p.peak, mega(u.RSS)), mega(u.RSS)
		if !time.Now().Before(next) {
			next = next.Add(orderEvery)
			p.acted = append(p.acted, f.order())
		}
	}
	p.usage, p.to = usageOf(f.run, pid, true).since(begin), time.Now()
	fmt.Fprintf(f.out, "  %s: CPU %.0f %% of a core, memory up to %.0f MB, %.0f MB at the end, orders act after %.0f ms at most\n",
		name, p.usage.share(), p.peak, p.end, bench.MS(slices.Max(p.acted)))
	return p
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

// post sends JSON as the operator, and reads the answer into out, which may be nil.
func (f *flooded) post(path string, in, out any) {
	b, err := json.Marshal(in)
	f.Check(err)
	req, err := http.NewRequestWithContext(f.Context(), http.MethodPost, "http://"+f.console+path, bytes.NewReader(b))
	f.Check(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+operatorToken)
	res, err := http.DefaultClient.Do(req)
	f.Check(err)
	defer res.Body.Close()
	b, err = io.ReadAll(res.Body)
	f.Check(err)
	if res.StatusCode >= http.StatusBadRequest {
		f.Check(fmt.Errorf("post %s: %s: %s", path, res.Status, b))
	}
	if out != nil {
		f.Check(json.Unmarshal(b, out))
	}
}

func (f *flooded) figures(before, during, after *phase) {
	p95 := func(p *phase) float64 { return bench.MS(quantile.Of(p.aligned, 0.95)) }
	f.Note("comments with a picture before, during and after the flood", "%d, %d, %d",
		len(before.aligned), len(during.aligned), len(after.aligned))
	f.AtLeast("comments during the flood", float64(len(during.aligned)), 1, "")
	f.Note("alignment p95 before and after", "%.1f, %.1f ms", p95(before), p95(after))
	f.AtMost("alignment p95 of honest rooms during the flood", p95(during), 20, "ms")
	f.Note("CPU of the bot before, during and after", "%.0f, %.0f, %.0f %% of a core",
		before.usage.share(), during.usage.share(), after.usage.share())
	f.AtMost("CPU of the bot during the flood, times that before", during.usage.share()/before.usage.share(), 3, "")
	f.Note("memory of the bot before", "%.0f MB", before.peak)
	f.AtMost("memory above that during the flood", during.peak-before.peak, 150, "MB")
	f.AtMost("memory above that at the end", after.end-before.peak, 50, "MB")
	f.Note("orders before and during the flood, median until the model looks with one", "%.0f, %.0f ms",
		bench.MS(quantile.Of(before.acted, 0.5)), bench.MS(quantile.Of(during.acted, 0.5)))
	f.AtMost(fmt.Sprintf("the latest of %d orders during the flood", len(during.acted)), quantile.Of(during.acted, 1).Seconds(), 1, "s")
}

// freeAddress returns an address on this machine that is free now.
func freeAddress(r *run) string {
	l, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "127.0.0.1:0")
	r.Check(err)
	r.Check(l.Close())
	return l.Addr().String()
}
