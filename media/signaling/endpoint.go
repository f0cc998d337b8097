// Package signaling is what WHIP (RFC 9725) and WHEP (its sibling for players, an
// IETF draft of the same working group, WISH) have in common: an HTTP resource
// that answers an SDP offer with one WebRTC session.
//
// It owns the HTTP conversation ([Endpoint]), the WebRTC connection behind it
// ([Peer]), the UDP port of all of them ([Port]) and the bounds on what strangers
// send. It does not know which way media goes, nor who may send or watch.
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

// Bounds of what strangers send.
const (
	maxOffer = 64 << 10
	maxToken = 8 << 10
	maxRoom  = 128
	maxID    = 64

	offerType    = "application/sdp"
	fragmentType = "application/trickle-ice-sdpfrag"
)

var (
	// ErrNoToken is returned by Endpoint.Authorize when the token is missing, unknown or expired: answered with 401.
	ErrNoToken = errors.New("expected a token that this server knows")
	// ErrForbidden is returned by Endpoint.Authorize when the token is good for something else: answered with 403.
	ErrForbidden = errors.New("expected a token for this room that allows it")
	// ErrNotFound is returned by Endpoint.Accept when there is no such room: answered with 404.
	ErrNotFound = errors.New("there is no such room here")
	// ErrNotLive is returned by Endpoint.Accept when there is nothing to watch yet: answered with 409 and Retry-After.
	ErrNotLive = errors.New("nothing to be seen yet")
	// ErrBusy is returned by Endpoint.Accept when another time is better: answered with 503.
	ErrBusy = errors.New("no room for another one now")
)

// Resource is one session.
type Resource interface {
	// ID is unguessable.
	ID() string
	// Peer is its connection.
	Peer() *Peer
	// End ends it and returns when it is over.
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
	// Name is the path's first part and the realm, Client what its clients are called.
	Name, Client string
	// Authorize judges a request for a room; what it returns is given to Accept.
	Authorize func(r *http.Request, token, room string) (who any, err error)
	// Forbidden says what a token must allow, in words.
	Forbidden string
	// Accept makes a session of an offer. Errors that wrap none of this package's are answered with 422.
	Accept func(ctx context.Context, room string, who any, offer string, from netip.Addr) (Resource, error)
	// Find returns the session of an id.
	Find func(room, id string) (Resource, bool)
	// ICEServers are told in Link headers.
	ICEServers []webrtc.ICEServer
	// Head is the Content-Type that GET and HEAD of the endpoint name, by which players find out what it is; "" for none.
	Head string
	// Untagged lets candidates in without If-Match, as some clients send them, when ufrag and pwd name the ICE session under way.
	Untagged bool
	// Bounds of requests; those of sessions are Accept's to hold.
	Bounds Bounds
	Now    func() time.Time
	Log    zerolog.Logger
}

// Endpoint answers below a path of one kind, /whip/ROOM and /whip/ROOM/SESSION.
// Addresses of requests are taken from RemoteAddr: a proxy in front has to set it.
type Endpoint struct {
	EndpointOptions

	posts, others *limit.Limiter[netip.Addr]
}

// NewEndpoint makes one.
func NewEndpoint(o EndpointOptions) *Endpoint {
	perSecond, burst := float64(o.Bounds.PerMinute)/60, float64(o.Bounds.Burst)
	return &Endpoint{
		EndpointOptions: o,
		posts:           limit.New[netip.Addr](perSecond, burst),
		others:          limit.New[netip.Addr](20*perSecond, 20*burst),
	}
}

// ServeHTTP implements http.Handler. It never redirects: a POST would become a GET.
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
		h.post(w, r, room) // has a limit of its own
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
		return netip.IPv6Unspecified() // all whose address is unknown share a limit
	}
	return ap.Addr().Unmap()
}

// Token is the bearer token (RFC 6750 section 2.1), also without the word
// Bearer, which some programs leave out, or the key= of the URL.
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

// post takes an offer (RFC 9725 section 4.2, WHEP section 4.2).
func (h *Endpoint) post(w http.ResponseWriter, r *http.Request, room string) {
	from := address(r)
	if wait, ok := h.posts.Allow(limit.Network(from), h.Now()); !ok {
		tooMany(w, wait)
		return
	}
	who, err := h.Authorize(r, Token(r), room)
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
	x, err := h.Accept(r.Context(), room, who, string(body), from)
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

// patch takes candidates or an ICE restart (section 4.3).
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
		h.Log.Warn().Err(err).Str("room", room).Str("kind", h.Name).Msg("an ICE restart did not succeed")
		problem(w, http.StatusInternalServerError, "the ICE restart did not succeed; the session goes on as it was")
	case answer == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", fragmentType)
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, answer) // a client that is gone does not connect
	}
}

// remove ends a session (section 4.2), whatever entity-tag is sent.
func (h *Endpoint) remove(w http.ResponseWriter, room, id string) {
	x, ok := h.Find(room, id)
	if !ok {
		problem(w, http.StatusNotFound, "no such session")
		return
	}
	x.End("the " + h.Client + " ended it")
	w.WriteHeader(http.StatusOK)
}

// options answers CORS and says what is taken. ICE servers are told to those
// who may come, and not in a preflight (section 4.6).
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
	_ = json.NewEncoder(w).Encode(struct { // a client that is gone does not read it
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}
