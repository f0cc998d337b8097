package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"touchline/internal/limit"
)

// ParseJSON is parseJSON; status is that of a refusal, 0 without one.
func ParseJSON(body []byte, v any) (status int, err error) {
	err = parseJSON(body, v, false)
	if p, ok := errors.AsType[*problem](err); ok {
		status = p.status
	}
	return status, err
}

// Hurry sets how long a request may take, and an answer twice as long; before Run.
func Hurry(s *Server, d time.Duration) { s.readTime, s.writeTime = d, 2*d }

// Unlimited removes the limits of logins and requests; before Run.
func Unlimited(s *Server) {
	s.guard.logins, s.guard.cookies, s.guard.allLogins = nil, nil, nil
	s.reads, s.changes, s.pictures, s.deletions = nil, nil, nil, nil
}

// Connections sets the number of places of TCP connections; before Run.
func Connections(s *Server, all int64) {
	*s.accepted = *limit.NewConnections(all, s.guard.proxies.trust)
}

// StandStill is as if the process had stood still for a time until now.
func StandStill(s *Server, d time.Duration) { s.still.Check(time.Now().Add(-d)) }

// HostName is hostName.
func HostName(host string) (string, bool) { return hostName(host) }

// Bounds that tests reach.
const (
	MaxStreams = maxStreams
	MaxChanges = maxChanges
	StillFresh = stillFresh
)

// LabelledRooms is labelledRooms.
const LabelledRooms = labelledRooms

// RoomLabel is roomLabel.
func RoomLabel(name string) string { return roomLabel(name) }

// Routes lists "METHOD /path" of everything that is served.
func Routes(s *Server) []string { return s.served }

// Handler serves requests without a listener.
func Handler(s *Server) http.Handler { return s.handler }

// OpenAPI returns the document of huma.
func OpenAPI(s *Server) *huma.OpenAPI {
	doc, _ := s.describe()
	return doc.OpenAPI()
}

// PatchChecker reads bodies of PATCH as the API does.
func PatchChecker() func(body []byte) {
	d := newDocument(&Server{})
	schema := d.schema(roomPatch{})
	return func(body []byte) {
		var in roomPatch
		d.fields(body, schema, &in)
	}
}

// Client returns the address of a request's client behind trusted proxies.
func Client(r *http.Request, trusted ...string) (string, error) {
	p, err := parseProxies(trusted)
	var out string
	p.behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { out = peerOf(r).String() })).ServeHTTP(nil, r)
	return out, err
}

// BusyThumbnail asks for a thumbnail while another one is made, which never ends. It returns the status of the answer.
func BusyThumbnail(r *http.Request) (status int) {
	h := &roomEntry{thumbs: newStills(thumbFresh)}
	h.thumbs.busy <- struct{}{}
	p, _ := errors.AsType[*problem]((&Server{}).writePicture(h, nil, r, nil, 16))
	return p.status
}
