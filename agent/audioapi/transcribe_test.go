package audioapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/live"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
	"touchline/internal/wav"
)

// transcribe serves a recognizer.
func transcribe(tb testing.TB, r inference.Recognizer, change ...func(*audioapi.TranscriberOptions)) (*httptest.Server, *audioapi.Transcriber) {
	tb.Helper()
	o := audioapi.TranscriberOptions{Config: audioapi.DefaultConfig(), Recognizer: r, VAD: vad.Loud(), Log: zerolog.Nop()}
	for _, f := range change {
		f(&o)
	}
	h := audioapi.NewTranscriber(o)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/audio/transcriptions", h.ServeTranscriptions)
	mux.HandleFunc("POST /v1/audio/translations", h.ServeTranslations)
	mux.HandleFunc("POST /v1/audio/transcriptions/stream", h.ServeStream)
	mux.HandleFunc("POST /v1/audio/subtitles", h.ServeSubtitles)
	mux.HandleFunc("GET /v1/models", h.ServeModels)
	mux.HandleFunc("GET /v1/models/{id...}", h.ServeModel)
	mux.HandleFunc("GET /health", h.ServeHealth)
	mux.HandleFunc("GET /v1/realtime", h.ServeRealtime)
	mux.HandleFunc("GET /ws/transcribe", h.ServePlain)
	srv := httptest.NewServer(mux)
	tb.Cleanup(srv.Close)
	return srv, h
}

// ownModel accepts only the names of the model.
func ownModel(o *audioapi.TranscriberOptions) { o.Config.AnyModel = false }

