//go:build race || integration

package apart

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"touchline/agent/sfu"
)

// serverOptions is set to a server's options, as JSON, in the process that is this server.
const serverOptions = "SFUTEST_OPTIONS"

// upLine is what that process prints when participants can join.
const upLine = "ready"

func init() { //nolint:gochecknoinits // each program that imports this package can be a server
	text := os.Getenv(serverOptions) //nolint:forbidigo // no setting
	if text == "" {
		return
	}
	if err := beServer(text); err != nil {
		fmt.Fprintln(os.Stderr, "LiveKit server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beServer runs a server until standard input ends, with the test or its process.
func beServer(text string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
		cancel()
	}()
	var opts sfu.Options
	if err := json.Unmarshal([]byte(text), &opts); err != nil {
		return err
	}
	s, err := sfu.New(opts)
	if err != nil {
		return err
	}
	go func() {
		if s.Ready(ctx) == nil {
			fmt.Println(upLine)
		}
	}()
	return s.Run(ctx)
}

// Run runs a server in a process of its own until ctx ends, and calls ready with that process when participants can join.
func Run(ctx context.Context, s *sfu.Server, ready func(*os.Process)) error {
	opts, err := json.Marshal(s.Options())
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it ends in order, with its input
	cmd.Env = append(os.Environ(), serverOptions+"="+string(opts), "GORACE=report_bugs=0")
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe() // they fail only when they are set already
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the LiveKit server's process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == upLine {
			ready(cmd.Process)
		}
	}
	return cmd.Wait()
}
