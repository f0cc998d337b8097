package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"touchline/agent/sfu"
	"touchline/agent/worker"
)

// serverLeftovers are goroutines that the in-process LiveKit server leaves behind when it is stopped.
func serverLeftovers() []goleak.Option {
	names := []string{
		"github.com/gammazero/workerpool.(*WorkerPool).dispatch",
		"github.com/gammazero/workerpool.worker",
		"github.com/livekit/livekit-server/pkg/agent.(*agentClient).checkEnabled",
		"github.com/livekit/livekit-server/pkg/agent.NewAgentClient.func1",
		"github.com/livekit/livekit-server/pkg/routing.(*LocalRouter).statsWorker",
		"github.com/livekit/livekit-server/pkg/rtc.(*ParticipantImpl).subscriberRTCPWorker",
		"github.com/livekit/livekit-server/pkg/rtc.(*Room).connectionQualityWorker",
		"github.com/livekit/livekit-server/pkg/rtc.(*Room).launchRoomAgents.func1",
		"github.com/livekit/livekit-server/pkg/rtc.(*Room).launchTargetAgents.func1",
		"github.com/livekit/livekit-server/pkg/rtc.(*Room).simulationCleanupWorker",
		"github.com/livekit/livekit-server/pkg/rtc/supervisor.(*ParticipantSupervisor).checkState",
		"github.com/livekit/livekit-server/pkg/service.(*WSSignalConnection).pingWorker",
		"github.com/livekit/livekit-server/pkg/sfu/streamallocator.(*StreamAllocator).ping",
		"github.com/livekit/livekit-server/pkg/telemetry.(*telemetryService).run",
		"github.com/livekit/livekit-server/pkg/utils.(*opsQueueBase[...]).process",
		"github.com/livekit/protocol/utils/hwstats.(*CPUStats).monitorCPULoad",
		"github.com/livekit/protocol/webhook.(*ResourceURLNotifier).sweeper",
		"github.com/livekit/psrpc/internal/bus.newSubscription[...].func1",
		"github.com/livekit/psrpc/pkg/client.(*multiRPC[...]).handleResponses",
		"github.com/livekit/psrpc/pkg/client.NewRPCClient.func1",
		"github.com/livekit/psrpc/pkg/server.(*rpcHandlerImpl[...]).run.func1",
	}
	opts := make([]goleak.Option, len(names))
	for i, name := range names {
		opts[i] = goleak.IgnoreAnyFunction(name)
	}
	return opts
}

// workerProcess is the variable that makes this test program a worker of its
// own, to be killed: URL, key and secret follow as arguments.
const workerProcess = "TOUCHLINE_TEST_WORKER"

// serverProcess makes it a LiveKit server: key, secret and the two ports follow.
const serverProcess = "TOUCHLINE_TEST_SERVER"

// TestMain is goleak's VerifyTestMain with more patience: server and client library close their
// connections in the background, in some seconds.
func TestMain(m *testing.M) {
	if slots := os.Getenv(workerProcess); slots != "" {
		os.Exit(beWorker(slots))
	}
	if os.Getenv(serverProcess) != "" {
		os.Exit(beServer())
	}
	code := m.Run()
	if code == 0 {
		var leaked error
		for deadline := time.Now().Add(25 * time.Second); time.Now().Before(deadline); {
			if leaked = goleak.Find(serverLeftovers()...); leaked == nil {
				break
			}
		}
		if leaked != nil {
			fmt.Fprintln(os.Stderr, "leaked goroutines:", leaked)
			code = 1
		}
	}
	os.Exit(code)
}

// beServer is a LiveKit server until it is killed. A server in the test's own
// process cannot be started again while workers are connected: its orderly stop
// may hang then (livekit#4710).
func beServer() int {
	var o sfu.Options
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &o.APIKey, &o.APISecret, &o.HTTPPort, &o.UDPPort); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o.DepartureTimeout = time.Minute
	s, err := sfu.New(o)
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// beWorker serves rooms until it is killed or interrupted.
func beWorker(slots string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(slots)
	if err != nil || len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "expected a number of slots, and URL, key and secret")
		return 2
	}
	g := &guests{url: os.Args[1], key: os.Args[2], secret: os.Args[3]}
	w, err := worker.New(worker.Options{
		URL: g.url, APIKey: g.key, APISecret: g.secret, AgentName: agentName, Slots: n, Runner: g, Log: zerolog.Nop(),
	})
	if err == nil {
		err = w.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
