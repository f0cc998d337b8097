package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/rs/zerolog"

	"touchline/internal/backoff"
	"touchline/internal/outbox"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

const (
	// firstWait is the longest wait after the first attempt. It doubles with each attempt, up to maxWait.
	firstWait = 500 * time.Millisecond
	maxWait   = 30 * time.Second
	// maxRetryAfter bounds the wait of a Retry-After header.
	maxRetryAfter = time.Minute
	// tokenLife is the validity of a signature.
	tokenLife = 5 * time.Minute
	// maxResponse is the number of bytes of a response that are read, so that its connection can be reused.
	maxResponse = 16 << 10
)

// target is one recipient with its queue.
type target struct {
	s      *Sender
	url    string
	events []string // to post
	key    string   // signs, with its secret
	secret string
	client *http.Client
	log    zerolog.Logger
	wake   wake.Signal
	alerts *outbox.Queue // nil when alerts are not posted

	mu      sync.Mutex
	queue   []event          // oldest first
	busy    map[string]event // being posted, by room
	lost    uint64           // events lost since the last delivery
	failing uint64           // events that failed since the last delivery
	warned  bool             // a failure since the last delivery is logged
	off     bool             // after a panic
}

// put queues an event. A full queue drops the oldest.
func (t *target) put(e event) {
	t.mu.Lock()
	if t.off {
		t.mu.Unlock()
		t.s.dropped.Add(1)
		return
	}
	if len(t.queue) >= queueSize {
		t.queue = slices.Delete(t.queue, 0, 1)
		t.lost++
		t.s.dropped.Add(1)
	}
	t.queue = append(t.queue, e)
	t.mu.Unlock()
	t.wake.Set()
}

// take returns the oldest event of a room that is not busy, and marks the room busy.
func (t *target) take() (event, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.queue {
		if _, busy := t.busy[e.Room.Name]; !busy {
			t.queue = slices.Delete(t.queue, i, i+1)
			t.busy[e.Room.Name] = e
			return e, true
		}
	}
	return event{}, false
}

// run delivers events. A panic switches the recipient off, for all its workers.
func (t *target) run(ctx, posts context.Context) {
	defer rescue.Guard(func(err error) {
		t.s.failed.Add(1) // the present event
		t.crashed(err)
	})
	t.work(ctx, posts)
}

// crashed switches the recipient off at the first panic. Queued and later events are dropped.
func (t *target) crashed(err error) {
	t.mu.Lock()
	was := t.off
	t.off = true
	t.s.dropped.Add(uint64(len(t.queue)))
	t.queue = nil
	t.mu.Unlock()
	if was {
		return
	}
	t.log.Error().Err(err).Bytes("stack", rescue.Stack(err)).Msg("webhook panicked; it is off until the program restarts")
}

// work delivers events until ctx has ended and no event is left for this worker.
func (t *target) work(ctx, posts context.Context) {
	for posts.Err() == nil {
		e, ok := t.take()
		if ok {
			t.wake.Set() // another worker may take the next event
			t.deliver(ctx, posts, e)
			t.mu.Lock()
			delete(t.busy, e.Room.Name)
			t.mu.Unlock()
			continue
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return // the workers of busy rooms deliver their events
		}
	}
}

// deliver posts one event until it is accepted, refused or out of attempts.
func (t *target) deliver(ctx, posts context.Context, e event) {
	t.mu.Lock()
	e.NumDropped = t.lost
	t.mu.Unlock()
	body, err := e.body()
	pause := backoff.Backoff{First: firstWait, Max: maxWait}
	for attempt := 0; err == nil; attempt++ {
		if e.forgotten != nil && e.forgotten.Load() {
			if e.Record == nil {
				return
			}
			if body, err = e.withoutInstruction().body(); err != nil {
				break
			}
		}
		ending := ctx.Err() != nil
		err = t.post(posts, body)
		if err == nil {
			t.delivered(e.NumDropped)
			return
		}
		again, ok := errors.AsType[*retryError](err)
		if !ok || ending || attempt >= t.s.opts.Config.Retries {
			break
		}
		select {
		case <-time.After(max(pause.Next(time.Now(), rand.Float64()), min(again.after, maxRetryAfter))):
		case <-ctx.Done():
		}
		err = nil
	}
	t.failed(err, e.Event, e.Room.Name, true)
}

