//go:build integration && !nodemo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	livekitwebhook "github.com/livekit/protocol/webhook"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/camera"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/agent/worker"
)

// agentHouse is a LiveKit server in this process, with a camera in one room.
type agentHouse struct {
	t     *testing.T
	keys  conn.Keys
	url   string
	rooms *lksdk.RoomServiceClient
	calls *lksdk.AgentDispatchClient
	env   []string // further settings of the programs
}

// agentRoom is the room with the camera, agentWord the agent name in dispatches.
const (
	agentRoom = "match"
	agentWord = "commentator"
)

func newAgentHouse(t *testing.T) *agentHouse {
	t.Helper()
	server, _ := sfutest.Start(t, sfu.Options{})
	h := &agentHouse{t: t, url: server.URL(), keys: conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}}
	h.rooms = lksdk.NewRoomServiceClient(h.url, h.keys.APIKey, h.keys.APISecret)
	h.calls = lksdk.NewAgentDispatchServiceClient(h.url, h.keys.APIKey, h.keys.APISecret)
	camera, err := camera.NewDemo(camera.DemoOptions{
		URL: h.url, Keys: h.keys, Room: agentRoom, Identity: "cam", Width: 640, Height: 360, FPS: 15, Seed: 3, Counter: true,
		LoopbackOnly: true, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	filmed := make(chan error, 1)
	go func() { filmed <- camera.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-filmed)
	})
	return h
}

// agentProgram is `touchline agent` as a process.
type agentProgram struct {
	*program
	http string
}

// start runs an agent and waits until it is registered.
func (h *agentHouse) start(args ...string) *agentProgram {
	h.t.Helper()
	p := h.launch(args...)
	require.Eventually(h.t, func() bool { _, about := p.get("/worker"); return strings.Contains(about, `"registered":true`) },
		startWait, 50*time.Millisecond)
	return p
}

// launch runs an agent.
func (h *agentHouse) launch(args ...string) *agentProgram {
	h.t.Helper()
	address := freeAddress(h.t)
	env := []string{"LIVEKIT_URL=" + h.url, "LIVEKIT_API_KEY=" + h.keys.APIKey, "LIVEKIT_API_SECRET=" + h.keys.APISecret}
	env = append(env, h.env...)
	return &agentProgram{http: address, program: launch(h.t, env, append([]string{
		"--log-json", "agent", "--agent-name", agentWord, "--http", address, "--full-cpu", "0", "--slots", "3",
	}, args...)...)}
}

func (p *agentProgram) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func (p *agentProgram) get(path string) (int, string) {
	res, err := http.Get("http://" + p.http + path)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(body)
}

// outcomes counts the outcomes of cycles in the log.
func (p *agentProgram) outcomes() map[string]int {
	out := map[string]int{}
	for _, line := range p.lines() {
		var entry struct{ Message, Outcome string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "cycle" {
			out[entry.Outcome]++
		}
	}
	return out
}

// agentIn returns the agent in a room, or nil.
func (h *agentHouse) agentIn(name string) *livekit.ParticipantInfo {
	p, err := h.rooms.GetParticipant(h.t.Context(), &livekit.RoomParticipantIdentity{
		Room: name, Identity: worker.Identity(agentWord, ""),
	})
	if err != nil {
		return nil
	}
	return p
}

func (h *agentHouse) ask(name, metadata string) {
	h.t.Helper()
	_, err := h.calls.CreateDispatch(h.t.Context(), &livekit.CreateAgentDispatchRequest{
		AgentName: agentWord, Room: name, Metadata: metadata,
	})
	require.NoError(h.t, err)
}

// speaks waits for the start of a comment after a fully spoken one.
func (h *agentHouse) speaks(p *agentProgram) {
	h.t.Helper()
	paused := false
	require.Eventually(h.t, func() bool {
		speaking := h.agentIn(agentRoom).GetAttributes()["lk.agent.state"] == agent.StateSpeaking
		if !speaking && p.outcomes()[look.OutcomeSpoken] > 0 {
			paused = true
		}
		return paused && speaking
	}, startWait, 20*time.Millisecond)
}

// drains waits until the first signal has arrived.
func (p *agentProgram) drains(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(p.lines(), func(l string) bool { return strings.Contains(l, `"draining"`) })
	}, startWait, 5*time.Millisecond)
}

