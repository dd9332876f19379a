/* memory.cc - device memory and pinned host memory, with guards around each block.
 *
 * Device memory is one memfd, mapped once, closed to all; addresses are not used twice.  A block
 * starts at a multiple of 256 and ends, rounded up to 256, where a page ends that is followed by
 * one that stays closed.  The bytes around it in its pages are checked when it is freed.
 *
 * A step that touches closed memory faults, and opens WINDOW bytes of the block around the address;
 * all windows are closed when the host may run.  Whole blocks, slabs of thousands of pages of which
 * a step touches few, would take an eighth of the time of all tests.
 */
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "private.h"

enum { PAGE = 4096, WINDOW = 16 * PAGE, ALIGNMENT = 256, CANARY = 0xa5, POISON = 0xff };
static const size_t ARENA_BYTES = (size_t)16 << 40;

struct allocation {
    size_t bytes;
    char *pages;
    size_t page_bytes;
    int device;
};

struct memory {
    std::mutex lock;
    int file = -1;
    char *base = nullptr;
    size_t next = PAGE; /* offset of what was never used */
    std::map<char *, struct allocation> device, host;
    std::map<int, size_t> used;                          /* by GPU */
    std::map<char *, size_t> opened;                     /* bytes of the pages from an address on */
    std::map<std::pair<int64_t, int64_t>, char *> peers; /* by process and file */
};

static struct memory &memory(void)
{
    static struct memory *m = new struct memory;
    return *m;
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The block that holds [at, at + bytes), or the end. */
static std::map<char *, struct allocation>::iterator find(std::map<char *, struct allocation> &in,
                                                          const void *at, size_t bytes)
{
    auto found = in.upper_bound((char *)at);
    if (found == in.begin())
        return in.end();
    --found;
    return (const char *)at + bytes <= found->first + found->second.bytes ? found : in.end();
}

static bool open_arena(struct memory &m)
{
    if (m.base)
        return true;
    m.file = memfd_create("trireme-gpu", MFD_CLOEXEC);
    if (m.file < 0 || ftruncate(m.file, (off_t)ARENA_BYTES) != 0)
        return false;
    void *base = mmap(nullptr, ARENA_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, m.file, 0);
    m.base = base == MAP_FAILED ? nullptr : (char *)base;
    return m.base != nullptr;
}

/* ---- cudaMalloc ---- */

static bool intact(const char *from, const char *to)
{
    for (; from < to; from++)
        if ((unsigned char)*from != CANARY)
            return false;
    return true;
}

cudaError_t memory_alloc(void **block, int device, size_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    size_t whole = round_up(bytes, ALIGNMENT), pages = round_up(whole, PAGE);
    *block = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (!open_arena(m) || bytes > ARENA_BYTES - m.next - 2 * PAGE ||
        m.used[device] + whole > emulate_gpu_bytes())
        return cudaErrorMemoryAllocation;
    char *first = m.base + m.next, *start = first + pages - whole;
    if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    memset(first, CANARY, (size_t)(start - first));
    memset(start, POISON, bytes);
    memset(start + bytes, CANARY, whole - bytes);
    mprotect(first, pages, PROT_NONE);
    m.next += pages + PAGE;
    m.used[device] += whole;
    m.device[start] = {bytes, first, pages, device};
    *block = start;
    return cudaSuccess;
}

static bool release(struct memory &m, std::map<char *, struct allocation>::iterator block)
{
    const struct allocation a = block->second;
    mprotect(a.pages, a.page_bytes, PROT_READ | PROT_WRITE);
    bool whole =
        intact(a.pages, block->first) && intact(block->first + a.bytes, a.pages + a.page_bytes);
    mprotect(a.pages, a.page_bytes, PROT_NONE);
    fallocate(m.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, a.pages - m.base,
              (off_t)a.page_bytes);
    m.used[a.device] -= round_up(a.bytes, ALIGNMENT);
    m.opened.erase(m.opened.lower_bound(a.pages), m.opened.lower_bound(a.pages + a.page_bytes));
    m.device.erase(block);
    return whole;
}

cudaError_t memory_free(void *block)
{
    struct memory &m = memory();
    std::unique_lock<std::mutex> locked(m.lock);
    auto found = m.device.find((char *)block);
    if (found == m.device.end())
        return cudaErrorInvalidValue;
    size_t bytes = found->second.bytes;
    bool whole = release(m, found);
    locked.unlock();
    if (!whole)
        emulate_fail(cudaErrorIllegalAddress, "something wrote around %p, %zu bytes", block, bytes);
    return whole ? cudaSuccess : cudaErrorIllegalAddress;
}

void memory_reset(int device)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    for (auto i = m.device.begin(); i != m.device.end();) {
        auto block = i++;
        if (block->second.device == device)
            release(m, block);
    }
}

void emulate_hold(int device, int64_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    m.used[device] += (size_t)bytes;
}

size_t memory_used(int device)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    return m.used[device];
}

