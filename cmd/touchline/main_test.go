//go:build integration && !nodemo

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain creates one folder for all tests, with the programs in ./bin and the
// page, as in a checkout after make.
func TestMain(m *testing.M) {
	if where := os.Getenv(crashVariable); where != "" {
		crashIn(where)
		main() // ends the process
	}
	ranAsProgram()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "touchline-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = furnish(dir)
	}
	if err == nil {
		err = os.Chdir(dir)
	}
	if err == nil { // for tests that run this program as touchline
		err = os.Setenv("PATH", filepath.Join(dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the tests:", err)
		return 1
	}
	return m.Run()
}

const webDist = "agent/console/web/dist"

// furnish links the programs that make has built (in TOUCHLINE_BIN), or builds
// them, and links the page.
func furnish(dir string) error {
	dist := filepath.Join(moduleRoot, webDist)
	if _, err := os.Stat(filepath.Join(dist, "index.html")); err != nil {
		return fmt.Errorf("expected the built page: %w; run make web", err)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, webDist)), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(dist, filepath.Join(dir, webDist)); err != nil {
		return err
	}
	if built := os.Getenv("TOUCHLINE_BIN"); built != "" {
		return os.Symlink(built, filepath.Join(dir, "bin"))
	}
	build := exec.Command("go", "build", "-tags", "nolibopusfile,builtinassets", "-o", filepath.Join(dir, "bin")+"/",
		"./cmd/touchline", "./cmd/touchline-codec", "./cmd/touchline-model")
	build.Dir, build.Stderr = moduleRoot, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

// program is touchline as a process of its own.
type program struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of its end, set before done

	announced chan string // the first address that it prints

	mu  sync.Mutex
	log []string
	out strings.Builder
}

// startWait bounds the start of a program.
const startWait = 3 * time.Minute

// start runs touchline and waits for the address of its page.
func start(t *testing.T, env []string, args ...string) (p *program, url string) {
	t.Helper()
	p = launch(t, env, args...)
	select {
	case url = <-p.announced:
	case <-p.done:
		require.FailNow(t, "the program ended at once", p.err)
	case <-time.After(startWait):
		require.FailNow(t, "the program announced no page")
	}
	return p, url
}

// settingless returns the environment without the tests' own variables, which are not settings.
func settingless() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOUCHLINE_") })
}

// launch runs touchline until the test ends.
func launch(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{done: make(chan struct{}), announced: make(chan string, 1)}
	p.cmd = exec.Command("./bin/touchline", args...)
	// Where its networks are installed, auto is sight, which has a test of its own.
	p.cmd.Env = append(settingless(), "TOUCHLINE_INFERENCE_SIGHT_BUNDLE=/nowhere")
	if slices.Contains(args, "demo") { // nano has a test of its own, and takes a core
		p.cmd.Env = append(p.cmd.Env, "TOUCHLINE_INFERENCE_ENGINE=scene")
		// The tests count comments, and scene has few sentences.
		p.cmd.Env = append(p.cmd.Env, "TOUCHLINE_AGENT_REPEATS=allow")
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	complaints, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	var readers sync.WaitGroup
	readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.out.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			if _, address, ok := strings.Cut(lines.Text(), "http"); ok {
				select {
				case p.announced <- "http" + strings.TrimSpace(address):
				default:
				}
			}
		}
	})
	readers.Go(func() { p.keep(complaints) })
	go func() {
		readers.Wait()
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		// A stopped process must continue in order to end.
		for _, pid := range family(p.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("the program prints:\n%s", p.output())
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("the program's log:\n%s", strings.Join(p.log, "\n"))
		}
	})
	return p
}

// output returns the output so far.
func (p *program) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// says waits until the output contains a text.
func (p *program) says(t *testing.T, words string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.output(), words) }, startWait, 20*time.Millisecond,
		"it prints %q", words)
}

func (p *program) keep(r io.Reader) {
	const most = 400
	for lines := bufio.NewScanner(r); lines.Scan(); {
		p.mu.Lock()
		if p.log = append(p.log, lines.Text()); len(p.log) > most {
			p.log = p.log[1:]
		}
		p.mu.Unlock()
	}
}

// interrupt sends Ctrl-C and returns the time until the end.
func (p *program) interrupt(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	select {
	case <-p.done:
	case <-time.After(startWait):
		require.FailNow(t, "the program does not end")
	}
	return time.Since(begin)
}

// exitCode returns the exit code.
func (p *program) exitCode() int {
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
