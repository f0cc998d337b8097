package voice_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/voice"
)

// asked is the body of a request to a speech server.
type asked struct {
	Model  string `json:"model"`
	Input  string `json:"input"`
	Voice  string `json:"voice"`
	Format string `json:"response_format"`
	key    string
}

// speechServer is a server with OpenAI's API whose answers are written by answer.
type speechServer struct {
	*httptest.Server

	mu    sync.Mutex
	asked []asked
}

func startSpeech(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, a asked)) *speechServer {
	t.Helper()
	s := &speechServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/audio/speech", func(w http.ResponseWriter, r *http.Request) {
		a := asked{key: r.Header.Get("Authorization")}
		if json.NewDecoder(r.Body).Decode(&a) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, a)
		s.mu.Unlock()
		answer(w, r, a)
	})
	mux.HandleFunc("GET /v1/audio/voices", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"voices": ["af_heart", {"id": "bm_lewis"}, "a\"b", 7, {"name": "en_US-x"}]}`)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *speechServer) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// remoteVoice returns a synthesizer of the server.
func (s *speechServer) voice(t *testing.T, log io.Writer) *voice.Synthesizer {
	t.Helper()
	synth, err := voice.New(inference.VoiceConfig{
		Program: "remote", URL: s.URL + "/v1/", Name: "af_heart(2)", Language: "en", APIKey: "hidden-key",
	}, zerolog.New(zerolog.SyncWriter(log)))
	require.NoError(t, err)
	return synth
}

// tone is a second of sound between silences, as s16le.
func tone(rate int) []byte {
	var b []byte
	for i := range rate * 3 / 2 {
		v := 0.0
		if at := float64(i) / float64(rate); at >= 0.2 && at < 1.2 {
			v = 8000 * math.Sin(2*math.Pi*300*at+1)
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(v)))
	}
	return b
}

// heard collects the answer of a session of a model whose voice is synth.
func heard(t *testing.T, synth *voice.Synthesizer, text string) (*answer, inference.Model) {
	t.Helper()
	m := wrap(&engine{chunks: letters(text, 4)}, synth)
	a := ask(t, m, inference.Prompt{Speech: true})
	require.NoError(t, a.err)
	require.Equal(t, text, a.text.String())
	return a, m
}

// wavFile builds a file whose data chunk has the length in its header.
func wavFile(channels, rate, bits int, length uint32, body []byte) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(channels*bits/8))
	b = binary.LittleEndian.AppendUint16(b, uint16(bits))
	b = append(b, "LIST\x03\x00\x00\x00abc\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, length)
	return append(b, body...)
}

func TestServerSpeaks(t *testing.T) {
	const text = "Red attack down the *left*. The keeper waits!"
	for _, tt := range []struct {
		name, kind string
		body       []byte
		rate       int
	}{
		{"raw", "audio/pcm", tone(24000), 24000},
		{"raw without a type", "", tone(24000), 24000},
		{"raw with a rate", "audio/L16; rate=16000; channels=1", tone(16000), 16000},
		{"an odd byte at the end", "application/octet-stream", append(tone(24000), 1), 24000},
		{"WAV", "audio/wav", wavFile(1, 22050, 16, uint32(len(tone(22050))), append(tone(22050), "LIST\x04\x00\x00\x00\xff\x7f\xff\x7f"...)), 22050},
		{"WAV of a stream", "audio/x-wav", wavFile(1, 24000, 16, 0xffffffff, tone(24000)), 24000},
		{"WAV in two channels", "audio/wav", wavFile(2, 12000, 16, 0, tone(24000)), 12000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) {
				w.Header()["Content-Type"] = nil
				if tt.kind != "" {
					w.Header().Set("Content-Type", tt.kind)
				}
				for rest := tt.body; len(rest) > 0; { // pieces of odd lengths
					n := min(997, len(rest))
					_, _ = w.Write(rest[:n])
					_ = http.NewResponseController(w).Flush()
					rest = rest[n:]
				}
			})
			synth := s.voice(t, io.Discard)
			a, m := heard(t, synth, text)
			require.Equal(t, []asked{
				{"tts-1", "Red attack down the left.", "af_heart(2)", "pcm", "Bearer hidden-key"},
				{"tts-1", "The keeper waits!", "af_heart(2)", "pcm", "Bearer hidden-key"},
			}, s.requests())
			require.Equal(t, text, a.words(), "every word has a time, once")
			require.Greater(t, len(a.spoken), 4, "sound is passed on as it comes")
			var total time.Duration
			for _, c := range a.spoken {
				require.Equal(t, tt.rate, c.AudioRate)
				length := time.Duration(len(c.Audio)) * time.Second / time.Duration(c.AudioRate)
				for i, w := range c.Words {
					require.LessOrEqual(t, w.Start, w.End)
					require.LessOrEqual(t, w.End, length)
					if i > 0 {
						require.GreaterOrEqual(t, w.Start, c.Words[i-1].End)
					}
				}
				total += length
			}
			require.InDelta(t, 2*(1+0.02+0.16), total.Seconds(), 0.02, "the silence is trimmed")
			require.Empty(t, m.Status().VoiceProblem)
			require.Equal(t, voice.Stats{Spoken: map[string]uint64{"flite": 0, "espeak-ng": 0, "remote": 2}}, synth.Stats())
		})
	}
}

// TestServersFirstSoundIsPassedOn: before the sentence is complete.
func TestServersFirstSoundIsPassedOn(t *testing.T) {
	first := make(chan struct{})
	s := startSpeech(t, func(w http.ResponseWriter, r *http.Request, _ asked) {
		body := tone(24000)
		half := len(body) / 2
		_, _ = w.Write(body[:half])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-first:
		case <-r.Context().Done():
		}
		_, _ = w.Write(body[half:])
	})
	var once sync.Once
	for c, err := range s.voice(t, io.Discard).Speak(t.Context(), "What a goal!", "", "en") {
		require.NoError(t, err)
		if len(c.Audio) > 0 {
			once.Do(func() { close(first) })
		}
	}
}

// TestServerFails: the sentence is spoken by a program of this machine, from the first word without sound on.
func TestServerFails(t *testing.T) {
	const text = "What a wonderful goal this is for the reds!"
	write := func(kind, body string, status int) func(http.ResponseWriter, *http.Request, asked) {
		return func(w http.ResponseWriter, _ *http.Request, _ asked) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, asked)
		want   string
		own    bool // it spoke first
	}{
		{"500", write("application/json", `{"error": {"message": "out of memory"}}`, 500), `it answered 500: "out of memory"`, false},
		{"401", write("text/plain", "", 401), "it answered 401: Unauthorized; set its key in TOUCHLINE_INFERENCE_VOICE_API_KEY", false},
		{"404", write("application/json", `{"detail": "Not Found"}`, 404), `"Not Found"; check inference.voice.url, which ends in /v1`, false},
		{"400", write("application/json", `{"detail": [{"msg": "voice"}]}`, 400), `check inference.voice.name`, false},
		{"a page in place of an error", write("text/html", "<html>sorry</html>", 502), "it answered 502: an HTML page", false},
		{"a page", write("text/html", "<!DOCTYPE html><p>Hello", 200), "it sent an HTML page", false},
		{"JSON", write("application/json", `[1]`, 200), `expected sound, got "application/json"`, false},
		{"JSON with the reason", write("application/json", `{"detail": "no voice is loaded"}`, 200), `it sent JSON, asked for pcm: "no voice is loaded"`, false},
		{"MP3", write("audio/mpeg", "ID3\x04\x00", 200), "it sent MP3, asked for pcm", false},
		{"MP3 without a tag", write("application/octet-stream", "\xff\xfb\x90\x64\x00\x00\x00\x00", 200), "it sent MP3, asked for pcm", false},
		{"AAC", write("audio/pcm", "\xff\xf1\x50\x80\x00\x00\x00\x00", 200), "it sent AAC, asked for pcm", false},
		{"M4A", write("", "\x00\x00\x00\x20ftypM4A ", 200), "it sent MP4, asked for pcm", false},
		{"WebM", write("audio/webm", "\x1a\x45\xdf\xa3\x01\x00\x00\x00", 200), "it sent WebM, asked for pcm", false},
		{"G.711", write("audio/basic", strings.Repeat("\x7f\xff", 24000), 200), "it sent audio/basic, asked for pcm", false},
		{"A-law", write("audio/PCMA; rate=8000", strings.Repeat("\x55\xd5", 24000), 200), "it sent audio/pcma, asked for pcm", false},
		{"a wrong type", write("image/png", "\x89PNG", 200), `expected sound, got "image/png"`, false},
		{"a wild rate", write("audio/pcm; rate=7", "1234", 200), "expected a rate from 4000 to 192000 Hz", false},
		{"a bad WAV", write("audio/wav", "RIFF----WAVEjunk", 200), "expected a RIFF WAVE file", false},
		{"nothing", write("audio/pcm", "", 200), "it sent no sound", false},
		{"silence", write("audio/pcm", strings.Repeat("\x00", 48000), 200), "it sent no sound", false},
		{"an endless one", func(w http.ResponseWriter, r *http.Request, _ asked) {
			for sound := tone(24000); r.Context().Err() == nil; {
				_, _ = w.Write(sound)
			}
		}, "is it endless?", true},
		{"slow", func(_ http.ResponseWriter, r *http.Request, _ asked) { <-r.Context().Done() }, "no sound within 2s", false},
		{"slow later", func(w http.ResponseWriter, r *http.Request, _ asked) {
			_, _ = w.Write(tone(24000)[:30000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no sound within 2s", true},
		{"cut off", func(w http.ResponseWriter, _ *http.Request, _ asked) {
			w.Header().Set("Content-Length", "72000")
			_, _ = w.Write(tone(24000)[:30001])
		}, "the sound ended early: unexpected EOF", true},
		{"broken off", func(w http.ResponseWriter, _ *http.Request, _ asked) {
			_, _ = w.Write(tone(24000)[:30000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "the sound ended early", true},
		{"a redirection", func(w http.ResponseWriter, r *http.Request, _ asked) {
			http.Redirect(w, r, "http://elsewhere.example/v1/audio/speech", http.StatusTemporaryRedirect)
		}, "it redirects to http://elsewhere.example/v1/audio/speech", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startSpeech(t, tt.answer)
			var log bytes.Buffer
			synth := s.voice(t, &log)
			patience := time.Minute
			if strings.HasPrefix(tt.name, "slow") {
				patience = 2 * time.Second
			}
			synth.Hurry(patience, time.Now)
			a, m := heard(t, synth, text)
			require.Contains(t, m.Status().VoiceProblem, "the speech server "+s.URL+"/v1: ")
			require.Contains(t, m.Status().VoiceProblem, tt.want)
			require.Contains(t, m.Status().VoiceProblem, "a program of this machine speaks instead")
			require.Equal(t, uint64(1), synth.Stats().Failovers)
			require.NotContains(t, log.String()+m.Status().VoiceProblem, "hidden-key")
			if tt.name == "an endless one" {
				require.NotEmpty(t, a.spoken) // all its words have had sound
				return
			}
			require.Equal(t, text, a.words(), "no word is lost or said twice")
			require.Equal(t, 16000, a.spoken[len(a.spoken)-1].AudioRate, "flite")
			require.Equal(t, tt.own, a.spoken[0].AudioRate == 24000)
		})
	}
}

// TestServerRests: a server that failed is asked again after a while, and not for each sentence.
func TestServerRests(t *testing.T) {
	broken := true
	s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) {
		if broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(tone(24000))
	})
	now := time.Now()
	synth := s.voice(t, io.Discard)
	synth.Hurry(time.Minute, func() time.Time { return now })
	say := func() {
		for _, err := range synth.Speak(t.Context(), "What a goal!", "", "en") {
			require.NoError(t, err)
		}
	}
	for range 3 {
		say()
	}
	require.Len(t, s.requests(), 1)
	now = now.Add(2 * time.Second)
	say()
	require.Len(t, s.requests(), 2)
	now = now.Add(3 * time.Second)
	say()
	require.Len(t, s.requests(), 2, "it rests for longer")
	now, broken = now.Add(time.Minute), false
	say()
	say()
	require.Len(t, s.requests(), 4)
	require.Equal(t, uint64(5), synth.Stats().Failovers)
}

// TestServerWithoutRawSound is asked for WAV, at once from the second sentence on.
func TestServerWithoutRawSound(t *testing.T) {
	for refusal, status := range map[string]int{
		`{"detail":[{"loc":["body","response_format"],"msg":"Input should be 'wav' or 'mp3', not 'PCM'"}]}`: http.StatusUnprocessableEntity,
		`{"detail":[{"loc":["body","response_format"],"msg":"Input should be 'mp3' or 'wav'"}]}`:            http.StatusUnprocessableEntity,
		`{"error":{"message":"Unsupported audio format. Use wav or mp3."}}`:                                 http.StatusBadRequest,
		`{"error":"unsupported response_format pcm"}`:                                                       http.StatusInternalServerError,
	} {
		s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, a asked) {
			if a.Format != "wav" {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, refusal)
				return
			}
			_, _ = w.Write(wavFile(1, 24000, 16, 0xffffffff, tone(24000)))
		})
		synth := s.voice(t, io.Discard)
		heard(t, synth, "What a wonderful goal! And more.")
		var formats []string
		for _, a := range s.requests() {
			formats = append(formats, a.Format)
		}
		require.Equal(t, []string{"pcm", "wav", "wav"}, formats)
		require.Zero(t, synth.Stats().Failovers)
	}
}

// TestServerRefusesForAnotherReason is not asked for WAV.
func TestServerRefusesForAnotherReason(t *testing.T) {
	for refusal, status := range map[string]int{
		"no information about this voice":       http.StatusBadRequest,
		"bad token format":                      http.StatusBadRequest,
		"pcm needs a key":                       http.StatusUnauthorized,
		"response_format: too many requests":    http.StatusTooManyRequests,
		"no model for the output format at /v1": http.StatusNotFound,
	} {
		s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) { http.Error(w, refusal, status) })
		synth := s.voice(t, io.Discard)
		heard(t, synth, "What a wonderful goal!")
		require.Len(t, s.requests(), 1, refusal)
		require.Equal(t, uint64(1), synth.Stats().Failovers)
	}
}

// TestServerLiesAboutItsSound: raw sound is spoken whatever kind of sound its type names, and with any status of success.
func TestServerLiesAboutItsSound(t *testing.T) {
	for kind, status := range map[string]int{
		"audio/wav": http.StatusOK, "audio/mpeg": http.StatusOK, "audio/aac": http.StatusOK, "binary/octet-stream": http.StatusOK,
		"audio/pcm": http.StatusCreated,
	} {
		s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write(tone(24000))
		})
		synth := s.voice(t, io.Discard)
		a, _ := heard(t, synth, "What a wonderful goal!")
		require.Zero(t, synth.Stats().Failovers, kind)
		require.Equal(t, 24000, a.spoken[0].AudioRate, kind)
	}
}

func TestServerIsCancelled(t *testing.T) {
	ended := make(chan struct{})
	s := startSpeech(t, func(w http.ResponseWriter, r *http.Request, _ asked) {
		_, _ = w.Write(tone(24000))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	synth := s.voice(t, io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for c, err := range synth.Speak(ctx, "What a goal!", "", "en") {
		last = err
		if len(c.Audio) > 0 {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	<-ended
	require.Zero(t, synth.Stats().Failovers, "no fault of the server")

	_, err := synth.Say(t.Context(), "", "en")
	require.ErrorIs(t, err, voice.ErrNothingToSay)
}

// TestServerIsAway: an error that says what to do; a file is not spoken by two voices.
func TestServerIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	synth, err := voice.New(inference.VoiceConfig{Program: "remote", URL: "http://" + l.Addr().String() + "/v1", Language: "en"}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, synth.Check("en"))
	_, err = synth.Say(t.Context(), "What a goal!", "en")
	require.ErrorContains(t, err, "the speech server http://"+l.Addr().String()+"/v1: ")
	require.ErrorContains(t, err, "connection refused: start it, or correct inference.voice.url")

	_, err = voice.New(inference.VoiceConfig{Program: "remote"}, zerolog.Nop())
	require.ErrorContains(t, err, "needs inference.voice.url")
}

func TestVoicesOfAServer(t *testing.T) {
	s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) { _, _ = w.Write(tone(24000)) })
	cfg := inference.VoiceConfig{URL: s.URL + "/v1", Language: "en"}
	list := voice.Installed(t.Context(), cfg)
	require.Equal(t, []voice.Voice{{ID: "remote"}, {ID: "remote:af_heart"}, {ID: "remote:bm_lewis"}, {ID: "remote:en_US-x"}}, list[:4])
	require.NoError(t, voice.Check(list, "remote:unlisted", "ja"))
	require.NoError(t, voice.Check(list, "remote", ""))
	require.ErrorContains(t, voice.Check(list, "remote:a b", "ja"), "not installed")
	require.ErrorContains(t, voice.Check(list[4:], "remote:af_heart", "en"), "there is no speech server: set inference.voice.url")

	synth, err := voice.New(cfg, zerolog.Nop())
	require.NoError(t, err)
	for _, err := range synth.Speak(t.Context(), "What a goal!", "remote:bm_lewis", "en") {
		require.NoError(t, err)
	}
	require.Equal(t, "bm_lewis", s.requests()[0].Voice, "one of several programs")
}

func FuzzParseVoices(f *testing.F) {
	f.Add([]byte(`{"voices": ["af_heart", {"id": "bm_lewis", "name": "Lewis"}, null]}`))
	f.Add([]byte(`{"voices": {}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, name := range voice.ParseVoices(body) {
			require.NotEmpty(t, name)
			require.LessOrEqual(t, len(name), 64)
		}
	})
}

