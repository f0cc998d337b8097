package remote

import (
	"context"
	"net"
	"time"

	"touchline/inference"
)

// SetNow replaces the clock of refused schemas.
func (m *Model) SetNow(now func() time.Time) { m.now = now }

// SetDial replaces the connections to the server.
func (m *Model) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	m.client.Transport.(*boundedTransport).DialContext = dial //nolint:forcetypeassert // newClient makes it
}

// ReadTranscription reads an answer of a transcription server.
func ReadTranscription(body []byte, length time.Duration, h inference.Hearing) ([]inference.Transcript, error) {
	return readTranscription(body, length, h)
}
