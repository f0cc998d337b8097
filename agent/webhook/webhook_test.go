package webhook_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/livekit/protocol/auth"
	livekitwebhook "github.com/livekit/protocol/webhook"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/look"
	"touchline/agent/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key, secret = "APIkey", "a-secret-of-at-least-32-characters-0123"

// receiver takes events, each answered by answer.
type receiver struct {
	answer func(w http.ResponseWriter, n int) // n counts requests from 1

	mu     sync.Mutex
	n      int
	at     []time.Time
	events []map[string]any // those that were answered with 200
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var e map[string]any
	_ = json.Unmarshal(body, &e)
	r.mu.Lock()
	r.n++
	n := r.n
	r.at = append(r.at, time.Now())
	r.mu.Unlock()
	status := &statusWriter{ResponseWriter: w, code: http.StatusOK}
	if r.answer != nil {
		r.answer(status, n)
	}
	if status.code == http.StatusOK {
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
	}
}

type statusWriter struct {
	http.ResponseWriter
	code int
}

func (s *statusWriter) WriteHeader(code int) { s.code = code; s.ResponseWriter.WriteHeader(code) }

func (r *receiver) taken() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]map[string]any(nil), r.events...)
}

// direct carries requests to a handler without a network, so that time can be made up.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		d.ServeHTTP(w, req)
	}()
	select {
	case v := <-done:
		if v != nil {
			return nil, errors.New("connection reset by peer")
		}
		return w.Result(), nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// decodeSegment reads a part of a JWT.
func decodeSegment(s string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func config(urls ...string) webhook.Config {
	c := webhook.DefaultConfig()
	for _, u := range urls {
		c.URLs = append(c.URLs, webhook.URL{URL: u})
	}
	return c
}

func open(t *testing.T, o webhook.Options) (s *webhook.Sender, stop func()) {
	t.Helper()
	o.APIKey, o.APISecret = key, secret
	s, err := webhook.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func comment(i uint64) look.Record {
	return look.Record{Type: "cycle_end", Cycle: i, Outcome: look.OutcomeSpoken, Text: fmt.Sprintf("<Goal> & %d", i), FrameIDs: []uint64{1}}
}

// TestSigned: requests pass LiveKit's verification and its parser reads them.
func TestSigned(t *testing.T) {
	keys := auth.NewSimpleKeyProvider(key, secret)
	type got struct {
		header http.Header
		body   []byte
		claims map[string]any
	}
	requests := make(chan got, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		again := func() *http.Request {
			r := req.Clone(req.Context())
			r.Body = io.NopCloser(bytes.NewReader(text))
			return r
		}
		body, err := livekitwebhook.Receive(again(), keys)
		if err != nil {
			t.Error(err)
		}
		ev, err := livekitwebhook.ReceiveWebhookEvent(again(), keys)
		if err != nil || ev.Room.GetName() != "match" || ev.Participant.GetIdentity() != "bot" || ev.Id == "" || ev.CreatedAt == 0 {
			t.Errorf("read as LiveKit's: %v, %v", ev, err)
		}
		for name, keys := range map[string]auth.KeyProvider{
			"another secret": auth.NewSimpleKeyProvider(key, strings.Repeat("x", 40)), "another key": auth.NewSimpleKeyProvider("other", secret),
		} {
			if _, err := livekitwebhook.Receive(again(), keys); err == nil {
				t.Error(name + " verifies")
			}
		}
		forged := again()
		forged.Body = io.NopCloser(bytes.NewReader(append(text, ' ')))
		if _, err := livekitwebhook.Receive(forged, keys); err == nil {
			t.Error("another body verifies")
		}
		var claims map[string]any
		middle := strings.Split(req.Header.Get("Authorization"), ".")[1]
		if err := decodeSegment(middle, &claims); err != nil {
			t.Error(err)
		}
		requests <- got{req.Header, body, claims}
	}))
	defer server.Close()
	s, stop := open(t, webhook.Options{Config: config(server.URL + "/hook?token=hunter2")})
	defer stop()
	s.Output("match", "bot").Record(comment(7))
	r := <-requests
	require.Equal(t, "application/webhook+json", r.header.Get("Content-Type"))
	require.Equal(t, key, r.claims["iss"])
	now := float64(time.Now().Unix())
	require.InDelta(t, now, r.claims["nbf"], 10)
	require.InDelta(t, now+300, r.claims["exp"], 10)
	require.NotEmpty(t, r.claims["sha256"])

	var e struct {
		Event, ID   string
		CreatedAt   int64 `json:"created_at"`
		Room        struct{ Name string }
		Participant struct{ Identity, Kind string }
		Record      look.Record
	}
	require.NoError(t, json.Unmarshal(r.body, &e))
	require.Equal(t, []string{"comment_finished", "match", "bot", "AGENT"}, []string{e.Event, e.Room.Name, e.Participant.Identity, e.Participant.Kind})
	require.Equal(t, comment(7), e.Record)
	require.Regexp(t, `^EV_\w{16}$`, e.ID)
	require.InDelta(t, now, e.CreatedAt, 10)
	stop()
	require.EqualValues(t, 1, s.Sent())
}

// TestEvents: the events of records and states.
func TestEvents(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	s, stop := open(t, webhook.Options{Config: config(server.URL)})
	o := s.Output("match", "bot")
	o.State(agent.Status{State: "initializing", Activity: "loading", Percent: 1})
	o.State(agent.Status{State: "initializing", Activity: "loading", Percent: 50})
	o.State(agent.Status{State: "listening", Activity: "watching", Percent: 100})
	o.Caption(agent.Caption{Delta: "a word"})
	o.Record(comment(1))
	o.Record(look.Record{Cycle: 2, Outcome: look.OutcomeSilent})
	o.Record(look.Record{Cycle: 3, Outcome: look.OutcomeSkipped, Skipped: true})
	o.Record(look.Record{Cycle: 4, Outcome: look.OutcomeCut, Text: "and", Reason: "stopped"})
	o.Record(look.Record{Cycle: 5, Outcome: look.OutcomeFailed, Reason: "x" + strings.Repeat("ü", 3000)})
	o.State(agent.Status{State: "listening", Activity: "failed", Detail: "no such model"})
	o.Heard(agent.Heard{Identity: "ann", Text: "hello", Final: true, Caption: true})
	o.Failed(errors.New("the room is gone"))
	stop()
	var got []string
	for _, e := range r.taken() {
		line := e["event"].(string)
		if v, ok := e["state"].(map[string]any); ok {
			line += fmt.Sprintf(" %v>%v %v>%v", v["before"], v["state"], v["before_chip"], v["chip"])
		}
		if v, ok := e["record"].(map[string]any); ok {
			line += fmt.Sprintf(" %v %v", v["cycle"], v["outcome"])
		}
		if v, ok := e["error"].(map[string]any); ok {
			message := v["message"].(string)
			require.LessOrEqual(t, len(message), 2100)
			require.NotContains(t, message, "\ufffd", "a character is not cut in two")
			line += " " + message[:min(len(message), 19)]
		}
		got = append(got, line)
	}
	require.Equal(t, []string{
		"state_changed >initializing >loading", "state_changed initializing>listening loading>watching",
		"comment_finished 1 spoken", "comment_finished 4 cut", "error 5 failed xüüüüüüüüü",
		"state_changed listening>listening watching>failed", "error no such model", "error the room is gone",
	}, got)

	// Only the configured events.
	r.mu.Lock()
	r.events = nil
	r.mu.Unlock()
	cfg := config(server.URL)
	cfg.Events = []string{webhook.EventError}
	s, stop = open(t, webhook.Options{Config: cfg})
	o = s.Output("match", "bot")
	o.State(agent.Status{State: "listening"})
	o.Record(comment(1))
	o.Failed(errors.New("x"))
	stop()
	require.Len(t, r.taken(), 1)
}

// TestRetries: which failures are retried, and when.
func TestRetries(t *testing.T) {
	code := func(codes ...int) func(http.ResponseWriter, int) {
		return func(w http.ResponseWriter, n int) {
			if n <= len(codes) {
				w.WriteHeader(codes[n-1])
			}
		}
	}
	tests := []struct {
		name     string
		answer   func(http.ResponseWriter, int)
		requests int
		sent     uint64
		least    time.Duration // until the last attempt
		most     time.Duration
	}{
		{"taken", nil, 1, 1, 0, 0},
		{"another 2xx", code(204), 1, 1, 0, 0},
		{"overloaded", code(503, 500), 3, 1, 750 * time.Millisecond, 1500 * time.Millisecond},
		{"away", func(_ http.ResponseWriter, n int) {
			if n < 4 {
				panic("no answer")
			}
		}, 4, 1, 1750 * time.Millisecond, 3500 * time.Millisecond},
		{"never well", func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusBadGateway) }, 6, 0, 7750 * time.Millisecond, 15500 * time.Millisecond},
		{"asked to wait", func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, 2, 1, 7 * time.Second, 7 * time.Second},
		{"asked to wait until", func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, 2, 1, 19 * time.Second, 20 * time.Second},
		{"asked to wait for ever", func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", "2000000000")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, 2, 1, time.Minute, time.Minute},
		{"hangs", func(_ http.ResponseWriter, n int) {
			if n == 1 {
				<-time.After(time.Hour)
			}
		}, 2, 1, 5250 * time.Millisecond, 5500 * time.Millisecond},
		{"refused", code(400), 1, 0, 0, 0},
		{"gone", code(410), 1, 0, 0, 0},
		{"elsewhere", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Location", "http://other.test/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, 1, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{answer: tt.answer}
				s, stop := open(t, webhook.Options{Config: config("http://receiver.test/"), Transport: direct{r}})
				began := time.Now()
				s.Output("match", "bot").Record(comment(1))
				time.Sleep(2 * time.Minute)
				r.mu.Lock()
				requests, last := r.n, r.at[len(r.at)-1].Sub(began)
				r.mu.Unlock()
				require.Equal(t, tt.requests, requests)
				require.GreaterOrEqual(t, last, tt.least)
				require.LessOrEqual(t, last, tt.most)
				require.Equal(t, tt.sent, s.Sent())
				require.Equal(t, 1-tt.sent, s.Failed())
				stop()
				time.Sleep(2 * time.Hour) // the handler that hangs
			})
		})
	}
}

