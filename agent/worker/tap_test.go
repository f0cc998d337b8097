//go:build integration

package worker_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// tap is a proxy between worker and server. It records the messages of the worker, and can
// break the connection or inject messages of the server. It forwards the API unchanged.
type tap struct {
	url string

	mu    sync.Mutex
	said  []*livekit.WorkerMessage
	lines map[*websocket.Conn]*sync.Mutex // to the worker
}

func newTap(t *testing.T, server string) *tap {
	t.Helper()
	tp := &tap{lines: map[*websocket.Conn]*sync.Mutex{}}
	base := "http" + strings.TrimPrefix(server, "ws")
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	api := httputil.NewSingleHostReverseProxy(u)
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("/agent", func(rw http.ResponseWriter, r *http.Request) {
		out, resp, err := websocket.DefaultDialer.DialContext(r.Context(), server+"/agent?"+r.URL.RawQuery,
			http.Header{"Authorization": r.Header["Authorization"]})
		if err != nil {
			code := http.StatusBadGateway
			if resp != nil {
				code = resp.StatusCode
			}
			rw.WriteHeader(code)
			return
		}
		defer out.Close()
		var up websocket.Upgrader
		in, err := up.Upgrade(rw, r, nil)
		if err != nil {
			return
		}
		defer in.Close()
		writing := &sync.Mutex{}
		tp.mu.Lock()
		tp.lines[in] = writing
		tp.mu.Unlock()
		defer func() {
			tp.mu.Lock()
			delete(tp.lines, in)
			tp.mu.Unlock()
		}()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			defer in.Close()
			for {
				kind, data, err := out.ReadMessage()
				if err != nil {
					return
				}
				writing.Lock()
				err = in.WriteMessage(kind, data)
				writing.Unlock()
				if err != nil {
					return
				}
			}
		})
		defer out.Close()
		for {
			kind, data, err := in.ReadMessage()
			if err != nil {
				return
			}
			var m livekit.WorkerMessage
			if proto.Unmarshal(data, &m) == nil {
				tp.mu.Lock()
				tp.said = append(tp.said, &m)
				tp.mu.Unlock()
			}
			if out.WriteMessage(kind, data) != nil {
				return
			}
		}
	})
	s := httptest.NewServer(mux)
	tp.url = "ws" + strings.TrimPrefix(s.URL, "http")
	t.Cleanup(func() {
		tp.cut()
		s.Close()
	})
	return tp
}

// cut breaks the line.
func (tp *tap) cut() {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for c := range tp.lines {
		c.Close()
	}
}

// say injects a message to the worker.
func (tp *tap) say(kind int, data []byte) error {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for c, writing := range tp.lines {
		writing.Lock()
		err := c.WriteMessage(kind, data)
		writing.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// updates returns the job statuses sent so far.
func (tp *tap) updates() []*livekit.UpdateJobStatus {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	var out []*livekit.UpdateJobStatus
	for _, m := range tp.said {
		if u := m.GetUpdateJob(); u != nil {
			out = append(out, u)
		}
	}
	return out
}

func (tp *tap) failures() []string {
	var out []string
	for _, u := range tp.updates() {
		if u.GetStatus() == livekit.JobStatus_JS_FAILED {
			out = append(out, u.GetError())
		}
	}
	return out
}

// cameraIn publishes a video track with a packet now and then.
func cameraIn(h *liveServer, room, identity string) {
	h.t.Helper()
	r := h.viewer(room, identity)
	track, err := lksdk.NewLocalTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8})
	require.NoError(h.t, err)
	_, err = r.LocalParticipant.PublishTrack(track, &lksdk.TrackPublicationOptions{Name: "cam", Source: livekit.TrackSource_CAMERA})
	require.NoError(h.t, err)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = track.WriteSample(media.Sample{Data: make([]byte, 200), Duration: 50 * time.Millisecond}, nil)
			}
		}
	}()
	h.t.Cleanup(func() { close(stop); <-ended })
}
