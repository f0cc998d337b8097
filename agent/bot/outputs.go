package bot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/alert"
	"touchline/agent/events"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/agent/mqtt"
	"touchline/agent/state"
	"touchline/agent/webhook"
	"touchline/internal/child"
	"touchline/internal/metrics"
	"touchline/internal/outbox"
	"touchline/internal/redact"
	"touchline/media"
	"touchline/media/window"
)

// Output delivers the comments and events of the commentators of a process, for example to a broker. The outputs for one commentator may
// also be interfaces of package agent, such as agent.AlertOutput, and those below.
type Output interface {
	// Room returns the output for one commentator.
	Room(room, identity string) agent.TextOutput
	// Run delivers until ctx ends, and then what is still queued.
	Run(ctx context.Context) error
	Collector() prometheus.Collector
}

// Optional interfaces of an output for one commentator.
type (
	// queuer delivers phases of alerts by the outbox.
	queuer interface {
		Queue(a alert.Alert, frame *window.Frame) []outbox.Message
	}
	// ruleOutput takes the rules of the room after each change.
	ruleOutput interface {
		Rules(rules []alert.RuleStatus)
	}
	// failureOutput takes the error that ended the commentator.
	failureOutput interface{ Failed(err error) }
	// closer is notified of the end of the commentator.
	closer interface{ Close() }
)

// Optional interfaces of an Output.
type (
	// archive has the comments of earlier runs, and what people said.
	archive interface {
		Last(ctx context.Context, room string, n int) ([]look.Record, error)
		Forget(ctx context.Context, q history.Query) (int, error)
	}
	// remoteOutput may be away: the text is for viewers, "" while it is there.
	remoteOutput interface{ Away() string }
)

// openers open each kind of output, or return nil where the settings name none. A new kind is one more row.
func openers() []func(o *Outputs, to OutputSettings) (Output, error) {
	return []func(o *Outputs, to OutputSettings) (Output, error){openWebhooks, openMQTT, openHistory}
}

func openWebhooks(o *Outputs, to OutputSettings) (Output, error) {
	hook := to.Webhook
	if len(hook.URLs) == 0 {
		return nil, nil
	}
	key, secret := hook.APIKey, hook.APISecret
	if key == "" {
		key, secret = to.APIKey, to.APISecret
	}
	s, err := webhook.New(webhook.Options{Config: hook, APIKey: key, APISecret: string(secret), Outbox: o.queue(), Log: o.log})
	if err != nil {
		return nil, fmt.Errorf("prepare the webhooks: %w", err)
	}
	return s, nil
}

func openMQTT(o *Outputs, to OutputSettings) (Output, error) {
	if to.MQTT.URL == "" {
		return nil, nil
	}
	s, err := mqtt.New(mqtt.Options{
		Config: to.MQTT, Outbox: o.queue(), Version: to.Version, Log: o.log,
		JPEG: func(f media.VideoFrame) ([]byte, error) { return events.JPEG(f, events.MaxFrameSide, to.JPEGQuality) },
	})
	if err != nil {
		return nil, fmt.Errorf("prepare MQTT: %w", err)
	}
	return s, nil
}