// upload posts a form, and returns the status and the body of the answer.
func upload(tb testing.TB, srv *httptest.Server, path string, file []byte, fields map[string]string) (int, string) {
	tb.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for k, v := range fields {
		for _, v := range strings.Split(v, "|") {
			require.NoError(tb, w.WriteField(k, v))
		}
	}
	if file != nil {
		f, err := w.CreateFormFile("file", "sound.wav")
		require.NoError(tb, err)
		_, err = f.Write(file)
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, srv.URL+path, &b)
	require.NoError(tb, err)
	req.Header.Set("Content-Type", w.FormDataContentType())
	res, err := srv.Client().Do(req)
	require.NoError(tb, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(tb, err)
	return res.StatusCode, string(body)
}

// speech is a file with two utterances: w600 w500 at 1 s, w400 at 4 s; 5 s in all.
func speech() []byte {
	sound := livetest.Say(time.Second, 0, 600, 0, 0, 400)
	copy(sound[3*8000:], livetest.Say(500*time.Millisecond, 500))
	return wav.Encode(sound, 16000)
}

const transcriptions = "/v1/audio/transcriptions"

// TestFieldsOfTranscriptions: each field of OpenAI's API changes what is heard or answered.
func TestFieldsOfTranscriptions(t *testing.T) {
	tests := []struct {
		name   string
		fields map[string]string
		want   string // of the body
		heard  livetest.Call
	}{
		{"json", nil, `{"text":"w600 w500 w400","languages":[{"code":"en"}],"usage":{"type":"tokens","input_tokens":62,"output_tokens":3,"total_tokens":65,` +
			`"input_token_details":{"audio_tokens":62,"text_tokens":0}},"language":"en"}`, livetest.Call{Samples: 80000}},
		{"text", map[string]string{"response_format": "text"}, "w600 w500 w400\n", livetest.Call{Samples: 80000}},
		{
			"srt",
			map[string]string{"response_format": "srt"},
			"1\n00:00:01,000 --> 00:00:02,000\nw600 w500\n\n2\n00:00:04,000 --> 00:00:05,000\nw400\n\n",
			livetest.Call{Samples: 80000, Hearing: inference.Hearing{WordTimes: true}},
		},
		{
			"vtt",
			map[string]string{"response_format": "vtt"},
			"WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nw600 w500\n\n00:00:04.000 --> 00:00:05.000\nw400\n\n",
			livetest.Call{Samples: 80000, Hearing: inference.Hearing{WordTimes: true}},
		},
		{
			"words",
			map[string]string{"response_format": "verbose_json", "timestamp_granularities[]": "word"},
			`"words":[{"word":"w600","start":1,"end":1.5},{"word":"w500","start":1.5,"end":2},{"word":"w400","start":4,"end":5}],"usage"`,
			livetest.Call{Samples: 80000, Hearing: inference.Hearing{WordTimes: true}},
		},
		{
			"words and segments",
			map[string]string{"response_format": "verbose_json", "timestamp_granularities": "word|segment"},
			`"end":5}],"segments":[{"id":0,"seek":0,"start":0,"end":5,"text":"w600 w500 w400","tokens":[],"temperature":0,"avg_logprob":0,` +
				`"compression_ratio":0.583,"no_speech_prob":0}],"usage"`,
			livetest.Call{Samples: 80000, Hearing: inference.Hearing{WordTimes: true}},
		},
		{
			"segments by their pauses",
			map[string]string{"response_format": "verbose_json", "language": "nl"},
			`{"task":"transcribe","language":"dutch","duration":5,"text":"w600 w500 w400","segments":[{"id":0,"seek":69,"start":0.692,"end":2.528,"text":"w600 w500"`,
			livetest.Call{Samples: 29376, Hearing: inference.Hearing{Language: "nl"}},
		},
		{"language", map[string]string{"language": "Dutch"}, `"w600 w500 w400"`, livetest.Call{Samples: 80000, Hearing: inference.Hearing{Language: "nl"}}},
		{"languages", map[string]string{"languages[]": "ja"}, `"w600 w500 w400"`, livetest.Call{Samples: 80000, Hearing: inference.Hearing{Language: "ja"}}},
		{
			"prompt and keywords",
			map[string]string{"prompt": "Football.", "keywords[]": "Ajax|PSV"},
			`"w600 w500 w400"`,
			livetest.Call{Samples: 80000, Hearing: inference.Hearing{Context: "Football.\nAjax, PSV"}},
		},
		{"temperature", map[string]string{"temperature": "0.5"}, `"w600 w500 w400"`, livetest.Call{Samples: 80000, Hearing: inference.Hearing{Temperature: 0.5}}},
		{"chunking", map[string]string{"chunking_strategy": "auto"}, `"w600 w500 w400"`, livetest.Call{Samples: 29376}},
		{
			"chunking with settings",
			map[string]string{"chunking_strategy": `{"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 0, "silence_duration_ms": 100}`},
			`"w600 w500 w400"`,
			livetest.Call{Samples: 18432},
		},
		{
			"stream",
			map[string]string{"stream": "true", "chunking_strategy": "auto"},
			`data: {"delta":"w600 w500","type":"transcript.text.delta"}` + "\n\n" + `data: {"delta":" w400","type":"transcript.text.delta"}` + "\n\n" +
				`data: {"text":"w600 w500 w400","type":"transcript.text.done","usage":{"type":"tokens"`,
			livetest.Call{Samples: 29376},
		},
		{
			"diarized stream",
			map[string]string{"stream": "true", "response_format": "diarized_json", "model": "gpt-4o-transcribe-diarize"},
			`data: {"delta":"w600 w500","segment_id":"seg_0","type":"transcript.text.delta"}` + "\n\n" +
				`data: {"type":"transcript.text.segment","id":"seg_0","start":0.692,"end":2.528,"text":"w600 w500","speaker":"A"}` + "\n\n",
			livetest.Call{Samples: 29376},
		},
		{
			"diarized",
			map[string]string{"response_format": "diarized_json", "chunking_strategy": "auto"},
			`{"task":"transcribe","duration":5,"text":"w600 w500 w400","segments":[{"type":"transcript.text.segment","id":"seg_0","start":0.692,` +
				`"end":2.528,"text":"w600 w500","speaker":"A"},{"type":"transcript.text.segment","id":"seg_1"`,
			livetest.Call{Samples: 29376},
		},
		{"several languages", map[string]string{"languages[]": "ja|nl"}, `"languages":[{"code":"en"}]`, livetest.Call{Samples: 80000}},
		{"a model with a date", map[string]string{"model": "gpt-4o-mini-transcribe-2025-12-15"}, `{"text":"w600`, livetest.Call{Samples: 80000}},
		{"no stream", map[string]string{"stream": "false", "include[]": "", "temperature": "0"}, `{"text":"w600`, livetest.Call{Samples: 80000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &livetest.Recognizer{}
			srv, _ := transcribe(t, r)
			fields := map[string]string{"model": "whisper-1"}
			maps.Copy(fields, tt.fields)
			status, body := upload(t, srv, transcriptions, speech(), fields)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, tt.want)
			tt.heard.Method = "transcribe"
			require.Equal(t, tt.heard, r.Calls()[0])
		})
	}
}

