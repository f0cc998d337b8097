package console

import (
	"net/http"
	"slices"

	"touchline/agent/access"
	"touchline/agent/look"
)

// Looks are the last prompts and answers of a room, the next prompt and what the engine finds, as look.Loop has them.
type Looks interface {
	Traces() []look.Trace
	NextPrompt() (look.Trace, error)
	Sight() (look.Sight, bool)
}

// lookList is the answer of GET /api/looks.
type lookList struct {
	Looks []look.Trace `json:"looks" doc:"The last 20 of each kind, newest first; fewer if they are long."`
}

// lookOperations returns the operations on the looks of a room, with their paths below the room's.
func lookOperations() []endpoint {
	return needing(func(h *roomEntry) error { return started(h.Looks != nil) },
		get("/looks", "The last prompts and answers, as they were", func(h *roomEntry, r *http.Request) (lookList, error) {
			list := h.Looks.Traces()
			if !visitorOf(r).rights.Allow(access.Needed("heard")) {
				list = slices.DeleteFunc(list, func(t look.Trace) bool { return t.Quotes() })
			}
			return lookList{list}, nil
		}),
		get("/looks/next", "The prompt of a cycle that begins now", func(h *roomEntry, r *http.Request) (look.Trace, error) {
			next, err := h.Looks.NextPrompt()
			if who, needed := visitorOf(r), access.Needed("heard"); next.Quotes() && !who.rights.Allow(needed) {
				return look.Trace{}, noRight(needed, who)
			}
			return next, refusal(err, answer{look.ErrNoPicture, http.StatusConflict, "no_picture"})
		}),
		get("/sight", "What the engine found in the newest picture that it looked at", func(h *roomEntry, _ *http.Request) (look.Sight, error) {
			seen, ok := h.Looks.Sight()
			if !ok {
				return seen, refuse(http.StatusNotFound, "no_sight", "the engine has found nothing: choose engine sight, and wait for a picture")
			}
			return seen, nil
		}),
	)
}
