package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ActsProgram begins the name of a copy of this program that tries the forbidden acts; the version of Landlock follows.
const ActsProgram = "acts-"

// allRefused is the exit status of ActsProgram if no act was possible, allTried if none was skipped either.
const allRefused, allTried = 70, 77

// TestMain is also the confined program, by the variable TRY or by its name.
func TestMain(m *testing.M) {
	program, _ := os.Readlink("/proc/self/exe")
	for _, name := range []string{program, os.Args[0]} { // a script runs it by the loader
		if _, version, ok := strings.Cut(filepath.Base(name), ActsProgram); ok {
			tryActs(version)
		}
	}
	switch os.Getenv("TRY") {
	case "":
		os.Exit(m.Run())
	case "acts":
		version, err := strconv.Atoi(os.Getenv("LANDLOCK"))
		ended(err)
		skipped, err := Try(os.Getppid(), version)
		fmt.Printf("skipped: %v\nerror: %v\n", skipped, err)
	case "pure":
		parent := os.Getppid()
		ended(Pure(true))
		_, err := Try(parent, math.MaxInt)
		fmt.Printf("error: %v\n", err)
	case "kill":
		ended(Pure(false))
		_ = unix.Unlink("/nonexistent")
		fmt.Println("not ended")
	case "state":
		var limit unix.Rlimit
		ended(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
		_, inherited := unix.FcntlInt(100, unix.F_GETFD, 0)
		fmt.Printf("files %d\nenvironment %v\ninherited %v\n", limit.Cur, os.Environ(), inherited)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "connect":
		c, err := net.DialTimeout("tcp4", os.Getenv("ADDRESS"), 5*time.Second)
		if err == nil {
			_ = c.Close()
		}
		fmt.Printf("error: %v\n", err)
	case "parent":
		cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
		cmd.Stdin = os.Stdin
		_, err := Start(cmd, Limits{Memory: 1 << 47}, "TRY=state")
		ended(err)
		fmt.Println(cmd.Process.Pid)
		select {}
	case "parent of a script":
		script := os.Getenv("SCRIPT")
		cmd := exec.CommandContext(context.Background(), script)
		cmd.Stdout = os.Stdout
		_, err := Start(cmd, Limits{Read: []string{script}})
		ended(err)
		select {}
	case "priority":
		priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		ended(err)
		fmt.Println("nice", 20-priority)
	case "fork":
		_, err := syscall.ForkExec("/proc/self/exe", []string{"touchline"}, nil)
		fmt.Println("fork:", err)
		_, err = unix.MemfdCreate("", 0)
		fmt.Println("memory:", err)
	case "allocate":
		n, err := strconv.Atoi(os.Getenv("BYTES"))
		ended(err)
		b := bytes.Repeat([]byte{1}, n)
		time.Sleep(10 * time.Minute)
		runtime.KeepAlive(b)
	case "read":
		_, err := os.ReadFile(os.Getenv("FILE"))
		fmt.Printf("error: %v\n", err)
	}
}

func tryActs(version string) {
	landlock, err := strconv.Atoi(version)
	ended(err)
	skipped, err := Try(os.Getppid(), landlock)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(skipped) > 0 {
		os.Exit(allRefused)
	}
	os.Exit(allTried)
}

func ended(err error) {
	if err != nil && !errors.Is(err, unix.EINVAL) {
		fmt.Println(err)
		os.Exit(3)
	}
}

// try runs this program confined.
func try(t *testing.T, l Limits, env ...string) (string, error) {
	t.Helper()
	l.Memory = 1 << 47 // Go reserves much address space
	out, log, err := Run(exec.CommandContext(t.Context(), self(t)), l, 1<<16, env...)
	return string(out) + log, err
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// landlock is this kernel's version of Landlock, 0 without.
func landlock(t *testing.T) int {
	t.Helper()
	text, _ := Available()
	_, text, found := strings.Cut(text, ", Landlock ")
	if !found {
		return 0
	}
	var version int
	_, err := fmt.Sscanf(text, "%d", &version)
	require.NoError(t, err)
	return version
}

// skipped reports acts that were not tried. Where everything must be tried it fails.
func skipped(t *testing.T, what string) {
	t.Helper()
	t.Log("skipped:", what)
	if os.Getenv("REQUIRE_CONFINEMENT") != "" {
		t.Errorf("not tried on this machine: %s", what)
	}
}

// TestForbiddenActs: a program with the filter of ffmpeg and the voices cannot do any of the acts, and a Pure one neither. As root the
// acts are tried as another user.
func TestForbiddenActs(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t)
		return
	}
	require.Len(t, acts(), 12)
	for _, l := range []Limits{{}, {Port: 2}} {
		out, err := try(t, l, "TRY=acts", fmt.Sprintf("LANDLOCK=%d", landlock(t)))
		require.NoError(t, err, out)
		require.Contains(t, out, "error: <nil>")
		if !strings.Contains(out, "skipped: []") {
			skipped(t, out)
		}
	}
	out, err := try(t, Limits{Self: true}, "TRY=pure")
	require.NoError(t, err, out)
	require.Contains(t, out, "error: <nil>")
}

