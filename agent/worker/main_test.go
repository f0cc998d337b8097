//go:build integration

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

	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/agent/worker"
)

// workerProcess is the variable that makes this test program a worker of its
// own, to be killed: URL, key and secret follow as arguments.
const workerProcess = "TOUCHLINE_TEST_WORKER"

// serverProcess makes it a LiveKit server: key, secret and the two ports follow.
const serverProcess = "TOUCHLINE_TEST_SERVER"

// TestMain runs the tests, or is the process that one of them has started.
func TestMain(m *testing.M) {
	if slots := os.Getenv(workerProcess); slots != "" {
		os.Exit(beWorker(slots))
	}
	if os.Getenv(serverProcess) != "" {
		os.Exit(beServer())
	}
	os.Exit(sfutest.Main(m))
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
	g := &testRunner{url: os.Args[1], key: os.Args[2], secret: os.Args[3]}
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
