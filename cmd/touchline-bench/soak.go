package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/configs"
	"touchline/internal/e2e/netfault"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

// soakOptions are the options of measureSoak.
type soakOptions struct {
	// Length of the run; each fault is injected once even if that takes longer.
	Length time.Duration
	// Seed determines order and length of the faults.
	Seed uint64
	// Quick makes faults short, without calm between them.
	Quick bool
	// Out receives a line for each fault.
	Out io.Writer
	Log zerolog.Logger
}

// soak is one run.
type soak struct {
	opts   soakOptions
	stage  *stage.Stage
	model  *modelServer
	ledger *ledger
	reader *rejoiner
	rand   *rand.Rand
	began  time.Time

	kinds    []string // of faults
	phases   []phase
	after    map[string][]phase         // the time after each fault, by fault
	took     map[string][]time.Duration // recoveries, by fault
	samples  []sample
	restarts int
	gap      time.Duration // longest gap between pictures while another viewer stalled
}

// phase is a stretch of the run, for the figures by phase.
type phase struct {
	name     string
	from, to time.Time
}

// sample is the usage of this process at a moment.
type sample struct {
	at        time.Time
	heap, rss int64
	own, all  int // goroutines; own run code of this module and not of the server
	files     int
}

// calmPhase names the time without faults.
const calmPhase = "calm"

// afterwards is the time after a fault in which comments count as following it, unless another fault begins.
const afterwards = 30 * time.Second

// recoveryBound is the goal for the time from a fault to the next comment heard with its picture.
const recoveryBound = 20 * time.Second

