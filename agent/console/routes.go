package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/audioapi"
	"touchline/agent/events"
	"touchline/agent/look"
	"touchline/internal/limit"
)

// accessLevel is the access check of a path.
type accessLevel int

const (
	public     accessLevel = iota // the page and the probes: Host and Origin only
	restricted                    // a right in the room too; each method checks which
)

// routes builds the handler: every row of docs/api.md.
func (s *Server) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	add := func(pattern string, level accessLevel, m methods) {
		// Names of models may have slashes.
		mux.Handle(strings.Replace(pattern, "models/{id}", "models/{id...}", 1), s.wrap(s.enter(level, m.serve)))
		for method := range m {
			s.served = append(s.served, method+" "+pattern)
		}
	}
	doc, list := s.describe()
	list = append(list, doc.endpoints()...)
	byPath := map[string]methods{}
	levels := map[string]accessLevel{}
	for _, e := range list {
		if byPath[e.path] == nil {
			byPath[e.path] = methods{}
		}
		byPath[e.path][e.method], levels[e.path] = e.call, e.level
		if e.level == restricted {
			byPath[e.path][e.method] = may(s.needed(e), e.call)
		}
	}
	for path, m := range byPath {
		add(path, levels[path], m)
	}
	mux.Handle("/api/", s.wrap(s.enter(public, func(_ http.ResponseWriter, r *http.Request) error {
		return refuse(http.StatusNotFound, "not_found", "no such path: %s; docs/api.md lists all", r.URL.Path)
	})))

	proxy, err := s.signalProxy()
	if err != nil {
		return nil, err
	}
	proxy = may(access.Needed("/rtc"), proxy)
	mux.Handle("/rtc", s.wrap(s.enter(restricted, proxy)))
	mux.Handle("/rtc/", s.wrap(s.enter(restricted, proxy)))

	if s.opts.WHEP != nil {
		mux.Handle("/whep/", s.wrap(s.servePlayers))
	}
	if s.opts.WHIP != nil {
		mux.Handle("/whip/", s.wrap(s.takeSenders))
	}

	home := roomPage
	if s.single == nil {
		home = roomsPage
	}
	page, err := newPage(s.opts.WebDir, home)
	if err != nil {
		return nil, err
	}
	mux.Handle("/", s.wrap(s.enter(public, elsewhere(slices.Sorted(maps.Keys(byPath)), methods{http.MethodGet: page.serve}))))
	s.served = append(s.served, "GET /")
	add("/rooms/{room}", public, methods{http.MethodGet: page.serve})
	return mux, nil
}

// elsewhere answers a request for a path that is none: with the right one, or as m does.
func elsewhere(paths []string, m methods) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if right := meant(r.URL.Path, paths); right != "" {
			return refuse(http.StatusNotFound, "not_found", "no such path: %s; use %s", r.URL.Path, right)
		}
		return m.serve(w, r)
	}
}

// meant returns the path of OpenAI's API that a client meant: with another prefix, or a slash at the end. It returns "" for none.
func meant(path string, paths []string) string {
	path = strings.TrimRight(path, "/")
	for _, p := range paths {
		if tail, ok := strings.CutPrefix(p, strings.TrimSuffix(inOpenAI, "/")); ok && strings.HasSuffix(path, tail) {
			return p
		}
	}
	return ""
}

// describe lists the operations of the API, with the document about them.
func (s *Server) describe() (*document, []endpoint) {
	doc := newDocument(s)
	s.registerRooms(doc)
	list := doc.found
	for _, e := range slices.Concat(s.inEachRoom(), s.inProcess()) {
		doc.describe(e)
		list = append(list, e)
	}
	return doc, list
}

// inEachRoom returns the operations on a room: below /api for the only room, below /api/rooms/{room} for each.
func (s *Server) inEachRoom() []endpoint {
	var out []endpoint
	for _, e := range slices.Concat(
		s.roomOperations(), sourceOperations(), s.ruleOperations(), promptOperations(), engineOperations(), lookOperations(),
		s.regionOperations()) {
		prefixes := []string{"/api", "/api/rooms/{room}"}
		path := e.path
		if path == "/events" {
			prefixes = prefixes[1:] // /api/events has the events of all rooms
		}
		e.level, e.call = restricted, s.roomHandler(e.inRoom)
		for _, prefix := range prefixes {
			e.path = prefix + path
			out = append(out, e)
		}
	}
	return out
}

