package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"touchline/agent/access"
	"touchline/agent/camera"
	"touchline/agent/console"
	"touchline/internal/limit"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/transcode"
	"touchline/media/source/whip"
)

// cameraCmd publishes a source into a room, without a bot.
type cameraCmd struct {
	Source string `arg:"" optional:"" help:"URL (rtsp, rtsps, http, https), device (/dev/video0, webcam) or file." placeholder:"SOURCE"`

	URL      string `help:"LiveKit server (ws://, wss://); overrides LIVEKIT_URL." name:"url" placeholder:"URL"`
	Room     string `help:"Room to publish in; overrides the settings." placeholder:"NAME"`
	Identity string `help:"Identity of the camera's participant." default:"camera" placeholder:"NAME"`
	Name     string `help:"Display name of the participant." default:"Camera" placeholder:"NAME"`

	openFlags

	H265  bool     `help:"Publish H265 as it is; common browsers cannot play it." name:"h265"`
	Allow []string `help:"Sources that may be opened: public, private, loopback, link-local, files, all." default:"all" placeholder:"KIND,..."`

	Whip     string   `help:"Take WHIP senders at http://HOST:PORT/whip/ROOM instead of opening a source." placeholder:"HOST:PORT"`
	WhipKeys []string `help:"Keys of WHIP senders, besides LiveKit tokens; 8 characters or more. Other users of this machine see them; those of TOUCHLINE_SOURCES_WHIP_KEYS are hidden." name:"whip-key" placeholder:"[IDENTITY=]KEY"` //nolint:lll // tags
	WhipPort int      `help:"UDP port for media of WHIP senders, 0 for a free one." placeholder:"PORT"`
	WhipMany bool     `help:"Accept several senders per key; otherwise the newest replaces the one before."`
	WhipIP   []string `help:"Public addresses to announce, behind a router." name:"whip-ip" placeholder:"IP"`
	TLS      bool     `help:"Take WHIP senders over TLS, with the certificate of the settings or a self-signed one." name:"tls"`
}

// endless marks a command that serves until it is interrupted.
func (*cameraCmd) endless() {}

// Validate refuses flags of a source with --whip, and WHIP flags without it, which would have no effect.
func (c *cameraCmd) Validate(kctx *kong.Context) error {
	if c.Whip == "" {
		if name := firstGiven(kctx, "whip-key", "whip-port", "whip-many", "whip-ip", "tls"); name != "" {
			return fmt.Errorf("--%s: there is no WHIP server; start it with --whip HOST:PORT", name)
		}
		return nil
	}
	if name := firstGiven(kctx, append(openFlagNames(), "allow")...); name != "" {
		return fmt.Errorf("--%s: --whip opens no source; leave out one of them", name)
	}
	return nil
}

// Run publishes until Ctrl-C, or until the source has ended or failed for good.
func (c *cameraCmd) Run(ctx context.Context, a *app) error {
	if (c.Source == "") == (c.Whip == "") {
		return errors.New("name either a source (touchline camera URL|DEVICE|FILE) or --whip HOST:PORT")
	}
	o := c.options(a)
	if c.Whip != "" {
		return c.serve(ctx, a, o)
	}
	allow, err := source.ParseAllow(c.Allow)
	if err != nil {
		return fmt.Errorf("read --allow: %w", err)
	}
	puller, address, err := c.open(c.Source, allow, a.cfg.Sources, a.log)
	if err != nil {
		return err
	}
	f, err := camera.New(o)
	if err != nil {
		return err
	}
	a.log.Info().Stringer("source", address).Str("room", o.Room).Str("participant", o.Identity).Msg("publishing source")
	return f.Play(ctx, puller, address.Hide)
}

