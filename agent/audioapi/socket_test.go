package audioapi_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/live/livetest"
	"touchline/inference/vad"
	"touchline/internal/limit"
	"touchline/internal/resample"
)

// client is a WebSocket under test.
type client struct {
	*websocket.Conn
	t *testing.T
}

func dial(t *testing.T, srv *httptest.Server, path string) client {
	t.Helper()
	conn, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+path, nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, t}
}

// next returns the next message. The race detector and other tests beside it can make a second of sound slow.
func (c client) next() map[string]any {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
	var m map[string]any
	require.NoError(c.t, c.ReadJSON(&m))
	return m
}

// until returns the messages up to one that has a field with a value.
func (c client) until(field string, value any) (all []map[string]any) {
	c.t.Helper()
	for {
		m := c.next()
		if all = append(all, m); m[field] == value {
			return all
		}
	}
}

func (c client) say(v any) {
	c.t.Helper()
	require.NoError(c.t, c.WriteJSON(v))
}

// bytes16 is sound as 16-bit samples.
func bytes16(sound []float32) (b []byte) {
	for _, v := range sound {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(v*32768)))
	}
	return b
}

// sound sends binary messages of 20 ms at 16 kHz.
func (c client) sound(sound []float32) {
	c.t.Helper()
	for piece := range slices.Chunk(bytes16(sound), 640) {
		require.NoError(c.t, c.WriteMessage(websocket.BinaryMessage, piece))
	}
}

const half = 500 * time.Millisecond

func TestPlainSocket(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	c := dial(t, srv, "/ws/transcribe?sample_rate=16000&use_server_vad=1&language=nl")
	require.Equal(t, map[string]any{
		"status": "connected", "sample_rate": 16000.0, "format": "pcm_s16le", "buffer_size": 14400.0, "window_max_s": 30.0, "use_server_vad": true,
	}, c.next())
	c.sound(livetest.Say(half, 0, 600, 500, 400, 0, 0))
	texts := c.until("is_final", true)
	require.Equal(t, map[string]any{"text": "w600 w500 w400", "is_partial": false, "is_final": true}, texts[len(texts)-1])
	for _, m := range texts[:len(texts)-1] {
		require.Equal(t, true, m["is_partial"])
		require.Contains(t, []any{"w600", "w600 w500", "w600 w500 w400"}, m["text"])
	}
	require.Equal(t, "nl", r.Calls()[0].Hearing.Language)

	c.say(map[string]any{"action": "flush"})
	require.Equal(t, map[string]any{"text": "", "is_partial": false, "is_final": true}, c.next(), "also without sound")
	c.say(map[string]any{"action": "config", "language": "auto", "use_server_vad": false})
	require.Equal(t, map[string]any{"status": "configured", "language": "auto", "use_server_vad": false}, c.next())
	c.sound(livetest.Say(100*time.Millisecond, 0, 700))
	c.say(map[string]any{"action": "reset"})
	require.Equal(t, map[string]any{"status": "buffer_reset"}, c.next())
	c.sound(livetest.Say(100*time.Millisecond, 0, 300))
	c.say(map[string]any{"action": "flush"})
	require.Equal(t, "w300", c.next()["text"], "what was reset is gone")

	for text, code := range map[string]string{
		`{`: "INVALID_JSON", `{"action": "dance"}`: "UNKNOWN_ACTION", `{"action": "config", "language": "xx"}`: "INVALID_LANGUAGE",
	} {
		require.NoError(t, c.WriteMessage(websocket.TextMessage, []byte(text)))
		m := c.next()
		require.Equal(t, code, m["code"])
		require.Equal(t, 400.0, m["statusCode"])
		require.NotEmpty(t, m["message"])
	}
	bad := dial(t, srv, "/ws/transcribe?sample_rate=11025")
	require.Equal(t, "UNSUPPORTED_SAMPLE_RATE", bad.next()["code"])
	_, _, err := bad.ReadMessage()
	require.Error(t, err, "it is closed")
}

// TestFinalAfterDisconnect: who hangs up in the middle of a word gets its final at the next connection.
func TestFinalAfterDisconnect(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, h := transcribe(t, r)
	c := dial(t, srv, "/ws/transcribe?use_server_vad=1&request_id=me")
	c.next()
	c.sound(livetest.Say(half, 600, 500))
	c.until("is_partial", true)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return h.Health().Sessions == 0 }, 2*time.Minute, time.Millisecond)
	require.Zero(t, r.Open())
	again := dial(t, srv, "/ws/transcribe?request_id=me")
	require.Equal(t, "connected", again.next()["status"])
	require.Equal(t, map[string]any{"text": "w600 w500", "is_partial": false, "is_final": true}, again.next())
	once := dial(t, srv, "/ws/transcribe?request_id=me")
	once.next()
	once.say(map[string]any{"action": "flush"})
	require.Empty(t, once.next()["text"])
}

