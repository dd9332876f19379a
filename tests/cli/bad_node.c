/* bad_node.c - preloaded into the ranks of a test: one of them is on a bad node.
 *
 * BAD_RANK names that rank.  Its messages fail once the file that BAD_SEND names is there; when the
 * first did, in ns since 1970, is written to that file.  So do its allocations in array_make(),
 * which lies at BAD_CODE ("ADDRESS BYTES" in hex) of the program, with the file BAD_CALLOC.  Its
 * reads, writes and syncs of files whose paths hold BAD_FILE last BAD_MS milliseconds longer, as
 * does removing one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdatomic.h>
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

static void write_time(const char *path)
{
    static atomic_flag written = ATOMIC_FLAG_INIT;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    FILE *file = atomic_flag_test_and_set(&written) ? NULL : fopen(path, "w");
    if (!file)
        return;
    fprintf(file, "%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    fclose(file);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    const char *when = getenv("BAD_SEND");
    if (is_bad() && when && !access(when, F_OK)) {
        write_time(when);
        return MPI_ERR_OTHER;
    }
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* Is an address in the program's code of BAD_CODE?  The first object that is visited is the
 * program. */
static int visit_program(struct dl_phdr_info *info, size_t size, void *address)
{
    char *end = "";
    unsigned long from = strtoul(getenv("BAD_CODE"), &end, 16), bytes = strtoul(end, NULL, 16);
    return *(unsigned long *)address - info->dlpi_addr - from < bytes ? 1 : -1;
}

/* An allocation goes to a sanitizer that is there, or else to the C library's own name, for dlsym()
 * itself may allocate. */
int __sanitizer_get_ownership(const volatile void *block) __attribute__((weak));
void *__libc_calloc(size_t count, size_t bytes);

void *calloc(size_t count, size_t bytes)
{
    unsigned long caller = (unsigned long)__builtin_return_address(0);
    const char *when = getenv("BAD_CALLOC");
    if (!when || !is_bad() || dl_iterate_phdr(visit_program, &caller) < 0 || access(when, F_OK)) {
        void *(*real)(size_t, size_t) =
            __sanitizer_get_ownership ? dlsym(RTLD_NEXT, "calloc") : __libc_calloc;
        return real(count, bytes);
    }
    write_time(when);
    return NULL;
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
