// Package hub downloads model folders from the Hugging Face hub or a compatible
// server. It lists a revision's files, downloads them in parallel ranges,
// resumes interrupted downloads, and verifies the published checksum of each
// file before giving it its final name.
//
// It reads no settings: callers pass endpoint, token, clock and folder.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"touchline/internal/backoff"
	"touchline/models/disk"
)

// DefaultEndpoint is the hub itself.
const DefaultEndpoint = "https://huggingface.co"

// Options configure a Client. All but Now have defaults, given below.
type Options struct {
	Endpoint string // of the hub or a mirror; default: DefaultEndpoint
	Token    string // sent to the endpoint, never to redirect targets
	// Now is the clock, normally time.Now.
	Now func() time.Time
	// Transport sends the requests; default: a new http.Transport.
	Transport http.RoundTripper
	// Connections is the maximum number of parallel requests; default: 8.
	Connections int
	// Chunk is the size of a range request in bytes; default: 64 MiB.
	Chunk int64
	// Attempts is the maximum number of attempts in a row without progress;
	// default: 6.
	Attempts int
	// Backoff is the delay before the second attempt. It doubles with each
	// attempt, up to 30 times. Default: 1 s.
	Backoff time.Duration
	// Stall is the maximum silence of a connection; default: 30 s.
	Stall time.Duration
	// Failed, if not nil, is called by several goroutines for each failed attempt
	// that is repeated after wait.
	Failed func(err error, wait time.Duration)
	// Free returns the free bytes of a folder's disk; default: disk.FreeSpace.
	Free func(dir string) (int64, error)
}

// maxWait is the longest Retry-After that is accepted.
const maxWait = 10 * time.Minute

// Client downloads from one endpoint. It is safe for concurrent use.
type Client struct {
	options  Options
	endpoint *url.URL
	http     *http.Client
	own      *http.Transport // closed by Close; nil with Options.Transport
}

// New returns a Client. It sends no request.
func New(o Options) (*Client, error) {
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	u, err := url.Parse(strings.TrimRight(o.Endpoint, "/"))
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("endpoint %q: must be http(s)://host", u.Redacted())
	}
	if o.Now == nil {
		return nil, errors.New("options: Now is nil")
	}
	setDefault(&o.Connections, 8)
	setDefault(&o.Chunk, 64<<20)
	setDefault(&o.Attempts, 6)
	setDefault(&o.Backoff, time.Second)
	setDefault(&o.Stall, 30*time.Second)
	if o.Free == nil {
		o.Free = disk.FreeSpace
	}
	c := &Client{options: o, endpoint: u}
	if o.Transport == nil {
		c.own = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			MaxIdleConnsPerHost: o.Connections,
			TLSHandshakeTimeout: 15 * time.Second,
			IdleConnTimeout:     time.Minute,
			Protocols:           new(http.Protocols),
		}
		c.own.Protocols.SetHTTP1(true) // HTTP/2 would send all ranges over one connection
		o.Transport = c.own
	}
	c.http = &http.Client{
		Transport: tokenTransport{endpoint: u, token: o.Token, next: o.Transport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return fmt.Errorf("stopped after %d redirects", len(via))
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return &permanentError{fmt.Errorf("redirect from https to %s", r.URL.Scheme)}
			}
			return nil
		},
	}
	return c, nil
}

func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Close closes idle connections.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// tokenTransport sends the token to the endpoint only. http.Client would forward
// it to subdomains and other ports.
type tokenTransport struct {
	endpoint *url.URL
	token    string
	next     http.RoundTripper
}

func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" && r.URL.Scheme == t.endpoint.Scheme && strings.EqualFold(r.URL.Host, t.endpoint.Host) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.next.RoundTrip(r)
}

// StatusError is returned for a status that a retry does not change.
type StatusError struct {
	URL    string
	Status int
	hint   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s%s", e.URL, e.Status, http.StatusText(e.Status), e.hint)
}

// permanentError ends the retries.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// laterError carries the delay that the server requests.
type laterError struct {
	error

	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// try calls do until it succeeds, returns a permanentError, or fails Attempts
// times in a row without progress.
func (c *Client) try(ctx context.Context, do func(ctx context.Context) (further bool, err error)) error {
	for attempt := 1; ; attempt++ {
		further, err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p, ok := errors.AsType[*permanentError](err); ok {
			return p.error
		}
		if further {
			attempt = 1
		}
		if attempt >= c.options.Attempts {
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		wait := c.options.Backoff << min(attempt-1, 5)
		wait = min(wait, 30*c.options.Backoff)
		wait = wait/2 + rand.N(wait/2+1)
		if l, ok := errors.AsType[*laterError](err); ok && l.after > 0 {
			if l.after > maxWait {
				return fmt.Errorf("the server requests a delay of %v: %w", l.after, err)
			}
			wait = l.after
		}
		if c.options.Failed != nil {
			c.options.Failed(err, wait)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// errStalled is the cancellation cause of a silent connection.
var errStalled = errors.New("the connection is silent")

// send sends one request. The response body returns an error on a stall; closing
// it ends the request.
func (c *Client) send(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(c.options.Stall, func() { cancel(errStalled) })
	end := func() {
		watch.Stop()
		cancel(nil)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		end()
		return nil, &permanentError{err}
	}
	r.Header.Set("User-Agent", "touchline")
	maps.Copy(r.Header, header)
	resp, err := c.http.Do(r)
	if err != nil {
		if errors.Is(context.Cause(ctx), errStalled) {
			err = fmt.Errorf("%s: %w", address, errStalled)
		}
		end()
		return nil, err
	}
	resp.Body = &watchedBody{body: resp.Body, ctx: ctx, watch: watch, stall: c.options.Stall, end: end}
	if err := c.check(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// check converts a status other than success into an error.
func (c *Client) check(resp *http.Response) error {
	code := resp.StatusCode
	if code == http.StatusOK || code == http.StatusPartialContent {
		return nil
	}
	at := *resp.Request.URL
	elsewhere := !strings.EqualFold(at.Host, c.endpoint.Host)
	at.RawQuery = "" // signed URLs are secrets
	e := &StatusError{URL: at.Redacted(), Status: code}
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return &laterError{e, backoff.RetryAfter(resp.Header, c.options.Now())}
	case code == http.StatusForbidden && elsewhere:
		return e // an expired signed URL: the endpoint issues a new one
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e.hint = ": the model is private or gated: accept its terms on the hub and set HF_TOKEN"
		if c.options.Token != "" {
			e.hint = ": HF_TOKEN has no access: accept the model's terms on the hub with its account"
		}
	case code == http.StatusNotFound:
		e.hint = ": no such model, revision or file"
	}
	return &permanentError{e}
}

// watchedBody resets the stall timer on each read.
type watchedBody struct {
	body  io.ReadCloser
	ctx   context.Context //nolint:containedctx // of this request
	watch *time.Timer
	stall time.Duration
	end   func()
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.watch.Reset(b.stall)
	}
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.end()
	return b.body.Close()
}