// TestFinalsOfOthers: final texts are for the client that they belong to, and a client takes no other's place.
func TestFinalsOfOthers(t *testing.T) {
	srv, h := transcribe(t, &livetest.Recognizer{})
	h.Put("a link", "first", "1", "a secret")
	for i := range 640 {
		h.Put("another", fmt.Sprint("second", i%2), "1", strconv.Itoa(i))
	}
	require.Empty(t, h.Take("a link", "third", "1"))
	require.Len(t, h.Take("another", "second0", "1"), 32)
	own := h.Take("another", "second1", "1")
	require.Len(t, own, 32, "of one link")
	require.Equal(t, "639", own[31])
	require.Equal(t, []string{"a secret"}, h.Take("a link", "first", "1"))
	require.Empty(t, h.Take("a link", "first", "1"), "once")

	for i := range 2560 { // ten times as many as all links may have
		h.Put(fmt.Sprint("link", i), fmt.Sprint("client", i), "1", "a word")
	}
	kept := 0
	for i := range 2560 {
		kept += len(h.Take(fmt.Sprint("link", i), fmt.Sprint("client", i), "1"))
	}
	require.Equal(t, 256, kept)

	c := dial(t, srv, "/ws/transcribe?request_id="+strings.Repeat("x", 64))
	require.Equal(t, "connected", c.next()["status"])
	c = dial(t, srv, "/ws/transcribe?request_id="+strings.Repeat("x", 640))
	require.Equal(t, "INVALID_REQUEST_ID", c.next()["code"])
}

// TestErrorsAreNoTexts: a failure is a message of its own.
func TestErrorsAreNoTexts(t *testing.T) {
	r := &livetest.Recognizer{NoPartials: true, Before: func(context.Context, livetest.Call) error { return errors.New("the graph failed") }}
	srv, _ := transcribe(t, r)
	c := dial(t, srv, "/ws/transcribe")
	c.next()
	c.sound(livetest.Say(half, 600))
	c.say(map[string]any{"action": "flush"})
	require.Equal(t, map[string]any{"code": "TRANSCRIPTION_FAILED", "message": "the graph failed", "statusCode": 503.0}, c.next())
}

func TestSessionsAreBounded(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, h := transcribe(t, r, func(o *audioapi.TranscriberOptions) { o.Config.Sessions = 1 })
	c := dial(t, srv, "/ws/transcribe")
	c.next()
	require.Eventually(t, func() bool { return r.Held() == 1 }, 2*time.Minute, time.Millisecond, "it keeps the recognizer loaded")
	_, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/realtime", nil)
	require.Error(t, err)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.NoError(t, res.Body.Close())
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return h.Health().Sessions == 0 && r.Held() == 0 }, 2*time.Minute, time.Millisecond)
}

// piped is a listener whose connections are pipes, for a bubble of synctest.
type piped struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	close(p.ended)
	return nil
}

func (*piped) Addr() net.Addr { return &net.TCPAddr{} }

func (p *piped) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// closing tells when it is closed.
type closing struct {
	inference.Recognizer

	closed *atomic.Int32
}

func (c closing) Close() error {
	c.closed.Add(1)
	return c.Recognizer.Close()
}

