package audioapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/live/livetest"
	"touchline/internal/wav"
)

// TestFormsOfClients: what other servers' clients send is taken as it is.
func TestFormsOfClients(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	for name, fields := range map[string]map[string]string{
		"no model": {}, "empty model": {"model": ""}, "large-v3": {"model": "large-v3"}, "name of a repository": {"model": "Qwen/Qwen3-ASR-0.6B"},
		"unknown fields":      {"vad_filter": "true", "hotwords": "", "temperature_inc": "0.2"},
		"empty granularities": {"timestamp_granularities[]": "", "response_format": "json"},
		"temperatures":        {"temperature": "0.0,0.2,0.4"}, "temperatures as JSON": {"temperature": "[0, 0.2]"}, "several temperatures": {"temperature": "0|0.2"},
		"empty values": {"language": "", "prompt": "", "temperature": "", "stream": ""},
		"capitals":     {"response_format": "JSON"}, "a line end": {"response_format": "json\r\n", "stream": "False "}, "off": {"stream": "off"},
		"a locale": {"language": "en_US.UTF-8"}, "three letters": {"language": "eng"}, "name": {"language": "English"},
		"open": {"language": "Auto"}, "no language of JavaScript": {"language": "undefined"}, "quoted": {"chunking_strategy": `"auto"`},
		"no strategy": {"chunking_strategy": "null"}, "an object": {"chunking_strategy": `{"type":"auto"}`},
		"members as fields": {"chunking_strategy[type]": "server_vad", "chunking_strategy[silence_duration_ms]": "500"},
	} {
		status, body := upload(t, srv, transcriptions, speech(), fields)
		require.Equal(t, http.StatusOK, status, "%s: %s", name, body)
		require.Contains(t, body, `"text":"w600 w500 w400"`)
	}
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"chunking_strategy[type]": "server_vad", "chunking_strategy[threshold]": "9"})
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "expected above 0 to 1, got 9")
	for name, value := range map[string]string{
		"timestamp_granularities": `["word", "segment"]`, "timestamp_granularities[]": "Word,segment", "timestamp_granularities[0]": "word",
	} {
		status, body := upload(t, srv, transcriptions, speech(), map[string]string{"response_format": "Verbose_JSON", name: value})
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"words":[{"word":"w600"`, name)
	}
	for _, value := range []string{"1", "True", "on"} {
		status, body := upload(t, srv, transcriptions, speech(), map[string]string{"stream": value})
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, "transcript.text.done", value)
	}
	status, body = upload(t, srv, transcriptions, speech(), map[string]string{"return_timestamps": "true"})
	require.Equal(t, http.StatusOK, status)
	var answer audioapi.Transcription
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	require.Equal(t, "en", answer.Language)
	require.Len(t, answer.Timestamps, 3)
	require.Equal(t, "w500", answer.Timestamps[1].Text)
	require.Greater(t, answer.Timestamps[1].End, answer.Timestamps[1].Start)

	for path, want := range map[string]string{
		"/v1/models/whisper-1": `"id":"whisper-1"`, "/v1/models/Qwen/Qwen3-ASR-0.6B": `"id":"Qwen/Qwen3-ASR-0.6B"`, "/v1/models/a%2Fb": `"id":"a/b"`,
	} {
		status, body := fetch(t, srv.URL+path)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, want)
	}
	strict, _ := transcribe(t, &livetest.Recognizer{}, ownModel)
	status, _ = fetch(t, strict.URL+"/v1/models/llama")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = fetch(t, strict.URL+"/v1/models/whisper-1")
	require.Equal(t, http.StatusOK, status)
	status, _ = upload(t, strict, transcriptions, speech(), nil)
	require.Equal(t, http.StatusOK, status, "no name is no wrong name")
}

// TestPartsOfForms: the file is the part with a file name, whatever its name; a part without a name is an error.
func TestPartsOfForms(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	for header, want := range map[string]int{
		`name="file"`: 200, `name=file; filename=a.wav`: 200, `name="audio_file"; filename="a.wav"`: 200, `name="file[]"; filename="C:\a.wav"`: 200,
		`name="file"; filename="a "b".wav"`: 400, `filename="a.wav"`: 400,
	} {
		form := "--x\r\nContent-Disposition: form-data; " + header + "\r\n\r\n" + string(speech()) +
			"\r\n--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x--\r\n"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+transcriptions, strings.NewReader(form))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		require.Equal(t, want, res.StatusCode, header)
		if want != http.StatusOK {
			require.Contains(t, body.String(), "a part has no name")
		}
	}
}

// TestLanguageNames: languages as clients name them.
func TestLanguageNames(t *testing.T) {
	for name, want := range map[string]string{
		"en-US": "en-US", "zh_CN.UTF-8": "zh", "zh-Hans-CN": "zh-Hans-CN", "deu": "de", "ger": "de", "iw": "he", "cmn": "zh", "nb": "no", "yue": "yue",
		"German": "de", "": "", "AUTO": "", "und": "", "None": "",
	} {
		tag, ok := audioapi.TagOf(name)
		require.True(t, ok, name)
		require.Equal(t, want, tag, name)
	}
	for _, name := range []string{"klingon", "*", "<|en|>", "xx"} {
		_, ok := audioapi.TagOf(name)
		require.False(t, ok, name)
	}
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(res.Body)
	require.NoError(t, err)
	return res.StatusCode, b.String()
}

// noTimes is a recognizer that turns out to have no times of words.
type noTimes struct{ *livetest.Recognizer }

func (r noTimes) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	if h.WordTimes {
		return func(yield func(inference.Transcript, error) bool) {
			yield(inference.Transcript{}, inference.ErrNoWordTimes)
		}
	}
	return r.Recognizer.Transcribe(ctx, sound, h)
}

// TestSubtitlesWithoutWordTimes: subtitles wish for the times of words; they begin and end at pauses without them. The file of the
// command line takes the same way.
func TestSubtitlesWithoutWordTimes(t *testing.T) {
	srv, h := transcribe(t, noTimes{&livetest.Recognizer{}})
	for _, format := range []string{"srt", "vtt"} {
		status, body := upload(t, srv, transcriptions, speech(), map[string]string{"response_format": format})
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, 2, strings.Count(body, " --> "))
		file, err := audioapi.NewSpool()
		require.NoError(t, err)
		_, err = file.Write(speech())
		require.NoError(t, err)
		_, err = file.Seek(0, 0)
		require.NoError(t, err)
		text, err := h.File(t.Context(), file, map[string][]string{"response_format": {format}}, func(_, _ time.Duration) {})
		require.NoError(t, err)
		require.Equal(t, body, string(text))
		require.NoError(t, file.Close())
	}
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{
		"response_format": "verbose_json", "timestamp_granularities[]": "word",
	})
	require.Equal(t, http.StatusBadRequest, status, body)
}

// unread fails the test if a body is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

// TestLargeUploadsAreNotRead: a declared length beyond the limit is refused before the body.
func TestLargeUploadsAreNotRead(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+transcriptions, unread{t})
	require.NoError(t, err)
	req.ContentLength = 200 << 20
	req.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
}

// TestChunkedUploads: an upload without a length is refused as soon as it exceeds the limit, while the client still has more to send.
func TestChunkedUploads(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) { o.Config.MaxBytes = 64 << 10 })
	for name, head := range map[string]string{
		"file":     "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n",
		"preamble": "",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			body := head + strings.Repeat("aaa\r\n", 32<<10)
			_, err = fmt.Fprintf(c, "POST "+transcriptions+" HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n"+
				"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode, string(answer))
			require.Contains(t, string(answer), "at most 65536 bytes")
			require.True(t, res.Close)
		})
	}
}

// TestCompressedWAV: a WAV file that is not PCM goes to the decoder; without one the error names its format.
func TestCompressedWAV(t *testing.T) {
	phone := wav.Encode(make([]float32, 8000), 8000)
	phone[20], phone[32], phone[34] = 7, 1, 8 // mu-law
	srv, _ := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) {
		o.Decode = func(_ context.Context, file *os.File, _ time.Duration) ([]float32, error) {
			head := make([]byte, 4)
			_, err := file.ReadAt(head, 0)
			require.Equal(t, "RIFF", string(head))
			sound, _, parseErr := wav.Parse(speech())
			return sound, errors.Join(err, parseErr)
		}
	})
	status, body := upload(t, srv, transcriptions, phone, nil)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "w600 w500 w400")
	bare, _ := transcribe(t, &livetest.Recognizer{})
	status, body = upload(t, bare, transcriptions, phone, nil)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, body, "got format 7, 8 bits")
}

// TestPartialUpdates: an update of a realtime session changes what it names and keeps the rest; noise reduction is ignored.
func TestPartialUpdates(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	c := dial(t, srv, "/v1/realtime")
	c.next()
	update := func(input string) map[string]any {
		t.Helper()
		require.NoError(t, c.WriteMessage(1, []byte(`{"type":"session.update","session":{"audio":{"input":`+input+`}}}`)))
		m := c.next()
		require.Equal(t, "session.updated", m["type"], m)
		in, ok := m["session"].(map[string]any)["audio"].(map[string]any)["input"].(map[string]any)
		require.True(t, ok)
		return in
	}
	update(`{"format":{"type":"audio/pcm","rate":16000},"noise_reduction":{"type":"near_field"},
		"transcription":{"model":"gpt-4o-transcribe","language":"en","prompt":"Anna","keywords":["Ajax"]},
		"turn_detection":{"type":"server_vad","silence_duration_ms":1500,"prefix_padding_ms":700}}`)
	in := update(`{"turn_detection":{"threshold":0.8}}`)
	require.Equal(t, map[string]any{"type": "server_vad", "threshold": 0.8, "prefix_padding_ms": 700.0, "silence_duration_ms": 1500.0}, in["turn_detection"])
	require.Nil(t, in["noise_reduction"])
	in = update(`{"transcription":{"model":"whisper-1"}}`)
	require.Equal(t, map[string]any{
		"model": "whisper-1", "language": "en", "prompt": "Anna", "keywords": []any{"Ajax"},
	}, in["transcription"])
	require.Equal(t, map[string]any{"type": "audio/pcm", "rate": 16000.0}, in["format"])
	in = update(`{"transcription":{"language":"nl"},"turn_detection":{"threshold":null}}`)
	require.Equal(t, "Anna", in["transcription"].(map[string]any)["prompt"])
	require.NoError(t, c.WriteMessage(1, []byte(`{"type":"session.update","session":{"include":["item.input_audio_transcription.logprobs"],
		"audio":{"input":{"turn_detection":{"silence_duration_ms":300}}}}}`)))
	require.Equal(t, "error", c.next()["type"])
	in = update(`{}`)
	require.InDelta(t, 300.0, in["turn_detection"].(map[string]any)["silence_duration_ms"], 0, "the rest is applied")
	in = update(`{"turn_detection":{"silence_duration_ms":200}}`)
	require.InDelta(t, 200.0, in["turn_detection"].(map[string]any)["silence_duration_ms"], 0)
}

// TestOldSessions: session.update has the fields of the older form in clients of the API's preview.
func TestOldSessions(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	c := dial(t, srv, "/v1/realtime")
	c.next()
	require.NoError(t, c.WriteMessage(1, []byte(`{"type":"session.update","session":{"modalities":["text"],"input_audio_format":"g711_ulaw",
		"input_audio_transcription":{"model":"whisper-1","language":"en_US"},"turn_detection":{"type":"server_vad","threshold":0.7}}}`)))
	m := c.next()
	require.Equal(t, "session.updated", m["type"], m)
	in, ok := m["session"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "g711_ulaw", in["input_audio_format"])
	require.InDelta(t, 0.7, in["turn_detection"].(map[string]any)["threshold"], 0)
}

// TestSpeechOfClients: unknown fields are ignored; a text is spoken by a voice that has sounds for its letters.
func TestSpeechOfClients(t *testing.T) {
	s := &speaker{asked: make(chan [3]string, 1)}
	srv := serve(t, s)
	for body, want := range map[string][2]string{
		`{"input": "Go!", "lang_code": "a", "stream": true, "voice": "alloy"}`: {"", "en"},
		`{"input": "ゴールです。", "voice": "alloy"}`:                                {"", "ja"},
		`{"input": "進球了！"}`:                                                    {"", "zh"}, `{"input": "שער!"}`: {"", "he"}, `{"input": "Гол!"}`: {"", "ru"}, `{"input": "Γκολ"}`: {"", "el"},
		`{"input": "Гол!", "language": "uk"}`:     {"", "uk"},
		`{"input": "Go!", "language": "English"}`: {"", "en"}, `{"input": "Go!", "language": "Auto", "voice": "Alloy"}`: {"", "en"},
		`{"input": "Гол!", "language": "en"}`:         {"", "ru"},
		`{"input": "Goal by Иванов for the reds"}`:    {"", "en"},
		`{"input": "Гол!", "voice": "espeak-ng:nl"}`:  {"flite:slt", "ru"},
		`{"input": "Гол!", "voice": "remote"}`:        {"remote", "ru"},
		`{"input": "Doelpunt", "language": "nl-BE"}`:  {"", "nl-BE"},
		`{"input": "한국 골!", "speed": 1, "voice": ""}`: {"", "ko"},
	} {
		res := post(t, srv, `{"response_format": "pcm", `+body[1:])
		require.Equal(t, http.StatusOK, res.StatusCode, body)
		asked := <-s.asked
		require.Equal(t, want[:], asked[1:], body)
		drain(t, res)
	}
}

// drain reads an answer to its end, which frees its place.
func drain(t *testing.T, res *http.Response) {
	t.Helper()
	_, err := io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
}

// TestSpeechBodies: a byte order mark and capitals do no harm; a body in another encoding is refused rather than spoken wrongly.
func TestSpeechBodies(t *testing.T) {
	srv := serve(t, &speaker{})
	for body, want := range map[string]int{
		"\uFEFF" + `{"input": "Go!", "response_format": "PCM", "stream_format": "SSE"}`: 200, "{\"input\": \"Andr\xe9\", \"response_format\": \"pcm\"}": 400,
	} {
		res := post(t, srv, body)
		require.Equal(t, want, res.StatusCode, body)
		drain(t, res)
	}
}

// TestLenientSpeech: unknown voices and instructions are ignored with a header where the settings say so; speeds go to the voices that
// have them.
func TestLenientSpeech(t *testing.T) {
	s := &speaker{asked: make(chan [3]string, 1)}
	srv := serve(t, s, func(o *audioapi.Options) {
		o.Lenient, o.Paced = true, func(id string) bool { return id != "remote" }
	})
	res := post(t, srv, `{"input": "Go!", "voice": "nobody", "instructions": "Whisper.", "speed": 1.25, "response_format": "pcm"}`)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, [3]string{"Go!", "", "en"}, <-s.asked)
	require.Equal(t, "instructions, voice", res.Header.Get("Touchline-Ignored"))
	drain(t, res)
	require.InDelta(t, 1.25, s.speed.Load(), 0)
	require.Equal(t, http.StatusBadRequest, post(t, srv, `{"input": "Go!", "voice": "remote", "speed": 1.25}`).StatusCode)
	require.Equal(t, http.StatusBadRequest, post(t, srv, `{"input": "Go!", "speed": 9}`).StatusCode)
	// A program whose voices have no such sounds gives way to another one.
	english := serve(t, s, func(o *audioapi.Options) {
		o.Voice, o.Voices = "flite", func() []audioapi.Voice {
			return []audioapi.Voice{{ID: "flite:slt", Language: "en"}, {ID: "espeak-ng:ru", Language: "ru"}}
		}
		o.Check = func(id, language string) error {
			if id == "flite:slt" && language != "en" || id == "espeak-ng:ru" && language != "ru" {
				return errors.New("no")
			}
			return nil
		}
	})
	require.Equal(t, http.StatusOK, post(t, english, `{"input": "Гол!", "response_format": "pcm"}`).StatusCode)
	require.Equal(t, [3]string{"Гол!", "espeak-ng:ru", "ru"}, <-s.asked)
	silent := serve(t, s, func(o *audioapi.Options) {
		o.Check = func(id, language string) error {
			if id != "" && language != "en" {
				return errors.New("no")
			}
			return nil
		}
	})
	res = post(t, silent, `{"input": "Гол!"}`)
	require.Equal(t, http.StatusUnprocessableEntity, res.StatusCode)
}

// hostile answers with the segments of a broken server.
type hostile struct{ *livetest.Recognizer }

func (hostile) Transcribe(_ context.Context, sound []float32, _ inference.Hearing) iter.Seq2[inference.Transcript, error] {
	end := time.Duration(len(sound)) * time.Second / 16000
	return func(yield func(inference.Transcript, error) bool) {
		same := []inference.Word{}
		for _, w := range strings.Fields("all words at one moment beyond the sound") {
			same = append(same, inference.Word{Text: w, Start: 9 * time.Second, End: 9*time.Second + time.Millisecond})
		}
		for _, p := range []inference.Transcript{
			{Text: "NUL\x00 and ESC\x1b", Start: time.Second, End: time.Second, Final: true},
			{Text: "<b>bold</b> {\\an8}", Start: time.Second, End: 1100 * time.Millisecond, Final: true},
			{Text: "00:00:01,000 --> 00:00:02,000", Start: 99999 * time.Second, End: 99998 * time.Second, Final: true},
			{Text: "before", Start: -3 * time.Second, End: -2 * time.Second, Final: true},
			{Text: "all words at one moment beyond the sound", Start: 2 * time.Second, End: end, Words: same, Final: true},
		} {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// TestHostileSegments: subtitles of a broken server's segments are in order, 0.2 s long, and harmless.
func TestHostileSegments(t *testing.T) {
	srv, _ := transcribe(t, hostile{&livetest.Recognizer{}})
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"response_format": "srt"})
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "\x00")
	require.NotContains(t, body, "<b>")
	require.NotContains(t, body, "{\\")
	require.Contains(t, body, "all words at one moment")
	require.Contains(t, body, "before")
	last := ""
	for block := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		lines := strings.Split(block, "\n")
		from, to, found := strings.Cut(lines[1], " --> ")
		require.True(t, found, block)
		require.LessOrEqual(t, last, from, body)
		require.Less(t, from, to, body)
		require.Equal(t, 1, strings.Count(block, " --> "), block)
		last = from
	}
}

// TestStepOfTheSocket: the interval of interim texts is that of the settings, and the hello agrees; /health names the device.
func TestStepOfTheSocket(t *testing.T) {
	for step, buffer := range map[time.Duration]float64{0: 14400, 500 * time.Millisecond: 14400, 100 * time.Millisecond: 3200} {
		r := &livetest.Recognizer{}
		srv, _ := transcribe(t, r, func(o *audioapi.TranscriberOptions) {
			o.Step = step
			o.Device = func() audioapi.Device { return audioapi.Device{Kind: "cuda", Name: "GPU 0", Memory: 7} }
		})
		c := dial(t, srv, "/ws/transcribe?use_server_vad=0")
		hello := c.next()
		require.InDelta(t, buffer, hello["buffer_size"], 0)
		_, health := fetch(t, srv.URL+"/health")
		require.Contains(t, health, `"device":"cuda","device_name":"GPU 0","memory_bytes":7`)
		if step != 100*time.Millisecond {
			continue
		}
		for i := range 5 { // each piece is a step, and whole frames of the detector
			require.NoError(t, c.WriteMessage(2, bytes.Repeat([]byte{0, byte(i + 1)}, 2560)))
			m := c.next()
			require.Equal(t, true, m["is_partial"])
			require.Len(t, strings.Fields(m["text"].(string)), i+1)
		}
	}
}
