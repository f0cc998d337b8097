// Package signaling is the HTTP and ICE side that WHIP (RFC 9725) and WHEP
// (draft-ietf-wish-whep) share: a resource that answers an SDP offer with one
// WebRTC session, and the settings of STUN and TURN.
//
// It owns the HTTP exchange ([Endpoint]), the WebRTC connection behind it ([Peer]),
// the UDP port of all connections ([Port]) and the limits on untrusted input. It
// neither sends nor receives media, and leaves authorisation to its user.
package signaling

import (
	"cmp"
	"context"
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
	"github.com/rs/zerolog"

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

var (
	// ErrNoToken is returned by Endpoint.Authorize when the token is missing, unknown or expired; the answer is 401.
	ErrNoToken = errors.New("the token is missing, unknown or expired")
	// ErrForbidden is returned by Endpoint.Authorize when the token does not give this right; the answer is 403.
	ErrForbidden = errors.New("the token does not allow this in this room")
	// ErrNotFound is returned by Endpoint.Accept when there is no such room; the answer is 404.
	ErrNotFound = errors.New("no such room")
	// ErrNotLive is returned by Endpoint.Accept before the first picture; the answer is 409 with Retry-After.
	ErrNotLive = errors.New("no picture yet")
	// ErrBusy is returned by Endpoint.Accept when a later retry may succeed; the answer is 503.
	ErrBusy = errors.New("no capacity for another session")
)

// Resource is one session.
type Resource interface {
	// ID returns the unguessable last part of the session's URL.
	ID() string
	// Peer returns the session's connection.
	Peer() *Peer
	// End ends the session and returns when it is over.
	End(reason string)
}

// Bounds limit what clients of one server may do. Zero values are replaced by the
// server's defaults.
type Bounds struct {
	// MaxSessions bounds the sessions of all clients together.
	MaxSessions int
	// PerMinute and Burst bound the POSTs of one address, IPv6 by /64 network, and twenty times as many other
	// requests; negative is no limit.
	PerMinute, Burst int
	// ConnectTime is how long a session may take to connect.
	ConnectTime time.Duration
}

// Or returns b with its zero values replaced by those of defaults.
func (b Bounds) Or(defaults Bounds) Bounds {
	return Bounds{
		MaxSessions: cmp.Or(b.MaxSessions, defaults.MaxSessions), PerMinute: cmp.Or(b.PerMinute, defaults.PerMinute),
		Burst: cmp.Or(b.Burst, defaults.Burst), ConnectTime: cmp.Or(b.ConnectTime, defaults.ConnectTime),
	}
}

// EndpointOptions make an Endpoint.
type EndpointOptions struct {
	// Name is the first part of the path and the realm; Client is the word for a client in texts.
	Name, Client string
	// Authorize checks a request for a room; its result is passed to Accept.
	Authorize func(r *http.Request, token, room string) (client any, err error)
	// Forbidden is the text of a 403: the right that a token must give.
	Forbidden string
	// Accept makes a session from an offer. An error that wraps none of this package's is answered with 422.
	Accept func(ctx context.Context, room string, client any, offer string, from netip.Addr) (Resource, error)
	// Find returns the session of an id.
	Find func(room, id string) (Resource, bool)
	// ICEServers are sent to clients in Link headers.
	ICEServers []webrtc.ICEServer
	// Head is the Content-Type in the answer to GET and HEAD, by which players recognise the endpoint; "" for none.
	Head string
	// Untagged accepts candidates without If-Match, as some clients send them, if ufrag and pwd are those of the ICE session.
	Untagged bool
	// Bounds limit requests; Accept has to enforce the limits of sessions.
	Bounds Bounds
	Now    func() time.Time
	Log    zerolog.Logger
}

// Endpoint serves /NAME/ROOM and /NAME/ROOM/SESSION. A client's address is the
// request's RemoteAddr, which a reverse proxy's middleware has to set.
type Endpoint struct {
	EndpointOptions

	posts, others *limit.Limiter[netip.Addr]
}

// NewEndpoint returns an Endpoint that serves requests at once.
func NewEndpoint(o EndpointOptions) *Endpoint {
	perSecond, burst := float64(o.Bounds.PerMinute)/60, float64(o.Bounds.Burst)
	return &Endpoint{
		EndpointOptions: o,
		posts:           limit.New[netip.Addr](perSecond, burst),
		others:          limit.New[netip.Addr](20*perSecond, 20*burst),
	}
}

// ServeHTTP implements http.Handler. It never redirects, as a redirected POST becomes a GET.
func (h *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Expose-Headers", "Location, ETag, Link, Accept-Post, Accept-Patch, Retry-After")
	w.Header().Set("Cache-Control", "no-store")
	room, id, ok := h.split(r.URL)
	if !ok {
		problem(w, http.StatusNotFound, "expected /"+h.Name+"/ROOM")
		return
	}
	session := strings.Contains(strings.TrimPrefix(r.URL.EscapedPath(), "/"+h.Name+"/"), "/")
	if r.Method == http.MethodPost && !session {
		h.post(w, r, room) // has its own limit
		return
	}
	if wait, ok := h.others.Allow(limit.Network(address(r)), h.Now()); !ok {
		tooMany(w, wait)
		return
	}
	switch {
	case r.Method == http.MethodOptions:
		h.options(w, r, room, session)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		if h.Head != "" && !session {
			w.Header().Set("Content-Type", h.Head)
			w.WriteHeader(http.StatusOK)
			return
		}
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

// split reads /NAME/ROOM and /NAME/ROOM/SESSION.
func (h *Endpoint) split(u *url.URL) (room, id string, ok bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/"+h.Name+"/")
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
func (h *Endpoint) post(w http.ResponseWriter, r *http.Request, room string) {
	from := address(r)
	if wait, ok := h.posts.Allow(limit.Network(from), h.Now()); !ok {
		tooMany(w, wait)
		return
	}
	client, err := h.Authorize(r, Token(r), room)
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
	x, err := h.Accept(r.Context(), room, client, string(body), from)
	if err != nil {
		offerProblem(w, err)
		return
	}
	for _, server := range h.ICEServers {
		addLinks(w.Header(), server)
	}
	w.Header().Set("Content-Type", offerType)
	w.Header().Set("Location", strings.TrimSuffix(r.URL.EscapedPath(), "/")+"/"+x.ID())
	w.Header().Set("ETag", x.Peer().ETag())
	w.Header().Set("Accept-Patch", fragmentType)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, x.Peer().Answer()) // a client that is gone does not connect
}

// patch adds candidates or restarts ICE (section 4.3).
func (h *Endpoint) patch(w http.ResponseWriter, r *http.Request, room, id string) {
	x, ok := h.Find(room, id)
	if !ok {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != fragmentType {
		w.Header().Set("Accept-Patch", fragmentType)
		problem(w, http.StatusUnsupportedMediaType, "expected "+fragmentType)
		return
	}
	match := r.Header.Get("If-Match")
	if match == "" && !h.Untagged {
		problem(w, http.StatusPreconditionRequired, errNoTag.Error())
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFragment))
	if err != nil {
		tooLarge(w, err, maxFragment)
		return
	}
	f, err := ReadFragment(body)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	answer, etag, err := x.Peer().Patch(r.Context(), match, f)
	switch {
	case errors.Is(err, errNoTag):
		problem(w, http.StatusPreconditionRequired, err.Error())
	case errors.Is(err, errStale):
		problem(w, http.StatusPreconditionFailed, err.Error())
	case errors.Is(err, errOver):
		problem(w, http.StatusNotFound, "no such session")
	case errors.Is(err, ErrMalformed), errors.Is(err, errNotAnswering):
		problem(w, http.StatusUnprocessableEntity, err.Error())
	case err != nil:
		h.Log.Warn().Err(err).Str("room", room).Str("kind", h.Name).Msg("ICE restart failed")
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

// remove ends a session (section 4.2). It ignores If-Match.
func (h *Endpoint) remove(w http.ResponseWriter, room, id string) {
	x, ok := h.Find(room, id)
	if !ok {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	x.End("the " + h.Client + " ended it")
	w.WriteHeader(http.StatusOK)
}

// options answers CORS requests. ICE servers are listed for authorised clients
// only, and not in a preflight (section 4.6).
func (h *Endpoint) options(w http.ResponseWriter, r *http.Request, room string, session bool) {
	w.Header().Set("Allow", allowed(session))
	w.Header().Set("Access-Control-Allow-Methods", allowed(session))
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Link")
	w.Header().Set("Access-Control-Max-Age", "86400")
	w.Header().Set("Accept-Post", offerType)
	if session {
		w.Header().Set("Accept-Patch", fragmentType)
	} else if r.Header.Get("Access-Control-Request-Method") == "" {
		if _, err := h.Authorize(r, Token(r), room); err == nil {
			for _, server := range h.ICEServers {
				addLinks(w.Header(), server)
			}
		}
	}
	w.WriteHeader(http.StatusOK)
}

func (h *Endpoint) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrForbidden) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+h.Name+`", error="insufficient_scope"`)
		problem(w, http.StatusForbidden, h.Forbidden)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+h.Name+`"`)
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
	switch {
	case errors.Is(err, ErrMalformed):
		status = http.StatusBadRequest
	case errors.Is(err, ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, ErrNotLive):
		w.Header().Set("Retry-After", "2")
		status = http.StatusConflict
	case errors.Is(err, ErrBusy):
		w.Header().Set("Retry-After", "5")
		status = http.StatusServiceUnavailable
	}
	problem(w, status, err.Error())
}

func tooLarge(w http.ResponseWriter, err error, most int) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		problem(w, http.StatusRequestEntityTooLarge, "expected at most "+strconv.Itoa(most)+" bytes")
		return
	}
	problem(w, http.StatusBadRequest, "the request body is incomplete")
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
	_ = json.NewEncoder(w).Encode(struct { // a client that is gone does not read it
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}
