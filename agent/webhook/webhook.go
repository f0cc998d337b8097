// Package webhook posts the events of rooms to HTTP servers: finished comments, changes of the state, failures, and the beginning
// and end of alerts.
//
// It owns the queue of each recipient, retries and signatures. Alerts wait in an outbox, and are retried for a day. Requests are
// signed like LiveKit's webhooks and their bodies extend LiveKit's events, so LiveKit's receivers accept them. The events of a room
// are delivered in order. Outputs never wait, and a panic switches off one recipient only. Recipients come from the settings, never
// from a room.
//
// A shutdown ends the wait between attempts and makes one last attempt, which go-retryablehttp cannot do.
package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/internal/metrics"
	"touchline/internal/outbox"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media/window"
)

const (
	// queueSize bounds the events queued for a recipient; beyond it the oldest is dropped.
	queueSize = 1000
	// workers is the number of rooms whose events are posted to a recipient at once.
	workers = 4
	// lastTry bounds the delivery of queued events at shutdown.
	lastTry = time.Second
)

// Options of a Sender.
type Options struct {
	Config Config
	// APIKey and APISecret sign the events for URLs without a signing key. Such URLs need both.
	APIKey, APISecret string
	// Outbox keeps alerts until they are delivered; nil for one in memory.
	Outbox *outbox.Outbox
	// Transport of the requests; nil for a new one.
	Transport http.RoundTripper
	Log       zerolog.Logger
}

// Sender posts the events of all rooms of one process.
type Sender struct {
	opts      Options
	log       zerolog.Logger
	transport http.RoundTripper
	targets   []*target

	sent, failed, dropped atomic.Uint64
}

