package whip

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pion/webrtc/v4"
)

// Bounds of what strangers send.
const (
	maxOffer = 64 << 10
	maxToken = 8 << 10
	maxRoom  = 128
	maxID    = 64

	offerType    = "application/sdp"
	fragmentType = "application/trickle-ice-sdpfrag"
)

// handler answers below /whip/.
type handler struct{ s *Server }

// Handler answers /whip/ROOM and /whip/ROOM/SESSION. Addresses of requests are
// taken from RemoteAddr: a proxy in front has to set it.
func (s *Server) Handler() http.Handler { return &handler{s} }

// ServeHTTP implements http.Handler. It never redirects: a POST would become a GET.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "Location, ETag, Link, Accept-Post, Accept-Patch, Retry-After")
	w.Header().Set("Cache-Control", "no-store")
	room, id, ok := splitPath(r.URL)
	if !ok {
		problem(w, http.StatusNotFound, "expected /whip/ROOM")
		return
	}
	session := strings.Contains(strings.TrimPrefix(r.URL.EscapedPath(), "/whip/"), "/")
	if r.Method == http.MethodPost && !session {
		h.post(w, r, room) // has a limit of its own
		return
	}
	if wait, ok := h.s.touch.allow(address(r), h.s.opts.Now()); !ok {
		tooMany(w, wait)
		return
	}
	switch {
	case r.Method == http.MethodOptions:
		h.options(w, r, room, session)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNoContent)
	case session && r.Method == http.MethodPatch:
		h.patch(w, r, room, id)
	case session && r.Method == http.MethodDelete:
		h.remove(w, room, id)
	default:
		w.Header().Set("Allow", allowed(session))
		problem(w, http.StatusMethodNotAllowed, "expected one of "+allowed(session)+" here, got "+r.Method)
	}
}

func allowed(session bool) string {
	if session {
		return "PATCH, DELETE, OPTIONS, GET, HEAD"
	}
	return "POST, OPTIONS, GET, HEAD"
}

// splitPath reads /whip/ROOM and /whip/ROOM/SESSION.
func splitPath(u *url.URL) (room, id string, ok bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/whip/")
	if !ok {
		return "", "", false
	}
	room, id, has := strings.Cut(rest, "/")
	room, err := url.PathUnescape(room)
	if err != nil || room == "" || len(room) > maxRoom || len(id) > maxID || has && id == "" || strings.Contains(id, "/") {
		return "", "", false
	}
	return room, id, true
}

func address(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // all whose address is unknown share a limit
	}
	return ap.Addr().Unmap()
}

// token is the bearer token (RFC 6750 section 2.1), also without the word
// Bearer, which some programs leave out, or the key= of the URL.
func token(r *http.Request) string {
	t := strings.TrimSpace(r.Header.Get("Authorization"))
	if word, rest, ok := strings.Cut(t, " "); ok && strings.EqualFold(word, "Bearer") {
		t = strings.TrimSpace(rest)
	}
	if t == "" {
		t = r.URL.Query().Get("key")
	}
	if len(t) > maxToken {
		return ""
	}
	return t
}

// post takes an offer (RFC 9725 section 4.2).
func (h *handler) post(w http.ResponseWriter, r *http.Request, room string) {
	s := h.s
	from := address(r)
	if wait, ok := s.limit.allow(from, s.opts.Now()); !ok {
		tooMany(w, wait)
		return
	}
	who, err := s.authorize(token(r), room)
	if err != nil {
		h.refuse(w, err)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != offerType {
		w.Header().Set("Accept-Post", offerType)
		problem(w, http.StatusUnsupportedMediaType, "expected "+offerType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOffer))
	if err != nil {
		tooLarge(w, err, maxOffer)
		return
	}
	o, err := readOffer(string(body))
	if err != nil {
		offerProblem(w, err)
		return
	}
	if !s.reserve() {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, "no room for another sender now")
		return
	}
	x, err := s.newSession(r.Context(), o, room, who, from)
	if err != nil {
		s.release(nil)
		offerProblem(w, err)
		return
	}
	if err := s.place(x); err != nil {
		x.end("no place for it")
		_ = x.pc.GracefulClose()
		s.release(nil)
		x.log.Warn().Err(err).Msg("no place for a WHIP session")
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, "the room cannot take a picture now")
		return
	}
	go x.run() // the server waits for it in Run
	x.log.Info().Stringer("address", from).Msg("WHIP session begins")

	for _, server := range s.opts.ICEServers {
		addLinks(w.Header(), server)
	}
	w.Header().Set("Content-Type", offerType)
	w.Header().Set("Location", strings.TrimSuffix(r.URL.EscapedPath(), "/")+"/"+x.id)
	w.Header().Set("ETag", x.etag)
	w.Header().Set("Accept-Patch", fragmentType)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, x.answer) // a sender that is gone does not connect
}

