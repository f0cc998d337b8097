package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

// soak is one run of a bot under faults.
type soak struct {
	*run
	*soakCmd

	out    io.Writer // a line for each fault
	stage  *stage.Stage
	model  *modelServer
	ledger *ledger
	reader *rejoiner
	rand   *rand.Rand
	began  time.Time

	kinds    []string                   // of faults
	pauses   []span                     // between faults
	took     map[string][]time.Duration // recoveries, by fault
	samples  []sample
	restarts int
	gap      time.Duration // longest gap between pictures while another viewer stalled
}

// measure keeps one bot commenting while a script of faults hits server, network, codec, engine and camera, and
// viewers join and leave. It adds alignment between faults, recovery times, growth of resources, and lost comments.
func (c *soakCmd) measure(r *run, out io.Writer) {
	k := &soak{
		run: r, soakCmd: c, out: out, ledger: newLedger(), took: map[string][]time.Duration{},
		rand:  rand.New(rand.NewPCG(c.Seed, 4)), //nolint:gosec // a script, not secrets
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
	k.stage = r.stage(stage.Options{Config: &cfg, Seed: c.Seed, Network: true, Texts: []agent.TextOutput{k.ledger}})
	r.Cleanup(k.model.CloseClientConnections)
	k.reader = addRejoiner(r, k.stage)
	k.commented("before the first fault", time.Time{})
	k.began = time.Now()
	k.logf("seed %d; the bot comments", c.Seed)
	k.script()
	k.calm()
	// The last comment gets its record and reaches the reader.
	k.stage.Bot.Stop("soak")
	r.Wait(2 * time.Second)
	k.sampleUsage()
	net := k.stage.Network.Stats()
	k.stage.Close()
	k.figures()
	r.Note("packets of the bot's network", "%d passed, %d lost, %d held back, %d overflowed",
		net.Passed, net.Lost, net.HeldBack, net.Overflowed)
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
	k.sampleUsage()
}

// commented waits for a spoken, aligned comment whose inference began after a moment.
func (k *soak) commented(when string, after time.Time) {
	_, err := stage.Until(k.Context(), 90*time.Second, when+": a comment with its picture", func() bool {
		for _, r := range k.stage.Reader.Records() {
			if r.Outcome == look.OutcomeSpoken && r.Aligned && r.InferenceStart.After(after) {
				return true
			}
		}
		return false
	})
	k.Check(cmp.Or(k.stage.Errors(), err))
}

// calm is a pause between faults.
func (k *soak) calm() {
	from := time.Now()
	k.Wait(k.pick(15*time.Second, 30*time.Second, 4*time.Second))
	k.pauses = append(k.pauses, span{from, time.Now()})
	k.sampleUsage()
}

// sample is the usage of this process at a moment.
type sample struct {
	usage

	heap     int64
	own, all int // goroutines; own run code of this module and not of the server
	files    int
}

// sampleUsage records the usage of this process.
func (k *soak) sampleUsage() {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	files, err := os.ReadDir("/proc/self/fd")
	k.Check(err)
	k.samples = append(k.samples, sample{
		usage: usageOf(k.run, os.Getpid(), false), heap: int64(mem.HeapAlloc), //nolint:gosec // of this machine
		all: runtime.NumGoroutine(), own: ownGoroutines(), files: len(files),
	})
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
func slope(samples []sample, figure func(sample) int64) float64 {
	samples = samples[len(samples)/4:]
	if len(samples) < 2 {
		return 0
	}
	var x, y, xx, xy float64
	for _, s := range samples {
		h, v := s.at.Sub(samples[0].at).Hours(), mega(figure(s))
		x, y, xx, xy = x+h, y+v, xx+h*h, xy+h*v
	}
	n := float64(len(samples))
	if d := n*xx - x*x; d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

func (k *soak) figures() {
	outcomes := map[string]int{}
	var errs []time.Duration
	for _, r := range k.stage.Reader.Records() {
		outcomes[r.Outcome]++
		if r.Outcome == look.OutcomeSpoken && r.Aligned && overlaps(k.pauses, r.StartedAt, r.StartedAt) {
			errs = append(errs, seconds(r.AlignmentError).Abs())
		}
	}
	k.Note("cycles by outcome", "%s", strings.Trim(fmt.Sprint(outcomes), "map[]"))
	what, p95 := fmt.Sprintf("calm: alignment p95 of %d comments (bot's figure)", len(errs)), bench.MS(quantile.Of(errs, 0.95))
	if len(errs) > 0 && !k.Quick {
		k.AtMost(what, p95, 100, "ms")
	} else {
		k.Note(what, "%.1f ms", p95)
	}
	k.recoveryFigures()
	k.AtMost("one viewer stalls: longest gap between pictures at the other", bench.MS(k.gap), 300, "ms")
	a := k.ledger.balance(k.reader.got, k.reader.absent)
	k.Note("comments begun while connected", "%d delivered whole, %d recorded as cut, with the reason; "+
		"%d ended within %v of a break; %d while the reader was out", a.delivered, a.cut, a.inFlight, lossWindow, a.missed)
	k.AtMost("comments lost", float64(len(a.lost)), 0, "")
	for _, l := range a.lost {
		k.Note("lost", "%s", l)
	}
	k.growthFigures()
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

// growthFigures adds the resources of this process at the end compared with the start.
func (k *soak) growthFigures() {
	first, last := k.samples[0], k.samples[len(k.samples)-1]
	k.Note("memory of the whole stage at the start and at the end", "heap %d, %d MB; resident %d, %d MB",
		first.heap>>20, last.heap>>20, first.RSS>>20, last.RSS>>20)
	k.AtMost("own goroutines more than at the start", float64(last.own-first.own), 12, "")
	k.Note("goroutines in all at the start and at the end", "%d, %d (%d server starts)", first.all, last.all, k.restarts)
	k.AtMost("open files more than at the start", float64(last.files-first.files), 30, "")
	heap, rss := slope(k.samples, func(s sample) int64 { return s.heap }), slope(k.samples, func(s sample) int64 { return s.RSS })
	if last.at.Sub(first.at) < 10*time.Minute {
		k.Note("memory slope", "heap %.1f MB/h, resident %.1f MB/h (too short to judge)", heap, rss)
		return
	}
	k.AtMost("heap slope", max(heap, 0), 30, "MB/h")
	k.Note("slope of resident memory", "%.1f MB/h", rss)
}