// runAlerts delivers alerts one after the other, until ctx has ended and no alert waits. A panic switches the recipient off.
func (t *target) runAlerts(ctx, posts context.Context) {
	defer rescue.Guard(func(err error) {
		t.s.failed.Add(1)
		t.crashed(err)
	})
	for {
		m, err := t.alerts.Next(ctx)
		if err != nil || !t.deliverAlert(ctx, posts, m) {
			return
		}
		t.alerts.Done(m)
	}
}

// deliverAlert posts an alert until it is accepted or refused. It returns false if it was neither before the shutdown.
func (t *target) deliverAlert(ctx, posts context.Context, m outbox.Message) bool {
	pause := backoff.Backoff{First: firstWait, Max: maxWait}
	for {
		ending := ctx.Err() != nil
		err := t.post(posts, m.Body)
		if err == nil {
			t.delivered(0)
			return true
		}
		again, ok := errors.AsType[*retryError](err)
		t.failed(err, EventAlert, m.Topic, !ok)
		if !ok || ending {
			return !ok
		}
		select {
		case <-time.After(max(pause.Next(time.Now(), rand.Float64()), min(again.after, maxRetryAfter))):
		case <-ctx.Done():
		}
	}
}

// failed counts a failure, and logs the first of consecutive ones. With lost set, the event is lost.
func (t *target) failed(err error, name, room string, lost bool) {
	t.mu.Lock()
	if lost {
		t.s.failed.Add(1)
		t.lost++
		t.failing++
	}
	first := !t.warned
	t.warned = true
	t.mu.Unlock()
	ev := t.log.Debug()
	if first {
		ev = t.log.Warn()
	}
	ev.Err(err).Str("event", name).Str("room", room).Msg("webhook failed; counting further failures")
}

// delivered counts a delivery that reported a number of lost events.
func (t *target) delivered(reported uint64) {
	t.s.sent.Add(1)
	t.mu.Lock()
	t.lost -= min(reported, t.lost)
	failing, warned := t.failing, t.warned
	t.failing, t.warned = 0, false
	t.mu.Unlock()
	if warned {
		t.log.Info().Uint64("lost", failing).Msg("webhook recovered")
	}
}

// retryError is a failure after which another attempt may succeed.
type retryError struct {
	err   error
	after time.Duration // Retry-After
}

func (e *retryError) Error() string { return e.err.Error() }

// post makes one attempt with a new signature, because signatures expire.
func (t *target) post(ctx context.Context, body []byte) error {
	sum := sha256.Sum256(body)
	token, err := auth.NewAccessToken(t.key, t.secret).SetValidFor(tokenLife).
		SetSha256(base64.StdEncoding.EncodeToString(sum[:])).ToJWT()
	if err != nil {
		return fmt.Errorf("sign the event: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("make the request: invalid URL")
	}
	req.Header.Set("Authorization", token)
	req.Header.Set("Content-Type", "application/webhook+json")
	req.Header.Set("User-Agent", "touchline")
	res, err := t.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may hold a secret
		}
		return &retryError{err: fmt.Errorf("post: %w", err)}
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxResponse)
	_ = res.Body.Close()
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return &retryError{err: refusal(code), after: backoff.RetryAfter(res.Header, time.Now())}
	default:
		return refusal(code)
	}
}

func refusal(code int) error {
	if code >= 300 && code < 400 {
		return fmt.Errorf("the receiver answered %d: redirects are not followed; configure the final address", code)
	}
	return fmt.Errorf("the receiver answered %d %s", code, http.StatusText(code))
}
