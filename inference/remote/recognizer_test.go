package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
	"touchline/internal/wav"
)

// heard is a request that a transcription server got.
type heard struct {
	path, key string
	fields    map[string][]string
	sound     []float32
}

// transcriber is a server that answers requests one after the other; the last answer repeats.
type transcriber struct {
	mu      sync.Mutex
	answers []string // JSON, or "STATUS text"
	got     []heard
}

func (s *transcriber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(64 << 20); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	file, _, err := r.FormFile("file")
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	b, _ := io.ReadAll(file)
	sound, _, err := wav.Parse(b)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, heard{r.URL.Path, r.Header.Get("Authorization"), r.MultipartForm.Value, sound})
	answer := s.answers[min(len(s.got), len(s.answers))-1]
	var status int
	if n, _ := fmt.Sscanf(answer, "%d ", &status); n == 1 {
		http.Error(w, answer[4:], status)
		return
	}
	_, _ = io.WriteString(w, answer)
}

func (s *transcriber) requests() []heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func recognizer(t *testing.T, answers ...string) (*remote.Recognizer, *transcriber) {
	t.Helper()
	s := &transcriber{answers: answers}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	r, err := remote.NewRecognizer(inference.RecognizerConfig{URL: srv.URL + "/v1", APIKey: "hunter2"}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, s
}

func transcribe(ctx context.Context, r inference.Recognizer, samples int, h inference.Hearing) (out []inference.Transcript, err error) {
	for p, err := range r.Transcribe(ctx, make([]float32, samples), h) {
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

const verbose = `{"task": "transcribe", "language": "english", "duration": 3, "text": "Well, \"no goal\". Out!",
	"segments": [{"start": 0.2, "end": 1.5, "text": " Well, \"no goal\"."}, {"start": 1.6, "end": 2.5, "text": " Out!"}],
	"words": [{"word": "Well", "start": 0.2, "end": 0.5}, {"word": "no", "start": 0.6, "end": 0.8}, {"word": "goal", "start": 0.8, "end": 1.5},
	{"word": "Out", "start": 1.7, "end": 2.5}]}`

func TestRecordingsAreTranscribed(t *testing.T) {
	r, s := recognizer(t, verbose)
	parts, err := transcribe(t.Context(), r, 3*16000, inference.Hearing{
		Language: "en-GB", Context: "Touchline", WordTimes: true, Temperature: 0.25,
	})
	require.NoError(t, err)
	const ms = time.Millisecond
	require.Equal(t, []inference.Transcript{
		{Text: `Well, "no goal".`, Language: "en", Start: 200 * ms, End: 1500 * ms, Final: true, Words: []inference.Word{
			{Text: "Well,", Start: 200 * ms, End: 500 * ms},
			{Text: `"no`, Start: 600 * ms, End: 800 * ms},
			{Text: `goal".`, Start: 800 * ms, End: 1500 * ms},
		}},
		{Text: "Out!", Language: "en", Start: 1600 * ms, End: 2500 * ms, Final: true, Words: []inference.Word{
			{Text: "Out!", Start: 1700 * ms, End: 2500 * ms},
		}},
	}, parts)
	got := s.requests()
	require.Len(t, got, 1)
	require.Equal(t, "/v1/audio/transcriptions", got[0].path)
	require.Equal(t, "Bearer hunter2", got[0].key)
	require.Len(t, got[0].sound, 3*16000)
	require.Equal(t, map[string][]string{
		"model": {"whisper-1"}, "language": {"en"}, "prompt": {"Touchline"}, "temperature": {"0.25"},
		"response_format": {"verbose_json"}, "timestamp_granularities[]": {"segment", "word"},
	}, got[0].fields)
	require.Contains(t, r.Status().Detail, "3.0 s of sound")
}

// TestLongRecordingsAreSplit: no request is longer than ten minutes and a little, and times go on.
func TestLongRecordingsAreSplit(t *testing.T) {
	r, s := recognizer(t, `{"text": "One."}`)
	parts, err := transcribe(t.Context(), r, 1300*16000, inference.Hearing{})
	require.NoError(t, err)
	require.Len(t, parts, 3)
	total := 0
	for i, got := range s.requests() {
		require.Equal(t, parts[i].Start, time.Duration(total)*time.Second/16000)
		total += len(got.sound)
		require.LessOrEqual(t, len(got.sound), 605*16000)
	}
	require.Equal(t, 1300*16000, total)
	require.Equal(t, 1300*time.Second, parts[2].End)
	parts, err = transcribe(t.Context(), r, 0, inference.Hearing{})
	require.NoError(t, err)
	require.Empty(t, parts)
}

func TestTranslations(t *testing.T) {
	r, s := recognizer(t, `{"text": "The ball is out."}`)
	for p, err := range r.Translate(t.Context(), make([]float32, 100), inference.Hearing{Language: "nl"}) {
		require.NoError(t, err)
		require.Equal(t, "The ball is out.", p.Text)
	}
	got := s.requests()[0]
	require.Equal(t, "/v1/audio/translations", got.path)
	require.NotContains(t, got.fields, "language", "it is no field there")
	require.Len(t, got.sound, 8000, "short sound is filled up")
}

// TestServersWithoutTimes: verbose_json is refused by newer models; the next request does not ask for it.
func TestServersWithoutTimes(t *testing.T) {
	r, s := recognizer(t, `400 {"error": {"message": "response_format 'verbose_json' is not compatible with model"}}`, `{"text": "Out!"}`)
	require.True(t, r.Recognizes().WordTimes)
	for range 2 {
		parts, err := transcribe(t.Context(), r, 16000, inference.Hearing{})
		require.NoError(t, err)
		require.Equal(t, []inference.Transcript{{Text: "Out!", End: time.Second, Final: true}}, parts)
	}
	require.Len(t, s.requests(), 3)
	require.False(t, r.Recognizes().WordTimes)
	_, err := transcribe(t.Context(), r, 16000, inference.Hearing{WordTimes: true})
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	_, err = r.Align(t.Context(), nil, "Out", "en")
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
}

func TestTranscriptionErrors(t *testing.T) {
	for answer, want := range map[string]struct {
		is    error
		text  string
		tries int
	}{
		`401 {"error": {"message": "no key"}}`: {remote.ErrRefused, "401 Unauthorized: no key; set its key in TOUCHLINE_INFERENCE_RECOGNIZER_API_KEY", 1},
		`404 not here`:                         {remote.ErrRefused, "check inference.recognizer.url", 1},
		`503 busy`:                             {remote.ErrRefused, "503 Service Unavailable: busy", 3},
		`{"txt": 1}`:                           {remote.ErrCut, `expected JSON with "text", got "{\"txt\": 1}"`, 3},
		`<html>`:                               {remote.ErrCut, `got "<html>"`, 3},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			r, s := recognizer(t, answer)
			_, err := transcribe(t.Context(), r, 16000, inference.Hearing{})
			require.ErrorIs(t, err, want.is)
			require.ErrorContains(t, err, want.text)
			require.NotContains(t, err.Error(), "hunter2")
			require.Len(t, s.requests(), want.tries)
			require.Equal(t, err.Error(), r.Status().Detail)
		})
	}
	r, err := remote.NewRecognizer(inference.RecognizerConfig{URL: "http://127.0.0.1:1/v1"}, zerolog.Nop())
	require.NoError(t, err)
	_, err = transcribe(t.Context(), r, 16000, inference.Hearing{})
	require.ErrorIs(t, err, remote.ErrUnreachable)
	_, err = remote.NewRecognizer(inference.RecognizerConfig{URL: "ftp://x"}, zerolog.Nop())
	require.ErrorContains(t, err, "inference.recognizer.url")
}

func TestARetryHelps(t *testing.T) {
	r, s := recognizer(t, "500 oops", `{"text": "Out!", "language": "Dutch"}`)
	parts, err := transcribe(t.Context(), r, 16000, inference.Hearing{})
	require.NoError(t, err)
	require.Equal(t, "nl", parts[0].Language)
	require.Len(t, s.requests(), 2)
}

// TestUtterances: the whole sound is sent again when it has grown by half, and at the end.
func TestUtterances(t *testing.T) {
	r, s := recognizer(t, `{"text": "The ball"}`, `{"text": "The ball is"}`, `{"text": "The ball is out."}`)
	u, err := r.Listen(t.Context(), inference.Hearing{Language: "en"})
	require.NoError(t, err)
	var texts []string
	for range 5 { // at 0.5, 1, 1.5, 2 and 2.5 s
		p, err := u.Hear(t.Context(), make([]float32, 8000))
		require.NoError(t, err)
		require.False(t, p.Final)
		texts = append(texts, p.Text)
	}
	require.Equal(t, []string{"The ball", "The ball is", "The ball is out.", "The ball is out.", "The ball is out."}, texts)
	p, err := u.Finish(t.Context(), make([]float32, 100))
	require.NoError(t, err)
	require.Equal(t, inference.Transcript{Text: "The ball is out.", Language: "en", End: 40100 * time.Second / 16000, Final: true}, p)
	var sent []int
	for _, got := range s.requests() {
		sent = append(sent, len(got.sound))
		require.Equal(t, []string{"json"}, got.fields["response_format"])
	}
	require.Equal(t, []int{8000, 16000, 24000, 40000, 40100}, sent)
	require.NoError(t, u.Close())
	_, err = u.Finish(t.Context(), nil)
	require.ErrorIs(t, err, context.Canceled)

	empty, err := r.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	p, err = empty.Finish(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, inference.Transcript{Final: true}, p)
}

func FuzzReadTranscription(f *testing.F) {
	f.Add(verbose, int64(3*time.Second))
	f.Add(`{"text": "a b", "segments": [{"start": -1e300, "end": 1e300, "text": "a"}], "words": [{"word": "b", "start": 9}]}`, int64(1))
	f.Fuzz(func(t *testing.T, answer string, length int64) {
		limit := time.Duration(max(0, length%int64(time.Hour)))
		parts, err := remote.ReadTranscription([]byte(answer), limit, inference.Hearing{WordTimes: true})
		if err != nil {
			require.Empty(t, parts)
			return
		}
		require.NotEmpty(t, parts)
		for _, p := range parts {
			require.True(t, p.Final)
			require.GreaterOrEqual(t, p.Start, time.Duration(0))
			require.LessOrEqual(t, p.Start, p.End)
			require.LessOrEqual(t, p.End, limit+time.Millisecond)
			for _, w := range p.Words {
				require.LessOrEqual(t, w.Start, w.End)
				require.NotEmpty(t, strings.TrimSpace(w.Text))
			}
		}
		_, err = json.Marshal(parts)
		require.NoError(t, err)
	})
}

// TestTimesRefusedInAnyWay: json is asked for after any refusal of verbose_json, and the refusal is remembered unless it may pass.
func TestTimesRefusedInAnyWay(t *testing.T) {
	for refusal, requests := range map[string]int{
		`400 {"error": {"message": "Currently do not support verbose_json for m"}}`: 3,
		`400 bad request`: 3, `422 {"detail": "unprocessable"}`: 3, `501 no`: 3, `500 KeyError: 'segments'`: 4,
	} {
		answers := []string{refusal, `{"text": "Out!"}`}
		if requests == 4 {
			answers = append(answers, answers...)
		}
		r, s := recognizer(t, answers...)
		for range 2 {
			parts, err := transcribe(t.Context(), r, 16000, inference.Hearing{})
			require.NoError(t, err, refusal)
			require.Equal(t, "Out!", parts[0].Text)
		}
		require.Len(t, s.requests(), requests, refusal)
	}
	for refusal, requests := range map[string]int{`400 Currently do not support verbose_json`: 1, `400 bad request`: 2} {
		r, s := recognizer(t, refusal, `{"text": "Out!"}`)
		_, err := transcribe(t.Context(), r, 16000, inference.Hearing{WordTimes: true})
		require.ErrorIs(t, err, inference.ErrNoWordTimes)
		require.Len(t, s.requests(), requests)
	}
	// An answer that leaves the words out is as a refusal, for a day.
	r, s := recognizer(t, `{"text": "Out!", "segments": [{"start": 0, "end": 1, "text": "Out!"}]}`, `{"text": "Out!"}`,
		`{"text": "Out!", "words": [{"word": "Out", "start": 0, "end": 1}]}`)
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	r.SetNow(func() time.Time { return now })
	words := inference.Hearing{WordTimes: true}
	_, err := transcribe(t.Context(), r, 16000, words)
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
	require.False(t, r.Recognizes().WordTimes)
	_, err = transcribe(t.Context(), r, 16000, inference.Hearing{})
	require.NoError(t, err)
	require.Equal(t, []string{"json"}, s.requests()[1].fields["response_format"])
	now = now.Add(25 * time.Hour)
	parts, err := transcribe(t.Context(), r, 16000, words)
	require.NoError(t, err)
	require.Len(t, parts[0].Words, 1)

	r, s = recognizer(t, `400 the sound is empty`)
	_, err = transcribe(t.Context(), r, 16000, inference.Hearing{})
	require.ErrorContains(t, err, "the sound is empty")
	require.Len(t, s.requests(), 2)
}

// TestForeignAnswers: answers with values that JSON does not have, numbers as strings, other successes and marks of Qwen3-ASR.
func TestForeignAnswers(t *testing.T) {
	for answer, want := range map[string]inference.Transcript{
		"\uFEFF" + `{"text": "Out!"}`: {Text: "Out!", End: time.Second, Final: true},
		`{"text": "a: NaN", "segments": [{"start": NaN, "end": Infinity, "text": "a: NaN", "avg_logprob": -Infinity}]}`: {Text: "a: NaN", Final: true},
		`{"text": "Out!", "duration": "1.0", "segments": [{"start": "0.25", "end": "0.5", "text": "Out!"}]}`: {
			Text: "Out!", Start: 250 * time.Millisecond, End: 500 * time.Millisecond, Final: true,
		},
		`201 {"text": "Out!"}`:                                                    {Text: "Out!", End: time.Second, Final: true},
		`{"text": "language Dutch<asr_text>Doelpunt!"}`:                           {Text: "Doelpunt!", Language: "nl", End: time.Second, Final: true},
		`{"text": "language None<asr_text>"}`:                                     {End: time.Second, Final: true},
		`{"text": "Out!", "language": ["nl"], "segments": {}, "words": ["Out!"]}`: {Text: "Out!", Language: "nl", End: time.Second, Final: true},
		`{"text": "Out!", "language": {"code": "nl"}, "segments": "none"}`:        {Text: "Out!", End: time.Second, Final: true},
		`{"text": null}`: {End: time.Second, Final: true},
		`{"segments": [{"start": 0, "end": 1, "text": "Out!"}]}`:              {Text: "Out!", End: time.Second, Final: true},
		`{"text": "Out!"}` + "\n" + `{"done": true}`:                          {Text: "Out!", End: time.Second, Final: true},
		`{"text": "<|nl|><|NEUTRAL|><|Speech|><|woitn|>Out!"}`:                {Text: "Out!", End: time.Second, Final: true},
		`{"text": "<|startoftranscript|><|0.00|> Out!<|1.00|><|endoftext|>"}`: {Text: "Out!", End: time.Second, Final: true},
		`{"text": "<s>[_BEG_]Out![_TT_50]</s>"}`:                              {Text: "Out!", End: time.Second, Final: true},
		`{"text": "[00:00:00.000 --> 00:00:01.000]   Out!"}`:                  {Text: "Out!", End: time.Second, Final: true},
		`{"text": " [BLANK_AUDIO]"}`:                                          {End: time.Second, Final: true},
		`{"text": "(silence)"}`:                                               {End: time.Second, Final: true},
		`{"text": ["Out!"]}`:                                                  {Text: "Out!", End: time.Second, Final: true},
		`[{"key": "a", "text": "Out!", "timestamp": [[0, 500]]}]`:             {Text: "Out!", End: time.Second, Final: true},
		`{"text": "Out!", "segments": [{"start": "00:00:00.250", "end": "00:00:00,500", "text": ["Out!"]}]}`: {
			Text: "Out!", Start: 250 * time.Millisecond, End: 500 * time.Millisecond, Final: true,
		},
		`{"text": "Out!", "segments": [{"start_time": 0.25, "end_time": 0.5, "text": "Out!"}]}`: {
			Text: "Out!", Start: 250 * time.Millisecond, End: 500 * time.Millisecond, Final: true,
		},
		`{"text": "Out!", "segments": [{"timestamp": [0.25, 0.5], "text": "Out!"}]}`: {
			Text: "Out!", Start: 250 * time.Millisecond, End: 500 * time.Millisecond, Final: true,
		},
	} {
		r, _ := recognizer(t, answer)
		parts, err := transcribe(t.Context(), r, 16000, inference.Hearing{})
		require.NoError(t, err, answer)
		require.Equal(t, []inference.Transcript{want}, parts, answer)
	}
}

// TestTranscriptionsWithoutText: an answer whose text is of another kind is refused; silence is an empty text.
func TestTranscriptionsWithoutText(t *testing.T) {
	for _, text := range []string{`{"error":"model not loaded"}`, `false`, `[{"detail":"model not loaded"}]`, `{}`, `0`} {
		_, err := remote.ReadTranscription([]byte(`{"text":`+text+`}`), time.Second, inference.Hearing{})
		require.ErrorContains(t, err, strings.ReplaceAll(text, `"`, `\"`))
	}
	for _, text := range []string{`""`, `" "`, `null`, `[]`, `[ ]`, `[""]`, `[{"text":""}]`} {
		parts, err := remote.ReadTranscription([]byte(`{"text":`+text+`}`), time.Second, inference.Hearing{})
		require.NoError(t, err, text)
		require.Equal(t, []inference.Transcript{{End: time.Second, Final: true}}, parts)
	}
}

// TestWordsInSegments: whisper.cpp has the words inside its segments, and parts of words without a space before them.
func TestWordsInSegments(t *testing.T) {
	const answer = `{"text": " That's out!\n", "segments": [{"text": " That's out!", "start": 0, "end": 1, "words": [
		{"word": " That", "start": 0.1, "end": 0.2}, {"word": "'s", "start": 0.2, "end": 0.3},
		{"word": " out", "start": 0.5, "end": 0.8}, {"word": "!", "start": 0.8, "end": 0.9}]}]}`
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	parts, err := remote.ReadTranscription([]byte(answer), time.Second, inference.Hearing{WordTimes: true})
	require.NoError(t, err)
	require.Equal(t, []inference.Word{
		{Text: "That's", Start: at(100), End: at(300)}, {Text: "out!", Start: at(500), End: at(900)},
	}, parts[0].Words)
	parts, err = remote.ReadTranscription([]byte(`{"text": "Out now", "words": [{"text": "Out", "start": 0, "end": 0.5},
		{"text": "now", "start": 0.5, "end": 1}]}`), time.Second, inference.Hearing{WordTimes: true})
	require.NoError(t, err)
	require.Len(t, parts[0].Words, 2)
	_, err = remote.ReadTranscription([]byte(`{"text": "Out now", "words": [{"word": "Out"}, {"word": "now", "end": null}]}`), time.Second,
		inference.Hearing{WordTimes: true})
	require.ErrorIs(t, err, inference.ErrNoWordTimes)
}
