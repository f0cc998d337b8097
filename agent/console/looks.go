package console

import (
	"net/http"

	"touchline/agent"
)

// Looks are the last prompts and answers of a room, and the next prompt, as in agent.Session.
type Looks interface {
	Looks() []agent.RawLook
	NextPrompt() (agent.RawLook, error)
}

// lookList is the answer of GET /api/looks.
type lookList struct {
	Looks []agent.RawLook `json:"looks" doc:"The last 20 of each kind, newest first; fewer if they are long."`
}

// lookOperations returns the operations on the looks of a room, with their paths below the room's.
func lookOperations() []endpoint {
	return needing(func(h *roomEntry) error { return started(h.Looks != nil) },
		get("/looks", "The last prompts and answers, as they were", func(h *roomEntry, _ *http.Request) (lookList, error) {
			return lookList{h.Looks.Looks()}, nil
		}),
		get("/looks/next", "The prompt of a cycle that begins now", func(h *roomEntry, _ *http.Request) (agent.RawLook, error) {
			next, err := h.Looks.NextPrompt()
			return next, refusal(err, answer{agent.ErrNoPicture, http.StatusConflict, "no_picture"})
		}),
	)
}
