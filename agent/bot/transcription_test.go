//go:build integration

package bot_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/agent/bot"
	"touchline/configs"
	"touchline/inference"
	"touchline/internal/e2e/fakes"
	"touchline/internal/wav"
)

// transcription returns the service of a transcription server, with changes of the settings.
func transcription(t *testing.T, url string, change ...func(*inference.RecognizerConfig)) *audioapi.Transcriber {
	t.Helper()
	cfg := configs.Default()
	cfg.Inference.MiniCPM.Runtime = t.TempDir()
	cfg.Inference.Recognizer.Program, cfg.Inference.Recognizer.URL = inference.RecognizerRemote, url
	for _, f := range change {
		f(&cfg.Inference.Recognizer)
	}
	service, err := bot.NewTranscription(cfg.Bot(), zerolog.Nop())
	require.NoError(t, err)
	return service
}

// TestInterimServer: interim texts come from one server, final texts from the other; and all from this one when the first one fails.
func TestInterimServer(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	speech := fakes.Speech()
	fast := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		speech.ServeHTTP(w, r)
	}))
	defer fast.Close()
	exact := httptest.NewServer(speech)
	defer exact.Close()
	service := transcription(t, exact.URL+"/good/v1", func(c *inference.RecognizerConfig) {
		c.Interim = inference.InterimConfig{URL: fast.URL + "/unfinished/v1", Model: "small"}
	})
	server := httptest.NewServer(http.HandlerFunc(service.ServePlain))
	defer server.Close()
	conn, res, err := websocket.DefaultDialer.Dial(strings.Replace(server.URL, "http", "ws", 1)+"?use_server_vad=0", nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	defer conn.Close()
	type message struct {
		Text    string `json:"text"`
		Partial bool   `json:"is_partial"`
		Final   bool   `json:"is_final"`
	}
	next := func() (m message) {
		require.NoError(t, conn.ReadJSON(&m))
		return m
	}
	next() // hello
	say := func() {
		require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, make([]byte, 2*inference.RecognizerRate)))
	}
	flush := func() { require.NoError(t, conn.WriteJSON(map[string]string{"action": "flush"})) }
	say()
	require.Equal(t, message{Text: "Een doel", Partial: true}, next())
	require.Contains(t, service.Health().Detail, "; interim texts by small")
	flush()
	require.Equal(t, message{Text: fakes.Heard, Final: true}, next())
	say()
	require.Equal(t, message{Text: "Een doel", Partial: true}, next())
	broken.Store(true)
	say()
	require.Equal(t, message{Text: fakes.Heard, Partial: true}, next())
	detail := service.Health().Detail
	require.Contains(t, detail, "; interim texts too, as small failed: ")
	require.Contains(t, detail, "set its key in TOUCHLINE_INFERENCE_RECOGNIZER_INTERIM_API_KEY")
	flush()
	require.Equal(t, message{Text: fakes.Heard, Final: true}, next())
}

// TestServerTranslates: a transcription server translates by itself, also with a server for interim texts.
func TestServerTranslates(t *testing.T) {
	t.Parallel()
	service := transcription(t, "http://127.0.0.1:9/v1", func(c *inference.RecognizerConfig) { c.Interim.URL = c.URL })
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, err := form.CreateFormFile("file", "silence.wav")
	require.NoError(t, err)
	_, err = file.Write(wav.Encode(make([]float32, inference.RecognizerRate), inference.RecognizerRate))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/audio/translations", &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	w := httptest.NewRecorder()
	service.ServeTranslations(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}
