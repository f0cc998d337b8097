package contract_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/agenttest"
	"touchline/agent/bot"
	"touchline/agent/room/conn"
	"touchline/configs"
	"touchline/inference"
	"touchline/inference/engine"
)

// patience bounds what should take milliseconds; the machine may be busy.
const patience = 2 * time.Minute

// keys of a LiveKit server.
func keys() conn.Keys {
	return conn.Keys{APIKey: "APIcontract", APISecret: "a secret of at least 32 characters"}
}

// pageToken opens the page.
const pageToken = "the-token-of-the-page"

// scripted is an engine that can do everything and answers at once.
func scripted() *bot.Engine {
	m := &agenttest.Engine{
		Answer: func(int, inference.Prompt) agenttest.Answer { return agenttest.Answer{Text: "Blue plays it back."} },
		Can: &inference.Capabilities{
			Instructions: true, Structured: true, Slices: true, Sampling: &inference.Sampling{},
			MaxFrames: func(_, _, slices int) int { return 48 / max(1, slices) },
		},
	}
	return &bot.Engine{ModelManager: engine.Of(m, nil)}
}

// botSettings are the defaults with everything on that changes the API, and without programs of this machine.
func botSettings() configs.Config {
	cfg := configs.Default()
	cfg.Agent.LiveKit.Room = "match"
	cfg.Agent.Console.Listen = "127.0.0.1:0"
	cfg.Agent.Console.Token = pageToken
	cfg.Inference.Recognizer.Program = inference.RecognizerRemote
	cfg.Inference.Recognizer.URL = "http://127.0.0.1:9/v1"
	cfg.Inference.Recognizer.Model = "ears"
	cfg.Inference.Sight.Bundle = "/nowhere" // not that of this machine
	return cfg
}

// withoutPrograms leaves one program, for the codecs, which is not started: voices of this machine would be in the answers.
func withoutPrograms(t *testing.T) {
	t.Helper()
	programs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(programs, "touchline-codec"), []byte("#!/bin/false\n"), 0o700))
	t.Setenv("PATH", programs)
}

// page is the page of a bot in no room.
type page struct {
	t   *testing.T
	url string
	bot *bot.Bot
}

// open serves the page of a bot until the test ends. The bot does not run.
func open(t *testing.T, cfg configs.Config, out *bot.Outputs) *page {
	t.Helper()
	withoutPrograms(t)
	b, err := bot.New(bot.Options{Settings: cfg.Bot(), Keys: keys(), Engine: scripted(), Outputs: out, LoopbackOnly: true, Log: zerolog.Nop()})
	require.NoError(t, err)
	_, err = b.NewSources(bot.SourcesOptions{})
	require.NoError(t, err)
	address := make(chan string, 1)
	s, err := b.Console(cfg.Agent.Console.Config, func(url string) { address <- url })
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		wg.Wait()
	})
	select {
	case url := <-address:
		return &page{t: t, url: strings.TrimSuffix(url, "/"), bot: b}
	case <-time.After(patience):
		require.FailNow(t, "the page does not listen")
		return nil
	}
}

// ask sends a request with a token and returns status and body, "a stream" for one without an end.
func (p *page) ask(method, path, body, token string) (status int, answer string, err error) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Request-ID", "contract")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	streams := strings.HasPrefix(res.Header.Get("Content-Type"), "multipart/") || strings.HasSuffix(path, "stream") || strings.HasSuffix(path, "events")
	if streams && res.StatusCode == http.StatusOK {
		return res.StatusCode, "a stream", nil
	}
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(bytes.TrimSpace(text)), err
}

// do sends a request as the page does.
func (p *page) do(method, path, body string) (status int, answer string) {
	p.t.Helper()
	status, answer, err := p.ask(method, path, body, pageToken)
	require.NoError(p.t, err)
	return status, answer
}