// TestRecovery: the log has one line for failures in a row and one for the recovery. The receiver
// gets the number of events that it missed.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &receiver{answer: func(w http.ResponseWriter, n int) {
			if n <= 2 {
				w.WriteHeader(http.StatusForbidden)
			}
		}}
		s, stop := open(t, webhook.Options{
			Config: config("http://receiver.test/"), Transport: direct{r},
			Log: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel),
		})
		o := s.Output("match", "bot")
		for i := range uint64(4) {
			o.Record(comment(i + 1))
		}
		synctest.Wait()
		stop()
		require.EqualValues(t, 2, s.Failed())
		events := r.taken()
		require.Len(t, events, 2)
		require.InDelta(t, 2, events[0]["num_dropped"], 0)
		require.Nil(t, events[1]["num_dropped"])
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "webhook failed")
		require.Contains(t, lines[0], "answered 403")
		require.Contains(t, lines[1], "webhook recovered")
		require.Contains(t, lines[1], `"lost":2`)
	})
}

// TestTooLarge: an event beyond the size limit fails without a request; the next one is delivered.
func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		s, stop := open(t, webhook.Options{Config: config("http://receiver.test/"), Transport: direct{r}})
		o := s.Output("match", "bot")
		long := comment(1)
		long.Text = strings.Repeat("goal ", 60_000)
		o.Record(long)
		o.Record(comment(2))
		synctest.Wait()
		stop()
		require.EqualValues(t, 1, s.Failed())
		require.Equal(t, 1, r.n)
		require.InDelta(t, 1, r.taken()[0]["num_dropped"], 0)
	})
}

