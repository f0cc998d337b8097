//go:build integration

package worker_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
)

// spawn runs a worker in a process of its own.
func (h *liveServer) spawn(slots int) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(os.Args[0], h.url, h.opts.APIKey, h.opts.APISecret)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", workerProcess, slots))
	cmd.Stderr = os.Stderr
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("room-%02d", i)
	}
	return out
}

func TestThirtyRoomsOnThreeWorkersOneOfThemKilled(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	a, b := h.runner(), h.runner()
	h.worker(a)
	h.worker(b)
	dying := h.spawn(10)
	rooms := names(30)
	began := time.Now()
	for _, r := range rooms {
		h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName})
	}
	require.Eventually(t, func() bool { return h.served(rooms) }, 2*time.Minute, 100*time.Millisecond)
	t.Logf("30 rooms are served after %v", time.Since(began).Round(time.Millisecond))
	for _, g := range []*testRunner{a, b} {
		g.mu.Lock()
		require.Equal(t, 10, g.most, "no worker above its slots, and all needed")
		g.mu.Unlock()
	}

	// Another machine takes the place of the one that dies.
	began = time.Now()
	require.NoError(t, dying.Process.Signal(syscall.SIGKILL))
	_ = dying.Wait()
	c := h.runner()
	h.worker(c)
	require.Eventually(t, func() bool { return c.joined() >= 10 }, 2*time.Minute, 50*time.Millisecond,
		"the server keeps the dead in the rooms for 20 s of it")
	t.Logf("10 rooms are served again after %v", time.Since(began).Round(time.Millisecond))
	require.Eventually(t, func() bool { return h.served(rooms) }, soon, 100*time.Millisecond)
	c.mu.Lock()
	require.LessOrEqual(t, c.most, 10)
	c.mu.Unlock()
	for _, r := range rooms {
		require.Len(t, h.in(r), 1, "one agent in %s", r)
	}
}

// TestKilledWorker: another worker replaces the frozen agents of a killed one, long before the server misses them. Three workers watch.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	dying := h.spawn(10)
	rooms := names(10)
	for _, r := range rooms {
		h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName})
	}
	require.Eventually(t, func() bool { return h.served(rooms) }, soon, 50*time.Millisecond)
	runners := []*testRunner{h.runner(), h.runner(), h.runner()}
	for _, g := range runners {
		h.worker(g)
	}
	joined := func() (n int) {
		for _, g := range runners {
			n += g.joined()
		}
		return n
	}
	<-time.After(5 * time.Second)
	require.Zero(t, joined(), "healthy agents stay")
	began := time.Now()
	require.NoError(t, dying.Process.Signal(syscall.SIGKILL))
	_ = dying.Wait()
	require.Eventually(t, func() bool { return joined() >= len(rooms) }, time.Minute, 50*time.Millisecond)
	t.Logf("10 rooms have another agent after %v", time.Since(began).Round(time.Millisecond))
	<-time.After(10 * time.Second)
	require.True(t, h.served(rooms))
	inside := 0
	for _, g := range runners {
		g.mu.Lock()
		inside += g.inside
		g.mu.Unlock()
	}
	require.Equal(t, len(rooms), inside, "one agent in each room")
}

// TestStoppedWorkerWakes: the agents of a worker that was stopped find their successors when it wakes, and leave.
func TestStoppedWorkerWakes(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	stopped := h.spawn(4)
	rooms := names(4)
	for _, r := range rooms {
		h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName})
	}
	require.Eventually(t, func() bool { return h.served(rooms) }, soon, 50*time.Millisecond)
	g := h.runner()
	w := h.worker(g)
	require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return g.joined() == len(rooms) }, time.Minute, 50*time.Millisecond)
	<-time.After(5 * time.Second)
	require.NoError(t, stopped.Process.Signal(syscall.SIGCONT))
	<-time.After(12 * time.Second)
	g.sameJobs(t, rooms, w)
	require.Equal(t, len(rooms), g.joined(), "nobody pushes the successors out")
	require.True(t, h.served(rooms))
}

