/* driver.c - the CPU as a device: the levels there are and the choice among them, memory, and
 * events, which have nothing to wait for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "device/cpu/gemm.h"
#include "device/cpu/run_queue.h"
#include "device/driver.h"

/* A chunk of logits fits into the last cache.  Where that is too few rows (op_loss.c), it is
 * larger. */
enum { LOGITS_BYTES = 16 << 20, LOGITS_MOST = 256 << 20 };

extern const struct device_ops cpu_ops_generic;

static int always(void)
{
    return 1;
}

static int never(void)
{
    return 0;
}

#ifdef CPU_X86_LEVELS
#include <cpuid.h>
#include <sys/syscall.h>

extern const struct device_ops cpu_ops_avx2, cpu_ops_avx512, cpu_ops_avx512_bf16;

/* Not every compiler knows "f16c" in __builtin_cpu_supports(). */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static int has_avx512_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* Intel's processors are made to multiply bf16 in tiles.  In vectors an Emerald Rapids multiplies
 * it at half the rate of fp32: 85 and 174 GFLOP/s a core.  So where tiles are hidden, or the kernel
 * does not permit them, products in fp32 are faster.  Others of Intel's were not measured. */
static int has_slow_bf16(void)
{
    return __builtin_cpu_is("intel");
}

#ifdef CPU_AMX_LEVEL
extern const struct device_ops cpu_ops_amx;

/* Tiles, products of bf16 in them, and the kernel's permission for this process to use them, which
 * adds 8 KiB to what is saved of a thread (Linux, Documentation/arch/x86/xstate.rst). */
static int has_amx(void)
{
    enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 };
    const unsigned needed = 1u << 22 | 1u << 24; /* AMX-BF16, AMX-TILE */
    unsigned a, b, c, d;
    return has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & needed) == needed &&
           !syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA);
}
#define AMX_LEVEL \
    {.ops = &cpu_ops_amx, .runs_here = has_amx, .packs_products = always, .packed = "of bf16"},
#else
#define AMX_LEVEL
#endif
/* A processor with a part of AVX-512 that is too little for the levels above has a library whose
 * vectors are twice as wide as this level's.  Which is faster there was not measured. */
static int has_avx2_only(void)
{
    return !__builtin_cpu_supports("avx512f");
}

#define X86_LEVELS                           \
    AMX_LEVEL{.ops = &cpu_ops_avx512_bf16,   \
              .runs_here = has_avx512_bf16,  \
              .is_slow_here = has_slow_bf16, \
              .packs_products = always,      \
              .packed = "of bf16"},          \
        {.ops = &cpu_ops_avx512,             \
         .runs_here = has_avx512,            \
         .packs_products = always,           \
         .packed = "of all types"},          \
        {.ops = &cpu_ops_avx2,               \
         .runs_here = has_avx2,              \
         .packs_products = has_avx2_only,    \
         .packed = "of all types"},
#else
#define X86_LEVELS
#endif

/* In the order of preference; a machine that runs a level runs all levels after it. */
static const struct {
    const struct device_ops *ops;
    int (*runs_here)(void);
    int (*is_slow_here)(void);   /* NULL: never; is the level after it faster? */
    int (*packs_products)(void); /* are large products made by gemm_packed.c? */
    const char *packed;          /* of which operands */
} levels[] = {X86_LEVELS{.ops = &cpu_ops_generic, .runs_here = always, .packs_products = never}};

enum { LEVELS = sizeof levels / sizeof levels[0] };

static int best_level(void)
{
    int level = 0;
    while (!levels[level].runs_here() ||
           (levels[level].is_slow_here && levels[level].is_slow_here()))
        level++;
    return level;
}

const char *device_cpu_level(int i)
{
    const int best = best_level();
    if (i == 0)
        return levels[best].ops->name;
    for (int level = 0; level < LEVELS; level++)
        if (level != best && levels[level].runs_here() && --i == 0)
            return levels[level].ops->name;
    return NULL;
}

const char *device_own_products(void)
{
    int level = best_level();
    return levels[level].packs_products() ? levels[level].packed : NULL;
}

static int find_level(const char *name, struct error *err)
{
    if (!name)
        return best_level();
    for (int i = 0; i < LEVELS; i++) {
        if (strcmp(levels[i].ops->name, name))
            continue;
        if (levels[i].runs_here())
            return i;
        return error_set(err, "this machine has no %s instructions: use level %s", name,
                         device_cpu_level(0));
    }
    return error_set(err, "no CPU level %s was built: the best here is %s", name,
                     device_cpu_level(0));
}

static int open_cpu(struct device *d, const struct device_request *request, struct error *err)
{
    int level = find_level(request->level, err);
    if (level < 0)
        return -1;
    d->ops = levels[level].ops;
    d->name = "CPU";
    d->level = d->ops->name;
    d->packs_products = levels[level].packs_products();
    d->logits_bytes = LOGITS_BYTES;
    d->logits_most = LOGITS_MOST;
    if (gemm_open(d, err))
        return -1;
    if (!request->planning)
        d->queue = run_queue_open(d->threads);
    return 0;
}

static void close_cpu(struct device *d)
{
    run_queue_close(d->queue);
    d->queue = NULL;
    gemm_close(d);
}

static void *alloc(struct device *d, size_t bytes)
{
    return mem_block(bytes);
}

static void release(struct device *d, void *block)
{
    free(block);
}

static int memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err)
{
    *total_bytes = mem_node_bytes();
    *free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return 0;
}

static int copy(struct device *d, enum device_stream stream, void *to, const void *from,
                size_t bytes, enum device_wait wait, struct error *err)
{
    memcpy(to, from, bytes);
    return 0;
}

static int call(struct device *d, enum device_stream stream, void (*function)(void *), void *data,
                struct error *err)
{
    function(data);
    return 0;
}

struct device_event {
    int64_t ns;
};

static struct device_event *event_create(struct device *d, enum device_event_kind kind,
                                         struct error *err)
{
    return array_make(1, sizeof(struct device_event));
}

static void event_destroy(struct device *d, struct device_event *event)
{
    free(event);
}

static int event_record(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err)
{
    event->ns = clock_ns();
    return 0;
}

static int64_t event_ns(struct device *d, struct device_event *from, struct device_event *to)
{
    return to->ns - from->ns;
}

const struct device_driver cpu_driver = {
    .open = open_cpu,
    .close = close_cpu,
    .alloc = alloc,
    .free = release,
    .host_alloc = alloc,
    .host_free = release,
    .memory = memory,
    .copy = copy,
    .call = call,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_ns = event_ns,
};