// TestOrder: the events of a room come in order, although attempts fail; a
// room whose events are slow does not hold up the others.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(w http.ResponseWriter, n int) {
			time.Sleep(20 * time.Millisecond)
			if n%7 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}}
		s, stop := open(t, webhook.Options{Config: config("http://receiver.test/"), Transport: direct{r}})
		const rooms, each = 10, 20
		for i := range uint64(each) {
			for n := range rooms {
				s.Output(strconv.Itoa(n), "bot").Record(comment(i + 1))
			}
		}
		time.Sleep(5 * time.Minute)
		stop()
		require.EqualValues(t, rooms*each, s.Sent())
		next := map[string]float64{}
		ids := map[string]bool{}
		for _, e := range r.taken() {
			room := e["room"].(map[string]any)["name"].(string)
			next[room]++
			require.InDelta(t, next[room], e["record"].(map[string]any)["cycle"], 0, "room %s", room)
			ids[e["id"].(string)] = true
		}
		require.Len(t, ids, rooms*each)
	})
}

// TestFullQueue: outputs do not wait for a receiver; the oldest events are dropped and
// counted, and the receiver gets their number.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open1 := make(chan struct{})
		r := &receiver{answer: func(http.ResponseWriter, int) { <-open1 }}
		cfg := config("http://receiver.test/")
		cfg.Timeout = time.Minute
		s, stop := open(t, webhook.Options{Config: cfg, Transport: direct{r}})
		o := s.Output("match", "bot")
		o.Record(comment(1))
		synctest.Wait() // it is on its way
		for i := uint64(2); i <= 1501; i++ {
			o.Record(comment(i))
		}
		require.EqualValues(t, 500, s.Dropped())
		close(open1)
		time.Sleep(time.Second)
		stop()
		events := r.taken()
		require.Len(t, events, 1001)
		require.Nil(t, events[0]["num_dropped"])
		require.InDelta(t, 500, events[1]["num_dropped"], 0)
		require.Nil(t, events[2]["num_dropped"])
		require.InDelta(t, 502, events[1]["record"].(map[string]any)["cycle"], 0)
		require.InDelta(t, 1501, events[1000]["record"].(map[string]any)["cycle"], 0)
	})
}

