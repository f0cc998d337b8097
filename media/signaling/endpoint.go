package signaling

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"touchline/internal/limit"
)

// Bounds on untrusted input.
const (
	maxOffer = 64 << 10
	maxToken = 8 << 10
	maxRoom  = 128
	maxID    = 64

	offerType    = "application/sdp"
	fragmentType = "application/trickle-ice-sdpfrag"
)

// ServeHTTP implements http.Handler. It never redirects, as a redirected POST becomes a GET.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "Location, ETag, Link, Accept-Post, Accept-Patch, Retry-After")
	w.Header().Set("Cache-Control", "no-store")
	room, id, ok := Split(s.opts.Name, r.URL)
	if !ok {
		problem(w, http.StatusNotFound, "expected /"+s.opts.Name+"/ROOM")
		return
	}
	session := strings.Contains(strings.TrimPrefix(r.URL.EscapedPath(), "/"+s.opts.Name+"/"), "/")
	requests := s.others
	if !session && (r.Method == http.MethodPost || r.Method == http.MethodOptions && !preflight(r)) {
		requests = s.posts // they check a token
	}
	if wait, ok := requests.Allow(limit.Network(address(r)), s.opts.Now()); !ok {
		s.detention.Wait(r.Context())
		refuseWith(w, TooMany(wait))
		return
	}
	switch {
	case !session && r.Method == http.MethodPost:
		s.post(w, r, room)
	case r.Method == http.MethodOptions:
		s.options(w, r, room, session)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		if s.opts.Head == "" || session {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", s.opts.Head)
	case session && r.Method == http.MethodPatch:
		s.patch(w, r, room, id)
	case session && r.Method == http.MethodDelete:
		s.remove(w, room, id)
	default:
		w.Header().Set("Allow", allowed(session))
		problem(w, http.StatusMethodNotAllowed, "expected one of "+allowed(session)+" here, got "+r.Method)
	}
}

// preflight reports whether an OPTIONS request is one of a browser before another one (CORS).
func preflight(r *http.Request) bool { return r.Header.Get("Access-Control-Request-Method") != "" }

func allowed(session bool) string {
	if session {
		return "PATCH, DELETE, OPTIONS, GET, HEAD"
	}
	return "POST, OPTIONS, GET, HEAD"
}

// Split returns the room and the session, if any, of the path /NAME/ROOM or /NAME/ROOM/SESSION. The name of a room may have slashes,
// which are escaped.
func Split(name string, u *url.URL) (room, id string, ok bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/"+name+"/")
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
		return netip.IPv6Unspecified() // unknown addresses share one limit
	}
	return ap.Addr().Unmap()
}

// Token returns the request's bearer token (RFC 6750 section 2.1), with or
// without the word Bearer, or else the key= of the URL.
func Token(r *http.Request) string {
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

// post answers an offer (RFC 9725 section 4.2, WHEP section 4.2).
func (s *Server) post(w http.ResponseWriter, r *http.Request, room string) {
	client, err := s.opts.Authorize(r, Token(r), room)
	if err != nil {
		s.refuse(w, err)
		return
	}
	offer, ok := readBody(w, r, offerType, "Accept-Post", maxOffer)
	if !ok {
		return
	}
	who := limit.ClientOf(r.Context())
	who.From = address(r)
	x, err := s.opts.Accept(limit.WithClient(r.Context(), who), Request{Room: room, Client: client, SDP: string(offer), From: address(r)})
	if err != nil {
		refuseWith(w, err)
		return
	}
	s.addLinks(w)
	w.Header().Set("Content-Type", offerType)
	w.Header().Set("Location", strings.TrimSuffix(r.URL.EscapedPath(), "/")+"/"+x.id)
	w.Header().Set("ETag", x.peer.tag())
	w.Header().Set("Accept-Patch", fragmentType)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, x.peer.firstAnswer) // a client that is gone does not connect
}

