package remote

import (
	"time"

	"touchline/inference"
)

// SetNow replaces the clock of refused schemas.
func (m *Model) SetNow(now func() time.Time) { m.now = now }

// ReadTranscription reads an answer of a transcription server.
func ReadTranscription(body []byte, length time.Duration, h inference.Hearing) ([]inference.Transcript, error) {
	return readTranscription(body, length, h)
}
