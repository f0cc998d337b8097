//go:build integration

package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"touchline/agent/sfu/sfutest"
	"touchline/agent/worker"
)

// workerProcess is the variable that makes this test program a worker of its
// own, to be killed: URL, key and secret follow as arguments.
const workerProcess = "TOUCHLINE_TEST_WORKER"

// TestMain runs the tests, or is the process that one of them has started.
func TestMain(m *testing.M) {
	if slots := os.Getenv(workerProcess); slots != "" {
		os.Exit(beWorker(slots))
	}
	os.Exit(sfutest.Main(m))
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
