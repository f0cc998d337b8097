package console

import (
	"errors"
	"net/http"
	"reflect"
	"strings"

	"touchline/agent"
)

// nothing is the body of a request or of an answer without one.
type nothing struct{}

// empty is the body of a request that may have {} or none.
type empty struct{}

// operation returns an endpoint of a room that reads an In and answers with a status and an Out, both as JSON. A body whose In
// is a pointer may be left out.
func operation[In, Out any](
	method, path, summary string, status int, do func(h *roomEntry, w http.ResponseWriter, r *http.Request, in In) (Out, error),
) endpoint {
	var noBody bool
	e := endpoint{method: method, path: path, summary: summary, status: status, in: *new(In), out: *new(Out)}
	switch e.in.(type) {
	case nothing:
		noBody, e.in = true, nil
	case *empty:
		e.in = nil
	}
	_, noAnswer := e.out.(nothing)
	if noAnswer {
		e.out = nil
	}
	mayBeEmpty := reflect.TypeFor[In]().Kind() == reflect.Pointer
	e.inRoom = func(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
		var in In
		if !noBody {
			if err := readJSON(w, r, &in, mayBeEmpty); err != nil {
				return err
			}
		}
		out, err := do(h, w, r, in)
		switch {
		case err != nil:
			return err
		case noAnswer:
			w.WriteHeader(status)
			return nil
		}
		return writeJSON(w, status, out)
	}
	return e
}

// get returns an endpoint that answers with an Out.
func get[Out any](path, summary string, do func(h *roomEntry, r *http.Request) (Out, error)) endpoint {
	return operation(http.MethodGet, path, summary, http.StatusOK,
		func(h *roomEntry, _ http.ResponseWriter, r *http.Request, _ nothing) (Out, error) { return do(h, r) })
}

// act returns an endpoint without a body and without an answer.
func act(method, path, summary string, do func(h *roomEntry, r *http.Request) error) endpoint {
	return operation(method, path, summary, http.StatusNoContent,
		func(h *roomEntry, _ http.ResponseWriter, r *http.Request, _ nothing) (nothing, error) {
			return nothing{}, do(h, r)
		})
}

// order returns an endpoint that changes the commentary and answers with the snapshot after the change.
func order[In any](method, path, summary string, do func(h *roomEntry, r *http.Request, in In) error) endpoint {
	return operation(method, path, summary, http.StatusOK,
		func(h *roomEntry, _ http.ResponseWriter, r *http.Request, in In) (agent.Snapshot, error) {
			if err := needsBot(h); err != nil {
				return agent.Snapshot{}, err
			}
			if err := do(h, r, in); err != nil {
				return agent.Snapshot{}, err
			}
			h.changed()
			return h.Bot.Snapshot(), nil
		})
}

// needing makes endpoints answer with the error of missing, unless that is nil.
func needing(missing func(h *roomEntry) error, list ...endpoint) []endpoint {
	for i := range list {
		do := list[i].inRoom
		list[i].inRoom = func(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
			if err := missing(h); err != nil {
				return err
			}
			return do(h, w, r)
		}
	}
	return list
}

// needsBot returns a 503 before the commentator has started.
func needsBot(h *roomEntry) error { return started(h.Bot != nil) }

// started returns a 503 for a part of a room that it has only once its commentator has started.
func started(there bool) error {
	if there {
		return nil
	}
	return refuse(http.StatusServiceUnavailable, "no_bot", "the commentator has not started yet")
}

// answer is the status and the code of the answers for an error.
type answer struct {
	err    error // nil for every other error
	status int
	code   string
}

// refusal returns the answer to an error by the first row whose error it wraps, or nil without an error.
func refusal(err error, rows ...answer) error {
	for _, row := range rows {
		if err != nil && (row.err == nil || errors.Is(err, row.err)) {
			return refuse(row.status, row.code, "%v", err)
		}
	}
	return err
}

// oneLine returns an error with the texts of joined errors in one line; nil for nil.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return lineError{err}
}

type lineError struct{ error }

// Error joins the lines.
func (e lineError) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

// Unwrap returns the wrapped error.
func (e lineError) Unwrap() error { return e.error }
