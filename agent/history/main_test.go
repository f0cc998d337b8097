package history_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"touchline/agent"
	"touchline/agent/history"
)

// writerVariable turns the test program into a writer that is to be killed.
const writerVariable = "HISTORY_TEST_WRITER"

func TestMain(m *testing.M) {
	if store := os.Getenv(writerVariable); store != "" {
		if err := write(store, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// write puts numbered records into a store as fast as they are taken, and says
// how many are written, until it is killed.
func write(store, path string) error {
	log, err := history.Open(config(store, path), zerolog.New(os.Stderr))
	if err != nil {
		return err
	}
	go func() { _ = log.Run(context.Background()) }()
	out := log.Output("match", "bot")
	tick := time.NewTicker(200 * time.Microsecond)
	for i := uint64(1); ; i++ {
		<-tick.C
		out.Caption(agent.Caption{Cycle: i, Delta: text(i)})
		out.Record(record(i))
		if i%50 == 0 {
			fmt.Println(log.Written(), i)
		}
	}
}