// measureSoak keeps one bot commenting while a script of faults hits server, network, codec, engine and camera, and
// viewers join and leave. It reports alignment by phase, recovery times, growth of resources, and lost comments.
func measureSoak(ctx context.Context, o soakOptions) ([]row, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	k := &soak{
		opts: o, ledger: newLedger(), took: map[string][]time.Duration{}, after: map[string][]phase{},
		rand: rand.New(rand.NewPCG(o.Seed, 4)), //nolint:gosec // a script, not secrets
	}
	k.model = newModelServer(o.Seed, longText, 400*time.Millisecond, 3*time.Second)
	if o.Quick {
		k.model.text, k.model.least, k.model.most = tinyText, 200*time.Millisecond, 400*time.Millisecond
	}
	defer k.model.close()
	cfg := configs.Default()
	cfg.Inference.Engine = "remote"
	cfg.Inference.Remote.URL = k.model.URL + "/v1"
	cfg.Inference.Remote.FirstTokenTimeout = 5 * time.Second
	if o.Quick {
		cfg.Pacing.InitialDelay = time.Second
		cfg.Pacing.PauseAfter, cfg.Pacing.MinInterval = 100*time.Millisecond, 200*time.Millisecond
		cfg.Inference.Remote.FirstTokenTimeout = time.Second
	}
	var err error
	k.stage, err = stage.New(ctx, stage.Options{
		Config: &cfg, Seed: o.Seed, Network: true, Texts: []agent.TextOutput{k.ledger}, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	defer k.stage.Close()
	defer k.model.CloseClientConnections()
	if k.reader, err = addRejoiner(ctx, k.stage); err != nil {
		return nil, err
	}
	if err := commented(ctx, k.stage, time.Time{}, time.Minute); err != nil {
		return nil, fmt.Errorf("before the first fault: %w", err)
	}
	k.began = time.Now()
	used, all, err := machineTime()
	if err != nil {
		return nil, err
	}
	k.logf("seed %d; the bot comments", o.Seed)
	err = k.script(ctx)
	if err == nil {
		err = k.calm(ctx)
	}
	// Comments under way get their record and reach the reader.
	k.stage.Bot.Stop("soak")
	err = errors.Join(err, stage.Wait(ctx, 2*time.Second))
	k.sampleUsage()
	net := k.stage.Network.Stats()
	restarts, files := k.restarts, k.samples[len(k.samples)-1].files
	k.stage.Close()
	rows := k.rows(restarts, files)
	usedNow, allNow, merr := machineTime()
	err = errors.Join(err, merr)
	inUse := fmt.Sprintf("%.0f %%", 100*(usedNow-used)/max(allNow-all, 1))
	return append(rows, note("processors of the machine in use, with all that ran", inUse),
		note("packets of the bot's network", fmt.Sprintf("%d passed, %d lost, %d held back, %d overflowed",
			net.Passed, net.Lost, net.HeldBack, net.Overflowed))), errors.Join(err, k.stage.Errors())
}

func (k *soak) logf(format string, args ...any) {
	fmt.Fprintf(k.opts.Out, "  %8s  %s\n", time.Since(k.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// pick draws a duration between two; quick is the one of a quick run.
func (k *soak) pick(least, most, quick time.Duration) time.Duration {
	if k.opts.Quick {
		return quick
	}
	return least + time.Duration(k.rand.Int64N(int64(most-least)))
}

// script runs rounds of all faults in shuffled order until the time is up.
func (k *soak) script(ctx context.Context) error {
	for round := 0; round == 0 || time.Since(k.began) < k.opts.Length; round++ {
		faults := k.faults()
		if round == 0 {
			for _, t := range faults {
				k.kinds = append(k.kinds, t.name)
			}
		}
		k.rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, t := range faults {
			if round > 0 && time.Since(k.began) >= k.opts.Length {
				return nil
			}
			if !k.opts.Quick {
				if err := k.calm(ctx); err != nil {
					return err
				}
			}
			from := time.Now()
			k.endAftermath(from)
			if err := t.inject(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			healed := time.Now()
			if err := commented(ctx, k.stage, healed, 90*time.Second); err != nil {
				return fmt.Errorf("after %s: %w", t.name, err)
			}
			k.after[t.name] = append(k.after[t.name], phase{t.name, healed, healed.Add(afterwards)})
			took := time.Since(healed)
			k.took[t.name] = append(k.took[t.name], took)
			k.phases = append(k.phases, phase{t.name, from, time.Now()})
			k.logf("%s: for %.1f s; a comment with its picture %.1f s after it", t.name, healed.Sub(from).Seconds(), took.Seconds())
			k.sampleUsage()
		}
	}
	return nil
}

// endAftermath ends the time after the faults so far: another one begins.
func (k *soak) endAftermath(now time.Time) {
	for _, all := range k.after {
		if last := &all[len(all)-1]; last.to.After(now) {
			last.to = now
		}
	}
}

// calm is a pause between faults.
func (k *soak) calm(ctx context.Context) error {
	from := time.Now()
	err := stage.Wait(ctx, k.pick(15*time.Second, 30*time.Second, 4*time.Second))
	k.phases = append(k.phases, phase{calmPhase, from, time.Now()})
	k.sampleUsage()
	return err
}

func (k *soak) faults() []fault {
	bad := func(name string, imp netfault.Impairment) fault {
		return fault{name, func(ctx context.Context) error {
			k.stage.Network.Set(imp)
			defer k.stage.Network.Set(netfault.Impairment{})
			return stage.Wait(ctx, k.pick(25*time.Second, 40*time.Second, 2*time.Second))
		}}
	}
	engine := func(name string, m mood) fault {
		return k.model.moodFor(name, m, k.pick(6*time.Second, 12*time.Second, 1500*time.Millisecond))
	}
	away := serverAway(k.stage, "server stopped", k.pick(3*time.Second, 12*time.Second, 2*time.Second))
	return []fault{
		{away.name, func(ctx context.Context) error {
			k.restarts++
			return away.inject(ctx)
		}},
		bad("5 % of packets lost", netfault.Impairment{Loss: 0.05}),
		bad("5 % of packets 40 ms out of order", netfault.Impairment{Reorder: 0.05, HoldBack: 40 * time.Millisecond}),
		bad("jitter of 200 ms", netfault.Impairment{Jitter: 200 * time.Millisecond}),
		codecKilled(),
		engine("engine answers 500", moodRefuse),
		engine("engine hangs", moodHang),
		engine("engine closes in the middle", moodBreak),
		cameraAway(k.stage, "camera gone", k.pick(3*time.Second, 10*time.Second, 2*time.Second), k.rand.Uint64()),
		{"viewers come and go", func(ctx context.Context) error {
			for range 3 {
				v, leave, err := k.stage.AddViewer(true)
				if err != nil {
					return err
				}
				err = errors.Join(seesPicture(ctx, v), stage.Wait(ctx, k.pick(time.Second, 8*time.Second, 100*time.Millisecond)))
				leave()
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"one of two viewers stalls", func(ctx context.Context) error {
			gap, err := stalledViewer(ctx, k.stage, k.pick(10*time.Second, 15*time.Second, 2*time.Second))
			k.gap = max(k.gap, gap)
			return err
		}},
	}
}

// sampleUsage records the usage of this process.
func (k *soak) sampleUsage() {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s := sample{at: time.Now(), heap: int64(mem.HeapAlloc), all: runtime.NumGoroutine()} //nolint:gosec // of this machine
	if u, err := usageOfOne(os.Getpid()); err == nil {
		s.rss = u.RSS
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.files = len(fds)
	}
	s.own = ownGoroutines()
	k.samples = append(k.samples, s)
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

// slope returns the growth of a figure per hour, by least squares over all but the first quarter of the run.
func slope(samples []sample, figure func(sample) float64) float64 {
	samples = samples[len(samples)/4:]
	if len(samples) < 2 {
		return 0
	}
	var x, y, xx, xy float64
	for _, s := range samples {
		h := s.at.Sub(samples[0].at).Hours()
		x, y, xx, xy = x+h, y+figure(s), xx+h*h, xy+h*figure(s)
	}
	n := float64(len(samples))
	if d := n*xx - x*x; d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

// aligned returns the alignment errors of the comments in a phase.
func (k *soak) aligned(p phase) (errs []time.Duration) {
	for _, r := range k.stage.Reader.Records() {
		in := r.StartedAt.After(p.from) && r.StartedAt.Before(p.to)
		if in && r.Outcome == agent.OutcomeSpoken && r.Aligned {
			errs = append(errs, seconds(r.AlignmentError).Abs())
		}
	}
	return errs
}

func (k *soak) rows(restarts, files int) []row {
	outcomes := map[string]int{}
	for _, r := range k.stage.Reader.Records() {
		outcomes[r.Outcome]++
	}
	rows := []row{note("cycles by outcome", strings.Trim(fmt.Sprint(outcomes), "map[]"))}
	rows = append(rows, k.phaseRows()...)
	rows = append(rows, k.recoveryRows()...)
	a := k.ledger.balance(k.reader.got, k.reader.absences())
	rows = append(rows, stallRow(k.gap),
		note("comments begun while connected", fmt.Sprintf("%d delivered whole, %d recorded as cut, with the reason; "+
			"%d ended within %v of a break; %d while the reader was out", a.delivered, a.cut, a.inFlight, lossWindow, a.missed)),
		atMost("comments lost", float64(len(a.lost)), 0, ""),
	)
	for _, l := range a.lost {
		rows = append(rows, note("lost", l))
	}
	return append(rows, k.growthRows(restarts, files)...)
}

// phaseRows are the alignment in each kind of phase.
func (k *soak) phaseRows() (rows []row) {
	var names []string
	errs := map[string][]time.Duration{}
	for _, p := range k.phases {
		if _, known := errs[p.name]; !known {
			names = append(names, p.name)
		}
		errs[p.name] = append(errs[p.name], k.aligned(p)...)
	}
	for _, name := range names {
		all := errs[name]
		what := fmt.Sprintf("%s: alignment p95 of %d comments (bot's figure)", name, len(all))
		figure := ms(quantile.Of(all, 0.95))
		if name == calmPhase && len(all) > 0 && !k.opts.Quick {
			rows = append(rows, atMost(what, figure, 100, "ms"))
		} else {
			rows = append(rows, note(what, strconv.FormatFloat(figure, 'f', 1, 64)+" ms"))
		}
	}
	return rows
}

// recoveryRows are the recovery from each kind of fault.
func (k *soak) recoveryRows() (rows []row) {
	missing := 0
	for _, kind := range k.kinds {
		took := k.took[kind]
		if len(took) == 0 {
			missing++
			continue
		}
		var after []time.Duration
		for _, p := range k.after[kind] {
			after = append(after, k.aligned(p)...)
		}
		rows = append(rows,
			atMost(fmt.Sprintf("%s, %d times: next comment heard after, at most", kind, len(took)),
				quantile.Of(took, 1).Seconds(), recoveryBound.Seconds(), "s"),
			note(fmt.Sprintf("%s: alignment p95 of %d comments in the %v after", kind, len(after), afterwards),
				strconv.FormatFloat(ms(quantile.Of(after, 0.95)), 'f', 1, 64)+" ms"))
	}
	return append(rows, atMost("kinds of faults not injected", float64(missing), 0, ""))
}

// growthRows are the resources of this process at the end compared with the start.
func (k *soak) growthRows(restarts, files int) []row {
	first, last := k.samples[0], k.samples[len(k.samples)-1]
	rows := []row{
		note("memory of the whole stage at the start and at the end",
			fmt.Sprintf("heap %d, %d MB; resident %d, %d MB", first.heap>>20, last.heap>>20, first.rss>>20, last.rss>>20)),
		atMost("own goroutines more than at the start", float64(last.own-first.own), 12, ""),
		note("goroutines in all at the start and at the end", fmt.Sprintf("%d, %d (%d server starts)", first.all, last.all, restarts)),
		atMost("open files more than at the start", float64(files-first.files), 30, ""),
	}
	heap := slope(k.samples, func(s sample) float64 { return float64(s.heap) / 1e6 })
	rss := slope(k.samples, func(s sample) float64 { return float64(s.rss) / 1e6 })
	if last.at.Sub(first.at) < 10*time.Minute {
		return append(rows, note("memory slope", fmt.Sprintf("heap %.1f MB/h, resident %.1f MB/h (too short to judge)", heap, rss)))
	}
	return append(rows, atMost("heap slope", max(heap, 0), 30, "MB/h"), note("slope of resident memory", fmt.Sprintf("%.1f MB/h", rss)))
}
