package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/media/source"
	"touchline/media/source/catalog"
	"touchline/media/source/rtsp"
	"touchline/media/source/transcode"
	"touchline/media/source/webcam"
)

// openFlags are the options of a source.
type openFlags struct {
	Transport string        `help:"RTSP over tcp or udp; auto is tcp, then udp if the camera refuses tcp." enum:"auto,tcp,udp" default:"auto"`
	Insecure  bool          `help:"Accept any certificate; most cameras have a self-signed one."`
	Header    []string      `help:"Header for the server of an HTTP address, 'Name: value'; repeatable." placeholder:"TEXT" sep:"none"`
	Once      bool          `help:"Play a file once instead of in a loop."`
	Start     time.Duration `help:"Start position in a file." default:"0s" placeholder:"DURATION"`
	Interval  time.Duration `help:"Interval between single JPEG pictures over HTTP." default:"500ms" placeholder:"DURATION"`
	Size      string        `help:"Picture size of a webcam." default:"1280x720" placeholder:"WxH"`
	FPS       float64       `help:"Frame rate of a webcam." default:"30" name:"fps" placeholder:"N"`
}

// open returns the puller for an address. It opens nothing yet.
func (o openFlags) open(text string, allow source.Allow, cfg camera.Config, log zerolog.Logger) (source.Puller, source.Address, error) {
	address, err := source.ParseAddress(text)
	if err != nil {
		return nil, address, err
	}
	if address.Kind == source.File {
		if address.Path, err = filepath.Abs(address.Path); err != nil {
			return nil, address, fmt.Errorf("find the file: %w", err)
		}
		if _, err := os.Stat(address.Path); errors.Is(err, os.ErrNotExist) {
			return nil, address, fmt.Errorf("source %s: no such file", address.Path)
		}
	}
	var w webcam.Options
	if _, err := fmt.Sscanf(o.Size, "%dx%d", &w.Width, &w.Height); err != nil {
		return nil, address, fmt.Errorf("--size %q: expected WxH such as 1280x720", o.Size)
	}
	w.FPS = o.FPS
	header, err := source.ParseHeader(o.Header)
	switch {
	case err != nil:
		return nil, address, fmt.Errorf("--header: %w", err)
	case len(header) > 0 && address.Kind != source.HTTP:
		return nil, address, errors.New("--header: only http:// and https:// addresses have headers")
	}
	transport := rtsp.Transport(o.Transport)
	if o.Transport == "auto" {
		transport = rtsp.Auto
	}
	puller, err := catalog.Open(catalog.Options{
		Access:    source.Access{Address: address, Allow: allow, Insecure: o.Insecure, Header: header, Now: time.Now, Log: log},
		Transport: transport, Height: cfg.Height, Copy: cfg.Transcode == string(transcode.Off),
		Loop: !o.Once, Start: o.Start, Interval: o.Interval, Webcam: w,
	})
	return puller, address, err
}

// openFlagNames returns the names of openFlags.
func openFlagNames() []string {
	return []string{"transport", "insecure", "header", "once", "start", "interval", "size", "fps"}
}

// firstGiven returns the first of the flags on the command line, "" if there is none.
func firstGiven(kctx *kong.Context, names ...string) string {
	for _, p := range kctx.Path {
		if p.Flag != nil && slices.Contains(names, p.Flag.Name) {
			return p.Flag.Name
		}
	}
	return ""
}

// sourceFlags are the flags of commands with a bot: the source it watches, and the sources its page may open.
type sourceFlags struct {
	Source string   `help:"Source to watch: URL (rtsp, rtsps, http, https), device (/dev/video0, webcam) or file." placeholder:"SOURCE"`
	Allow  []string `help:"Sources that page and API may open; overrides sources.allow: public, private, loopback, link-local, files, all, none." placeholder:"KIND,..."` //nolint:lll // tags

	openFlags
}

// Validate refuses options of a source without one, which would change nothing.
func (f sourceFlags) Validate(kctx *kong.Context) error {
	if name := firstGiven(kctx, openFlagNames()...); name != "" && f.Source == "" {
		return fmt.Errorf("--%s: there is no source to open; name it with --source", name)
	}
	return nil
}

// allowed returns the sources that page and API may open: from the command line, the settings, or the command's default.
func allowed(flag, setting []string, fitting source.Allow) (source.Allow, error) {
	words := flag
	if len(words) == 0 {
		words = setting
	}
	if len(words) == 0 {
		return fitting, nil
	}
	allow, err := source.ParseAllow(words)
	if err != nil {
		return source.Allow{}, fmt.Errorf("--allow or sources.allow: %w", err)
	}
	return allow, nil
}

// sources prepares the sources of the bot's room. identity is the participant of --source, "" for a generated name.
func (f sourceFlags) sources(ctx context.Context, b *bot.Bot, a *app, listen, identity string) (*bot.Sources, error) {
	allow, err := allowed(f.Allow, a.cfg.Sources.Allow, source.AllowCameras())
	if err != nil {
		return nil, err
	}
	ip, err := mediaIP(ctx, listen)
	if err != nil {
		return nil, err
	}
	o := bot.SourcesOptions{Allow: allow, LoopbackOnly: ip == ""}
	if f.Source != "" {
		puller, address, err := f.open(f.Source, source.AllowEverything(), a.cfg.Sources, a.log)
		if err != nil {
			return nil, err
		}
		o.First = &bot.FirstSource{Puller: puller, Address: address, Identity: identity}
	}
	return b.NewSources(o)
}