// roomOperations returns the operations on a room, with their paths below the room's.
func (s *Server) roomOperations() []endpoint {
	sse := "text/event-stream"
	return append(needing(needsBot,
		get("/status", "The full state", func(h *roomEntry, _ *http.Request) (agent.Snapshot, error) { return h.Bot.Snapshot(), nil }),
		get("/profiles", "The prompt profiles", (*roomEntry).getProfiles),
		get("/settings", "The settings that can change, with their bounds", (*roomEntry).getSettings),
	),
		endpoint{
			method: "GET", path: "/stream", inRoom: s.getStream, summary: "Text as it is generated, then each cycle's record", kind: sse,
		},
		endpoint{method: "GET", path: "/events", inRoom: s.getEvents, summary: "Events of the room", kind: sse},
		order("POST", "/instruction", "Sets the instruction", (*roomEntry).postInstruction),
		order("POST", "/command", "Does a command at once", (*roomEntry).postCommand),
		order("POST", "/say", "Has the voice say a text", (*roomEntry).postSay),
		order("DELETE", "/instruction", "Clears the instruction: idle", (*roomEntry).deleteInstruction),
		order("POST", "/profiles", "Chooses a profile", (*roomEntry).postProfile),
		operation("POST", "/settings", "Changes settings", http.StatusOK, (*roomEntry).postSettings),
		order("POST", "/start", "Starts commenting", (*roomEntry).postStart),
		order("POST", "/stop", "Stops commenting", (*roomEntry).postStop),
		order("POST", "/source", "Selects the source", (*roomEntry).postSource),
		get("/history", "The last comments, oldest first", func(h *roomEntry, _ *http.Request) ([]look.Record, error) {
			return h.Hub.History(), nil
		}),
		s.heardOperation(),
		endpoint{method: "GET", path: "/frame", inRoom: s.getFrame, summary: "The newest picture", kind: "image/jpeg", query: widthParam()},
		endpoint{
			method: "GET", path: "/frames/{id}", inRoom: s.getSeenFrame, summary: "A picture that the model saw", kind: "image/jpeg",
			query: widthParam(),
		},
		endpoint{method: "GET", path: "/mjpeg", inRoom: s.getMJPEG, summary: "The delayed picture", kind: "multipart/x-mixed-replace"},
		endpoint{
			method: "GET", path: "/audio-stream", inRoom: s.getAudio, summary: "The voice, s16le, 48 kHz, mono",
			kind: "application/octet-stream",
		},
		get("/rights", "What this client may do in the room", (*roomEntry).getRights),
		operation("POST", "/links", "Makes a token for a link to share", http.StatusCreated, s.postLink),
		get("/links", "The links of the room that have not expired; for the holder of a link those below it", s.getLinks),
		act("DELETE", "/links/{id}", "Revokes a link and those below it; the holder of a link, one below its own", s.deleteLink),
		operation("POST", "/livekit/token", "A LiveKit token for the room", http.StatusOK, s.postToken),
	)
}

func (s *Server) heardOperation() endpoint {
	e := act("DELETE", "/heard", "Deletes what people in the room said", s.deleteHeard)
	e.query = []*huma.Param{{
		Name: "by", In: "query", Description: "Identity of one of them.", Schema: &huma.Schema{Type: huma.TypeString},
	}}
	return e
}

// widthParam is the parameter of pictures for the width of a thumbnail.
func widthParam() []*huma.Param {
	return []*huma.Param{{
		Name: "w", In: "query", Description: "Width of a thumbnail, in pixels.",
		Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(16.0), Maximum: new(float64(events.MaxFrameSide))},
	}}
}

// inProcess returns the operations on the process.
func (s *Server) inProcess() []endpoint {
	prom := promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{ErrorLog: promLog{s.log}, MaxRequestsInFlight: 4})
	metrics := func(w http.ResponseWriter, r *http.Request) error {
		prom.ServeHTTP(w, r)
		return nil
	}
	return append(slices.Concat(s.speechOperations(), s.transcriptionOperations()), []endpoint{
		{
			method: "POST", path: "/api/login", level: public, call: s.postLogin, summary: "Exchanges the token for a cookie",
			in: loginBody{}, status: http.StatusNoContent,
		},
		{
			method: "GET", path: "/api/events", level: restricted, call: s.getAllEvents, summary: "Events of all rooms",
			kind: "text/event-stream",
		},
		{method: "GET", path: "/metrics", level: restricted, call: metrics, summary: "Prometheus metrics", kind: "text/plain"},
		{method: "GET", path: "/healthz", level: public, call: s.getHealth, summary: "The process is alive", out: health{}},
		{method: "GET", path: "/readyz", level: public, call: s.getReady, summary: "The process is ready", out: health{}},
	}...)
}

// inOpenAI is the prefix of the paths of OpenAI's API.
const inOpenAI = "/v1/"

