// Package file plays video files, HTTP video and HLS in real time.
//
// An ffmpeg process reads the container. It copies H264, H265, VP8, VP9 and AV1,
// and transcodes other video to H264 and sound to Opus. Its network access goes
// through a proxy, which checks the addresses that are really dialled and keeps
// passwords off the command line. The package owns those processes, the proxy and
// the pacing. It does not decode.
package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"touchline/internal/child"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/source"
)

// Options of a Clip.
type Options struct {
	source.Access // of a file, or with http or https

	// Loop repeats a file. A stream that ends is reopened by its Supervisor.
	Loop bool
	// Start is the position to begin at.
	Start time.Duration
	// Height is the most rows of a stream's variant, 0 for 720.
	Height int
	// Copy passes codecs that a room carries, also with key frames that are far apart.
	Copy bool
}

// Clip is a file or a stream.
type Clip struct {
	opts  Options
	known *stream // as last played
	slow  slowness

	started map[string]time.Time // the newest start of each program
	start   func()               // reports a start
	help    map[string][]byte    // ffmpeg's, by topic
}

const (
	maxHelp = 4 << 20 // bytes
	helpCPU = 10      // seconds
	// spacing is the least time between two starts of a program.
	spacing = time.Second
	// firstTime bounds the wait for the first picture of a stream, below the limit of a Supervisor.
	firstTime     = 14 * time.Second
	defaultHeight = 720
)

// New checks the options and finds ffmpeg. It opens nothing.
func New(o Options) (*Clip, error) {
	switch {
	case o.Now == nil:
		return nil, source.Errorf("file.Options.Now is not set")
	case o.Start < 0:
		return nil, source.Errorf("start %v: must not be negative", o.Start)
	case o.Address.Kind == source.File && o.Address.Path != "":
	case o.Address.Kind == source.HTTP && o.Address.URL != nil:
	default:
		return nil, source.Errorf("the address is no file and no http or https URL")
	}
	for _, program := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(program); err != nil {
			what := "a video file"
			if o.Address.Kind == source.HTTP {
				what = "an HLS or HTTP stream"
			}
			return nil, source.Errorf("%s needs the program %s, which is not installed: apt-get install ffmpeg", what, program)
		}
	}
	o.Height = cmp.Or(o.Height, defaultHeight)
	return &Clip{opts: o, slow: slowness{patience: patience}, started: map[string]time.Time{}, help: map[string][]byte{}}, nil
}

