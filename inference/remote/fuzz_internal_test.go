package remote

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// FuzzEvents handles the events of a realtime server, each of a line.
func FuzzEvents(f *testing.F) {
	const made = `{"type":"conversation.item.input_audio_transcription.`
	f.Add([]byte(`{"type":"input_audio_buffer.committed","item_id":"a"}` + "\n" + made + `delta","item_id":"a","delta":"Go"}` + "\n" +
		made + `completed","item_id":"a","transcript":"Goal","languages":[{"code":"en"}],"usage":{"output_tokens":2}}`))
	f.Add([]byte(`{"type":"error","error":{"type":"server_error","message":"\u0000"}}`))
	f.Add([]byte(`{"type":"error"}`))
	f.Add([]byte("{}\nnull"))
	f.Fuzz(func(_ *testing.T, lines []byte) {
		s := &channel{server: "http://server", asked: true}
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			var e serverEvent
			if json.Unmarshal(line, &e) == nil {
				s.handleLocked(&e)
			}
		}
		_, _ = s.text()
	})
}

// FuzzModels reads the list of a server's models.
func FuzzModels(f *testing.F) {
	for _, seed := range []string{`{"data":[{"id":"a","owned_by":"vllm"},{}]}`, `[{"id":"a"}]`, `{"data":null}`, `{"data":{}}`, "<html>", ""} {
		f.Add([]byte(seed))
	}
	body := make(chan []byte, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case answer := <-body:
			_, _ = w.Write(answer)
		default: // another try
		}
	}))
	defer s.Close()
	cfg := DefaultConfig()
	cfg.URL, cfg.Retries = s.URL, 0
	m, err := New(cfg, 64, zerolog.Nop())
	require.NoError(f, err)
	defer m.Close()
	f.Fuzz(func(t *testing.T, answer []byte) {
		select {
		case body <- answer:
		default: // the last one was not asked for
		}
		names, _, err := m.list(t.Context())
		if err != nil {
			require.Empty(t, names)
		}
		_, _ = m.choose(names)
	})
}

// FuzzRefusal reads an answer that refuses a request.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"too many","code":429}}`), "1.5")
	f.Add([]byte(`{"detail":[{"loc":["body","messages",0],"msg":"field required","input":{}}]}`), "Wed, 21 Oct 2026 07:28:00 GMT")
	f.Add([]byte("<html><title>502 Bad Gateway</title>"), "-1")
	f.Fuzz(func(t *testing.T, body []byte, after string) {
		now := time.Unix(1_790_000_000, 0)
		e := refusalOf(&http.Response{
			StatusCode: http.StatusBadRequest, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(bytes.NewReader(body)),
		}, now)
		require.GreaterOrEqual(t, e.after, time.Duration(0))
		require.LessOrEqual(t, e.after, time.Hour)
		require.LessOrEqual(t, len([]rune(e.text)), 301)
	})
}