func TestServerStartedAgain(t *testing.T) {
	t.Parallel()
	h := prepareServer(t)
	h.process()
	a, b := h.runner(), h.runner()
	wa, wb := h.worker(a), h.worker(b)
	rooms := names(8)
	for _, r := range rooms {
		h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName, Metadata: `{"language": "nl"}`})
	}
	require.Eventually(t, func() bool { return a.joined()+b.joined() == 8 }, soon, 50*time.Millisecond)
	h.stop()
	require.Eventually(t, func() bool { return !wa.State().Registered && !wb.State().Registered }, soon, 10*time.Millisecond)
	h.process()
	began := time.Now()
	require.Eventually(t, func() bool { return h.served(rooms) }, 2*time.Minute, 50*time.Millisecond)
	t.Logf("8 rooms are back after %v", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 8, wa.State().Jobs+wb.State().Jobs, "the same jobs go on")
	// The wish is back as well, so that the rooms outlive their workers now.
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(rooms, func(r string) bool {
			all, err := h.dispatch.ListDispatch(t.Context(), &livekit.ListAgentDispatchRequest{Room: r})
			return err != nil || !slices.ContainsFunc(all.GetAgentDispatches(), func(d *livekit.AgentDispatch) bool {
				return d.GetAgentName() == agentName && d.GetMetadata() == `{"language": "nl"}`
			})
		})
	}, 2*time.Minute, 100*time.Millisecond)
	for _, r := range rooms {
		require.Equal(t, []string{worker.Identity(agentName, "")}, h.in(r))
	}
	require.Equal(t, 2, wa.State().Registrations)
}

// TestServerHangs: the jobs of a server that hangs for a while go on, whether the agents or the client library join again.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	for _, hang := range []time.Duration{2 * time.Second, 6 * time.Second, 12 * time.Second, 30 * time.Second} {
		t.Run(hang.String(), func(t *testing.T) {
			t.Parallel()
			h := prepareServer(t)
			server := h.process()
			g, other := h.runner(), h.runner()
			w := h.worker(g)
			rooms := names(3)
			for _, r := range rooms {
				h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName})
			}
			require.Eventually(t, func() bool { return g.joined() == len(rooms) && h.served(rooms) }, soon, 20*time.Millisecond)
			h.worker(other)
			require.NoError(t, server.Signal(syscall.SIGSTOP))
			<-time.After(hang)
			require.NoError(t, server.Signal(syscall.SIGCONT))
			<-time.After(11 * time.Second) // two rounds of the watch
			g.sameJobs(t, rooms, w)
			require.Eventually(t, func() bool { return h.served(rooms) }, soon, 20*time.Millisecond)
			require.Zero(t, other.joined(), "no agent is taken for frozen")
		})
	}
}

// TestAgentJoinsAgain: the job of an agent that leaves its room to join it again goes on.
func TestAgentJoinsAgain(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	w := h.worker(g)
	h.ask("one", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	// Its voice is gone without the right to publish.
	_, err := h.rooms.UpdateParticipant(t.Context(), &livekit.UpdateParticipantRequest{
		Room: "one", Identity: worker.Identity(agentName, ""), Permission: &livekit.ParticipantPermission{CanSubscribe: true},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.joined() == 2 }, soon, 20*time.Millisecond)
	<-time.After(2 * time.Second) // for the server's termination
	g.sameJobs(t, []string{"one"}, w)
}

// sameJobs fails if there was any other job than the first of each room.
func (g *testRunner) sameJobs(t *testing.T, rooms []string, w *working) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Len(t, g.jobs, len(rooms))
	require.Empty(t, g.causes)
	require.Equal(t, len(rooms), w.State().Jobs)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	a, b := h.runner(), h.runner()
	a.sentence = 700 * time.Millisecond
	wa := h.worker(a)
	rooms := names(5)
	for _, r := range rooms {
		h.make(r, &livekit.RoomAgentDispatch{AgentName: agentName})
	}
	require.Eventually(t, func() bool { return a.joined() == 5 }, soon, 20*time.Millisecond)
	h.worker(b)
	wa.Drain()
	h.make("late", &livekit.RoomAgentDispatch{AgentName: agentName})
	select {
	case <-wa.ended:
	case <-time.After(soon):
		t.Fatal("the drain does not end")
	}
	require.NoError(t, wa.err)
	a.mu.Lock()
	require.Equal(t, a.begun, a.whole, "every sentence was finished")
	require.Zero(t, a.cut)
	require.Len(t, a.jobs, 5, "no new job while draining")
	a.mu.Unlock()
	began := time.Now()
	require.Eventually(t, func() bool { return b.joined() == 6 && h.served(append(rooms, "late")) }, 2*time.Minute, 20*time.Millisecond)
	t.Logf("all rooms are with the other worker %v after the drain", time.Since(began).Round(time.Millisecond))
}

