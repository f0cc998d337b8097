// Package netfault impairs the network between one LiveKit client and its server, on one machine and without
// privileges: signalling of a client that joins at URL is proxied, and its media passes a UDP relay that drops, delays
// and reorders packets.
//
// The signalling proxy replaces the port in each of the server's ICE candidates with the relay's, and drops the
// client's own candidates. So all media passes the relay, and the server sees the relay's address as the client's
// (a peer-reflexive candidate, RFC 8445 section 7.3.1.3).
//
// It is for tests and benchmarks, and measures nothing itself.
package netfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/livekit/protocol/livekit"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
)

// Options are the options of New.
type Options struct {
	// Signal is the server's HTTP address (host:port), Media its UDP address.
	Signal string
	Media  netip.AddrPort
	// Seed of the impairments.
	Seed uint64
	Log  zerolog.Logger
}

// Proxy is the impaired network. Set may be called at any time.
type Proxy struct {
	opts   Options
	signal net.Listener
	relay  *relay
}

// New opens the proxy's ports on 127.0.0.1.
func New(ctx context.Context, o Options) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the proxy for signalling: %w", err)
	}
	r, err := newRelay(o.Media, o.Seed)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Proxy{opts: o, signal: l, relay: r}, nil
}

// URL returns the address for the client to join.
func (p *Proxy) URL() string { return "ws://" + p.signal.Addr().String() }

// Set changes the impairment of both directions.
func (p *Proxy) Set(i Impairment) { p.relay.set(i) }

// Stats returns the relay's counts so far.
func (p *Proxy) Stats() Stats { return p.relay.counts() }

// Run relays signalling and media until ctx ends, and returns nil then.
func (p *Proxy) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var sockets sync.WaitGroup
	rest := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: p.opts.Signal})
	rest.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !websocket.IsWebSocketUpgrade(r) {
			rest.ServeHTTP(w, r)
			return
		}
		sockets.Add(1)
		defer sockets.Done()
		if err := p.carry(ctx, w, r); err != nil {
			p.opts.Log.Debug().Err(err).Msg("signalling proxy")
		}
	})}
	g.Go(func() error {
		if err := server.Serve(p.signal); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the signalling proxy: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		err := server.Close()
		sockets.Wait() // hijacked: http.Server does not wait for them
		return err
	})
	g.Go(func() error { return p.relay.run(ctx) })
	return g.Wait()
}

// carry proxies one signalling connection.
func (p *Proxy) carry(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	head := http.Header{}
	for _, k := range []string{"Authorization", "User-Agent"} {
		if v := r.Header.Get(k); v != "" {
			head.Set(k, v)
		}
	}
	to := url.URL{Scheme: "ws", Host: p.opts.Signal, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	upstream, res, err := websocket.DefaultDialer.DialContext(ctx, to.String(), head) //nolint:bodyclose // a copy in memory
	if err != nil {
		status := http.StatusBadGateway
		if res != nil {
			status = res.StatusCode
		}
		http.Error(w, err.Error(), status)
		return fmt.Errorf("dial the server: %w", err)
	}
	defer upstream.Close()
	client, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return fmt.Errorf("upgrade the client: %w", err)
	}
	defer client.Close()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return pipe(client, upstream, p.fromClient) })
	g.Go(func() error { return pipe(upstream, client, p.fromServer) })
	g.Go(func() error {
		<-gctx.Done()
		return errors.Join(client.Close(), upstream.Close())
	})
	return g.Wait()
}

// pipe copies messages; edit returns the replacement, nil to drop a message.
func pipe(from, to *websocket.Conn, edit func([]byte) ([]byte, error)) error {
	for {
		kind, msg, err := from.ReadMessage()
		if err != nil {
			return fmt.Errorf("read signalling: %w", err)
		}
		if kind == websocket.BinaryMessage {
			if msg, err = edit(msg); err != nil {
				return err
			}
		}
		if msg == nil {
			continue
		}
		if err := to.WriteMessage(kind, msg); err != nil {
			return fmt.Errorf("write signalling: %w", err)
		}
	}
}

// fromClient drops the client's candidates.
func (p *Proxy) fromClient(raw []byte) ([]byte, error) {
	m := &livekit.SignalRequest{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read the client's signalling: %w", err)
	}
	if m.GetTrickle() != nil {
		return nil, nil
	}
	return edited(m, raw, func(string) string { return "" }, m.GetOffer(), m.GetAnswer())
}

// fromServer replaces the server's candidates with the relay's.
func (p *Proxy) fromServer(raw []byte) ([]byte, error) {
	m := &livekit.SignalResponse{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read the server's signalling: %w", err)
	}
	toRelay := func(line string) string { return redirect(line, p.opts.Media, p.relay.addr()) }
	trickle := m.GetTrickle()
	if trickle == nil {
		return edited(m, raw, toRelay, m.GetOffer(), m.GetAnswer())
	}
	// The candidate is a string within JSON; nothing in it needs escaping.
	before, rest, ok := strings.Cut(trickle.GetCandidateInit(), `"candidate:`)
	line, after, end := strings.Cut(rest, `"`)
	if !ok || !end {
		return raw, nil
	}
	if line = toRelay("candidate:" + line); line == "" {
		return nil, nil
	}
	trickle.CandidateInit = before + `"` + line + `"` + after
	return proto.Marshal(m)
}

// edited returns message m (raw) with the candidates of its description edited, if it has one.
func edited(m proto.Message, raw []byte, edit func(line string) string, descriptions ...*livekit.SessionDescription) ([]byte, error) {
	for _, d := range descriptions {
		if d != nil {
			d.Sdp = editSDP(d.GetSdp(), edit)
			return proto.Marshal(m)
		}
	}
	return raw, nil
}

// editSDP replaces each candidate by the result of edit, and drops it when that is "".
func editSDP(sdp string, edit func(line string) string) string {
	var b strings.Builder
	for line := range strings.Lines(sdp) {
		if candidate, ok := strings.CutPrefix(line, "a=candidate:"); ok {
			if candidate = edit("candidate:" + strings.TrimRight(candidate, "\r\n")); candidate == "" {
				continue
			}
			line = "a=" + candidate + "\r\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// redirect rewrites a candidate (RFC 8839, section 5.1) of the address from to the address to, and returns "" for others.
func redirect(candidate string, from, to netip.AddrPort) string {
	f := strings.Fields(candidate)
	const transport, address, port = 2, 4, 5
	if len(f) <= port || !strings.EqualFold(f[transport], "udp") || f[address] != from.Addr().String() || f[port] != portOf(from) {
		return ""
	}
	f[address], f[port] = to.Addr().String(), portOf(to)
	return strings.Join(f, " ")
}

func portOf(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }
