package console

import (
	"context"
	"errors"
	"net/http"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/settings"
	"touchline/media/source"
)

// Sources are the sources that the program publishes in the room. Errors of Add and Change are source.ErrNotAllowed,
// source.ErrTooMany or a *settings.RangeError; source.ErrNotFound for an unknown id, source.ErrFixed for a fixed source. by is the client
// for the log.
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

// sourceOperations returns the operations on the sources of a room, with their paths below the room's.
func sourceOperations() []endpoint {
	return needing(func(h *roomEntry) error {
		if h.Sources == nil {
			return refuse(http.StatusNotImplemented, "no_sources",
				"this program opens no cameras itself; publish one with touchline camera")
		}
		return nil
	},
		get("/sources", "Sources of the program, cameras in the room", (*roomEntry).getSources),
		operation("POST", "/sources", "Opens a camera or stream and selects it", http.StatusCreated, (*roomEntry).addSource),
		get("/sources/{id}", "One source", (*roomEntry).findSource),
		operation("PATCH", "/sources/{id}", "Opens another address for the same participant", http.StatusOK, (*roomEntry).patchSource),
		act("DELETE", "/sources/{id}", "Removes it from the room", (*roomEntry).deleteSource),
		order("POST", "/sources/{id}/select", "Selects it", (*roomEntry).selectSource),
	)
}

func (h *roomEntry) getSources(*http.Request) (sourceList, error) {
	out := sourceList{Sources: h.Sources.Sources(), Cameras: h.Sources.Cameras(), Scene: h.Sources.Scene()}
	if e, ok := h.Sources.WHIP(); ok {
		out.WHIP = &e
	}
	return out, nil
}

// addSource opens an address and, by default, selects it.
func (h *roomEntry) addSource(w http.ResponseWriter, r *http.Request, in source.Request) (source.Info, error) {
	out, err := h.Sources.Add(in, by(r))
	if err != nil {
		return out, sourceProblem(err)
	}
	if in.Watch == nil || *in.Watch {
		if err := h.watchSource(out, by(r)); err != nil {
			return out, err
		}
	}
	h.changed()
	w.Header().Set("Location", r.URL.EscapedPath()+"/"+out.ID)
	return out, nil
}

// findSource returns the source that the path of a request names.
func (h *roomEntry) findSource(r *http.Request) (source.Info, error) {
	for _, x := range h.Sources.Sources() {
		if x.ID == r.PathValue("id") {
			return x, nil
		}
	}
	return source.Info{}, sourceProblem(source.ErrNotFound)
}

func (h *roomEntry) patchSource(_ http.ResponseWriter, r *http.Request, in source.Change) (source.Info, error) {
	was, err := h.findSource(r)
	if err != nil {
		return was, err
	}
	out, err := h.Sources.Change(was.ID, in, by(r))
	if err != nil {
		return out, sourceProblem(err)
	}
	h.changed()
	out.Watched = was.Watched
	return out, nil
}

func (h *roomEntry) deleteSource(r *http.Request) error {
	was, err := h.findSource(r)
	if err != nil {
		return err
	}
	if err := h.Sources.Remove(r.Context(), was.ID, by(r)); err != nil {
		return sourceProblem(err)
	}
	if was.Watched && h.Bot != nil { // watch the configured source again
		if err := watch(h.Bot, "", by(r)); err != nil {
			return err
		}
	}
	h.changed()
	return nil
}

func (h *roomEntry) selectSource(r *http.Request, _ *empty) error {
	x, err := h.findSource(r)
	if err != nil {
		return err
	}
	return h.watchSource(x, by(r))
}

func (h *roomEntry) watchSource(x source.Info, by string) error {
	if err := needsBot(h); err != nil {
		return err
	}
	return watch(h.Bot, "camera:"+x.Identity, by)
}

// watch switches a commentator to another source, as in command.Change.
func watch(b agent.Steerer, source, by string) error {
	if _, err := b.Change(command.Change{Source: &source}, by); err != nil {
		return refuse(http.StatusBadRequest, "bad_source", "%v", err)
	}
	return nil
}

func sourceProblem(err error) error {
	status := http.StatusBadRequest
	if _, outside := errors.AsType[*settings.RangeError](err); outside {
		status = http.StatusUnprocessableEntity
	}
	return refusal(err,
		answer{source.ErrNotFound, http.StatusNotFound, "no_source"},
		answer{source.ErrNotAllowed, http.StatusForbidden, "not_allowed"},
		answer{source.ErrTooMany, http.StatusConflict, "too_many_sources"},
		answer{source.ErrFixed, http.StatusConflict, "source_fixed"},
		answer{nil, status, "bad_source"})
}