func TestRefusedTranscriptions(t *testing.T) {
	srv, h := transcribe(t, &livetest.Recognizer{NoTimes: true}, ownModel)
	tests := []struct {
		fields map[string]string
		status int
		want   string
	}{
		{map[string]string{"model": "llama"}, 404, `model \"llama\" not found`},
		{map[string]string{"language": "xx"}, 400, `language: expected a language of the model, such as en, got \"xx\"`},
		{map[string]string{"language": "de"}, 400, "language: expected a language of the model"},
		{map[string]string{"languages[]": "en|xx"}, 400, "language: expected a language"},
		{map[string]string{"prompt": strings.Repeat("a", 20<<10)}, 400, "prompt: at most 16384 bytes"},
		{map[string]string{"prompt": strings.Repeat("a", 70<<10)}, 400, "prompt: at most 65536 bytes"},
		{map[string]string{"temperature": "2"}, 400, "temperature: expected 0 to 1"},
		{map[string]string{"temperature": "NaN"}, 400, "temperature: expected 0 to 1"},
		{map[string]string{"response_format": "ass"}, 400, "response_format: expected json, text, srt, verbose_json, vtt or diarized_json"},
		{map[string]string{"response_format": "diarized_json", "timestamp_granularities[]": "word"}, 400, "only with response_format verbose_json"},
		{map[string]string{"timestamp_granularities[]": "word"}, 400, "timestamp_granularities: only with response_format verbose_json"},
		{map[string]string{"timestamp_granularities[]": "letter", "response_format": "verbose_json"}, 400, "expected word or segment"},
		{map[string]string{"timestamp_granularities[]": "word", "response_format": "verbose_json"}, 400, "gives no times of words"},
		{map[string]string{"stream": "maybe"}, 400, "stream: expected true or false"},
		{map[string]string{"stream": "true", "response_format": "srt"}, 400, "stream: a stream has text only"},
		{map[string]string{"include[]": "logprobs"}, 400, "include: there are no logprobs here"},
		{map[string]string{"known_speaker_names[]": "Anna"}, 400, "speakers are not told apart"},
		{map[string]string{"chunking_strategy": "often"}, 400, "chunking_strategy: expected"},
		{map[string]string{"chunking_strategy": `{"type": "semantic_vad"}`}, 400, "expected the type server_vad"},
		{map[string]string{"chunking_strategy": `{"type": "server_vad", "threshold": 7}`}, 400, "threshold: expected above 0 to 1"},
		{map[string]string{"chunking_strategy": `{"type": "server_vad", "prefix_padding_ms": -1}`}, 400, "prefix_padding_ms"},
		{map[string]string{"chunking_strategy": `{"type": "server_vad", "silence_duration_ms": 1}`}, 400, "silence_duration_ms"},
	}
	for _, tt := range tests {
		fields := map[string]string{"model": "whisper-1"}
		maps.Copy(fields, tt.fields)
		status, body := upload(t, srv, transcriptions, speech(), fields)
		require.Equal(t, tt.status, status, "%v: %s", tt.fields, body)
		require.Contains(t, body, tt.want)
		var form struct {
			Error struct{ Message, Type, Param, Code string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &form))
		require.Equal(t, "invalid_request_error", form.Error.Type)
		require.NotEmpty(t, form.Error.Param)
		require.NotEmpty(t, form.Error.Code)
	}
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(h.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "touchline_transcription_errors_total" {
			require.Len(t, f.GetMetric(), 2, "two codes")
		}
	}
}

