package wiring

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/history"
	"touchline/configs"
)

// Outputs are where the bots of one process put what they do, beside their
// rooms and pages: the history. All rooms share them. A nil one has none.
type Outputs struct {
	history *history.Log
	log     zerolog.Logger
}

// pastWait bounds the search for the comments of earlier runs.
const pastWait = 5 * time.Second

// WithOutputs opens the outputs that the settings name, has body run the bots,
// and closes them when it has returned: what the last bot says is written.
func WithOutputs(ctx context.Context, cfg configs.Config, log zerolog.Logger, body func(*Outputs) error) error {
	o := &Outputs{log: log}
	if cfg.Agent.History.Store == agent.StoreNone {
		return body(o)
	}
	var err error
	if o.history, err = history.Open(cfg.Agent.History, log); err != nil {
		return err
	}
	octx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- o.history.Run(octx) }()
	err = body(o)
	stop()
	return errors.Join(err, <-ended)
}

// texts are the outputs of one bot.
func (o *Outputs) texts(room, identity string) []agent.TextOutput {
	if o == nil || o.history == nil {
		return nil
	}
	return []agent.TextOutput{o.history.Output(room, identity)}
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
}