// patch adds candidates or restarts ICE (section 4.3).
func (s *Server) patch(w http.ResponseWriter, r *http.Request, room, id string) {
	x := s.find(room, id)
	if x == nil {
		refuseWith(w, errOver)
		return
	}
	body, ok := readBody(w, r, fragmentType, "Accept-Patch", maxFragment)
	if !ok {
		return
	}
	match := r.Header.Get("If-Match")
	if match == "" && !s.opts.Untagged {
		refuseWith(w, errNoTag)
		return
	}
	f, err := readFragment(body)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	answer, etag, err := x.peer.patch(r.Context(), match, f)
	refused, ok := errors.AsType[*statusError](err)
	switch {
	case errors.Is(err, ErrMalformed):
		problem(w, http.StatusUnprocessableEntity, err.Error())
	case ok:
		problem(w, refused.status, err.Error())
	case err != nil:
		s.opts.Log.Warn().Err(err).Str("room", room).Str("kind", s.opts.Name).Msg("ICE restart failed")
		problem(w, http.StatusInternalServerError, "the ICE restart failed; the session continues as before")
	case answer == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", fragmentType)
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, answer) // a client that is gone does not connect
	}
}

// readBody returns the body of a request. For an unexpected type (the header accept names the expected one), or more than
// most bytes, it answers the request.
func readBody(w http.ResponseWriter, r *http.Request, expected, accept string, most int64) (body []byte, ok bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != expected {
		w.Header().Set(accept, expected)
		problem(w, http.StatusUnsupportedMediaType, "expected "+expected)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("expected at most %d bytes", most))
	} else if err != nil {
		problem(w, http.StatusBadRequest, "the request body is incomplete")
	}
	return body, err == nil
}

// remove ends a session (section 4.2). It ignores If-Match.
func (s *Server) remove(w http.ResponseWriter, room, id string) {
	x := s.find(room, id)
	if x == nil {
		refuseWith(w, errOver)
		return
	}
	x.End("the " + s.opts.Client + " ended it")
	w.WriteHeader(http.StatusOK)
}

// options answers CORS requests. ICE servers are listed for authorised clients
// only, and not in a preflight (section 4.6).
func (s *Server) options(w http.ResponseWriter, r *http.Request, room string, session bool) {
	w.Header().Set("Allow", allowed(session))
	w.Header().Set("Access-Control-Allow-Methods", allowed(session))
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Link")
	w.Header().Set("Access-Control-Max-Age", "86400")
	w.Header().Set("Accept-Post", offerType)
	if session {
		w.Header().Set("Accept-Patch", fragmentType)
	} else if !preflight(r) {
		if _, err := s.opts.Authorize(r, Token(r), room); err == nil {
			s.addLinks(w)
		}
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrForbidden) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.opts.Name+`", error="insufficient_scope"`)
		problem(w, http.StatusForbidden, s.opts.Forbidden)
		return
	}
	if e, ok := errors.AsType[*statusError](err); ok && e.status == http.StatusTooManyRequests {
		refuseWith(w, err)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.opts.Name+`"`)
	problem(w, http.StatusUnauthorized, ErrNoToken.Error())
}

// addLinks writes Link headers (RFC 8288) for the ICE servers.
func (s *Server) addLinks(w http.ResponseWriter) {
	for _, server := range s.opts.ICEServers {
		for _, u := range server.URLs {
			link := "<" + u + `>; rel="ice-server"`
			if credential, ok := server.Credential.(string); ok && server.Username != "" {
				link += fmt.Sprintf("; username=%q; credential=%q; credential-type=\"password\"", server.Username, credential)
			}
			w.Header().Add("Link", link)
		}
	}
}

// refuseWith answers with the status of err, 422 if it has none.
func refuseWith(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	if e, ok := errors.AsType[*statusError](err); ok {
		status = e.status
		if e.retryAfter != "" {
			w.Header().Set("Retry-After", e.retryAfter)
		}
	}
	problem(w, status, err.Error())
}

// problem answers with a problem statement (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // a client that is gone does not read it
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}