// asNobody runs the test in this program as the user nobody.
func asNobody(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	program, err := os.ReadFile(self(t))
	require.NoError(t, err)
	copied := filepath.Join(dir, "child.test")
	require.NoError(t, os.WriteFile(copied, program, 0o755))
	cmd := exec.CommandContext(t.Context(), copied, "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Env, cmd.Dir = []string{"TMPDIR=/tmp", "REQUIRE_CONFINEMENT=" + os.Getenv("REQUIRE_CONFINEMENT")}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	t.Logf("%s", out)
}

// TestRefusedCallIsNamed: the last line of a Pure process names the call that ended it.
func TestRefusedCallIsNamed(t *testing.T) {
	out, err := try(t, Limits{Self: true}, "TRY=kill")
	require.EqualError(t, err, fmt.Sprintf("exit status %d", 128+int(unix.SIGSYS)))
	require.Equal(t, Refused+fmt.Sprintf("%d unlinkat\n", unix.SYS_UNLINKAT), out)
}

// TestWithoutLandlock: on a kernel that refuses Landlock programs run with the filter alone.
func TestWithoutLandlock(t *testing.T) {
	type result struct {
		out string
		err error
	}
	done := make(chan result)
	go func() { // its thread ends with it
		runtime.LockOSThread()
		if err := refuse(444); err != nil { // landlock_create_ruleset
			done <- result{"", err}
			return
		}
		out, err := try(t, Limits{}, "TRY=acts", "LANDLOCK=0") //nolint:testifylint // the test waits for it
		done <- result{out, err}
	}()
	r := <-done
	require.NoError(t, r.err, r.out)
	require.Contains(t, r.out, "error: <nil>")
	require.Contains(t, r.out, "skipped: [read a file create a file start a program connect to a port read the parent's memory]")
}

// refuse makes a system call unknown to this thread and its children.
func refuse(call uint32) error {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); err != 0 {
		return err
	}
	return nil
}

// TestStart: limits, environment, descriptors and the score for a lack of memory are in force when the program begins.
func TestStart(t *testing.T) {
	t.Setenv("LIVEKIT_API_SECRET", "hunter2")
	require.NoError(t, unix.Dup3(0, 100, 0)) // not closed by exec
	t.Cleanup(func() { _ = unix.Close(100) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, self(t))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	wait, err := Start(cmd, Limits{Memory: 1 << 47, Files: 77}, "TRY=state")
	require.NoError(t, err)
	text := make([]byte, 4096)
	n, err := io.ReadAtLeast(out, text, len("files"))
	require.NoError(t, err)
	state := string(text[:n])
	require.Contains(t, state, "files 77\nenvironment [MALLOC_ARENA_MAX=1 TRY=state PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8]\n")
	require.Contains(t, state, "inherited bad file descriptor\n")
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid))
	require.NoError(t, err)
	require.Equal(t, "700\n", string(score))
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
	require.NoError(t, err)
	require.Regexp(t, `Max address space +140737488355328 +140737488355328`, string(limits))
	require.Regexp(t, `Max core file size +0 +0`, string(limits))
	require.NoError(t, in.Close())
	require.NoError(t, wait())
}

// TestPriority: a program's priority is lower than that of the thread that starts it by Nice.
func TestPriority(t *testing.T) {
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	require.NoError(t, err)
	own := 20 - priority
	lower := func(by int) int { return min(own+by, 19) } // 19 is the lowest
	results := make(chan string)
	go func() { // its thread ends with it
		runtime.LockOSThread()
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lower(2)); err != nil {
			results <- err.Error()
			return
		}
		for _, nice := range []int{0, 3} {
			out, err := try(t, Limits{Nice: nice}, "TRY=priority") //nolint:testifylint // the test waits for it
			results <- fmt.Sprint(out, err)
		}
	}()
	require.Equal(t, fmt.Sprintf("nice %d\n<nil>", lower(2)), <-results)
	require.Equal(t, fmt.Sprintf("nice %d\n<nil>", lower(5)), <-results)
}

