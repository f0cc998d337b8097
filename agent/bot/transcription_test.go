package bot_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/agent/bot"
	"touchline/configs"
	"touchline/inference"
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

// TestServerTranslates: a transcription server translates by itself.
func TestServerTranslates(t *testing.T) {
	t.Parallel()
	service := transcription(t, "http://127.0.0.1:9/v1")
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