func TestAgentServesARoomAndDrains(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	p := h.start("--slots", "5")
	asked := time.Now()
	h.ask(agentRoom, `{"profile": "sports", "instruction": "Follow the ball."}`)
	require.Eventually(t, func() bool { return len(h.agentIn(agentRoom).GetTracks()) > 0 }, startWait, 10*time.Millisecond)
	t.Logf("from dispatch to the first track: %v", time.Since(asked).Round(time.Millisecond))
	require.Equal(t, agentWord, h.agentIn(agentRoom).GetAttributes()["lk.agent_name"])
	// A second room on the same engine, without a camera, and one with invalid metadata.
	h.ask("empty", `{"speech": false}`)
	h.ask("wrong", `{"profile": "opera"}`)
	h.ask("odd", `{"speech": "yes"}`)
	require.Eventually(t, func() bool { return h.agentIn("empty") != nil }, startWait, 20*time.Millisecond)
	for name, reason := range map[string]string{"wrong": "agent.profile: must be one of", "odd": "speech: expected true or false, got string"} {
		require.Eventually(t, func() bool { return strings.Contains(h.agentIn(name).GetMetadata(), reason) }, startWait, 20*time.Millisecond)
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(p.lines(), func(l string) bool {
			return strings.Contains(l, "job failed") && strings.Contains(l, "agent.profile: must be one of") && strings.Contains(l, "opera")
		})
	}, startWait, 20*time.Millisecond)
	h.speaks(p)

	code, body := p.get("/")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "OK", body)
	_, metrics := p.get("/metrics")
	require.Contains(t, metrics, `lk_agents_active_job_count{nodename="`)
	require.Contains(t, metrics, "process_resident_memory_bytes ")
	_, stderr, exit := touchline(t, "health", "http://"+p.http+"/")
	require.Zero(t, exit, stderr)

	began, cut := time.Now(), p.outcomes()[look.OutcomeCut] // by a busy server
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(startWait):
		require.FailNow(t, "the drain does not end")
	}
	t.Logf("drained in %v; cycles: %v", time.Since(began).Round(time.Millisecond), p.outcomes())
	require.Zero(t, p.exitCode())
	require.Equal(t, cut, p.outcomes()[look.OutcomeCut], "no sentence is cut")
	require.Eventually(t, func() bool { return h.agentIn(agentRoom) == nil }, startWait, 20*time.Millisecond)
	for _, line := range p.lines() {
		require.NotContains(t, line, h.keys.APISecret)
		require.NotContains(t, line, "eyJ", "no token")
	}
}

// TestAgentHandsItsRoomOver: the next job of a room, in another process, has the instruction and settings that people set in it.
func TestAgentHandsItsRoomOver(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	first := h.start("--console", "127.0.0.1:0")
	h.ask(agentRoom, `{"speech": false}`)
	desk := first.console(t)
	desk.eventually(agentRoom, func(map[string]any) bool { return true })
	code, body := desk.ask(http.MethodPost, "/api/rooms/"+agentRoom+"/instruction", `{"instruction": "Follow the referee."}`)
	require.Equal(t, http.StatusOK, code, body)
	second := h.start("--console", "127.0.0.1:0")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	second.console(t).eventually(agentRoom, func(state map[string]any) bool { return state["instruction"] == "Follow the referee." })

	// A killed worker hands over as well: the others have asked for its state.
	third := h.start("--console", "127.0.0.1:0")
	<-time.After(10 * time.Second) // rounds of its watch
	require.NoError(t, second.cmd.Process.Kill())
	third.console(t).eventually(agentRoom, func(state map[string]any) bool { return state["instruction"] == "Follow the referee." })
}

