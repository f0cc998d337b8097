//go:build integration

package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
	"touchline/media"
)

func TestDispatch(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)

	h.viewer("quiet", "vera")
	t.Run("by API", func(t *testing.T) {
		d := h.ask("by-api", `{"profile": "sports", "speech": false, "track": {"source": "screen_share"}}`)
		require.Eventually(t, func() bool { return h.served([]string{"by-api"}) }, soon, 20*time.Millisecond)
		job := g.last(t)
		require.Equal(t, d.GetId(), job.DispatchID)
		require.Equal(t, "sports", job.Metadata.Profile)
		require.False(t, *job.Metadata.Speech)
		require.Equal(t, "screen_share", job.Metadata.Track.Source)
		require.NotEmpty(t, job.Token)
		require.Equal(t, h.url, job.URL)
		require.Equal(t, []string{"by-api"}, w.State().Rooms)

		// A second dispatch finds the agent there.
		h.ask("by-api", "")
	})

	t.Run("by token", func(t *testing.T) {
		h.viewer("by-token", "vera", &livekit.RoomAgentDispatch{AgentName: agentName, Metadata: `{"language": "nl"}`})
		require.Eventually(t, func() bool { return h.served([]string{"by-token"}) }, soon, 20*time.Millisecond)
		require.Equal(t, "nl", g.last(t).Metadata.Language)
	})

	t.Run("once", func(t *testing.T) {
		h.ask("later", "") // behind the second dispatch of by-api
		require.Eventually(t, func() bool { return h.served([]string{"later"}) }, soon, 20*time.Millisecond)
		require.Equal(t, 3, w.State().Jobs, "one for a room")
		require.Equal(t, []string{worker.Identity(agentName, "")}, h.in("by-api"))
		require.Equal(t, []string{"vera"}, h.in("quiet"), "not without being asked")
	})

	t.Run("called off", func(t *testing.T) {
		// Every dispatch of the room, as the room wants the agent while there is one.
		all, err := h.dispatch.ListDispatch(t.Context(), &livekit.ListAgentDispatchRequest{Room: "by-api"})
		require.NoError(t, err)
		for _, d := range all.GetAgentDispatches() {
			_, err := h.dispatch.DeleteDispatch(t.Context(), &livekit.DeleteAgentDispatchRequest{Room: "by-api", DispatchId: d.GetId()})
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { return len(h.in("by-api")) == 0 }, soon, 20*time.Millisecond)
		g.mu.Lock()
		defer g.mu.Unlock()
		require.Equal(t, []error{worker.ErrTerminated}, g.causes)
	})

	t.Run("again in a room that is being left", func(t *testing.T) {
		require.Eventually(t, func() bool { return w.State().Jobs == 2 }, soon, 10*time.Millisecond)
		h.ask("by-api", "")
		require.Eventually(t, func() bool { return h.served([]string{"by-api"}) }, soon, 20*time.Millisecond)
	})
}

func TestAutomaticDispatch(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	h.worker(h.runner(), func(o *worker.Options) { o.AgentName = "" })
	h.viewer("any", "vera")
	require.Eventually(t, func() bool {
		in := h.in("any")
		return len(in) == 2 && in[0] == worker.Identity("", "")
	}, soon, 20*time.Millisecond)
}

func TestParticipantAndPublisherJobs(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g, p := h.runner(), h.runner()
	h.worker(g, func(o *worker.Options) {
		o.JobType, o.AgentName, o.WatchEvery = livekit.JobType_JT_PARTICIPANT, "each", -1
	})
	h.worker(p, func(o *worker.Options) {
		o.JobType, o.AgentName, o.WatchEvery = livekit.JobType_JT_PUBLISHER, "cameras", -1
	})
	h.viewer("people", "vera", &livekit.RoomAgentDispatch{AgentName: "each"}, &livekit.RoomAgentDispatch{AgentName: "cameras"})
	h.viewer("people", "wim")
	want := []string{worker.Identity("each", "vera"), worker.Identity("each", "wim"), "vera", "wim"}
	require.Eventually(t, func() bool { return len(h.in("people")) == 4 }, soon, 20*time.Millisecond)
	require.Equal(t, want, h.in("people"))
	g.mu.Lock()
	require.Len(t, g.jobs, 2)
	g.mu.Unlock()
	// An agent that publishes its voice is no publisher that needs an agent.
	p.mu.Lock()
	require.Empty(t, p.jobs)
	p.mu.Unlock()
	cameraIn(h, "people", "cam")
	require.Equal(t, "cam", p.last(t).Participant)
}

