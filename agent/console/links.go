package console

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"touchline/agent/access"
	"touchline/internal/metrics"
)

// rightsBody is the answer of GET /api/rights.
type rightsBody struct {
	Rights  []string   `json:"rights" doc:"watch, instruct, settings, sources, rules, speak, transcribe, process."`
	Name    string     `json:"name,omitempty" doc:"Of the person, from the token."`
	Expires *time.Time `json:"expires,omitempty" doc:"When the token ends; absent for never."`
}

func (h *roomEntry) getRights(r *http.Request) (rightsBody, error) {
	who := visitorOf(r)
	out := rightsBody{Rights: who.rights.Names(), Name: who.grant.Name}
	if !who.grant.Expires.IsZero() {
		out.Expires = &who.grant.Expires
	}
	return out, nil
}

// linkBody requests a token for a link.
type linkBody struct {
	Rights []string `json:"rights" doc:"Of watch, instruct, settings, sources, rules, speak and transcribe; steer is all of them."`
	For    string   `json:"for,omitempty" doc:"Time until it expires, such as 24h (default); at most 8784h."`
	Name   string   `json:"name,omitempty" doc:"Of the person, for the page and the log."`
}

// linkMade is the answer of POST /api/links.
type linkMade struct {
	ID      string    `json:"id" doc:"By which it can be revoked."`
	Token   string    `json:"token" doc:"The page takes it in the fragment of its address: #token=T."`
	Rights  []string  `json:"rights"`
	Expires time.Time `json:"expires"`
}

// linkLife is the default lifetime of a link.
const linkLife = 24 * time.Hour

func (s *Server) postLink(h *roomEntry, _ http.ResponseWriter, r *http.Request, in linkBody) (out linkMade, err error) {
	rights, err := access.Parse(in.Rights)
	if err != nil {
		return out, refuse(http.StatusUnprocessableEntity, "bad_link", "%v", err)
	}
	life := linkLife
	if in.For != "" {
		if life, err = time.ParseDuration(in.For); err != nil {
			return out, refuse(http.StatusUnprocessableEntity, "bad_link", "for: must be a time such as 24h, is %.40q", in.For)
		}
	}
	now, who := time.Now(), visitorOf(r)
	expires := now.Add(life).Truncate(time.Second).UTC()
	if end := who.grant.Expires; !end.IsZero() && expires.After(end) {
		return out, refuse(http.StatusForbidden, "no_right", "for: your own link ends at %s; ask for less", end.UTC().Format(time.RFC3339))
	}
	g := access.Grant{Rooms: []string{h.Name}, Rights: rights, Name: strings.TrimSpace(in.Name), Expires: expires, Links: who.grant.Links}
	token, err := access.Sign(s.opts.Keys, g, now)
	if err != nil {
		return out, refusal(err, answer{access.ErrNoKeys, http.StatusServiceUnavailable, "no_keys"},
			answer{nil, http.StatusUnprocessableEntity, "bad_link"})
	}
	id := s.opts.Keys.Links.Made(token, g, by(r), now)
	s.log.Info().Str("room", h.Name).Str("link", id).Stringer("rights", rights).Time("expires", expires).Str("by", by(r)).Msg("link made")
	return linkMade{ID: id, Token: token, Rights: rights.Names(), Expires: expires}, nil
}

// linkList is the answer of GET /api/links.
type linkList struct {
	Links []access.Link `json:"links"`
}

// linkOf returns the id of a visitor's link; "" for the operator.
func linkOf(who visitor) string {
	if who.rights.Allow(access.Process) {
		return ""
	}
	return who.grant.Links[0] // all others have their rights by one
}

func (s *Server) getLinks(h *roomEntry, r *http.Request) (linkList, error) {
	return linkList{s.opts.Keys.Links.List(h.Name, linkOf(visitorOf(r)), time.Now())}, nil
}

func (s *Server) deleteLink(h *roomEntry, r *http.Request) error {
	id := r.PathValue("id")
	if err := s.opts.Keys.Links.Revoke(h.Name, id, linkOf(visitorOf(r)), time.Now()); err != nil {
		return refusal(err, answer{access.ErrNoLink, http.StatusNotFound, "no_such_link"})
	}
	s.log.Info().Str("room", h.Name).Str("link", id).Str("by", by(r)).Msg("link revoked")
	return nil
}

// collectLinks sends the metrics of the shared links of the process.
func (s *Server) collectLinks(ch chan<- prometheus.Metric) {
	listed, revoked, refused := s.opts.Keys.Links.Stats(time.Now())
	out := metrics.Writer{Out: ch, Prefix: "touchline_links"}
	const known = "Shared links of the process: those that are listed and valid, and those that are revoked."
	out.Gauge("", known, float64(listed), "state", "listed")
	out.Gauge("", known, float64(revoked), "state", "revoked")
	const beyond = "Shared links beyond a bound (list, learned, depth), and uses of ended ones (expired, revoked)."
	for what, n := range map[string]uint64{
		"list": refused.Unlisted, "learned": refused.Unlearned, "depth": refused.Deep, "expired": refused.Expired, "revoked": refused.Revoked,
	} {
		out.Counter("_refused_total", beyond, float64(n), "what", what)
	}
}

// The reasons why what a link opened ends.
var (
	errExpired = refuse(http.StatusUnauthorized, "expired_token", "this link has expired; ask for a new one")
	errRevoked = refuse(http.StatusUnauthorized, "revoked_link", "%v", access.ErrRevoked)
)

// watchRight calls over when the link of a client ends, until stop is called.
func (s *Server) watchRight(who visitor, over func(*problem)) (stop func()) {
	return s.opts.Keys.Links.Watch(who.grant, time.Now, func(err error) {
		if errors.Is(err, access.ErrRevoked) {
			over(errRevoked)
		} else {
			over(errExpired)
		}
	})
}
