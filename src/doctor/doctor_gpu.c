/* doctor_gpu.c - printing the GPUs of this node, and whether the ranks can use them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor/doctor_report.h"
#include "base/round.h"
#include "base/text.h"
#include "comm/gpu/gpu.h"
#include "comm/mesh.h"
#include "device/self_check.h"

static void check_none(struct doctor *d, const char *why)
{
    doctor_fact(d, "GPUs", "none: %s", why);
    if (!access("/proc/driver/nvidia/version", R_OK) || !access("/dev/nvidiactl", F_OK))
        doctor_problem(
            d,
            "this node has a GPU driver, but no GPU can be used: %s (a driver older than "
            "the CUDA above has to be updated; in Slurm ask for GPUs: --gpus-per-node=N)",
            why);
}

static void check_one(struct doctor *d, int index)
{
    struct error err = {0};
    struct device_gpu gpu;
    char name[24];
    if (device_gpu_describe(index, &gpu, &err)) {
        doctor_problem(d, "%s", err.text);
        return;
    }
    snprintf(name, sizeof name, "GPU %d", index);
    doctor_fact(d, name, "%s, %.1f GiB, sm_%d%d, %d multiprocessors, at %s, uuid %s", gpu.name,
                gib_of(gpu.total_bytes), gpu.major, gpu.minor, gpu.multiprocessors, gpu.bus,
                gpu.uuid);
    if (gpu.major < 8)
        doctor_problem(d, "GPU %d (%s) is sm_%d%d: trireme needs sm_80 (A100) or newer", index,
                       gpu.name, gpu.major, gpu.minor);
}

/* Print which GPU can read which other's memory directly, a row per GPU. */
static void check_peers(struct doctor *d, int count)
{
    int apart = 0;
    for (int i = 0; i < count; i++) {
        char row[256] = "", name[24];
        for (int j = 0; j < count; j++) {
            int can = i == j || device_gpu_peers(i, j);
            apart += !can;
            text_join(row, sizeof row, " ", i == j ? "." : can ? "yes" : "no");
        }
        snprintf(name, sizeof name, "peers of %d", i);
        doctor_fact(d, name, "%s", row);
    }
    if (apart)
        doctor_problem(d,
                       "%d pairs of GPUs cannot read each other's memory: their transfers go "
                       "through the host",
                       apart / 2);
}

/* Choose the GPU of this rank as training would, or, where that fails, one that ranks share, for
 * measurements.  Collective. */
static void choose(struct doctor *d, int count)
{
    struct world *world = d->world;
    struct error err = {0};
    double least = count;
    world_all_reduce(world, &least, 1, WORLD_MIN);
    if (least < 1) {
        doctor_problem(d, "not every rank sees a GPU: device=auto computes on CPUs");
        return;
    }
    if (gpu_choose(world, GPU_OWN, &d->gpu, &err)) {
        doctor_problem(d, "%s", err.text);
        d->share_gpu = 1;
        if (gpu_choose(world, GPU_SHARED, &d->gpu, &err))
            d->gpu = -1;
    }
    if (count == 1 && world_local_size(world) > 1 && !d->share_gpu)
        doctor_problem(d,
                       "each rank sees one GPU alone, so NCCL cannot use the links between them: "
                       "drop --gpus-per-task and --gpu-bind, use --gpus-per-node=N "
                       "--gpu-bind=none, and do not set CUDA_VISIBLE_DEVICES per rank");
}

/* Print what the self-check of this rank's GPU found, if it was made. */
static void show_self_check(struct doctor *d)
{
    struct self_check check;
    struct error err = {0};
    char key[1024], names[512];
    if (d->gpu < 0 || self_check_key(key, d->gpu, &err))
        return;
    if (self_check_load(&check, key)) {
        doctor_fact(d, "GPU self-check", "not made: by the next run, or trireme doctor --gpu");
        return;
    }
    d->replaced = check.replaced;
    doctor_fact(d, "GPU self-check", "%s%s",
                check.replaced ? "own kernels in place of what is wrong: " : "right",
                self_check_replaced(check.replaced, names, sizeof names));
    if (check.replaced)
        doctor_problem(d,
                       "the self-check found wrong results of a library: %s; trireme's own kernels "
                       "compute these, more slowly",
                       names);
}

/* Print whether this rank's GPU has what precision=fp8 takes, and computes it right. */
static void show_fp8(const struct doctor *d)
{
    struct error lacking = {0};
    struct device_gpu gpu;
    if (d->gpu < 0 || device_gpu_describe(d->gpu, &gpu, NULL))
        return;
    if (device_gpu_check_fp8(&gpu, &lacking))
        doctor_fact(d, "products in fp8", "none: precision=fp8 needs %s", lacking.text);
    else
        doctor_fact(d, "products in fp8", "%s",
                    d->replaced & DEVICE_FP8_FAMILY ? "by bf16, as those of cuBLASLt are wrong"
                                                    : "by cuBLASLt");
}

void doctor_check_gpus(struct doctor *d)
{
    char why[128] = "", text[256], library[96];
    const char *fault = mesh_gpu_library_fault();
    int count = device_gpu_count(why);
    double gpus = count;
    d->gpu = -1;
    doctor_fact(d, "CUDA", "%s", device_gpu_libraries(text));
    doctor_fact(d, "NCCL", "%s", mesh_gpu_library(library));
    if (fault && count > 0)
        doctor_problem(d, "NCCL %s %s", library, fault);
    if (count == 0)
        check_none(d, why);
    for (int i = 0; i < count; i++)
        check_one(d, i);
    if (count > 1)
        check_peers(d, count);
    if (!d->world)
        return;
    world_all_reduce(d->world, &gpus, 1, WORLD_MAX);
    if (gpus > 0)
        choose(d, count);
    show_self_check(d);
    show_fp8(d);
}
