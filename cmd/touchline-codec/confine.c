#include "libav.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define REFUSE(nr) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES)

int tl_confine(void) {
#ifdef ARCH
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __x86_64__
		// The x32 system call numbers would bypass the list.
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		REFUSE(SYS_open),
		REFUSE(SYS_creat),
		REFUSE(SYS_fork),
		REFUSE(SYS_vfork),
		REFUSE(SYS_unlink),
		REFUSE(SYS_rename),
#endif
		REFUSE(SYS_openat),
		REFUSE(SYS_openat2),
		REFUSE(SYS_unlinkat),
		REFUSE(SYS_renameat2),
		REFUSE(SYS_socket),
		REFUSE(SYS_socketpair),
		REFUSE(SYS_connect),
		REFUSE(SYS_bind),
		REFUSE(SYS_execve),
		REFUSE(SYS_execveat),
		REFUSE(SYS_kill),
		REFUSE(SYS_ptrace),
		REFUSE(SYS_process_vm_readv),
		REFUSE(SYS_process_vm_writev),
		REFUSE(SYS_mount),
		REFUSE(SYS_bpf),
		REFUSE(SYS_io_uring_setup),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(rules) / sizeof(rules[0]), rules};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog)) return errno;
	return 0;
#else
	return ENOSYS;
#endif
}
