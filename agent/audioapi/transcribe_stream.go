package audioapi

import (
	"errors"

	"touchline/inference"
)

// textStream is an answer as events.
type textStream struct {
	stream
	request request
	text    string
	parts   int // with text
}

// part sends the new text. Only the plain stream has interim texts.
func (s *textStream) part(p inference.Transcript) error {
	switch {
	case !s.request.stream, !p.Final && (!s.request.plain || p.Text == ""):
		return nil
	case !p.Final:
		return s.event(plainPart{p.Text, p.Language, false, s.parts})
	}
	text := inference.JoinTranscripts(s.text, p.Text)
	delta := text[len(s.text):]
	if s.text = text; delta == "" {
		return nil
	}
	s.parts++
	switch {
	case s.request.plain:
		return s.event(plainPart{p.Text, p.Language, true, s.parts - 1})
	case s.request.format == diarized:
		part := segmentOf(p, s.parts-1)
		err := s.event(map[string]any{"type": "transcript.text.delta", "delta": delta, "segment_id": part.ID})
		return errors.Join(err, s.event(part))
	}
	return s.event(map[string]any{"type": "transcript.text.delta", "delta": delta})
}

// plainPart is an event of /v1/audio/transcriptions/stream.
type plainPart struct {
	Text     string `json:"text"`
	Language string `json:"language"`
	Final    bool   `json:"is_final"`
	Index    int    `json:"chunk_index"`
}

func (s *textStream) done(use usage) {
	if s.request.plain {
		_ = s.event(map[string]bool{"done": true}) // the client may have disconnected
		return
	}
	_ = s.event(map[string]any{"type": "transcript.text.done", "text": s.text, "usage": use}) // as above
}

// fail ends a started stream with an error. It returns false before the start.
func (s *textStream) fail(e *Error) bool {
	switch {
	case !s.begun.Load():
		return false
	case s.request.plain:
		_ = s.event(plainError{"SSE_STREAM_ERROR", e.Message, e.Status}) // the client may have disconnected
		return true
	}
	_ = s.event(map[string]any{"type": "error", "error": e}) // the client may have disconnected
	return true
}
