#define _GNU_SOURCE
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __GLIBC__
#error "constructors have the arguments of the program with glibc only"
#endif

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no list of system calls for this processor"
#endif

// Landlock's interface, linux/landlock.h, which is newer than the headers of some distributions.
#define SYS_LANDLOCK_CREATE 444
#define SYS_LANDLOCK_ADD 445
#define SYS_LANDLOCK_RESTRICT 446
#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ (1ULL << 2 | 1ULL << 3) // files and folders
#define NET_CONNECT_TCP (1ULL << 1)
#define NET_ALL 3ULL  // bind, connect
#define SCOPE_ALL 3ULL // abstract sockets, signals
struct ruleset {
	uint64_t fs, net, scoped;
};
struct path_rule {
	uint64_t access;
	int32_t parent;
} __attribute__((packed));
struct port_rule {
	uint64_t access, port;
};

// computing are the system calls of threads, memory, time, and of files that are open.
static const int computing[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_lseek, SYS_fstat, SYS_close, SYS_munmap, SYS_mremap,
	SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity,
	SYS_getcpu, SYS_membarrier, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday,
	SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_getpid, SYS_gettid,
	SYS_getrandom, SYS_getrusage, SYS_getrlimit, SYS_setrlimit, SYS_sysinfo, SYS_uname, SYS_epoll_create1, SYS_epoll_ctl,
	SYS_epoll_pwait, SYS_ppoll, SYS_eventfd2, SYS_exit, SYS_exit_group,
#ifdef __x86_64__
	SYS_time, SYS_poll, SYS_arch_prctl,
#endif
};

// running are the further system calls of usual programs.
static const int running[] = {
	SYS_openat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_faccessat,
	SYS_faccessat2, SYS_fcntl, SYS_dup, SYS_dup3, SYS_pipe2, SYS_pselect6, SYS_pwrite64, SYS_preadv, SYS_pwritev,
	SYS_msync, SYS_fsync, SYS_mincore, SYS_ftruncate, SYS_fallocate, SYS_fadvise64, SYS_execve, SYS_wait4, SYS_waitid,
	SYS_set_tid_address, SYS_get_robust_list, SYS_close_range, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_sigpending, SYS_getppid,
	SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_getresuid, SYS_getresgid, SYS_getpgid, SYS_getsid,
	SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_get_mempolicy,
	SYS_getpriority, SYS_mlock, SYS_munlock, SYS_capget, SYS_umask, SYS_times, SYS_timer_create, SYS_timer_settime, SYS_timer_delete,
	SYS_setitimer, SYS_timerfd_create, SYS_timerfd_settime, SYS_signalfd4, 462, // mseal
#ifdef __x86_64__
	SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_pipe, SYS_dup2, SYS_select, SYS_getpgrp, SYS_alarm,
	SYS_epoll_create, SYS_epoll_wait,
#endif
};

// forking are those of scripts: their processes together may use more than one process's limits.
static const int forking[] = {
	SYS_memfd_create,
#ifdef __x86_64__
	SYS_fork, SYS_vfork,
#endif
};

// connecting are the system calls of a client of TCP, besides socket, sendto and sendmsg. Landlock has the port.
static const int connecting[] = {SYS_connect, SYS_recvfrom, SYS_recvmsg, SYS_shutdown, SYS_getsockname,
								 SYS_getpeername, SYS_getsockopt, SYS_setsockopt};

// tried are system calls that libraries try, and do without: they fail, in place of ending the process.
static const int tried[] = {
	SYS_openat, SYS_newfstatat, SYS_statx, SYS_readlinkat, SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_fcntl, SYS_ioctl, SYS_socket,
	SYS_sched_setscheduler, SYS_sched_setaffinity, SYS_sched_getscheduler, SYS_sched_getparam, SYS_setpriority, SYS_get_mempolicy,
	SYS_mlock, SYS_munlock, SYS_memfd_create, SYS_ftruncate, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getppid, SYS_pipe2,
	SYS_dup, SYS_dup3, SYS_set_mempolicy, SYS_mbind, SYS_getpriority, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_times,
	462, // mseal, of newer versions of glibc
#ifdef __x86_64__
	SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink,
#endif
};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

// filter is a program of the kernel's seccomp filter.
typedef struct {
	struct sock_filter code[512];
	unsigned short n;
} filter;

