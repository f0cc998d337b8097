//go:build integration

package worker_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/agent/sfu/sfutest/apart"
	"touchline/agent/worker"
)

// agentName of the workers here.
const agentName = "commentator"

// soon bounds each wait on a busy machine.
const soon = 2 * time.Minute

func logger() zerolog.Logger {
	if os.Getenv("TOUCHLINE_TEST_LOG") != "" {
		return zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, PartsExclude: []string{"time"}}).
			Level(zerolog.DebugLevel).Hook(stamp{})
	}
	return zerolog.Nop()
}

// stamp adds the time in milliseconds.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str("at", time.Now().Format("05.000"))
}

// liveServer is a LiveKit server.
type liveServer struct {
	t        *testing.T
	opts     sfu.Options
	url      string
	server   *sfu.Server
	stop     func()
	rooms    *lksdk.RoomServiceClient
	dispatch *lksdk.AgentDispatchClient
}

func newServer(t *testing.T) *liveServer {
	t.Helper()
	h := prepareServer(t)
	h.open()
	return h
}

func prepareServer(t *testing.T) *liveServer {
	t.Helper()
	h := &liveServer{t: t, opts: sfu.Options{APIKey: "key", APISecret: "a-secret-of-more-than-32-characters", DepartureTimeout: time.Minute}}
	var err error
	h.server, err = sfu.New(h.opts)
	require.NoError(t, err)
	h.url = h.server.URL()
	h.rooms = lksdk.NewRoomServiceClient(h.url, h.opts.APIKey, h.opts.APISecret)
	h.dispatch = lksdk.NewAgentDispatchServiceClient(h.url, h.opts.APIKey, h.opts.APISecret)
	h.stop = func() {}
	t.Cleanup(func() { h.stop() })
	return h
}

// process runs the server in a process of its own, which stop kills: a server in the test's own process cannot be started again while
// workers are connected, as its orderly stop may hang then (livekit#4710).
func (h *liveServer) process() *os.Process {
	h.t.Helper()
	up, ended := make(chan *os.Process, 1), make(chan error, 1)
	go func() { ended <- apart.Run(context.Background(), h.server, func(p *os.Process) { up <- p }) }()
	select {
	case p := <-up:
		h.stop = sync.OnceFunc(func() {
			_ = p.Kill()
			<-ended //nolint:errcheck // killed
		})
		return p
	case err := <-ended:
		require.FailNow(h.t, "the server's process ended at once", err)
	}
	return nil
}

func (h *liveServer) open() {
	h.t.Helper()
	stop := sfutest.Serve(h.t, h.server)
	h.stop = func() {
		if err := stop(); err != nil {
			h.t.Logf("server: %v", err)
		}
	}
}

// make creates a room that stays open; agents are dispatched with it.
func (h *liveServer) make(name string, agents ...*livekit.RoomAgentDispatch) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { // a busy server may answer too late
		_, err := h.rooms.CreateRoom(h.t.Context(), &livekit.CreateRoomRequest{
			Name: name, EmptyTimeout: 600, DepartureTimeout: 600, Agents: agents,
		})
		return err == nil
	}, soon, 20*time.Millisecond)
}

// ask makes a dispatch by the API.
func (h *liveServer) ask(room, metadata string) *livekit.AgentDispatch {
	h.t.Helper()
	d, err := h.dispatch.CreateDispatch(h.t.Context(), &livekit.CreateAgentDispatchRequest{
		AgentName: agentName, Room: room, Metadata: metadata,
	})
	require.NoError(h.t, err)
	return d
}

// in lists the identities in a room.
func (h *liveServer) in(room string) []string {
	res, err := h.rooms.ListParticipants(h.t.Context(), &livekit.ListParticipantsRequest{Room: room})
	if err != nil {
		return nil
	}
	var ids []string
	for _, p := range res.GetParticipants() {
		ids = append(ids, p.GetIdentity())
	}
	slices.Sort(ids)
	return ids
}

// served reports whether exactly one agent is in each of the rooms.
func (h *liveServer) served(rooms []string) bool {
	for _, r := range rooms {
		if !slices.Contains(h.in(r), worker.Identity(agentName, "")) {
			return false
		}
	}
	return true
}

