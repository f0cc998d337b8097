package console

import (
	"errors"
	"io"
	"net/http"

	"touchline/agent/prompt"
)

// sheet is the background of a room under its name in the API.
type sheet prompt.Background

// Prompts are the texts of people for the engine of a room: its own profiles and its background. Errors are all errors of a text,
// joined, or the profile errors of package prompt.
type Prompts interface {
	Profiles() []prompt.Profile
	PutProfile(p prompt.Profile, create bool, by string) (created bool, err error)
	DeleteProfile(name, by string) error
	Background() prompt.Background
	SetBackground(text, by string) (prompt.Background, error)
}

// promptOperations returns the operations on the profiles and the background of a room, with their paths below the room's.
func promptOperations() []endpoint {
	yaml := "application/yaml"
	return needing(func(h *roomEntry) error { return started(h.Prompts != nil) },
		endpoint{method: "GET", path: "/profiles/{id}", inRoom: (*roomEntry).getProfile, summary: "A profile as YAML", kind: yaml},
		endpoint{
			method: "PUT", path: "/profiles/{id}", inRoom: (*roomEntry).putProfile, summary: "Creates or changes a profile, in YAML or JSON",
			inKind: yaml, out: prompt.Profile{},
		},
		act("DELETE", "/profiles/{id}", "Deletes an own profile, resets a changed one", (*roomEntry).deleteProfile),
		get("/sheet", "The match sheet", func(h *roomEntry, _ *http.Request) (sheet, error) { return sheet(h.Prompts.Background()), nil }),
		endpoint{
			method: "PUT", path: "/sheet", inRoom: (*roomEntry).putBackground, summary: "Replaces the match sheet, in YAML or JSON",
			inKind: yaml, out: sheet{},
		},
		act("DELETE", "/sheet", "Removes the match sheet", func(h *roomEntry, r *http.Request) error {
			_, err := h.Prompts.SetBackground("", by(r))
			return err
		}),
	)
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

func (h *roomEntry) getProfile(w http.ResponseWriter, r *http.Request) error {
	for _, p := range h.Prompts.Profiles() {
		if p.Name != r.PathValue("id") {
			continue
		}
		text, err := p.YAML()
		if err != nil {
			return err
		}
		return writeBody(w, http.StatusOK, "application/yaml; charset=utf-8", text)
	}
	return profileProblem(prompt.ErrNoProfile)
}

func (h *roomEntry) putProfile(w http.ResponseWriter, r *http.Request) error {
	body, err := readForm(w, r)
	if err != nil {
		return err
	}
	p, err := prompt.ReadProfile("x", body)
	if err != nil {
		return profileProblem(err)
	}
	p.Name = r.PathValue("id")
	created, err := h.Prompts.PutProfile(p, r.Header.Get("If-None-Match") == "*", by(r))
	if err != nil {
		return profileProblem(err)
	}
	h.changed()
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	for _, now := range h.Prompts.Profiles() {
		if now.Name == p.Name {
			p = now
		}
	}
	return writeJSON(w, status, p)
}

func (h *roomEntry) deleteProfile(r *http.Request) error {
	if err := h.Prompts.DeleteProfile(r.PathValue("id"), by(r)); err != nil {
		return profileProblem(err)
	}
	h.changed()
	return nil
}

func profileProblem(err error) error {
	if errors.Is(err, prompt.ErrNoProfile) {
		return refuse(http.StatusNotFound, "no_profile", "%v; GET /api/profiles lists all", err)
	}
	return refusal(oneLine(err),
		answer{prompt.ErrProfileTaken, http.StatusConflict, "name_taken"},
		answer{prompt.ErrProfileBuiltIn, http.StatusConflict, "built_in"},
		answer{prompt.ErrProfileInUse, http.StatusConflict, "in_use"},
		answer{prompt.ErrTooManyProfiles, http.StatusConflict, "too_many_profiles"},
		answer{nil, http.StatusUnprocessableEntity, "bad_profile"})
}

func (h *roomEntry) putBackground(w http.ResponseWriter, r *http.Request) error {
	body, err := readForm(w, r)
	if err != nil {
		return err
	}
	background, err := h.Prompts.SetBackground(string(body), by(r))
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "bad_sheet", "%s", oneLine(err))
	}
	return writeJSON(w, http.StatusOK, background)
}