// TestEnd: at the end, queued events have one more attempt, within a second.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{answer: func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", "50")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}}
		s, stop := open(t, webhook.Options{Config: config("http://receiver.test/"), Transport: direct{r}})
		o := s.Output("match", "bot")
		for i := range uint64(10) {
			o.Record(comment(i + 1))
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		stop()
		require.Zero(t, time.Since(began), "nothing hung")
		require.EqualValues(t, 10, s.Sent())

		// A receiver that does not answer delays no other.
		never := make(chan struct{})
		s, stop = open(t, webhook.Options{
			Config: config("http://receiver.test/"), Transport: direct{http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-never })},
		})
		for i := range 10 {
			s.Output(fmt.Sprint("room ", i), "bot").Record(comment(1))
		}
		began = time.Now()
		stop()
		require.Equal(t, time.Second, time.Since(began))
		require.EqualValues(t, 10, s.Failed()+s.Dropped())
		require.Zero(t, s.Sent())
		close(never)
	})
}

// TestSecretsStayOut: neither addresses nor keys are logged.
func TestSecretsStayOut(t *testing.T) {
	var log bytes.Buffer
	server := httptest.NewServer(http.NotFoundHandler())
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	defer server.Close()
	cfg := config(server.URL+"/hunter2?token=hunter2", closed.URL+"/hunter2")
	cfg.Retries = 0
	s, stop := open(t, webhook.Options{Config: cfg, Log: zerolog.New(zerolog.SyncWriter(&log))})
	s.Output("match", "bot").Record(comment(1))
	require.Eventually(t, func() bool { return s.Failed() == 2 }, 2*time.Minute, time.Millisecond)
	stop()
	require.Contains(t, log.String(), "answered 404")
	require.Contains(t, log.String(), "connection refused")
	require.NotContains(t, log.String(), "hunter2")
	require.NotContains(t, log.String(), secret)

	for _, bad := range []string{"https://me:hunter2@host/", "ftp://host/hunter2", "http://", "://hunter2"} {
		_, err := webhook.New(webhook.Options{Config: config(bad), APIKey: key, APISecret: secret})
		require.ErrorContains(t, err, "http:// or https://")
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := webhook.New(webhook.Options{Config: config(server.URL), APIKey: key})
	require.ErrorContains(t, err, "LIVEKIT_API_SECRET")
	cfg = config(server.URL)
	cfg.URLs[0].SigningKey = "ops"
	_, err = webhook.New(webhook.Options{Config: cfg, APIKey: key, APISecret: secret})
	require.ErrorContains(t, err, `no secret for "ops"`)
	cfg.Keys = "ops hunter2"
	_, err = webhook.New(webhook.Options{Config: cfg, APIKey: key, APISecret: secret})
	require.ErrorContains(t, err, `must be pairs such as "key: secret"`)
	require.NotContains(t, err.Error(), "hunter2")

	metrics := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(s.Collector()))
	families, err := metrics.Gather()
	require.NoError(t, err)
	require.Len(t, families, 4)
	require.Equal(t, "touchline_webhook_failed_total", families[1].GetName())
	require.Equal(t, 2.0, families[1].GetMetric()[0].GetCounter().GetValue())
}

