/* slow_file.c - a disk that takes its time, or does not answer: pread() and pwrite() of the files
 * of offloaded state, and of the thread that writes a checkpoint in the background, last as long as
 * is asked.
 *
 * Linked into a test, or preloaded into a program, these take the place of the C library's.  The
 * file that SLOW_FILE names holds how many milliseconds a call lasts at least; it is read again and
 * again while one lasts, so that a call can be let go.  With SLOW_BESIDE set, those of offloaded
 * state last so long only beside one of the thread, as on a disk that both share.  It is counted
 * how often a read and a write were under way together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_offloaded(int fd)
{
    char link[64], to[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, to, sizeof to - 1);
    if (length < 0)
        return 0;
    to[length] = 0;
    return strstr(to, "/rank-") && strstr(to, "-of-process-");
}

static int is_in_background(void)
{
    char name[16] = "";
    return !prctl(PR_GET_NAME, name) && !strcmp(name, "checkpoint");
}

static long wanted_ms(const char *path)
{
    long ms = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%ld", &ms) != 1)
        ms = 0;
    fclose(file);
    return ms;
}

static int in_background; /* calls of the thread that are under way */

static int is_slow(int fd)
{
    if (is_in_background())
        return 1;
    return is_offloaded(fd) &&
           (!getenv("SLOW_BESIDE") || __atomic_load_n(&in_background, __ATOMIC_RELAXED));
}

static void last(int fd)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const char *path = getenv("SLOW_FILE");
    struct timespec begin, now;
    if (!path || !is_slow(fd))
        return;
    __atomic_add_fetch(&in_background, is_in_background(), __ATOMIC_RELAXED);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long ms = 0; ms < wanted_ms(path);) {
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        ms = (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000;
    }
    __atomic_sub_fetch(&in_background, is_in_background(), __ATOMIC_RELAXED);
}

static int under_way[2]; /* reads, writes */
static int meetings;

int slow_file_meetings(void);
int slow_file_meetings(void)
{
    return __atomic_load_n(&meetings, __ATOMIC_RELAXED);
}

static void count_and_last(int fd, int writes)
{
    __atomic_add_fetch(&under_way[writes], 1, __ATOMIC_SEQ_CST);
    if (is_offloaded(fd) && __atomic_load_n(&under_way[!writes], __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&meetings, 1, __ATOMIC_RELAXED);
    last(fd);
    __atomic_sub_fetch(&under_way[writes], 1, __ATOMIC_SEQ_CST);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    count_and_last(fd, 0);
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    count_and_last(fd, 1);
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}
