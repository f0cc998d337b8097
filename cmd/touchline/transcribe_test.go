package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTranscribe: the program writes the texts of files by a transcription server, and each error names what is wrong.
func TestTranscribe(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("prompt") != "Ajax" || r.FormValue("language") != "nl" {
			http.Error(w, "other fields", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"text": "Een doelpunt!", "segments": [{"start": 0.5, "end": 2, "text": "Een doelpunt!"}],
			"words": [{"word": "Een", "start": 0.5, "end": 1}, {"word": "doelpunt", "start": 1, "end": 2}]}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	settings := filepath.Join(dir, "touchline.yaml")
	require.NoError(t, os.WriteFile(settings, []byte("inference: {recognizer: {program: remote, url: "+server.URL+"/v1}}\n"), 0o600))
	file := filepath.Join(dir, "goal.wav")
	_, stderr, code := touchline(t, "say", "--voice", "slt", "A goal for the reds! One nil, in the last minute.", file)
	require.Zero(t, code, stderr)
	run := func(args ...string) (string, string, int) {
		return touchline(t, append([]string{"--config", settings, "transcribe", "--language", "nl", "--context", "Ajax"}, args...)...)
	}
	for format, want := range map[string]string{
		"srt":  "1\n00:00:00,500 --> 00:00:02,000\nEen doelpunt!\n\n",
		"vtt":  "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\nEen doelpunt!\n\n",
		"json": `"words":[{"word":"Een","start":0.5,"end":1},{"word":"doelpunt!","start":1,"end":2}],"segments":[{"id":0`,
	} {
		stdout, stderr, code := run("--format", format, "--words", file)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, want)
	}
	text := filepath.Join(dir, "text.wav")
	require.NoError(t, os.WriteFile(text, []byte("no sound"), 0o600))
	for want, args := range map[string][]string{
		"text.wav: ":                {text},
		"no such file or directory": {filepath.Join(dir, "none.wav")},
		"a file with sound":         {os.DevNull},
	} {
		_, stderr, code := run(args...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
	}
	_, stderr, code = touchline(t, "transcribe", file)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "set inference.recognizer.program")
	_, stderr, code = touchline(t, "serve")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "set inference.recognizer.program")
}

func TestTranscribeReadsStandardInput(t *testing.T) {
	f, err := opened(t.Context(), "-", strings.NewReader("sound"), 5)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "sound", string(b))
	require.NoFileExists(t, f.Name())
	_, err = opened(t.Context(), "-", strings.NewReader("sound"), 4)
	require.ErrorContains(t, err, "more than 4 bytes: agent.console.transcription.max_bytes")
}

// TestTranscribeAddress: a recording of a web server, of a bounded size.
func TestTranscribeAddress(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/talk.wav" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "sound")
	}))
	defer web.Close()
	f, err := opened(t.Context(), web.URL+"/talk.wav", nil, 5)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "sound", string(b))
	_, err = opened(t.Context(), web.URL+"/talk.wav", nil, 4)
	require.ErrorContains(t, err, "more than 4 bytes: agent.console.transcription.max_bytes")
	_, err = opened(t.Context(), web.URL+"/none.wav", nil, 5)
	require.ErrorContains(t, err, "404")
	web.Close()
	_, err = opened(t.Context(), strings.Replace(web.URL, "//", "//user:hunter2@", 1)+"/hunter2.wav?key=hunter2", nil, 5)
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "hunter2")
	require.Equal(t, "https://a.example/x.wav?key=...", shown("https://user:hunter2@a.example/x.wav?key=hunter2"))
	require.Equal(t, "a b.wav", shown("a b.wav"))
}

func TestHearingMeter(t *testing.T) {
	var out strings.Builder
	m := hearingMeter{out: &out, on: true}
	m.show(30*time.Second, time.Minute)
	m.end()
	require.Equal(t, "\r\x1b[K███████████████░░░░░░░░░░░░░░░  50 % of 1m0s\r\x1b[K", out.String())
	out.Reset()
	m = hearingMeter{out: &out}
	m.show(0, time.Minute)
	m.end()
	require.Empty(t, out.String(), "no terminal")
}

// TestTranscribeAddressLimits: a download that stalls, never ends or is something else is an error that names what came.
func TestTranscribeAddressLimits(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/radio":
			w.Header().Set("Icy-Name", "One")
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		default:
			w.Header().Set("Content-Type", "audio/mpeg")
		}
		for first := true; r.Context().Err() == nil; first = false {
			if first || r.URL.Path == "/endless" {
				_, _ = w.Write(make([]byte, 100))
				_ = http.NewResponseController(w).Flush()
			}
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}))
	defer web.Close()
	for path, want := range map[string]string{
		"/stalls": "nothing came within 300ms, after 100 bytes of audio/mpeg", "/endless": "it did not end within 2s, after ",
		"/radio": "got a live radio stream", "/page": "expected a recording, got text/html",
	} {
		idle := 300 * time.Millisecond
		if path == "/endless" {
			idle = time.Minute
		}
		_, err := fetched(t.Context(), web.URL+path, 1<<20, idle, 2*time.Second)
		require.ErrorContains(t, err, want)
	}
	_, err := fetched(t.Context(), web.URL+"/stalls", 99, 2*time.Second, 2*time.Second)
	require.ErrorContains(t, err, "it has more than 99 bytes: agent.console.transcription.max_bytes")
}