// floats is a WAV file of 32-bit floats.
func floats(rate int, values ...float32) []byte {
	b := wav.Encode(values, rate)[:44]
	b[20], b[32], b[34] = 3, 4, 32
	for _, v := range values {
		n := math.Float32bits(v)
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return append(b[:40:40], append([]byte{255, 255, 255, 127}, b[44:]...)...)
}

// TestBadFiles: lies and rarities are heard, or refused with a reason.
func TestBadFiles(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) {
		o.Config.MaxDuration, o.Config.MaxBytes = time.Minute, 8<<20
	})
	second := make([]float32, 16000)
	for i := range second {
		second[i] = float32(math.Sin(float64(i)/9)) * 3
	}
	nan := append([]float32{float32(math.NaN())}, second...)
	channels := func(n int, rate int) []byte { // of all-equal channels, 1 s
		b := wav.Encode(make([]float32, n*rate), rate)
		b[22], b[32] = byte(n), byte(2*n)
		return b
	}
	huge := wav.Encode(second, 16000)
	huge[40], huge[41], huge[42], huge[43] = 0, 0, 0, 0x80 // 2 GB
	for name, tt := range map[string]struct {
		file   []byte
		status int
		want   string
	}{
		"none":              {nil, 400, "a file with sound is needed"},
		"empty":             {[]byte{}, 400, "a file with sound is needed"},
		"text":              {[]byte("this is no sound at all"), 422, "expected a WAV file"},
		"a head alone":      {[]byte("RIFF\x00\x00\x00\x00WAVE"), 422, "got no data"},
		"2 GB in the head":  {huge, 200, ""},
		"stereo":            {channels(2, 16000), 200, ""},
		"8 channels":        {channels(8, 8000), 200, ""},
		"9 channels":        {channels(9, 8000), 422, "at most 8 channels, got 9"},
		"192 kHz":           {channels(1, 192000), 200, ""},
		"an unlikely rate":  {wav.Encode(second, 7), 422, "sample rate 7 Hz"},
		"an odd rate":       {wav.Encode(second, 16001), 200, ""},
		"10 ms":             {wav.Encode(second[:160], 16000), 400, "at least 100ms of sound, got 10ms"},
		"NaN":               {floats(16000, nan...), 422, "samples that are no numbers"},
		"louder than sound": {floats(16000, second...), 200, ""},
		"too long":          {wav.Encode(make([]float32, 62*8000), 8000), 413, "at most 1m0s of sound"},
		"too large":         {make([]byte, 9<<20), 413, "at most 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := upload(t, srv, transcriptions, tt.file, map[string]string{"model": "test"})
			require.Equal(t, tt.status, status, body)
			require.Contains(t, body, tt.want)
		})
	}
	res, err := http.Post(srv.URL+transcriptions, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
}

// TestSilenceHasNoText: the model is not asked, so it invents no words.
func TestSilenceHasNoText(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	for _, format := range []string{"json", "verbose_json", "srt"} {
		status, body := upload(t, srv, transcriptions, wav.Encode(make([]float32, 48000), 16000), map[string]string{"model": "test", "response_format": format})
		require.Equal(t, http.StatusOK, status)
		require.NotContains(t, body, "w")
	}
	require.Empty(t, r.Calls())
}

