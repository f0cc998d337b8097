package remote_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/remote"
)

// peer is the server's end of a live session.
type peer struct {
	*websocket.Conn

	t       *testing.T
	number  int // of the session, from 1
	header  http.Header
	query   url.Values
	update  map[string]any
	samples int
}

// next returns the next event that is not sound; nil after the end.
func (p *peer) next() map[string]any {
	for {
		var e map[string]any
		if err := p.ReadJSON(&e); err != nil {
			return nil
		}
		switch e["type"] {
		case "session.update":
			p.update, _ = e["session"].(map[string]any)
		case "input_audio_buffer.append":
			b, err := base64.StdEncoding.DecodeString(e["audio"].(string))
			if err != nil {
				p.t.Errorf("sound: %v", err)
			}
			p.samples += len(b) / 2
			return e
		default:
			return e
		}
	}
}

// until reads until an event of a kind, and reports whether it came.
func (p *peer) until(kind string) bool {
	for {
		e := p.next()
		if e == nil || e["type"] == kind {
			return e != nil
		}
	}
}

func (p *peer) say(kind, fields string) {
	if fields != "" {
		fields = ", " + fields
	}
	_ = p.WriteMessage(websocket.TextMessage, []byte(`{"event_id": "e", "type": "`+kind+`"`+fields+`}`)) // the client may have gone
}

const transcription = "conversation.item.input_audio_transcription."

// answer commits an item and completes its text.
func (p *peer) answer(text string) {
	p.say("input_audio_buffer.committed", `"item_id": "i1", "previous_item_id": null`)
	p.say("conversation.item.added", `"item": {"id": "i1"}`)
	p.say(transcription+"completed", `"item_id": "i1", "content_index": 0, "transcript": "`+text+`", "languages": [{"code": "nl"}],
		"usage": {"type": "tokens", "input_tokens": 20, "output_tokens": 4, "total_tokens": 24, "input_token_details": {"audio_tokens": 20}}`)
}

// realtime serves sessions by a script, and returns a recognizer that uses them and the number of sessions.
func realtime(t *testing.T, script func(p *peer)) (*remote.Recognizer, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/realtime" {
			http.NotFound(w, r)
			return
		}
		c, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		p := &peer{Conn: c, t: t, number: int(n.Add(1)), header: r.Header, query: r.URL.Query()}
		p.say("session.created", `"session": {}`)
		script(p)
	}))
	t.Cleanup(srv.Close)
	r, err := remote.NewRecognizer(inference.RecognizerConfig{
		URL: strings.Replace(srv.URL, "http", "ws", 1) + "/v1", Model: "gpt-4o-transcribe", APIKey: "hunter2",
	}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, &n
}

