package remote

import (
	"fmt"
	"regexp"

	"touchline/inference"
)

// trace collects the exchanges with the server for inference.Prompt.Trace.
type trace struct {
	to   func(inference.Exchange) // nil for none
	open *inference.Exchange      // the present one; nil for none
}

// begin starts an exchange from a request body, in which the size of each picture replaces its bytes.
func (t *trace) begin(body []byte) {
	if t.to == nil {
		return
	}
	const prefix = len("data:image/jpeg;base64,")
	t.open = &inference.Exchange{Request: string(pictureURL.ReplaceAllFunc(body, func(url []byte) []byte {
		return fmt.Appendf(nil, "%s... (%d bytes)", url[:prefix], (len(url)-prefix)/4*3)
	}))}
}

// answer adds text of the server.
func (t *trace) answer(text, reasoning string) {
	if t.open != nil {
		t.open.Answer += text
		t.open.Reasoning += reasoning
	}
}

// end reports the present exchange, if there is one.
func (t *trace) end(err error) {
	if t.open == nil {
		return
	}
	if err != nil {
		t.open.Error = err.Error()
	}
	t.to(*t.open)
	t.open = nil
}

// pictureURL matches the data URL of a picture.
var pictureURL = regexp.MustCompile(`data:image/jpeg;base64,([A-Za-z0-9+/=]{100,})`)