// options returns the room, its server and the camera's participant.
func (c *cameraCmd) options(a *app) camera.Options {
	lk := a.cfg.Agent.LiveKit
	lk.URL = cmp.Or(c.URL, lk.URL)
	lk.Room = cmp.Or(c.Room, lk.Room)
	o := camera.Options{
		URL: lk.URL, Keys: lk.Keys(), Room: lk.Room,
		Identity: c.Identity, Name: c.Name, Mode: transcode.Mode(a.cfg.Sources.Transcode), H265: c.H265 || a.cfg.Sources.PassHEVC,
		Memory: a.cfg.Sources.Decoders(), Log: a.log,
		OnStatus: statusPrinter(), OnReason: func(reason string) {
			if reason != "" {
				fmt.Fprintf(os.Stdout, "  The picture is transcoded: %s.\n", reason)
			}
		},
	}
	if lk.Token != "" && c.Whip == "" {
		o.Token = string(lk.Token)
	}
	return o
}

// statusPrinter returns a function that prints changes of a source's state.
func statusPrinter() func(source.Status) {
	var last source.Status
	return func(s source.Status) {
		if s.Advice != "" && s.Advice != last.Advice {
			fmt.Fprintln(os.Stdout, " ", s.Advice)
		}
		last.Advice = s.Advice
		if s.State == last.State && s.Width == last.Width && s.Height == last.Height && s.Codec == last.Codec {
			return
		}
		last = s
		switch s.State {
		case source.Live:
			fmt.Fprintf(os.Stdout, "  Live: %s, %d x %d\n", camera.CodecName(s), s.Width, s.Height)
		case source.Waiting:
			fmt.Fprintf(os.Stdout, "  Waiting for the camera: %s\n", s.Reason)
		case source.Stalled:
			fmt.Fprintln(os.Stdout, "  The camera is connected, but sends no picture.")
		case source.Connecting, source.Failed, source.Ended:
		}
	}
}

// serve serves WHIP senders.
func (c *cameraCmd) serve(ctx context.Context, a *app, o camera.Options) error {
	keys, err := c.keys(o.Room, a.cfg.Sources.WHIP)
	if err != nil {
		return err
	}
	o.OnStatus = nil // there may be several senders; their states are in the log
	o.Keys.Links = access.NewLinks(nil, nil, time.Now())
	senders := camera.NewSenders(o)
	server, err := whip.New(whip.Options{
		Keys: keys, Authorize: camera.Authorize(o.Keys), Open: senders.Open, Many: c.WhipMany,
		PortOptions: signaling.PortOptions{
			UDPPort: c.WhipPort, ExternalIPs: c.WhipIP, ICEServers: a.cfg.Agent.Console.ICE.ICEServers(),
		},
		Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Whip)
	if err != nil {
		return fmt.Errorf("listen for WHIP senders: %w", err)
	}
	settings := a.cfg.Agent.Console.Config
	pageFlags{TLS: c.TLS, Listen: listener.Addr().String()}.apply(&settings)
	secure, err := console.TLSConfig(settings, time.Now, o.Log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	listener = limit.NewConnections(maxConnections, nil).Bind(listener)
	scheme := "http"
	if secure != nil {
		scheme, secure.NextProtos = "https", []string{"http/1.1"}
		listener = tls.NewListener(listener, secure)
	}
	web := boundedServer(server)
	fmt.Fprintf(os.Stdout, "\n  WHIP senders go to %s://%s/whip/%s\n\n", scheme, listener.Addr(), o.Room)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return senders.Run(ctx) })
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve WHIP: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return web.Close()
	})
	return g.Wait()
}

// keys reads the stream keys: those of the settings and of the command line. Each admits one sender to the room.
func (c *cameraCmd) keys(name string, cfg camera.WHIPConfig) ([]whip.StreamKey, error) {
	out, err := cfg.StreamKeys()
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(k whip.StreamKey) bool { return k.Room != "" && k.Room != name })
	for i := range out {
		out[i].Room, out[i].Name = name, out[i].Identity
	}
	for i, text := range c.WhipKeys {
		identity, key, ok := strings.Cut(text, "=")
		if !ok {
			identity, key = c.Identity, text
			if i > 0 {
				identity = fmt.Sprintf("%s-%d", c.Identity, i+1)
			}
		}
		if identity == "" || len(key) < 8 {
			return nil, fmt.Errorf("--whip-key %d: too short; use 8 characters or more", i+1)
		}
		out = append(out, whip.StreamKey{Key: key, Room: name, Identity: identity, Name: c.Name})
	}
	return out, nil
}
