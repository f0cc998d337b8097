package remote_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
)

// recorded replays a response of a real server: testdata has responses (status, header, body) of Ollama 0.17.4 and
// llama.cpp's server (xllamacpp 2026.10.11549), with a small model of random weights.
func recorded(t *testing.T, w http.ResponseWriter, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)+".txt"))
	require.NoError(t, err)
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(raw)))
	status, err := r.ReadLine()
	require.NoError(t, err)
	header, err := r.ReadMIMEHeader()
	require.NoError(t, err)
	code, err := strconv.Atoi(strings.Fields(status)[1])
	require.NoError(t, err)
	for k, v := range header {
		if k != "Transfer-Encoding" && k != "Content-Length" && k != "Connection" && k != "Keep-Alive" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(code)
	_, err = io.Copy(w, r.R)
	require.NoError(t, err)
}

// TestRecordedServers replays the responses of real servers.
func TestRecordedServers(t *testing.T) {
	tests := []struct {
		name, model string
		chat        string
		words       string
		want        string // of the error
		is          error
	}{
		{name: "ollama", chat: "answer", words: "basaroke bakimefe"},
		{name: "ollama", chat: "missing", want: "nope", is: remote.ErrRefused},
		{name: "ollama", model: "nope", chat: "missing", want: "tiny-vision:latest"},
		{name: "ollama", chat: "badpicture", want: "unknown format", is: remote.ErrRefused},
		{name: "ollama", chat: "long", want: "model runner has unexpectedly stopped", is: remote.ErrRefused},
		{name: "llama-server", chat: "answer", words: "badakado bafefado"},
		{name: "llama-server", chat: "badpicture", want: "Failed to load image", is: remote.ErrRefused},
		{name: "llama-server", chat: "long", want: "exceeds the available context size", is: remote.ErrRefused},
		{name: "llama-server", chat: "blind", want: "image input is not supported", is: remote.ErrRefused},
		{name: "llama-server", chat: "loading", want: "Loading model", is: remote.ErrRefused},
	}
	for _, tt := range tests {
		t.Run(tt.name+"/"+tt.model+tt.chat, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { recorded(t, w, tt.name+"/models") })
			mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) { recorded(t, w, tt.name+"/"+tt.chat) })
			s := httptest.NewServer(mux)
			defer s.Close()

			found := remote.Discover(t.Context(), s.URL)
			require.Len(t, found, 1)
			require.Len(t, found[0].Models, 1)

			m := open(t, s.URL, func(c *remote.Config) { c.Model, c.Retries = tt.model, 0 })
			words, err := ask(t.Context(), session(t, m), inference.Prompt{Text: "What is this?", MaxTokens: 4})
			if tt.want == "" {
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(words, tt.words), "it said %q", words)
				return
			}
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
				return
			}
			var missing *inference.ModelMissingError
			require.ErrorAs(t, err, &missing)
		})
	}
}

// TestRecordedWrongModel: llama-server ignores the requested name, so the engine checks its list of models.
func TestRecordedWrongModel(t *testing.T) {
	for _, name := range []string{"ollama", "llama-server"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				recorded(t, w, name+"/models")
				return
			}
			recorded(t, w, name+"/answer")
		}))
		defer s.Close()
		require.NoError(t, open(t, s.URL, func(c *remote.Config) { c.Model = "tiny-vision" }).Warm(t.Context(), nil), name)
		err := open(t, s.URL, func(c *remote.Config) { c.Model = "nope" }).Warm(t.Context(), nil)
		var missing *inference.ModelMissingError
		require.ErrorAs(t, err, &missing, name)
		require.Equal(t, "nope", missing.Model)
	}
}
