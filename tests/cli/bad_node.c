/* bad_node.c - preloaded into the ranks of a test: one of them is on a bad node.
 *
 * BAD_RANK names that rank.  Its messages fail once the file that BAD_SEND names is there.  Its
 * reads, writes and syncs of files whose paths hold BAD_FILE last BAD_MS milliseconds longer,
 * as does removing one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_bad(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *bad = getenv("BAD_RANK");
    return rank && bad && !strcmp(rank, bad);
}

static void nap(const char *path)
{
    const char *slow = getenv("BAD_FILE"), *ms = getenv("BAD_MS");
    if (!is_bad() || !slow || !ms || !strstr(path, slow))
        return;
    struct timespec time = {atol(ms) / 1000, atol(ms) % 1000 * 1000000};
    while (nanosleep(&time, &time))
        ;
}

static void nap_at(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    nap(path);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    const char *when = getenv("BAD_SEND");
    if (is_bad() && when && !access(when, F_OK))
        return MPI_ERR_OTHER;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    nap_at(fd);
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    nap_at(fd);
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

int fsync(int fd)
{
    nap_at(fd);
    return (int)syscall(SYS_fsync, fd);
}

int remove(const char *path)
{
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "remove");
    nap(path);
    return real(path);
}
