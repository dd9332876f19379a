/* unpack.c - see unpack.h. */
#include "io/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"

extern char **environ;

/* What files of these programs begin with, and what their names end in. */
static const struct {
    const char *program, *front, *ending;
} packers[] = {
    {.program = "gzip", .front = "\x1f\x8b", .ending = ".gz"},
    {.program = "zstd", .front = "\x28\xb5\x2f\xfd", .ending = ".zst"},
    {.program = "xz", .front = "\3757zXZ", .ending = ".xz"},
    {.program = "bzip2", .front = "BZh", .ending = ".bz2"},
};

enum { PACKERS = sizeof packers / sizeof packers[0] };

/* A text may begin with "BZh", but has no byte of 0. */
const char *unpack_program(const char *front, size_t bytes)
{
    for (int i = 0; i < PACKERS && bytes && memchr(front, 0, bytes); i++) {
        size_t length = strlen(packers[i].front);
        if (bytes >= length && !memcmp(front, packers[i].front, length))
            return packers[i].program;
    }
    return NULL;
}

size_t unpack_ending(const char *path)
{
    for (int i = 0; i < PACKERS; i++)
        if (text_ends_with(path, packers[i].ending))
            return strlen(packers[i].ending);
    return 0;
}

/* Start program -dc with these files; signals are as in a program that a shell starts.  Returns 0
 * or an errno. */
static int start(pid_t *process, const char *program, int from, int to, int messages)
{
    char *const arguments[] = {(char *)program, "-dc", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, from, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, to, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, messages, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigaddset(&signals, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawnp(process, program, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

static void close_pipe(int ends[2])
{
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
}

int unpack_open(struct unpack *u, const char *path, const char *program, struct error *err)
{
    int data[2] = {-1, -1}, messages[2] = {-1, -1};
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return error_errno(err, "cannot open input %s", path);
    *u = (struct unpack){.path = path, .program = program};
    int rc = pipe2(data, O_CLOEXEC) || pipe2(messages, O_CLOEXEC)
                 ? error_errno(err, "cannot make a pipe to unpack %s", path)
                 : 0;
    int failed = rc ? 0 : start(&u->process, program, from, data[1], messages[1]);
    if (failed == ENOENT)
        rc = error_set(err,
                       "%s is compressed, and the program that unpacks it, %s, is not installed; "
                       "install it, or unpack the file elsewhere",
                       path, program);
    else if (failed) {
        errno = failed;
        rc = error_errno(err, "cannot start %s to unpack %s", program, path);
    }
    close(from);
    if (rc) {
        close_pipe(data);
        close_pipe(messages);
        return -1;
    }
    close(data[1]);
    close(messages[1]);
    u->fd = data[0];
    u->messages = messages[0];
    return 0;
}

/* Put the first line of what the program printed into text; gzip begins with an empty one. */
static void read_message(const struct unpack *u, char *text, size_t bytes)
{
    ssize_t got = read(u->messages, text, bytes - 1);
    text[got > 0 ? got : 0] = 0;
    size_t blank = strspn(text, "\n"), length = strcspn(text + blank, "\n");
    memmove(text, text + blank, length);
    text[length] = 0;
}

/* Wait for the program's end; status is that of waitpid(). */
static void wait_for(const struct unpack *u, int *status)
{
    while (waitpid(u->process, status, 0) < 0 && errno == EINTR)
        ;
}

int unpack_close(struct unpack *u, int is_read, struct error *err)
{
    char message[200];
    int status = 0, has_ended = waitpid(u->process, &status, WNOHANG) == u->process;
    close(u->fd);
    if (!has_ended && !is_read)
        kill(u->process, SIGTERM);
    if (!has_ended)
        wait_for(u, &status);
    read_message(u, message, sizeof message);
    close(u->messages);
    if ((!has_ended && !is_read) || (WIFEXITED(status) && !WEXITSTATUS(status)))
        return 0;
    if (WIFSIGNALED(status))
        return error_set(err, "%s: %s, which unpacked it, was ended by signal %d", u->path,
                         u->program, WTERMSIG(status));
    return error_set(err, "%s cannot be unpacked to its end%s%s", u->path, message[0] ? ": " : "",
                     message[0] ? message : "; it is damaged or cut");
}
