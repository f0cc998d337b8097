package console

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"touchline/agent"
	"touchline/agent/prompt"
)

// sheet is the background of a room, by its name in the API.
type sheet prompt.Background

// Prompts are what people write for the engine of a room: its own profiles and its background. Errors join all that is
// wrong with a text, or are those of agent's profiles.
type Prompts interface {
	Profiles() []prompt.Profile
	PutProfile(p prompt.Profile, create bool, by string) (created bool, err error)
	DeleteProfile(name, by string) error
	Background() prompt.Background
	SetBackground(text, by string) (prompt.Background, error)
}

func (h *roomEntry) prompts() (Prompts, error) {
	if h.Prompts == nil {
		return nil, refuse(http.StatusServiceUnavailable, "no_bot", "the commentator has not started yet")
	}
	return h.Prompts, nil
}

// readForm reads a body in YAML or JSON.
func readForm(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, prompt.MaxForm))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refuse(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", prompt.MaxForm)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "bad_body", "read the body: %v", err)
	}
	return body, nil
}

// oneLine joins several errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (s *Server) getProfile(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	name := r.PathValue("id")
	for _, p := range all.Profiles() {
		if p.Name != name {
			continue
		}
		text, err := p.YAML()
		if err != nil {
			return err
		}
		return writeBody(w, http.StatusOK, "application/yaml; charset=utf-8", text)
	}
	return profileProblem(agent.ErrNoProfile)
}

func (s *Server) putProfile(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	body, err := readForm(w, r)
	if err != nil {
		return err
	}
	p, err := prompt.ReadProfile("x", body)
	if err != nil {
		return profileProblem(err)
	}
	p.Name = r.PathValue("id")
	created, err := all.PutProfile(p, r.Header.Get("If-None-Match") == "*", by(r))
	if err != nil {
		return profileProblem(err)
	}
	h.changed()
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	for _, now := range all.Profiles() {
		if now.Name == p.Name {
			p = now
		}
	}
	return writeJSON(w, status, p)
}

func (s *Server) deleteProfile(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	if err := all.DeleteProfile(r.PathValue("id"), by(r)); err != nil {
		return profileProblem(err)
	}
	h.changed()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func profileProblem(err error) error {
	switch {
	case errors.Is(err, agent.ErrNoProfile):
		return refuse(http.StatusNotFound, "no_profile", "%v; GET /api/profiles lists all", err)
	case errors.Is(err, agent.ErrProfileTaken):
		return refuse(http.StatusConflict, "name_taken", "%v", err)
	case errors.Is(err, agent.ErrProfileBuiltIn):
		return refuse(http.StatusConflict, "built_in", "%v", err)
	case errors.Is(err, agent.ErrProfileInUse):
		return refuse(http.StatusConflict, "in_use", "%v", err)
	case errors.Is(err, agent.ErrTooManyProfiles):
		return refuse(http.StatusConflict, "too_many_profiles", "%v", err)
	}
	return refuse(http.StatusUnprocessableEntity, "bad_profile", "%s", oneLine(err))
}

func (s *Server) getBackground(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, all.Background())
}

func (s *Server) putBackground(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	body, err := readForm(w, r)
	if err != nil {
		return err
	}
	sheet, err := all.SetBackground(string(body), by(r))
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "bad_sheet", "%s", oneLine(err))
	}
	return writeJSON(w, http.StatusOK, sheet)
}

func (s *Server) deleteBackground(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.prompts()
	if err != nil {
		return err
	}
	if _, err := all.SetBackground("", by(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