func openHistory(o *Outputs, to OutputSettings) (Output, error) {
	if to.History.Store == history.StoreNone {
		return nil, nil
	}
	l, err := history.Open(to.History, o.log)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Outputs are the outputs of a process, which all its bots share, and its state file. A nil Outputs has none.
type Outputs struct {
	state  *state.Store // nil without
	links  *access.Links
	all    []Output
	outbox *outbox.Outbox // alerts on their way
	queues bool           // an output delivers alerts by the outbox
	log    zerolog.Logger
}

// queue returns the outbox, for an output that queues alerts in it, and notes its use.
func (o *Outputs) queue() *outbox.Outbox {
	o.queues = true
	return o.outbox
}

// pastWait bounds the search for the comments of earlier runs.
const pastWait = 5 * time.Second

// OutputSettings set the outputs of one process.
type OutputSettings struct {
	State state.Config
	// Forget deletes the state of all rooms first.
	Forget  bool
	History history.Config
	Webhook webhook.Config
	MQTT    mqtt.Config
	// JPEGQuality of the frames of alerts; Version of the program.
	JPEGQuality int
	Version     string
	// APIKey and APISecret sign webhooks without a key in their settings.
	APIKey    string
	APISecret redact.Secret
}

// WithOutputs opens the outputs that the settings name, calls body, which runs
// the bots, and closes the outputs after it: the last records are written and sent.
func WithOutputs(ctx context.Context, to OutputSettings, log zerolog.Logger, body func(*Outputs) error) error {
	o := &Outputs{log: log}
	var err error
	if o.state, err = openState(to, log); err != nil { //nolint:contextcheck // it has no context to wait with
		return err
	}
	if o.links, err = openLinks(o.state); err != nil { //nolint:contextcheck // as above
		return errors.Join(err, o.state.Close())
	}
	keep := func(context.Context) error { return nil }
	if o.outbox = outbox.New(nil); o.state != nil {
		o.outbox, keep = outbox.New(o.state.DB()), o.state.Run
	}
	o.outbox.Failed = func(err error) { log.Error().Err(err).Msg("alert not kept; it is delivered from memory") }
	if err = o.open(to); err != nil {
		if o.state != nil {
			err = errors.Join(err, o.state.Close())
		}
		return err
	}
	octx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	kctx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	var g, kept errgroup.Group
	kept.Go(func() error { return keep(kctx) })
	for _, out := range o.all {
		g.Go(func() error { return out.Run(octx) })
	}
	err = body(o)
	o.outbox.Flush() //nolint:contextcheck // what the body queued is delivered now; it bounds its wait itself
	stop()
	err = errors.Join(err, g.Wait())
	o.outbox.Flush() //nolint:contextcheck // it bounds its wait itself
	stopKeeping()    // last, as the others note what they have delivered
	return errors.Join(err, kept.Wait())
}

// open opens the outputs that the settings name.
func (o *Outputs) open(to OutputSettings) error {
	for _, open := range openers() {
		out, err := open(o, to)
		if err != nil {
			return err
		}
		if out != nil {
			o.all = append(o.all, out)
		}
	}
	return nil
}

// openState opens the state file that the settings name, if any.
func openState(to OutputSettings, log zerolog.Logger) (*state.Store, error) {
	if to.State.Path == "" {
		if to.Forget {
			return nil, errors.New("--forget: nothing is kept; name the folder with --state DIR or agent.state.path")
		}
		return nil, nil
	}
	s, err := state.Open(to.State, log)
	if err != nil || !to.Forget {
		return s, err
	}
	rooms, err := s.Forget()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	log.Info().Int("rooms", rooms).Str("path", to.State.Path).Msg("state of all rooms forgotten")
	return s, nil
}

// openLinks returns the shared links of the process, which are kept in the state file, if there is one, under no room.
func openLinks(s *state.Store) (*access.Links, error) {
	if s == nil {
		return access.NewLinks(nil, nil, time.Now()), nil
	}
	file := s.Room("", "")
	past, err := file.Load()
	return access.NewLinks(past, file.Keep, time.Now()), err
}

// Links returns the shared links of the process. Without Outputs, they are the caller's own.
func (o *Outputs) Links() *access.Links {
	if o == nil || o.links == nil {
		return access.NewLinks(nil, nil, time.Now())
	}
	return o.links
}

// kept returns the state of a bot; nil when nothing is kept.
func (o *Outputs) kept(room, identity string) *state.Room {
	if o == nil || o.state == nil {
		return nil
	}
	return o.state.Room(room, identity)
}

// roomOutputs are the outputs of one bot.
type roomOutputs struct {
	texts  []agent.TextOutput
	outbox *outbox.Outbox // nil without outputs of the process
}

// of joins the outputs of the process and of one bot.
func (o *Outputs) of(room, identity string, own ...agent.TextOutput) roomOutputs {
	r := roomOutputs{texts: own}
	if o != nil {
		r.outbox = o.outbox
		for _, out := range o.all {
			r.texts = append(r.texts, out.Room(room, identity))
		}
	}
	return r
}

// each calls f with the outputs that implement an interface.
func each[T any](r roomOutputs, f func(T)) {
	for _, out := range r.texts {
		if t, ok := out.(T); ok {
			f(t)
		}
	}
}

// commit keeps a phase of an alert until it is delivered.
func (r roomOutputs) commit(a alert.Alert, frame *window.Frame) {
	var messages []outbox.Message
	each(r, func(q queuer) { messages = append(messages, q.Queue(a, frame)...) })
	if len(messages) > 0 {
		r.outbox.Put(messages...)
	}
}

// announce sends the rules of the room to the outputs.
func (r roomOutputs) announce(rules []alert.RuleStatus) {
	each(r, func(out ruleOutput) { out.Rules(rules) })
}

// failed reports that the bot ended with an error; nil is none.
func (r roomOutputs) failed(err error) {
	if err != nil {
		each(r, func(out failureOutput) { out.Failed(err) })
	}
}

// close notes the end of the bot.
func (r roomOutputs) close() { each(r, closer.Close) }

// alertQueue describes the alerts that are not delivered; nil without an output that delivers any.
func (o *Outputs) alertQueue() *agent.AlertQueue {
	if o == nil || !o.queues {
		return nil
	}
	q := &agent.AlertQueue{Waiting: o.outbox.Waiting(), Kept: o.outbox.Durable(), Problem: o.outbox.Problem()}
	for _, out := range o.all {
		if r, ok := out.(remoteOutput); ok && q.Problem == "" {
			q.Problem = r.Away()
		}
	}
	return q
}

// archive returns the archive of the process; nil without.
func (o *Outputs) archive() archive {
	if o == nil {
		return nil
	}
	for _, out := range o.all {
		if a, ok := out.(archive); ok {
			return a
		}
	}
	return nil
}

// past returns the last n comments of earlier runs in a room.
func (o *Outputs) past(ctx context.Context, room string, n int) []look.Record {
	a := o.archive()
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pastWait)
	defer cancel()
	records, err := a.Last(ctx, room, n)
	if err != nil {
		o.log.Warn().Err(err).Str("room", room).Msg("earlier comments incomplete")
	}
	return records
}

