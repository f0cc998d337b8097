// Package file plays video files, HTTP video and HLS in real time.
//
// An ffmpeg process reads the container. It copies H264, H265, VP8, VP9 and AV1,
// and transcodes other video to H264 and sound to Opus. Its network access goes
// through a proxy, which checks the addresses that are really dialled and keeps
// passwords off the command line. The package owns those processes, the proxy and
// the pacing. It does not decode.
package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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
	// Loop repeats a file. A stream that ends is reopened by its Supervisor.
	Loop bool
	// Start is the position to begin at.
	Start time.Duration
	// Insecure accepts any certificate of the stream's server.
	Insecure bool
	// Allow selects the addresses that may be dialled, and whether files may be read.
	Allow source.Allow
	Now   func() time.Time
	Log   zerolog.Logger
}

// Clip is a file or a stream.
type Clip struct {
	opts  Options
	known *stream // as last played
	mute  bool    // ffmpeg has no Opus encoder
}

// stream is the result of ffprobe.
type stream struct {
	codec         media.Codec
	copied        bool // otherwise transcoded to H264
	width, height int
	sound         bool
	opus          bool // the sound is copied
}

// Time limits of the processes.
const (
	probeTime = 15 * time.Second
	waitDelay = time.Second // for a killed process's pipes
)

// New checks the options and finds ffmpeg. It opens nothing.
func New(o Options) (*Clip, error) {
	switch {
	case o.Now == nil:
		return nil, errors.New("file.Options.Now is not set")
	case o.Start < 0:
		return nil, fmt.Errorf("start %v: must not be negative", o.Start)
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
	if c.known == nil {
		if c.known, err = c.probe(ctx, in); err != nil {
			return err
		}
	}
	played, err := c.play(ctx, in, *c.known, out)
	if !played {
		c.known = nil
	}
	return err
}

// input of ffmpeg and ffprobe.
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
		return input{}, fmt.Errorf("%w: files of this machine can be opened from its command line only", source.ErrNotAllowed)
	}
	info, err := os.Stat(a.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return input{}, source.Permanent(fmt.Errorf("file %s does not exist", a.Path))
	case err != nil:
		return input{}, fmt.Errorf("open the file: %w", err)
	case !info.Mode().IsRegular():
		return input{}, source.Permanent(fmt.Errorf("%s is not a regular file", a.Path))
	}
	return input{url: "file:" + a.Path, protocols: "file,pipe", failure: func() error { return nil }}, nil
}

// command returns an ffmpeg or ffprobe command with options before and after the input, and its error output.
func (in input) command(ctx context.Context, program string, before, after []string) (*exec.Cmd, *tail) {
	args := slices.Concat([]string{"-v", "error", "-protocol_whitelist", in.protocols}, in.extra, before, []string{"-i", in.url}, after)
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the URL is one argument, checked
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}, in.env...)
	cmd.WaitDelay = waitDelay
	stderr := &tail{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// probe runs ffprobe.
func (c *Clip) probe(ctx context.Context, in input) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd, stderr := in.command(ctx, "ffprobe", nil, []string{
		"-show_entries", "stream=codec_type,codec_name,pix_fmt,width,height,channels", "-of", "json",
	})
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look at the video: no answer within %v", probeTime)
	}
	if err != nil {
		return nil, c.explain(in, "look at the video", err, stderr)
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
	codecs := map[string]media.Codec{"h264": media.H264, "hevc": media.H265, "vp8": media.VP8, "vp9": media.VP9, "av1": media.AV1}
	if codec, ok := codecs[v.Codec]; ok && (codec != media.VP9 && codec != media.AV1 || v.Format == "yuv420p") {
		s.codec, s.copied = codec, true
	}
	if audio >= 0 && found.Streams[audio].Channels > 0 {
		a := found.Streams[audio]
		s.sound, s.opus = true, a.Codec == "opus" && a.Channels <= 2
	}
	return s, nil
}

// container returns the format for a pipe.
func (s stream) container() string {
	if s.codec == media.H264 || s.codec == media.H265 {
		return "mpegts"
	}
	return "ivf"
}

// explain returns the error of the proxy, or else ffmpeg's last line.
func (c *Clip) explain(in input, what string, err error, stderr *tail) error {
	if failed := in.failure(); failed != nil {
		return fmt.Errorf("%s: %w", what, failed)
	}
	text := strings.TrimSpace(stderr.text())
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if last == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	wrapped := fmt.Errorf("%s: %s", what, strings.ReplaceAll(last, pseudoHost, "the server"))
	if c.opts.Address.Kind == source.File {
		return source.Permanent(wrapped)
	}
	return wrapped
}

// tail keeps the end of a program's output.
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