// TestProcessesOfScripts: what a script started ends with it, and a program starts no processes.
func TestProcessesOfScripts(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $!\n"), 0o755))
	out, log, err := Run(exec.CommandContext(t.Context(), script), Limits{Read: []string{script}}, 100)
	require.NoError(t, err, log)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	hasEnded(t, pid)

	text, err := try(t, Limits{}, "TRY=fork")
	require.NoError(t, err, text)
	require.Equal(t, "fork: operation not permitted\nmemory: operation not permitted\n", text)
}

// TestEndsWithItsParent: the kernel kills a program whose parent was killed, and what a script started ends too.
func TestEndsWithItsParent(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $!\nwait\n"), 0o755))
	for _, env := range [][]string{{"TRY=parent"}, {"TRY=parent of a script", "SCRIPT=" + script}} {
		parent := exec.CommandContext(t.Context(), self(t))
		parent.Env = env
		r, w, err := os.Pipe() // the program reads it until its end
		require.NoError(t, err)
		defer w.Close()
		parent.Stdin = r
		out, err := parent.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, parent.Start())
		require.NoError(t, r.Close())
		var pid int
		_, err = fmt.Fscan(out, &pid)
		require.NoError(t, err)
		require.NoError(t, unix.Kill(pid, 0))
		require.NoError(t, parent.Process.Kill())
		require.Error(t, parent.Wait())
		defer unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it has ended
		hasEnded(t, pid)
	}
}

// hasEnded waits for the end of a process.
func hasEnded(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	}, 20*time.Second, 10*time.Millisecond)
}

// TestEndOfAScript: a script's exit code and signal are those of its command.
func TestEndOfAScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	for line, want := range map[string]string{"exit 7": "exit status 7", "kill -KILL $$": "signal: killed", "kill -SEGV $$": "signal: segmentation fault"} {
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+line+"\n"), 0o755))
		_, log, err := Run(exec.CommandContext(t.Context(), script), Limits{Read: []string{script}}, 100)
		require.EqualError(t, err, want, log)
	}
}

// TestOutputIsBounded: a program's output beyond a bound is dropped.
func TestOutputIsBounded(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nhead -c 100000 /dev/zero; head -c 100000 /dev/zero >&2\n"), 0o755))
	out, log, err := Run(exec.CommandContext(t.Context(), script), Limits{Read: []string{script}}, 100)
	require.NoError(t, err)
	require.Len(t, out, 100)
	require.Len(t, log, maxLog)
}

// TestOnePort: a program connects to its port, and no other.
func TestOnePort(t *testing.T) {
	var ports [2]int
	for i := range ports {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is of TCP
	}
	for i, want := range []string{"error: <nil>", "permission denied"} {
		if i > 0 && landlock(t) < portVersion {
			skipped(t, "connect to another port")
			continue
		}
		out, err := try(t, Limits{Port: ports[0]}, "TRY=connect", fmt.Sprintf("ADDRESS=127.0.0.1:%d", ports[i]))
		require.NoError(t, err, out)
		require.Contains(t, out, want)
	}
}

// TestOwnInput: a program reads its input, and no other file.
func TestOwnInput(t *testing.T) {
	if landlock(t) == 0 {
		skipped(t, "read another file")
		return
	}
	dir := t.TempDir()
	own, other := filepath.Join(dir, "own"), filepath.Join(dir, "other")
	for _, name := range []string{own, other} {
		require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	}
	for name, want := range map[string]string{own: "error: <nil>", other: "permission denied"} {
		out, err := try(t, Limits{Read: []string{own}}, "TRY=read", "FILE="+name)
		require.NoError(t, err, out)
		require.Contains(t, out, want)
	}
}

// TestMissingProgram: the error names the program.
func TestMissingProgram(t *testing.T) {
	_, _, err := Run(exec.CommandContext(t.Context(), "/nonexistent"), Limits{}, 1)
	require.ErrorContains(t, err, "start /nonexistent: ")
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	_, log, err := Run(exec.CommandContext(t.Context(), text), Limits{}, 1)
	require.EqualError(t, err, "exit status 126")
	require.Equal(t, "start "+text+": Permission denied\n", log)
}
