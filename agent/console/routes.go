package console

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// access is what a route asks of whoever comes.
type access int

const (
	public  access = iota // the page and the probes: Host and Origin only
	guarded               // the token too, where one is needed
)

// routes builds the handler: every row of docs/api.md.
func (s *Server) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	add := func(pattern string, a access, m methods) {
		mux.Handle(pattern, s.wrap(s.enter(a, m.serve)))
	}
	get := func(h apiFunc) methods { return methods{http.MethodGet: h} }
	post := func(h apiFunc) methods { return methods{http.MethodPost: h} }

	add("/api/status", guarded, get(s.getStatus))
	add("/api/events", guarded, get(s.getEvents))
	add("/api/stream", guarded, get(s.getStream))
	add("/api/instruction", guarded, methods{http.MethodPost: s.postInstruction, http.MethodDelete: s.deleteInstruction})
	add("/api/profiles", guarded, methods{http.MethodGet: s.getProfiles, http.MethodPost: s.postProfile})
	add("/api/settings", guarded, post(s.postSettings))
	add("/api/start", guarded, post(s.postStart))
	add("/api/stop", guarded, post(s.postStop))
	add("/api/source", guarded, post(s.postSource))
	add("/api/history", guarded, get(s.getHistory))
	add("/api/frame", guarded, get(s.getFrame))
	add("/api/frames/{id}", guarded, get(s.getSeenFrame))
	add("/api/mjpeg", guarded, get(s.getMJPEG))
	add("/api/audio-stream", guarded, get(s.getAudio))
	add("/api/livekit/token", guarded, post(s.postToken))
	add("/api/login", public, post(s.postLogin))
	add("/api/", public, methods{}.missing())

	prom := promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{
		ErrorLog: promLog{s.log}, MaxRequestsInFlight: 4,
	})
	add("/metrics", guarded, get(func(w http.ResponseWriter, r *http.Request) error {
		prom.ServeHTTP(w, r)
		return nil
	}))
	add("/healthz", public, get(s.getHealth))
	add("/readyz", public, get(s.getReady))

	proxy, err := s.signalProxy()
	if err != nil {
		return nil, err
	}
	mux.Handle("/rtc", s.wrap(s.enter(guarded, proxy)))
	mux.Handle("/rtc/", s.wrap(s.enter(guarded, proxy)))

	page, err := newPage(s.opts.WebDir)
	if err != nil {
		return nil, err
	}
	add("/", public, get(page.serve))
	return mux, nil
}

// missing answers any method: there is no such path.
func (m methods) missing() methods {
	none := func(_ http.ResponseWriter, r *http.Request) error {
		return refuse(http.StatusNotFound, "not_found", "there is no %s; docs/api.md lists what there is", r.URL.Path)
	}
	for _, name := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	} {
		m[name] = none
	}
	return m
}

// enter is the door: headers for every answer, then Host, Origin and token.
func (s *Server) enter(a access, h apiFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		secure(w.Header())
		if err := s.guard.checkHost(r.Host); err != nil {
			return refuse(http.StatusForbidden, "bad_host", "%v", err)
		}
		if err := s.guard.checkOrigin(r); err != nil {
			return refuse(http.StatusForbidden, "bad_origin", "%v", err)
		}
		if a == guarded && !s.guard.authorized(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="touchline"`)
			return refuse(http.StatusUnauthorized, "token_needed",
				"a token is needed from here: open the page by the address printed at the start (it ends in #token=...), "+
					"or send it as Authorization: Bearer")
		}
		return h(w, r)
	}
}

// secure sets the headers that every answer carries; the page sets its own
// policy and caching over them.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(self), microphone=(self), display-capture=(self), autoplay=(self)")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
