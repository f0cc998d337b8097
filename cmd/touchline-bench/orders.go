package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent/command"
	"touchline/inference"
	"touchline/inference/sphinx"
	"touchline/inference/voice"
	"touchline/internal/resample"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/worlds"
)

// ordersCmd measures the recognizer of orders.
type ordersCmd struct {
	Speech   time.Duration `help:"Length of the speech without orders." default:"30m"`
	Match    time.Duration `help:"Length of the match's sound." default:"10m"`
	Only     []string      `help:"Parts to run: ${enum}. All by default." enum:"clean,noise,push,speech,touchline,match"`
	Voices   []string      `help:"Voices that speak, such as slt and en-us. All seven by default."`
	Markdown bool          `help:"Print Markdown, as in docs/benchmarks.md."`
	Details  bool          `help:"Print each order that is not understood, and each false one."`
}

// runs reports whether a part is to run.
func (c *ordersCmd) runs(part string) bool { return len(c.Only) == 0 || slices.Contains(c.Only, part) }

// The goals, in percent.
const (
	cleanGoal, noisyGoal, pushGoal = 90, 70, 90
)

// noiseBelow is the level of noise below that of speech, dB.
const noiseBelow = 15

// spokenOrders are the orders that are spoken: all commands in several wordings, and known orders.
func spokenOrders() []string {
	return []string{
		"stop", "stop talking", "be quiet", "stop commenting", "go on", "continue", "keep going", "start again", "never mind", "undo that",
		"cancel that", "take that back", "shorter", "be brief", "talk less", "keep it short", "longer", "talk more", "more details",
		"say more", "repeat that", "say that again", "once more", "what did you say", "louder", "speak up", "turn it up", "softer",
		"turn it down", "lower your voice",
		"tell me the score every minute", "only tell me about goals", "tell me when somebody shoots", "what's the score",
		"who has the ball", "who is ahead", "only talk about red", "watch the gate", "ignore the dog", "how many people are there",
	}
}

// speaker is a voice.
type speaker struct {
	name  string
	flite bool // the goals count it
	synth *voice.Synthesizer
}

// fliteVoices is how many of the voices the goals count.
const fliteVoices = 4

func (c *ordersCmd) speakers(log zerolog.Logger) ([]speaker, error) {
	known := []string{"slt", "rms", "awb", "kal16", "en", "en-us", "en-gb-scotland"}
	for _, name := range c.Voices {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("voice %q: unknown; choose of %s", name, strings.Join(known, ", "))
		}
	}
	var out []speaker
	for _, name := range known {
		if len(c.Voices) > 0 && !slices.Contains(c.Voices, name) {
			continue
		}
		cfg := inference.DefaultConfig().Voice
		cfg.Name, cfg.Program = name, "flite"
		if strings.HasPrefix(name, "en") {
			cfg.Program = "espeak-ng"
		}
		synth, err := voice.New(cfg, log)
		if err != nil {
			return nil, err
		}
		out = append(out, speaker{cfg.Program + " " + name, cfg.Program == "flite", synth})
	}
	return out, nil
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
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // noise
	out := slices.Clone(sound)
	for i := range out {
		out[i] += float32(level * rng.NormFloat64())
	}
	return out
}

// Run measures and prints a table.
func (c *ordersCmd) Run(ctx context.Context, log zerolog.Logger) error {
	out := report{out: os.Stdout, markdown: c.Markdown}
	out.begin(time.Now(), commit(buildInfo()), machine())
	rows, err := c.measure(ctx, log)
	out.table("Spoken orders through pocketsphinx", "touchline-bench orders", rows, err)
	return out.err()
}

func (c *ordersCmd) measure(ctx context.Context, log zerolog.Logger) ([]row, error) {
	r, err := sphinx.Open(sphinx.Options{Orders: command.SpokenOrders()})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	list, err := c.speakers(log)
	if err != nil {
		return nil, err
	}
	rows, err := c.understood(ctx, r, list)
	if err != nil {
		return rows, err
	}
	more, err := c.mistaken(ctx, r, list)
	return append(rows, more...), err
}

// orderWay is a way of speaking an order.
type orderWay struct {
	part, name  string
	noise, push bool
	goal        float64
}

