package audioapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"touchline/agent/audioapi"
	"touchline/inference/live/livetest"
	"touchline/internal/limit"
)

// of are the headers of a client for known; token "" is the operator.
func of(token, from string) http.Header { return http.Header{"X-Token": {token}, "X-From": {from}} }

// known has the server read the client of each request from headers.
func known(srv *httptest.Server) {
	inner := srv.Config.Handler
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("X-Token")
		c := limit.Client{Token: token, From: netip.MustParseAddr(r.Header.Get("X-From")), Operator: token == ""}
		inner.ServeHTTP(w, r.WithContext(limit.WithClient(r.Context(), c)))
	})
}

// figure returns a metric of a kind, with the reason of a refusal or "".
func figure(t *testing.T, c prometheus.Collector, kind, reason string) (sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "touchline_limit_taken" && (reason == "" || f.GetName() != "touchline_limit_refused_total") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["kind"] == kind && labels["reason"] == reason {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// answered is the answer to a request of post.
type answered struct {
	status int
	text   string
	again  string // Retry-After
}

// send posts a form in the background. Its answer comes to the channel.
func send(t *testing.T, srv *httptest.Server, header http.Header, body io.Reader) <-chan answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+transcriptions, body)
	require.NoError(t, err)
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	return answerOf(srv, req)
}

// answerOf sends a request in the background.
func answerOf(srv *httptest.Server, req *http.Request) <-chan answered {
	out := make(chan answered, 1)
	go func() {
		res, err := srv.Client().Do(req)
		if err != nil {
			out <- answered{0, err.Error(), ""}
			return
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		out <- answered{res.StatusCode, string(text), res.Header.Get("Retry-After")}
	}()
	return out
}

const fileHead = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"

// slow returns a body that never ends before the test.
func slow(t *testing.T, text string) io.Reader {
	t.Helper()
	in, out := io.Pipe()
	t.Cleanup(func() { _ = out.Close() })
	go func() { _, _ = io.WriteString(out, text) }()
	return in
}

func whole() io.Reader { return strings.NewReader(fileHead + string(speech()) + "\r\n--b--\r\n") }

// TestPlacesOfUploads: a link and an address have a part of the uploads, however slow they are and however often they ask. Others, and the
// operator, find a place.
func TestPlacesOfUploads(t *testing.T) {
	t.Parallel()
	srv, h := transcribe(t, &livetest.Recognizer{})
	known(srv)
	taken := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return figure(t, h.Metrics(), "uploads", "") == float64(n) }, 2*time.Minute, time.Millisecond)
	}
	var first []<-chan answered
	for i := range 4 {
		var all []<-chan answered
		for range 200 {
			all = append(all, send(t, srv, of(fmt.Sprint(i), fmt.Sprintf("192.0.2.%d", i)), slow(t, fileHead+"RIFF")))
		}
		taken(20 * (i + 1))
		require.Eventually(t, func() bool {
			return figure(t, h.Metrics(), "uploads", "token") == float64(180*(i+1))
		}, 2*time.Minute, time.Millisecond)
		if i == 0 {
			first = all
			require.Equal(t, http.StatusOK, (<-send(t, srv, of("another", "192.0.2.9"), whole())).status)
		}
	}
	got := <-send(t, srv, of("another", "192.0.2.9"), whole())
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.Contains(t, got.text, "the limit of 80 uploads")
	require.Equal(t, http.StatusOK, (<-send(t, srv, of("", "192.0.2.1"), whole())).status)
	pushed := 0
	require.Eventually(t, func() bool {
		for _, c := range first {
			select {
			case a := <-c:
				if strings.Contains(a.text, "the operator needed this place") {
					pushed++
				}
			default:
			}
		}
		return pushed == 1
	}, 2*time.Minute, 10*time.Millisecond)
}

// TestBytesOfUploads: a link has a part of the bytes of all uploads.
func TestBytesOfUploads(t *testing.T) {
	t.Parallel()
	srv, h := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) {
		o.Config.Parallel, o.Config.Queue, o.Config.MaxBytes = 1, 7, 1<<20
	})
	known(srv)
	for i := range 20 {
		send(t, srv, of("a link", "192.0.2.1"), slow(t, fileHead+"RIFF"))
		require.Eventually(t, func() bool {
			return figure(t, h.Metrics(), "upload_bytes", "") == float64(min(i+1, 2)<<20) &&
				figure(t, h.Metrics(), "upload_bytes", "token") == float64(max(i-1, 0))
		}, 2*time.Minute, time.Millisecond)
	}
	require.InDelta(t, 2<<20, figure(t, h.Metrics(), "upload_bytes", ""), 0)
	require.Equal(t, http.StatusOK, (<-send(t, srv, of("another", "192.0.2.1"), whole())).status)
}

