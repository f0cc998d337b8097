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
	"touchline/agent/webhook"
	"touchline/internal/redact"
)

// Outputs are where the bots of one process put what they do, beside their
// rooms and pages: the history and the webhooks. All rooms share them. A nil
// one has none.
type Outputs struct {
	history  *history.Log    // nil without
	webhooks *webhook.Sender // nil without
	log      zerolog.Logger
}

// pastWait bounds the search for the comments of earlier runs.
const pastWait = 5 * time.Second

// OutputSettings say where the bots of one process put what they do.
type OutputSettings struct {
	History history.Config
	Webhook webhook.Config
	// APIKey and APISecret sign webhooks that have no key of their own.
	APIKey    string
	APISecret redact.Secret
}

// WithOutputs opens the outputs that the settings name, has body run the bots,
// and closes them when it has returned: what the last bot says is written and
// told.
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
	if to.History.Store != history.StoreNone {
		if o.history, err = history.Open(to.History, log); err != nil {
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

// texts are the outputs of one bot.
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

// failed tells that a bot ended with an error.
func (o *Outputs) failed(room, identity string, err error) {
	if o != nil && o.webhooks != nil && err != nil {
		o.webhooks.Output(room, identity).Failed(err)
	}
}

// past are the last comments that earlier runs made in a room.
func (o *Outputs) past(ctx context.Context, room string, n int) []agent.Record {
	if o == nil || o.history == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pastWait)
	defer cancel()
	records, err := o.history.Last(ctx, room, n)
	if err != nil {
		o.log.Warn().Err(err).Str("room", room).Msg("history: not all that was said before is shown")
	}
	return records
}

// Describe leaves it to Collect: which metrics there are depends on the settings.
func (*Outputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *Outputs) Collect(ch chan<- prometheus.Metric) {
	if o != nil && o.history != nil {
		o.history.Collector().Collect(ch)
	}
	if o != nil && o.webhooks != nil {
		o.webhooks.Collector().Collect(ch)
	}
}