func listen(t *testing.T, r *remote.Recognizer, h inference.Hearing) inference.Utterance {
	t.Helper()
	u, err := r.Listen(t.Context(), h)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

func TestLiveSession(t *testing.T) {
	got := make(chan *peer, 1)
	r, _ := realtime(t, func(p *peer) {
		p.until("input_audio_buffer.append")
		p.say(transcription+"delta", `"item_id": "i1", "delta": "Een doel"`)
		p.say(transcription+"delta", `"item_id": "i1", "delta": "punt"`)
		p.until("input_audio_buffer.commit")
		p.answer("Een doelpunt!")
		got <- p
		p.next()
	})
	u := listen(t, r, inference.Hearing{Language: "nl-BE", Context: "Ajax"})
	sound := make([]float32, 8000)
	require.Eventually(t, func() bool {
		part, err := u.Hear(t.Context(), sound)
		require.NoError(t, err)
		require.False(t, part.Final)
		return part.Text == "Een doelpunt"
	}, 2*time.Minute, time.Millisecond)
	last, err := u.Finish(t.Context(), sound)
	require.NoError(t, err)
	p := <-got
	all := last.End
	require.Equal(t, inference.Transcript{Text: "Een doelpunt!", Language: "nl", End: all, Final: true, Audio: 20, Tokens: 4}, last)
	require.InDelta(t, all.Seconds()*24000, p.samples, 32, "all sound, at the rate of such sessions")
	require.Equal(t, "Bearer hunter2", p.header.Get("Authorization"))
	require.Equal(t, url.Values{"intent": {"transcription"}, "model": {"gpt-4o-transcribe"}}, p.query)
	require.Equal(t, map[string]any{"type": "transcription", "audio": map[string]any{"input": map[string]any{
		"format":         map[string]any{"type": "audio/pcm", "rate": 24000.0},
		"transcription":  map[string]any{"model": "gpt-4o-transcribe", "language": "nl", "prompt": "Ajax"},
		"turn_detection": nil,
	}}}, p.update)
	require.Contains(t, r.Status().Detail, "of live sound")
}

// TestEndlessTextsOfALiveSession: a server that sends text without end is an error, and the text is bounded.
func TestEndlessTextsOfALiveSession(t *testing.T) {
	piece := strings.Repeat("a", 1<<20)
	const size = "more than 4194304 bytes of text"
	for _, tt := range []struct {
		want, event string
		next        func(i int) string
	}{
		{size, "delta", func(i int) string { return `"item_id": "i` + strconv.Itoa(i) + `", "delta": "` + piece + `"` }},
		{size, "completed", func(i int) string { return `"item_id": "i` + strconv.Itoa(i) + `", "transcript": "` + piece + `"` }},
		{"more than 1000 texts", "delta", func(i int) string { return `"item_id": "i` + strconv.Itoa(i) + `", "delta": "a"` }},
	} {
		r, _ := realtime(t, func(p *peer) {
			p.until("input_audio_buffer.append")
			for i := range 10_000 {
				if p.WriteMessage(websocket.TextMessage, []byte(`{"type": "`+transcription+tt.event+`", `+tt.next(i)+`}`)) != nil {
					return
				}
			}
			for err := error(nil); err == nil; { // a server that ends with sound unread resets the connection
				_, _, err = p.ReadMessage()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := listen(t, r, inference.Hearing{}).Finish(ctx, make([]float32, 8000))
		cancel()
		require.ErrorContains(t, err, tt.want)
		require.Positive(t, r.TooLong(), "also in each retry")
	}
}

// TestShortLiveSession: sound that is too short for servers is filled up, and none needs no server.
func TestShortLiveSession(t *testing.T) {
	r, n := realtime(t, func(p *peer) {
		p.until("input_audio_buffer.commit")
		p.answer(strconv.Itoa(p.samples))
		p.next()
	})
	last, err := listen(t, r, inference.Hearing{}).Finish(t.Context(), make([]float32, 800))
	require.NoError(t, err)
	require.Equal(t, "12000", last.Text)
	require.Equal(t, 50*time.Millisecond, last.End)
	last, err = listen(t, r, inference.Hearing{Language: "nl"}).Finish(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, inference.Transcript{Language: "nl", Final: true}, last)
	require.EqualValues(t, 1, n.Load())
}

// TestCutLiveSession: a server that cuts long speech makes several texts of it.
func TestCutLiveSession(t *testing.T) {
	r, _ := realtime(t, func(p *peer) {
		p.until("input_audio_buffer.append")
		p.say("input_audio_buffer.committed", `"item_id": "i0"`)
		p.until("input_audio_buffer.commit")
		p.say(transcription+"delta", `"item_id": "i1", "delta": "and"`)
		p.say(transcription+"completed", `"item_id": "i0", "transcript": "He shoots"`)
		p.answer("and scores.")
		p.next()
	})
	last, err := listen(t, r, inference.Hearing{}).Finish(t.Context(), make([]float32, 64000))
	require.NoError(t, err)
	require.Equal(t, "He shoots and scores.", last.Text)
}

// TestLostLiveSession: all sound is heard again by another session.
func TestLostLiveSession(t *testing.T) {
	for name, kind := range map[string]string{"in the sound": "input_audio_buffer.append", "at the end": "input_audio_buffer.commit"} {
		t.Run(name, func(t *testing.T) {
			r, n := realtime(t, func(p *peer) {
				if p.number == 1 {
					p.until(kind)
					return
				}
				p.until("input_audio_buffer.commit")
				p.answer(strconv.FormatBool(p.samples > 71900))
				p.next()
			})
			u := listen(t, r, inference.Hearing{})
			for range 2 {
				_, err := u.Hear(t.Context(), make([]float32, 16000))
				require.NoError(t, err)
			}
			last, err := u.Finish(t.Context(), make([]float32, 16000))
			require.NoError(t, err)
			require.Equal(t, "true", last.Text)
			require.EqualValues(t, 2, n.Load())
		})
	}
}

// TestRefusedLiveSession: what the server says is the error; what may pass is tried again.
func TestRefusedLiveSession(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, fields, want string
		sessions           int32
	}{
		"error":        {"error", `"error": {"type": "invalid_request_error", "code": "c", "message": "no such model"}`, "no such model", 1},
		"failed":       {transcription + "failed", `"item_id": "i1", "error": {"type": "server_error", "message": "the graph failed"}`, "the graph failed", 3},
		"a code":       {"error", `"error": {"type": "invalid_request_error", "code": "bad_code"}`, "bad_code", 1},
		"not an event": {"", "[", "expected an event", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, n := realtime(t, func(p *peer) {
				p.until("input_audio_buffer.commit")
				p.say(tt.kind, tt.fields)
				p.next()
			})
			_, err := listen(t, r, inference.Hearing{}).Finish(t.Context(), make([]float32, 16000))
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, tt.sessions, n.Load())
			require.Contains(t, r.Status().Detail, tt.want)
		})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error": {"message": "who are you?"}}`, http.StatusUnauthorized)
	}))
	defer srv.Close()
	r, err := remote.NewRecognizer(inference.RecognizerConfig{URL: strings.Replace(srv.URL, "http", "ws", 1) + "/v1"}, zerolog.Nop())
	require.NoError(t, err)
	u := listen(t, r, inference.Hearing{})
	_, err = u.Hear(t.Context(), make([]float32, 16000))
	require.ErrorIs(t, err, remote.ErrRefused)
	require.ErrorContains(t, err, "401 Unauthorized: who are you?; set its key")
	srv.Close()
	_, err = u.Hear(t.Context(), nil)
	require.ErrorIs(t, err, remote.ErrUnreachable)
}

