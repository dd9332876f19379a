/* preload.c - makes system calls or allocations of a trireme fail; loaded by LD_PRELOAD.
 *
 * Calls: of those named by CHAOS_CALL ("any" for all, or one of write pwrite read pread fsync close
 * open access rename mkdir remove ftruncate) on files whose path holds CHAOS_PATH, the share
 * CHAOS_P fails with errno CHAOS_ERRNO, at most CHAOS_TIMES of them in a process; with
 * CHAOS_SHORT=1 a write writes half and succeeds.  Which ones follows from CHAOS_SEED and the rank.
 * Each failure is a line in the file CHAOS_LOG.
 *
 * Allocations: the CHAOS_ALLOCATION'th one asked for by the program's own code (not by a library)
 * fails.  With CHAOS_COUNT=1 their number is printed at the end, "allocations N".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *call, *path, *log;
    int error, is_short;
    double share;
    atomic_ullong random;
    char *begin, *end; /* the program's own code */
    long allocation, times;
    atomic_long failures;
    atomic_long allocations;
} chaos;

static const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* The first object that is visited is the program. */
static int visit_program(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        chaos.begin = (char *)info->dlpi_addr + part->p_vaddr;
        chaos.end = chaos.begin + part->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void begin(void)
{
    char program[512] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0 || !strstr(program, "trireme"))
        return;
    unsigned long long rank = strtoull(variable("OMPI_COMM_WORLD_RANK", "0"), NULL, 10);
    chaos.random = strtoull(variable("CHAOS_SEED", "1"), NULL, 10) * 0x9e3779b97f4a7c15u + rank;
    chaos.path = variable("CHAOS_PATH", "");
    chaos.log = getenv("CHAOS_LOG");
    chaos.error = atoi(variable("CHAOS_ERRNO", "5"));
    chaos.is_short = atoi(variable("CHAOS_SHORT", "0"));
    chaos.share = atof(variable("CHAOS_P", "0"));
    chaos.allocation = atol(variable("CHAOS_ALLOCATION", "0"));
    chaos.times = atol(variable("CHAOS_TIMES", "1000000000"));
    dl_iterate_phdr(visit_program, NULL);
    chaos.call = getenv("CHAOS_CALL");
}

__attribute__((destructor)) static void end(void)
{
    if (chaos.begin && getenv("CHAOS_COUNT"))
        dprintf(STDERR_FILENO, "allocations %ld\n", (long)chaos.allocations);
}