func TestAgentLeavesAtOnceAtTheSecondSignal(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	var told []map[string]any
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event map[string]any
		body, err := livekitwebhook.Receive(r, auth.NewSimpleKeyProvider(h.keys.APIKey, h.keys.APISecret))
		if err = errors.Join(err, json.Unmarshal(body, &event)); err != nil {
			t.Error(err)
		}
		told = append(told, event) // one room: one after the other
	}))
	defer receiver.Close()
	store := filepath.Join(t.TempDir(), "history.db")
	h.env = []string{
		"TOUCHLINE_AGENT_HISTORY_STORE=sqlite", "TOUCHLINE_AGENT_HISTORY_PATH=" + store,
		"TOUCHLINE_AGENT_WEBHOOK_URLS=" + receiver.URL, "TOUCHLINE_AGENT_WEBHOOK_EVENTS=comment_finished",
	}
	p := h.start()
	h.ask(agentRoom, "")
	h.speaks(p)
	began := time.Now()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.drains(t)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(startWait):
		require.FailNow(t, "the program does not end")
	}
	t.Logf("ended in %v; cycles: %v", time.Since(began).Round(time.Millisecond), p.outcomes())
	require.Zero(t, p.exitCode())
	require.Equal(t, 1, p.outcomes()[look.OutcomeCut], "what was being said is recorded as cut")

	// History and webhooks have all comments, including the last.
	show := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "./bin/touchline", append([]string{"history", "--store", store}, args...)...)
		cmd.Env, cmd.Stderr = []string{}, os.Stderr // the tests' own variables are no settings
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	comments := p.outcomes()[look.OutcomeSpoken] + p.outcomes()[look.OutcomeShown] + p.outcomes()[look.OutcomeCut]
	lines := strings.Split(strings.TrimSpace(show(agentRoom)), "\n")
	require.Len(t, lines, comments)
	require.Contains(t, lines[len(lines)-1], "[cut: commenting was stopped]")
	require.Len(t, told, comments)
	require.Equal(t, look.OutcomeCut, told[comments-1]["record"].(map[string]any)["outcome"])
	require.Contains(t, show(), strconv.Quote(agentRoom))
	require.True(t, strings.HasPrefix(show(agentRoom, "--format", "vtt"), "WEBVTT\n\n00:00:00.000 --> "))
	require.True(t, strings.HasPrefix(show(agentRoom, "--format", "srt", "--last", "1"), "1\n00:00:00,000 --> "))
	var entries []history.Entry
	require.NoError(t, json.Unmarshal([]byte(show(agentRoom, "--format", "json", "--all", "--from", "1h")), &entries))
	require.GreaterOrEqual(t, len(entries), comments)
	require.Empty(t, strings.TrimSpace(show(agentRoom, "--to", "1h")))
}

func TestAgentEndsARoomThatWasCalledOff(t *testing.T) {
	t.Parallel()
	h := newAgentHouse(t)
	p := h.start()
	h.ask(agentRoom, "")
	h.speaks(p)
	all, err := h.calls.ListDispatch(t.Context(), &livekit.ListAgentDispatchRequest{Room: agentRoom})
	require.NoError(t, err)
	for _, d := range all.GetAgentDispatches() {
		_, err := h.calls.DeleteDispatch(t.Context(), &livekit.DeleteAgentDispatchRequest{Room: agentRoom, DispatchId: d.GetId()})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return h.agentIn(agentRoom) == nil }, startWait, 20*time.Millisecond)
	// A deleted room stays deleted; joining again would create it.
	h.ask("gone", "")
	require.Eventually(t, func() bool { return h.agentIn("gone") != nil }, startWait, 20*time.Millisecond)
	_, err = h.rooms.DeleteRoom(t.Context(), &livekit.DeleteRoomRequest{Room: "gone"})
	require.NoError(t, err)
	<-time.After(7 * time.Second)
	open, err := h.rooms.ListRooms(t.Context(), &livekit.ListRoomsRequest{Names: []string{"gone"}})
	require.NoError(t, err)
	require.Empty(t, open.GetRooms())
	require.Eventually(t, func() bool {
		_, about := p.get("/worker")
		return strings.Contains(about, `"active_jobs":0`)
	}, startWait, 50*time.Millisecond)
	require.True(t, slices.ContainsFunc(p.lines(), func(l string) bool { return strings.Contains(l, `"outcome":"terminated"`) }), fmt.Sprint(p.lines()))
}