// forget deletes the speech of an identity in a room from the history, or the speech of all if it is "".
func (o *Outputs) forget(ctx context.Context, room, by string) error {
	a := o.archive()
	if a == nil {
		return nil
	}
	n, err := a.Forget(ctx, history.Query{Room: room, By: by})
	if err == nil {
		o.log.Info().Str("room", room).Str("by", by).Int("texts", n).Msg("what was said is deleted")
	}
	return err
}

// Describe sends nothing: the metrics depend on the settings, so Collect checks them.
func (*Outputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *Outputs) Collect(ch chan<- prometheus.Metric) {
	used, budget, ended := child.Memory()
	programs := metrics.Writer{Out: ch, Prefix: "touchline_child_memory_"}
	const help = "Memory of codecs, ffmpeg and speech programs together: used now, and budget, above which the largest ends."
	programs.Gauge("bytes", help, float64(used), "kind", "used")
	programs.Gauge("bytes", help, float64(budget), "kind", "budget")
	programs.Counter("ended_total", "Programs that ended as the largest, because all together used more than their budget.", float64(ended))
	if o == nil {
		return
	}
	for _, out := range o.all {
		out.Collector().Collect(ch)
	}
	if o.state != nil {
		o.state.Collector().Collect(ch)
	}
	if o.queues {
		out := metrics.Writer{Out: ch, Prefix: "touchline_alert_"}
		out.Gauge("waiting", "Alerts for webhooks and MQTT that are not delivered, one for each target and phase.", float64(o.outbox.Waiting()))
		out.Counter("dropped_total", "Alerts for webhooks and MQTT that were dropped: 1000 newer ones waited, or they were a day old.",
			float64(o.outbox.Dropped()))
		out.Counter("uncommitted_total", "Alerts for webhooks and MQTT that the state file did not take; they are in memory only.",
			float64(o.outbox.Uncommitted()))
	}
}
