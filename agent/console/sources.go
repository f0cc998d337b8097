package console

import (
	"context"
	"errors"
	"net/http"

	"touchline/agent"
	"touchline/media/source"
)

// Sources are the sources that the program publishes in the room. Errors of Add and Change
// are source.ErrNotAllowed, source.ErrTooMany or a *agent.RangeError. An unknown id is
// source.ErrNotFound, a fixed source source.ErrFixed. by names the client in the log.
type Sources interface {
	Sources() []source.Info
	Add(s source.Request, by string) (source.Info, error)
	Change(id string, c source.Change, by string) (source.Info, error)
	Remove(ctx context.Context, id, by string) error
	// Cameras lists all video sources in the room.
	Cameras() []source.RoomCamera
	// Scene reports whether there is a built-in camera.
	Scene() bool
	// WHIP returns the address for senders; ok is false without WHIP ingest.
	WHIP() (e source.WHIPEndpoint, ok bool)
}

// sourceList is the answer of GET /api/sources.
type sourceList struct {
	Sources []source.Info        `json:"sources"`
	Cameras []source.RoomCamera  `json:"cameras"`
	Scene   bool                 `json:"scene"`
	WHIP    *source.WHIPEndpoint `json:"whip,omitempty"`
}

func (h *roomEntry) sources() (Sources, error) {
	if h.Sources == nil {
		return nil, refuse(http.StatusNotImplemented, "no_sources",
			"this program opens no cameras itself; publish one with touchline camera")
	}
	return h.Sources, nil
}

func (s *Server) getSources(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	all, err := h.sources()
	if err != nil {
		return err
	}
	out := sourceList{Sources: all.Sources(), Cameras: all.Cameras(), Scene: all.Scene()}
	if e, ok := all.WHIP(); ok {
		out.WHIP = &e
	}
	return writeJSON(w, http.StatusOK, out)
}

// addSource opens an address and, by default, selects it.
func (s *Server) addSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.sources()
	if err != nil {
		return err
	}
	var in source.Request
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := all.Add(in, by(r))
	if err != nil {
		return sourceProblem(err)
	}
	if in.Watch == nil || *in.Watch {
		if err := h.watchSource(out, by(r)); err != nil {
			return err
		}
	}
	h.changed()
	w.Header().Set("Location", r.URL.EscapedPath()+"/"+out.ID)
	return writeJSON(w, http.StatusCreated, out)
}

func (h *roomEntry) findSource(r *http.Request) (Sources, source.Info, error) {
	all, err := h.sources()
	if err != nil {
		return nil, source.Info{}, err
	}
	for _, x := range all.Sources() {
		if x.ID == r.PathValue("id") {
			return all, x, nil
		}
	}
	return nil, source.Info{}, sourceProblem(source.ErrNotFound)
}

func (s *Server) getOneSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	_, out, err := h.findSource(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) patchSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, was, err := h.findSource(r)
	if err != nil {
		return err
	}
	var in source.Change
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	out, err := all.Change(was.ID, in, by(r))
	if err != nil {
		return sourceProblem(err)
	}
	h.changed()
	out.Watched = was.Watched
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) deleteSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, was, err := h.findSource(r)
	if err != nil {
		return err
	}
	if err := all.Remove(r.Context(), was.ID, by(r)); err != nil {
		return sourceProblem(err)
	}
	if was.Watched && h.Bot != nil { // back to the configured one
		if err := watch(h.Bot, "", by(r)); err != nil {
			return err
		}
	}
	h.changed()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) selectSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	_, out, err := h.findSource(r)
	if err != nil {
		return err
	}
	if err := readJSON(w, r, &struct{}{}, true); err != nil {
		return err
	}
	if err := h.watchSource(out, by(r)); err != nil {
		return err
	}
	return s.getStatus(h, w, r)
}

func (h *roomEntry) watchSource(x source.Info, by string) error {
	b, err := h.bot()
	if err != nil {
		return err
	}
	if err := watch(b, "camera:"+x.Identity, by); err != nil {
		return err
	}
	h.changed()
	return nil
}

// watch switches a commentator to another source, named as in agent.Change.
func watch(b agent.Steerer, source, by string) error {
	if _, err := b.Change(agent.Change{Source: &source}, by); err != nil {
		return refuse(http.StatusBadRequest, "bad_source", "%v", err)
	}
	return nil
}

func sourceProblem(err error) error {
	_, outside := errors.AsType[*agent.RangeError](err)
	switch {
	case errors.Is(err, source.ErrNotFound):
		return refuse(http.StatusNotFound, "no_source", "%v", err)
	case errors.Is(err, source.ErrNotAllowed):
		return refuse(http.StatusForbidden, "not_allowed", "%v", err)
	case errors.Is(err, source.ErrTooMany):
		return refuse(http.StatusConflict, "too_many_sources", "%v", err)
	case errors.Is(err, source.ErrFixed):
		return refuse(http.StatusConflict, "source_fixed", "%v", err)
	case outside:
		return refuse(http.StatusUnprocessableEntity, "bad_source", "%v", err)
	}
	return refuse(http.StatusBadRequest, "bad_source", "%v", err)
}
