package console

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"touchline/agent"
	"touchline/inference"
)

type loginBody struct {
	Token string `json:"token"`
}

func (s *Server) postLogin(w http.ResponseWriter, r *http.Request) error {
	var in loginBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	now := time.Now()
	value, life := s.guard.cookie, cookieLife
	switch who := s.guard.granted(in.Token, "", now); {
	case who.ended != nil:
		s.logRefused(r)
		return who.ended
	case who.rights != 0: // no guess, as links are signed; and many people behind one address may have this one
		if wait, ok := s.reads.Allow(who.client(r), now); !ok {
			return tooMany("requests", wait)
		}
		value, life = in.Token, who.grant.Expires.Sub(now)
	default:
		right := equal(in.Token, s.guard.token)
		if wait, ok := s.guard.mayLogin(r, right, now); !ok {
			return tooManyLogins(wait)
		}
		if !right {
			s.logRefused(r)
			return refuse(http.StatusUnauthorized, "bad_token",
				"wrong token; use a link that somebody shared, the configured token, or the one in the address printed at the start (#token=...)")
		}
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // secure with TLS; a demo on this machine has none
		Name: tokenCookie, Value: value, Path: "/", MaxAge: int(life.Seconds()),
		HttpOnly: true, Secure: overTLS(r), SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func tooManyLogins(wait time.Duration) error { return tooMany("logins", wait) }

// tooMany is the answer to a client beyond the rate of what it asks for.
func tooMany(what string, wait time.Duration) *problem {
	seconds := int(math.Ceil(wait.Seconds()))
	p := refuse(http.StatusTooManyRequests, "too_many_"+what, "too many %s; try again in %d s", what, seconds).after(seconds)
	p.late = true
	return p
}

// logRefused logs refused login attempts at a bounded rate.
func (s *Server) logRefused(r *http.Request) {
	s.guard.refused.Add(1)
	if _, ok := s.guard.loginLog.Allow(struct{}{}, time.Now()); ok {
		s.log.Warn().Str("peer", r.RemoteAddr).Int64("count", s.guard.refused.Swap(0)).Msg("login refused")
	}
}

// notReady is the status of /readyz while it answers 503.
const notReady = "not ready"

// health is the answer of the probes.
type health struct {
	Status string `json:"status"`
	Detail string `json:"detail"`
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, health{"ok", "the process is alive"})
}

func (s *Server) getReady(w http.ResponseWriter, _ *http.Request) error {
	if s.single == nil {
		return s.getWorkerReady(w)
	}
	out := health{notReady, "the commentator has not started yet"}
	if b := s.single.Bot; b != nil {
		snap := b.Snapshot()
		out.Detail = snap.Status.Detail
		switch {
		case !snap.ModelLoaded:
			out.Detail = cmp.Or(out.Detail, loading(snap.Status.Percent))
		case snap.Status.State == agent.StateInitializing || snap.Status.Activity == agent.ActivityReconnecting:
			out.Detail = cmp.Or(out.Detail, "not in the room yet")
		default:
			return writeJSON(w, http.StatusOK, health{"ready", cmp.Or(out.Detail, snap.Status.State)})
		}
	}
	return writeJSON(w, http.StatusServiceUnavailable, out)
}

// getWorkerReady answers for a process with any number of rooms: it is ready when its engine is.
func (s *Server) getWorkerReady(w http.ResponseWriter) error {
	detail := "rooms: " + strconv.Itoa(len(s.rooms.list()))
	if s.opts.Engine != nil {
		switch st := s.opts.Engine(); st.Phase {
		case inference.PhaseLoading, inference.PhaseWarming, inference.PhaseFailed:
			return writeJSON(w, http.StatusServiceUnavailable, health{notReady, cmp.Or(st.Detail, loading(st.Percent))})
		case inference.PhaseReady, inference.PhaseUnloaded: // an unloaded engine loads again on demand
			if st.Problem != "" {
				detail += "; " + st.Problem
			}
		}
	}
	return writeJSON(w, http.StatusOK, health{"ready", detail})
}

func loading(percent int) string { return "the model is loading: " + strconv.Itoa(percent) + " %" }