// speechOperations returns OpenAI's operations. Their errors have OpenAI's form.
func (s *Server) speechOperations() []endpoint {
	api := s.opts.Speech
	if api == nil {
		return nil
	}
	list := []endpoint{
		{
			method: "POST", path: inOpenAI + "audio/speech", level: restricted, call: answers(api.ServeSpeech),
			summary: "Speaks a text, as OpenAI's API",
			in:      audioapi.SpeechBody{}, kind: "audio/*",
		},
		{
			method: "GET", path: inOpenAI + "audio/voices", level: restricted, call: answers(api.ServeVoices),
			summary: "The voices of the speech API",
			out:     audioapi.VoiceList{},
		},
	}
	if s.opts.Transcription == nil {
		list = append(list, modelOperations(api.ServeModels, api.ServeModel)...)
	}
	return list
}

// modelOperations returns the operations on the models of OpenAI's API.
func modelOperations(all, one http.HandlerFunc) []endpoint {
	return []endpoint{
		{
			method: "GET", path: inOpenAI + "models", level: restricted, call: answers(all),
			summary: "The model that transcribes, as OpenAI's API", out: audioapi.ModelList{},
		},
		{
			method: "GET", path: inOpenAI + "models/{id}", level: restricted, call: answers(one),
			summary: "A model by its name", out: audioapi.ModelItem{},
		},
	}
}

// transcriptionOperations returns the operations that turn speech into text.
func (s *Server) transcriptionOperations() []endpoint {
	api := s.opts.Transcription
	if api == nil {
		return nil
	}
	const form = "multipart/form-data"
	list := []endpoint{
		{
			method: "POST", path: inOpenAI + "audio/transcriptions", call: answers(api.ServeTranscriptions),
			summary: "Writes what is said in a recording, as OpenAI's API", in: audioapi.TranscriptionForm{}, inKind: form,
			out: audioapi.Transcription{},
		},
		{
			method: "POST", path: inOpenAI + "audio/transcriptions/stream", call: answers(api.ServeStream),
			summary: "Writes what is said in a recording, one event for each utterance", in: audioapi.TranscriptionForm{}, inKind: form,
			kind: "text/event-stream",
		},
		{
			method: "POST", path: inOpenAI + "audio/translations", call: answers(api.ServeTranslations),
			summary: "Writes in English what is said in a recording, as OpenAI's API", in: audioapi.TranscriptionForm{}, inKind: form,
			out: audioapi.Transcription{},
		},
		{
			method: "POST", path: inOpenAI + "audio/subtitles", call: answers(api.ServeSubtitles), summary: "Subtitles of a recording: srt or vtt",
			in: audioapi.TranscriptionForm{}, inKind: form, kind: "application/x-subrip",
		},
		{
			method: "GET", path: inOpenAI + "realtime", call: answers(api.ServeRealtime), status: http.StatusSwitchingProtocols,
			summary: "WebSocket: transcription sessions of OpenAI's realtime API",
		},
		{
			method: "GET", path: "/ws/transcribe", call: answers(api.ServePlain), status: http.StatusSwitchingProtocols,
			summary: "WebSocket: 16-bit sound in, texts out",
		},
		{
			method: "GET", path: "/health", call: answers(api.ServeHealth), summary: "The state of transcription",
			out: audioapi.TranscriptionHealth{},
		},
	}
	for i := range list {
		list[i].level = restricted
	}
	return append(list, modelOperations(api.ServeModels, api.ServeModel)...)
}

// answers makes an apiFunc of a handler that writes its errors.
func answers(f http.HandlerFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		f(w, r)
		return nil
	}
}

// roomFunc is an apiFunc about one room.
type roomFunc func(h *roomEntry, w http.ResponseWriter, r *http.Request) error

// roomHandler calls f with the room of a request.
func (s *Server) roomHandler(f roomFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		h, err := roomOf(r.Context())
		if errors.Is(err, errSeveralRooms) && visitorOf(r).rights.Allow(access.Process) {
			err = s.severalRooms()
		}
		if err != nil {
			return err
		}
		return f(h, w, r)
	}
}

// namedRooms bounds the room names in an error.
const namedRooms = 10

// find returns the room of a name, or the only room if the name is "".
func (s *Server) find(name string) (*roomEntry, error) {
	if name != "" {
		if h := s.rooms.get(name); h != nil {
			return h, nil
		}
		return nil, refuse(http.StatusNotFound, "no_such_room",
			"no commentator of this process is in the room %.80q; GET /api/rooms lists its rooms", name)
	}
	if s.single != nil {
		return s.single, nil
	}
	list := s.rooms.list()
	switch len(list) {
	case 0:
		return nil, refuse(http.StatusNotFound, "no_room", "this process has no room yet")
	case 1:
		return list[0], nil
	}
	return nil, errSeveralRooms
}

