package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"touchline/agent"
	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

// soak is one run of bots under faults.
type soak struct {
	*run
	*soakCmd

	out   io.Writer // a line for each fault and each minute
	stage *stage.Stage
	model *modelServer
	rooms []soakRoom // the first one is of stage
	rand  *rand.Rand
	began time.Time

	kinds    []string                   // of faults
	pauses   []span                     // between faults
	took     map[string][]time.Duration // recoveries, by fault
	restarts int
	gap      time.Duration // longest gap between pictures while another viewer stalled
	samples  []sample      // of watch, until it ends
}

// soakRoom is a room with a reader.
type soakRoom struct {
	*stage.Stage

	ledger *ledger
	reader *rejoiner
}

// recently is the time of the alignment that is printed each minute.
const recently = 5 * time.Minute

// settleAfter is how long after its end a comment is compared with what its reader got.
const settleAfter = 2 * time.Minute

// measure keeps bots commenting while a script of faults hits server, network, codec, engine and camera, and
// viewers join and leave. It adds alignment between faults, recovery times, growth of resources, and lost comments.
func (c *soakCmd) measure(r *run, out io.Writer) {
	k := &soak{
		run: r, soakCmd: c, out: out, took: map[string][]time.Duration{},
		rand:  rand.New(rand.NewPCG(c.Seed, 4)),
		model: newModelServer(c.Seed, longText, 400*time.Millisecond, 3*time.Second),
	}
	r.Cleanup(k.model.close)
	cfg := configs.Default()
	cfg.Inference.Engine = "remote"
	cfg.Inference.Remote.URL = k.model.URL + "/v1"
	cfg.Inference.Remote.FirstTokenTimeout = 5 * time.Second
	if c.Quick {
		k.model.text, k.model.least, k.model.most = tinyText, 200*time.Millisecond, 400*time.Millisecond
		cfg.Pacing.InitialDelay = time.Second
		cfg.Pacing.PauseAfter, cfg.Pacing.MinInterval = 100*time.Millisecond, 200*time.Millisecond
		cfg.Inference.Remote.FirstTokenTimeout = time.Second
	}
	k.addRooms(&cfg)
	r.Cleanup(k.model.CloseClientConnections)
	k.commented("before the first fault", time.Time{})
	if c.Rooms > 1 {
		startRole(r, roleHostile, k.hostile())
	}
	k.began = time.Now()
	k.logf("seed %d; the bots comment", c.Seed)
	stop := k.stage.Run(k.watch)
	k.script()
	k.calm()
	stop()
	// The last comments get their records and reach the readers.
	for _, room := range k.rooms {
		room.Bot.Stop("soak")
	}
	r.Wait(2 * time.Second)
	last, err := takeSample()
	r.Check(err)
	k.samples = append(k.samples, last)
	net := k.stage.Network.Stats()
	for _, room := range slices.Backward(k.rooms) {
		room.Close()
	}
	k.figures()
	r.Note("packets of the first bot's network", "%d passed, %d lost, %d held back, %d overflowed",
		net.Passed, net.Lost, net.HeldBack, net.Overflowed)
}

// addRooms makes the rooms; the first one has the server, and a network that can be impaired.
func (k *soak) addRooms(cfg *configs.Config) {
	for i := range max(k.Rooms, 1) {
		room := soakRoom{ledger: newLedger()}
		o := stage.Options{Config: cfg, Seed: k.Seed + uint64(i), Network: i == 0, Texts: []agent.TextOutput{room.ledger}}
		if i > 0 {
			o.At, o.Keys, o.Room = k.stage.URL(), k.stage.Keys, fmt.Sprintf("%s-%d", stage.RoomName, i)
		}
		room.Stage = k.run.stage(o)
		if i == 0 {
			k.stage = room.Stage
		}
		room.reader = addRejoiner(k.run, room.Stage)
		k.rooms = append(k.rooms, room)
	}
}

// hostile returns the place of hostile participants: two in each room.
func (k *soak) hostile() location {
	at := locationOf(k.stage)
	at.Hostile = hostility{Clients: 2 * len(k.rooms), Seed: k.Seed}
	for _, room := range k.rooms {
		at.Rooms = append(at.Rooms, room.Room())
	}
	return at
}