// patch takes candidates or an ICE restart (section 4.3).
func (h *handler) patch(w http.ResponseWriter, r *http.Request, room, id string) {
	x := h.s.find(room, id)
	if x == nil {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != fragmentType {
		w.Header().Set("Accept-Patch", fragmentType)
		problem(w, http.StatusUnsupportedMediaType, "expected "+fragmentType)
		return
	}
	match := r.Header.Get("If-Match")
	if match == "" {
		problem(w, http.StatusPreconditionRequired, errNoTag.Error())
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFragment))
	if err != nil {
		tooLarge(w, err, maxFragment)
		return
	}
	f, err := readFragment(body)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	answer, etag, err := x.patch(r.Context(), match, f)
	switch {
	case errors.Is(err, errStale):
		problem(w, http.StatusPreconditionFailed, err.Error())
	case errors.Is(err, errOver):
		problem(w, http.StatusNotFound, "no such session")
	case errors.Is(err, errMalformed), errors.Is(err, errNotAnswering):
		problem(w, http.StatusUnprocessableEntity, err.Error())
	case err != nil:
		x.log.Warn().Err(err).Msg("WHIP session cannot restart ICE")
		problem(w, http.StatusInternalServerError, "the ICE restart did not succeed; the session goes on as it was")
	case answer == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", fragmentType)
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, answer) // a sender that is gone does not connect
	}
}

// remove ends a session (section 4.2), whatever entity-tag is sent.
func (h *handler) remove(w http.ResponseWriter, room, id string) {
	x := h.s.find(room, id)
	if x == nil {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	x.End("the sender ended it")
	w.WriteHeader(http.StatusOK)
}

// options answers CORS and says what is taken. ICE servers are told to those
// who may send, and not in a preflight (section 4.6).
func (h *handler) options(w http.ResponseWriter, r *http.Request, room string, session bool) {
	w.Header().Set("Allow", allowed(session))
	w.Header().Set("Access-Control-Allow-Methods", allowed(session))
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Link")
	w.Header().Set("Access-Control-Max-Age", "86400")
	w.Header().Set("Accept-Post", offerType)
	if session {
		w.Header().Set("Accept-Patch", fragmentType)
	} else if r.Header.Get("Access-Control-Request-Method") == "" {
		if _, err := h.s.authorize(token(r), room); err == nil {
			for _, server := range h.s.opts.ICEServers {
				addLinks(w.Header(), server)
			}
		}
	}
	w.WriteHeader(http.StatusOK)
}

func (h *handler) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrForbidden) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="whip", error="insufficient_scope"`)
		problem(w, http.StatusForbidden, ErrForbidden.Error())
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="whip"`)
	problem(w, http.StatusUnauthorized, ErrNoToken.Error())
}

// addLinks writes Link headers (RFC 8288) for one server.
func addLinks(header http.Header, server webrtc.ICEServer) {
	for _, u := range server.URLs {
		link := "<" + u + `>; rel="ice-server"`
		if credential, ok := server.Credential.(string); ok && server.Username != "" {
			link += fmt.Sprintf("; username=%q; credential=%q; credential-type=\"password\"", server.Username, credential)
		}
		header.Add("Link", link)
	}
}

func offerProblem(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	if errors.Is(err, errMalformed) {
		status = http.StatusBadRequest
	}
	problem(w, status, err.Error())
}

func tooLarge(w http.ResponseWriter, err error, most int) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		problem(w, http.StatusRequestEntityTooLarge, "expected at most "+strconv.Itoa(most)+" bytes")
		return
	}
	problem(w, http.StatusBadRequest, "the request broke off")
}

func tooMany(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
	problem(w, http.StatusTooManyRequests, "too many requests from this address")
}

// problem answers with a problem statement (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // a sender that is gone does not read it
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}
