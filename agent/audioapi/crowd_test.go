//go:build integration

package audioapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/inference/qwen3asr"
	"touchline/inference/vad"
	"touchline/internal/wav"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// sessions is the number of TestManySessions; `make soak` sets TOUCHLINE_SESSIONS and TOUCHLINE_SESSIONS_TIME, which bounds it.
const sessions = 100

// clients are those at once, more than there are slots of the model.
const clients = 8

const (
	qwen       = "../../models/testdata/qwen3-asr/"
	ortRuntime = "../../bin/runtime" // of `make runtime`
)

// converted makes a bundle of a small checkpoint and returns its folder.
func converted(t *testing.T, name string) string {
	t.Helper()
	src, err := checkpoint.Open(qwen + name)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "bundle")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	require.NoError(t, src.Close())
	return dir
}

// tiny opens the small checkpoint of speech recognition behind a keeper, and serves it.
func tiny(t *testing.T) (*httptest.Server, *audioapi.Transcriber, *engine.Recognizer) {
	t.Helper()
	keeper := small(t)
	srv, h := served(t, keeper, keeper, vad.Open(ortRuntime))
	return srv, h, keeper
}

// small opens the small checkpoint behind a keeper.
func small(t *testing.T, change ...func(*qwen3asr.Options)) *engine.Recognizer {
	t.Helper()
	b, err := models.OpenBundle(converted(t, "checkpoint"))
	require.NoError(t, err)
	o := qwen3asr.Options{
		Runtime: ortRuntime, Device: "cpu", Threads: 1, Slots: 4, Part: time.Minute, ContextTokens: 64, MaxTokens: 40,
	}
	for _, f := range change {
		f(&o)
	}
	can, err := qwen3asr.Describe(b, o)
	require.NoError(t, err)
	keeper, err := engine.NewRecognizer(func(ctx context.Context, _ engine.Progress) (inference.Recognizer, error) {
		return qwen3asr.Open(ctx, b, o)
	}, can, engine.Options{Preload: true})
	require.NoError(t, err)
	return keeper
}

// served serves a recognizer that a keeper has, once it is loaded.
func served(t *testing.T, keeper *engine.Recognizer, r inference.Recognizer, gate *vad.Model) (*httptest.Server, *audioapi.Transcriber) {
	t.Helper()
	srv, h := transcribe(t, r, func(o *audioapi.TranscriberOptions) {
		o.Run, o.VAD = keeper.Run, gate
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		srv.Close()
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, gate.Close())
	})
	require.Eventually(t, func() bool { return keeper.Status().Phase == inference.PhaseReady }, 5*time.Minute, time.Millisecond)
	return srv, h
}

