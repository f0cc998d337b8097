package look_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent/agenttest"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
	"touchline/pacing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Loop with a scripted camera, engine and voice, and the real speech of a room without a delayed picture.
type rig struct {
	*look.Loop
	*speech.Scheduler

	task    look.Task
	camera  *agenttest.Camera
	voice   *agenttest.Voice
	engine  *agenttest.Engine
	rules   *alert.Set // nil without rules
	sensor  func(looked func(news bool)) (inference.Sensor, error)
	regions func() []inference.Region // nil without
	alerts  int                       // raised
	stop    func()
	latest  func(media.VideoFrame) // called with each picture for a look; may be nil
	voted   func(look.Answer)      // called with each answer about rules; may be nil

	mu       sync.Mutex
	records  []look.Record
	captions []uint64 // cycles of the captions
}

// newRig runs a Loop in a bubble; change may alter the rig before.
func newRig(t *testing.T, answer func(n int, p inference.Prompt) agenttest.Answer, change func(*rig)) *rig {
	t.Helper()
	r := &rig{
		task: look.Task{
			InForce: settings.InForce{
				Agent: settings.DefaultConfig(), Pacing: pacing.DefaultConfig(), Media: media.DefaultConfig(), Inference: inference.DefaultConfig(),
			},
			Active: true, Profile: prompt.Profile{Name: "default", Prompt: "comment"}, Spoken: true,
		},
		camera: &agenttest.Camera{FPS: 30, Jitter: 30 * time.Millisecond, Rand: rand.New(rand.NewPCG(1, 1))},
		voice:  agenttest.NewVoice(),
		engine: &agenttest.Engine{Answer: answer},
	}
	r.task.Agent.Repeats = settings.RepeatsAllow // scripted answers are the same again and again
	if change != nil {
		change(r)
	}
	picture := look.NewPicture(r.task.Media.WindowSize)
	picture.Configure(r.task.Media.CaptureFPS, r.task.Agent.Reach())
	decoder := &agenttest.Decoder{OnPicture: func(f media.VideoFrame) {
		picture.Add(f)
		r.Observe(look.EngineFrame(f))
		r.Wake()
	}}
	r.Scheduler = speech.NewScheduler(speech.Settings{Voice: r.voice, Pacing: r.task.Pacing, Changed: func() { r.Wake() }, Log: zerolog.Nop()})
	r.Pace(r.task.Pace().PauseAfter, r.task.Pacing, false)
	opts := look.Options{
		Task: r.task, Engine: look.NewEngine(agenttest.Open(r.engine), ""), Picture: picture, Newest: r.newest(decoder),
		Ahead: func(time.Time) time.Duration { return 0 }, Speech: comments{r.Scheduler, r}, OpenSensor: r.sensor,
		Output: output{r}, Log: zerolog.Nop(),
	}
	if r.rules != nil {
		opts.Rules = ruleLooks{r.rules, r}
	}
	opts.Regions = r.regions
	r.Loop = look.New(opts)
	r.stop = r.run(t, picture, decoder, opts.Engine)
	return r
}

// newest returns the newest picture of a decoder, and then calls latest.
func (r *rig) newest(d *agenttest.Decoder) func(context.Context) (media.VideoFrame, error) {
	return func(ctx context.Context) (media.VideoFrame, error) {
		f, err := d.Latest(ctx)
		if r.latest != nil {
			r.latest(f)
		}
		return f, err
	}
}

// run runs the parts until stop.
func (r *rig) run(t *testing.T, picture *look.Picture, decoder *agenttest.Decoder, engine *look.Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, ctx := rescue.WithContext(ctx)
	g.Go(func() error {
		for {
			f, err := r.camera.ReadFrame(ctx)
			if err != nil {
				return err
			}
			fresh, _, sample := picture.Admit(f, time.Now())
			if fresh {
				r.SourceChanged()
			}
			if err := decoder.Decode(f, sample); err != nil {
				return err
			}
		}
	})
	g.Go(func() error { return r.Loop.Run(ctx) })
	g.Go(func() error { return r.Scheduler.Run(ctx) })
	g.Go(func() error { r.voice.Run(ctx); return nil })
	return func() {
		cancel()
		require.ErrorIs(t, g.Wait(), context.Canceled)
		require.NoError(t, engine.Close())
	}
}

