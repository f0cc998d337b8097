package console

import (
	"context"
	"errors"
	"net/http"

	"touchline/agent"
	"touchline/agent/settings"
)

// Engines are the engines that a room can use, as in bot.Bot.
type Engines interface {
	Engines(ctx context.Context) []agent.EngineOption
	// ChangeEngine begins a change. Errors of invalid choices are *settings.RangeError, possibly joined.
	ChangeEngine(ctx context.Context, choice agent.EngineChoice, by string) error
	// Voices returns the voices of the installed speech programs.
	Voices() []agent.VoiceOption
}

// engineList is the answer of GET /api/engines.
type engineList struct {
	Engines []agent.EngineOption `json:"engines" doc:"With the models of servers that were found on this machine."`
	Voices  []agent.VoiceOption  `json:"voices" doc:"Values of the setting voice, beside auto."`
}

// engineOperations returns the operations on the engine of a room, with their paths below the room's.
func engineOperations() []endpoint {
	return needing(func(h *roomEntry) error { return started(h.Engines != nil) },
		get("/engines", "The engines that the room can have", (*roomEntry).getEngines),
		operation("POST", "/engine", "Begins a change of the engine", http.StatusAccepted, (*roomEntry).postEngine),
	)
}

func (h *roomEntry) getEngines(r *http.Request) (engineList, error) {
	return engineList{h.Engines.Engines(r.Context()), h.Engines.Voices()}, nil
}

func (h *roomEntry) postEngine(_ http.ResponseWriter, r *http.Request, choice agent.EngineChoice) (out agent.Snapshot, err error) {
	err = h.Engines.ChangeEngine(r.Context(), choice, by(r))
	if _, ok := errors.AsType[*settings.RangeError](err); ok {
		return out, refuse(http.StatusUnprocessableEntity, "bad_fields", "%s", oneLine(err))
	}
	if err != nil {
		return out, err
	}
	h.changed()
	if err := needsBot(h); err != nil {
		return out, err
	}
	return h.Bot.Snapshot(), nil
}
