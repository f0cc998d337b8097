package audioapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/media/codec/codectest"
)

// speaker speaks each word as a tone of 300 ms, in chunks of changing rates.
type speaker struct {
	before func(ctx context.Context, word int) error
	asked  chan [3]string // text, voice and language of each call; may be nil
	speed  atomic.Value   // of the last call
}

const wordTime = 300 * time.Millisecond

func (s *speaker) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		s.speed.Store(inference.Speed(ctx))
		if s.asked != nil {
			s.asked <- [3]string{text, voice, language}
		}
		if !yield(inference.Chunk{Text: text}, nil) {
			return
		}
		for i := range strings.Fields(text) {
			if s.before != nil {
				if err := s.before(ctx, i); err != nil {
					yield(inference.Chunk{}, err)
					return
				}
			}
			rate := []int{16000, 16000, 22050, 24000}[i%4]
			pcm := make([]int16, rate*int(wordTime/time.Millisecond)/1000)
			for j := range pcm {
				pcm[j] = int16(9000 * math.Sin(2*math.Pi*440*float64(j)/float64(rate)))
			}
			if !yield(inference.Chunk{Audio: pcm, AudioRate: rate}, nil) {
				return
			}
		}
	}
}

func serve(tb testing.TB, s inference.Speaker, change ...func(*audioapi.Options)) *httptest.Server {
	tb.Helper()
	return serveCodec(tb, s, 0, codectest.Program(), change...)
}

// serveWithin bounds the wait for the first sound, if within is not 0.
func serveWithin(tb testing.TB, s inference.Speaker, within time.Duration) *httptest.Server {
	tb.Helper()
	return serveCodec(tb, s, within, codectest.Program())
}

// serveCodec encodes with a program.
func serveCodec(tb testing.TB, s inference.Speaker, within time.Duration, program string, change ...func(*audioapi.Options),
) *httptest.Server {
	tb.Helper()
	o := audioapi.Options{
		Speaker: s, Language: "en", Codec: program, Log: zerolog.Nop(),
		Voices: func() []audioapi.Voice {
			return []audioapi.Voice{{ID: "flite:slt", Language: "en"}, {ID: "espeak-ng:nl", Language: "nl"}, {ID: "remote"}}
		},
		Check: func(id, language string) error {
			if id == "nobody" || id == "espeak-ng:nl" && language != "nl" {
				return fmt.Errorf("the voice %q does not speak %s", id, language)
			}
			return nil
		},
	}
	for _, f := range change {
		f(&o)
	}
	h := audioapi.New(o)
	h.SoundWithin(within)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/audio/speech", h.ServeSpeech)
	mux.HandleFunc("GET /v1/audio/voices", h.ServeVoices)
	srv := httptest.NewServer(mux)
	tb.Cleanup(srv.Close)
	return srv
}

func post(tb testing.TB, srv *httptest.Server, body string) *http.Response {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, srv.URL+"/v1/audio/speech", strings.NewReader(body))
	require.NoError(tb, err)
	res, err := srv.Client().Do(req)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestRefusals(t *testing.T) {
	srv := serve(t, &speaker{})
	long := strings.Repeat("ä", 4097)
	for body, want := range map[string]string{
		``:                          "read the body",
		`[]`:                        "read the body",
		`{"input": "Go!"} {}`:       "expected one JSON object",
		`{"input": "` + long + `"}`: "input: at most 4096 characters, got 4097; send it in parts",
		`{"input": "..."}`:          "input: there is no word to say",
		`{"input": ""}`:             "input: there is no word to say",
		`{"input": "Go!", "response_format": "flac"}`:                 "flac is not made here; choose wav",
		`{"input": "Go!", "response_format": "midi"}`:                 "expected mp3, opus, aac, wav or pcm",
		`{"input": "Go!", "speed": 1.5}`:                              "this voice has one speed",
		`{"input": "Go!", "stream_format": "rtp"}`:                    "expected audio or sse",
		`{"input": "Go!", "instructions": "Whisper."}`:                "these voices take none",
		`{"input": "Go!", "voice": "nobody"}`:                         "does not speak en; GET /v1/audio/voices lists them",
		`{"input": "Go!", "voice": "espeak-ng:nl", "language": "de"}`: "does not speak de",
	} {
		res := post(t, srv, body)
		require.Equal(t, http.StatusBadRequest, res.StatusCode, body)
		answer, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Contains(t, string(answer), want)
		var form struct {
			Error struct{ Message, Type, Code string }
		}
		require.NoError(t, json.Unmarshal(answer, &form))
		require.Equal(t, "invalid_request_error", form.Error.Type)
		require.NotEmpty(t, form.Error.Code)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, post(t, srv, strings.Repeat(" ", 65<<10)).StatusCode)
}

