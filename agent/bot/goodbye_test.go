//go:build integration

package bot_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/room/conn"
	livesettings "touchline/agent/settings"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
	"touchline/internal/e2e/stage"
)

// lastWords is a recognizer whose final texts take a moment, and that hears nothing once it is closed.
type lastWords struct {
	inference.Recognizer

	heard  chan struct{} // an utterance has begun
	once   sync.Once
	closed atomic.Bool
}

func (*lastWords) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "slow", Partials: true}
}

func (w *lastWords) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return w, nil
}

func (w *lastWords) Hear(context.Context, []float32) (inference.Transcript, error) {
	w.once.Do(func() { close(w.heard) })
	return inference.Transcript{}, nil
}

func (w *lastWords) Finish(ctx context.Context, _ []float32) (inference.Transcript, error) {
	if err := stage.Wait(ctx, 200*time.Millisecond); err != nil {
		return inference.Transcript{}, err
	}
	if w.closed.Load() {
		return inference.Transcript{}, errors.New("the recognizer is closed")
	}
	return inference.Transcript{Text: "what a save", Final: true, Language: "en"}, nil
}

func (*lastWords) Close() error { return nil }

// TestLastWords: what somebody was saying when the bot ends gets its text, which reaches the outputs and the room.
func TestLastWords(t *testing.T) {
	t.Parallel()
	server, _ := sfutest.Start(t, sfu.Options{})
	s := &stage.Stage{Server: server, Keys: conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}}
	cfg := configs.Default()
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = s.URL(), stage.RoomName
	cfg.Agent.Hearing.Mode, cfg.Inference.MiniCPM.Runtime = livesettings.HearingCaptions, t.TempDir()
	words, out := &lastWords{heard: make(chan struct{})}, &notes{}
	r := bot.RecognitionBy(&bot.Recognizer{Recognizer: words, Run: func(ctx context.Context) error {
		<-ctx.Done()
		words.closed.Store(true)
		return nil
	}}, t.TempDir(), zerolog.Nop())
	b, err := bot.New(bot.Options{
		Settings: cfg.Bot(), Keys: s.Keys, LoopbackOnly: true, Recognition: r, Texts: []agent.TextOutput{out},
		Engine: &bot.Engine{ModelManager: engine.Of(stage.NewEngine(1, time.Second, time.Second), nil)}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	b.RunRecognition()

	arrived := make(chan string, 16)
	reader := lksdk.NewRoom(lksdk.NewRoomCallback())
	require.NoError(t, reader.RegisterTextStreamHandler("lk.transcription", func(tr *lksdk.TextStreamReader, _ string) {
		if text := tr.ReadAll(); tr.Info.Attributes["lk.transcription_final"] == "true" {
			arrived <- text
		}
	}))
	token, err := conn.ViewerToken(s.Keys, conn.Person{Room: stage.RoomName, Identity: "reader"})
	require.NoError(t, err)
	require.NoError(t, reader.JoinWithToken(s.URL(), token, lksdk.WithAutoSubscribe(false)))
	defer reader.Disconnect()

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	anna, leave, err := s.AddSpeaker(t.Context(), "anna", nil)
	require.NoError(t, err)
	defer leave()
	tone := make([]int16, 30*48000)
	for i := range tone {
		tone[i] = int16(12000 * math.Sin(2*math.Pi*220*float64(i)/48000))
	}
	packets, err := stage.Opus(tone)
	require.NoError(t, err)
	said := make(chan error, 1)
	sctx, quiet := context.WithCancel(t.Context())
	go func() { said <- anna.Say(sctx, packets) }()
	defer func() { quiet(); <-said }() //nolint:errcheck // only its end matters
	select {
	case <-words.heard:
	case <-time.After(patience):
		require.FailNow(t, "nobody is heard")
	}
	cancel()
	require.NoError(t, <-ended)
	require.True(t, words.closed.Load())
	require.NotEmpty(t, out.all())
	last := out.all()[len(out.all())-1]
	require.True(t, last.Final)
	require.Equal(t, "what a save", last.Text)
	select {
	case text := <-arrived:
		require.Equal(t, "what a save", text)
	case <-time.After(patience):
		require.FailNow(t, "the text did not reach the room")
	}
}

// TestGivenRecognizerServesThePage: the recognizer of the options is that of the room and of the page's transcription service.
func TestGivenRecognizerServesThePage(t *testing.T) {
	t.Parallel()
	h := &fixture{t: t}
	cfg := configs.Default()
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = "ws://127.0.0.1:1", stage.RoomName // the bot does not run
	r := bot.RecognitionBy(bot.AlwaysLoaded(&lastWords{heard: make(chan struct{})}), t.TempDir(), zerolog.Nop())
	b, err := bot.New(bot.Options{
		Settings: cfg.Bot(), Keys: conn.Keys{APIKey: "key", APISecret: "secret"}, Recognition: r,
		Engine: &bot.Engine{ModelManager: engine.Of(stage.NewEngine(1, time.Second, time.Second), nil)}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	h.run("recognizer", r.Run)
	status, body := get(t, h.page(b, cfg)+"/v1/models")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"slow"`)
	require.NoError(t, b.CloseEngines())
}