func TestTranslationsAndSubtitles(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	status, body := upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "test", "response_format": "verbose_json"})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `{"task":"translate","language":"english"`)
	require.Equal(t, "translate", r.Calls()[0].Method)
	for field, want := range map[string]string{"language": "into English only", "stream": "no field of translations"} {
		status, body = upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "test", field: "nl"})
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, body, want)
	}

	_, body = upload(t, srv, transcriptions, speech(), map[string]string{"model": "test", "translate": "true"})
	require.Contains(t, body, "w600")
	require.Equal(t, "transcribe", r.Calls()[len(r.Calls())-1].Method, "a field cannot change the operation")

	status, body = upload(t, srv, "/v1/audio/subtitles", speech(), map[string]string{"language": "en"})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "00:00:04,000 --> 00:00:05,000\nw400")
	status, body = upload(t, srv, "/v1/audio/subtitles", speech(), map[string]string{"response_format": "vtt"})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "WEBVTT")
	status, _ = upload(t, srv, "/v1/audio/subtitles", speech(), map[string]string{"response_format": "json"})
	require.Equal(t, http.StatusBadRequest, status)

	plain, _ := transcribe(t, struct{ inference.Recognizer }{r})
	status, body = upload(t, plain, "/v1/audio/translations", speech(), map[string]string{"model": "test"})
	require.Equal(t, http.StatusNotImplemented, status)
	require.Contains(t, body, "inference.recognizer")
}

// TestTranslationsByAModel: what cannot be translated by the recognizer is translated by a model of texts, utterance by utterance.
func TestTranslationsByAModel(t *testing.T) {
	for name, structured := range map[string]bool{"structured": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			engine := &agenttest.Engine{
				Can: &inference.Capabilities{Instructions: true, Structured: structured}, Answer: func(_ int, p inference.Prompt) agenttest.Answer {
					text := strings.ReplaceAll(p.Text, "w", "v")
					if structured {
						text = ` {"translation": "` + text + `"}`
					}
					return agenttest.Answer{Text: text}
				},
			}
			r := &livetest.Recognizer{}
			srv, _ := transcribe(t, struct{ inference.Recognizer }{r}, func(o *audioapi.TranscriberOptions) {
				o.Text = func() inference.Model { return engine }
			})
			status, body := upload(t, srv, "/v1/audio/translations", speech(), map[string]string{
				"model": "whisper-1", "language": "Dutch", "response_format": "verbose_json",
			})
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `{"task":"translate","language":"dutch","duration":5,"text":"v600 v500 v400"`)
			require.Contains(t, body, `"start":0.692,"end":2.528,"text":"v600 v500"`)
			require.Empty(t, r.Calls()[0].Hearing.Language, "that of the speech is found")
			p := engine.Questions()[0]
			require.Equal(t, "w600 w500", p.Text)
			require.Contains(t, p.System, "into dutch")
			require.Equal(t, "nl", p.Language)
			require.Equal(t, structured, p.Structured())
			require.Zero(t, engine.Sessions())
			_, body = upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "whisper-1", "response_format": "srt", "language": "ja"})
			require.Contains(t, body, "v600 v500")
			n := len(engine.Questions())
			_, body = upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "whisper-1"})
			require.Contains(t, body, "w600 w500 w400", "it was English")
			require.Len(t, engine.Questions(), n)
			status, body = upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "whisper-1", "language": "tlh"})
			require.Equal(t, http.StatusBadRequest, status)
			require.Contains(t, body, "the language of the translation")
		})
	}
	srv, _ := transcribe(t, struct{ inference.Recognizer }{&livetest.Recognizer{}}, func(o *audioapi.TranscriberOptions) {
		o.Text = func() inference.Model {
			return &agenttest.Engine{Answer: func(int, inference.Prompt) agenttest.Answer { return agenttest.Answer{Err: errors.New("lost")} }}
		}
	})
	status, body := upload(t, srv, "/v1/audio/translations", speech(), map[string]string{"model": "whisper-1", "language": "nl"})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "translate: lost")
}

