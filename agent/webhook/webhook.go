// Package webhook tells HTTP servers of the operator's choice what happens in
// the rooms: a comment is over, the state has changed, something failed.
//
// Requests are signed as LiveKit signs its own, and their bodies read as
// LiveKit's events, so that LiveKit's receivers take them. Each address has a
// bounded queue of its own; the events of a room go there in order, one after
// the other. Outputs never wait, and a panic of this code switches off the address
// that it was about, and nothing else. The package trusts the settings for where it
// posts: no address ever comes from a room.
package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/internal/metrics"
	"touchline/internal/rescue"
)

const (
	// queueSize is how many events may wait for one address; then the oldest goes.
	queueSize = 1000
	// workers are how many rooms' events go to one address at once.
	workers = 4
	// lastTry is how long what is queued has at the end.
	lastTry = time.Second
)

// Options of a Sender.
type Options struct {
	Config Config
	// APIKey and APISecret sign what goes to URLs without a key of their own, which need both.
	APIKey, APISecret string
	// Transport carries the requests; one of its own when nil.
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
	client := &http.Client{
		Transport: s.transport, Timeout: opts.Config.Timeout,
		// The settings name who is told, nobody else does.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for i, hook := range opts.Config.URLs {
		u, err := url.Parse(hook.URL)
		if err != nil || u.User != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("expected an http:// or https:// address without name and password for webhook %d", i+1)
		}
		key := hook.SigningKey
		if key == "" {
			key = opts.APIKey
		}
		if keys[key] == "" {
			return nil, errNoKey(hook.SigningKey, i+1)
		}
		s.targets = append(s.targets, &target{
			s: s, url: hook.URL, events: opts.Config.EventsOf(hook), key: key, secret: keys[key],
			client: client, busy: map[string]bool{}, wake: make(chan struct{}, workers),
			// Path and query may be secret.
			log: s.log.With().Str("host", u.Host).Int("webhook", i+1).Logger(),
		})
	}
	return s, nil
}

func errNoKey(key string, n int) error {
	if key == "" {
		return errors.New("expected a key and a secret to sign webhooks with: set LIVEKIT_API_KEY and LIVEKIT_API_SECRET, " +
			"or TOUCHLINE_AGENT_WEBHOOK_API_KEY and TOUCHLINE_AGENT_WEBHOOK_API_SECRET")
	}
	return fmt.Errorf("expected the secret of %q, which signs for webhook %d: add it to TOUCHLINE_AGENT_WEBHOOK_KEYS", key, n)
}

// Run posts until ctx ends; then each event that is left has one more attempt,
// all of them together a second.
func (s *Sender) Run(ctx context.Context) error {
	posts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g sync.WaitGroup
	for _, t := range s.targets {
		for range workers {
			g.Go(func() { t.run(ctx, posts) })
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
		if left > 0 {
			s.dropped.Add(uint64(left))
			t.log.Warn().Int("events", left).Msg("webhook: not told any more at the end")
		}
	}
	if tr, ok := s.transport.(*http.Transport); ok {
		tr.CloseIdleConnections()
	}
	return nil
}

// tell queues an event for all addresses that want it.
func (s *Sender) tell(e event) {
	for _, t := range s.targets {
		if slices.Contains(t.events, e.Event) {
			t.put(e)
		}
	}
}

// Sent counts the events that an address has taken.
func (s *Sender) Sent() uint64 { return s.sent.Load() }

// Failed counts those that it refused, or did not take in all attempts.
func (s *Sender) Failed() uint64 { return s.failed.Load() }

// Dropped counts those that were never tried, as too many waited.
func (s *Sender) Dropped() uint64 { return s.dropped.Load() }

// Off counts the addresses that a panic has switched off.
func (s *Sender) Off() (n int) {
	for _, t := range s.targets {
		if t.isOff() {
			n++
		}
	}
	return n
}

// crashed switches everything off: it was no single address's code.
func (s *Sender) crashed(err error) {
	for _, t := range s.targets {
		t.crashed(err)
	}
}

// Output tells the events of one commentator.
func (s *Sender) Output(room, identity string) *Output {
	return &Output{s: s, room: room, identity: identity}
}

// Output turns what a session has to say into events.
type Output struct {
	s              *Sender
	room, identity string

	mu   sync.Mutex
	last agent.Status
}

var _ agent.TextOutput = (*Output)(nil)

func (o *Output) event(name string) event {
	return event{
		Event: name, ID: "EV_" + rand.Text()[:16], CreatedAt: time.Now().Unix(),
		Room: roomName{o.room}, Participant: participant{Identity: o.identity, Kind: "AGENT"},
	}
}

// Caption implements agent.TextOutput; single words are not told.
func (*Output) Caption(agent.Caption) {}

// Record implements agent.TextOutput.
func (o *Output) Record(r agent.Record) {
	defer rescue.Guard(o.s.crashed)
	switch {
	case r.IsComment():
		e := o.event(EventCommentFinished)
		e.Record = &r
		o.s.tell(e)
	case r.Outcome == agent.OutcomeFailed:
		e := o.event(EventError)
		e.Record, e.Error = &r, &failure{r.Reason}
		o.s.tell(e)
	}
}

// State implements agent.TextOutput. What changes while state and chip stay
// (how much of a model is loaded) is not told.
func (o *Output) State(s agent.Status) {
	defer rescue.Guard(o.s.crashed)
	o.mu.Lock()
	before := o.last
	o.last = s
	o.mu.Unlock()
	if s.State == before.State && s.Chip == before.Chip {
		return
	}
	e := o.event(EventStateChanged)
	e.State = &state{Status: s, Before: before.State, BeforeChip: before.Chip}
	o.s.tell(e)
	if s.Chip == agent.ChipFailed && before.Chip != agent.ChipFailed {
		o.Failed(errors.New(s.Detail))
	}
}

// Failed tells that the commentator has failed.
func (o *Output) Failed(err error) {
	e := o.event(EventError)
	e.Error = &failure{err.Error()}
	o.s.tell(e)
}

// Collector counts what was told and what was not.
func (s *Sender) Collector() prometheus.Collector {
	return metrics.Bundle{
		metrics.Counter("touchline_webhook_sent_total", "Events that a webhook has taken.", s.Sent),
		metrics.Counter("touchline_webhook_failed_total", "Events that a webhook refused or did not take in all attempts.", s.Failed),
		metrics.Counter("touchline_webhook_dropped_total", "Events that were never tried, as too many waited.", s.Dropped),
		metrics.Gauge("touchline_webhook_off", "Addresses that are told nothing any more after a panic of the code.",
			func() float64 { return float64(s.Off()) }),
	}
}
