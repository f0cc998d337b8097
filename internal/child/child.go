// Package child starts programs of the machine that parse untrusted input: codecs, ffmpeg, voices, recognizers. They get none of this
// process's environment, descriptors and privileges; limits of memory and time; and, as far as the kernel has seccomp and Landlock, no
// files but their own and their input, no other programs, and no network but one port. They are killed when this process ends, with what a
// script among them started. If all together use too much memory, the largest is killed. The package also finds touchline-model, which
// runs without limits in this environment.
//
// A program is started by this same executable: its constructor (confine.c) gives up what the program must not have, before Go begins,
// and becomes the program.
package child

// #include "confine.h"
import "C"

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxLog bounds the standard error that Run returns.
	maxLog = 4 << 10
	// waitDelay bounds the wait for the pipes of a program that has ended: what it wrote is read late on a busy machine.
	waitDelay = 10 * time.Second
	// score makes the kernel kill programs before this process when memory is short, see proc(5).
	score = 700
	// portVersion is the first version of Landlock that checks ports.
	portVersion = 4
	// defaultMemory and defaultFiles are the limits of a program unless it has its own.
	defaultMemory = 1 << 30
	defaultFiles  = 64
	// maxFile is for files that a script's programs have in memory.
	maxFile = 128 << 20
)

// Refused begins the last line of a process that a refused system call ended (confine.c).
const Refused = "refused system call "

// Limits are what a program may use. The zero value is for a short computation.
type Limits struct {
	// Memory is the address space in bytes, 0 for 1 GiB.
	Memory uint64
	// CPU is the time on a processor, in seconds, 0 for no limit.
	CPU uint64
	// Files is the number of descriptors, 0 for 64.
	Files uint64
	// Nice is how much lower than this process's its priority is.
	Nice int
	// Read are the files and folders of its input, in addition to the system's programs and libraries.
	Read []string
	// Port is the port of TCP over IPv4 that it may connect to, 0 for none.
	Port int
	// Self is set for a program of this project, which limits its memory and its system calls itself.
	Self bool
}

// Start starts a command with limits, in an environment of PATH, a locale and the given variables (with Self, of these alone). wait waits
// for its end. Call it in the goroutine of Start: the kernel kills the program when the thread that started it ends.
func Start(cmd *exec.Cmd, l Limits, env ...string) (wait func() error, err error) {
	plan, script, err := l.plan(cmd)
	if err != nil {
		return nil, err
	}
	cmd.Env = append([]string{"MALLOC_ARENA_MAX=1"}, env...)
	if !l.Self {
		cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8")
	}
	cmd.Args = slices.Concat([]string{"touchline-child", plan, cmd.Path}, cmd.Args)
	cmd.Path = "/proc/self/exe"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, waitDelay)
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("start %s: %w", cmd.Args[2], err)
	}
	all.add(cmd.Process.Pid, script)
	return func() error {
		defer runtime.UnlockOSThread()
		// The processes that a script started are killed before its own is reaped: until then the group's number is not used anew.
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		reason := all.remove(cmd.Process.Pid)
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		if err = cmd.Wait(); err != nil && reason != nil {
			err = fmt.Errorf("%w: %w", err, reason)
		}
		return err
	}, nil
}