// TestStreamOfOlderClients: an event for each utterance, and one at the end.
func TestStreamOfOlderClients(t *testing.T) {
	fail := false
	r := &livetest.Recognizer{Before: func(_ context.Context, c livetest.Call) error {
		if fail && c.Method == "finish" && c.Samples != 29376 {
			return errors.New("the graph failed")
		}
		return nil
	}}
	srv, _ := transcribe(t, r)
	const first = `data: {"text":"w600 w500","language":"en","is_final":false,"chunk_index":0}` + "\n\n" +
		`data: {"text":"w600 w500","language":"en","is_final":true,"chunk_index":0}` + "\n\n"
	status, body := upload(t, srv, transcriptions+"/stream", speech(), nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, first+`data: {"text":"w400","language":"en","is_final":false,"chunk_index":1}`+"\n\n"+
		`data: {"text":"w400","language":"en","is_final":true,"chunk_index":1}`+"\n\n"+`data: {"done":true}`+"\n\n", body)
	status, body = upload(t, srv, transcriptions+"/stream", speech(), map[string]string{"response_format": "srt"})
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "one form")
	fail = true
	_, body = upload(t, srv, transcriptions+"/stream", speech(), nil)
	require.Equal(t, first+`data: {"text":"w400","language":"en","is_final":false,"chunk_index":1}`+"\n\n"+
		`data: {"code":"SSE_STREAM_ERROR","message":"the graph failed","statusCode":503}`+"\n\n", body)
}

// TestStreamWithInterims: the growing texts of a stream are those of the fast recognizer.
func TestStreamWithInterims(t *testing.T) {
	srv, _ := transcribe(t, live.Pair(&livetest.Recognizer{}, counter{&livetest.Recognizer{}}, zerolog.Nop()))
	_, body := upload(t, srv, transcriptions+"/stream", speech(), nil)
	require.Equal(t, `data: {"text":"tick tick","language":"en","is_final":false,"chunk_index":0}`+"\n\n"+
		`data: {"text":"w600 w500","language":"en","is_final":true,"chunk_index":0}`+"\n\n"+
		`data: {"text":"tick tick","language":"en","is_final":false,"chunk_index":1}`+"\n\n"+
		`data: {"text":"w400","language":"en","is_final":true,"chunk_index":1}`+"\n\n"+`data: {"done":true}`+"\n\n", body)
}

// TestQueue: more recordings than may wait are refused, and those that nobody waits for give their place back.
func TestQueue(t *testing.T) {
	gate, began := make(chan struct{}), make(chan struct{}, 8)
	r := &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error {
		began <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}
	srv, h := transcribe(t, r, func(o *audioapi.TranscriberOptions) {
		o.Config.Parallel, o.Config.Queue = 1, 1
	})
	ended := make(chan int, 2)
	post := func() {
		status, _ := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
		ended <- status
	}
	go post()
	<-began
	go post()
	require.Eventually(t, func() bool { return h.Health().Requests == 2 && r.Held() == 2 }, 2*time.Minute, time.Millisecond)
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, body, "rate_limit_exceeded")
	close(gate)
	require.Equal(t, http.StatusOK, <-ended)
	require.Equal(t, http.StatusOK, <-ended)
	require.Eventually(t, func() bool { return h.Health().Requests == 0 }, 2*time.Minute, time.Millisecond)
	require.Zero(t, r.Held(), "the recognizer may be unloaded again")
}