/* ---- cudaHostAlloc ---- */

cudaError_t memory_host_alloc(void **block, size_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    size_t whole = round_up(bytes, 64), pages = round_up(whole, PAGE);
    *block = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    void *first = mmap(nullptr, pages + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    char *start = (char *)first + pages - whole;
    mprotect((char *)first + pages, PAGE, PROT_NONE);
    memset(start, POISON, bytes);
    m.host[start] = {bytes, (char *)first, pages + PAGE, 0};
    *block = start;
    return cudaSuccess;
}

/* The addresses stay closed for ever. */
cudaError_t memory_host_free(void *block)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    auto found = m.host.find((char *)block);
    if (found == m.host.end())
        return cudaErrorInvalidValue;
    mmap(found->second.pages, found->second.page_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    m.host.erase(found);
    return cudaSuccess;
}

/* ---- who may touch it ---- */

int memory_open(void *address)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    auto block = m.device.upper_bound((char *)address + PAGE - 1);
    while (block != m.device.begin()) {
        --block;
        const struct allocation &a = block->second;
        char *end = a.pages + a.page_bytes;
        if ((char *)address >= end)
            return 0;
        if ((char *)address < a.pages)
            continue;
        char *from = a.pages + ((char *)address - a.pages) / WINDOW * WINDOW;
        size_t bytes = std::min((size_t)WINDOW, (size_t)(end - from));
        return m.opened.insert({from, bytes}).second &&
               mprotect(from, bytes, PROT_READ | PROT_WRITE) == 0;
    }
    return 0;
}

/* Neighbouring windows are closed at once. */
void memory_close(void)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    for (auto i = m.opened.begin(); i != m.opened.end();) {
        char *from = i->first, *end = from;
        for (; i != m.opened.end() && i->first == end; ++i)
            end += i->second;
        mprotect(from, (size_t)(end - from), PROT_NONE);
    }
    m.opened.clear();
}

void memory_describe(const void *address, char text[160])
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    const char *at = (const char *)address;
    text[0] = '\0';
    if (!m.base || at < m.base || at >= m.base + ARENA_BYTES)
        return;
    auto after = m.device.upper_bound((char *)at);
    auto block = after == m.device.begin() ? m.device.end() : std::prev(after);
    if (block != m.device.end() && at < block->first + block->second.bytes)
        snprintf(text, 160, "device memory (%zu bytes at %p)", block->second.bytes,
                 (void *)block->first);
    else if (block != m.device.end() && at < block->first + block->second.page_bytes + PAGE)
        snprintf(text, 160, "%zu bytes past the end of device memory (%zu bytes at %p)",
                 (size_t)(at - block->first) - block->second.bytes, block->second.bytes,
                 (void *)block->first);
    else
        snprintf(text, 160, "device memory that is freed or was never there");
}

/* Is it free of addresses of device memory that is gone? */
static bool usable(const void *at, size_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    bool ours = m.base && (const char *)at >= m.base && (const char *)at < m.base + ARENA_BYTES;
    return !ours || find(m.device, at, bytes) != m.device.end();
}

void memory_copy(void *to, const void *from, size_t bytes)
{
    if (!usable(to, bytes) || !usable(from, bytes))
        emulate_fail(cudaErrorIllegalAddress, "copy of %zu bytes, from %p to %p, leaves them",
                     bytes, from, to);
    else
        memmove(to, from, bytes);
}

void memory_fill(void *to, int value, size_t bytes)
{
    if (!usable(to, bytes))
        emulate_fail(cudaErrorIllegalAddress, "fills %zu bytes at %p", bytes, to);
    else
        memset(to, value, bytes);
}

/* ---- memory.h ---- */

int emulate_is_device(const void *pointer, size_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    return find(m.device, pointer, bytes) != m.device.end();
}

int emulate_is_pinned(const void *pointer, size_t bytes)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    return find(m.host, pointer, bytes) != m.host.end();
}

int emulate_locate(const void *pointer, struct emulate_place *place)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    auto block = find(m.device, pointer, 1);
    if (block == m.device.end())
        return -1;
    place->process = getpid();
    place->file = m.file;
    place->offset = (const char *)pointer - m.base;
    place->bytes = block->first + block->second.bytes - (const char *)pointer;
    place->device = block->second.device;
    return 0;
}

void *emulate_peer(const struct emulate_place *place)
{
    struct memory &m = memory();
    std::lock_guard<std::mutex> locked(m.lock);
    char *&base = m.peers[{place->process, place->file}];
    if (!base) {
        char name[64];
        snprintf(name, sizeof name, "/proc/%lld/fd/%lld", (long long)place->process,
                 (long long)place->file);
        int file = open(name, O_RDWR | O_CLOEXEC);
        if (file < 0)
            return nullptr;
        void *mapped =
            mmap(nullptr, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
        close(file);
        if (mapped == MAP_FAILED)
            return nullptr;
        base = (char *)mapped;
    }
    return base + place->offset;
}
