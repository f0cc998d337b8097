package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// unbuiltPage is shown when the page is not built.
const unbuiltPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Touchline</title>
<h1>Touchline</h1>
<p>The page is not built yet: run <code>make web</code> and reload.</p>
<p>The API works without it: <a href="/api/status">/api/status</a>.</p>
</html>
`

// roomPage is the page of one room, roomsPage the page of many rooms.
const (
	roomPage  = "index.html"
	roomsPage = "rooms.html"
)

// page serves the built page: home at /, the room page at /rooms/NAME, their files below /static/.
type page struct {
	files fs.FS
	home  string // the file at /
}

func newPage(dir, home string) (*page, error) {
	files, err := pageFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("open the page: %w", err)
	}
	return &page{files, home}, nil
}

// serve answers with a file of the page. /static/NAME is dist/static/NAME or dist/NAME; any other path is a path in dist.
func (p *page) serve(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	switch {
	case r.PathValue("room") != "":
		name = roomPage // its script reads the room from the address
	case name == "":
		name = p.home
	}
	data, err := p.read(name)
	if rest, ok := strings.CutPrefix(name, "static/"); ok && errors.Is(err, fs.ErrNotExist) {
		data, err = p.read(rest)
	}
	switch {
	case err == nil:
	case name == roomPage || name == p.home:
		return writeBody(w, http.StatusServiceUnavailable, "text/html; charset=utf-8", []byte(unbuiltPage))
	default:
		return refuse(http.StatusNotFound, "not_found", "no such page: %s", r.URL.Path)
	}
	h := w.Header()
	if strings.HasSuffix(name, ".html") {
		h.Set("Content-Security-Policy", pagePolicy(r))
	}
	h.Set("Content-Type", contentType(name))
	h.Set("Cache-Control", "no-cache") // revalidated each time by the ETag
	sum := sha256.Sum256(data)
	h.Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	return nil
}

func (p *page) read(name string) ([]byte, error) {
	data, err := fs.ReadFile(p.files, name)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	return data, nil
}

// LiveKitClient returns LiveKit's client for browsers, a module, for other pages of the program.
func LiveKitClient() ([]byte, error) {
	p, err := newPage("", roomPage)
	if err != nil {
		return nil, err
	}
	return p.read("static/vendor/livekit-client.js")
}

// pagePolicy allows the page its own modules, its own host for data and sockets, and blobs for media and workers; nothing inline and
// nothing from other hosts.
func pagePolicy(r *http.Request) string {
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		"font-src 'self'",
		"img-src 'self' blob: data:",
		"media-src 'self' blob: mediastream:",
		"connect-src 'self' ws://" + r.Host + " wss://" + r.Host,
		"worker-src 'self' blob:",
		"manifest-src 'self'",
		"base-uri 'none'",
		"form-action 'self'",
		"frame-ancestors 'none'",
	}, "; ")
}

// contentType returns the content type of a file. The machine's own table may be wrong or empty.
func contentType(name string) string {
	ext := path.Ext(name)
	known := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".json": "application/json", ".map": "application/json",
		".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".webmanifest": "application/manifest+json", ".woff2": "font/woff2",
	}
	return cmp.Or(known[ext], mime.TypeByExtension(ext), "application/octet-stream")
}