// slowUploads begins n uploads that send the first bytes of their file and stay so until the end of the test, or of the returned function.
// It returns when the service has their requests.
func slowUploads(t *testing.T, h *audioapi.Transcriber, n int) (end func()) {
	t.Helper()
	came := make(chan struct{}, n)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 16)
		_, err := io.ReadFull(r.Body, piece)
		assert.NoError(t, err)
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(piece), &firstRead{r.Body, came}), r.Body}
		h.ServeTranscriptions(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	end = sync.OnceFunc(func() { cancel(); all.Wait(); srv.Close() })
	t.Cleanup(end)
	for range n {
		body, sent := io.Pipe()
		context.AfterFunc(ctx, func() { sent.Close() }) // the client waits for its body
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, body)
			if err != nil {
				panic(err)
			}
			req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			if res, err := srv.Client().Do(req); err == nil {
				_ = res.Body.Close() // it was refused
			}
		})
		all.Go(func() {
			_, _ = sent.Write([]byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF"))
		})
	}
	for range n {
		<-came
	}
	return end
}

// firstRead reports its first read.
type firstRead struct {
	io.Reader

	came chan<- struct{}
}

func (r *firstRead) Read(b []byte) (int, error) {
	if r.came != nil {
		r.came <- struct{}{}
		r.came = nil
	}
	return r.Reader.Read(b)
}

// TestSlowUploads: uploads take no place of the recognizer while they are sent.
func TestSlowUploads(t *testing.T) {
	srv, h := transcribe(t, &livetest.Recognizer{}) // 4 at once and 16 more
	slowUploads(t, h, 20)
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
	require.Equal(t, http.StatusOK, status, body)
	require.Zero(t, h.Health().Requests)
}

// TestUploadsAreBounded: all uploads together take as many bytes as there are places.
func TestUploadsAreBounded(t *testing.T) {
	srv, h := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) {
		o.Config.Parallel, o.Config.Queue, o.Config.MaxBytes = 1, 1, 1<<20
	})
	end := slowUploads(t, h, 2)
	for range 18 {
		status, body := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Contains(t, body, "rate_limit_exceeded")
		require.Contains(t, body, "too much sound is being uploaded")
	}
	end()
	require.Eventually(t, func() bool {
		status, _ := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
		return status == http.StatusOK
	}, 2*time.Minute, 10*time.Millisecond)
}

