package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	neturl "net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"touchline/agent/audioapi"
	"touchline/agent/bot"
	"touchline/agent/console"
	"touchline/internal/rescue"
	"touchline/media/source"
)

// errNoRecognizer is returned if speech recognition is off.
var errNoRecognizer = errors.New("there is no recognizer: set inference.recognizer.program to model or remote (docs/transcription.md)")

// recognition returns the settings' transcription service.
func recognition(a *app, ort ortFlag) (*audioapi.Transcriber, error) {
	cfg := a.cfg
	ort.override(&cfg)
	t, err := bot.NewTranscription(cfg.Bot(), a.log)
	if t == nil && err == nil {
		err = errNoRecognizer
	}
	return t, err
}

// transcribeCmd transcribes recordings.
type transcribeCmd struct {
	Files    []string `arg:"" help:"Recordings: files, or addresses with http:// or https://; - reads standard input."`
	Format   string   `help:"Form of the text: text, srt, vtt or json." enum:"text,srt,vtt,json" default:"text"`
	Language string   `help:"Language that is spoken, such as nl; found if left out." placeholder:"TAG"`
	Context  string   `help:"Names and terms that may be said." placeholder:"TEXT"`
	Words    bool     `help:"With --format json: the times of the words too."`

	ortFlag
}

// Run writes the transcripts to standard output, one file after the other.
func (c *transcribeCmd) Run(ctx context.Context, a *app) error {
	t, err := recognition(a, c.ortFlag)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	g.Go(func() error { return t.Run(ctx) })
	g.Go(func() error {
		defer cancel()
		for _, path := range c.Files {
			if err := c.one(ctx, t, path, a.cfg.Agent.Console.Transcription.MaxBytes); err != nil {
				return fmt.Errorf("transcribe %s: %w", shown(path), err)
			}
		}
		return nil
	})
	return rescue.UnlessCanceled(g.Wait())
}

// one writes the transcript of a recording.
func (c *transcribeCmd) one(ctx context.Context, t *audioapi.Transcriber, path string, most int) error {
	file, err := opened(ctx, path, os.Stdin, int64(most))
	if err != nil {
		return err
	}
	defer file.Close()
	fields := map[string][]string{
		"model": {"default"}, "language": {c.Language}, "prompt": {c.Context}, "response_format": {c.Format},
	}
	if c.Format == "json" {
		fields["response_format"], fields["timestamp_granularities"] = []string{"verbose_json"}, []string{"segment"}
		if c.Words {
			fields["timestamp_granularities"] = []string{"segment", "word"}
		}
	}
	m := hearingMeter{out: os.Stderr, on: isTerminal(os.Stderr)}
	body, err := t.File(ctx, file, fields, m.show)
	m.end()
	if err != nil {
		return err
	}
	if c.Format == "json" {
		body = append(body, '\n')
	}
	_, err = os.Stdout.Write(body)
	return err
}

// hearingMeter shows on a terminal how much of a recording has been transcribed.
type hearingMeter struct {
	out   io.Writer
	on    bool
	shown bool
}

func (m *hearingMeter) show(heard, all time.Duration) {
	if !m.on {
		return
	}
	const width = 30
	share := float64(heard) / float64(max(all, 1))
	full := int(share * width)
	fmt.Fprintf(m.out, "\r\x1b[K%s%s %3.0f %% of %v", strings.Repeat("█", full), strings.Repeat("░", width-full), 100*share,
		all.Round(time.Second))
	m.shown = true
}

// end removes the line.
func (m *hearingMeter) end() {
	if m.shown {
		fmt.Fprint(m.out, "\r\x1b[K")
	}
}

// opened opens a recording. Standard input and the content of an address, up to a limit of bytes, are copied to an unnamed file.
func opened(ctx context.Context, path string, stdin io.Reader, most int64) (*os.File, error) {
	switch {
	case path == "-":
		return spooled(http.MaxBytesReader(nil, io.NopCloser(stdin), most))
	case strings.HasPrefix(path, "http://"), strings.HasPrefix(path, "https://"):
		return fetched(ctx, path, most, fetchIdle, fetchWhole)
	}
	return os.Open(path)
}

// Time limits of a download: between two pieces, as of uploads, and of the whole.
const (
	fetchIdle  = 15 * time.Second
	fetchWhole = 5 * time.Minute
)

// fetched downloads a recording of at most most bytes. idle bounds the wait for each piece, and whole the download, which is endless for a
// live stream.
func fetched(ctx context.Context, url string, most int64, idle, whole time.Duration) (*os.File, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := &fetchedBody{idle: idle}
	in.kind.Store("")
	late := func(limit time.Duration, what string) func() {
		return func() {
			cancel(fmt.Errorf("%s within %v, after %d bytes%s", what, limit, in.bytes.Load(), in.kind.Load()))
		}
	}
	in.timer = time.AfterFunc(idle, late(idle, "nothing came"))
	defer in.timer.Stop()
	defer time.AfterFunc(whole, late(whole, "it did not end")).Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*neturl.Error](err); ok {
			err = e.Err // without the address, which may have a secret in it
		}
		return nil, causeOf(ctx, err)
	}
	defer res.Body.Close()
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err == nil {
		in.kind.Store(" of " + kind)
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("expected a recording, got status %s", res.Status)
	case kind == "text/html", kind == "application/json":
		return nil, fmt.Errorf("expected a recording, got %s", kind)
	case res.Header.Get("Icy-Name")+res.Header.Get("Icy-Metaint") != "":
		return nil, errors.New("expected a recording, got a live radio stream, which has no end")
	}
	in.from = http.MaxBytesReader(nil, res.Body, most)
	file, err := spooled(in)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return file, nil
}

// causeOf returns why ctx ended, else err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// fetchedBody is the body of a download, which restarts its timer.
type fetchedBody struct {
	from  io.Reader
	idle  time.Duration
	timer *time.Timer
	bytes atomic.Int64
	kind  atomic.Value // string
}

// Read implements io.Reader.
func (b *fetchedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.bytes.Add(int64(n))
	b.timer.Reset(b.idle)
	return n, err
}

// shown returns a path, or an address without its secrets.
func shown(path string) string {
	if u, err := neturl.Parse(path); err == nil && u.Host != "" {
		return source.Redacted(u)
	}
	return path
}

// spooled copies a recording to an unnamed file.
func spooled(from io.Reader) (*os.File, error) {
	file, err := audioapi.NewSpool()
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(file, from)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = fmt.Errorf("it has more than %d bytes: agent.console.transcription.max_bytes", e.Limit)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// serveCmd serves transcription only.
type serveCmd struct {
	pageFlags
	ortFlag
}

// endless marks a command that serves until it is interrupted.
func (*serveCmd) endless() {}

// Run serves until Ctrl-C.
func (c *serveCmd) Run(ctx context.Context, a *app) error {
	cfg := a.cfg.Agent.Console.Config
	c.apply(&cfg)
	t, err := recognition(a, c.ortFlag)
	if err != nil {
		return err
	}
	s, err := console.New(console.Options{
		Config: cfg, Rooms: console.NewRooms(0, a.log), Engine: t.Status, Transcription: t, Log: a.log,
		Announce: func(url string) {
			fmt.Fprintf(os.Stdout, "\n  Transcription is served at %s (docs/transcription.md)\n\n", url)
		},
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
