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
	"touchline/agent/events"
	"touchline/agent/history"
	"touchline/agent/mqtt"
	"touchline/agent/state"
	"touchline/agent/webhook"
	"touchline/internal/metrics"
	"touchline/internal/outbox"
	"touchline/internal/redact"
	"touchline/media"
)

// Outputs are the history, the webhooks, MQTT and the state file, which all bots of one process share.
// A nil one has none.
type Outputs struct {
	state    *state.Store    // nil without
	history  *history.Log    // nil without
	webhooks *webhook.Sender // nil without
	mqtt     *mqtt.Sender    // nil without
	outbox   *outbox.Outbox  // alerts for webhooks and MQTT
	log      zerolog.Logger
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
	keep := func(context.Context) error { return nil }
	if o.outbox = outbox.New(nil); o.state != nil {
		o.outbox, keep = outbox.New(o.state.DB()), o.state.Run
	}
	o.outbox.Failed = func(err error) { log.Error().Err(err).Msg("alert not kept; it is delivered from memory") }
	runs, err := o.open(to) //nolint:contextcheck // as above
	if err != nil {
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
	for _, run := range runs {
		g.Go(func() error { return run(octx) })
	}
	err = body(o)
	o.outbox.Flush() // what it queues is delivered now
	stop()
	err = errors.Join(err, g.Wait())
	o.outbox.Flush() //nolint:contextcheck // it bounds its wait itself
	stopKeeping()    // last, as the others note what they have delivered
	return errors.Join(err, kept.Wait())
}

// open opens the outputs that the settings name, and returns what runs them.
func (o *Outputs) open(to OutputSettings) (runs []func(context.Context) error, err error) {
	if hook := to.Webhook; len(hook.URLs) > 0 {
		key, secret := hook.APIKey, hook.APISecret
		if key == "" {
			key, secret = to.APIKey, to.APISecret
		}
		o.webhooks, err = webhook.New(webhook.Options{Config: hook, APIKey: key, APISecret: string(secret), Outbox: o.outbox, Log: o.log})
		if err != nil {
			return nil, fmt.Errorf("prepare the webhooks: %w", err)
		}
		runs = append(runs, o.webhooks.Run)
	}
	if to.MQTT.URL != "" {
		o.mqtt, err = mqtt.New(mqtt.Options{
			Config: to.MQTT, Outbox: o.outbox, Version: to.Version, Log: o.log,
			JPEG: func(f media.VideoFrame) ([]byte, error) { return events.JPEG(f, events.MaxFrameSide, to.JPEGQuality) },
		})
		if err != nil {
			return nil, fmt.Errorf("prepare MQTT: %w", err)
		}
		runs = append(runs, o.mqtt.Run)
	}
	if to.History.Store != history.StoreNone {
		if o.history, err = history.Open(to.History, o.log); err != nil {
			return nil, err
		}
		runs = append(runs, o.history.Run)
	}
	return runs, nil
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

// kept returns the state of a bot; nil when nothing is kept.
func (o *Outputs) kept(room, identity string) *state.Room {
	if o == nil || o.state == nil {
		return nil
	}
	return o.state.Room(room, identity)
}

// roomOutputs are the outputs of one bot.
type roomOutputs struct {
	outputs *Outputs
	texts   []agent.TextOutput
	webhook *webhook.Output // nil without
	mqtt    *mqtt.Output    // nil without
}

// of returns the outputs of one bot.
func (o *Outputs) of(room, identity string) roomOutputs {
	r := roomOutputs{outputs: o}
	if o == nil {
		return r
	}
	if o.history != nil {
		r.texts = append(r.texts, o.history.Output(room, identity))
	}
	if o.webhooks != nil {
		r.webhook = o.webhooks.Output(room, identity)
		r.texts = append(r.texts, r.webhook)
	}
	if o.mqtt != nil {
		r.mqtt = o.mqtt.Output(room, identity)
		r.texts = append(r.texts, r.mqtt)
	}
	return r
}

// commit keeps a phase of an alert until webhooks and MQTT have delivered it.
func (r roomOutputs) commit(a agent.Alert, frame *agent.SeenFrame) {
	var messages []outbox.Message
	if r.webhook != nil {
		messages = r.webhook.Queue(a)
	}
	if r.mqtt != nil {
		messages = append(messages, r.mqtt.Queue(a, frame)...)
	}
	if len(messages) > 0 {
		r.outputs.outbox.Put(messages...)
	}
}

// announce tells the outputs the rules of the room.
func (r roomOutputs) announce(rules []agent.AlertRuleStatus) {
	if r.mqtt != nil {
		r.mqtt.Rules(rules)
	}
}

// close notes the end of the bot.
func (r roomOutputs) close() {
	if r.mqtt != nil {
		r.mqtt.Close()
	}
}

// alertQueue describes the alerts that wait for webhooks and MQTT; nil without such a target.
func (o *Outputs) alertQueue() *agent.AlertQueue {
	if o == nil || o.mqtt == nil && o.webhooks == nil {
		return nil
	}
	q := &agent.AlertQueue{Waiting: o.outbox.Waiting(), Kept: o.outbox.Durable(), Problem: o.outbox.Problem()}
	if o.mqtt != nil && q.Problem == "" && o.mqtt.Problem() != "" {
		q.Problem = "the MQTT broker is not connected; the log says why" // its address is not for viewers
	}
	return q
}

// failed reports that a bot ended with an error.
func (o *Outputs) failed(room, identity string, err error) {
	if o != nil && o.webhooks != nil && err != nil {
		o.webhooks.Output(room, identity).Failed(err)
	}
}

// past returns the last n comments of earlier runs in a room.
func (o *Outputs) past(ctx context.Context, room string, n int) []agent.Record {
	if o == nil || o.history == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pastWait)
	defer cancel()
	records, err := o.history.Last(ctx, room, n)
	if err != nil {
		o.log.Warn().Err(err).Str("room", room).Msg("earlier comments incomplete")
	}
	return records
}

// forget deletes what an identity said in a room from the history, or what everybody said if it is "".
func (o *Outputs) forget(ctx context.Context, room, by string) error {
	if o == nil || o.history == nil {
		return nil
	}
	n, err := o.history.Forget(ctx, history.Query{Room: room, By: by})
	if err == nil {
		o.log.Info().Str("room", room).Str("by", by).Int("texts", n).Msg("what was said is deleted")
	}
	return err
}

// Describe sends nothing: the metrics depend on the settings, so Collect checks them.
func (*Outputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *Outputs) Collect(ch chan<- prometheus.Metric) {
	if o != nil && o.history != nil {
		o.history.Collector().Collect(ch)
	}
	if o != nil && o.webhooks != nil {
		o.webhooks.Collector().Collect(ch)
	}
	if o != nil && o.state != nil {
		o.state.Collector().Collect(ch)
	}
	if o != nil && o.mqtt != nil {
		o.mqtt.Collector().Collect(ch)
	}
	if o != nil && (o.mqtt != nil || o.webhooks != nil) {
		out := metrics.Writer{Out: ch, Prefix: "touchline_alert_"}
		out.Gauge("waiting", "Alerts for webhooks and MQTT that are not delivered, one for each target and phase.", float64(o.outbox.Waiting()))
		out.Counter("dropped_total", "Alerts for webhooks and MQTT that were dropped: 1000 newer ones waited, or they were a day old.",
			float64(o.outbox.Dropped()))
		out.Counter("uncommitted_total", "Alerts for webhooks and MQTT that the state file did not take; they are in memory only.",
			float64(o.outbox.Uncommitted()))
	}
}