// New makes a Sender; nothing is posted before Run.
func New(opts Options) (*Sender, error) {
	keys, err := opts.Config.SigningKeys()
	if err != nil {
		return nil, fmt.Errorf("read the keys of the webhooks: %w", err)
	}
	if opts.APIKey != "" && opts.APISecret != "" {
		keys[opts.APIKey] = opts.APISecret
	}
	s := &Sender{opts: opts, log: opts.Log.With().Str("component", "webhook").Logger(), transport: opts.Transport}
	if s.transport == nil {
		s.transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: workers,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	if s.opts.Outbox == nil {
		s.opts.Outbox = outbox.New(nil)
	}
	client := &http.Client{
		Transport: s.transport, Timeout: opts.Config.Timeout,
		// Only configured recipients get events.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for i, hook := range opts.Config.URLs {
		host := hostOf(hook.URL)
		if host == "" {
			return nil, fmt.Errorf("webhook.urls[%d]: must be an http:// or https:// URL without name and password", i)
		}
		key := cmp.Or(hook.SigningKey, opts.APIKey)
		if keys[key] == "" {
			return nil, errNoKey(hook.SigningKey, i)
		}
		t := &target{
			s: s, url: hook.URL, events: opts.Config.eventsOf(hook), key: key, secret: keys[key],
			client: client, busy: map[string]event{}, wake: wake.New(),
			// Path and query may be secret.
			log: s.log.With().Str("host", host).Int("webhook", i+1).Logger(),
		}
		if slices.Contains(t.events, EventAlert) {
			if t.alerts, err = s.opts.Outbox.Queue(outboxTarget(hook.URL)); err != nil {
				return nil, err
			}
		}
		s.targets = append(s.targets, t)
	}
	return s, nil
}

// outboxTarget returns the name of a recipient's queue of alerts, without the address, which may be secret.
func outboxTarget(address string) string {
	sum := sha256.Sum256([]byte(address))
	return "webhook " + hex.EncodeToString(sum[:8])
}

func errNoKey(key string, n int) error {
	if key == "" {
		return fmt.Errorf("webhook.urls[%d]: no key to sign with: set LIVEKIT_API_KEY and LIVEKIT_API_SECRET, "+
			"or TOUCHLINE_AGENT_WEBHOOK_API_KEY and TOUCHLINE_AGENT_WEBHOOK_API_SECRET", n)
	}
	return fmt.Errorf("webhook.urls[%d].signing_key: no secret for %q: add it to TOUCHLINE_AGENT_WEBHOOK_KEYS", n, key)
}

// Run posts until ctx ends. Each queued event then gets one more attempt, all within a second.
func (s *Sender) Run(ctx context.Context) error {
	posts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g sync.WaitGroup
	for _, t := range s.targets {
		for range workers {
			g.Go(func() { t.run(ctx, posts) })
		}
		if t.alerts != nil {
			g.Go(func() { t.runAlerts(ctx, posts) })
		}
	}
	<-ctx.Done()
	timer := time.AfterFunc(lastTry, stop)
	g.Wait()
	timer.Stop()
	for _, t := range s.targets {
		t.mu.Lock()
		left := len(t.queue)
		t.queue = nil
		t.mu.Unlock()
		if t.alerts != nil && t.alerts.Len() > 0 {
			t.log.Warn().Int("alerts", t.alerts.Len()).Bool("kept", s.opts.Outbox.Durable()).Msg("alerts not delivered at shutdown")
		}
		if left > 0 {
			s.dropped.Add(uint64(left))
			t.log.Warn().Int("events", left).Msg("events dropped at shutdown")
		}
	}
	if tr, ok := s.transport.(*http.Transport); ok {
		tr.CloseIdleConnections()
	}
	return nil
}

// publish queues an event for its recipients.
func (s *Sender) publish(e event) {
	for _, t := range s.targets {
		if slices.Contains(t.events, e.Event) {
			t.put(e)
		}
	}
}

// Sent is the number of delivered events.
func (s *Sender) Sent() uint64 { return s.sent.Load() }

// Failed is the number of events that were refused or failed in all attempts.
func (s *Sender) Failed() uint64 { return s.failed.Load() }

// Dropped is the number of events that a full queue dropped without an attempt.
func (s *Sender) Dropped() uint64 { return s.dropped.Load() }

// Off is the number of recipients that a panic has switched off.
func (s *Sender) Off() (n int) {
	for _, t := range s.targets {
		t.mu.Lock()
		if t.off {
			n++
		}
		t.mu.Unlock()
	}
	return n
}

// crashed switches all recipients off after a panic in code that they share.
func (s *Sender) crashed(err error) {
	for _, t := range s.targets {
		t.crashed(err)
	}
}

// Room is Output with the return type that all kinds of outputs share.
func (s *Sender) Room(room, identity string) agent.TextOutput { return s.Output(room, identity) }

// Output returns the output of one commentator's session.
func (s *Sender) Output(room, identity string) *Output {
	return &Output{s: s, room: room, identity: identity}
}

// Output turns a session's records and states into events. It is an agent.TextOutput.
type Output struct {
	s              *Sender
	room, identity string

	mu   sync.Mutex
	last agent.Status
}

var (
	_ agent.TextOutput     = (*Output)(nil)
	_ agent.HeardOutput    = (*Output)(nil)
	_ agent.HeardForgetter = (*Output)(nil)
)

func (o *Output) event(name string) event {
	return event{
		Event: name, ID: "EV_" + rand.Text()[:16], CreatedAt: time.Now().Unix(),
		Room: roomName{o.room}, Participant: participant{Identity: o.identity, Kind: "AGENT"},
	}
}

// Caption implements agent.TextOutput; captions are not posted.
func (*Output) Caption(agent.Caption) {}

// Record implements agent.TextOutput.
func (o *Output) Record(r look.Record) {
	defer rescue.Guard(o.s.crashed)
	switch {
	case r.IsComment():
		e := o.event(EventCommentFinished)
		e.Record, e.forgotten = &r, new(atomic.Bool)
		o.s.publish(e)
	case r.Outcome == look.OutcomeFailed:
		e := o.event(EventError)
		e.Record, e.Error, e.forgotten = &r, &failure{r.Reason}, new(atomic.Bool)
		o.s.publish(e)
	}
}

// Heard implements agent.HeardOutput. It posts final texts, and orders with their results.
func (o *Output) Heard(h agent.Heard) {
	defer rescue.Guard(o.s.crashed)
	if !h.Final || h.Text == "" || !h.Caption && h.Order == nil {
		return
	}
	e := o.event(EventHeard)
	e.Heard, e.forgotten = &h, new(atomic.Bool)
	o.s.publish(e)
}

// ForgetHeard implements agent.HeardForgetter: speech that is not delivered yet is not posted, nor again, and
// instructions that were given in the room are removed from records that wait.
func (o *Output) ForgetHeard(by string) {
	gave := func(e event) bool {
		return e.Record != nil && e.Room.Name == o.room && prompt.GaveInRoom(e.Record.InstructionBy, by)
	}
	forget := func(e event) bool {
		if e.Heard == nil || e.Room.Name != o.room || by != "" && e.Heard.Identity != by {
			return false
		}
		e.forgotten.Store(true)
		return true
	}
	for _, t := range o.s.targets {
		t.mu.Lock()
		t.queue = slices.DeleteFunc(t.queue, forget)
		for i, e := range t.queue {
			if gave(e) {
				t.queue[i] = e.withoutInstruction()
			}
		}
		for _, e := range t.busy {
			if !forget(e) && gave(e) {
				e.forgotten.Store(true)
			}
		}
		t.mu.Unlock()
	}
}

// State implements agent.TextOutput. Only a change of state or activity is an event.
func (o *Output) State(s agent.Status) {
	defer rescue.Guard(o.s.crashed)
	o.mu.Lock()
	before := o.last
	o.last = s
	o.mu.Unlock()
	if s.State == before.State && s.Activity == before.Activity {
		return
	}
	e := o.event(EventStateChanged)
	e.State = &state{Status: s, Before: before.State, BeforeActivity: before.Activity}
	o.s.publish(e)
	if s.Activity == agent.ActivityFailed && before.Activity != agent.ActivityFailed {
		o.Failed(errors.New(s.Detail))
	}
}

// Queue returns the messages of a phase of an alert for the outbox, or none for a phase that is not posted.
func (o *Output) Queue(a alert.Alert, _ *window.Frame) []outbox.Message {
	if a.Phase != alert.PhaseNew && a.Phase != alert.PhaseCleared && (a.Phase != alert.PhaseShown || !o.s.opts.Config.Shown) {
		return nil
	}
	e := o.event(EventAlert)
	e.Alert = &a
	body, err := e.body()
	if err != nil { // a NaN or an infinity
		o.s.log.Error().Err(err).Str("alert", a.ID).Msg("alert cannot be encoded")
		return nil
	}
	var out []outbox.Message
	for _, t := range o.s.targets {
		if t.alerts != nil {
			out = append(out, outbox.Message{Target: outboxTarget(t.url), Topic: o.room, At: time.Now(), Body: body})
		}
	}
	return out
}

// Failed posts that the commentator has failed.
func (o *Output) Failed(err error) {
	e := o.event(EventError)
	e.Error = &failure{err.Error()}
	o.s.publish(e)
}

// Collector exports the counts of delivered, failed and dropped events.
func (s *Sender) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_webhook_sent_total", "Delivered events.", s.Sent),
		metrics.Counter("touchline_webhook_failed_total", "Events that were refused, or failed in all attempts.", s.Failed),
		metrics.Counter("touchline_webhook_dropped_total", "Events that were never tried, as the queue was full.", s.Dropped),
		metrics.Gauge("touchline_webhook_off", "Recipients that a panic has switched off.",
			func() float64 { return float64(s.Off()) }),
	}
}