func TestSimulatedJob(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)
	require.NoError(t, w.Simulate("practice", ""))
	require.Eventually(t, func() bool { return h.served([]string{"practice"}) }, soon, 20*time.Millisecond)
	require.Empty(t, g.last(t).DispatchID)
}

func TestOneRoomsCrashEndsThatRoomAlone(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	tap := newTap(t, h.url)
	g := h.runner()
	g.failInstead = map[string]bool{"crash": true, "fail": true}
	g.misbehave = func(job worker.Job) error {
		if job.Room == "crash" {
			panic("a picture of 0 pixels")
		}
		return errors.New("no such engine")
	}
	w := h.worker(g, func(o *worker.Options) { o.URL = tap.url })
	h.ask("good", "")
	h.ask("crash", "")
	h.ask("fail", "")
	h.ask("wrong", `{"profil": "sports"}`)
	require.Eventually(t, func() bool { return len(tap.failures()) == 3 && h.served([]string{"good"}) }, soon, 20*time.Millisecond)
	require.ElementsMatch(t, []string{
		"the code panicked: a picture of 0 pixels",
		"no such engine",
		`dispatch metadata: unknown key "profil"; the known ones are engine, instruction, language, profile, speech, track`,
	}, tap.failures())
	require.Equal(t, []string{"good"}, w.State().Rooms)
}

func TestPutOutByHand(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)
	h.ask("strict", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	_, err := h.rooms.RemoveParticipant(t.Context(), &livekit.RoomParticipantIdentity{
		Room: "strict", Identity: worker.Identity(agentName, ""),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.State().Jobs == 0 }, soon, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		all, err := h.dispatch.ListDispatch(t.Context(), &livekit.ListAgentDispatchRequest{Room: "strict"})
		if err != nil {
			return false
		}
		for _, d := range all.GetAgentDispatches() {
			if d.GetAgentName() == agentName {
				return false
			}
		}
		return true
	}, soon, 20*time.Millisecond, "no worker goes back to a room that removed the agent")
}

// TestCall covers Dispatch and Withdraw, which front ends of other programs use.
func TestCall(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)
	speech := false
	m := worker.Metadata{Profile: "sports", Instruction: "the keeper", Speech: &speech, Track: media.WatchConfig{Source: "camera"}, Language: "nl"}
	id, err := w.Dispatch(t.Context(), "called", m)
	require.NoError(t, err)
	require.NotEmpty(t, id)
	require.Eventually(t, func() bool { return h.served([]string{"called"}) }, soon, 20*time.Millisecond)
	job := g.last(t)
	require.Equal(t, id, job.DispatchID)
	require.Equal(t, m, job.Metadata, "all of it arrives")
	_, err = w.Dispatch(t.Context(), "called", worker.Metadata{})
	require.ErrorIs(t, err, worker.ErrDispatched)
	_, err = w.Dispatch(t.Context(), "other", worker.Metadata{Language: "no language"})
	require.ErrorIs(t, err, worker.ErrMetadata)

	require.NoError(t, w.Withdraw(t.Context(), "called"))
	require.Eventually(t, func() bool { return len(h.in("called")) == 0 }, soon, 20*time.Millisecond)
	require.ErrorIs(t, w.Withdraw(t.Context(), "called"), worker.ErrNotDispatched)
	require.ErrorIs(t, w.Withdraw(t.Context(), "never opened"), worker.ErrNotDispatched)

	// A simulated job has no dispatch to delete.
	require.NoError(t, w.Simulate("tried", ""))
	require.Eventually(t, func() bool { return h.served([]string{"tried"}) }, soon, 20*time.Millisecond)
	require.NoError(t, w.Withdraw(t.Context(), "tried"))
	require.Eventually(t, func() bool { return len(h.in("tried")) == 0 }, soon, 20*time.Millisecond)
}

// TestCallWithoutAName: a worker that serves every new room can be called, too.
func TestCallWithoutAName(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	w := h.worker(h.runner(), func(o *worker.Options) { o.AgentName = "" })
	_, err := w.Dispatch(t.Context(), "called", worker.Metadata{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { in := h.in("called"); return len(in) == 1 && in[0] == worker.Identity("", "") }, soon, 20*time.Millisecond)
	require.NoError(t, w.Withdraw(t.Context(), "called"))
	require.Eventually(t, func() bool { return len(h.in("called")) == 0 }, soon, 20*time.Millisecond)
}
