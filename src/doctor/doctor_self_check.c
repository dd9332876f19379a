/* doctor_self_check.c - trireme doctor --gpu: comparing every family of kernels of the ranks' GPUs
 * with the CPU, also where an earlier self-check is stored. */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/text.h"
#include "comm/gpu/gpu.h"
#include "doctor/doctor.h"
#include "train/gpu_check.h"

enum { WRONG_BYTES = SELF_CHECK_MOST * 400 };

/* Choose the GPU of each rank; several ranks may share one here.  Collective. */
static int choose(struct world *world, struct device_request *request, struct error *err)
{
    char why[128] = "";
    int none = device_gpu_count(why) == 0;
    if (world_agree(world, none ? error_set(err, "no GPU to check: %s", why) : 0, err))
        return -1;
    *request = (struct device_request){.kind = DEVICE_CUDA, .local_ranks = world_local_size(world)};
    return gpu_choose(world, GPU_SHARED, &request->index, err);
}

static void print_all(const struct self_check *check, const char *key)
{
    char text[400];
    printf("%s\n", key);
    for (int i = 0; i < check->rows; i++)
        printf("%9.1f ms  %s\n", check->row[i].seconds * 1e3,
               self_check_line(&check->row[i], text));
    printf("%d families in %.1f s, of which %.1f s to open the devices; an error is a share of the "
           "number and of the root mean square of all\n",
           check->rows, check->seconds, check->open_seconds);
}

/* Print on rank 0 which families are wrong on the other ranks, a line each.  Collective. */
static int print_others(struct world *world, const struct self_check *check, struct error *err)
{
    char *mine = array_make(WRONG_BYTES, 1), *all = NULL, text[400];
    size_t *sizes = array_make((size_t)world_size(world), sizeof *sizes), total = 0;
    for (int i = 0; i < check->rows && world_rank(world); i++)
        if (check->row[i].verdict >= SELF_CHECK_REPLACED)
            text_append(mine, WRONG_BYTES, "rank %d on %s: %s\n", world_rank(world),
                        world_host(world), self_check_line(&check->row[i], text));
    int rc = world_gather(world, &all, sizes, mine, strlen(mine), 0, err);
    for (int r = 0; r < world_size(world) && !rc && all; r++)
        total += sizes[r];
    if (total)
        printf("%.*s", (int)total, all);
    free(all);
    free(sizes);
    free(mine);
    return rc;
}

int doctor_self_check(struct world **world, struct mem *mem, struct error *err)
{
    struct self_check check = {0};
    struct device_request request;
    struct error unkept = {0};
    char key[1024];
    if (world_start(world, mem, err) || choose(*world, &request, err))
        return -1;
    int rc = self_check_key(key, request.index, err) || self_check_run(&check, &request, mem, err);
    if (world_agree(*world, rc ? -1 : 0, err))
        return -1;
    if (world_rank(*world) == 0)
        print_all(&check, key);
    if (self_check_store(&check, key, &unkept) && world_rank(*world) == 0)
        printf("not kept: %s; each start of a run will check again\n", unkept.text);
    if (print_others(*world, &check, err))
        return -1;
    return world_agree(*world, gpu_check_refuse(&check, &request, err), err);
}
