// Package mjpeg pulls JPEG pictures from a camera over HTTP: from one endless
// response (multipart/x-mixed-replace with any boundaries, or bare pictures one
// after another), or single pictures by polling.
//
// It owns the request, its authentication (basic and digest) and the detection of
// pictures in the stream. It yields them unchanged as access units of codec.MJPEG,
// and decodes only single pictures of PNG, WebP and BMP, which it converts.
package mjpeg

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
	"touchline/media/source/login"
)

// ErrOther is returned when the response is no JPEG: a video file, a playlist, a
// page. No frame was emitted.
var ErrOther = source.Errorf("the server sends no JPEG pictures")

const (
	defaultInterval = 500 * time.Millisecond
	maxInterval     = 4 * time.Second // more would count as a stall
	// The newest picture is shown for pauseTime while a server is busy, and its age after ageTime.
	pauseTime = 30 * time.Second
	ageTime   = 5 * time.Second
)

// Options of a Camera.
type Options struct {
	source.Access

	// Interval between single pictures, 0 for half a second, 4 s at most.
	Interval time.Duration
}

// Camera is an HTTP address.
type Camera struct {
	opts   Options
	client *http.Client
	auth   *login.Login
}

// New checks the options and opens nothing.
func New(o Options) (*Camera, error) {
	u := o.Address.URL
	switch {
	case u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("the address is not http://HOST/PATH or https://HOST/PATH")
	case o.Now == nil:
		return nil, errors.New("mjpeg.Options.Now is not set")
	case o.Interval < 0 || o.Interval > maxInterval:
		return nil, fmt.Errorf("interval %v: must be between 0s and %v", o.Interval, maxInterval)
	}
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	client := o.Allow.Client(o.Insecure)
	follow := client.CheckRedirect
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if !source.SameServer(r.URL, u) {
			for name := range o.Header {
				r.Header.Del(name)
			}
		}
		return follow(r, via)
	}
	auth := login.New(u.User, o.Address.Literal, rand.Text)
	client.Transport = auth.Transport(client.Transport, u)
	return &Camera{opts: o, client: client, auth: auth}, nil
}

// pause is an answer without a picture, from a server that may have one later.
type pause struct {
	error
	status int
}

func (p pause) Unwrap() error { return p.error }

// Pull implements source.Puller.
func (c *Camera) Pull(ctx context.Context, out source.Sink) error {
	began := c.opts.Now()
	var newest media.EncodedFrame
	// The stream has no times, so a picture's is its arrival.
	show := func(f media.EncodedFrame) {
		f.Arrival = c.opts.Now()
		f.Received, f.PTS = f.Arrival, f.Arrival.Sub(began)
		out.Frame(f)
	}
	var came time.Time // when the newest picture did
	emit := func(picture []byte) {
		f, err := codec.JPEG(picture)
		if err != nil {
			c.opts.Log.Debug().Err(err).Msg("picture is not a JPEG")
			return
		}
		came, newest = c.opts.Now(), f
		show(newest)
	}
	for polls := false; ; polls = true {
		asked := c.opts.Now()
		single, err := c.ask(ctx, emit)
		p, paused := errors.AsType[pause](err)
		age := asked.Sub(came)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case polls && paused && (p.status < http.StatusBadRequest || age < pauseTime):
			show(newest)
		case err != nil:
			return err
		case !single:
			return source.Errorf("the camera closed the connection")
		case !polls:
			c.opts.Log.Info().Int64("interval_ms", c.opts.Interval.Milliseconds()).Msg("polling single pictures")
		}
		advice := ""
		if paused && age >= ageTime {
			advice = fmt.Sprintf("Its picture is from %s: the server has no newer one (status %d).", came.Format(time.TimeOnly), p.status)
		}
		if out.Advice != nil {
			out.Advice(advice)
		}
		if err := wake.Sleep(ctx, c.opts.Interval-c.opts.Now().Sub(asked)); err != nil {
			return err
		}
	}
}

// ask makes one request and emits its pictures. single is set if the response was one
// picture.
func (c *Camera) ask(ctx context.Context, emit func([]byte)) (single bool, err error) {
	resp, err := c.get(ctx)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "" { // a boundary that the standard's grammar does not allow
		kind, _, _ = strings.Cut(strings.ToLower(resp.Header.Get("Content-Type")), ";")
		kind = strings.TrimSpace(kind)
	}
	in := newScanner(resp.Body)
	_, empty := in.in.Peek(1)
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		if part := in.partType(); part != "" {
			return false, source.Errorf("the camera's stream has parts of type %s; JPEG is needed", part)
		}
	case errors.Is(empty, io.EOF):
		return false, pause{source.Errorf("the server sends an empty answer"), resp.StatusCode}
	case kind == "image/jpeg", kind == "image/jpg", kind == "image/pjpeg":
		single = true
	default:
		if in.atPicture() {
			single = true // until there is a second one
			break
		}
		if picture, err := in.still(kind); picture != nil || err != nil {
			if err == nil {
				emit(picture)
			}
			return true, err
		}
		if err := source.Page(resp.Header.Get("Content-Type"), in.in); err != nil {
			return false, err
		}
		return false, source.Errorf("%w: the response has type %q", ErrOther, kind)
	}
	for n := 0; ; n++ {
		picture, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return single && n == 1, nil
		case err != nil:
			return false, source.Errorf("read the camera's pictures: %w", err)
		}
		emit(picture)
	}
}

// get requests the URL.
func (c *Camera) get(ctx context.Context) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.opts.Address.URL.String(), http.NoBody)
	if err != nil {
		return nil, source.Errorf("expected an HTTP address")
	}
	r.Header.Set("User-Agent", "touchline")
	r.URL.User = nil // no password before a challenge
	maps.Copy(r.Header, c.opts.Header)
	resp, err := c.client.Do(r)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err // without the URL
		}
		return nil, source.Errorf("request the camera's pictures: %w", err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusNoContent, code == http.StatusNotModified, code == http.StatusTooManyRequests, code >= 500:
		return nil, pause{source.StatusError(code, path.Base(c.opts.Address.URL.Path)), code}
	case code != http.StatusUnauthorized:
		return nil, source.StatusError(code, path.Base(c.opts.Address.URL.Path))
	case resp.Request.URL.Hostname() != c.opts.Address.URL.Hostname() && c.opts.Address.URL.User != nil:
		return nil, login.ErrOtherHost
	}
	return nil, c.auth.Err(c.opts.Address.URL.Scheme)
}
