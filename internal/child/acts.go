package child

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// act is what a confined program must not do. try returns nil if the kernel let it.
type act struct {
	name string
	try  func(parent int) error
	// landlock is the version of Landlock that refuses it in a program that is not Pure, 0 if the filter does.
	landlock int
}

// acts are the twelve forbidden acts.
func acts() []act {
	open := func(path string, flags int) error {
		n, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(n)
		}
		return err
	}
	socket := func(domain, kind, protocol int) error {
		n, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			_ = unix.Close(n)
		}
		return err
	}
	void := []byte("/nonexistent\x00")
	path := func() uintptr { return uintptr(unsafe.Pointer(&void[0])) } //nolint:gosec // an argument of the system call
	at := unix.AT_FDCWD
	return []act{
		{"read a file", func(int) error { return open("/etc/passwd", unix.O_RDONLY) }, 1},
		{"create a file", func(int) error { return open(os.TempDir()+"/touchline-act", unix.O_WRONLY|unix.O_CREAT) }, 1},
		{"delete or rename a file", func(int) error {
			return either(call(unix.SYS_UNLINKAT, uintptr(at), path()), call(unix.SYS_RENAMEAT2, uintptr(at), path(), uintptr(at), path()))
		}, 0},
		{"start a program", func(int) error {
			_, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
			return err
		}, 1},
		{"connect to a port", func(int) error { return connect() }, portVersion},
		{"open another kind of socket", func(int) error {
			return either(socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), socket(unix.AF_NETLINK, unix.SOCK_RAW, 0),
				socket(unix.AF_INET, unix.SOCK_DGRAM, 0), socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP))
		}, 0},
		{"signal the parent", func(p int) error { return either(unix.Kill(p, 0), unix.Tgkill(p, p, 0)) }, 0},
		{"read the parent's memory", func(p int) error {
			return either(call(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA, uintptr(p)), call(unix.SYS_PROCESS_VM_READV, uintptr(p)),
				open(fmt.Sprintf("/proc/%d/environ", p), unix.O_RDONLY))
		}, 1},
		{"take a descriptor of the parent", func(p int) error {
			return either(call(unix.SYS_PIDFD_OPEN, uintptr(p)), call(unix.SYS_PIDFD_GETFD, 0))
		}, 0},
		{"change the parent's limits", func(p int) error {
			return either(unix.Prlimit(p, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}), call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, uintptr(p), 1))
		}, 0},
		{"make namespaces", func(int) error {
			return either(call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), call(unix.SYS_SETNS, 0), call(unix.SYS_MOUNT), call(unix.SYS_CHROOT, path()))
		}, 0},
		{"use other interfaces of the kernel", func(int) error {
			var err error = unix.EPERM
			for _, nr := range []uintptr{unix.SYS_BPF, unix.SYS_KEYCTL, unix.SYS_IO_URING_SETUP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD} {
				err = either(err, call(nr))
			}
			return err
		}, 0},
	}
}

// either returns nil if one of several attempts was not refused. An attempt that fails for other reasons was not.
func either(attempts ...error) error {
	for _, err := range attempts {
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return nil
		}
	}
	return unix.EPERM
}

func call(nr uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0, 0, 0, 0)
	if _, _, err := unix.Syscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5]); err != 0 {
		return err
	}
	return nil
}

func connect() error {
	n, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	to := &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}}
	return either(unix.Sendto(n, []byte("x"), unix.MSG_FASTOPEN, to), unix.Connect(n, to))
}

// Try tries the forbidden acts in this process, those on another one with parent, and returns an error with those that were not refused.
// Acts that only a newer version of Landlock refuses are not tried, and returned as skipped.
func Try(parent, landlock int) (skipped []string, err error) {
	var let []string
	for _, a := range acts() {
		switch {
		case a.landlock > landlock:
			skipped = append(skipped, a.name)
		case either(a.try(parent)) == nil:
			let = append(let, a.name)
		}
	}
	if len(let) > 0 {
		err = fmt.Errorf("not refused: %s", strings.Join(let, ", "))
	}
	return skipped, err
}
