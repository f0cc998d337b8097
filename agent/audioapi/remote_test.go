package audioapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/live/livetest"
	"touchline/inference/remote"
)

// caller is a recognizer whose live speech goes through /v1/realtime of a service.
func caller(t *testing.T, address string) *remote.Recognizer {
	t.Helper()
	r, err := remote.NewRecognizer(inference.RecognizerConfig{URL: strings.Replace(address, "http", "ws", 1) + "/v1"}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// line is a connection to a server that can be cut.
type line struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func newLine(t *testing.T, srv *httptest.Server) *line {
	t.Helper()
	in, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{Listener: in}
	l.all.Go(func() {
		for {
			from, err := in.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", srv.Listener.Addr().String())
			if err != nil {
				_ = from.Close()
				return
			}
			l.mu.Lock()
			l.conns = append(l.conns, from, to)
			l.mu.Unlock()
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				l.all.Go(func() {
					_, _ = io.Copy(pair[1], pair[0])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = in.Close()
		l.cut()
		l.all.Wait()
	})
	return l
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// counter hears a word in each half second.
type counter struct{ *livetest.Recognizer }

func (c counter) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u, err := c.Recognizer.Listen(ctx, h)
	return counted{u}, err
}

type counted struct{ inference.Utterance }

func words(t inference.Transcript, err error) (inference.Transcript, error) {
	t.Text = strings.TrimSpace(strings.Repeat("tick ", int(t.End/half)))
	return t, err
}

func (c counted) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return words(c.Utterance.Hear(ctx, sound))
}

func (c counted) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	return words(c.Utterance.Finish(ctx, sound))
}

// TestRemoteLiveSpeech: the recognizer of a transcription server hears live speech by this service's sessions.
func TestRemoteLiveSpeech(t *testing.T) {
	server := &livetest.Recognizer{}
	srv, h := transcribe(t, counter{server})
	l := newLine(t, srv)
	r := caller(t, "http://"+l.Addr().String())
	u, err := r.Listen(t.Context(), inference.Hearing{Language: "nl", Context: "Ajax"})
	require.NoError(t, err)
	defer u.Close()
	sound := make([]float32, 8010) // so that half a second of it arrives as one
	for text := ""; !strings.HasPrefix(text, "tick"); {
		part, err := u.Hear(t.Context(), nil)
		require.NoError(t, err)
		if text = part.Text; part.End < 10*time.Second {
			_, err = u.Hear(t.Context(), sound)
			require.NoError(t, err)
		}
		runtime.Gosched()
	}
	l.cut()
	last, err := u.Finish(t.Context(), sound)
	require.NoError(t, err, "all of it is heard again")
	require.Equal(t, int(last.End/half), strings.Count(last.Text, "tick"))
	require.Equal(t, "nl", last.Language)
	require.True(t, last.Final)
	calls := server.Calls()
	call := calls[len(calls)-1]
	require.Equal(t, livetest.Call{
		Method: "finish", Samples: call.Samples, Hearing: inference.Hearing{Language: "nl", Context: "Ajax", Live: true},
	}, call)
	require.InDelta(t, last.End.Seconds()*inference.RecognizerRate, call.Samples, 64)
	require.NoError(t, u.Close())
	require.Eventually(t, func() bool { return h.Health().Sessions == 0 && server.Open() == 0 }, 2*time.Minute, time.Millisecond)
}

// TestRemoteLiveFailures: an error of the service is the error of the utterance, and a slow one keeps nobody.
func TestRemoteLiveFailures(t *testing.T) {
	var slow atomic.Bool
	began, release := make(chan struct{}, 8), make(chan struct{})
	srv, h := transcribe(t, &livetest.Recognizer{NoPartials: true, Before: func(ctx context.Context, _ livetest.Call) error {
		if slow.Load() {
			began <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return errors.New("the graph failed")
	}})
	r := caller(t, srv.URL)
	u, err := r.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	_, err = u.Finish(t.Context(), livetest.Say(half, 600))
	require.ErrorIs(t, err, remote.ErrRefused)
	require.ErrorContains(t, err, "the graph failed")
	require.NoError(t, u.Close())
	u, err = r.Listen(t.Context(), inference.Hearing{Language: "xx"})
	require.NoError(t, err)
	_, err = u.Finish(t.Context(), livetest.Say(half, 600))
	require.ErrorContains(t, err, "expected a language of the model")
	require.NoError(t, u.Close())

	slow.Store(true)
	u, err = r.Listen(t.Context(), inference.Hearing{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := u.Finish(t.Context(), livetest.Say(half, 600))
		ended <- err
	}()
	<-began
	require.NoError(t, u.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Positive(t, h.Health().Sessions, "its final may still come")
	slow.Store(false)
	close(release)
	require.Eventually(t, func() bool { return h.Health().Sessions == 0 }, 2*time.Minute, time.Millisecond)
}
