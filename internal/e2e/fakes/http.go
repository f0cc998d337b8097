// Package fakes has servers with faults that cameras and CDNs have, one fault a path. It is for tests and touchline-bench only.
package fakes

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"mime"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Web serves the files of a folder, /FAULT/FILE, each time with a fault.
type Web struct {
	// Dir has the files: index.m3u8 with its segments, seg*.ts, and others.
	Dir string
	// Other is the address of another Web, for redirects.
	Other string

	mu     sync.Mutex
	count  map[string]int // requests of a path
	header http.Header    // of the newest request
}

// Header returns the header of the newest request.
func (w *Web) Header() http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.header
}

// Requests returns how often a path was asked for.
func (w *Web) Requests(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[path]
}

const page = "<!DOCTYPE html><html><title>Login</title></html>"

// playlistSegment finds the segments in a playlist.
var playlistSegment = regexp.MustCompile(`(seg\d+)\.ts`)

// ServeHTTP implements http.Handler.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	if w.count == nil {
		w.count = map[string]int{}
	}
	w.count[r.URL.Path]++
	n := w.count[r.URL.Path]
	w.header = r.Header.Clone()
	w.mu.Unlock()
	fault, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	segment := strings.HasPrefix(name, "seg")
	switch {
	case fault == "cookie" && !segment:
		http.SetCookie(rw, &http.Cookie{Name: "session", Value: "1", Path: "/"})
	case fault == "cookie":
		if c, err := r.Cookie("session"); err != nil || c.Value != "1" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
	case fault == "forbidden" && segment, fault == "status-403":
		rw.WriteHeader(http.StatusForbidden)
		return
	case fault == "status-404":
		rw.WriteHeader(http.StatusNotFound)
		return
	case fault == "page", fault == "page-segment" && segment, fault == "page-first" && n <= 2:
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(rw, page)
		return
	case fault == "json":
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"error":"session expired"}`)
		return
	case fault == "xml":
		rw.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(rw, `<?xml version="1.0"?><ResponseStatus><statusCode>4</statusCode></ResponseStatus>`)
		return
	case fault == "redirect":
		http.Redirect(rw, r, w.Other+"/token/"+name+"?token=t", http.StatusFound)
		return
	case fault == "token" && !segment && r.URL.Query().Get("token") != "t":
		rw.WriteHeader(http.StatusForbidden)
		return
	case fault == "parts-png":
		w.parts(rw, r, name)
		return
	}
	w.file(rw, r, fault, name)
}

// parts serves an endless stream of one picture.
func (w *Web) parts(rw http.ResponseWriter, r *http.Request, name string) {
	b, err := os.ReadFile(filepath.Join(w.Dir, filepath.Base(name)))
	if err != nil {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=f")
	for r.Context().Err() == nil {
		kind := mime.TypeByExtension(path.Ext(name))
		if _, err := fmt.Fprintf(rw, "--f\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s\r\n", kind, len(b), b); err != nil {
			return
		}
	}
}

// file serves a file. The names of the segments have another ending for faults "names-ENDING"; names-none has none.
func (w *Web) file(rw http.ResponseWriter, r *http.Request, fault, name string) {
	ending, odd := strings.CutPrefix(fault, "names-")
	if odd && strings.HasPrefix(name, "seg") {
		name = strings.TrimSuffix(name, path.Ext(name)) + ".ts"
	}
	b, err := os.ReadFile(filepath.Join(w.Dir, filepath.Base(name)))
	if err != nil {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	if odd && strings.HasSuffix(name, ".m3u8") {
		b = playlistSegment.ReplaceAll(b, []byte("$1"+strings.TrimSuffix("."+ending, ".none")))
	}
	kind := map[string]string{
		".m3u8": "application/vnd.apple.mpegurl", ".ts": "video/mp2t", ".mp4": "video/mp4",
		".jpg": "image/jpeg", ".bmp": "image/bmp", ".webp": "image/webp",
	}[path.Ext(name)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	if fault == "text" {
		kind = "text/plain"
	}
	rw.Header().Set("Content-Type", kind)
	switch fault {
	case "gzip":
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(rw)
		_, _ = z.Write(b)
		_ = z.Close()
	case "no-range":
		rw.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = rw.Write(b)
	default:
		info, _ := os.Stat(filepath.Join(w.Dir, filepath.Base(name)))
		http.ServeContent(rw, r, "", info.ModTime(), bytes.NewReader(b))
	}
}
