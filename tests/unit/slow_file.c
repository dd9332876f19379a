/* slow_file.c - a disk that takes its time, or does not answer: pread() and pwrite() of the files
 * of offloaded state last as long as is asked.
 *
 * Linked into a test, or preloaded into a program, these take the place of the C library's.  The
 * file that SLOW_FILE names holds how many milliseconds a call lasts at least; it is read again and
 * again while one lasts, so that a call can be let go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void last(int fd)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const char *path = getenv("SLOW_FILE");
    struct timespec begin, now;
    if (!path || !is_offloaded(fd))
        return;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long ms = 0; ms < wanted_ms(path);) {
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        ms = (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000;
    }
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    last(fd);
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    last(fd);
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}
