/* shared_memory.c - see shared_memory.h. */
#include "base/shared_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/round.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older headers do not have it */
#endif

static const size_t huge_bytes = (size_t)2 << 20;

/* Returns the bytes that are mapped for `bytes`: whole huge pages from one of them on. */
static size_t mapped_bytes(size_t bytes)
{
    return bytes < huge_bytes ? bytes : round_up_bytes(bytes, huge_bytes);
}

/* Map a memory file at an address where huge pages can be.  Returns NULL where that fails. */
static void *map(int file, size_t bytes, int protection, int flags)
{
    size_t all = bytes + (bytes < huge_bytes ? 0 : huge_bytes);
    char *space = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return NULL;
    char *at = space;
    if (all > bytes)
        at += round_up_bytes((uintptr_t)space, huge_bytes) - (uintptr_t)space;
    if (at > space)
        munmap(space, (size_t)(at - space));
    if (space + all > at + bytes)
        munmap(at + bytes, (size_t)(space + all - (at + bytes)));
    if (mmap(at, bytes, protection, flags | MAP_FIXED, file, 0) != MAP_FAILED)
        return at;
    munmap(at, bytes);
    return NULL;
}

/* Make huge pages of all of the memory; the kernel wants each to have been written to.  Returns 0,
 * or -1 where it has none. */
static int make_huge(char *memory, size_t bytes)
{
    if (bytes < huge_bytes)
        return 0;
    for (size_t i = 0; i < bytes; i += huge_bytes)
        memory[i] = 0;
    return madvise(memory, bytes, MADV_COLLAPSE);
}

void *shared_memory_make(size_t bytes, struct shared_memory_name *name)
{
    size_t all = mapped_bytes(bytes);
    struct stat about;
    void *memory = NULL;
    int file = memfd_create("trireme", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    if (!ftruncate(file, (off_t)all) && !fstat(file, &about))
        memory = map(file, all, PROT_READ | PROT_WRITE, MAP_SHARED);
    if (memory && make_huge(memory, all)) {
        munmap(memory, all);
        memory = NULL;
    }
    if (memory)
        *name = (struct shared_memory_name){.process = getpid(),
                                            .descriptor = file,
                                            .device = (int64_t)about.st_dev,
                                            .inode = (int64_t)about.st_ino};
    else
        close(file);
    return memory;
}

void shared_memory_close(const struct shared_memory_name *name)
{
    close((int)name->descriptor);
}

const void *shared_memory_open(const struct shared_memory_name *name, size_t bytes)
{
    char path[64];
    struct stat about;
    void *memory = NULL;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)name->process,
             (long long)name->descriptor);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    if (!fstat(file, &about) && (int64_t)about.st_dev == name->device &&
        (int64_t)about.st_ino == name->inode && about.st_size >= (off_t)bytes)
        memory = map(file, mapped_bytes(bytes), PROT_READ, MAP_SHARED | MAP_POPULATE);
    close(file);
    return memory;
}

void shared_memory_unmap(const void *memory, size_t bytes)
{
    if (memory)
        munmap((void *)(uintptr_t)memory, mapped_bytes(bytes));
}