// TestVoices: OpenAI's names are the configured voice; others bring their language.
func TestVoices(t *testing.T) {
	s := &speaker{asked: make(chan [3]string, 1)}
	srv := serve(t, s)
	for voice, want := range map[string][2]string{
		`"alloy"`: {"", "en"}, `""`: {"", "en"}, `{"id": "sage"}`: {"", "en"}, `"flite:slt"`: {"flite:slt", "en"},
		`{"id": "espeak-ng:nl"}`: {"espeak-ng:nl", "nl"}, `"remote"`: {"remote", "en"},
	} {
		res := post(t, srv, `{"model": "m", "input": "Go!", "response_format": "pcm", "voice": `+voice+`}`)
		require.Equal(t, http.StatusOK, res.StatusCode, voice)
		require.Equal(t, [3]string{"Go!", want[0], want[1]}, <-s.asked)
		_, err := io.ReadAll(res.Body) // its place is free then
		require.NoError(t, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/audio/voices", nil)
	require.NoError(t, err)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	var list audioapi.VoiceList
	require.NoError(t, json.NewDecoder(res.Body).Decode(&list))
	require.Equal(t, audioapi.Voice{ID: "espeak-ng:nl", Language: "nl"}, list.Voices[1])
}

// TestFailures: an error before the first sound has its status; one after it breaks the answer off.
func TestFailures(t *testing.T) {
	broken := errors.New("the program is not installed")
	for at, formats := range map[int][]string{0: {"pcm", "opus", "wav"}, 3: {"pcm", "opus"}} {
		srv := serve(t, &speaker{before: func(_ context.Context, word int) error {
			if word == at {
				return broken
			}
			return nil
		}})
		for _, format := range formats {
			body := `{"model": "m", "input": "One two three four five", "response_format": "` + format + `"`
			res := post(t, srv, body+`}`)
			if at == 0 {
				require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
				answer, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Contains(t, string(answer), broken.Error())
				require.Contains(t, string(answer), `"server_error"`)
				continue
			}
			require.Equal(t, http.StatusOK, res.StatusCode)
			_, err := io.ReadAll(res.Body)
			require.Error(t, err, "a part must not pass for the whole")
			events, err := io.ReadAll(post(t, srv, body+`, "stream_format": "sse"}`).Body)
			require.NoError(t, err)
			require.Contains(t, string(events), `"type":"error"`)
			require.NotContains(t, string(events), "speech.audio.done")
		}
	}
}

// TestEncoderFailsAtItsEnd: an encoder that fails after the last sound is an error, and its slot is free again.
func TestEncoderFailsAtItsEnd(t *testing.T) {
	program := filepath.Join(t.TempDir(), "codec")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncat >/dev/null\necho no space >&2\nexit 1\n"), 0o700))
	srv := serveCodec(t, &speaker{}, 0, program)
	for range 3 { // more than slots
		res := post(t, srv, `{"model": "m", "input": "One two", "response_format": "mp3"}`)
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		answer, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Contains(t, string(answer), "no space")
	}
}

// TestOverloaded: a text that the model has no time for, because of live rooms, is to be sent again.
func TestOverloaded(t *testing.T) {
	srv := serve(t, &speaker{before: func(context.Context, int) error { return fmt.Errorf("%w: 64 wait", inference.ErrOverloaded) }})
	res := post(t, srv, `{"model": "m", "input": "One two", "response_format": "pcm"}`)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "2", res.Header.Get("Retry-After"))
}

// TestNoSoundInTime: so is one that waits long for its first sound, because live rooms speak.
func TestNoSoundInTime(t *testing.T) {
	srv := serveWithin(t, &speaker{before: func(ctx context.Context, i int) error {
		if i == 0 {
			<-ctx.Done()
		}
		return ctx.Err()
	}}, 50*time.Millisecond)
	res := post(t, srv, `{"model": "m", "input": "One two", "response_format": "pcm"}`)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(answer), "live rooms need the voice")
}

// TestBusy: more texts at once than slots are refused, and a client that goes frees its slot.
func TestBusy(t *testing.T) {
	began := make(chan struct{}, 8)
	srv := serve(t, &speaker{before: func(ctx context.Context, _ int) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	const body = `{"model": "m", "input": "One two", "response_format": "opus"}`
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	for range 2 {
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/audio/speech", strings.NewReader(body))
			if err == nil {
				if res, err := srv.Client().Do(req); err == nil {
					_ = res.Body.Close()
				}
			}
			done <- struct{}{}
		}()
		<-began
	}
	res := post(t, srv, body)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "2", res.Header.Get("Retry-After"))
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(answer), `"rate_limit_error"`)
	leave()
	<-done
	<-done
	require.Eventually(t, func() bool {
		select {
		case <-began:
			return true
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/audio/speech", strings.NewReader(body))
		if res, err := srv.Client().Do(req); err == nil {
			_ = res.Body.Close()
		}
		return false
	}, 2*time.Minute, 10*time.Millisecond, "the slots are free again")
}

// FuzzRequest: whatever a client sends is an answer.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model": "tts-1", "input": "Go!", "voice": {"id": "alloy"}, "response_format": "opus", "stream_format": "sse", "speed": 1}`))
	f.Add([]byte(`{"input": 7}`))
	f.Add([]byte(`{"voice": {"id": ["x"]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if bytes.Contains(body, []byte("mp3")) || bytes.Contains(body, []byte("aac")) || !bytes.Contains(body, []byte("response_format")) {
			body = bytes.ReplaceAll(body, []byte("input"), []byte("inputs")) // no process for each
		}
		srv := serve(t, &speaker{})
		res := post(t, srv, string(body))
		answer, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		if res.StatusCode != http.StatusOK {
			require.Contains(t, []int{400, 413, 429}, res.StatusCode)
			require.True(t, json.Valid(answer))
		}
	})
}
