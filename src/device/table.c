/* table.c - the devices and CPU levels there are, and the choice among them. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "config/defines.h"
#include "device/cpu/gemm.h"

extern const struct device_ops cpu_ops_generic;

static int always(void)
{
    return 1;
}

#ifdef CPU_X86_LEVELS
extern const struct device_ops cpu_ops_avx2, cpu_ops_avx512;

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}
#define X86_LEVELS {&cpu_ops_avx512, has_avx512}, {&cpu_ops_avx2, has_avx2},
#define X86_NAMES  "avx512", "avx2",
#else
#define X86_LEVELS
#define X86_NAMES
#endif

/* Best first; a machine that runs one runs all that follow. */
static const struct {
    const struct device_ops *ops;
    int (*runs_here)(void);
} levels[] = {X86_LEVELS{&cpu_ops_generic, always}};

enum { LEVELS = sizeof levels / sizeof levels[0] };

/* The names in the rows above, as device_cpu_levels() gives them. */
static const char *const level_names[LEVELS + 1] = {X86_NAMES "generic"};

static int best_level(void)
{
    int level = 0;
    while (!levels[level].runs_here())
        level++;
    return level;
}

const char *const *device_cpu_levels(void)
{
    return level_names + best_level();
}

const char *device_gemm_library(void)
{
    return gemm_library();
}

static int find_level(const char *name, struct error *err)
{
    if (!name)
        return best_level();
    for (int i = 0; i < LEVELS; i++) {
        if (strcmp(level_names[i], name))
            continue;
        if (levels[i].runs_here())
            return i;
        return error_set(err, "this machine has no %s instructions: use level %s", name,
                         level_names[best_level()]);
    }
    return error_set(err, "no CPU level %s was built: the best here is %s", name,
                     level_names[best_level()]);
}

/* OMP_NUM_THREADS is a user's word about one rank; without it ranks share what is there. */
static int default_threads(int local_ranks)
{
    if (getenv("OMP_NUM_THREADS"))
        return omp_get_max_threads();
    int threads = omp_get_num_procs() / (local_ranks > 0 ? local_ranks : 1);
    return threads > 0 ? threads : 1;
}

static int open_cpu(struct device *d, const struct device_request *request, struct error *err)
{
    int level = find_level(request->level, err);
    if (level < 0)
        return -1;
    d->ops = levels[level].ops;
    d->level = level_names[level];
    d->threads = request->threads > 0 ? request->threads : default_threads(request->local_ranks);
    return gemm_open(d, err);
}

static int open_cuda(struct device *d, const struct device_request *request, struct error *err)
{
    return error_set(err, "this trireme was built without CUDA: use device=cpu");
}

static const struct {
    int (*open)(struct device *d, const struct device_request *request, struct error *err);
    void (*close)(struct device *d);
} kinds[DEVICE_KINDS] = {
    [DEVICE_CPU] = {open_cpu, gemm_close},
    [DEVICE_CUDA] = {open_cuda, NULL},
};

int device_open(struct device **device, const struct device_request *request, struct error *err)
{
    struct device *d = calloc(1, sizeof *d);
    *device = NULL;
    if (!d)
        return error_set(err, "out of memory: a device");
    d->kind = request->kind;
    if (kinds[request->kind].open(d, request, err)) {
        free(d);
        return -1;
    }
    *device = d;
    return 0;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    kinds[device->kind].close(device);
    free(device);
}