// orderWays are all of them.
var orderWays = []orderWay{
	{"clean", "after the wake word, clean", false, false, cleanGoal},
	{"noise", "after the wake word, noise at 15 dB", true, false, noisyGoal},
	{"push", "push-to-talk, noise at 15 dB", true, true, pushGoal},
}

// understood counts the orders of each voice that are understood.
func (c *ordersCmd) understood(ctx context.Context, r *sphinx.Recognizer, list []speaker) ([]row, error) {
	var rows []row
	var lags []time.Duration
	orders := spokenOrders()
	for _, way := range orderWays {
		if !c.runs(way.part) {
			continue
		}
		flite, counted := 0, 0
		for _, s := range list {
			right, took, err := c.voice(ctx, r, s, way)
			if err != nil {
				return rows, err
			}
			n := 0
			for _, ok := range right {
				if ok {
					n++
				}
			}
			lags = append(lags, took...)
			share := 100 * float64(n) / float64(len(orders))
			name := s.name + ", " + way.name
			if way.push {
				rows = append(rows, atLeast(name, share, way.goal, "%"))
			} else {
				rows = append(rows, note(name, number(share, "%")))
			}
			if s.flite {
				flite += n
				counted++
			}
		}
		if !way.push && counted == fliteVoices {
			rows = append(rows, atLeast("four flite voices, "+way.name, 100*float64(flite)/float64(counted*len(orders)), way.goal, "%"))
		}
	}
	if len(lags) == 0 {
		return rows, nil
	}
	slices.Sort(lags)
	return append(rows, note("time of an utterance, two at once: median, p95",
		fmt.Sprintf("%v, %v", lags[len(lags)/2].Round(time.Millisecond), lags[len(lags)*95/100].Round(time.Millisecond)))), nil
}