static void add(filter *f, unsigned short code, unsigned char yes, unsigned char no, unsigned k) {
	if (f->n == COUNT(f->code)) abort();
	f->code[f->n++] = (struct sock_filter){code, yes, no, k};
}

static void answer(filter *f, const int *calls, int n, unsigned with) {
	for (int i = 0; i < n; i++) {
		add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls[i]);
		add(f, BPF_RET | BPF_K, 0, 0, with);
	}
}

// load loads the lower half of an argument.
static void load(filter *f, int arg) { add(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args) + 8 * arg); }

// allow_if allows a call if all bits of mask in an argument are those of one of the values, and otherwise refuses it.
static void allow_if(filter *f, int call, int arg, unsigned mask, const unsigned *values, int n, unsigned otherwise) {
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 3 + 2 * n, call);
	load(f, arg);
	add(f, BPF_ALU | BPF_AND | BPF_K, 0, 0, mask);
	for (int i = 0; i < n; i++) {
		add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, values[i]);
		add(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
	}
	add(f, BPF_RET | BPF_K, 0, 0, otherwise);
}

static const unsigned refused = SECCOMP_RET_ERRNO | EPERM;

// begin begins a filter with what all have: this machine's calls only, and calls on processes for this process only.
static void begin(filter *f) {
	const unsigned self[] = {0, getpid()}, options[] = {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, 0x53564d41 /* PR_SET_VMA */};
	f->n = 0;
	add(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
	add(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
	add(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	add(f, BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000); // calls of x32
	add(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
#endif
	answer(f, computing, COUNT(computing), SECCOMP_RET_ALLOW);
	answer(f, (int[]){SYS_clone3}, 1, SECCOMP_RET_ERRNO | ENOSYS); // its flags are not visible; libraries use clone then
	allow_if(f, SYS_prlimit64, 0, ~0U, self, 2, refused);
	allow_if(f, SYS_tgkill, 0, ~0U, self + 1, 1, refused);
	allow_if(f, SYS_prctl, 0, ~0U, options, COUNT(options), refused);
}

static int install(filter *f, unsigned otherwise, unsigned flags) {
	add(f, BPF_RET | BPF_K, 0, 0, otherwise);
	struct sock_fprog prog = {f->n, f->code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) ? errno : 0;
}

// in_trial is set if a refused call fails, in place of ending the process.
static volatile sig_atomic_t in_trial;

// names of the calls of Linux 5.10.
#define N(name) {SYS_##name, #name},
static const struct {
	int call;
	const char *name;
} names[] = {
	N(accept) N(accept4) N(acct) N(add_key) N(adjtimex) N(bind) N(bpf) N(brk) N(capget) N(capset) N(chdir) N(chroot) N(clock_adjtime)
	N(clock_getres) N(clock_gettime) N(clock_nanosleep) N(clock_settime) N(clone) N(clone3) N(close) N(close_range) N(connect)
	N(copy_file_range) N(delete_module) N(dup) N(dup3) N(epoll_create1) N(epoll_ctl) N(epoll_pwait) N(eventfd2) N(execve) N(execveat)
	N(exit) N(exit_group) N(faccessat) N(faccessat2) N(fadvise64) N(fallocate) N(fanotify_init) N(fanotify_mark) N(fchdir) N(fchmod)
	N(fchmodat) N(fchown) N(fchownat) N(fcntl) N(fdatasync) N(fgetxattr) N(finit_module) N(flistxattr) N(flock) N(fremovexattr)
	N(fsconfig) N(fsetxattr) N(fsmount) N(fsopen) N(fspick) N(fstat) N(fstatfs) N(fsync) N(ftruncate) N(futex) N(get_mempolicy)
	N(get_robust_list) N(getcpu) N(getcwd) N(getdents64) N(getegid) N(geteuid) N(getgid) N(getgroups) N(getitimer) N(getpeername)
	N(getpgid) N(getpid) N(getppid) N(getpriority) N(getrandom) N(getresgid) N(getresuid) N(getrlimit) N(getrusage) N(getsid)
	N(getsockname) N(getsockopt) N(gettid) N(gettimeofday) N(getuid) N(getxattr) N(init_module) N(inotify_add_watch) N(inotify_init1)
	N(inotify_rm_watch) N(io_cancel) N(io_destroy) N(io_getevents) N(io_pgetevents) N(io_setup) N(io_submit) N(io_uring_enter)
	N(io_uring_register) N(io_uring_setup) N(ioctl) N(ioprio_get) N(ioprio_set) N(kcmp) N(kexec_file_load) N(kexec_load) N(keyctl)
	N(kill) N(lgetxattr) N(linkat) N(listen) N(listxattr) N(llistxattr) N(lookup_dcookie) N(lremovexattr) N(lseek) N(lsetxattr)
	N(madvise) N(mbind) N(membarrier) N(memfd_create) N(migrate_pages) N(mincore) N(mkdirat) N(mknodat) N(mlock) N(mlock2) N(mlockall)
	N(mmap) N(mount) N(move_mount) N(move_pages) N(mprotect) N(mq_getsetattr) N(mq_notify) N(mq_open) N(mq_timedreceive) N(mq_timedsend)
	N(mq_unlink) N(mremap) N(msgctl) N(msgget) N(msgrcv) N(msgsnd) N(msync) N(munlock) N(munlockall) N(munmap) N(name_to_handle_at)
	N(nanosleep) N(newfstatat) N(open_by_handle_at) N(open_tree) N(openat) N(openat2) N(perf_event_open) N(personality) N(pidfd_getfd)
	N(pidfd_open) N(pidfd_send_signal) N(pipe2) N(pivot_root) N(pkey_alloc) N(pkey_free) N(pkey_mprotect) N(ppoll) N(prctl) N(pread64)
	N(preadv) N(preadv2) N(prlimit64) N(process_madvise) N(process_vm_readv) N(process_vm_writev) N(pselect6) N(ptrace) N(pwrite64)
	N(pwritev) N(pwritev2) N(quotactl) N(read) N(readahead) N(readlinkat) N(readv) N(reboot) N(recvfrom) N(recvmmsg) N(recvmsg)
	N(remap_file_pages) N(removexattr) N(renameat) N(renameat2) N(request_key) N(restart_syscall) N(rseq) N(rt_sigaction)
	N(rt_sigpending) N(rt_sigprocmask) N(rt_sigqueueinfo) N(rt_sigreturn) N(rt_sigsuspend) N(rt_sigtimedwait) N(rt_tgsigqueueinfo)
	N(sched_get_priority_max) N(sched_get_priority_min) N(sched_getaffinity) N(sched_getattr) N(sched_getparam) N(sched_getscheduler)
	N(sched_rr_get_interval) N(sched_setaffinity) N(sched_setattr) N(sched_setparam) N(sched_setscheduler) N(sched_yield) N(seccomp)
	N(semctl) N(semget) N(semop) N(semtimedop) N(sendfile) N(sendmmsg) N(sendmsg) N(sendto) N(set_mempolicy) N(set_robust_list)
	N(set_tid_address) N(setdomainname) N(setfsgid) N(setfsuid) N(setgid) N(setgroups) N(sethostname) N(setitimer) N(setns) N(setpgid)
	N(setpriority) N(setregid) N(setresgid) N(setresuid) N(setreuid) N(setrlimit) N(setsid) N(setsockopt) N(settimeofday) N(setuid)
	N(setxattr) N(shmat) N(shmctl) N(shmdt) N(shmget) N(shutdown) N(sigaltstack) N(signalfd4) N(socket) N(socketpair) N(splice)
	N(statfs) N(statx) N(swapoff) N(swapon) N(symlinkat) N(sync) N(sync_file_range) N(syncfs) N(sysinfo) N(syslog) N(tee) N(tgkill)
	N(timer_create) N(timer_delete) N(timer_getoverrun) N(timer_gettime) N(timer_settime) N(timerfd_create) N(timerfd_gettime)
	N(timerfd_settime) N(times) N(tkill) N(truncate) N(umask) N(umount2) N(uname) N(unlinkat) N(unshare) N(userfaultfd) N(utimensat)
	N(vhangup) N(vmsplice) N(wait4) N(waitid) N(write) N(writev)
#ifdef __x86_64__
	N(lstat) N(stat) N(access) N(alarm) N(arch_prctl) N(chmod) N(chown) N(creat) N(dup2) N(epoll_create) N(epoll_wait) N(eventfd) N(fork)
	N(futimesat) N(get_thread_area) N(getdents) N(getpgrp) N(inotify_init) N(ioperm) N(iopl) N(lchown) N(link) N(mkdir) N(mknod) N(modify_ldt)
	N(open) N(pause) N(pipe) N(poll) N(readlink) N(rename) N(rmdir) N(select) N(set_thread_area) N(signalfd) N(symlink) N(sysfs) N(time)
	N(unlink) N(ustat) N(utime) N(utimes) N(vfork)
#endif
};
#undef N

// on_refused is the handler of SIGSYS: signal-safe code only.
static void on_refused(int sig, siginfo_t *info, void *context) {
	char line[96] = "refused system call ", *end = line + strlen(line), digits[12];
	int n = 0, call = info->si_syscall;
	for (int left = call; n == 0 || left; left /= 10) digits[n++] = '0' + left % 10;
	while (n) *end++ = digits[--n];
	for (int i = 0; i < COUNT(names); i++)
		if (names[i].call == call) {
			*end++ = ' ';
			end = stpcpy(end, names[i].name);
		}
	*end++ = '\n';
	if (!in_trial) {
		if (write(STDERR_FILENO, line, end - line) < 0) _exit(127);
		_exit(128 + sig);
	}
	ucontext_t *at = context;
#ifdef __x86_64__
	at->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
	at->uc_mcontext.regs[0] = -EPERM;
#endif
}

int tl_pure(int trial) {
	const unsigned thread[] = {CLONE_THREAD}, private[] = {0}; // shared memory has no limit
	struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	in_trial = trial;
	if (sigaction(SIGSYS, &action, NULL)) return errno;
	static filter f; // large for a stack of Go
	begin(&f);
	allow_if(&f, SYS_clone, 0, CLONE_THREAD, thread, 1, refused);
	allow_if(&f, SYS_mmap, 3, 1 /* MAP_SHARED */, private, 1, refused);
	answer(&f, tried, COUNT(tried), SECCOMP_RET_ERRNO | EACCES);
	return install(&f, SECCOMP_RET_TRAP, SECCOMP_FILTER_FLAG_TSYNC);
}

// allow_tcp allows what a client of TCP over IPv4 needs. Landlock does not check the port of multipath TCP and of data with MSG_FASTOPEN.
static void allow_tcp(filter *f) {
	const unsigned none[] = {0}, inet[] = {AF_INET};
	answer(f, connecting, COUNT(connecting), SECCOMP_RET_ALLOW);
	allow_if(f, SYS_sendto, 3, MSG_FASTOPEN, none, 1, SECCOMP_RET_ERRNO | EACCES);
	allow_if(f, SYS_sendmsg, 2, MSG_FASTOPEN, none, 1, SECCOMP_RET_ERRNO | EACCES);
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 8, SYS_socket);
	load(f, 1);
	add(f, BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xf);
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SOCK_STREAM);
	add(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EACCES);
	load(f, 2);
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0);
	add(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, IPPROTO_TCP);
	add(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EACCES);
	add(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
	allow_if(f, SYS_socket, 0, ~0U, inet, 1, SECCOMP_RET_ERRNO | EACCES);
}

// filter_program installs the filter of another program, with TCP if tcp is set, and with processes of its own if forks is. All that is
// not allowed fails.
static int filter_program(int tcp, int forks) {
	const unsigned spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
	const unsigned thread[] = {forks ? 0 : CLONE_THREAD}, self[] = {getpid()}, controls[] = {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX};
	static filter f;
	begin(&f);
	answer(&f, running, COUNT(running), SECCOMP_RET_ALLOW);
	answer(&f, (int[]){SYS_mmap}, 1, SECCOMP_RET_ALLOW);
	if (forks) answer(&f, forking, COUNT(forking), SECCOMP_RET_ALLOW);
	allow_if(&f, SYS_clone, 0, forks ? spaces : spaces | CLONE_THREAD, thread, 1, refused);
	allow_if(&f, SYS_kill, 0, ~0U, self, 1, refused);
	allow_if(&f, SYS_ioctl, 1, ~0U, controls, COUNT(controls), SECCOMP_RET_ERRNO | ENOTTY);
	if (tcp) allow_tcp(&f);
	return install(&f, refused, 0);
}

static int landlock_version(void) {
	long n = syscall(SYS_LANDLOCK_CREATE, NULL, 0, 1);
	return n < 0 ? 0 : (int)n;
}

int tl_available(void) {
	unsigned action = SECCOMP_RET_TRAP;
	return landlock_version() + (syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &action) ? 0 : TL_SECCOMP);
}

// ruleset makes a set of Landlock that allows nothing, of what this version knows; -1 for none.
static int ruleset(int version) {
	static const uint64_t fs[] = {0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff};
	if (version < 1) return -1;
	struct ruleset all = {fs[version > 5 ? 4 : version - 1], version > 3 ? NET_ALL : 0, version > 5 ? SCOPE_ALL : 0};
	return syscall(SYS_LANDLOCK_CREATE, &all, version > 5 ? 24 : version > 3 ? 16 : 8, 0);
}

static int allow_path(int rules, const char *path, uint64_t access) {
	struct path_rule rule = {access, open(path, O_PATH | O_CLOEXEC)};
	struct stat st;
	if (rule.parent < 0) return 0; // this machine has no such folder
	if (!fstat(rule.parent, &st) && !S_ISDIR(st.st_mode)) rule.access &= FS_EXECUTE | FS_WRITE_FILE | 1ULL << 2;
	long err = syscall(SYS_LANDLOCK_ADD, rules, 1, &rule, 0);
	close(rule.parent);
	return err;
}

static void fail(const char *what, const char *name) {
	fprintf(stderr, "%s %s: %s\n", what, name, strerror(errno));
	_exit(126);
}

// limit sets a resource limit, "resource value"; never above the present one.
static void limit(char *text) {
	int resource = strtol(text, &text, 10);
	rlim_t most = strtoull(text, NULL, 10);
	struct rlimit now;
	if (getrlimit(resource, &now)) fail("read the limit", text);
	if (most > now.rlim_max) most = now.rlim_max;
	now.rlim_cur = now.rlim_max = most;
	if (setrlimit(resource, &now)) fail("set the limit", text);
}

static void prefer_killing(const char *score) {
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0) return; // no /proc
	if (write(fd, score, strlen(score)) < 0) errno = 0; // the score was higher already
	close(fd);
}

