/* kill_at.c - run a program and kill it just before its N-th call that changes a file.
 *
 *     kill_at N PATH COMMAND...
 *
 * Calls are counted that write, make, rename, remove, cut or fsync a file whose path begins with
 * PATH; those on log.txt and on the data of a checkpoint that is being written are not, nor is a
 * mkdir of a folder that is there.  Every one is a line "rename PATH" on standard output.  Exit
 * code 137 when it was killed, else the program's own; 77 where programs cannot be traced.
 *
 * What the program asks of the kernel is seen by ptrace, so it does not matter which library asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_TRACE = 77, KILLED = 137, SYSCALL_STOP = SIGTRAP | 0x80 };

/* Which argument tells the file: a descriptor or a path. */
enum place { DESCRIPTOR, NAME };

static const struct {
    long number;
    const char *name;
    enum place place;
    int argument;
} calls[] = {
    {SYS_write, "write", DESCRIPTOR, 0},    {SYS_writev, "write", DESCRIPTOR, 0},
    {SYS_pwrite64, "write", DESCRIPTOR, 0}, {SYS_ftruncate, "ftruncate", DESCRIPTOR, 0},
    {SYS_fsync, "fsync", DESCRIPTOR, 0},    {SYS_fdatasync, "fsync", DESCRIPTOR, 0},
    {SYS_openat, "create", NAME, 1},        {SYS_mkdirat, "mkdir", NAME, 1},
    {SYS_unlinkat, "remove", NAME, 1},      {SYS_renameat2, "rename", NAME, 1},
    {SYS_truncate, "truncate", NAME, 0},
#ifdef SYS_renameat
    {SYS_renameat, "rename", NAME, 1},
#endif
#ifdef SYS_rename
    {SYS_rename, "rename", NAME, 0},        {SYS_mkdir, "mkdir", NAME, 0},
    {SYS_unlink, "remove", NAME, 0},        {SYS_rmdir, "remove", NAME, 0},
    {SYS_open, "create", NAME, 0},          {SYS_creat, "create", NAME, 0},
#endif
};
enum { CALLS = sizeof calls / sizeof calls[0] };

struct count {
    long target, done;
    const char *path;
};

static void read_path(pid_t thread, enum place place, unsigned long long argument, char *path)
{
    char link[64];
    struct iovec to = {path, PATH_MAX - 1}, from = {(void *)(uintptr_t)argument, PATH_MAX - 1};
    ssize_t length;
    if (place == NAME) { /* may end at the end of what is mapped */
        while ((length = process_vm_readv(thread, &to, 1, &from, 1, 0)) < 0 && from.iov_len > 64)
            from.iov_len /= 2;
    } else {
        snprintf(link, sizeof link, "/proc/%d/fd/%lld", (int)thread, (long long)argument);
        length = readlink(link, path, PATH_MAX - 1);
    }
    path[length > 0 ? length : 0] = 0;
}

static int opens_to_change(long number, const unsigned long long *arguments)
{
    unsigned long long flags = arguments[number == SYS_openat ? 2 : 1];
    return flags & (O_CREAT | O_TRUNC) ? 1 : 0;
}

/* Whether a call counts; then it is told. */
static int counts(const struct count *count, pid_t thread, const struct __ptrace_syscall_info *info)
{
    char path[PATH_MAX];
    long number = (long)info->entry.nr;
    int i = 0;
    while (i < CALLS && calls[i].number != number)
        i++;
    if (i == CALLS)
        return 0;
    if (!strcmp(calls[i].name, "create") && number != SYS_creat &&
        !opens_to_change(number, (const unsigned long long *)info->entry.args))
        return 0;
    read_path(thread, calls[i].place, info->entry.args[calls[i].argument], path);
    if (strncmp(path, count->path, strlen(count->path)) != 0 || strstr(path, "/log.txt") ||
        strstr(path, ".partial/") || (!strcmp(calls[i].name, "mkdir") && !access(path, F_OK)))
        return 0;
    printf("%s %s\n", calls[i].name, path);
    return 1;
}

static void see_call(struct count *count, pid_t thread, pid_t child)
{
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY || !counts(count, thread, &info))
        return;
    if (++count->done == count->target)
        kill(child, SIGKILL);
}

/* Until the child has ended: its exit code. */
static int follow(struct count *count, pid_t child)
{
    int status;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        int signal = 0;
        if (thread < 0)
            continue;
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            continue;
        }
        if (WSTOPSIG(status) == SYSCALL_STOP)
            see_call(count, thread, child);
        else if (WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP)
            signal = WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, thread, 0, signal);
    }
    return 1;
}

int main(int argc, char **argv)
{
    const long options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC;
    int status;
    if (argc < 4)
        return 1;
    struct count count = {.target = atol(argv[1]), .path = argv[2]};
    pid_t child = fork();
    if (!child) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(NO_TRACE);
        raise(SIGSTOP);
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, 0, options) || ptrace(PTRACE_SYSCALL, child, 0, 0))
        return NO_TRACE;
    return follow(&count, child);
}
