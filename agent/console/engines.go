package console

import (
	"context"
	"errors"
	"net/http"

	"touchline/agent"
)

// Engines are those that a room can have, as bot.Bot has them.
type Engines interface {
	Engines(ctx context.Context) []agent.EngineOption
	// ChangeEngine begins a change. Bad choices are *agent.RangeError, perhaps joined.
	ChangeEngine(ctx context.Context, choice agent.EngineChoice, by string) error
	// Voices are those of the installed speech programs.
	Voices() []agent.VoiceOption
}

// engineList is the answer of GET /api/engines.
type engineList struct {
	Engines []agent.EngineOption `json:"engines" doc:"With the models of servers that were found on this machine."`
	Voices  []agent.VoiceOption  `json:"voices" doc:"Values of the setting voice, beside auto."`
}

func (h *roomEntry) engines() (Engines, error) {
	if h.Engines == nil {
		return nil, refuse(http.StatusServiceUnavailable, "no_bot", "the commentator has not started yet")
	}
	return h.Engines, nil
}

func (s *Server) getEngines(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.engines()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, engineList{all.Engines(r.Context()), all.Voices()})
}

func (s *Server) postEngine(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	all, err := h.engines()
	if err != nil {
		return err
	}
	var choice agent.EngineChoice
	if err := readJSON(w, r, &choice, false); err != nil {
		return err
	}
	err = all.ChangeEngine(r.Context(), choice, by(r))
	if _, ok := errors.AsType[*agent.RangeError](err); ok {
		return refuse(http.StatusUnprocessableEntity, "bad_fields", "%s", oneLine(err))
	}
	if err != nil {
		return err
	}
	h.changed()
	bot, err := h.bot()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, bot.Snapshot())
}
