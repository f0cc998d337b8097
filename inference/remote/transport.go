package remote

import (
	"fmt"
	"io"
	"net/http"
)

// boundedTransport limits the size of answers.
type boundedTransport struct {
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err == nil {
		res.Body = &boundedBody{ReadCloser: res.Body, left: maxBody}
	}
	return res, err
}

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
