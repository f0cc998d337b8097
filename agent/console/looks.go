package console

import (
	"errors"
	"net/http"

	"touchline/agent"
)

// Looks are the last prompts and answers of a room, and the next prompt, as agent.Session has them.
type Looks interface {
	Looks() []agent.RawLook
	NextPrompt() (agent.RawLook, error)
}

// lookList is the answer of GET /api/looks.
type lookList struct {
	Looks []agent.RawLook `json:"looks" doc:"The last 20 of each kind, newest first; fewer if they are long."`
}

func (h *roomEntry) looks() (Looks, error) {
	if h.Looks == nil {
		return nil, refuse(http.StatusServiceUnavailable, "no_bot", "the commentator has not started yet")
	}
	return h.Looks, nil
}

func (s *Server) getLooks(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	all, err := h.looks()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, lookList{all.Looks()})
}

func (s *Server) getNextPrompt(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	all, err := h.looks()
	if err != nil {
		return err
	}
	next, err := all.NextPrompt()
	if errors.Is(err, agent.ErrNoPicture) {
		return refuse(http.StatusConflict, "no_picture", "%v", err)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, next)
}
