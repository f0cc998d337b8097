package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"touchline/internal/e2e/stage"
)

// mood is the behaviour of a modelServer.
type mood int32

const (
	moodWell mood = iota
	moodRefuse
	moodHang
	moodBreak
)

// modelServer is an OpenAI-compatible model server that can fail on request. Every answer is a different sentence.
type modelServer struct {
	*httptest.Server
	mood atomic.Int32
	// least and most bound the time to the first word.
	least, most time.Duration
	// text is the format of an answer; %d is its number.
	text string

	mu   sync.Mutex
	rand *rand.Rand
	n    int
	// awaited is the text whose first request seen receives.
	awaited []byte
	seen    chan time.Time
}

// Sentences of about four seconds and of one.
const (
	longText = "Number %d: the reds move the ball across the pitch and look for space."
	tinyText = "At %d it is so."
)

func newModelServer(seed uint64, text string, least, most time.Duration) *modelServer {
	m := &modelServer{text: text, least: least, most: most, rand: rand.New(rand.NewPCG(seed, 3))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"eye","object":"model"}]}`)) // the client may have left
	})
	mux.HandleFunc("POST /v1/chat/completions", m.answer)
	m.Server = httptest.NewServer(mux)
	return m
}

// settings are the settings of a bot with this model, as variables.
func (m *modelServer) settings() []string {
	return []string{engineSetting + "remote", "TOUCHLINE_INFERENCE_REMOTE_URL=" + m.URL + "/v1"}
}

// await returns when the first request with a text comes. It replaces an earlier text.
func (m *modelServer) await(text string) <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awaited, m.seen = []byte(text), make(chan time.Time, 1)
	return m.seen
}

// read reads a request.
func (m *modelServer) read(body io.Reader) {
	b, _ := io.ReadAll(body) // net/http detects a closed connection only once the request body was read
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.awaited != nil && bytes.Contains(b, m.awaited) {
		m.seen <- time.Now()
		m.awaited = nil
	}
}

func (m *modelServer) is() mood { return mood(m.mood.Load()) }

// close ends hanging requests as well.
func (m *modelServer) close() {
	m.CloseClientConnections()
	m.Close()
}

func (m *modelServer) next() (text string, latency time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	latency = m.least
	if m.most > m.least {
		latency += time.Duration(m.rand.Int64N(int64(m.most - m.least)))
	}
	return fmt.Sprintf(m.text, m.n), latency
}

func (m *modelServer) answer(w http.ResponseWriter, r *http.Request) {
	m.read(r.Body)
	text, latency := m.next()
	if stage.Wait(r.Context(), latency) != nil {
		return
	}
	switch m.is() {
	case moodRefuse:
		http.Error(w, `{"error":{"message":"out of memory"}}`, http.StatusInternalServerError)
		return
	case moodHang:
		<-r.Context().Done()
		return
	case moodWell, moodBreak:
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, word := range strings.SplitAfter(text, " ") {
		if m.is() == moodBreak && i == 4 {
			panic(http.ErrAbortHandler)
		}
		b, _ := json.Marshal(map[string]any{ // strings and numbers only
			"id": "c", "object": "chat.completion.chunk", "model": "eye", "created": 1,
			"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": word}}},
		})
		fmt.Fprintf(w, "data: %s\n\n", b)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