// close_from closes all descriptors from first on.
static void close_from(int first) {
	if (!syscall(436 /* close_range */, first, ~0U, 0)) return;
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	for (int fd = first; fd < (int)files.rlim_cur && fd < 1 << 16; fd++) close(fd);
}

static void end_group(int sig) {
	(void)sig;
	kill(0, SIGKILL);
}

// supervise returns in a new process, for a script. This process ends as that one does, and kills its group, with all that the script
// started, when its own parent ends.
static void supervise(void) {
	int status = 0;
	signal(SIGTERM, end_group); // exec restores the default
	if (prctl(PR_SET_PDEATHSIG, SIGTERM)) fail("wait for", "the parent's end");
	pid_t script = fork();
	if (script < 0) fail("start", "a process");
	if (!script) return;
	while (waitpid(script, &status, 0) < 0 && errno == EINTR);
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	_exit(WEXITSTATUS(status));
}

// launch runs in a process that child.start started: it gives up what a plan names and becomes another program. Its arguments are the plan,
// the program's path and its arguments.
__attribute__((constructor)) static void launch(int argc, char **argv) {
	if (argc < 4 || strcmp(argv[0], "touchline-child")) return;
	int version = landlock_version(), rules = ruleset(version), seccomp = 0, tcp = 0, forks = 0;
	char *save, *limits[16];
	int n = 0;
	for (char *line = strtok_r(argv[1], "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = line + 2;
		uint64_t access = 0;
		switch (*line) {
		case 'c': close_from(atoi(value)); rules = ruleset(version); break; // the set was closed as well
		case 'o': prefer_killing(value); break;
		case 'n': if (nice(atoi(value)) < 0) errno = 0; break;
		case 'l': if (n < COUNT(limits)) limits[n++] = value; break;
		case 's': seccomp = 1; break;
		case 'f': forks = 1; break;
		case 'x': access = FS_EXECUTE | FS_READ; break;
		case 'w': access = FS_WRITE_FILE | FS_READ; break;
		case 'r': access = FS_READ; break;
		case 't':
			tcp = 1;
			struct port_rule port = {NET_CONNECT_TCP, strtoull(value, NULL, 10)};
			if (rules >= 0 && version > 3 && syscall(SYS_LANDLOCK_ADD, rules, 2, &port, 0)) fail("allow the port", value);
		}
		if (access && rules >= 0 && allow_path(rules, value, access)) fail("allow", value);
	}
	for (int i = 0; i < n; i++) limit(limits[i]);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("give up", "privileges");
	if (rules >= 0 && (syscall(SYS_LANDLOCK_RESTRICT, rules, 0) || close(rules))) fail("give up", "files");
	if (forks) supervise();
	if (seccomp) filter_program(tcp, forks); // a container may refuse it; `touchline check` says so
	execv(argv[2], argv + 3);
	fail("start", argv[2]);
}
