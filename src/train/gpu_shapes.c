/* gpu_shapes.c - see gpu_shapes.h.  Each rank checks its own shapes; rank 0 gathers those that are
 * wrong and lists each once; all ranks replace all of the list, as ranks that compute the same have
 * to compute it alike.  What replaces them is checked in the next round, and so on.  That all
 * shapes of all ranks were right is kept for the next start. */
#include "train/gpu_shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/self_check.h"
#include "device/shape_check.h"
#include "train/session.h"
#include "train/session_products.h"

/* A round for each algorithm of the library, and two for the products in bf16 that replace one in
 * fp8. */
enum { KEY = 1300, LIBRARY = 192, ROUNDS = PRODUCT_TRIED + 2 };

/* What is known between rounds. */
struct rounds {
    char key[KEY]; /* by which to keep that shapes are right; "": they are not checked here, or it
                      is not to be kept */
    int64_t (*right)[SHAPE_WORDS]; /* shapes that were found right */
    int right_count, right_capacity;
};

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

static int was_right(const struct rounds *rounds, const int64_t shape[SHAPE_WORDS])
{
    for (int i = 0; i < rounds->right_count; i++)
        if (!memcmp(rounds->right[i], shape, sizeof rounds->right[i]))
            return 1;
    return 0;
}

/* Check what is noted, but for what was right in a round before. */
static int check_noted(const struct session *s, struct rounds *rounds, struct shape_check *wrong,
                       int *count, struct error *err)
{
    struct device *d = s->device;
    for (int i = 0; i < device_shapes_noted(d); i++) {
        int64_t shape[SHAPE_WORDS];
        struct shape_check *check = &wrong[*count];
        device_shape(d, i, shape);
        if (was_right(rounds, shape))
            continue;
        int rc = device_shape_check(d, i, check, err);
        if (rc < 0)
            return error_prefix(err, "check of this run's shapes on the GPU: %s", check->name);
        *count += !rc && check->is_wrong;
        if (rc || check->is_wrong)
            continue;
        rounds->right = array_grow(rounds->right, rounds->right_count, &rounds->right_capacity,
                                   sizeof *rounds->right);
        memcpy(rounds->right[rounds->right_count++], shape, sizeof shape);
    }
    return 0;
}

/* Check the shapes of this rank; those that are wrong go to *wrong, for free().  Returns 0, or -1
 * with err set. */
static int check_own(const struct session *s, struct rounds *rounds, struct shape_check **wrong,
                     int *count, struct error *err)
{
    struct device *d = s->device;
    const int is_kept = !s->config.train.tune_products; /* else algorithms are this start's own */
    char key[KEY];
    *wrong = array_make((size_t)device_shapes_noted(d) + 1, sizeof **wrong);
    *count = 0;
    rounds->key[0] = 0;
    if (!device_shapes_noted(d))
        return 0;
    if (key_of(key, d, err))
        return -1;
    if (s->config.run.self_check == SELF_CHECK_AUTO && is_kept && shape_check_is_kept(key))
        return 0;
    if (is_kept)
        memcpy(rounds->key, key, sizeof key);
    return check_noted(s, rounds, *wrong, count, err);
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

/* Is it one that was wrong in a round before? */
static int is_known(const struct session *s, const struct shape_check *check)
{
    for (int i = 0; i < s->wrong_shape_count; i++)
        if (!memcmp(s->wrong_shapes[i].shape, check->shape, sizeof check->shape))
            return 1;
    return 0;
}

/* Warn on rank 0: once when a shape is found wrong, and where no algorithm is left. */
static void warn(const struct session *s, const struct shape_check *check,
                 enum shape_check_replaced by)
{
    static const char *const instead[] = {
        [SHAPE_BY_OWN_KERNELS] = "trireme's own kernels compute it, more slowly",
        [SHAPE_IN_BF16] = "it is computed in bf16, more slowly",
        [SHAPE_BY_OTHER_ALGORITHM] = "another of its algorithms computes it, if one is right",
    };
    const int is_last = by != SHAPE_BY_OTHER_ALGORITHM;
    char wrong[96] = "gives no numbers, or refuses it";
    if (world_rank(s->world) != 0 || (is_known(s, check) && !is_last))
        return;
    if (!isnan(check->off))
        snprintf(wrong, sizeof wrong, "is wrong by %.2g of the result, %.2g allowed", check->off,
                 check->bound);
    if (is_known(s, check))
        log_warn(s->log, "%s: the library's other algorithms are no better; %s", check->name,
                 instead[by]);
    else
        log_warn(s->log, "%s: the library %s; %s", check->name, wrong, instead[by]);
}

/* Replace all, and add those that are new to the session's list. */
static int replace(struct session *s, const struct shape_check *all, int count, struct error *err)
{
    for (int i = 0; i < count; i++) {
        int by = device_shape_replace(s->device, all[i].shape, err);
        if (by < 0)
            return -1;
        warn(s, &all[i], by);
        if (is_known(s, &all[i]))
            continue;
        const size_t bytes = (size_t)(s->wrong_shape_count + 1) * sizeof *all;
        s->wrong_shapes = array_need(realloc(s->wrong_shapes, bytes), bytes);
        s->wrong_shapes[s->wrong_shape_count++] = all[i];
    }
    return 0;
}

/* Check and replace what is wrong.  *count: how many were. */
static int check_once(struct session *s, struct rounds *rounds, int *count, struct error *err)
{
    struct shape_check *own = NULL, *all = NULL;
    struct error unkept = {0};
    *count = 0;
    int rc = world_agree(
        s->world, session_note_products(s, err) || check_own(s, rounds, &own, count, err), err);
    if (!rc && !(all = share(s, own, count, err)))
        rc = -1;
    if (!rc)
        rc = world_agree(s->world, replace(s, all, *count, err), err);
    if (!rc && rounds->key[0] && !s->wrong_shape_count)
        shape_check_keep(rounds->key, &unkept); /* else the next start checks again */
    free(own);
    free(all);
    return rc;
}

int gpu_shapes_check(struct session *s, struct error *err)
{
    struct rounds rounds = {.right_count = 0};
    int count = 1, rc = 0;
    if (s->device->kind != DEVICE_CUDA || s->config.run.self_check == SELF_CHECK_OFF)
        return 0;
    for (int round = 0; round < ROUNDS && count && !rc; round++)
        rc = check_once(s, &rounds, &count, err);
    free(rounds.right);
    return rc;
}
