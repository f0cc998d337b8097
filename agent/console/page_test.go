package console_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/console"
)

func TestPage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dist")
	r := open(t, console.Options{WebDir: dir})
	a := r.ask("GET", "/", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, string(a.body), "make web")

	// Built while the console runs: a reload is enough.
	for name, text := range map[string]string{
		"index.html": "<!doctype html><title>built</title>", "static/app.js": "export {}", "static/vendor/a.css": "a{}",
		"favicon.svg": "<svg/>", "../secret": "secret",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	a = r.ask("GET", "/", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, "no-cache", a.header.Get("Cache-Control"))
	policy := a.header.Get("Content-Security-Policy")
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	for _, part := range []string{
		"default-src 'none'", "script-src 'self';", "style-src 'self';", "wss://" + u.Host, "media-src 'self' blob:", "frame-ancestors 'none'",
	} {
		require.Contains(t, policy, part)
	}
	require.NotContains(t, policy, "unsafe")
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Equal(t, "DENY", a.header.Get("X-Frame-Options"))
	require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"))

	tag := a.header.Get("ETag")
	require.Equal(t, http.StatusNotModified, r.ask("GET", "/", "", "If-None-Match", tag).status)
	require.Equal(t, http.StatusOK, r.ask("GET", "/", "", "If-None-Match", `"old"`).status)

	for path, kind := range map[string]string{
		"/static/app.js": "text/javascript; charset=utf-8", "/static/vendor/a.css": "text/css; charset=utf-8",
		"/favicon.svg": "image/svg+xml", "/static/favicon.svg": "image/svg+xml", "/index.html": "text/html; charset=utf-8",
	} {
		a := r.ask("GET", path, "")
		require.Equal(t, http.StatusOK, a.status, path)
		require.Equal(t, kind, a.header.Get("Content-Type"), path)
	}
	for _, path := range []string{"/static/none.js", "/static/", "/static", "/..%2fsecret", "/static/..%2f..%2fsecret", "/%2e%2e/secret", "/.", "/a\\b"} {
		a := r.ask("GET", path, "")
		require.NotContains(t, string(a.body), "secret\n", path)
		require.False(t, a.status == http.StatusOK && strings.Contains(string(a.body), "secret"), path)
	}
	require.Equal(t, http.StatusNotFound, r.ask("GET", "/static/none.js", "").status)
}