/* The function that is stood in for. */
static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* A number in [0, 1): splitmix64. */
static double draw(void)
{
    uint64_t z = atomic_fetch_add(&chaos.random, 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void note(const char *name, const char *path)
{
    int (*open_file)(const char *, int, ...) = real("open");
    ssize_t (*write_file)(int, const void *, size_t) = real("write");
    int (*close_file)(int) = real("close");
    char line[600];
    int n = snprintf(line, sizeof line, "%s %d %s\n", name, chaos.error, path);
    int fd = open_file(chaos.log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write_file(fd, line, (size_t)n) != n)
        abort();
    close_file(fd);
}

/* Whether this call is to fail. */
static int fails(const char *name, const char *path)
{
    if (!chaos.call || !path || !strstr(path, chaos.path) ||
        (strcmp(chaos.call, "any") && strcmp(chaos.call, name)) || draw() >= chaos.share ||
        atomic_fetch_add(&chaos.failures, 1) >= chaos.times)
        return 0;
    if (chaos.log)
        note(name, path);
    errno = chaos.error;
    return 1;
}

static const char *path_of(int fd)
{
    static _Thread_local char path[512];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return NULL;
    path[length] = 0;
    return path;
}

static int fails_on(const char *name, int fd)
{
    return chaos.call && fails(name, path_of(fd));
}

static size_t shortened(size_t bytes)
{
    return bytes > 1 ? bytes / 2 : bytes;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t (*call)(int, const void *, size_t) = real("write");
    if (!fails_on("write", fd))
        return call(fd, data, bytes);
    return chaos.is_short ? call(fd, data, shortened(bytes)) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t (*call)(int, const void *, size_t, off_t) = real("pwrite");
    if (!fails_on("pwrite", fd))
        return call(fd, data, bytes, at);
    return chaos.is_short ? call(fd, data, shortened(bytes), at) : -1;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at)
{
    return pwrite(fd, data, bytes, at);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    ssize_t (*call)(int, void *, size_t) = real("read");
    return fails_on("read", fd) ? -1 : call(fd, data, bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    ssize_t (*call)(int, void *, size_t, off_t) = real("pread");
    return fails_on("pread", fd) ? -1 : call(fd, data, bytes, at);
}

ssize_t pread64(int fd, void *data, size_t bytes, off_t at)
{
    return pread(fd, data, bytes, at);
}

int fsync(int fd)
{
    int (*call)(int) = real("fsync");
    return fails_on("fsync", fd) ? -1 : call(fd);
}

/* A close that fails closes all the same. */
int close(int fd)
{
    int (*call)(int) = real("close");
    int failed = fails_on("close", fd), rc = call(fd);
    if (!failed)
        return rc;
    errno = chaos.error;
    return -1;
}

int access(const char *path, int mode)
{
    int (*call)(const char *, int) = real("access");
    return fails("access", path) ? -1 : call(path, mode);
}

int ftruncate(int fd, off_t bytes)
{
    int (*call)(int, off_t) = real("ftruncate");
    return fails_on("ftruncate", fd) ? -1 : call(fd, bytes);
}

int ftruncate64(int fd, off_t bytes)
{
    return ftruncate(fd, bytes);
}

int rename(const char *from, const char *to)
{
    int (*call)(const char *, const char *) = real("rename");
    return fails("rename", from) ? -1 : call(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int (*call)(int, const char *, int, const char *, unsigned) = real("renameat2");
    return fails("rename", from) ? -1 : call(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int (*call)(const char *, mode_t) = real("mkdir");
    return fails("mkdir", path) ? -1 : call(path, mode);
}

int remove(const char *path)
{
    int (*call)(const char *) = real("remove");
    return fails("remove", path) ? -1 : call(path);
}

int open(const char *path, int flags, ...)
{
    int (*call)(const char *, int, ...) = real("open");
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open", path) ? -1 : call(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open(path, flags, mode);
}

/* Allocations go to a sanitizer that is there, or else to the C library's own names, for dlsym()
 * itself may allocate.  By tail calls, so that a sanitizer sees which allocations are those of the
 * dynamic linker: it does not take them for leaks. */
#pragma GCC optimize("optimize-sibling-calls")
int __sanitizer_get_ownership(const volatile void *block) __attribute__((weak));
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static int runs_out(const char *caller)
{
    if (caller < chaos.begin || caller >= chaos.end)
        return 0;
    if (atomic_fetch_add(&chaos.allocations, 1) + 1 != chaos.allocation)
        return 0;
    dprintf(STDERR_FILENO, "allocation %ld fails, at +%#lx\n", chaos.allocation,
            (long)(caller - chaos.begin));
    errno = ENOMEM;
    return 1;
}

#define RUNS_OUT   runs_out(__builtin_return_address(0))
#define REAL(name) (__sanitizer_get_ownership ? real(#name) : __libc_##name)

void *malloc(size_t bytes)
{
    void *(*call)(size_t) = REAL(malloc);
    return RUNS_OUT ? NULL : call(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    void *(*call)(size_t, size_t) = REAL(calloc);
    return RUNS_OUT ? NULL : call(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    void *(*call)(void *, size_t) = REAL(realloc);
    return RUNS_OUT ? NULL : call(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *(*call)(size_t, size_t) = REAL(memalign);
    return RUNS_OUT ? NULL : call(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *(*call)(size_t, size_t) = REAL(memalign);
    void *made = RUNS_OUT ? NULL : call(alignment, bytes);
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

char *strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    void *(*call)(size_t) = REAL(malloc);
    char *copy = RUNS_OUT ? NULL : call(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
