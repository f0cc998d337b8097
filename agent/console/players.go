package console

import (
	"net/http"
	"time"

	"touchline/agent/access"
	"touchline/media/signaling"
)

// takeSenders forwards to the WHIP endpoint, which checks the token or key of each sender. Pages of any origin may send, with an
// allowed host name.
func (s *Server) takeSenders(w http.ResponseWriter, r *http.Request) error {
	if err := s.guard.checkHost(r.Host); err != nil {
		return refuse(http.StatusForbidden, "bad_host", "%v", err)
	}
	s.opts.WHIP.ServeHTTP(w, r)
	return nil
}

// servePlayers forwards to the WHEP endpoint. Players with a token may be on pages of any origin. A client with the right to watch
// needs no further token.
func (s *Server) servePlayers(w http.ResponseWriter, r *http.Request) error {
	if err := s.guard.checkHost(r.Host); err != nil {
		return refuse(http.StatusForbidden, "bad_host", "%v", err)
	}
	token := signaling.Token(r)
	admitted := token != "" && equal(token, s.guard.token)
	var who visitor
	if room, _, ok := signaling.Split("whep", r.URL); ok && !admitted && s.guard.checkOrigin(r) == nil {
		who = s.guard.visitor(r, room, time.Now())
		admitted = who.rights.Allow(access.Watch)
	}
	s.opts.WHEP.ServeWHEP(w, r, admitted, who.expires)
	return nil
}
