/* gpu_shapes.c - see gpu_shapes.h.  Each rank checks its own shapes; rank 0 gathers those that are
 * wrong and lists each once; all ranks replace all of the list, as ranks that compute the same have
 * to compute it alike. */
#include "train/gpu_shapes.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/self_check.h"
#include "device/shape_check.h"
#include "train/session.h"
#include "train/session_products.h"

enum { KEY = 1300, LIBRARY = 192, ROUNDS = 3 };

/* What the outcome depends on, a line: the key of the self-check, how the library chooses, and all
 * shapes. */
static int key_of(char key[KEY], const struct device *d, struct error *err)
{
    int count = device_shapes_noted(d);
    int64_t(*shape)[SHAPE_WORDS] = array_make((size_t)count + 1, sizeof *shape);
    for (int i = 0; i < count; i++)
        device_shape(d, i, shape[i]);
    char library[LIBRARY] = "";
    int rc = self_check_key(key, d->index, err);
    size_t used = rc ? 0 : strlen(key);
    if (!rc)
        snprintf(key + used, KEY - used, "; %s; %d shapes, %016llx",
                 device_products_library(d, library), count,
                 (unsigned long long)hash_bytes(shape, (size_t)count * sizeof *shape));
    free(shape);
    return rc;
}

/* Check the shapes of this rank; those that are wrong go to *wrong, for free().  Returns 0, or -1
 * with err set. */
static int check_own(const struct session *s, struct shape_check **wrong, int *count,
                     struct error *err)
{
    struct device *d = s->device;
    struct error unkept = {0};
    char key[KEY];
    *wrong = array_make((size_t)device_shapes_noted(d) + 1, sizeof **wrong);
    *count = 0;
    if (!device_shapes_noted(d))
        return 0;
    if (key_of(key, d, err))
        return -1;
    const int is_kept = !s->config.train.tune_products; /* else algorithms are this start's own */
    if (s->config.run.self_check == SELF_CHECK_AUTO && is_kept && shape_check_is_kept(key))
        return 0;
    for (int i = 0; i < device_shapes_noted(d); i++) {
        int rc = device_shape_check(d, i, &(*wrong)[*count], err);
        if (rc < 0)
            return error_prefix(err, "check of this run's shapes on the GPU");
        *count += !rc && (*wrong)[*count].is_wrong;
    }
    if (!*count && !s->wrong_shape_count && is_kept)
        shape_check_keep(key, &unkept); /* where that fails, the next start checks again */
    return 0;
}

/* Make one list of those of all ranks, with each shape once.  Returns how many are left. */
static int merge(struct shape_check *all, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < kept && memcmp(all[k].shape, all[i].shape, sizeof all[k].shape) != 0)
            k++;
        if (k == kept)
            all[kept++] = all[i];
    }
    return kept;
}

/* Let all ranks have what is wrong on any, for free().  Collective.  NULL with err set on all. */
static struct shape_check *share(const struct session *s, const struct shape_check *own, int *count,
                                 struct error *err)
{
    const int ranks = world_size(s->world), is_first = world_rank(s->world) == 0;
    size_t *bytes = array_make((size_t)ranks, sizeof *bytes), sum = 0;
    char *gathered = NULL;
    int rc = world_gather(s->world, &gathered, bytes, own, (size_t)*count * sizeof *own, 0, err);
    for (int r = 0; r < ranks && !rc && is_first; r++)
        sum += bytes[r];
    *count = is_first ? merge((struct shape_check *)gathered, (int)(sum / sizeof *own)) : 0;
    free(bytes);
    if (rc)
        return NULL;
    world_broadcast(s->world, count, sizeof *count, 0);
    struct shape_check *all = array_make((size_t)*count + 1, sizeof *all);
    if (is_first && *count)
        memcpy(all, gathered, (size_t)*count * sizeof *all);
    free(gathered);
    if (*count)
        world_broadcast(s->world, all, (size_t)*count * sizeof *all, 0);
    return all;
}

static int replace(const struct session *s, const struct shape_check *all, int count,
                   struct error *err)
{
    for (int i = 0; i < count; i++) {
        if (world_rank(s->world) == 0)
            log_warn(s->log,
                     "%s: the library is wrong by %.2g of the result, %.2g allowed; trireme's own "
                     "kernels compute it, more slowly",
                     all[i].name, all[i].off, all[i].bound);
        if (device_shape_replace(s->device, all[i].shape, err))
            return -1;
    }
    return 0;
}

/* Check and replace what is wrong, which is added to the session's list.  *count: how many were. */
static int check_once(struct session *s, int *count, struct error *err)
{
    struct shape_check *own = NULL, *all = NULL;
    const int before = s->wrong_shape_count;
    *count = 0;
    int rc =
        world_agree(s->world, session_note_products(s, err) || check_own(s, &own, count, err), err);
    if (!rc && !(all = share(s, own, count, err)))
        rc = -1;
    if (!rc)
        rc = world_agree(s->world, replace(s, all, *count, err), err);
    if (!rc && *count) {
        const size_t bytes = (size_t)(before + *count) * sizeof *all;
        s->wrong_shapes = array_need(realloc(s->wrong_shapes, bytes), bytes);
        memcpy(s->wrong_shapes + before, all, (size_t)*count * sizeof *all);
        s->wrong_shape_count = before + *count;
    }
    free(own);
    free(all);
    return rc;
}

/* What replaces a product in fp8 multiplies in bf16, by the library, which is then checked too. */
int gpu_shapes_check(struct session *s, struct error *err)
{
    int count = 1;
    if (s->device->kind != DEVICE_CUDA || s->config.run.self_check == SELF_CHECK_OFF)
        return 0;
    for (int round = 0; round < ROUNDS && count; round++)
        if (check_once(s, &count, err))
            return -1;
    return 0;
}
