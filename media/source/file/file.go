// Package file plays video files, video behind HTTP and HLS, at the pace of
// their own clock.
//
// The program ffmpeg, in a process of its own, reads whatever container there
// is and hands over its video as it is: H264, H265, VP8, VP9 and AV1 are not
// decoded. Anything else it turns into H264, and any sound into Opus unless it
// is Opus already. What it wants from the network
// goes through a proxy of ours, which judges the addresses that are really
// dialled and keeps passwords off its command line. The package owns those
// processes, the proxy and the pace. It never decodes anything itself.
package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/media"
	"touchline/media/source"
)

// Options of a Clip.
type Options struct {
	// Address of a file, or with http or https.
	Address source.Address
	// Loop plays a file again when it ended. A stream that ends is opened again by its Supervisor.
	Loop bool
	// Start is where to begin, counted from the beginning; 0 plays all.
	Start time.Duration
	// Insecure takes any certificate of the stream's own server.
	Insecure bool
	// Allow judges the addresses that are dialled, and whether files may be read.
	Allow source.Allow
	Now   func() time.Time
	Log   zerolog.Logger
}

// Clip is a file or a stream.
type Clip struct {
	opts Options

	mu    sync.Mutex
	known *stream // what it was the last time it could be played
	mute  bool    // ffmpeg has no Opus encoder
}

// stream is what ffprobe finds.
type stream struct {
	codec         media.Codec
	copied        bool // as it is; otherwise ffmpeg makes H264 of it
	width, height int
	sound         bool // there is some
	opus          bool // which goes into a room as it is
}

// Times that bound the programs.
const (
	probeTime = 15 * time.Second
	waitDelay = time.Second // for a killed program's pipes
)

// New checks the options and finds ffmpeg. It opens nothing.
func New(o Options) (*Clip, error) {
	switch {
	case o.Now == nil:
		return nil, errors.New("file.Options.Now is not set")
	case o.Start < 0:
		return nil, fmt.Errorf("start %v is negative; use 0 or more", o.Start)
	case o.Address.Kind == source.File && o.Address.Path != "":
	case o.Address.Kind == source.HTTP && o.Address.URL != nil:
	default:
		return nil, errors.New("the address is no file and no http or https URL")
	}
	for _, program := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(program); err != nil {
			what := "a video file"
			if o.Address.Kind == source.HTTP {
				what = "an HLS or HTTP stream"
			}
			return nil, fmt.Errorf("%s needs the program %s, which is not installed: apt-get install ffmpeg", what, program)
		}
	}
	return &Clip{opts: o}, nil
}

// Pull implements source.Puller.
func (c *Clip) Pull(ctx context.Context, out source.Sink) error {
	in, err := c.input()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.opts.Address.Kind == source.HTTP {
		p, err := newProxy(ctx, c.opts)
		if err != nil {
			return err
		}
		defer p.close()
		in.url, in.env = p.url(), p.environment()
		in.failure = p.failure
	}
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if known == nil {
		if known, err = c.probe(ctx, in); err != nil {
			return err
		}
	}
	played, err := c.play(ctx, in, *known, out)
	c.mu.Lock()
	if c.known = nil; played {
		c.known = known
	}
	c.mu.Unlock()
	return err
}

// input is what ffmpeg and ffprobe open.
type input struct {
	url       string
	protocols string
	extra     []string
	env       []string
	failure   func() error // why a server could not be reached
}

func (c *Clip) input() (input, error) {
	a := c.opts.Address
	if a.Kind == source.HTTP {
		return input{
			protocols: "http,https,httpproxy,tcp,tls,crypto,data",
			extra:     []string{"-rw_timeout", "10000000", "-user_agent", "touchline", "-analyzeduration", "2000000"},
		}, nil
	}
	if !c.opts.Allow.Files {
		return input{}, fmt.Errorf("%w: files of this machine are opened from its command line only", source.ErrNotAllowed)
	}
	info, err := os.Stat(a.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return input{}, source.Permanent(fmt.Errorf("file %s does not exist", a.Path))
	case err != nil:
		return input{}, fmt.Errorf("look at the file: %w", err)
	case !info.Mode().IsRegular():
		return input{}, source.Permanent(fmt.Errorf("%s is not a regular file", a.Path))
	}
	return input{url: "file:" + a.Path, protocols: "file,pipe", failure: func() error { return nil }}, nil
}