// TestFailedTranscriptions: an error is an error, never a text.
func TestFailedTranscriptions(t *testing.T) {
	fail := errors.New("the graph failed")
	r := &livetest.Recognizer{Before: func(_ context.Context, c livetest.Call) error {
		if c.Samples != 29376 {
			return fail
		}
		return nil
	}}
	srv, _ := transcribe(t, r)
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"error": {"message": "the graph failed", "type": "server_error", "code": "transcription_failed"}}`, body)
	status, body = upload(t, srv, transcriptions, speech(), map[string]string{"model": "test", "stream": "true", "chunking_strategy": "auto"})
	require.Equal(t, http.StatusOK, status, "it had begun")
	require.Contains(t, body, `"delta":"w600 w500"`)
	require.Contains(t, body, `data: {"error":{"message":"the graph failed"`)
	require.NotContains(t, body, "transcript.text.done")
	fail = fmt.Errorf("wait: %w", context.DeadlineExceeded)
	status, body = upload(t, srv, transcriptions, speech(), map[string]string{"model": "test"})
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Contains(t, body, "transcription_timeout")
}

func TestModelsAndHealth(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	for path, want := range map[string]string{
		"/v1/models": `{"object": "list", "data": [{"id": "test", "object": "model", "created": 0, "owned_by": "touchline"}]}`,
		"/health": `{"status": "ok", "model_loaded": true, "model_id": "test", "vad": "loudness", "vad_detail": "chosen",
			"sessions": 0, "requests": 0}`,
	} {
		res, err := http.Get(srv.URL + path)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.JSONEq(t, want, string(body))
	}
}

// TestCaptions: two lines of 42 letters, 7 s, pauses and sentences; scripts without spaces are broken too.
func TestCaptions(t *testing.T) {
	const ms = time.Millisecond
	part := func(text string, d time.Duration, words ...inference.Word) []inference.Transcript {
		return []inference.Transcript{{Text: text, End: d, Words: words, Final: true}}
	}
	long := strings.TrimSpace(strings.Repeat("goal kick ", 12))
	for name, tt := range map[string]struct {
		parts []inference.Transcript
		want  []string
	}{
		"nothing":   {nil, nil},
		"sentences": {part("He shoots. It is in!", 4*time.Second), []string{"0 2.167 He shoots.", "2.25 4 It is in!"}},
		"lines": {part(long, 6*time.Second), []string{
			"0 3.917 goal kick goal kick goal kick goal kick/goal kick goal kick goal kick goal kick",
			"4 6 goal kick goal kick goal kick goal kick",
		}},
		"short": {part("Out!", 100*ms), []string{"0 0.833 Out!"}},
		"pauses": {part("", 0, inference.Word{Text: "One", Start: 0, End: 400 * ms}, inference.Word{Text: "two", Start: 950 * ms, End: time.Second}), []string{
			"0 0.833 One", "0.95 1.783 two",
		}},
		"japanese": {part(strings.Repeat("球が外に出た", 6), 6*time.Second), []string{
			"0 6 " + strings.Repeat("球が外に出た", 3) + "球が外/" + strings.Repeat("に出た球が外", 2) + "に出た",
		}},
		"korean": {part("안녕 하세요", time.Second), []string{"0 1 안녕 하세요"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, audioapi.Captions(tt.parts)) })
	}
}

func FuzzCaptions(f *testing.F) {
	f.Add("He shoots. It is in!", int64(4e9))
	f.Add(strings.Repeat("球", 200)+" <b>", int64(1))
	f.Fuzz(func(t *testing.T, text string, d int64) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		list := audioapi.Captions([]inference.Transcript{{Text: text, End: time.Duration(max(0, d%3.6e12)), Final: true}})
		letters := 0
		for _, c := range list {
			letters += len(strings.Join(strings.Fields(strings.ReplaceAll(strings.SplitN(c, " ", 3)[2], "/", "")), ""))
		}
		require.Equal(t, len(strings.ReplaceAll(strings.Join(strings.Fields(text), ""), "/", "")), letters, "no letter is lost")
	})
}

func FuzzDecodeWAV(f *testing.F) {
	f.Add(speech()[:4000])
	f.Add(floats(44100, 1, -2, 0.5))
	f.Fuzz(func(t *testing.T, file []byte) {
		sound, err := audioapi.DecodeWAV(file, 2*time.Second)
		if err != nil {
			require.Empty(t, sound)
			return
		}
		require.LessOrEqual(t, len(sound), 2*16000+600)
	})
}

// deadlines is an answer that keeps the last deadline of its request.
type deadlines struct {
	*httptest.ResponseRecorder

	last time.Time
	set  int
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.last = t
	d.set++
	return nil
}

// TestNoDeadlineIsLeft: while the answer is made no deadline of the upload runs, which would end it.
func TestNoDeadlineIsLeft(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	left := time.Now()
	_, h := transcribe(t, &livetest.Recognizer{Before: func(context.Context, livetest.Call) error {
		left = w.last
		return nil
	}})
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	require.NoError(t, form.WriteField("model", "test"))
	file, err := form.CreateFormFile("file", "sound.wav")
	require.NoError(t, err)
	_, err = file.Write(speech())
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, transcriptions, &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	h.ServeTranscriptions(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Zero(t, left)
}

// TestSlowLinesMayUpload: a client may take 15 s for each 64 KiB, which are 35 kbit/s.
func TestSlowLinesMayUpload(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	_, h := transcribe(t, &livetest.Recognizer{})
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, err := form.CreateFormFile("file", "sound.wav")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 2<<20))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, transcriptions, &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	h.ServeTranscriptions(w, r)
	require.GreaterOrEqual(t, w.set, 32)
}