// TestSlowLiveSession: who waits can leave at any time.
func TestSlowLiveSession(t *testing.T) {
	asked := make(chan bool, 2)
	r, _ := realtime(t, func(p *peer) {
		asked <- p.until("input_audio_buffer.commit")
		p.next() // and says nothing
	})
	u := listen(t, r, inference.Hearing{})
	_, err := u.Hear(t.Context(), make([]float32, 16000))
	require.NoError(t, err, "it waits for no text")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := u.Finish(ctx, nil)
		ended <- err
	}()
	require.True(t, <-asked)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	again := listen(t, r, inference.Hearing{})
	go func() {
		_, err := again.Finish(t.Context(), make([]float32, 16000))
		ended <- err
	}()
	require.True(t, <-asked)
	require.NoError(t, again.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestWordTimesOfLiveSpeech: a session has none, so a recording is sent.
func TestWordTimesOfLiveSpeech(t *testing.T) {
	srv := httptest.NewServer(&transcriber{answers: []string{verbose}})
	t.Cleanup(srv.Close)
	r, err := remote.NewRecognizer(inference.RecognizerConfig{URL: strings.Replace(srv.URL, "http", "ws", 1) + "/v1"}, zerolog.Nop())
	require.NoError(t, err)
	last, err := listen(t, r, inference.Hearing{WordTimes: true}).Finish(t.Context(), make([]float32, 48000))
	require.NoError(t, err)
	require.Len(t, last.Words, 4)
	require.NoError(t, r.Close())
}
