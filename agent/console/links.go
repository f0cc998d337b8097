package console

import (
	"net/http"
	"strings"
	"time"

	"touchline/agent/access"
)

// rightsBody is the answer of GET /api/rights.
type rightsBody struct {
	Rights  []string   `json:"rights" doc:"watch, instruct, settings, sources, rules, speak, transcribe, process."`
	Name    string     `json:"name,omitempty" doc:"Of the person, from the token."`
	Expires *time.Time `json:"expires,omitempty" doc:"When the token ends; absent for never."`
}

func (h *roomEntry) getRights(r *http.Request) (rightsBody, error) {
	who := visitorOf(r)
	out := rightsBody{Rights: who.rights.Names(), Name: who.name}
	if !who.expires.IsZero() {
		out.Expires = &who.expires
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
	if !who.expires.IsZero() && expires.After(who.expires) {
		return out, refuse(http.StatusForbidden, "no_right", "for: your own link ends at %s; ask for less",
			who.expires.UTC().Format(time.RFC3339))
	}
	token, err := access.Sign(s.opts.Keys, access.Grant{
		Rooms: []string{h.Name}, Rights: rights, Name: strings.TrimSpace(in.Name), Expires: expires,
	}, now)
	if err != nil {
		return out, refusal(err, answer{access.ErrNoKeys, http.StatusServiceUnavailable, "no_keys"},
			answer{nil, http.StatusUnprocessableEntity, "bad_link"})
	}
	s.log.Info().Str("room", h.Name).Stringer("rights", rights).Time("expires", expires).Str("by", by(r)).Msg("link made")
	return linkMade{Token: token, Rights: rights.Names(), Expires: expires}, nil
}
