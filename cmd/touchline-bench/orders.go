package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/command"
	"touchline/cmd/internal/bench"
	"touchline/inference"
	"touchline/inference/sphinx"
	"touchline/inference/voice"
	"touchline/internal/quantile"
	"touchline/internal/resample"
	"touchline/internal/ticks"
	"touchline/worlds"
)

// ordersCmd measures the recognizer of orders.
type ordersCmd struct {
	printing

	Speech  time.Duration `help:"Length of the speech without orders." default:"30m"`
	Match   time.Duration `help:"Length of the match's sound." default:"10m"`
	Only    []string      `help:"Parts to run: ${enum}. All by default." enum:"clean,noise,push,speech,touchline,match"`
	Voices  []string      `help:"Voices that speak, such as slt and en-us. All seven by default."`
	Details bool          `help:"Print each order that is not understood, and each false one."`
}

func (c *ordersCmd) runs(part string) bool { return len(c.Only) == 0 || slices.Contains(c.Only, part) }

// noiseBelow is the signal-to-noise ratio of the speech, dB.
const noiseBelow = 15

// Run measures and prints a table.
func (c *ordersCmd) Run(ctx context.Context, log zerolog.Logger) error {
	out := c.report()
	figures, err := bench.Measure(ctx, func(r *bench.Run) {
		recognizer, err := sphinx.Open(sphinx.Options{Orders: command.SpokenOrders()})
		r.Check(err)
		r.Cleanup(func() { _ = recognizer.Close() })
		o := &orders{Run: r, ordersCmd: c, recognizer: recognizer, lines: orderLines()}
		o.speakers = o.voices(log)
		o.understood()
		o.mistaken()
	})
	out.Table("Spoken orders through pocketsphinx", "touchline-bench orders", figures, err)
	return out.End()
}

// orders is one run of the command.
type orders struct {
	*bench.Run
	*ordersCmd

	recognizer *sphinx.Recognizer
	lines      map[string][]string
	speakers   []speaker
}

//go:embed orders.txt
var orderTexts string

// orderLines returns the lines of orders.txt, keyed by the heading above them.
func orderLines() map[string][]string {
	out := map[string][]string{}
	for part := range strings.SplitSeq(strings.TrimSpace(orderTexts), "\n\n") {
		name, lines, _ := strings.Cut(part, "\n")
		out[name] = strings.Split(lines, "\n")
	}
	return out
}

// speaker is a voice.
type speaker struct {
	name  string
	flite bool // the goals count it
	synth *voice.Synthesizer
}

// fliteVoices is the number of voices that the goals count.
const fliteVoices = 4

// voices returns the voices that speak.
func (o *orders) voices(log zerolog.Logger) (out []speaker) {
	known := []string{"slt", "rms", "awb", "kal16", "en", "en-us", "en-gb-scotland"}
	for _, name := range o.Voices {
		if !slices.Contains(known, name) {
			o.Check(fmt.Errorf("voice %q: unknown; choose of %s", name, strings.Join(known, ", ")))
		}
	}
	for _, name := range known {
		if len(o.Voices) > 0 && !slices.Contains(o.Voices, name) {
			continue
		}
		cfg := inference.DefaultConfig().Voice
		cfg.Name, cfg.Program = name, "flite"
		if strings.HasPrefix(name, "en") {
			cfg.Program = "espeak-ng"
		}
		synth, err := voice.New(cfg, log)
		o.Check(err)
		out = append(out, speaker{cfg.Program + " " + name, cfg.Program == "flite", synth})
	}
	return out
}

// say returns a sentence as a recognizer hears it, with the silence that an utterance has around it.
func (s speaker) say(ctx context.Context, text string) ([]float32, error) {
	speech, err := s.synth.Say(ctx, text, "en")
	if err != nil {
		return nil, fmt.Errorf("say %q: %w", text, err)
	}
	return heard(speech.Audio, speech.Rate)
}

func heard(pcm []int16, rate int) ([]float32, error) {
	sound := make([]float32, len(pcm))
	for i, v := range pcm {
		sound[i] = float32(v) / 32768
	}
	sound, err := resample.All(sound, rate, inference.RecognizerRate)
	before, after := make([]float32, inference.RecognizerRate*3/10), make([]float32, inference.RecognizerRate/2)
	return slices.Concat(before, sound, after), err
}

// noisy returns sound with white noise below the level of its speech.
func noisy(sound []float32, seed uint64) []float32 {
	var power float64
	n := 0
	for part := range slices.Chunk(sound, inference.RecognizerRate/100) {
		var sum float64
		for _, v := range part {
			sum += float64(v) * float64(v)
		}
		if sum/float64(len(part)) > 1e-5 { // -50 dB
			power += sum
			n += len(part)
		}
	}
	level := math.Sqrt(power/float64(max(1, n))) * math.Pow(10, -noiseBelow/20.0)
	rng := rand.New(rand.NewPCG(seed, 7))
	out := slices.Clone(sound)
	for i := range out {
		out[i] += float32(level * rng.NormFloat64())
	}
	return out
}

// orderWay is a way of speaking an order.
type orderWay struct {
	part, name  string
	noise, push bool
	goal        float64 // percent
}

