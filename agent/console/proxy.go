package console

import (
	"fmt"
	stdlog "log" //nolint:depguard // net/http reports by it; logWriter leads to the injected logger
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"touchline/internal/limit"
)

// signalProxy forwards /rtc with its WebSockets to the LiveKit server, so that a browser needs one port and one certificate. LiveKit
// checks its own token; the console's token is not forwarded.
func (s *Server) signalProxy() (apiFunc, error) {
	if s.opts.SignalURL == "" {
		return func(http.ResponseWriter, *http.Request) error {
			return refuse(http.StatusServiceUnavailable, "no_room", "no LiveKit server is configured")
		}, nil
	}
	target, err := url.Parse(s.opts.SignalURL)
	if err != nil {
		return nil, fmt.Errorf("%w: LiveKit's URL: %w", ErrConfig, err)
	}
	scheme, ok := map[string]string{"ws": "http", "http": "http", "wss": "https", "https": "https"}[target.Scheme]
	if !ok || target.Host == "" {
		return nil, fmt.Errorf("%w: LiveKit's URL: must be ws://HOST or wss://HOST, is %q", ErrConfig, s.opts.SignalURL)
	}
	warnings := limit.New[struct{}](loginLogRate, loginLogBurst) // each request of a client may cause one
	target = &url.URL{Scheme: scheme, Host: target.Host, Path: strings.TrimSuffix(target.Path, "/")}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
			hideSecrets(r.Out.Header, s.guard)
			// Compression costs the server over 1 MB per connection, and signalling is short.
			r.Out.Header.Del("Sec-WebSocket-Extensions")
		},
		ModifyResponse: func(resp *http.Response) error {
			// The guard checks access, and enter has set the headers.
			for name := range resp.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					resp.Header.Del(name)
				}
			}
			resp.Header.Del("X-Request-Id")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client disconnected
			}
			if _, ok := warnings.Allow(struct{}{}, time.Now()); ok {
				s.log.Warn().Err(err).Msg("LiveKit server unreachable")
			}
			p := refuse(http.StatusBadGateway, "no_room", "cannot reach the LiveKit server: %v", err)
			p.Request = w.Header().Get("X-Request-ID")
			_ = writeJSON(w, p.status, p) // three strings always marshal
		},
		ErrorLog: stdlog.New(logWriter{s.log}, "", 0),
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		r, seat, err := seated(r, s.signals, "", "too_many_sockets")
		if err != nil {
			return err
		}
		defer seat.Leave()
		proxy.ServeHTTP(w, r)
		return nil
	}, nil
}

// hideSecrets removes the console's token from a forwarded request and keeps LiveKit's token.
func hideSecrets(h http.Header, g *guard) {
	r := http.Request{Header: h}
	if t, ok := bearer(&r); ok && (equal(t, g.token) || g.granted(t, "", time.Now()).rights != 0) {
		h.Del("Authorization")
	}
	cookies := r.Cookies()
	rest := slices.DeleteFunc(slices.Clone(cookies), func(c *http.Cookie) bool { return c.Name == tokenCookie })
	if len(rest) == len(cookies) {
		return
	}
	h.Del("Cookie")
	for _, c := range rest {
		r.AddCookie(c)
	}
}