// FuzzServer: whatever a server sends is sound or an error, within bounds.
func FuzzServer(f *testing.F) {
	f.Add("audio/pcm", []byte{1, 0, 2})
	f.Add("audio/wav", wavFile(2, 22050, 16, 3, []byte{1, 90, 2, 90}))
	f.Add("audio/L16;rate=48000;channels=2", bytes.Repeat([]byte{9, 9, 200}, 4000))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		s := startSpeech(t, func(w http.ResponseWriter, _ *http.Request, _ asked) {
			w.Header().Set("Content-Type", strings.Map(func(r rune) rune {
				if r < 0x20 || r > 0x7e {
					return -1
				}
				return r
			}, kind))
			_, _ = w.Write(body)
		})
		synth := s.voice(t, io.Discard)
		sp, err := synth.Say(t.Context(), "Go!", "en")
		if err == nil {
			require.NotEmpty(t, sp.Audio)
			require.Len(t, sp.Words, 1)
		}
	})
}

type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// pieces is a body that comes in pieces, and ends with its request.
type pieces struct {
	ctx context.Context //nolint:containedctx // of the request
	all io.Reader
}

func (p pieces) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, p.ctx.Err()
	}
	return p.all.Read(b[:min(len(b), 997)])
}

// TestServerAndAListenerThatPauses: the time in which a listener takes no sound is not counted as the server's.
func TestServerAndAListenerThatPauses(t *testing.T) {
	synth := (&speechServer{Server: &httptest.Server{URL: "http://speech.example"}}).voice(t, io.Discard)
	asked := 0
	synth.Through(carrier(func(r *http.Request) (*http.Response, error) {
		asked++
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(pieces{r.Context(), bytes.NewReader(tone(24000))}),
		}, nil
	}))
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			for c, err := range synth.Speak(t.Context(), "What a goal!", "", "en") {
				require.NoError(t, err)
				require.True(t, len(c.Audio) == 0 || c.AudioRate == 24000, "the server's sound")
				<-time.After(time.Minute)
			}
		}
	})
	require.Equal(t, 3, asked, "the server does not rest")
	require.Zero(t, synth.Stats().Failovers)
}
