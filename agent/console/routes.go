package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

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

	// What there is in every room: below /api of the only one, below /api/rooms/{room} of each.
	for path, calls := range map[string]map[string]roomFunc{
		"/status":        {http.MethodGet: s.getStatus},
		"/events":        {http.MethodGet: s.getEvents},
		"/stream":        {http.MethodGet: s.getStream},
		"/instruction":   {http.MethodPost: s.postInstruction, http.MethodDelete: s.deleteInstruction},
		"/profiles":      {http.MethodGet: s.getProfiles, http.MethodPost: s.postProfile},
		"/settings":      {http.MethodPost: s.postSettings},
		"/start":         {http.MethodPost: s.postStart},
		"/stop":          {http.MethodPost: s.postStop},
		"/source":        {http.MethodPost: s.postSource},
		"/history":       {http.MethodGet: s.getHistory},
		"/frame":         {http.MethodGet: s.getFrame},
		"/frames/{id}":   {http.MethodGet: s.getSeenFrame},
		"/mjpeg":         {http.MethodGet: s.getMJPEG},
		"/audio-stream":  {http.MethodGet: s.getAudio},
		"/livekit/token": {http.MethodPost: s.postToken},
	} {
		m := methods{}
		for method, call := range calls {
			m[method] = s.inRoom(call)
		}
		add("/api"+path, guarded, m)
		add("/api/rooms/{room}"+path, guarded, m)
	}
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
	add("/rooms/{room}", public, get(page.serve))
	return mux, nil
}

// roomFunc is an apiFunc about one room.
type roomFunc func(h *hosted, w http.ResponseWriter, r *http.Request) error

// inRoom finds the room that a request is about: the one that its path names,
// else the only one.
func (s *Server) inRoom(f roomFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		h, err := s.find(r.PathValue("room"))
		if err != nil {
			return err
		}
		return f(h, w, r)
	}
}

// namedRooms is how many rooms an error names at most.
const namedRooms = 10

// find returns the room of a name, or the only one when the name is "".
func (s *Server) find(name string) (*hosted, error) {
	if name != "" {
		if h := s.rooms.get(name); h != nil {
			return h, nil
		}
		return nil, refuse(http.StatusNotFound, "no_such_room",
			"no commentator of this process is in a room %.80q; GET /api/rooms lists those that are", name)
	}
	if s.single != nil {
		return s.single, nil
	}
	list := s.rooms.list()
	switch len(list) {
	case 0:
		return nil, refuse(http.StatusNotFound, "no_room", "no room has a commentator of this process yet")
	case 1:
		return list[0], nil
	}
	var names []string
	for _, h := range list[:min(len(list), namedRooms)] {
		names = append(names, strconv.Quote(h.Name))
	}
	if n := len(list) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return nil, refuse(http.StatusConflict, "several_rooms",
		"there are several rooms: say which by /api/rooms/{room}/... (%s)", strings.Join(names, ", "))
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
