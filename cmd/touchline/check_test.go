package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/child"
)

// TestCheckAsksServers: check says of each server that the settings name whether it can be used, or why not, without its address.
func TestCheckAsksServers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1") && r.Header.Get("Authorization") != "":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/hook/secret":
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	closed := httptest.NewServer(nil)
	nobody := strings.TrimPrefix(closed.URL, "http://")
	closed.Close()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer deaf.Close()
	silent := deaf.Addr().String()

	run := func(settings string) (string, int) {
		file := filepath.Join(t.TempDir(), "touchline.yaml")
		require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
		out, stderr, code := touchline(t, "--config", file, "check")
		_, machine, _ := strings.Cut(out, "# this machine")
		require.NotContains(t, machine+stderr, "secret")
		return out, code
	}
	out, _ := run(`
inference:
  recognizer: {program: remote, url: "ws://` + host + `/v1", interim: {url: "http://` + nobody + `/v1"}}
  voice: {program: remote, url: "` + server.URL + `/v1"}
agent:
  webhook: {urls: ["` + server.URL + `/hook/secret", "http://` + nobody + `/secret", "http://` + silent + `/secret"]}
  mqtt: {url: "mqtt://` + nobody + `"}
`)
	confinement, _ := child.Available()
	for _, line := range []string{
		"ok       transcription server: " + host + " answers (200 OK)",
		"missing  interim transcription server: " + nobody + ": dial tcp " + nobody + ": connect: connection refused",
		"ok       speech server: " + host + " answers (200 OK)",
		"ok       webhook 1: " + host + " answers (405 Method Not Allowed)",
		"missing  webhook 2: " + nobody + ": dial tcp " + nobody + ": connect: connection refused",
		"missing  webhook 3: " + silent + ": context deadline exceeded",
		"missing  MQTT broker: dial tcp " + nobody + ": connect: connection refused",
		"ok       confinement of programs: " + confinement,
	} {
		require.Contains(t, out, line)
	}

	out, code := run(`
inference:
  recognizer: {program: remote, url: "http://` + silent + `/v1"}
agent:
  mqtt: {url: "mqtt://` + silent + `"}
`)
	require.Equal(t, 1, code)
	require.Contains(t, out, "missing  transcription server: "+silent+": context deadline exceeded")
	require.Regexp(t, `missing  MQTT broker: .*deadline exceeded`, out)
}

// TestCheckOfTheRecognizer: check looks for the parts of the recognizer and for the runtime of nano.
func TestCheckOfTheRecognizer(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	run := func(settings string, args ...string) string {
		file := filepath.Join(t.TempDir(), "touchline.yaml")
		require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
		out, _, code := touchline(t, append([]string{"--config", file, "check"}, args...)...)
		require.Equal(t, 1, code, out)
		return out
	}
	out := run("inference: {engine: nano, recognizer: {program: model, bundle: "+empty+", interim: {bundle: "+empty+"}}}", "--ort", empty)
	for _, line := range []string{
		"missing  recognizer bundle: open bundle " + empty + ": no manifest.json in the folder",
		"missing  interim recognizer bundle: open bundle " + empty + ": no manifest.json in the folder",
		"missing  ONNX Runtime: ", "optional speech detector: ", "; the energy VAD is used\n",
	} {
		require.Contains(t, out, line)
	}
	require.Equal(t, 3, strings.Count(out, "missing  ONNX Runtime: "), "of nano and of the recognizers")
	out = run("inference: {recognizer: {program: sphinx}}\nagent: {hearing: {wake_words: [xyzzyplugh]}}", "--ort", empty)
	require.Regexp(t, `missing  pocketsphinx: .*`, out)
	require.Regexp(t, `optional ONNX Runtime: .*; the demo uses the scene engine`, out)
}