// voice lets a voice speak all orders, and returns which are understood and the time that each took.
func (c *ordersCmd) voice(
	ctx context.Context, r *sphinx.Recognizer, s speaker, way orderWay,
) (right []bool, took []time.Duration, err error) {
	orders := spokenOrders()
	right, took = make([]bool, len(orders)), make([]time.Duration, len(orders))
	err = each(ctx, len(orders), func(ctx context.Context, i int) error {
		text := sphinx.DefaultWake + ", " + orders[i]
		if way.push {
			text = orders[i]
		}
		sound, err := s.say(ctx, text)
		if err != nil {
			return err
		}
		if way.noise {
			sound = noisy(sound, uint64(i)) //nolint:gosec // small
		}
		began := time.Now()
		got, err := listen(ctx, r, sound, inference.Hearing{Language: "en", Addressed: way.push})
		took[i] = time.Since(began)
		right[i] = same(strings.TrimSpace(strings.TrimPrefix(got, sphinx.DefaultWake)), orders[i])
		if c.Details && !right[i] {
			fmt.Printf("%s, %s: %q heard as %q\n", s.name, way.name, orders[i], got)
		}
		return err
	})
	return right, took, err
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

func listen(ctx context.Context, r *sphinx.Recognizer, sound []float32, h inference.Hearing) (string, error) {
	u, err := r.Listen(ctx, h)
	if err != nil {
		return "", err
	}
	defer u.Close()
	t, err := u.Finish(ctx, sound)
	return t.Text, err
}

// each calls f for n items, several at once.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, gctx := rescue.WithContext(ctx)
	next := make(chan int)
	g.Go(func() error {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-gctx.Done():
				return nil
			}
		}
		return nil
	})
	for range runtime.NumCPU() {
		g.Go(func() error {
			for i := range next {
				if err := f(gctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// mistaken lets all voices say sentences that are no orders, half of them with "touchline", and plays the sound of a match.
func (c *ordersCmd) mistaken(ctx context.Context, r *sphinx.Recognizer, list []speaker) ([]row, error) {
	var mu sync.Mutex
	var length [2]time.Duration // without and with the word
	var taken [2]int
	hear := func(ctx context.Context, kind int, what string, sound []float32) error {
		got, err := listen(ctx, r, sound, inference.Hearing{Language: "en"})
		mu.Lock()
		defer mu.Unlock()
		length[kind] += media.TicksToDuration(int64(len(sound)), inference.RecognizerRate)
		if got != "" {
			taken[kind]++
			if c.Details {
				fmt.Printf("%s: heard as %q\n", what, got)
			}
		}
		return err
	}
	none := func(name string, kind int) row {
		return atMost(fmt.Sprintf("taken for an order, %s, %.1f minutes", name, length[kind].Minutes()), float64(taken[kind]), 0, "")
	}
	var rows []row
	for kind, part := range []struct{ name, row string }{
		{"speech", fmt.Sprintf("%d voices without “touchline”", len(list))},
		{"touchline", fmt.Sprintf("%d voices, each sentence with “touchline”", len(list))},
	} {
		if !c.runs(part.name) {
			continue
		}
		for first := 0; length[kind] < c.Speech/2; first += 64 {
			err := each(ctx, 64, func(ctx context.Context, i int) error {
				n := first + i
				s := list[n%len(list)]
				text := otherSentence(n, kind == 1)
				sound, err := s.say(ctx, text)
				if err != nil {
					return err
				}
				return hear(ctx, kind, fmt.Sprintf("%s: %q", s.name, text), sound)
			})
			if err != nil {
				return rows, err
			}
		}
		rows = append(rows, none(part.row, kind))
	}
	if !c.runs("match") {
		return rows, nil
	}
	length[0], taken[0] = 0, 0
	err := eachPiece(ctx, c.Match, func(ctx context.Context, i int, sound []float32) error {
		return hear(ctx, 0, fmt.Sprintf("match, piece %d", i), sound)
	})
	return append(rows, none("sound of the match", 0)), err
}

// eachPiece calls f for the sound of a match, in pieces.
func eachPiece(ctx context.Context, length time.Duration, f func(ctx context.Context, i int, sound []float32) error) error {
	world, err := worlds.New(worlds.Options{})
	if err != nil {
		return err
	}
	const piece = 8 * time.Second
	return each(ctx, int(length/piece), func(ctx context.Context, i int) error {
		pcm := make([]int16, worlds.SoundRate*int(piece/time.Second))
		world.Sound(int64(i)*int64(len(pcm)), pcm)
		sound, err := heard(pcm, worlds.SoundRate)
		if err != nil {
			return err
		}
		return f(ctx, i, sound)
	})
}

// otherSentence returns a sentence that is no order. The n-th is always the same.
func otherSentence(n int, touchline bool) string {
	rng := rand.New(rand.NewPCG(uint64(n), 3)) //nolint:gosec // a count
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	who := pick("The winger", "A defender", "Their captain", "The young striker", "The referee", "My brother", "Somebody in red", "The coach",
		"Number seven", "The goalkeeper", "Our neighbour", "The whole team")
	when := pick("in the second half", "before the break", "again today", "after a long pass", "for the third time", "without any hurry",
		"as the rain starts", "while everybody watches", "at the end of the match", "just like last week", "and nobody notices", "with a smile")
	if touchline {
		return pick(
			who+" runs down the touchline "+when+".",
			"The ball goes over the touchline "+when+".",
			who+" is standing on the touchline "+when+".",
			"Hey, "+strings.ToLower(who)+" was shouting from the touchline "+when+".",
			"They say the touchline is wet "+when+", so stop there.",
			"We use touchline to comment on games "+when+".",
			"The touchline camera shows "+strings.ToLower(who)+" "+when+".",
			who+" waits near the touchline and tells me the score "+when+".",
			"Touchline is louder than the old program "+when+".",
			"Stay on your side of the touchline, please, "+when+".",
		)
	}
	return pick(
		who+" passes to the left and keeps going "+when+".",
		"I would have given a penalty for that "+when+".",
		who+" wants to know how many people are coming "+when+".",
		"Shall we order some pizza and stop talking about work "+when+"?",
		"Hey, did you see what "+strings.ToLower(who)+" did "+when+"?",
		"It was much louder at the stadium "+when+".",
		who+" hits the post from twenty metres "+when+".",
		"My daughter plays the violin "+when+", but not on Sundays.",
		"The train to the city leaves at nine "+when+".",
		"Hey, such a fine goal from "+strings.ToLower(who)+" "+when+".",
		"Let us try once more to fix the kitchen light "+when+".",
		who+" takes the corner and the crowd is shouting "+when+".",
	)
}
