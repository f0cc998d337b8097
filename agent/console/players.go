package console

import (
	"net/http"
	"time"

	"touchline/agent/access"
	"touchline/internal/limit"
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
	a := signaling.Admission{Admitted: token != "" && equal(token, s.guard.token), Expired: s.expired.Inc}
	who := visitor{rights: access.Everything}
	if room, _, ok := signaling.Split("whep", r.URL); ok && !a.Admitted && s.guard.checkOrigin(r) == nil {
		who = s.guard.visitor(r, room, time.Now())
		a.Admitted, a.Right = who.rights.Allow(access.Watch), func(over func(string)) (stop func()) {
			return s.watchRight(who, func(end *problem) { over(end.Message) })
		}
	}
	if !a.Admitted { // perhaps by a LiveKit token
		who = visitor{id: nameOf(token)}
	}
	a.Refused = func() error {
		if token == "" && len(r.CookiesNamed(tokenCookie)) == 0 {
			return nil
		}
		s.logRefused(r)
		if wait, ok := s.guard.mayTryCookie(r, time.Now()); !ok {
			return signaling.TooMany(wait)
		}
		return nil
	}
	s.opts.WHEP.ServeWHEP(w, r.WithContext(limit.WithClient(r.Context(), who.client(r))), a)
	return nil
}
