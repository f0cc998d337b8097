// Confinement of a process by seccomp and Landlock.

#pragma once

// tl_available returns the version of Landlock in this kernel, 0 for none, plus TL_SECCOMP where filters of system calls work.
#define TL_SECCOMP 1000
int tl_available(void);

// tl_pure allows only the system calls that computing needs, in all threads of this process, for good: no files, sockets or programs. A
// call that no code of a codec makes ends the process, after a line with the name on standard error; with trial it is refused and
// execution continues. It returns 0 or an errno.
int tl_pure(int trial);
