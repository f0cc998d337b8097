// Package sfutest helps tests with a LiveKit server in their own process: it
// starts and ends the server (apart, under the race detector), waits at the end
// of the tests for goroutines that server and client library close in the
// background, and lists the process's sockets.
//
// It is for tests only.
package sfutest

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest/apart"
)

// startWait bounds the start of a server, on a busy machine.
const startWait = 2 * time.Minute

// patience bounds the closing of connections in the background.
const patience = 2 * time.Minute

// Start makes a server and runs it as [Serve] does.
func Start(t *testing.T, opts sfu.Options) (s *sfu.Server, stop func() error) {
	t.Helper()
	s, err := sfu.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, Serve(t, s)
}

// Serve runs a server until the test ends, or until stop is called, and returns
// once participants can join. stop returns the server's error; the end of the test
// only logs it, as an orderly end may take too long.
func Serve(t *testing.T, s *sfu.Server) (stop func() error) {
	t.Helper()
	run, ready := apart.Of(s)
	return serve(t, run, ready)
}

// ServeHere is Serve, always in this process.
func ServeHere(t *testing.T, s *sfu.Server) (stop func() error) {
	t.Helper()
	return serve(t, s.Run, s.Ready)
}

func serve(t *testing.T, run, ready func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Logf("LiveKit server: %v", err)
		}
	})
	wait, done := context.WithTimeout(t.Context(), startWait)
	defer done()
	if err := ready(wait); err != nil {
		t.Fatal(err, stop())
	}
	return stop
}

// leftovers are goroutines that the LiveKit server leaves behind when it is stopped, and the client library's wait of 5 s to
// acknowledge each call that came before its connection was gone.
func leftovers() []goleak.Option {
	names := []string{
		"github.com/livekit/server-sdk-go/v2.waitUntilConnected",
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

// Main is goleak's VerifyTestMain with more patience: it runs the tests and returns the exit code.
func Main(m *testing.M) int {
	if code := m.Run(); code != 0 {
		return code
	}
	var leaked error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if leaked = goleak.Find(leftovers()...); leaked == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, "leaked goroutines:", leaked)
	return 1
}

// Socket is one of this process's internet sockets.
type Socket struct {
	Network string // udp, udp6, tcp or tcp6
	Local   netip.AddrPort
}

// Sockets returns the sockets of this process by inode.
func Sockets() (map[string]Socket, error) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	own := map[string]bool{}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	out := map[string]Socket{}
	for _, network := range []string{"udp", "udp6", "tcp", "tcp6"} {
		f, err := os.Open("/proc/net/" + network)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6 here
		} else if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		lines := bufio.NewScanner(f)
		lines.Scan() // heading
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !own[fields[9]] {
				continue
			}
			local, err := kernelAddr(fields[1])
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			out[fields[9]] = Socket{network, local}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
	}
	return out, nil
}

// kernelAddr reads "0100007F:1EC8": each 32-bit word of the address in host (little endian) order.
func kernelAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err == nil && len(raw)%4 == 0 {
		for i := 0; i+3 < len(raw); i += 4 {
			raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
		}
	}
	ip, ok := netip.AddrFromSlice(raw)
	p, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || !ok {
		return netip.AddrPort{}, fmt.Errorf("expected ADDRESS:PORT in hexadecimal, got %q", s)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(p)), nil
}
