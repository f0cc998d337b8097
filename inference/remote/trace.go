package remote

import (
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/openai/openai-go/v3/option"

	"touchline/inference"
)

// trace collects the exchanges with the server for inference.Prompt.Trace.
type trace struct {
	to   func(inference.Exchange) // nil for none
	open *inference.Exchange      // the one under way
}

// request returns the option that begins an exchange with the body of a request as it is sent.
func (t *trace) request() []option.RequestOption {
	if t.to == nil {
		return nil
	}
	return []option.RequestOption{option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		t.open = &inference.Exchange{Request: body(r)}
		return next(r)
	})}
}

// answer adds text of the server.
func (t *trace) answer(text, reasoning string) {
	if t.open != nil {
		t.open.Answer += text
		t.open.Reasoning += reasoning
	}
}

// end ends the exchange under way, if there is one.
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

// body returns the body of a request, with the size of each picture in place of its bytes.
func body(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	from, err := r.GetBody()
	if err != nil {
		return err.Error()
	}
	defer from.Close() // in memory
	text, err := io.ReadAll(from)
	if err != nil {
		return err.Error()
	}
	const prefix = len("data:image/jpeg;base64,")
	return string(pictureURL.ReplaceAllFunc(text, func(url []byte) []byte {
		return fmt.Appendf(nil, "%s... (%d bytes)", url[:prefix], (len(url)-prefix)/4*3)
	}))
}
