//go:build integration

package main

import (
	"image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/fakes"
)

// settingsFile writes a settings file and returns its path.
func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "touchline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestAskFaultyServers: `touchline ask` prints the answer of a model server with a fault, or ends with its reason.
func TestAskFaultyServers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(fakes.Model())
	defer server.Close()
	first, second := writePicture(t, "a.png", 64, 64, png.Encode), writePicture(t, "b.png", 64, 64, png.Encode)
	for fault, reason := range map[string]string{
		"good": "", "max-tokens": "", "extra-inputs": "", "one-picture": "", "no-system": "", "thinks-unless-none": "", "thoughts-unopened": "",
		"glm-box": "", "kimi": "", "harmony": "", "json-as-events": "", "events-as-json": "", "ndjson": "", "parts": "", "bare-cr": "",
		"retry-after-date": "", "first-event-error": "", "message-and-delta": "", "stop-each": "", "null-reason": "", "medgemma": "",
		"status-200": "login fail", "other-server": "Provider returned error: no quota", "page-524": "524: a.example | 524: A timeout occurred",
		"answer-reasoning": "all of its answer is in the field for reasoning", "empty": "its answer is empty (finish_reason stop)",
		"filter": "a content filter stopped it", "html": "expected JSON or events, got text/html",
	} {
		settings := settingsFile(t, "inference: {engine: remote, remote: {url: "+server.URL+"/"+fault+"/v1}}\n")
		stdout, stderr, code := touchline(t, "--config", settings, "ask", first, second, "What happens?")
		if reason != "" {
			require.Equal(t, 1, code, fault)
			require.Contains(t, stderr, reason, fault)
			continue
		}
		require.Zero(t, code, "%s: %s", fault, stderr)
		answer, _, _ := strings.Cut(stdout, "\n")
		require.Equal(t, fakes.Answer, answer, fault)
	}
}

// TestTranscribeFaultyServers: `touchline transcribe` makes text and subtitles with a transcription server that has a fault.
func TestTranscribeFaultyServers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(fakes.Speech())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "goal.wav")
	_, stderr, code := touchline(t, "say", "--voice", "slt", "A goal for the reds! One nil, in the last minute.", file)
	require.Zero(t, code, stderr)
	for _, fault := range []string{
		"good", "vllm", "vague", "verbose-500", "nan", "strings", "bom", "qwen-marks", "hostile-cues", "created-status",
		"sense-voice", "other-types", "only-segments", "no-words", "no-segments",
	} {
		settings := settingsFile(t, "inference: {recognizer: {program: remote, url: "+server.URL+"/"+fault+"/v1}}\n")
		for _, format := range []string{"text", "srt", "vtt"} {
			stdout, stderr, code := touchline(t, "--config", settings, "transcribe", "--format", format, file)
			require.Zero(t, code, "%s %s: %s", fault, format, stderr)
			require.Contains(t, stdout, fakes.Heard, fault)
			require.Equal(t, format != "text", strings.Contains(stdout, " --> "), fault)
			require.False(t, format != "text" && strings.Contains(stdout, "<b>"), stdout)
			require.NotContains(t, stdout, "<asr_text>")
		}
	}
}
