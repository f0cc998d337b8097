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
	"touchline/agent/history"
	"touchline/agent/state"
	"touchline/agent/webhook"
	"touchline/internal/redact"
)

// Outputs are the history, the webhooks and the state file, which all bots of one process share.
// A nil one has none.
type Outputs struct {
	state    *state.Store    // nil without
	history  *history.Log    // nil without
	webhooks *webhook.Sender // nil without
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
	// APIKey and APISecret sign webhooks without a key in their settings.
	APIKey    string
	APISecret redact.Secret
}

// WithOutputs opens the outputs that the settings name, calls body, which runs
// the bots, and closes the outputs after it: the last records are written and sent.
func WithOutputs(ctx context.Context, to OutputSettings, log zerolog.Logger, body func(*Outputs) error) error {
	o := &Outputs{log: log}
	var runs []func(context.Context) error
	var err error
	if hook := to.Webhook; len(hook.URLs) > 0 {
		key, secret := hook.APIKey, hook.APISecret
		if key == "" {
			key, secret = to.APIKey, to.APISecret
		}
		if o.webhooks, err = webhook.New(webhook.Options{Config: hook, APIKey: key, APISecret: string(secret), Log: log}); err != nil {
			return fmt.Errorf("prepare the webhooks: %w", err)
		}
		runs = append(runs, o.webhooks.Run)
	}
	if o.state, err = openState(to, log); err != nil { //nolint:contextcheck // it has no context to wait with
		return err
	}
	if o.state != nil {
		runs = append(runs, o.state.Run)
	}
	if to.History.Store != history.StoreNone {
		if o.history, err = history.Open(to.History, log); err != nil { //nolint:contextcheck // it has no context to wait with
			return err
		}
		runs = append(runs, o.history.Run)
	}
	octx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	for _, run := range runs {
		g.Go(func() error { return run(octx) })
	}
	err = body(o)
	stop()
	return errors.Join(err, g.Wait())
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

// texts returns the outputs of one bot.
func (o *Outputs) texts(room, identity string) []agent.TextOutput {
	var out []agent.TextOutput
	if o != nil && o.history != nil {
		out = append(out, o.history.Output(room, identity))
	}
	if o != nil && o.webhooks != nil {
		out = append(out, o.webhooks.Output(room, identity))
	}
	return out
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
}
