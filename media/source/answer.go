package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// ErrPage is returned when a server answers with a page or with data instead of pictures.
var ErrPage = Errorf("the server answers with a page, maybe its login or an error; open the address in a browser")

// Page returns an error that wraps ErrPage if an answer is HTML, JSON or XML other than a DASH manifest, by its first bytes.
func Page(contentType string, body *bufio.Reader) error {
	start, _ := body.Peek(512) // may be shorter
	start = bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n"))
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = "no type"
	}
	html := bytes.HasPrefix(start, []byte("<!doctype html")) || bytes.HasPrefix(start, []byte("<html")) ||
		bytes.HasPrefix(start, []byte("<")) && strings.Contains(kind, "html")
	json := strings.Contains(kind, "json") && (bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("[")))
	xml := strings.Contains(kind, "xml") && bytes.HasPrefix(start, []byte("<")) && !bytes.Contains(start, []byte("<mpd"))
	if html || json || xml {
		return Errorf("%w (%s)", ErrPage, kind)
	}
	return nil
}

// StatusError returns the error of an HTTP status over 399, with what to do.
func StatusError(status int, what string) error {
	remedy := map[int]string{
		http.StatusUnauthorized: "; it needs a user and a password, or a header with a token",
		http.StatusForbidden:    "; the address may have expired, or needs a cookie or a header",
		http.StatusNotFound:     "; check the path of the address",
		http.StatusGone:         "; the address has expired",
	}[status]
	return Errorf("the server answers with status %d (%s)%s", status, what, remedy)
}

// Decoded returns the body of an answer without its Content-Encoding. Servers encode answers although they were not asked to.
func Decoded(resp *http.Response) (io.Reader, error) {
	var body io.Reader
	var err error
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		body, err = gzip.NewReader(resp.Body)
	case "deflate":
		body, err = zlib.NewReader(resp.Body)
	default:
		err = Errorf("only gzip and deflate are supported")
	}
	if err != nil {
		return nil, Errorf("read the server's answer in encoding %.20q: %w", resp.Header.Get("Content-Encoding"), err)
	}
	for _, key := range []string{"Content-Length", "Content-Encoding", "Accept-Ranges"} {
		resp.Header.Del(key)
	}
	resp.ContentLength = -1
	return body, nil
}

// SameServer reports whether two addresses have the same scheme, host and port.
func SameServer(a, b *url.URL) bool { return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host) }