// TestEachAddress: an address may have events and a key of its own. What is
// signed for one does not verify at another.
func TestEachAddress(t *testing.T) {
	const other = "another-secret-of-32-characters-9876"
	type got struct{ host, event string }
	var mu sync.Mutex
	seen := map[got]int{}
	pairs := map[string][2]string{"all.test": {key, secret}, "errors.test": {"ops", other}, "comments.test": {key, secret}}
	receiver := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		for host, pair := range pairs {
			again := req.Clone(req.Context())
			again.Body = io.NopCloser(bytes.NewReader(text))
			_, err := livekitwebhook.Receive(again, auth.NewSimpleKeyProvider(pair[0], pair[1]))
			if same := pair == pairs[req.URL.Host]; same != (err == nil) {
				t.Errorf("event for %s at %s: %v", req.URL.Host, host, err)
			}
		}
		var e struct{ Event string }
		if err := json.Unmarshal(text, &e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		seen[got{req.URL.Host, e.Event}]++
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	cfg := config("http://all.test/", "http://errors.test/", "http://comments.test/")
	cfg.URLs[1].Events, cfg.URLs[1].SigningKey = []string{webhook.EventError}, "ops"
	cfg.URLs[2].Events = []string{webhook.EventCommentFinished}
	cfg.Events, cfg.Keys = []string{webhook.EventCommentFinished, webhook.EventError}, "ops: "+other+",\n \n"
	s, stop := open(t, webhook.Options{Config: cfg, Transport: direct{receiver}})
	o := s.Output("match", "bot")
	o.Record(comment(1))
	o.State(agent.Status{State: "listening"}) // not configured
	o.Failed(errors.New("it broke"))
	require.Eventually(t, func() bool { return s.Sent() == 4 }, 2*time.Minute, time.Millisecond)
	stop()
	require.Zero(t, s.Failed()+s.Dropped())
	require.Equal(t, map[got]int{
		{"all.test", webhook.EventCommentFinished}: 1, {"all.test", webhook.EventError}: 1,
		{"errors.test", webhook.EventError}: 1, {"comments.test", webhook.EventCommentFinished}: 1,
	}, seen)
}

// crashing panics over each request to a host, the first at the same time as the second.
type crashing struct {
	http.RoundTripper

	host     string
	requests atomic.Int32
	second   chan struct{} // closed by the second request
}

func (c *crashing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != c.host {
		return c.RoundTripper.RoundTrip(req)
	}
	if c.requests.Add(1) == 2 {
		close(c.second)
	}
	<-c.second
	panic("crash over " + c.host)
}

// TestCrash: panics of one recipient, also of two requests at once, switch it
// off. That is logged once, and the other recipients get their events.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &receiver{}
		s, stop := open(t, webhook.Options{
			Config:    config("http://bad.test/hunter2", "http://good.test/"),
			Transport: &crashing{RoundTripper: direct{r}, host: "bad.test", second: make(chan struct{})},
			Log:       zerolog.New(zerolog.SyncWriter(&log)),
		})
		for i := range uint64(10) {
			s.Output(fmt.Sprint("room ", i%5), "bot").Record(comment(i))
		}
		synctest.Wait()
		require.Equal(t, 1, s.Off())
		require.EqualValues(t, 10, s.Sent())
		require.EqualValues(t, 10, s.Failed()+s.Dropped())
		s.Output("match", "bot").Record(comment(11))
		synctest.Wait()
		require.EqualValues(t, 11, s.Sent())
		require.EqualValues(t, 11, s.Failed()+s.Dropped())
		stop()
		time.Sleep(10 * time.Second) // net/http's timer of the request that panicked
		require.Equal(t, 1, strings.Count(log.String(), "webhook panicked"), log.String())
		require.Contains(t, log.String(), "(*crashing).RoundTrip", "the stack")
		require.NotContains(t, log.String(), "hunter2")
	})
}

