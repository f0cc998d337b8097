package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/qwen3asr"
	"touchline/inference/vad"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/models"
)

const (
	// manyEars is how many connections speak at once, and earTime for how long each does.
	manyEars, earTime = 64, 8 * time.Second
	// earRounds is how often they do.
	earRounds = 3
	// overheadMost bounds what a partial text costs beside the model, ms.
	overheadMost = 2
	// message is the samples of a message, 20 ms, and partialEvery those between two partial texts.
	message, partialEvery = inference.RecognizerRate / 50, inference.RecognizerRate / 2
	// earTokens is the length of the answers of a bundle; those of random weights do not end.
	earTokens = 8
)

// measureEars measures what a partial text costs outside of the model: from the message with the sound that it waited for to the
// message with the text, less the time that the model worked meanwhile. The service is spoken to over HTTP on loopback.
func measureEars(ctx context.Context, bundle string, log zerolog.Logger) (rows []row, err error) {
	model := &partialWatch{Recognizer: counter{}, calls: map[string]partialCall{}}
	name := fmt.Sprintf("recognizer of %v", hearingTime)
	if bundle != "" {
		b, err := models.OpenBundle(bundle)
		if err != nil {
			return nil, err
		}
		e, err := qwen3asr.Open(ctx, b, qwen3asr.Options{Device: bundleDevice(b), MaxTokens: earTokens, StepTokens: earTokens})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		// The device works for all: a partial text waits while the device works for others, which is time of the model too.
		model.Recognizer, model.device = e, func() time.Duration { return e.Stats().Device }
		name = b.Manifest.Name
	}
	for _, n := range []int{1, manyEars} {
		took, err := model.overheads(ctx, n, log)
		if err != nil {
			return rows, err
		}
		what := fmt.Sprintf("%s, %d who speak: outside of the model for each of %d partial texts", name, n, len(took))
		rows = append(rows, atMost(what+", p95", ms(quantile.Of(took, .95)), overheadMost, "ms"),
			note("the same, median and p99", fmt.Sprintf("%.2f, %.2f ms", ms(quantile.Of(took, .5)), ms(quantile.Of(took, .99)))))
	}
	return rows, nil
}

// bundleDevice is where a bundle can run.
func bundleDevice(b *models.Bundle) string {
	for _, g := range b.Manifest.Graphs {
		if g.Device == models.DeviceCUDA {
			return string(models.DeviceCUDA)
		}
	}
	return string(models.DeviceCPU)
}

// partialWatch notes when a recognizer begins and ends its partial texts, which it names anew.
type partialWatch struct {
	inference.Recognizer
	device func() time.Duration // that worked so far; nil counts all time of a call

	mu    sync.Mutex
	calls map[string]partialCall
	count atomic.Int64
}

// partialCall is one partial text.
type partialCall struct {
	trigger int // the utterance's samples that it waited for, whole frames
	worked  time.Duration
}

// Listen implements inference.Recognizer.
func (w *partialWatch) Listen(ctx context.Context, h inference.Hearing) (inference.Utterance, error) {
	u, err := w.Recognizer.Listen(ctx, h)
	return &watched{Utterance: u, watch: w}, err
}

type watched struct {
	inference.Utterance
	watch *partialWatch
	heard int
}

// Hear implements inference.Utterance.
func (u *watched) Hear(ctx context.Context, sound []float32) (inference.Transcript, error) {
	w := u.watch
	began, before := time.Now(), time.Duration(0)
	if w.device != nil {
		before = w.device()
	}
	t, err := u.Utterance.Hear(ctx, sound)
	worked := time.Since(began)
	if w.device != nil {
		worked = w.device() - before
	}
	t.Text = fmt.Sprintf("partial %d", w.count.Add(1))
	w.mu.Lock()
	w.calls[t.Text] = partialCall{(u.heard + partialEvery + vad.FrameSamples - 1) / vad.FrameSamples * vad.FrameSamples, worked}
	w.mu.Unlock()
	u.heard += len(sound)
	return t, err
}

// overheads returns the overhead of each partial text of so many who speak.
func (w *partialWatch) overheads(ctx context.Context, n int, log zerolog.Logger) ([]time.Duration, error) {
	api := audioapi.NewTranscriber(audioapi.TranscriberOptions{
		Config: audioapi.DefaultConfig(), Recognizer: w, VAD: vad.Loud(), Log: log.Level(zerolog.WarnLevel),
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/transcribe", api.ServePlain)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	defer func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			log.Warn().Err(err).Msg("the service failed")
		}
	}()
	var mu sync.Mutex
	var all []time.Duration
	for range earRounds {
		g, ctx := errgroup.WithContext(ctx)
		for i := range n {
			g.Go(func() error {
				if err := stage.Wait(ctx, 500*time.Millisecond*time.Duration(i)/time.Duration(n)); err != nil {
					return err
				}
				took, err := w.speak(ctx, "ws://"+listener.Addr().String()+"/ws/transcribe?sample_rate=16000&use_server_vad=0")
				mu.Lock()
				defer mu.Unlock()
				all = append(all, took...)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no partial text came")
	}
	return all, nil
}

// speak sends one utterance in real time, and returns the overheads of its partial texts.
func (w *partialWatch) speak(ctx context.Context, url string) (took []time.Duration, err error) {
	conn, res, err := websocket.DefaultDialer.DialContext(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	defer conn.Close()
	const messages = int(earTime / (20 * time.Millisecond))
	var sent [messages]atomic.Int64 // since begin, ns
	begin := time.Now()
	read := make(chan error, 1)
	go func() {
		for {
			var m struct {
				Text    string `json:"text"`
				Partial bool   `json:"is_partial"`
				Final   bool   `json:"is_final"`
			}
			if err := conn.ReadJSON(&m); err != nil || m.Final {
				read <- err
				return
			}
			at := time.Since(begin)
			w.mu.Lock()
			call, ok := w.calls[m.Text]
			w.mu.Unlock()
			if number := (call.trigger+message-1)/message - 1; m.Partial && ok && number < messages {
				took = append(took, at-time.Duration(sent[number].Load())-call.worked)
			}
		}
	}()
	sound := make([]byte, 2*message)
	for i := range messages {
		for k := range message {
			binary.LittleEndian.PutUint16(sound[2*k:], uint16(int16(8000*((k/40)%2*2-1)))) //nolint:gosec // a tone
		}
		sent[i].Store(int64(time.Since(begin)))
		if err := conn.WriteMessage(websocket.BinaryMessage, sound); err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
		if err := stage.Wait(ctx, time.Until(begin.Add(time.Duration(i+1)*20*time.Millisecond))); err != nil {
			return nil, err
		}
	}
	if err := conn.WriteJSON(map[string]string{"action": "flush"}); err != nil {
		return nil, err
	}
	return took, <-read
}