func (k *soak) logf(format string, args ...any) {
	fmt.Fprintf(k.out, "  %8s  %s\n", time.Since(k.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// pick draws a duration between least and most; a quick run uses quick.
func (k *soak) pick(least, most, quick time.Duration) time.Duration {
	if k.Quick {
		return quick
	}
	return least + time.Duration(k.rand.Int64N(int64(most-least)))
}

// script injects the selected faults in rounds, in random order, until the time is up; each fault at least once.
func (k *soak) script() {
	for round := 0; round == 0 || time.Since(k.began) < k.Length; round++ {
		faults := slices.DeleteFunc(k.faults(), func(f fault) bool { return len(k.Only) > 0 && !slices.Contains(k.Only, f.name) })
		if round == 0 {
			for _, f := range faults {
				k.kinds = append(k.kinds, f.name)
			}
		}
		k.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, f := range faults {
			if round > 0 && time.Since(k.began) >= k.Length {
				return
			}
			if !k.Quick {
				k.calm()
			}
			k.fault(f)
		}
	}
}

// fault injects a fault, and waits for the next comment after it.
func (k *soak) fault(f fault) {
	from := time.Now()
	f.inject()
	healed := time.Now()
	k.commented("after "+f.name, healed)
	took := time.Since(healed)
	k.took[f.name] = append(k.took[f.name], took)
	k.logf("%s: for %.1f s; a comment with its picture %.1f s after it", f.name, healed.Sub(from).Seconds(), took.Seconds())
}

// commented waits in each room for a spoken, aligned comment whose inference began after a moment.
func (k *soak) commented(when string, after time.Time) {
	for _, room := range k.rooms {
		_, err := stage.Until(k.Context(), 90*time.Second, when+": a comment with its picture in room "+room.Room(), func() bool {
			return room.ledger.commentedAfter(after)
		})
		k.Check(cmp.Or(room.Errors(), err))
	}
}

// calm is a pause between faults.
func (k *soak) calm() {
	from := time.Now()
	k.Wait(k.pick(15*time.Second, 30*time.Second, 4*time.Second))
	k.pauses = append(k.pauses, span{from, time.Now()})
}

// sample is the usage of this process at a moment.
type sample struct {
	usage

	heap           float64 // MB
	own, all       int     // goroutines; own run code of this module and not of the server
	files, sockets int     // sockets are files too
}

// watch samples the usage of this process each minute, or more often in a short run, and prints what has happened so far.
func (k *soak) watch(ctx context.Context) error {
	every := min(time.Minute, max(k.Length/30, time.Second))
	for {
		s, err := takeSample()
		if err != nil {
			return err
		}
		k.samples = append(k.samples, s)
		var sum account
		var offs []time.Duration
		for _, room := range k.rooms {
			sum.add(room.reader.settle(room.ledger, time.Now().Add(-settleAfter)))
			offs = append(offs, room.ledger.offsSince(s.at.Add(-recently))...)
			room.Reader.Forget()
		}
		k.logf("heap %.1f MB, resident %.0f MB, %d own goroutines of %d, %d files, %d sockets; %d comments delivered, %d cut, %d lost; "+
			"alignment p95 of the last %v %.1f ms", s.heap, mega(s.RSS), s.own, s.all, s.files, s.sockets,
			sum.delivered, sum.cut, len(sum.lost), recently, bench.MS(quantile.Of(offs, 0.95)))
		if stage.Wait(ctx, every) != nil {
			return nil //nolint:nilerr // the script has ended
		}
	}
}

func takeSample() (s sample, err error) {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if s.usage, err = readUsage(os.Getpid(), false); err != nil {
		return s, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return s, fmt.Errorf("list the open files: %w", err)
	}
	for _, f := range files {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(to, "socket:") { // it may be closed
			s.sockets++
		}
	}
	s.heap = float64(mem.HeapAlloc) / 1e6
	s.all, s.own, s.files = runtime.NumGoroutine(), ownGoroutines(), len(files)
	return s, nil
}

// ownGoroutines counts the goroutines of this module: the server in this process leaves some of its own behind
// whenever it stops.
func ownGoroutines() int {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		return 0
	}
	n := 0
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, "touchline/") && !strings.Contains(stack, "livekit-server/") {
			n++
		}
	}
	return n
}

// fit returns the growth of a figure per hour by least squares over all but the first quarter of the run, with half the width of
// its 95 % confidence interval.
func fit(samples []sample, figure func(sample) float64) (slope, half float64) {
	samples = samples[len(samples)/4:]
	n := float64(len(samples))
	if n < 3 {
		return 0, 0
	}
	var x, y, xx, xy, yy float64
	for _, s := range samples {
		h, v := s.at.Sub(samples[0].at).Hours(), figure(s)
		x, y, xx, xy, yy = x+h, y+v, xx+h*h, xy+h*v, yy+v*v
	}
	xx, xy, yy = xx-x*x/n, xy-x*y/n, yy-y*y/n
	if xx <= 0 {
		return 0, 0
	}
	slope = xy / xx
	student := 1.96 + 2.4/(n-2) // of n-2 degrees of freedom, nearly
	return slope, student * math.Sqrt(max(yy-slope*xy, 0)/(n-2)/xx)
}