// TestPlacesOfRecordings: a link has a part of the places for recordings that wait, and the operator finds one.
func TestPlacesOfRecordings(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	srv, h := transcribe(t, &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}, func(o *audioapi.TranscriberOptions) { o.Config.Parallel, o.Config.Queue = 1, 7 })
	known(srv)
	waiting := func(n float64) bool { return figure(t, h.Metrics(), "recordings", "") == n }
	var all []<-chan answered
	for i := range 40 {
		sent := send(t, srv, of("a link", "192.0.2.1"), whole())
		if i >= 4 { // it has an upload's place until its answer
			require.Equal(t, http.StatusTooManyRequests, (<-sent).status)
			continue
		}
		all = append(all, sent)
		require.Eventually(t, func() bool { return waiting(float64(i + 1)) }, 2*time.Minute, time.Millisecond)
	}
	require.InDelta(t, 36, figure(t, h.Metrics(), "recordings", "token"), 0)
	for i := range 4 {
		all = append(all, send(t, srv, of("another", "192.0.2.2"), whole()))
		require.Eventually(t, func() bool { return waiting(float64(5 + i)) }, 2*time.Minute, time.Millisecond)
	}
	require.Equal(t, http.StatusTooManyRequests, (<-send(t, srv, of("a third", "192.0.2.3"), whole())).status)
	own := send(t, srv, of("", "192.0.2.1"), whole())
	require.Contains(t, (<-all[0]).text, "the operator needed this place")
	close(hold)
	require.Equal(t, http.StatusOK, (<-own).status)
}

// TestRateOfDecodes: of ten times as many files that are not WAV as a link may send at once, its part is decoded. WAV files, other links and
// the operator are not affected.
func TestRateOfDecodes(t *testing.T) {
	t.Parallel()
	var decoded atomic.Int64
	srv, h := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) {
		o.Config.Parallel, o.Config.Queue = 64, 448
		o.Decode = func(context.Context, *os.File, time.Duration) ([]float32, error) {
			decoded.Add(1)
			return make([]float32, 16000), nil
		}
	})
	known(srv)
	compressed := func(token string) int {
		return (<-send(t, srv, of(token, "192.0.2.1"), strings.NewReader(fileHead+"OggS\r\n--b--\r\n"))).status
	}
	began := time.Now()
	var refused atomic.Int64
	var all errgroup.Group
	all.SetLimit(100) // those that are refused wait
	for range 400 {
		all.Go(func() error {
			if compressed("a link") == http.StatusTooManyRequests {
				refused.Add(1)
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.GreaterOrEqual(t, int(decoded.Load()), 40)
	require.LessOrEqual(t, int(decoded.Load()), 41+int(2*time.Since(began).Seconds()))
	require.Equal(t, int64(400), refused.Load()+decoded.Load())
	require.InDelta(t, refused.Load(), figure(t, h.Metrics(), "decodes", "token"), 0)
	for _, token := range []string{"another", ""} {
		require.Equal(t, http.StatusOK, compressed(token))
	}
	require.Equal(t, http.StatusOK, (<-send(t, srv, of("a link", "192.0.2.1"), whole())).status)
}

// TestRefusedDecodes: files beyond the rate take no place in a queue in which everything waits, and their answers say when to try again.
func TestRefusedDecodes(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var release sync.Once
	srv, h := transcribe(t, &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}, func(o *audioapi.TranscriberOptions) {
		o.Config.Parallel, o.Config.Queue = 1, 1023
		o.Decode = func(context.Context, *os.File, time.Duration) ([]float32, error) { return make([]float32, 16000), nil }
	})
	t.Cleanup(func() { release.Do(func() { close(hold) }) })
	known(srv)
	first := send(t, srv, of("another", "192.0.2.2"), whole())
	waiting := func() float64 { return figure(t, h.Metrics(), "recordings", "") }
	require.Eventually(t, func() bool { return waiting() == 1 }, 2*time.Minute, time.Millisecond)
	answers := make(chan answered, 120)
	for range cap(answers) {
		a := send(t, srv, of("a link", "192.0.2.1"), strings.NewReader(fileHead+"OggS\r\n--b--\r\n"))
		go func() { answers <- <-a }()
	}
	got := <-answers // the others wait
	require.Equal(t, http.StatusTooManyRequests, got.status, got.text)
	require.Contains(t, got.text, "too many recordings that are not WAV; try again in 1 s")
	require.Equal(t, "1", got.again, "two a second")
	release.Do(func() { close(hold) })
	require.Equal(t, http.StatusOK, (<-first).status)
	for range cap(answers) - 1 {
		<-answers
	}
}

// TestSlowForm: all fields of a form together have 15 s, however many they are.
func TestSlowForm(t *testing.T) {
	t.Parallel()
	srv, _ := transcribe(t, &livetest.Recognizer{})
	in, out := io.Pipe()
	t.Cleanup(func() { _ = out.Close() })
	answer := send(t, srv, http.Header{}, in)
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for range 10 {
		go func() {
			_, _ = io.WriteString(out, "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n")
		}()
		select {
		case a := <-answer:
			require.Equal(t, http.StatusRequestTimeout, a.status, a.text)
			require.Contains(t, a.text, "upload_timeout")
			return
		case <-tick.C:
		}
	}
	require.Fail(t, "the form is still being read")
}

// TestPlacesOfSockets: a link and an address have a part of the live sessions, and the operator finds one.
func TestPlacesOfSockets(t *testing.T) {
	t.Parallel()
	srv, h := transcribe(t, &livetest.Recognizer{}, func(o *audioapi.TranscriberOptions) { o.Config.Sessions = 16 })
	known(srv)
	dial := func(n int, header http.Header) (got []*websocket.Conn) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for range n { // at once: the refused ones wait
			all.Go(func() {
				conn, res, err := (&websocket.Dialer{}).DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/ws/transcribe", header)
				if err != nil {
					if !assert.NotNil(t, res, "%v", err) { // no answer
						return
					}
					assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
					assert.NoError(t, res.Body.Close())
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
				mu.Lock()
				defer mu.Unlock()
				got = append(got, conn)
			})
		}
		all.Wait()
		return got
	}
	first := dial(1, of("a link", "192.0.2.1"))
	require.Len(t, dial(79, of("a link", "192.0.2.1")), 7)
	require.InDelta(t, 72, figure(t, h.Metrics(), "live_sessions", "token"), 0)
	require.Empty(t, dial(8, of("its second link", "192.0.2.1")))
	require.Len(t, dial(80, of("another", "192.0.2.2")), 8)
	require.Empty(t, dial(1, of("a third", "192.0.2.3")))
	require.Len(t, dial(1, of("", "192.0.2.1")), 1)
	require.NoError(t, first[0].SetReadDeadline(time.Now().Add(2*time.Minute)))
	var err error
	for err == nil {
		_, _, err = first[0].ReadMessage()
	}
	require.ErrorContains(t, err, "the operator needed this place")
}

// say has a text spoken in the background. The answer comes to the channel.
func say(t *testing.T, srv *httptest.Server, header http.Header) <-chan answered {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/audio/speech",
		strings.NewReader(`{"model": "m", "input": "One two", "response_format": "pcm"}`))
	require.NoError(t, err)
	req.Header = header
	return answerOf(srv, req)
}

// TestPlacesOfVoices: a link has one of two voices, and the operator finds one.
func TestPlacesOfVoices(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 8)
	var once sync.Once
	own := make(chan struct{})
	srv := serve(t, &speaker{before: func(ctx context.Context, _ int) error {
		began <- struct{}{}
		select {
		case <-ctx.Done():
		case <-own:
		}
		return ctx.Err()
	}})
	known(srv)
	t.Cleanup(func() { once.Do(func() { close(own) }) })
	answer := func(c <-chan answered) (a answered) {
		t.Helper()
		select {
		case a = <-c:
		case <-time.After(time.Minute):
			require.Fail(t, "the text is being spoken")
		}
		return a
	}
	first := say(t, srv, of("a link", "192.0.2.1"))
	<-began
	for range 10 {
		require.Equal(t, http.StatusTooManyRequests, answer(say(t, srv, of("a link", "192.0.2.1"))).status)
	}
	say(t, srv, of("another", "192.0.2.2"))
	<-began
	require.Equal(t, http.StatusTooManyRequests, answer(say(t, srv, of("a third", "192.0.2.3"))).status)
	mine := say(t, srv, of("", "192.0.2.1"))
	<-began
	pushed := answer(first)
	require.Equal(t, http.StatusTooManyRequests, pushed.status)
	require.Contains(t, pushed.text, "the operator needed this place")
	once.Do(func() { close(own) })
	require.Equal(t, http.StatusOK, answer(mine).status)
}