// understood counts the orders of each voice that are understood.
func (o *orders) understood() {
	var lags []time.Duration
	all := float64(len(o.lines["orders"]))
	for _, way := range []orderWay{
		{"clean", "after the wake word, clean", false, false, 90},
		{"noise", "after the wake word, noise at 15 dB", true, false, 70},
		{"push", "push-to-talk, noise at 15 dB", true, true, 90},
	} {
		if !o.runs(way.part) {
			continue
		}
		flite, counted := 0, 0
		for _, s := range o.speakers {
			n, took := o.spoken(s, way)
			lags = append(lags, took...)
			share := 100 * float64(n) / all
			if name := s.name + ", " + way.name; way.push {
				o.AtLeast(name, share, way.goal, "%")
			} else {
				o.Note(name, "%s", bench.Number(share, "%"))
			}
			if s.flite {
				flite += n
				counted++
			}
		}
		if !way.push && counted == fliteVoices {
			o.AtLeast("four flite voices, "+way.name, 100*float64(flite)/(fliteVoices*all), way.goal, "%")
		}
	}
	if len(lags) > 0 {
		o.Note("time of an utterance, two at once: median, p95", "%v, %v",
			quantile.Of(lags, .5).Round(time.Millisecond), quantile.Of(lags, .95).Round(time.Millisecond))
	}
}

// spoken lets a voice speak all orders, and returns how many are understood and the time that each took.
func (o *orders) spoken(s speaker, way orderWay) (right int, took []time.Duration) {
	var mu sync.Mutex
	o.each(len(o.lines["orders"]), func(ctx context.Context, i int) error {
		order := o.lines["orders"][i]
		text := sphinx.DefaultWake + ", " + order
		if way.push {
			text = order
		}
		sound, err := s.say(ctx, text)
		if err != nil {
			return err
		}
		if way.noise {
			sound = noisy(sound, uint64(i))
		}
		began := time.Now()
		got, err := o.listen(ctx, sound, inference.Hearing{Language: "en", Addressed: way.push})
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		if same(strings.TrimSpace(strings.TrimPrefix(got, sphinx.DefaultWake)), order) {
			right++
		} else if o.Details {
			fmt.Printf("%s, %s: %q heard as %q\n", s.name, way.name, order, got)
		}
		return err
	})
	return right, took
}

// same reports whether two orders act alike.
func same(a, b string) bool {
	one, ok1 := command.Parse(a)
	other, ok2 := command.Parse(b)
	if ok1 || ok2 {
		return ok1 == ok2 && one == other
	}
	for _, w := range []string{"please ", "okay ", "now "} {
		a = strings.TrimPrefix(a, w)
	}
	for _, w := range []string{" please", " now", " thanks", " thank you"} {
		a = strings.TrimSuffix(a, w)
	}
	return a == sphinx.Fold(b)
}

func (o *orders) listen(ctx context.Context, sound []float32, h inference.Hearing) (string, error) {
	u, err := o.recognizer.Listen(ctx, h)
	if err != nil {
		return "", err
	}
	defer u.Close()
	t, err := u.Finish(ctx, sound)
	return t.Text, err
}

// each calls f for n items, as many at once as there are processors.
func (o *orders) each(n int, f func(ctx context.Context, i int) error) {
	g, ctx := errgroup.WithContext(o.Context())
	g.SetLimit(runtime.NumCPU())
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	o.Check(g.Wait())
}

// mistaken lets all voices say sentences that are no orders, half of them with "touchline", and plays the sound of a match.
func (o *orders) mistaken() {
	const atOnce, piece = 64, 8 * time.Second
	for _, kind := range []struct{ part, name string }{
		{"speech", fmt.Sprintf("%d voices without “touchline”", len(o.speakers))},
		{"touchline", fmt.Sprintf("%d voices, each sentence with “touchline”", len(o.speakers))},
	} {
		if !o.runs(kind.part) {
			continue
		}
		f := &falseOrders{orders: o}
		for first := 0; f.length < o.Speech/2; first += atOnce {
			o.each(atOnce, func(ctx context.Context, i int) error {
				s, text := o.speakers[(first+i)%len(o.speakers)], o.sentence(first+i, kind.part)
				sound, err := s.say(ctx, text)
				if err != nil {
					return err
				}
				return f.hear(ctx, fmt.Sprintf("%s: %q", s.name, text), sound)
			})
		}
		f.figure(kind.name)
	}
	if !o.runs("match") {
		return
	}
	world, err := worlds.New(worlds.Options{})
	o.Check(err)
	f := &falseOrders{orders: o}
	o.each(int(o.Match/piece), func(ctx context.Context, i int) error {
		pcm := make([]int16, worlds.SoundRate*int(piece/time.Second))
		world.Sound(int64(i)*int64(len(pcm)), pcm)
		sound, err := heard(pcm, worlds.SoundRate)
		if err != nil {
			return err
		}
		return f.hear(ctx, fmt.Sprintf("match, piece %d", i), sound)
	})
	f.figure("sound of the match")
}

// falseOrders counts false positives: orders recognized in sound without one.
type falseOrders struct {
	*orders

	mu     sync.Mutex
	length time.Duration
	taken  int
}

func (f *falseOrders) hear(ctx context.Context, what string, sound []float32) error {
	got, err := f.listen(ctx, sound, inference.Hearing{Language: "en"})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.length += ticks.Duration(int64(len(sound)), inference.RecognizerRate)
	if got != "" {
		f.taken++
		if f.Details {
			fmt.Printf("%s: heard as %q\n", what, got)
		}
	}
	return err
}

func (f *falseOrders) figure(name string) {
	f.AtMost(fmt.Sprintf("taken for an order, %s, %.1f minutes", name, f.length.Minutes()), float64(f.taken), 0, "")
}

// sentence returns a sentence that is no order. The n-th of a kind is always the same.
func (o *orders) sentence(n int, kind string) string {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	pick := func(name string) string { return o.lines[name][rng.IntN(len(o.lines[name]))] }
	who, when := pick("WHO"), pick("WHEN")
	return strings.NewReplacer("WHO", who, "WHEN", when, " who ", " "+strings.ToLower(who)+" ").Replace(pick(kind))
}