// worker makes one with the settings that all share, and runs it until the test ends.
func (h *liveServer) worker(r worker.Runner, change ...func(*worker.Options)) *working {
	h.t.Helper()
	o := worker.Options{
		URL: h.url, APIKey: h.opts.APIKey, APISecret: h.opts.APISecret, AgentName: agentName, Slots: 10,
		Name: "Commentator", Version: "test", Runner: r, Log: logger(),
	}
	for _, c := range change {
		c(&o)
	}
	w, err := worker.New(o)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	run := &working{Worker: w, stop: cancel, ended: make(chan struct{})}
	go func() {
		run.err = w.Run(ctx)
		close(run.ended)
	}()
	h.t.Cleanup(func() {
		cancel()
		<-run.ended
		// A busy machine leaves its rooms late.
		if run.err != nil && !run.mayFail && !strings.Contains(run.err.Error(), "jobs still running") {
			h.t.Errorf("worker: %v", run.err)
		}
	})
	h.t.Logf("worker starts")
	require.Eventually(h.t, func() bool { return w.State().Registered || isOver(run.ended) }, soon, 10*time.Millisecond)
	// The server answers a registration before it knows the worker.
	<-time.After(50 * time.Millisecond)
	return run
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// working is a worker that runs.
type working struct {
	*worker.Worker
	stop    context.CancelFunc
	ended   chan struct{}
	err     error
	mayFail bool
}

// testRunner serve a job by being in the room, with sentences of a fixed length
// one after the other.
type testRunner struct {
	url, key, secret string
	sentence         time.Duration // 0: silent

	mu           sync.Mutex
	jobs         []worker.Job
	begun, whole int
	cut, joins   int
	causes       []error
	ended        []error
	inside       int
	most         int
	misbehave    func(job worker.Job) error // instead of serving; nil to serve
	failInstead  map[string]bool
}

func (h *liveServer) runner() *testRunner {
	return &testRunner{url: h.url, key: h.opts.APIKey, secret: h.opts.APISecret}
}

func (g *testRunner) Run(ctx context.Context, job worker.Job) error {
	g.mu.Lock()
	g.jobs = append(g.jobs, job)
	g.inside++
	g.most = max(g.most, g.inside)
	misbehave := g.misbehave
	if !g.failInstead[job.Room] {
		misbehave = nil
	}
	g.mu.Unlock()
	err := errors.New("it panicked")
	defer func() {
		g.mu.Lock()
		g.inside--
		g.ended = append(g.ended, err)
		g.mu.Unlock()
	}()
	if misbehave != nil {
		err = misbehave(job)
		return err
	}
	err = g.stay(ctx, job)
	return err
}

func (g *testRunner) stay(ctx context.Context, job worker.Job) error {
	s, err := room.New(room.Options{
		URL: g.url, Keys: conn.Keys{APIKey: g.key, APISecret: g.secret}, Room: job.Room, Identity: job.Identity, Name: job.Name,
		LoopbackOnly: true, Replaced: job.Replaced, Log: zerolog.Nop(),
		Hooks: []room.Hooks{{Joined: func(*lksdk.Room) { job.Joined(); g.count(&g.joins) }}},
	})
	if err != nil {
		return err
	}
	rctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	left := make(chan error, 1)
	go func() { left <- s.Run(rctx) }()
	for {
		if g.sentence > 0 {
			g.count(&g.begun)
		}
		length := g.sentence
		if length == 0 {
			length = time.Hour
		}
		timer := time.NewTimer(length)
		draining := job.Draining
		if g.sentence > 0 {
			draining = nil // not before its end
		}
		select {
		case err := <-left:
			timer.Stop()
			if g.sentence > 0 {
				g.mu.Lock()
				g.begun-- // without a room there is no sentence
				g.mu.Unlock()
			}
			if errors.Is(err, conn.ErrReplaced) {
				err = nil
			}
			if errors.Is(err, conn.ErrRemoved) {
				err = worker.ErrUnwanted
			}
			return err
		case <-ctx.Done():
			timer.Stop()
			g.mu.Lock()
			g.cut++
			g.causes = append(g.causes, context.Cause(ctx))
			g.mu.Unlock()
			job.Leaving(nil)
			leave()
			return <-left
		case <-draining:
			timer.Stop()
			job.Leaving(nil)
			leave()
			return <-left
		case <-timer.C:
		}
		if g.sentence > 0 {
			g.count(&g.whole)
		}
		if isOver(job.Draining) {
			job.Leaving(nil)
			leave()
			return <-left
		}
	}
}

func (g *testRunner) count(n *int) {
	g.mu.Lock()
	*n++
	g.mu.Unlock()
}

// last is the newest job.
func (g *testRunner) last(t *testing.T) worker.Job {
	t.Helper()
	var job worker.Job
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.jobs) == 0 {
			return false
		}
		job = g.jobs[len(g.jobs)-1]
		return true
	}, soon, 10*time.Millisecond)
	return job
}

// viewer joins a room as a person, with an optional dispatch in the token.
func (h *liveServer) viewer(roomName, identity string, agents ...*livekit.RoomAgentDispatch) *lksdk.Room {
	h.t.Helper()
	at := auth.NewAccessToken(h.opts.APIKey, h.opts.APISecret).SetIdentity(identity).
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, Room: roomName})
	if len(agents) > 0 {
		at.SetRoomConfig(&livekit.RoomConfiguration{Agents: agents})
	}
	token, err := at.ToJWT()
	require.NoError(h.t, err)
	r, err := lksdk.ConnectToRoomWithToken(h.url, token, lksdk.NewRoomCallback(), lksdk.WithAutoSubscribe(false))
	require.NoError(h.t, err)
	h.t.Cleanup(r.Disconnect)
	return r
}

// joined is how many times a guest came into a room.
func (g *testRunner) joined() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.joins
}
