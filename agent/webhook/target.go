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
	"strconv"
	"sync"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/rs/zerolog"

	"touchline/internal/rescue"
)

const (
	// firstWait is the wait after the first attempt; it doubles up to mostWait.
	firstWait = 500 * time.Millisecond
	mostWait  = 30 * time.Second
	// mostAsked is the longest wait that a receiver may ask for.
	mostAsked = time.Minute
	// tokenLife is how long a signature is good for.
	tokenLife = 5 * time.Minute
	// maxAnswer is how much of an answer is read, so that its connection can be used again.
	maxAnswer = 16 << 10
)

// target is one address with its queue.
type target struct {
	s      *Sender
	url    string
	events []string // those it is told
	key    string   // signs, with its secret
	secret string
	client *http.Client
	log    zerolog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	queue   []event // oldest first
	busy    map[string]bool
	unsaid  uint64 // events lost since the last that was taken
	failing uint64 // events lost since it was last well
	off     bool   // after a panic
}

// put queues an event; when too many wait the oldest goes.
func (t *target) put(e event) {
	t.mu.Lock()
	if t.off {
		t.mu.Unlock()
		t.s.dropped.Add(1)
		return
	}
	if len(t.queue) >= queueSize {
		t.queue = slices.Delete(t.queue, 0, 1)
		t.unsaid++
		t.s.dropped.Add(1)
	}
	t.queue = append(t.queue, e)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take returns the oldest event of a room that nobody is busy with, and makes
// the caller busy with it.
func (t *target) take() (event, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.queue {
		if !t.busy[e.Room.Name] {
			t.queue = slices.Delete(t.queue, i, i+1)
			t.busy[e.Room.Name] = true
			return e, true
		}
	}
	return event{}, false
}

// run works; a panic switches the address off, for all its workers.
func (t *target) run(ctx, posts context.Context) {
	defer rescue.Guard(func(err error) {
		t.s.failed.Add(1) // what it was busy with
		t.crashed(err)
	})
	t.work(ctx, posts)
}

// crashed switches the address off, with the first panic: what waits for it, and
// what comes, is dropped.
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
	event := t.log.Error().Err(err)
	if p, ok := rescue.Of(err); ok {
		event = event.Bytes("stack", p.Stack)
	}
	event.Msg("webhook: its code panicked; it is off until the program starts again")
}

// isOff tells whether a panic has switched it off.
func (t *target) isOff() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.off
}

// work delivers events until ctx has ended and none is left for it.
func (t *target) work(ctx, posts context.Context) {
	for posts.Err() == nil {
		e, ok := t.take()
		if ok {
			t.deliver(ctx, posts, e)
			t.mu.Lock()
			delete(t.busy, e.Room.Name)
			t.mu.Unlock()
			continue
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return // the rooms that are left have their worker
		}
	}
}

// deliver posts one event until it is taken, refused or given up.
func (t *target) deliver(ctx, posts context.Context, e event) {
	t.mu.Lock()
	e.NumDropped = t.unsaid
	t.mu.Unlock()
	body, err := e.body()
	for attempt := 0; err == nil; attempt++ {
		ending := ctx.Err() != nil
		err = t.post(posts, body)
		if err == nil {
			t.took(e)
			return
		}
		var again *retryError
		if !errors.As(err, &again) || ending || attempt >= t.s.opts.Config.Retries {
			break
		}
		wait(ctx, backoff(attempt, again.after))
		err = nil
	}
	t.s.failed.Add(1)
	t.mu.Lock()
	t.unsaid++
	t.failing++
	first := t.failing == 1
	t.mu.Unlock()
	ev := t.log.Debug()
	if first {
		ev = t.log.Warn()
	}
	ev.Err(err).Str("event", e.Event).Str("room", e.Room.Name).Msg("webhook: an event was not taken; further ones are only counted")
}

func (t *target) took(e event) {
	t.s.sent.Add(1)
	t.mu.Lock()
	t.unsaid -= min(e.NumDropped, t.unsaid)
	failing := t.failing
	t.failing = 0
	t.mu.Unlock()
	if failing > 0 {
		t.log.Info().Uint64("lost", failing).Msg("webhook: events are taken again")
	}
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// backoff is the wait after an attempt: doubled each time, between half and all
// of it at random, but no shorter than the receiver asked for.
func backoff(attempt int, asked time.Duration) time.Duration {
	d := mostWait
	if attempt < 6 {
		d = firstWait << attempt
	}
	d = min(d, mostWait)
	return max(d/2+rand.N(d/2+1), min(asked, mostAsked))
}

// retryError is a failure that another attempt may mend.
type retryError struct {
	err   error
	after time.Duration // asked for by the receiver
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// post makes one attempt, with a signature of its own as that grows old.
func (t *target) post(ctx context.Context, body []byte) error {
	sum := sha256.Sum256(body)
	token, err := auth.NewAccessToken(t.key, t.secret).SetValidFor(tokenLife).
		SetSha256(base64.StdEncoding.EncodeToString(sum[:])).ToJWT()
	if err != nil {
		return fmt.Errorf("sign the event: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("make the request: the address cannot be used")
	}
	req.Header.Set("Authorization", token)
	req.Header.Set("Content-Type", "application/webhook+json")
	req.Header.Set("User-Agent", "touchline")
	res, err := t.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which may hold a secret
		}
		return &retryError{err: fmt.Errorf("post: %w", err)}
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	_ = res.Body.Close()
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return &retryError{err: answered(code), after: retryAfter(res.Header.Get("Retry-After"), time.Now())}
	default:
		return answered(code)
	}
}

func answered(code int) error {
	if code >= 300 && code < 400 {
		return fmt.Errorf("expected the receiver to take the event, it answered %d: redirects are not followed, name the final address", code)
	}
	return fmt.Errorf("expected the receiver to take the event, it answered %d %s", code, http.StatusText(code))
}

// retryAfter reads a Retry-After header: seconds or a date (RFC 9110, 10.2.3).
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
