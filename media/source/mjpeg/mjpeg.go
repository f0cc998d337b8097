// Package mjpeg pulls JPEG pictures from a camera over HTTP: one answer without
// an end (multipart/x-mixed-replace, whatever its boundaries look like, or bare
// pictures one after another), or single pictures that are asked for again and
// again.
//
// It owns the request, its authentication (basic and digest) and the finding of
// pictures in the stream. Pictures come out as they are, as access units of
// codec.MJPEG; it never decodes them.
package mjpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
)

// ErrOther is returned when the answer is no JPEG: a video file, a playlist, a
// page. Nothing was handed on.
var ErrOther = errors.New("the server sends no JPEG pictures")

const (
	defaultInterval = 500 * time.Millisecond
	maxInterval     = 4 * time.Second // more would look like a stall
	maxDrain        = 4 << 10         // of an error's text
)

// Options of a Camera.
type Options struct {
	// URL with a user and a password if the camera wants them.
	URL *url.URL
	// Interval between single pictures, 0 for half a second, 4 s at most.
	Interval time.Duration
	// Insecure takes any certificate.
	Insecure bool
	// Allow judges the addresses that are dialled.
	Allow source.Allow
	Now   func() time.Time
	Log   zerolog.Logger
}

// Camera is an HTTP address.
type Camera struct {
	opts   Options
	client *http.Client
	auth   *digest // remembered between requests
}

// New checks the options and opens nothing.
func New(o Options) (*Camera, error) {
	switch {
	case o.URL == nil || o.URL.Scheme != "http" && o.URL.Scheme != "https" || o.URL.Hostname() == "":
		return nil, errors.New("the address is not http://HOST/PATH or https://HOST/PATH")
	case o.Now == nil:
		return nil, errors.New("mjpeg.Options.Now is not set")
	case o.Interval < 0 || o.Interval > maxInterval:
		return nil, fmt.Errorf("interval %v is too long; use at most %v", o.Interval, maxInterval)
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	client := o.Allow.Client()
	if o.Insecure {
		source.Insecure(client)
	}
	return &Camera{opts: o, client: client}, nil
}

// Pull implements source.Puller.
func (c *Camera) Pull(ctx context.Context, out source.Sink) error {
	began := c.opts.Now()
	emit := func(picture []byte) {
		now := c.opts.Now()
		size, err := jpeg.DecodeConfig(bytes.NewReader(picture))
		if err != nil {
			c.opts.Log.Debug().Err(err).Msg("picture is not a JPEG")
			return
		}
		// The camera says nothing of time: a picture's is when it came.
		out.Frame(media.EncodedFrame{
			Codec: codec.MJPEG, KeyFrame: true, PTS: now.Sub(began), Arrival: now, Received: now,
			Width: size.Width, Height: size.Height, SpatialLayers: 1, Data: picture,
		})
	}
	for first := true; ; first = false {
		asked := c.opts.Now()
		single, err := c.ask(ctx, emit)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if !single {
			return errors.New("the camera hung up")
		}
		if first {
			c.opts.Log.Info().Int64("interval_ms", c.opts.Interval.Milliseconds()).Msg("polling single pictures")
		}
		timer := time.NewTimer(max(0, c.opts.Interval-c.opts.Now().Sub(asked)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// ask makes one request and hands on its pictures. single tells an answer that
// was one picture.
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
	switch {
	case strings.HasPrefix(kind, "multipart/"):
	case kind == "image/jpeg", kind == "image/jpg", kind == "image/pjpeg":
		single = true
	default:
		if !in.atPicture() {
			return false, fmt.Errorf("%w: its answer is of type %q", ErrOther, kind)
		}
	}
	for n := 0; ; n++ {
		picture, err := in.next()
		switch {
		case errors.Is(err, io.EOF) && n > 0:
			return single && n == 1, nil
		case err != nil:
			return false, fmt.Errorf("read the camera's pictures: %w", err)
		}
		emit(picture)
	}
}

// get asks for the address, with the camera's way of authentication.
func (c *Camera) get(ctx context.Context) (*http.Response, error) {
	for try := range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.opts.URL.String(), http.NoBody)
		if err != nil {
			return nil, errors.New("expected an HTTP address")
		}
		r.Header.Set("User-Agent", "touchline")
		c.auth.sign(r, c.opts.URL)
		resp, err := c.client.Do(r)
		if err != nil {
			if cause, ok := errors.AsType[*url.Error](err); ok {
				err = cause.Err // without the URL
			}
			return nil, fmt.Errorf("ask the camera for its pictures: %w", err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			return nil, fmt.Errorf("the camera answers with status %d", resp.StatusCode)
		}
		if c.opts.URL.User == nil {
			return nil, source.Permanent(errors.New("the camera wants a user and a password: http://USER:PASSWORD@HOST/PATH"))
		}
		// A challenge may be new because the one before is too old.
		if c.auth = readChallenge(resp.Header.Values("WWW-Authenticate")); c.auth == nil || try > 0 {
			break
		}
	}
	c.auth = nil
	return nil, source.Permanent(errors.New("the camera refuses the user or the password"))
}