// TestOpenSocketKeepsTheModel: an idle model is unloaded, but never while a socket is open, however little it says.
func TestOpenSocketKeepsTheModel(t *testing.T) {
	for _, path := range []string{"/ws/transcribe?use_server_vad=1", "/v1/realtime?intent=transcription"} {
		synctest.Test(t, func(t *testing.T) {
			var loads, closed atomic.Int32
			keeper, err := engine.NewRecognizer(func(context.Context, engine.Progress) (inference.Recognizer, error) {
				loads.Add(1)
				return closing{&livetest.Recognizer{}, &closed}, nil
			}, inference.Recognizes{Model: "test"}, engine.Options{Preload: true, IdleUnload: time.Minute})
			require.NoError(t, err)
			h := audioapi.NewTranscriber(audioapi.TranscriberOptions{
				Config: audioapi.DefaultConfig(), Recognizer: keeper, Run: keeper.Run, VAD: vad.Loud(), Log: zerolog.Nop(),
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.Run(ctx) }()
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/realtime", h.ServeRealtime)
			mux.HandleFunc("GET /ws/transcribe", h.ServePlain)
			in := &piped{make(chan net.Conn), make(chan struct{})}
			srv := &http.Server{Handler: mux}
			go func() { _ = srv.Serve(in) }()
			dialer := websocket.Dialer{NetDialContext: in.dial}
			conn, res, err := dialer.DialContext(ctx, "ws://pipe"+path, nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			go func() { // it answers pings and says nothing
				for {
					if _, _, err := conn.ReadMessage(); err != nil {
						return
					}
				}
			}()
			time.Sleep(3 * time.Hour)
			require.EqualValues(t, 1, loads.Load())
			require.Zero(t, closed.Load(), "a socket is open")
			require.NoError(t, conn.Close())
			time.Sleep(2 * time.Minute)
			require.EqualValues(t, 1, closed.Load(), "nobody is there")
			require.NoError(t, srv.Close())
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

// piper serves live sessions to the holder of a link, or the operator, over pipes in a bubble. dial opens a socket, whose answers are not
// kept.
func piper(t *testing.T, operator bool) (dial func(path string) *websocket.Conn, stop func()) {
	t.Helper()
	h := audioapi.NewTranscriber(audioapi.TranscriberOptions{
		Config: audioapi.DefaultConfig(), Recognizer: &livetest.Recognizer{}, VAD: vad.Loud(), Log: zerolog.Nop(),
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/realtime", h.ServeRealtime)
	mux.HandleFunc("GET /ws/transcribe", h.ServePlain)
	in := &piped{make(chan net.Conn), make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(limit.WithClient(r.Context(), limit.Client{Token: "a link", Operator: operator})))
	})}
	go func() { _ = srv.Serve(in) }()
	dialer := websocket.Dialer{NetDialContext: in.dial}
	return func(path string) *websocket.Conn {
		conn, res, err := dialer.DialContext(t.Context(), "ws://pipe"+path, nil)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		go func() {
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					return
				}
			}
		}()
		return conn
	}, func() { require.NoError(t, srv.Close()) }
}

// TestSocketsAgainAndAgain: a client that opens a socket again and again has its advance as often as it may have sockets, and then about half
// of the time, which is twice as much as on one socket.
func TestSocketsAgainAndAgain(t *testing.T) {
	for _, operator := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dial, stop := piper(t, operator)
			began, advances := time.Now(), 0
			for range 160 {
				conn, opened := dial("/ws/transcribe"), time.Now()
				for range 150 {
					require.NoError(t, conn.WriteJSON(map[string]any{"action": "config", "use_server_vad": true}))
				}
				if time.Since(opened) == 0 {
					advances++
				}
				require.NoError(t, conn.Close())
				synctest.Wait()
			}
			took := time.Since(began)
			stop()
			time.Sleep(time.Minute) // the sessions end
			if operator {
				require.Equal(t, 160, advances)
				return
			}
			require.Greater(t, took, 140*15*time.Second/2)
			require.Less(t, advances, 160/2+20)
		})
	}
}

// TestMessagesOfALinkHaveARate: a socket of a link is read at a rate, in messages and in sound, that no person exceeds. The operator's is
// not, and neither is slowed at first.
func TestMessagesOfALinkHaveARate(t *testing.T) {
	update := map[string]any{"type": "session.update", "session": map[string]any{
		"type": "transcription", "audio": map[string]any{"input": map[string]any{"turn_detection": map[string]any{"type": "server_vad"}}},
	}}
	sound := map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(make([]byte, 48000))} // 1 s
	empty := map[string]any{"type": "input_audio_buffer.append", "audio": ""}
	for _, tt := range []struct {
		name, path string
		say        any
		n          int
		atLeast    time.Duration // for a link
	}{
		{"updates", "/v1/realtime", update, 1600, 145 * time.Second},
		{"a few updates", "/v1/realtime", update, 155, 0},
		{"no JSON", "/v1/realtime", "no object", 1600, 145 * time.Second},
		{"a minute of sound", "/v1/realtime", sound, 60, 0},
		{"no sound", "/v1/realtime", empty, 18_000, 2 * time.Second},
		{"plain settings", "/ws/transcribe", map[string]any{"action": "config", "use_server_vad": true}, 1600, 145 * time.Second},
		{"plain sound", "/ws/transcribe", make([]byte, 32000), 1600, 145 * time.Second},
	} {
		for _, operator := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, operator=%v", tt.name, operator), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dial, stop := piper(t, operator)
					conn := dial(tt.path)
					began := time.Now()
					for range tt.n {
						if b, binary := tt.say.([]byte); binary {
							require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, b))
						} else {
							require.NoError(t, conn.WriteJSON(tt.say))
						}
					}
					took := time.Since(began)
					require.NoError(t, conn.Close())
					stop()
					time.Sleep(time.Minute) // the session ends
					if tt.atLeast == 0 || operator {
						require.Zero(t, took)
						return
					}
					require.InDelta(t, tt.atLeast.Seconds(), took.Seconds(), 1.1)
				})
			})
		}
	}
}

