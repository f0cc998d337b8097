package bot_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/bot"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
)

// TestSpeechAsAService: the programs speak, and the model where it has a voice.
func TestSpeechAsAService(t *testing.T) {
	model := &agenttest.Engine{Can: &inference.Capabilities{Instructions: true}}
	cfg := configs.Default().Inference.Voice
	h, err := bot.ScriptedEngines(nil, nil).Speech(cfg, func() *bot.Engine { return &bot.Engine{ModelManager: engine.Of(model, nil)} }, zerolog.Nop())
	require.NoError(t, err)
	speak := func(voice string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeSpeech(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/audio/speech",
			strings.NewReader(`{"input": "Go!", "response_format": "pcm", "voice": "`+voice+`"}`)))
		return w
	}
	voices := func() string {
		w := httptest.NewRecorder()
		h.ServeVoices(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/audio/voices", nil))
		b, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, http.StatusOK, speak("flite:rms").Code)
	for voice, want := range map[string]string{
		"model": "this model has no voice", "nobody": `the voice \"nobody\" is not installed`, "remote": "there is no speech server",
	} {
		w := speak(voice)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), want)
	}
	require.NotContains(t, voices(), "model")

	model.Become(inference.Capabilities{Speech: true, OwnVoice: true})
	require.Contains(t, voices(), `{"id":"model"}`)
	for _, voice := range []string{"model", "auto", ""} {
		w := speak(voice)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, 2*24000, w.Body.Len(), "the model's second of sound")
	}
	require.NotEqual(t, 2*24000, speak("flite:rms").Body.Len())
	require.Zero(t, model.Sessions())

	cfg.Program = "remote"
	_, err = bot.ScriptedEngines(nil, nil).Speech(cfg, func() *bot.Engine { return &bot.Engine{ModelManager: engine.Of(model, nil)} }, zerolog.Nop())
	require.ErrorContains(t, err, "needs inference.voice.url")
}