// TestHeard: what people say is posted where it is asked for: final texts, and orders with what became of them.
func TestHeard(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	cfg := config(server.URL)
	cfg.Events = []string{webhook.EventHeard}
	s, stop := open(t, webhook.Options{Config: cfg})
	o := s.Output("match", "bot")
	o.Heard(agent.Heard{Identity: "ann", Text: "who", Caption: true})
	o.Heard(agent.Heard{Identity: "ann", Text: "who is it?", Caption: true, Final: true})
	o.Heard(agent.Heard{Identity: "ann", Text: "hey touchline", Final: true})
	o.Heard(agent.Heard{Identity: "ann", Caption: true, Final: true})
	o.Heard(agent.Heard{Identity: "ben", Text: "stop", Final: true, Order: &agent.SpokenOrder{Text: "stop", Refused: "ben may not instruct"}})
	stop()
	taken := r.taken()
	require.Len(t, taken, 2)
	first, second := taken[0]["heard"].(map[string]any), taken[1]["heard"].(map[string]any)
	require.Equal(t, "heard", taken[0]["event"])
	require.Equal(t, "who is it?", first["text"])
	require.Nil(t, first["order"])
	require.Equal(t, map[string]any{"text": "stop", "refused": "ben may not instruct"}, second["order"])
}

// TestForgottenSpeech: deleted speech that waits for its recipient is not posted, nor again. That of other people and rooms is.
func TestForgottenSpeech(t *testing.T) {
	for _, spoken := range []bool{true, false} { // what is on its way
		t.Run(fmt.Sprintf("speech %v", spoken), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { forgottenSpeech(t, spoken) }) })
	}
}

func forgottenSpeech(t *testing.T, spoken bool) {
	t.Helper()
	up := make(chan struct{})
	r := &receiver{answer: func(w http.ResponseWriter, n int) {
		if n == 1 {
			<-up
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}}
	cfg := config("http://receiver.test/")
	cfg.Events, cfg.Timeout = []string{webhook.EventHeard, webhook.EventCommentFinished}, time.Minute
	s, stop := open(t, webhook.Options{Config: cfg, Transport: direct{r}})
	match, other := s.Output("match", "bot"), s.Output("other", "bot")
	say := func(o *webhook.Output, identity, text string) {
		o.Heard(agent.Heard{Identity: identity, Text: text, Caption: true, Final: true})
	}
	comment := func(by string) {
		match.Record(look.Record{Outcome: look.OutcomeShown, Text: "Goal!", Instruction: "asked by " + by, InstructionBy: by})
	}
	left := []any{nil, "asked by room: ben"}
	if spoken {
		say(match, "ann", "a secret")
	} else {
		comment("room: ann")
		left = append(left, nil)
	}
	synctest.Wait() // it is on its way
	say(match, "ann", "another")
	say(match, "ben", "not one")
	comment("room: ann")
	comment("room: ben")
	match.ForgetHeard("ann")
	close(up)
	say(other, "ann", "elsewhere")
	time.Sleep(time.Minute)
	stop()
	var texts []string
	var instructions []any
	for _, e := range r.taken() {
		if record, ok := e["record"].(map[string]any); ok {
			instructions = append(instructions, record["instruction"])
			continue
		}
		texts = append(texts, e["heard"].(map[string]any)["text"].(string))
	}
	require.ElementsMatch(t, []string{"not one", "elsewhere"}, texts)
	require.ElementsMatch(t, left, instructions)
}