// append sends sound at a rate.
func (c client) append(sound []float32, rate int) {
	c.t.Helper()
	at, err := resample.All(sound, 16000, rate)
	require.NoError(c.t, err)
	for piece := range slices.Chunk(bytes16(at), 4801) { // also half samples
		c.say(map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(piece)})
	}
}

// kinds are the types of events, without repetitions of one.
func kinds(all []map[string]any) (out []string) {
	for _, m := range all {
		out = append(out, m["type"].(string))
	}
	return slices.Compact(out)
}

const itemTranscription = "conversation.item.input_audio_transcription."

func TestRealtime(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	c := dial(t, srv, "/v1/realtime?intent=transcription")
	created := c.next()
	require.Equal(t, "session.created", created["type"])
	require.Contains(t, created["event_id"], "event_")
	c.say(map[string]any{"type": "session.update", "session": map[string]any{"type": "transcription", "audio": map[string]any{"input": map[string]any{
		"format":         map[string]any{"type": "audio/pcm", "rate": 16000},
		"transcription":  map[string]any{"model": "gpt-4o-transcribe", "language": "nl", "prompt": "Ajax"},
		"turn_detection": map[string]any{"type": "server_vad", "silence_duration_ms": 400, "prefix_padding_ms": 100},
	}}}})
	updated := c.next()
	require.Equal(t, "session.updated", updated["type"])
	text, err := json.Marshal(updated["session"])
	require.NoError(t, err)
	require.Contains(t, string(text), `"silence_duration_ms":400`)
	require.Contains(t, string(text), `"language":"nl"`)
	c.append(livetest.Say(half, 0, 0, 600, 500, 0, 0), 16000)
	all := c.until("type", itemTranscription+"completed")
	require.Equal(t, []string{
		"input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
		"input_audio_buffer.committed", "conversation.item.added", itemTranscription + "completed",
	}, slices.DeleteFunc(kinds(all), func(kind string) bool { return kind == itemTranscription+"delta" }))
	var deltas strings.Builder
	id := all[0]["item_id"]
	for _, m := range all {
		if d, ok := m["delta"]; ok {
			deltas.WriteString(d.(string))
		}
		if v, ok := m["item_id"]; ok {
			require.Equal(t, id, v)
		}
	}
	require.Equal(t, "w600 w500", deltas.String())
	last := all[len(all)-1]
	require.Equal(t, "w600 w500", last["transcript"])
	require.Equal(t, "tokens", last["usage"].(map[string]any)["type"])
	require.InDelta(t, 892, all[0]["audio_start_ms"], 33)
	require.Equal(t, "Ajax", r.Calls()[0].Hearing.Context)

	// Without turns the client commits, and an empty buffer is an error.
	c.say(map[string]any{"type": "session.update", "session": map[string]any{"audio": map[string]any{"input": map[string]any{"turn_detection": nil}}}})
	require.Equal(t, "session.updated", c.next()["type"])
	c.say(map[string]any{"type": "input_audio_buffer.commit", "event_id": "mine"})
	m := c.next()
	require.Equal(t, "error", m["type"])
	require.Equal(t, "input_audio_buffer_commit_empty", m["error"].(map[string]any)["code"])
	require.Equal(t, "mine", m["error"].(map[string]any)["event_id"])
	c.append(livetest.Say(half, 300, 200), 16000)
	c.say(map[string]any{"type": "input_audio_buffer.clear"})
	require.Contains(t, kinds(c.until("type", "input_audio_buffer.cleared")), "input_audio_buffer.cleared")
	c.append(livetest.Say(half, 400), 16000)
	c.say(map[string]any{"type": "input_audio_buffer.commit"})
	all = c.until("type", itemTranscription+"completed")
	require.NotContains(t, kinds(all), "input_audio_buffer.speech_started")
	require.Equal(t, "w400", all[len(all)-1]["transcript"])
}