// plan returns the lines for launch in confine.c, and whether the program is a script.
func (l Limits) plan(cmd *exec.Cmd) (plan string, script bool, err error) {
	if cmd.Err != nil {
		return "", false, cmd.Err
	}
	path, err := filepath.EvalSymlinks(cmd.Path)
	if err != nil {
		return "", false, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	lines := []string{fmt.Sprintf("c %d", 3+len(cmd.ExtraFiles)), fmt.Sprintf("o %d", score), fmt.Sprintf("n %d", l.Nice)}
	limit := func(resource int, most uint64) { lines = append(lines, fmt.Sprintf("l %d %d", resource, most)) }
	limit(unix.RLIMIT_CORE, 0)
	limit(unix.RLIMIT_FSIZE, maxFile)
	limit(unix.RLIMIT_NOFILE, cmp.Or(l.Files, defaultFiles))
	if l.CPU > 0 {
		limit(unix.RLIMIT_CPU, l.CPU)
	}
	if !l.Self {
		limit(unix.RLIMIT_AS, cmp.Or(l.Memory, defaultMemory))
		lines = append(lines, "s ")
	}
	runs, script := runnable(path)
	if script {
		lines = append(lines, "f ")
	}
	if l.Port > 0 {
		lines = append(lines, fmt.Sprintf("t %d", l.Port))
	}
	for _, name := range append(runs, path) {
		lines = append(lines, "x "+name)
	}
	for _, name := range slices.Concat(system(), []string{filepath.Join(filepath.Dir(path), "../lib")}, l.Read) {
		lines = append(lines, "r "+name)
	}
	lines = append(lines, "w /dev/null")
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "\n") }) {
		return "", false, fmt.Errorf("start %s: a path with a line break cannot be allowed", cmd.Path)
	}
	return strings.Join(lines, "\n"), script, nil
}

// system are the files and folders with programs, libraries and their data.
func system() []string {
	return []string{
		"/usr", "/lib", "/lib64", "/bin", "/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew",
		"/etc/ld.so.cache", "/etc/ssl", "/etc/localtime",
		"/dev/urandom", "/dev/zero", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system",
	}
}

// runnable returns what a program runs besides itself: its loader, or for a script any program of the system.
func runnable(path string) (names []string, script bool) {
	f, err := elf.Open(path)
	if err != nil {
		return []string{"/usr", "/bin", "/lib", "/lib64", "/nix/store", "/gnu/store"}, true
	}
	defer f.Close()
	if s := f.Section(".interp"); s != nil {
		if name, err := s.Data(); err == nil {
			return []string{string(bytes.TrimRight(name, "\x00"))}, false
		}
	}
	return nil, false
}

// Run runs a command with limits. It returns the first most bytes of the standard output, and the beginning of the standard error.
func Run(cmd *exec.Cmd, l Limits, most int, env ...string) (out []byte, log string, err error) {
	stdout, stderr := &bounded{max: most}, &bounded{max: maxLog}
	cmd.Stdout = stdout
	if cmd.Stderr == nil {
		cmd.Stderr = stderr
	}
	wait, err := Start(cmd, l, env...)
	if err == nil {
		err = wait()
	}
	return stdout.text.Bytes(), stderr.text.String(), err
}

// bounded keeps the first max bytes written to it. The buffer is not embedded: io.Copy would find its ReadFrom, which has no bound.
type bounded struct {
	text bytes.Buffer
	max  int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.text.Write(p[:min(len(p), b.max-b.text.Len())])
	return len(p), nil
}

// Available describes the confinement that this kernel has, and whether it is all of it: ports are checked from Landlock 4 on.
func Available() (text string, all bool) {
	n := int(C.tl_available())
	parts := []string{"no seccomp", "no Landlock: programs may read files"}
	if n >= C.TL_SECCOMP {
		parts[0] = "seccomp"
	}
	version := n % C.TL_SECCOMP
	if version > 0 {
		parts[1] = fmt.Sprintf("Landlock %d", version)
	}
	return strings.Join(parts, ", "), n >= C.TL_SECCOMP && version >= portVersion
}

// Pure gives up, for good and in all threads, all system calls but those of computing: files, sockets, programs, other processes. In a
// trial such a call fails; otherwise it ends this process, whose last line names the call.
func Pure(trial bool) error {
	n := C.int(0)
	if trial {
		n = 1
	}
	if err := C.tl_pure(n); err != 0 {
		return fmt.Errorf("give up files and sockets: %w", syscall.Errno(err))
	}
	return nil
}
