package audioapi //nolint:testpackage // sessions without a connection

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference/live"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
)

func fuzzed() *Transcriber {
	return NewTranscriber(TranscriberOptions{
		Config: DefaultConfig(), Recognizer: &livetest.Recognizer{}, VAD: vad.Loud(), Log: zerolog.Nop(),
	})
}

// FuzzMessages passes messages to both kinds of live sessions: each line is one, a binary one after "!".
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		"!\x01\x00\x7f\n{\"action\":\"flush\"}\n{\"action\":\"reset\"}", `{"action":"config","language":"nl","use_server_vad":false}`,
		`{"type":"input_audio_buffer.append","audio":"AAB/fw=="}` + "\n" + `{"type":"input_audio_buffer.commit"}`,
		`{"type":"input_audio_buffer.clear","event_id":"7"}`,
		`{"type":"session.update","session":{"type":"transcription","audio":{"input":{"format":{"type":"audio/pcm","rate":16000},` +
			`"transcription":{"model":"x","language":"en","prompt":"p"},"turn_detection":{"type":"server_vad","threshold":1e9}}}}}`,
		`{"type":"transcription_session.update","session":{"input_audio_format":"g711_ulaw","turn_detection":null,"include":["x"]}}`,
		`{"type":"session.update","session":[]}`, `{`, `null`,
	} {
		f.Add([]byte(seed))
	}
	tr := fuzzed()
	f.Fuzz(func(t *testing.T, messages []byte) {
		for _, plain := range []bool{true, false} {
			d, err := tr.detector(true)
			require.NoError(t, err)
			s := &socket{t: tr, gone: true, done: make(chan error, 1)}
			s.in, err = newIntake(pcm16, realtimeRate)
			require.NoError(t, err)
			v := &realtime{socket: s, ctx: t.Context(), id: "sess_0123456789abcdef", items: map[int]*realItem{}}
			v.set = realtimeSettings{listens: listening{Model: "default"}, format: soundFormat{"audio/pcm", realtimeRate}, turns: usualTurns()}
			p := &plainSocket{socket: s, ctx: t.Context(), vad: true}
			message, event := v.message, v.heard
			if plain {
				message, event = p.message, p.event
			}
			s.session = live.New(tr.opts.Recognizer, live.Config{Detector: d, Speech: speechConfig()}, event)
			go func() { s.done <- s.session.Run(t.Context()) }()
			for line := range bytes.SplitSeq(messages, []byte("\n")) {
				kind := websocket.TextMessage
				if sound, ok := bytes.CutPrefix(line, []byte("!")); ok {
					kind, line = websocket.BinaryMessage, sound
				}
				if err := message(kind, line); err != nil {
					break
				}
			}
			require.NoError(t, s.session.Close())
			<-s.done //nolint:errcheck // of any messages
			_, err = json.Marshal(v.describe())
			require.NoError(t, err)
		}
	})
}

// FuzzForm reads the form of an upload: its fields and its file.
func FuzzForm(f *testing.F) {
	const boundary = "x"
	f.Add([]byte("--x\r\nContent-Disposition: form-data; name=\"temperature\"\r\n\r\n[0, 0.2]\r\n" +
		"--x\r\nContent-Disposition: form-data; name=\"chunking_strategy\"\r\n\r\n{\"type\":\"server_vad\",\"threshold\":0.5}\r\n" +
		"--x\r\nContent-Disposition: form-data; name=\"timestamp_granularities[]\"\r\n\r\nword\r\n" +
		"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x--\r\n"))
	f.Add([]byte("--x\r\nContent-Disposition: form-data; name=\"languages[0]\"\r\n\r\nnl\r\n--x--"))
	f.Add([]byte("--x\r\n\r\n--x--"))
	tr := fuzzed()
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		got, err := readForm(httptest.NewRecorder(), r, 1<<20, func(int64) error { return nil })
		if err != nil {
			return
		}
		defer got.close()
		require.LessOrEqual(t, got.size, int64(len(body)))
		_, _ = tr.requestOf(got) // of an error only the absence of a panic counts
	})
}