// instruct gives a new instruction.
func (r *rig) instruct(text string) {
	r.task.Instruction = text
	r.ActNow(r.task)
}

// Records returns the results of the cycles.
func (r *rig) Records() []look.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]look.Record(nil), r.records...)
}

// of counts the records with an outcome.
func (r *rig) of(outcome string) (n int) {
	for _, rec := range r.Records() {
		if rec.Outcome == outcome {
			n++
		}
	}
	return n
}

// output collects the records.
type output struct{ r *rig }

func (output) Changed()                      {}
func (output) Took(time.Duration, time.Time) {}
func (output) Frames(uint64, []window.Frame) {}
func (o output) Record(rec look.Record) {
	o.r.Ended(rec)
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	o.r.records = append(o.r.records, rec)
}

// ruleLooks are the alert rules.
type ruleLooks struct {
	*alert.Set

	r *rig
}

func (l ruleLooks) Answer(_ context.Context, a look.Answer) {
	l.r.alerts += len(l.Set.Answer(a))
	if l.r.voted != nil {
		l.r.voted(a)
	}
}

// comments says the comments of cycles.
type comments struct {
	*speech.Scheduler

	r *rig
}

func (c comments) Comment(cycle *look.Cycle, spoken bool) (look.Comment, error) {
	out := &comment{cycle: cycle, r: c.r}
	at := cycle.Anchor
	out.Utterance = speech.New(speech.Options{
		Maker: out, Priority: speech.Comment, Spoken: spoken, Cancel: cycle.Cancel,
		Anchor: &speech.Anchor{Epoch: at.Epoch, PTS: at.PTS, Arrival: at.Arrival}, Guard: cycle.MayBegin,
	})
	return out, c.Add(out.Utterance)
}

type comment struct {
	*speech.Utterance

	cycle *look.Cycle
	r     *rig
}

func (c *comment) Measure(*look.Record) error                  { return c.Result().Cause }
func (*comment) Make(context.Context, *speech.Utterance) error { return nil }
func (c *comment) Begun(bool)                                  { c.cycle.Begun() }

func (c *comment) Caption(speech.Step) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.captions = append(c.r.captions, c.cycle.Number)
}

func (c *comment) Ended(said speech.Result) {
	rec := c.cycle.Record()
	rec.Text = strings.TrimSpace(said.Text)
	switch said.Outcome {
	case speech.Dropped:
		rec.Outcome, rec.Reason = look.OutcomeDropped, said.Cause.Error()
	case speech.Silenced:
		rec.Outcome, rec.Reason = look.OutcomeCut, said.Cause.Error()
	case speech.Shown:
		rec.Outcome = look.OutcomeShown
	default:
		rec.Outcome, rec.AudioSec = look.OutcomeSpoken, said.Audible.Seconds()
	}
	output{c.r}.Record(rec)
}

func rules(t *testing.T, rules ...alert.Rule) *alert.Set {
	t.Helper()
	set, err := alert.NewSet(alert.Config{Rules: rules})
	require.NoError(t, err)
	return set
}

func steady(latency, speech time.Duration) func(int, inference.Prompt) agenttest.Answer {
	return func(int, inference.Prompt) agenttest.Answer {
		return agenttest.Answer{Latency: latency, Text: "Red attacks down the left wing.", Speech: speech}
	}
}

// watching answers the commentary with a sentence and looks with rules by what rules returns.
func watching(rules func(p inference.Prompt) agenttest.Answer) func(int, inference.Prompt) agenttest.Answer {
	return func(n int, p inference.Prompt) agenttest.Answer {
		if p.Structured() {
			return rules(p)
		}
		return steady(500*time.Millisecond, 2*time.Second)(n, p)
	}
}

func replies(text string) func(inference.Prompt) agenttest.Answer {
	return func(inference.Prompt) agenttest.Answer {
		return agenttest.Answer{Latency: 200 * time.Millisecond, Text: text}
	}
}

const holds = `{"fired":[{"rule":1,"reason":"the ball is in the net"}]}`
