package mjpeg

import (
	"io"
	"net/http"
	"net/url"
)

// Pictures returns all pictures found.
func Pictures(r io.Reader) (out [][]byte) {
	s := newScanner(r)
	for {
		p, err := s.next()
		if err != nil {
			return out
		}
		out = append(out, p)
	}
}

// Sign answers a challenge for admin and hunter2, "" for none.
func Sign(challenge string) string {
	d := readChallenge([]string{challenge})
	u := &url.URL{Scheme: "http", Host: "x", User: url.UserPassword("admin", "hunter2")}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{}}
	d.sign(r, u)
	return r.Header.Get("Authorization")
}