// linkOverError is the cause of a request that ends with its link.
type linkOverError struct{ error }

func (linkOverError) GetStatus() int { return http.StatusUnauthorized }

// TestLinkEnds: a request that ends with its link has the reason as its answer.
func TestLinkEnds(t *testing.T) {
	t.Parallel()
	began, hold := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	wait := func(ctx context.Context) error {
		began <- struct{}{}
		select {
		case <-ctx.Done():
		case <-hold:
		}
		return ctx.Err()
	}
	end := make(chan context.CancelCauseFunc, 1)
	ends := func(srv *httptest.Server) *httptest.Server {
		inner := srv.Config.Handler
		srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			end <- cancel
			inner.ServeHTTP(w, r.WithContext(ctx))
		})
		return srv
	}
	over := func(c <-chan answered, begins bool) {
		t.Helper()
		cancel := <-end
		if begins {
			<-began
		}
		cancel(linkOverError{errors.New("this link was revoked")})
		a := <-c
		require.Equal(t, http.StatusUnauthorized, a.status, a.text)
		require.Contains(t, a.text, "this link was revoked")
	}
	srv, _ := transcribe(t, &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error { return wait(ctx) }})
	ends(srv)
	over(send(t, srv, http.Header{}, slow(t, fileHead+"RIFF")), false)
	over(send(t, srv, http.Header{}, whole()), true)

	srv = ends(serve(t, &speaker{before: func(ctx context.Context, _ int) error { return wait(ctx) }}))
	over(say(t, srv, http.Header{}), true)
}