// TestOlderRealtime: the older events, at 24 kHz and as G.711.
func TestOlderRealtime(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	c := dial(t, srv, "/v1/realtime?model=whisper-1")
	c.next()
	c.say(map[string]any{"type": "transcription_session.update", "session": map[string]any{
		"input_audio_format": "pcm16", "turn_detection": nil, "input_audio_transcription": map[string]any{"model": "whisper-1", "language": "en"},
	}})
	require.Equal(t, "transcription_session.updated", c.next()["type"])
	c.append(livetest.Say(time.Second, 500), 24000)
	c.say(map[string]any{"type": "input_audio_buffer.commit"})
	all := c.until("type", itemTranscription+"completed")
	require.Contains(t, kinds(all), "conversation.item.created")
	require.InDelta(t, 16000, r.Calls()[len(r.Calls())-1].Samples, 200)
	for _, format := range []string{"g711_ulaw", "g711_alaw"} {
		c.say(map[string]any{"type": "transcription_session.update", "session": map[string]any{"input_audio_format": format}})
		require.Equal(t, "transcription_session.updated", c.next()["type"])
		c.say(map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(make([]byte, 8000))})
		c.say(map[string]any{"type": "input_audio_buffer.commit"})
		c.until("type", itemTranscription+"completed")
		require.InDelta(t, 16000, r.Calls()[len(r.Calls())-1].Samples, 200, "a second at 8 kHz")
	}
}

// TestRealtimeOfLiveKit: what LiveKit's plugin sends. Of models that find no turns at OpenAI it asks for none, and commits.
func TestRealtimeOfLiveKit(t *testing.T) {
	for model, commits := range map[string]bool{
		"gpt-4o-mini-transcribe": false, "gpt-transcribe": false, "gpt-realtime-whisper": true, "gpt-live-transcribe": true,
	} {
		t.Run(model, func(t *testing.T) {
			r := &livetest.Recognizer{}
			srv, _ := transcribe(t, r)
			c := dial(t, srv, "/v1/realtime?intent=transcription&model="+model)
			c.next()
			input := map[string]any{
				"format":        map[string]any{"type": "audio/pcm", "rate": 24000},
				"transcription": map[string]any{"model": model, "keywords": []string{"Ajax", "PSV"}, "languages": []string{"nl", "en"}},
			}
			if !commits {
				input["turn_detection"] = map[string]any{"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 600, "silence_duration_ms": 350}
				input["transcription"] = map[string]any{"model": model, "prompt": "Football.", "language": "nl"}
			}
			c.say(map[string]any{"type": "session.update", "session": map[string]any{"type": "transcription", "audio": map[string]any{"input": input}}})
			updated, err := json.Marshal(c.next())
			require.NoError(t, err)
			require.Equal(t, commits, strings.Contains(string(updated), `"turn_detection":null`), "%s", updated)
			require.Equal(t, commits, strings.Contains(string(updated), `"keywords":["Ajax","PSV"]`))
			c.append(livetest.Say(half, 0, 600, 500, 0, 0), 24000)
			if commits {
				c.say(map[string]any{"type": "input_audio_buffer.commit"})
			}
			all := c.until("type", itemTranscription+"completed")
			require.Equal(t, !commits, slices.Contains(kinds(all), "input_audio_buffer.speech_started"))
			want := inference.Hearing{Language: "nl", Context: "Football.", Live: true}
			if commits {
				want = inference.Hearing{Context: "Ajax, PSV", Live: true}
			}
			require.Equal(t, want, r.Calls()[0].Hearing)
			require.Equal(t, []any{map[string]any{"code": cmp.Or(want.Language, "en")}}, all[len(all)-1]["languages"])
		})
	}
}

func TestRealtimeErrors(t *testing.T) {
	r := &livetest.Recognizer{NoPartials: true, Before: func(context.Context, livetest.Call) error { return errors.New("the graph failed") }}
	srv, _ := transcribe(t, r, ownModel)
	c := dial(t, srv, "/v1/realtime")
	c.next()
	input := func(field string, v any) string {
		b, err := json.Marshal(map[string]any{"type": "session.update", "session": map[string]any{"audio": map[string]any{"input": map[string]any{field: v}}}})
		require.NoError(t, err)
		return string(b)
	}
	for text, want := range map[string]string{
		`{`:                           "read the event",
		`{"type": "response.create"}`: `no event "response.create"`,
		`{"type": "session.update"}`:  "session:",
		`{"type": "session.update", "session": {"type": "realtime"}}`:                                     "only transcription",
		`{"type": "session.update", "session": {"include": ["item.input_audio_transcription.logprobs"]}}`: "no logprobs",
		`{"type": "input_audio_buffer.append", "audio": "%"}`:                                             "expected base64",
		input("format", map[string]any{"type": "audio/opus"}):                                             "expected audio/pcm",
		input("format", map[string]any{"type": "audio/pcm", "rate": 7}):                                   "expected audio/pcm",
		input("transcription", map[string]any{"model": "llama"}):                                          "not found",
		input("transcription", map[string]any{"language": "xx"}):                                          "expected a language",
		input("turn_detection", map[string]any{"type": "semantic_vad"}):                                   "server_vad",
		input("turn_detection", map[string]any{"type": "server_vad", "threshold": -1}):                    "threshold",
	} {
		require.NoError(t, c.WriteMessage(websocket.TextMessage, []byte(text)))
		m := c.next()
		require.Equal(t, "error", m["type"], "%s: %v", text, m)
		require.Contains(t, m["error"].(map[string]any)["message"], want)
	}
	c.append(livetest.Say(half, 600, 0, 0), 24000)
	all := c.until("type", itemTranscription+"failed")
	require.Equal(t, "the graph failed", all[len(all)-1]["error"].(map[string]any)["message"])
	for path, want := range map[string]int{"?intent=conversation": 400, "?model=llama": 404} {
		_, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/realtime"+path, nil)
		require.Error(t, err)
		require.Equal(t, want, res.StatusCode)
		require.NoError(t, res.Body.Close())
	}
}

// TestClearedItems: utterances that a client clears leave nothing behind.
func TestClearedItems(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2, audioapi.ItemsAfterClears(10_000), "the open one, and one without its text")
}

