/* mem.c - see mem.h. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/text.h"

enum { ALIGN_SMALL = 64, ALIGN_HUGE = 2 << 20, HUGE_FROM = 4 << 20 };

const char *mem_pool_name(enum mem_pool pool)
{
    static const char *const names[POOL_COUNT] = {
        [POOL_PARAMS] = "parameters",
        [POOL_GRADS] = "gradients",
        [POOL_OPTIMIZER] = "optimizer",
        [POOL_UNSHARDED] = "unsharded",
        [POOL_ACTIVATIONS] = "activations",
        [POOL_WORKSPACE] = "workspace",
        [POOL_COMM] = "communication",
        [POOL_HOST] = "host",
        [POOL_DISK] = "disk",
    };
    return names[pool];
}

size_t mem_bytes(const size_t pool_bytes[POOL_COUNT])
{
    size_t bytes = 0;
    for (int pool = 0; pool < POOL_COUNT; pool++)
        bytes += pool == POOL_DISK ? 0 : pool_bytes[pool];
    return bytes;
}

void mem_count(struct mem *mem, enum mem_pool pool, size_t bytes)
{
    size_t now = __atomic_add_fetch(&mem->now_bytes[pool], bytes, __ATOMIC_RELAXED);
    size_t peak = __atomic_load_n(&mem->peak_bytes[pool], __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&mem->peak_bytes[pool], &peak, now, 1,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    __atomic_add_fetch(&mem->blocks, 1, __ATOMIC_RELAXED);
}

void mem_uncount(struct mem *mem, enum mem_pool pool, size_t bytes)
{
    __atomic_sub_fetch(&mem->now_bytes[pool], bytes, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&mem->blocks, 1, __ATOMIC_RELAXED);
}

void *mem_block(size_t bytes)
{
    size_t align = bytes >= HUGE_FROM ? ALIGN_HUGE : ALIGN_SMALL;
    void *block = NULL;
    if (posix_memalign(&block, align, bytes ? bytes : 1))
        return NULL;
    if (align == ALIGN_HUGE)
        madvise(block, bytes, MADV_HUGEPAGE); /* only a hint: failure changes nothing */
    return block;
}

void *mem_alloc(struct mem *mem, enum mem_pool pool, size_t bytes, struct error *err)
{
    void *block = mem_block(bytes);
    if (!block) {
        error_set(err, "out of memory: %zu bytes for %s", bytes, mem_pool_name(pool));
        return NULL;
    }
    mem_count(mem, pool, bytes);
    return block;
}

void mem_free(struct mem *mem, enum mem_pool pool, size_t bytes, void *block)
{
    if (!block)
        return;
    free(block);
    mem_uncount(mem, pool, bytes);
}

/* Called in every step, so it is cheap: of the sixty lines two are parsed.  The line of the user's
 * groups, which is before these, may have any length; fgets() takes it in parts. */
size_t mem_resident_bytes(void)
{
    static const char *const names[] = {"RssAnon:", "RssShmem:"};
    char line[1024];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    for (int found = 0; file && found < 2 && fgets(line, sizeof line, file);)
        for (int i = 0; i < 2; i++)
            if (!strncmp(line, names[i], strlen(names[i]))) {
                kib += (size_t)strtoull(line + strlen(names[i]), NULL, 10);
                found++;
            }
    if (file)
        fclose(file);
    return kib << 10;
}

size_t mem_node_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t physical = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    size_t limit = cgroup_memory_bytes();
    return limit && limit < physical ? limit : physical;
}

size_t mem_available_bytes(void)
{
    char text[64] = "0";
    text_from_file("/proc/meminfo", "MemAvailable", text, sizeof text);
    return (size_t)strtoull(text, NULL, 10) << 10;
}