// Pull implements source.Puller.
func (c *Clip) Pull(ctx context.Context, out source.Sink) error {
	in, err := c.input()
	if err != nil {
		return err
	}
	if c.start = out.Started; c.start == nil {
		c.start = func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pace := newPacer(c.opts.Now, out)
	if c.opts.Address.Kind == source.HTTP {
		p, err := newProxy(ctx, c.opts)
		if err != nil {
			return err
		}
		defer p.close()
		in.url, in.env, in.port = p.url(), p.environment(), p.port()
		in.failure, in.listed = p.failure, p.listed.Load
		late := time.AfterFunc(firstTime, func() {
			if !pace.showed() {
				cancel(noPicture(p.failure()))
			}
		})
		defer late.Stop()
	}
	for {
		err = c.open(ctx, in, pace)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// noPicture is the error of a stream whose first picture is late.
func noPicture(why error) error {
	if why == nil {
		return source.Errorf("connected, but no picture within %v", firstTime)
	}
	return source.Errorf("no picture within %v: %w", firstTime, why)
}

// open looks at the clip, unless it is known, and plays it. A clip whose sound cannot be played is played without.
func (c *Clip) open(ctx context.Context, in input, pace *pacer) (err error) {
	if c.known == nil {
		if c.known, err = c.probe(ctx, in); err != nil && in.listed() {
			in.extra = append(in.extra, c.anyNames(ctx)...)
			c.known, err = c.probe(ctx, in)
		}
		if err != nil {
			return err
		}
	} else if c.known.hls {
		in.extra = append(in.extra, c.anyNames(ctx)...)
	}
	s := *c.known
	pace.reopen(s.finite || c.opts.Address.Kind == source.File)
	played, err := c.play(ctx, in, s, pace)
	if !played && ctx.Err() == nil && s.audio >= 0 {
		s.audio = -1
		var without error
		if played, without = c.play(ctx, in, s, pace); played {
			c.opts.Log.Warn().Err(err).Msg("clip played without its sound")
			c.known, err = &s, without
		}
	}
	changed := errors.Is(err, errChanged)
	if changed {
		c.slow = slowness{patience: patience}
	}
	if changed || !played {
		c.known = nil
	}
	return err
}

// spaced waits until a program may start again.
func (c *Clip) spaced(ctx context.Context, program string) error {
	if err := wake.Sleep(ctx, c.started[program].Add(spacing).Sub(c.opts.Now())); err != nil {
		return err
	}
	c.started[program] = c.opts.Now()
	c.start()
	return nil
}

// offers reports whether ffmpeg's help about a topic contains a text. Builds of one version differ.
func (c *Clip) offers(ctx context.Context, topic, text string) bool {
	if c.help[topic] == nil {
		c.start()
		cmd := exec.CommandContext(ctx, "ffmpeg", "-hide_banner", "-h", topic)
		c.help[topic], _, _ = child.Run(cmd, child.Limits{Memory: programMemory, CPU: helpCPU}, maxHelp) // an unknown topic has no options
	}
	return bytes.Contains(c.help[topic], []byte(text))
}

// anyNames returns the options that accept segments of any name, as far as ffmpeg has them.
func (c *Clip) anyNames(ctx context.Context) (options []string) {
	for _, o := range [][]string{{"-extension_picky", "0"}, {"-allowed_segment_extensions", "ALL"}, {"-allowed_extensions", "ALL"}} {
		if c.offers(ctx, "demuxer=hls", o[0]+" ") {
			options = append(options, o...)
		}
	}
	return options
}

const (
	programMemory = 2 << 30 // of ffmpeg, in bytes, besides its pictures; most of it is the address space of threads
	bytesPerPixel = 128     // of all the pictures that ffmpeg holds
	filesOfStream = 256     // descriptors: a stream has connections
)

// limits of a program that decodes pictures of so many pixels.
func (in input) limits(pixels int) child.Limits {
	memory := programMemory + uint64(pixels)*bytesPerPixel //nolint:gosec // at most codec.MaxPixels
	return child.Limits{Memory: memory, Files: filesOfStream, Read: in.read, Port: in.port}
}

// formats are the containers and playlists that a server may send. Others, such as IMF and concat, open further addresses in ways of
// their own.
const formats = "hls,dash,mpegts,mov,matroska,flv,live_flv,mpeg,mpegvideo,avi,asf,ogg,ivf,h264,hevc,obu,av1,m4v,vc1,mjpeg,mpjpeg,image2," +
	"jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,gif,apng,dv,mxf,nut,rm,aac,ac3,eac3,mp3,flac,wav,webvtt"

// input of ffmpeg and ffprobe.
type input struct {
	url       string
	protocols string
	extra     []string
	env       []string
	failure   func() error // why a server could not be reached
	listed    func() bool  // whether the server's answer is a playlist
	info      os.FileInfo  // of a file
	read      []string     // the files that are allowed
	port      int          // of the proxy
}

func (c *Clip) input() (input, error) {
	a := c.opts.Address
	if a.Kind == source.HTTP {
		return input{
			protocols: "http,tcp,crypto,data",
			extra: []string{
				"-rw_timeout", "10000000", "-user_agent", "touchline", "-analyzeduration", "2000000", "-format_whitelist", formats,
			},
		}, nil
	}
	if !c.opts.Allow.Files {
		return input{}, source.Errorf("%w: files of this machine can be opened from its command line only", source.ErrNotAllowed)
	}
	info, err := os.Stat(a.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return input{}, source.Errorf("file %s does not exist; it is opened when it appears", a)
	case err != nil:
		return input{}, source.Errorf("open the file: %w", errors.Unwrap(err)) // without the folder
	case info.IsDir():
		return input{}, source.Permanent(source.Errorf("%s is a folder; name a file in it", a))
	case !info.Mode().IsRegular():
		return input{}, source.Permanent(source.Errorf("%s is not a regular file", a))
	case info.Size() == 0:
		return input{}, source.Errorf("file %s is empty", a)
	}
	in := input{
		url: "file:" + a.Path, protocols: "file,pipe", info: info,
		failure: func() error { return nil }, listed: func() bool { return false }, read: []string{a.Path},
	}
	if lists := []string{".m3u8", ".m3u", ".mpd"}; slices.Contains(lists, strings.ToLower(filepath.Ext(a.Path))) {
		in.read = []string{filepath.Dir(a.Path)} // a playlist names files beside it
	}
	if pictures := []string{".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}; strings.Contains(a.Path, "%") &&
		slices.Contains(pictures, strings.ToLower(filepath.Ext(a.Path))) {
		in.extra = []string{"-f", "image2", "-pattern_type", "none"} // no pattern of numbered files
	}
	return in, nil
}

// command returns an ffmpeg or ffprobe command with options before and after the input, and its error output.
func (in input) command(ctx context.Context, program string, before, after []string) (*exec.Cmd, *tail) {
	args := slices.Concat([]string{"-v", "error", "-protocol_whitelist", in.protocols}, in.extra, before, []string{"-i", in.url}, after)
	cmd := exec.CommandContext(ctx, program, args...)
	stderr := &tail{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// container returns the format for a pipe.
func (n *stream) container() string {
	if n.codec == media.H264 || n.codec == media.H265 {
		return "mpegts"
	}
	return "ivf"
}