// recorded is a recording of the recognizer's tests.
func recorded(t *testing.T, name string) []float32 {
	t.Helper()
	f, err := os.Open(qwen + "audio/" + name + ".wav.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	sound, _, err := wav.Parse(b)
	require.NoError(t, err)
	return sound
}

// audience are clients that come and go, and what came of them.
type audience struct {
	t      *testing.T
	srv    *httptest.Server
	h      *audioapi.Transcriber
	keeper *engine.Recognizer
	sound  []float32
	dialer websocket.Dialer
	until  time.Time // no session begins later

	left                                 atomic.Int64
	sockets, cutSockets, files, cutFiles atomic.Int64
}

// held is what the process holds at a moment without clients.
type held struct {
	heap, resident uint64
	goroutines     int
}

// rest waits until nothing is held for a client, and returns what is held.
func (a *audience) rest() held {
	a.t.Helper()
	a.srv.Client().CloseIdleConnections()
	engine, _ := a.keeper.Loaded().(*qwen3asr.Engine)
	require.NotNil(a.t, engine)
	require.Eventually(a.t, func() bool {
		h, s, k := a.h.Health(), engine.Stats(), a.keeper.Stats()
		return h.Sessions == 0 && h.Requests == 0 && s.Busy == 0 && s.Waiting == 0 && k.Sessions == 0 && k.Running == 0
	}, 5*time.Minute, 10*time.Millisecond, "%+v %+v %+v", a.h.Health(), engine.Stats(), a.keeper.Stats())
	debug.FreeOSMemory()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(a.t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(a.t, err)
	return held{m.HeapAlloc, pages * uint64(os.Getpagesize()), runtime.NumGoroutine()}
}

// run lets n clients come, a few at a time, and returns how many came.
func (a *audience) run(seed uint64, n int) int {
	a.left.Store(int64(n))
	var came atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for a.left.Add(-1) >= 0 && !a.t.Failed() && time.Now().Before(a.until) {
				came.Add(1)
				if err := a.one(r); err != nil {
					a.t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	return int(came.Load())
}

// one is a client: half of them live, half with a recording, half of each cut off in the middle.
func (a *audience) one(r *rand.Rand) error {
	// From half a second on, so that there is something to hear.
	length := inference.RecognizerRate/2 + r.IntN(len(a.sound)-inference.RecognizerRate/2)
	sound, cut := a.sound[:length], r.IntN(2) == 0
	switch r.IntN(4) {
	case 0:
		return a.plain(r, sound, cut)
	case 1:
		return a.realtime(r, sound, cut)
	default:
		return a.file(r, sound, cut)
	}
}

// hangUp ends a connection without a word.
func hangUp(c *websocket.Conn) error {
	if tcp, ok := c.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it closes with a reset
	}
	return c.Close()
}

func (a *audience) dial(path string) (*websocket.Conn, error) {
	c, res, err := a.dialer.DialContext(a.t.Context(), "ws"+strings.TrimPrefix(a.srv.URL, "http")+path, nil)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close() // has none
	return c, c.SetReadDeadline(time.Now().Add(time.Minute))
}

// plain is a client of /ws/transcribe.
func (a *audience) plain(r *rand.Rand, sound []float32, cut bool) error {
	c, err := a.dial("/ws/transcribe?use_server_vad=" + strconv.Itoa(r.IntN(2)))
	if err != nil {
		return err
	}
	defer c.Close()
	for piece := range slices.Chunk(bytes16(sound), 3200) {
		if err := c.WriteMessage(websocket.BinaryMessage, piece); err != nil {
			return err
		}
	}
	if cut {
		a.cutSockets.Add(1)
		return hangUp(c)
	}
	a.sockets.Add(1)
	if err := c.WriteJSON(map[string]string{"action": "flush"}); err != nil {
		return err
	}
	for {
		var m struct {
			Final bool   `json:"is_final"`
			Code  string `json:"code"`
		}
		if err := c.ReadJSON(&m); err != nil || m.Code != "" {
			return errors.Join(err, errors.New("plain: "+m.Code))
		}
		if m.Final {
			return nil
		}
	}
}

// realtime is a client of /v1/realtime.
func (a *audience) realtime(r *rand.Rand, sound []float32, cut bool) error {
	c, err := a.dial("/v1/realtime?intent=transcription")
	if err != nil {
		return err
	}
	defer c.Close()
	input := map[string]any{"format": map[string]any{"type": "audio/pcm", "rate": 16000}, "turn_detection": nil}
	err = c.WriteJSON(map[string]any{"type": "session.update", "session": map[string]any{"audio": map[string]any{"input": input}}})
	for piece := range slices.Chunk(bytes16(sound), 3200+2*r.IntN(400)) {
		if err == nil {
			err = c.WriteJSON(map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(piece)})
		}
	}
	if err == nil && (!cut || r.IntN(2) == 0) {
		err = c.WriteJSON(map[string]any{"type": "input_audio_buffer.commit"})
	}
	if err != nil {
		return err
	}
	if cut {
		a.cutSockets.Add(1)
		return hangUp(c)
	}
	a.sockets.Add(1)
	for {
		var m struct {
			Type string `json:"type"`
		}
		if err := c.ReadJSON(&m); err != nil {
			return err
		}
		switch m.Type {
		case itemTranscription + "completed":
			return nil
		case "error", itemTranscription + "failed":
			return errors.New("realtime: " + m.Type)
		}
	}
}

// file is a client with a recording, cut off while it uploads or while it waits.
func (a *audience) file(r *rand.Rand, sound []float32, cut bool) error {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	formats := []string{"json", "text", "srt", "vtt", "verbose_json"}
	err := errors.Join(w.WriteField("model", "whisper-1"), w.WriteField("response_format", formats[r.IntN(5)]))
	part, perr := w.CreateFormFile("file", "sound.wav")
	if err = errors.Join(err, perr); err != nil {
		return err
	}
	_, err = part.Write(wav.Encode(sound, inference.RecognizerRate))
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	var body io.Reader = &b
	if cut && r.IntN(2) == 0 {
		body = io.MultiReader(io.LimitReader(&b, int64(r.IntN(b.Len()))), broken{})
	} else if cut {
		defer time.AfterFunc(time.Duration(r.IntN(60))*time.Millisecond, cancel).Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.srv.URL+transcriptions, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", w.FormDataContentType())
	res, err := a.srv.Client().Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close() // it was read
	}
	if cut {
		a.cutFiles.Add(1)
		return nil
	}
	a.files.Add(1)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("file: status %d", res.StatusCode)
	}
	return err
}

// broken is a body that ends with an error.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the client broke off") }

// TestManySessions: clients of the service come and go, more at once than there are slots, and half of them are cut off. The others
// get their texts, and nothing is left behind.
func TestManySessions(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n, most := sessions, time.Hour
	if v, ok := os.LookupEnv("TOUCHLINE_SESSIONS"); ok {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	if v, ok := os.LookupEnv("TOUCHLINE_SESSIONS_TIME"); ok {
		var err error
		most, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	t.Run("crowd", func(t *testing.T) {
		srv, h, keeper := tiny(t)
		began := time.Now()
		a := &audience{t: t, srv: srv, h: h, keeper: keeper, sound: recorded(t, "speech2"), until: began.Add(most)}
		first := a.run(1, n/4)
		before := a.rest()
		second := a.run(2, n-n/4)
		after := a.rest()
		t.Logf("%d sessions in %v: %d and %d sockets, %d and %d recordings, the latter cut off; heap %.1f, then %.1f MB, resident %.0f, "+
			"then %.0f MB, %d, then %d goroutines", first+second, time.Since(began).Round(time.Millisecond),
			a.sockets.Load(), a.cutSockets.Load(), a.files.Load(), a.cutFiles.Load(), float64(before.heap)/1e6, float64(after.heap)/1e6,
			float64(before.resident)/1e6, float64(after.resident)/1e6, before.goroutines, after.goroutines)
		require.Less(t, after.heap, before.heap+4e6, "bytes of the heap")
		require.Less(t, after.resident, before.resident+64e6, "bytes of the process")
		require.LessOrEqual(t, after.goroutines, before.goroutines+clients, "idle connections at most")
	})
}

// TestRemoteHearsTheModel: live speech of a recognizer of program remote, by a service with the small checkpoint.
func TestRemoteHearsTheModel(t *testing.T) {
	srv, h, keeper := tiny(t)
	r, sound := caller(t, srv.URL), recorded(t, "speech13")
	u, err := r.Listen(t.Context(), inference.Hearing{Language: "en"})
	require.NoError(t, err)
	for piece := range slices.Chunk(sound, inference.RecognizerRate/2) {
		part, err := u.Hear(t.Context(), piece)
		require.NoError(t, err)
		require.False(t, part.Final)
	}
	last, err := u.Finish(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, last.Final)
	require.NotEmpty(t, last.Text)
	require.Equal(t, "en", last.Language)
	require.Greater(t, last.Audio, 100)
	require.Positive(t, last.Tokens)
	require.NoError(t, u.Close())
	require.Eventually(t, func() bool { return h.Health().Sessions == 0 && keeper.Stats().Sessions == 0 }, 2*time.Minute, time.Millisecond)
}
