package sfu_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// serverLeftovers are goroutines that the in-process LiveKit server leaves behind when it is stopped.
func serverLeftovers() []goleak.Option {
	names := []string{
		"github.com/gammazero/workerpool.(*WorkerPool).dispatch",
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

// TestMain is goleak's VerifyTestMain with more patience: the server closes its parts in the
// background, in some seconds.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var leaked error
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
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
