// Package hub downloads published model folders from the Hugging Face hub, or
// from a server that speaks its protocol: the list of a revision's files, the
// files in parallel ranges, interrupted downloads taken up where they were,
// every file checked against the published checksum before it gets its name.
//
// It owns no settings: endpoint, token, clock and folder are given to it.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"touchline/models"
)

// DefaultEndpoint is the hub itself.
const DefaultEndpoint = "https://huggingface.co"

// Options of a Client. Zero values of all but Now take the defaults.
type Options struct {
	Endpoint string // of the hub or a mirror; DefaultEndpoint
	Token    string // sent to the endpoint only, never where it redirects to
	// Now is the clock: time.Now.
	Now func() time.Time
	// Transport carries the requests; a transport of its own if nil.
	Transport http.RoundTripper
	// Connections at once, for all files together; 8.
	Connections int
	// Chunk is the bytes asked for in one request; 64 MiB.
	Chunk int64
	// Attempts without a new byte before a request is given up; 6.
	Attempts int
	// Backoff before the second attempt; it doubles up to 30 times itself. 1 s.
	Backoff time.Duration
	// Stall is how long a connection may be silent; 30 s.
	Stall time.Duration
	// Failed, if not nil, is told of each attempt that failed and will be
	// repeated after wait. It is called by several goroutines.
	Failed func(err error, wait time.Duration)
	// Free says how many bytes fit into a folder; the file system's word if nil.
	Free func(dir string) (int64, error)
}

// maxWait bounds what a Retry-After is obeyed for.
const maxWait = 10 * time.Minute

// Client talks to one endpoint. It is safe for concurrent use.
type Client struct {
	options  Options
	endpoint *url.URL
	http     *http.Client
	own      *http.Transport // closed by Close; nil if it was given
}

// New checks the options. Nothing is sent yet.
func New(o Options) (*Client, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	u, err := url.Parse(strings.TrimRight(o.Endpoint, "/"))
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("endpoint: expected http(s)://host, is %q", u.Redacted())
	}
	if o.Now == nil {
		return nil, errors.New("options: Now: expected a clock, is nil")
	}
	setDefault(&o.Connections, 8)
	setDefault(&o.Chunk, 64<<20)
	setDefault(&o.Attempts, 6)
	setDefault(&o.Backoff, time.Second)
	setDefault(&o.Stall, 30*time.Second)
	if o.Free == nil {
		o.Free = models.FreeSpace
	}
	c := &Client{options: o, endpoint: u}
	if o.Transport == nil {
		c.own = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			MaxIdleConnsPerHost: o.Connections,
			TLSHandshakeTimeout: 15 * time.Second,
			IdleConnTimeout:     time.Minute,
			// HTTP/2 would put all ranges into one connection.
			Protocols: http1(),
		}
		o.Transport = c.own
	}
	c.http = &http.Client{
		Transport: tokenTransport{endpoint: u, token: o.Token, next: o.Transport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return fmt.Errorf("%d redirects", len(via))
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return &permanentError{fmt.Errorf("redirected from https to %s", r.URL.Scheme)}
			}
			return nil
		},
	}
	return c, nil
}

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
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

// tokenTransport gives the token to the endpoint and to nobody else. The
// standard client would pass it on to subdomains and other ports.
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

// StatusError is returned when a server refuses for good.
type StatusError struct {
	URL    string
	Status int
	hint   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s%s", e.URL, e.Status, http.StatusText(e.Status), e.hint)
}

// permanentError is not worth another attempt.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// laterError asks for another attempt after a time.
type laterError struct {
	error

	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// try calls do until it succeeds, fails for good, or has failed Attempts
// times in a row without getting further.
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
				return fmt.Errorf("asked to wait for %v: %w", l.after, err)
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

// errStalled is the cause of cancelling a silent connection.
var errStalled = errors.New("the connection is silent")

// send makes one request. The body reports a stall as an error and must be
// closed, which also ends the request.
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
	for k, v := range header {
		r.Header[k] = v
	}
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

// check turns a status that is no success into an error of the right kind.
func (c *Client) check(resp *http.Response) error {
	code := resp.StatusCode
	if code == http.StatusOK || code == http.StatusPartialContent {
		return nil
	}
	at := *resp.Request.URL
	elsewhere := !strings.EqualFold(at.Host, c.endpoint.Host)
	at.RawQuery = "" // signed addresses are secrets
	e := &StatusError{URL: at.Redacted(), Status: code}
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return &laterError{e, c.retryAfter(resp.Header.Get("Retry-After"))}
	case code == http.StatusForbidden && elsewhere:
		return e // a signed address that expired: asking the endpoint gives a new one
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e.hint = ": the model is private or gated: accept its terms on the hub and set HF_TOKEN"
		if c.options.Token != "" {
			e.hint = ": the token gives no access: accept the model's terms on the hub with the account of HF_TOKEN"
		}
	case code == http.StatusNotFound:
		e.hint = ": no such model, revision or file"
	}
	return &permanentError{e}
}

func (c *Client) retryAfter(v string) time.Duration {
	if s, err := strconv.Atoi(v); err == nil && s >= 0 {
		return time.Duration(min(s, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(c.options.Now()))
	}
	return 0
}

// watchedBody ends a request whose body stays silent for too long.
type watchedBody struct {
	body  io.ReadCloser
	ctx   context.Context //nolint:containedctx // that of this one request
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