// command starts with the input's options, which come before others.
func (in input) command(ctx context.Context, program string, before, after []string) (*exec.Cmd, *tail) {
	args := append([]string{"-v", "error", "-nostdin", "-protocol_whitelist", in.protocols}, in.extra...)
	if program == "ffprobe" {
		args = append([]string{"-v", "error", "-protocol_whitelist", in.protocols}, in.extra...)
	}
	args = append(args, before...)
	args = append(args, "-i", in.url)
	args = append(args, after...)
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the URL is one argument, checked
	cmd.Env = append([]string{"PATH=" + pathOf(), "LC_ALL=C"}, in.env...)
	cmd.WaitDelay = waitDelay
	complaints := &tail{}
	cmd.Stderr = complaints
	return cmd, complaints
}

// pathOf is where the programs' own libraries may look for others; nothing of ours goes to them.
func pathOf() string { return "/usr/local/bin:/usr/bin:/bin" }

// probe finds out what the video is.
func (c *Clip) probe(ctx context.Context, in input) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd, complaints := in.command(ctx, "ffprobe", nil, []string{
		"-show_entries", "stream=codec_type,codec_name,pix_fmt,width,height,channels", "-of", "json",
	})
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look at the video: nothing came within %v", probeTime)
	}
	if err != nil {
		return nil, c.explain(in, "look at the video", err, complaints)
	}
	return readProbe(text)
}

// readProbe reads ffprobe's JSON.
func readProbe(text []byte) (*stream, error) {
	var found struct {
		Streams []struct {
			Type     string `json:"codec_type"`
			Codec    string `json:"codec_name"`
			Format   string `json:"pix_fmt"`
			Width    int    `json:"width"`
			Height   int    `json:"height"`
			Channels int    `json:"channels"`
		} `json:"streams"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("look at the video: %w", err)
	}
	video, audio := -1, -1 // the first of each, as ffmpeg counts them
	for i, f := range found.Streams {
		switch {
		case f.Type == "video" && video < 0:
			video = i
		case f.Type == "audio" && audio < 0:
			audio = i
		}
	}
	if video < 0 {
		return nil, source.Permanent(errors.New("there is no video in it"))
	}
	v := found.Streams[video]
	if v.Width < 1 || v.Height < 1 || v.Width > 1<<14 || v.Height > 1<<14 {
		return nil, source.Permanent(fmt.Errorf("the video has an unusable size of %d x %d pixels", v.Width, v.Height))
	}
	s := &stream{codec: media.H264, width: v.Width, height: v.Height}
	switch v.Codec {
	case "h264":
		s.copied = true
	case "hevc":
		s.codec, s.copied = media.H265, true
	case "vp8":
		s.codec, s.copied = media.VP8, true
	case "vp9":
		s.codec, s.copied = media.VP9, v.Format == "yuv420p"
	case "av1":
		s.codec, s.copied = media.AV1, v.Format == "yuv420p"
	}
	if !s.copied {
		s.codec = media.H264
	}
	if audio >= 0 && found.Streams[audio].Channels > 0 {
		a := found.Streams[audio]
		s.sound, s.opus = true, a.Codec == "opus" && a.Channels <= 2
	}
	return s, nil
}

// container is the simplest format that carries a codec over a pipe.
func (s stream) container() string {
	if s.codec == media.H264 || s.codec == media.H265 {
		return "mpegts"
	}
	return "ivf"
}

func (c *Clip) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mute
}

// explain makes ffmpeg's complaints fit to be read. Why a server could not be reached comes first.
func (c *Clip) explain(in input, what string, err error, complaints *tail) error {
	if failed := in.failure(); failed != nil {
		return fmt.Errorf("%s: %w", what, failed)
	}
	lines := strings.Split(strings.TrimSpace(complaints.text()), "\n")
	last := lines[len(lines)-1]
	if last == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	wrapped := fmt.Errorf("%s: %s", what, strings.ReplaceAll(last, pseudoHost, "the server"))
	if c.opts.Address.Kind == source.File {
		return source.Permanent(wrapped)
	}
	return wrapped
}

// tail keeps the last of what a program complained about.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if n := len(t.last) - most; n > 0 {
		t.last = t.last[n:]
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