func (k *soak) figures() {
	outcomes := map[string]int{}
	var all []aligned
	sum := account{}
	for _, room := range k.rooms {
		for outcome, n := range room.ledger.outcomes {
			outcomes[outcome] += n
		}
		for _, c := range room.ledger.aligned {
			if overlaps(k.pauses, c.at, c.at) {
				all = append(all, c)
			}
		}
		sum.add(room.reader.settle(room.ledger, time.Now()))
	}
	k.Note("cycles by outcome", "%s", strings.Trim(fmt.Sprint(outcomes), "map[]"))
	k.alignmentFigures(all)
	k.recoveryFigures()
	k.AtMost("one viewer stalls: longest gap between pictures at the other", bench.MS(k.gap), 300, "ms")
	k.Note("comments begun while connected", "%d delivered whole, %d recorded as cut, with the reason; "+
		"%d ended within %v of a break; %d while the reader was out", sum.delivered, sum.cut, sum.inFlight, lossWindow, sum.missed)
	k.AtMost("comments lost", float64(len(sum.lost)), 0, "")
	for _, l := range sum.lost {
		k.Note("lost", "%s", l)
	}
	k.growthFigures()
}

// alignmentFigures adds the alignment between faults, of all and of each quarter of the run.
func (k *soak) alignmentFigures(all []aligned) {
	const quarters = 4
	var errs []time.Duration
	var parts [quarters][]time.Duration
	length := time.Since(k.began)
	for _, c := range all {
		q := min(int(quarters*c.at.Sub(k.began)/length), quarters-1)
		errs, parts[q] = append(errs, c.off), append(parts[q], c.off)
	}
	what, p95 := fmt.Sprintf("calm: alignment p95 of %d comments (bot's figure)", len(errs)), bench.MS(quantile.Of(errs, 0.95))
	if len(errs) > 0 && !k.Quick {
		k.AtMost(what, p95, 100, "ms")
	} else {
		k.Note(what, "%.1f ms", p95)
	}
	for q, part := range parts {
		if len(part) > 0 && !k.Quick {
			k.AtMost(fmt.Sprintf("of quarter %d, %d comments", q+1, len(part)), bench.MS(quantile.Of(part, 0.95)), 100, "ms")
		}
	}
}

// recoveryFigures adds the recovery from each kind of fault.
func (k *soak) recoveryFigures() {
	missing := 0
	for _, kind := range k.kinds {
		took := k.took[kind]
		if len(took) == 0 {
			missing++
			continue
		}
		k.AtMost(fmt.Sprintf("%s, %d times: next comment heard after, at most", kind, len(took)),
			quantile.Of(took, 1).Seconds(), 20, "s")
	}
	k.AtMost("kinds of faults not injected", float64(missing), 0, "")
}

// growthFigures adds the growth of the resources of this process. The readers and the model server are in it; what they keep is forgotten
// as the run goes on, but for the numbers of the cameras' pictures, 0.4 MB an hour for each room.
func (k *soak) growthFigures() {
	first, last := k.samples[0], k.samples[len(k.samples)-1]
	k.Note("memory of the whole stage at the start and at the end", "heap %.0f, %.0f MB; resident %.0f, %.0f MB",
		first.heap, last.heap, mega(first.RSS), mega(last.RSS))
	k.AtMost("own goroutines more than at the start", float64(last.own-first.own), 12, "")
	k.Note("goroutines in all at the start and at the end", "%d, %d (%d server starts)", first.all, last.all, k.restarts)
	k.AtMost("open files more than at the start", float64(last.files-first.files), 30, "")
	judged := last.at.Sub(first.at) >= 10*time.Minute
	for _, f := range []struct {
		name, unit string
		most       float64 // an hour
		of         func(sample) float64
	}{
		{"heap", "MB/h", 6 + 2*float64(len(k.rooms)), func(s sample) float64 { return s.heap }},
		{"own goroutines", "/h", 3, func(s sample) float64 { return float64(s.own) }},
		{"open files", "/h", 3, func(s sample) float64 { return float64(s.files) }},
		{"sockets", "/h", 3, func(s sample) float64 { return float64(s.sockets) }},
		{"resident memory", "MB/h", 0, func(s sample) float64 { return mega(s.RSS) }},
	} {
		slope, half := fit(k.samples, f.of)
		k.Note("slope of "+f.name, "%.1f ± %.1f %s (95 %%)", slope, half, f.unit)
		if judged && f.most > 0 {
			k.AtMost("slope of "+f.name+", least that is likely", max(slope-half, 0), f.most, f.unit)
		}
	}
	if !judged {
		k.Note("slopes", "the run was too short to judge them")
	}
}