func TestG711(t *testing.T) {
	for _, c := range []struct {
		ulaw, alaw byte
		value      int16
	}{{0xff, 0xd5, 0}, {0x80, 0xaa, 32124}, {0x00, 0x2a, -32124}, {0x8f, 0xa5, 16764}} {
		u, a := audioapi.G711(c.ulaw, c.alaw)
		require.Equal(t, float32(c.value)/32768, u)
		require.InDelta(t, float64(c.value)/32768, float64(a), 0.035)
	}
}

func TestAgreed(t *testing.T) {
	for _, c := range [][3]string{
		{"", "a", ""}, {"go", "goal", ""}, {"a go", "a goal", "a"}, {"a goal", "a goal kick", "a goal"}, {"a b c", "a x c", "a"}, {"a", "a", "a"},
	} {
		require.Equal(t, c[2], audioapi.Agreed(c[0], c[1]), "%v", c)
	}
}

// refusals returns the number of refusals with a code in the metrics.
func refusals(t *testing.T, h *audioapi.Transcriber, code string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(h.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "touchline_transcription_errors_total" && m.GetLabel()[0].GetValue() == code {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestMessagesAreBounded: a message that is too long ends its session, is counted, and touches no other session.
func TestMessagesAreBounded(t *testing.T) {
	srv, h := transcribe(t, &livetest.Recognizer{})
	other := dial(t, srv, "/ws/transcribe?sample_rate=48000&use_server_vad=0")
	other.next()
	for _, size := range []int{1<<20 + 1, 10 << 20} {
		for _, path := range []string{"/ws/transcribe", "/v1/realtime"} {
			c := dial(t, srv, path)
			c.next()
			_ = c.WriteMessage(websocket.BinaryMessage, make([]byte, size)) // the server may close meanwhile
			_, _, err := c.ReadMessage()
			require.Error(t, err)
		}
	}
	require.Eventually(t, func() bool { return h.Health().Sessions == 1 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, 4.0, refusals(t, h, "message_too_large"))
	largest, err := resample.All(livetest.Say(5*time.Second, 400), 16000, 48000)
	require.NoError(t, err)
	require.NoError(t, other.WriteMessage(websocket.BinaryMessage, bytes16(largest)), "480 kB")
	other.say(map[string]any{"action": "flush"})
	texts := other.until("is_final", true)
	require.Contains(t, texts[len(texts)-1]["text"], "w400")
}