func TestDrainEndsInTime(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	g.sentence = time.Hour
	w := h.worker(g, func(o *worker.Options) { o.DrainTimeout = 500 * time.Millisecond })
	h.ask("long", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	w.Drain()
	<-w.ended
	require.NoError(t, w.err)
	require.Equal(t, []error{worker.ErrStopping}, g.causes)
}

func TestSecondSignalEndsADrainAtOnce(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	g := h.runner()
	g.sentence = time.Hour
	w := h.worker(g)
	h.ask("long", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	w.Drain()
	<-time.After(200 * time.Millisecond)
	require.False(t, isOver(w.ended))
	w.stop()
	<-w.ended
	require.NoError(t, w.err)
	require.Eventually(t, func() bool { return len(h.in("long")) == 0 }, soon, 10*time.Millisecond)
}

func TestTwoWorkersInOneRoomEndAsOne(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	a, b := h.runner(), h.runner()
	wa := h.worker(a)
	h.ask("one", "")
	require.Eventually(t, func() bool { return a.joined() == 1 }, soon, 20*time.Millisecond)
	// A simulated job goes to its worker, even if the room has an agent; the slot of the other is free.
	tap := newTap(t, h.url)
	wb := h.worker(b, func(o *worker.Options) { o.URL = tap.url })
	require.NoError(t, wb.Simulate("one", ""))
	require.Eventually(t, func() bool {
		tap.mu.Lock()
		defer tap.mu.Unlock()
		return slices.ContainsFunc(tap.said, func(m *livekit.WorkerMessage) bool {
			a, u := m.GetAvailability(), m.GetUpdateJob()
			return a != nil && !a.GetAvailable() || u != nil && u.GetStatus() != livekit.JobStatus_JS_RUNNING
		})
	}, soon, 10*time.Millisecond, "one of them ends")
	require.Eventually(t, func() bool { return wa.State().Jobs+wb.State().Jobs == 1 }, soon, 10*time.Millisecond)
	require.Equal(t, []string{worker.Identity(agentName, "")}, h.in("one"))
}

func TestConnectionLostAndVersionSkew(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	tap := newTap(t, h.url)
	g := h.runner()
	w := h.worker(g, func(o *worker.Options) { o.URL = tap.url })
	h.ask("steady", "")
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)

	// What a later server says: a field 6 (go_away), a field 99, text, nothing at all, and rubbish.
	for _, frame := range [][]byte{{0x32, 0x00}, {0x9a, 0x06, 0x01, 0x00}, {}, {0xff, 0xff, 0xff}} {
		require.NoError(t, tap.say(2, frame))
	}
	require.NoError(t, tap.say(1, []byte(`{"hello": 1}`)))
	h.ask("after", "")
	require.Eventually(t, func() bool { return g.joined() == 2 }, soon, 20*time.Millisecond)
	require.Equal(t, 1, w.State().Registrations)

	tap.cut()
	require.Eventually(t, func() bool { return w.State().Registrations == 2 && w.State().Registered }, soon, 20*time.Millisecond)
	require.Equal(t, 2, w.State().Jobs, "jobs go on")
	require.Equal(t, 2, g.joined())
	require.Eventually(t, func() bool {
		tap.mu.Lock()
		defer tap.mu.Unlock()
		return slices.ContainsFunc(tap.said, func(m *livekit.WorkerMessage) bool { return len(m.GetMigrateJob().GetJobIds()) == 2 })
	}, soon, 20*time.Millisecond)
	h.ask("again", "")
	require.Eventually(t, func() bool { return g.joined() == 3 }, soon, 20*time.Millisecond)
}

// TestRegistration: the registration of a worker with the server.
func TestRegistration(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	tap := newTap(t, h.url)
	h.worker(h.runner(), func(o *worker.Options) {
		o.URL, o.JobType, o.Deployment = tap.url, livekit.JobType_JT_PUBLISHER, "blue"
	})
	tap.mu.Lock()
	defer tap.mu.Unlock()
	r := tap.said[0].GetRegister()
	require.Equal(t, livekit.JobType_JT_PUBLISHER, r.GetType())
	require.Equal(t, []string{agentName, "test", "blue"}, []string{r.GetAgentName(), r.GetVersion(), r.GetDeployment()})
	require.True(t, r.GetAllowedPermissions().GetCanPublish() && r.GetAllowedPermissions().GetCanSubscribe() && r.GetAllowedPermissions().GetCanUpdateMetadata())
	require.Positive(t, r.GetPingInterval())
}

func TestFullWorkerSaysSo(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	tap := newTap(t, h.url)
	g := h.runner()
	w := h.worker(g, func(o *worker.Options) { o.URL, o.Slots = tap.url, 2 })
	for _, r := range names(3) {
		h.ask(r, "")
	}
	require.Eventually(t, func() bool { return g.joined() == 2 }, soon, 20*time.Millisecond)
	var last *livekit.UpdateWorkerStatus
	require.Eventually(t, func() bool {
		tap.mu.Lock()
		defer tap.mu.Unlock()
		for _, m := range tap.said {
			if u := m.GetUpdateWorker(); u != nil {
				last = u
			}
		}
		return last.GetStatus() == livekit.WorkerStatus_WS_FULL && last.GetJobCount() == 2
	}, soon, 20*time.Millisecond)
	require.InDelta(t, 0.7, w.State().Load, 1e-6)
	require.InDelta(t, 0.7, last.GetLoad(), 1e-6)
}

func TestAskedForBeforeThereWasAWorker(t *testing.T) {
	t.Parallel()
	h := newServer(t)
	h.make("early")
	h.ask("early", `{"language": "nl"}`)
	h.make("hopeless")
	h.ask("hopeless", `{"lang": "nl"}`)
	<-time.After(4 * time.Second) // the server tries no more, and the watch leaves fresh ones alone
	g := h.runner()
	w := h.worker(g, func(o *worker.Options) { o.WatchEvery = time.Second })
	require.Eventually(t, func() bool { return g.joined() == 1 }, soon, 20*time.Millisecond)
	job := g.last(t)
	require.Equal(t, "early", job.Room)
	require.Equal(t, "nl", job.Metadata.Language)
	// The original dispatch still decides.
	all, err := h.dispatch.ListDispatch(t.Context(), &livekit.ListAgentDispatchRequest{Room: "early"})
	require.NoError(t, err)
	var ours []*livekit.AgentDispatch
	for _, d := range all.GetAgentDispatches() {
		if d.GetAgentName() == agentName {
			ours = append(ours, d)
		}
	}
	require.Len(t, ours, 2)
	for _, d := range ours {
		if d.GetId() != job.DispatchID {
			_, err := h.dispatch.DeleteDispatch(t.Context(), &livekit.DeleteAgentDispatchRequest{Room: "early", DispatchId: d.GetId()})
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool { return w.State().Jobs == 0 }, soon, 20*time.Millisecond)
	require.Eventually(t, func() bool { return len(h.in("early")) == 0 }, soon, 20*time.Millisecond)
	<-time.After(3 * time.Second)
	require.Empty(t, h.in("early"), "no agent comes back")
	require.Equal(t, 1, g.joined())
}
