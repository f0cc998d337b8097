package console_test

import (
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/agent/console"
)

// TestPathsOfClients: a wrong path of OpenAI's API is a 404 that names the right one; models have an answer each, also where only
// speech is served.
func TestPathsOfClients(t *testing.T) {
	t.Parallel()
	speech := audioapi.New(audioapi.Options{Voices: func() []audioapi.Voice { return nil }})
	r := open(t, console.Options{Speech: speech, Transcription: transcriber(), Rooms: console.NewRooms(0, zerolog.Nop())}, console.Unlimited)
	for path, right := range map[string]string{
		"/audio/transcriptions": "/v1/audio/transcriptions", "/v1/audio/transcriptions/": "/v1/audio/transcriptions",
		"/openai/v1/audio/speech": "/v1/audio/speech", "/v1/v1/audio/translations": "/v1/audio/translations", "/models": "/v1/models",
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			a := r.glance(method, path, "")
			require.Equal(t, http.StatusNotFound, a.status, path)
			require.Contains(t, string(a.body), "no such path: "+path+"; use "+right)
		}
	}
	require.Equal(t, http.StatusMethodNotAllowed, r.glance(http.MethodGet, "/v1/audio/transcriptions", "").status)
	require.Equal(t, http.StatusOK, r.glance(http.MethodGet, "/v1/models/Qwen/Qwen3-ASR-0.6B", "").status)
	only := open(t, console.Options{Speech: speech, Rooms: console.NewRooms(0, zerolog.Nop())}, console.Unlimited)
	for _, path := range []string{"/v1/models", "/v1/models/tts-1"} {
		require.Equal(t, http.StatusOK, only.glance(http.MethodGet, path, "").status)
	}
}
