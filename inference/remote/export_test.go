package remote

import (
	"context"
	"net"
	"time"

	"touchline/inference"
)

// SetNow replaces the clock of refused parts of requests.
func (m *Model) SetNow(now func() time.Time) { m.now = now }

// SetNow replaces the clock.
func (r *Recognizer) SetNow(now func() time.Time) { r.now = now }

// SetDial replaces the connections to the server.
func (m *Model) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	m.client.Transport.(*boundedTransport).DialContext = dial //nolint:forcetypeassert // newClient makes it
}

// ReadTranscription reads an answer of a transcription server.
func ReadTranscription(body []byte, length time.Duration, h inference.Hearing) ([]inference.Transcript, error) {
	return readTranscription(body, length, h)
}

// Marks are the texts of all marks.
func Marks() (out []string) {
	for _, m := range marksTable {
		out = append(out, m.text)
	}
	return out
}

// Visible returns the text that is shown of an answer in pieces: at once, and with text held up to the end.
func Visible(pieces ...string) (atOnce, held string) {
	var texts [2]string
	for i := range texts {
		f := thinkFilter{hold: i == 1}
		for _, p := range pieces {
			texts[i] += f.write(p)
		}
		texts[i] += f.flush()
	}
	return texts[0], texts[1]
}
