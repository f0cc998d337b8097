package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// boundedTransport limits the size of answers and converts error responses to
// the format of the library; servers use at least five formats.
type boundedTransport struct {
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusBadRequest {
		res.Body = &boundedBody{ReadCloser: res.Body, left: maxBody}
		return res, nil
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		raw = nil // The status suffices.
	}
	body, err := json.Marshal(map[string]any{"error": map[string]string{"message": errorText(raw)}})
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	res.ContentLength = int64(len(body))
	res.Header.Set("Content-Type", "application/json")
	res.Header.Del("Content-Encoding")
	return res, nil
}

// maxRefusal is the largest size of an error response in bytes; the rest is ignored.
const maxRefusal = 64 << 10

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer exceeds %d bytes", maxBody)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
