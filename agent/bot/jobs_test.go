//go:build integration

package bot_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/jobs"
	"touchline/agent/look"
	"touchline/agent/worker"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/redact"
)

// ear keeps the captions of each cycle, and signals the middle of a comment.
type ear struct {
	stage.Reader

	mu      sync.Mutex
	heard   map[uint64]string
	steps   map[uint64]int
	middle  chan uint64 // the cycle
	already bool
}

func (e *ear) Caption(c agent.Caption) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[c.Cycle] += c.Delta
	if c.Delta == "" || !c.Spoken {
		return
	}
	if e.steps[c.Cycle]++; e.steps[c.Cycle] == 3 && !e.already {
		e.already = true
		e.middle <- c.Cycle
	}
}

// TestCalledOffInTheMiddleOfASentence: the server ends a job while its bot speaks. The bot ends at a word, records
// the reason, reports success while it is still in the room, and is out within the server's 3 s.
func TestCalledOffInTheMiddleOfASentence(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.camera("match", "")
	cfg := configs.Default()
	cfg.Inference.Engine, cfg.Agent.Repeats = "scene", "allow"
	cfg.Pacing.InitialDelay = time.Second
	cfg.Agent.ChangeThreshold = 0
	cfg.Agent.LiveKit.APIKey, cfg.Agent.LiveKit.APISecret = h.keys.APIKey, redact.Secret(h.keys.APISecret)
	e := &ear{heard: map[uint64]string{}, steps: map[uint64]int{}, middle: make(chan uint64, 1)}
	manager, err := jobs.New(jobs.Options{
		Settings: cfg.Bot(), Configure: cfg.Job, LoopbackOnly: true, Log: zerolog.Nop(), Texts: func(worker.Job) []agent.TextOutput { return []agent.TextOutput{e} },
	})
	require.NoError(t, err)
	h.run("engines", manager.Keep)
	api := lksdk.NewRoomServiceClient(h.url, h.keys.APIKey, h.keys.APISecret)
	inRoom := func() bool {
		_, err := api.GetParticipant(context.Background(), &livekit.RoomParticipantIdentity{Room: "match", Identity: "bot"})
		return err == nil
	}
	left := &leavings{}
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	over := make(chan error, 1)
	go func() {
		over <- manager.Run(ctx, worker.Job{
			ID: "job", Room: "match", Identity: "bot", Name: "Bot", URL: h.url,
			Joined: func() {}, Leaving: func(err error) { left.add(err, inRoom()) },
		})
	}()
	var cycle uint64
	select {
	case cycle = <-e.middle:
	case <-time.After(2 * patience):
		require.FailNow(t, "nothing was said")
	}
	began := time.Now()
	end(worker.ErrTerminated)
	select {
	case err = <-over:
	case <-time.After(patience):
		require.FailNow(t, "it does not leave")
	}
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !inRoom() }, patience, 20*time.Millisecond)
	require.Equal(t, []error{nil}, left.errs, "success")
	require.Equal(t, []bool{true}, left.in, "was reported from inside the room")

	records := e.Records()
	last := records[len(records)-1]
	for _, r := range records {
		if r.Cycle == cycle {
			last = r
		}
	}
	require.Equal(t, cycle, last.Cycle)
	require.Equal(t, look.OutcomeCut, last.Outcome)
	require.NotEmpty(t, last.Reason)
	e.mu.Lock()
	defer e.mu.Unlock()
	t.Logf("heard %q, ended after %v: %s", last.Text, time.Since(began).Round(time.Millisecond), last.Reason)
	require.Equal(t, strings.TrimSpace(e.heard[cycle]), last.Text, "the record has the heard part, in whole words")
	require.NotContains(t, last.Text, ".", "that is not the whole sentence")
}
