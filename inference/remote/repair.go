package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"touchline/inference"
	"touchline/inference/internal/fault"
	"touchline/inference/internal/schema"
)

// maxStarts bounds the places of an answer where its JSON may begin.
const maxStarts = 32

// errNoJSON is returned for an answer without JSON.
var errNoJSON = errors.New("there is no complete JSON in it")

// jsonIn returns the first JSON in an answer that follows a schema, without the text around it. Without one, the error describes the first
// JSON.
func jsonIn(text string, form *schema.Schema) (string, error) {
	failure := errNoJSON
	for range maxStarts {
		start := strings.IndexAny(text, "{[")
		if start < 0 {
			break
		}
		text = text[start:]
		var value json.RawMessage
		if json.NewDecoder(strings.NewReader(text)).Decode(&value) == nil {
			if form == nil {
				return string(value), nil
			}
			err := form.Validate(value)
			if err == nil {
				return string(value), nil
			}
			if errors.Is(failure, errNoJSON) {
				failure = err
			}
		}
		text = text[1:]
	}
	return "", failure
}

// follow delivers the JSON of an answer. If the answer does not follow its schema, it requests one repair.
func (s *session) follow(ctx context.Context, name string, a *answer) error {
	m := s.m
	found, failure := jsonIn(a.whole.String(), a.form)
	if failure != nil {
		m.log.Debug().Err(failure).Str("answer", fault.Shorten(a.whole.String())).Msg("answer does not follow its schema: asking for a repair")
		wrong := fmt.Sprintf("This answer is wrong: %v. Answer again, only with JSON of this schema: %s", failure, a.schema)
		a.repair = []message{{Role: "assistant", Content: escape(fault.Shorten(a.whole.String()))}, {Role: "user", Content: wrong}}
		a.bytes, a.received, a.begun, a.start = 0, 0, false, time.Now()
		a.timer.Reset(m.cfg.FirstTokenTimeout)
		if err := s.exchange(ctx, name, a); err != nil {
			return err
		}
		if found, failure = jsonIn(a.whole.String(), a.form); failure != nil {
			return fmt.Errorf("%s: %w: asked twice, it did not follow the JSON schema: %w", m.server, ErrNoAnswer, failure)
		}
	}
	a.timer.Stop()
	a.stopped = !a.yield(inference.Chunk{Text: found}, nil)
	return nil
}