// errSeveralRooms is returned by find for "" if there are several rooms. It names none of them: links are for some rooms only.
var errSeveralRooms = refuse(http.StatusConflict, "several_rooms", "there are several rooms: use /api/rooms/{room}/...")

// severalRooms is errSeveralRooms with the names of the rooms.
func (s *Server) severalRooms() error {
	list := s.rooms.list()
	var names []string
	for _, h := range list[:min(len(list), namedRooms)] {
		names = append(names, strconv.Quote(h.Name))
	}
	if n := len(list) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return refuse(http.StatusConflict, errSeveralRooms.Code, "%s (%s)", errSeveralRooms.Message, strings.Join(names, ", "))
}

// inRooms is the prefix of the paths of a room.
const inRooms = "/api/rooms/{room}"

// needed returns the rights that an endpoint needs.
func (s *Server) needed(e endpoint) access.Rights {
	path, ofRoom := strings.CutPrefix(e.path, inRooms)
	switch {
	case ofRoom && path == "":
		path = "/"
	case !ofRoom && e.inRoom != nil:
		path = strings.TrimPrefix(e.path, "/api")
	case e.path == "/api/events" && s.single != nil:
		path = "/events"
	}
	return access.Needed(e.method + " " + path)
}

// visitorKey is the context key of a request's visitor.
type visitorKey struct{}

// visitorOf returns the client of a request for a restricted path.
func visitorOf(r *http.Request) visitor {
	v, _ := r.Context().Value(visitorKey{}).(visitor)
	return v
}

// may calls h for requests with the needed rights.
func may(needed access.Rights, h apiFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if who := visitorOf(r); !who.rights.Allow(needed) {
			return noRight(needed, who)
		}
		return h(w, r)
	}
}

// noRight returns the answer to a visitor without the needed rights.
func noRight(needed access.Rights, who visitor) error {
	if needed.Allow(access.Process) {
		return refuse(http.StatusForbidden, "no_right", "process-wide operation: use the console token; your link allows %s", who.rights)
	}
	return refuse(http.StatusForbidden, "no_right", "this takes the right to %s, your link allows %s; ask for a link that steers",
		needed, who.rights)
}

// enter sets the headers of every answer, then checks Host, Origin and, for a restricted path, that the client has a right in the room.
func (s *Server) enter(level accessLevel, h apiFunc) apiFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		secure(w.Header())
		if err := s.guard.checkHost(r.Host); err != nil {
			return refuse(http.StatusForbidden, "bad_host", "%v", err)
		}
		if err := s.guard.checkOrigin(r); err != nil {
			return refuse(http.StatusForbidden, "bad_origin", "%v", err)
		}
		if level == public {
			return h(w, r)
		}
		name := r.PathValue("room")
		room, missing := s.find(name)
		if room != nil {
			name = room.Name
		}
		who := s.guard.visitor(r, name, time.Now())
		if who.rights == 0 {
			wait, tried, ok := s.guard.mayTry(r, time.Now())
			if tried { // a guess, like a wrong login
				s.logRefused(r)
			}
			if !ok {
				return tooManyLogins(wait)
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="touchline"`)
			if who.ended != nil {
				return who.ended
			}
			return refuse(http.StatusUnauthorized, "token_needed",
				"a token for this room is required: that of a shared link, the configured one, or the one in the address printed at the "+
					"start (#token=...); log in on the page, or send it as Authorization: Bearer")
		}
		who.room, who.missing = room, missing
		client := who.client(r)
		rate := s.reads
		if changes(r) {
			rate = s.changes
		}
		if wait, ok := rate.Allow(client, time.Now()); !ok {
			return tooMany("requests", wait)
		}
		ctx := limit.WithClient(context.WithValue(r.Context(), visitorKey{}, who), client)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer s.watchRight(who, func(end *problem) {
			s.expired.Inc()
			cancel(end)
		})()
		r = r.WithContext(ctx)
		r.Body = checkedBody{r.Body, func() error { // its sender may take longer than its link lasts
			if end, ok := errors.AsType[*problem](context.Cause(ctx)); ok {
				return end
			}
			return nil
		}}
		return h(w, r)
	}
}

// roomOf returns the room of a request for a restricted path: the one in the path, or the only room. It is the room that enter has checked
// the client's rights for: rooms come and go, and a second look could find another one.
func roomOf(ctx context.Context) (*roomEntry, error) {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v.room, v.missing
}

// secure sets the headers of every answer. The page overrides policy and caching.
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
