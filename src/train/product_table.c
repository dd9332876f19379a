/* product_table.c - see product_table.h.  Rank 0 has the file and merges; what it comes to is
 * broadcast, so that all ranks hold the same table in the same order:
 *
 *   read_file()      rank 0 reads the file; all share it, and their devices take its choices
 *   session_note_products()  each device notes the shapes of all products of its programs
 *   agree_missing()  shapes that are not in the table go to rank 0, which lists each once, with the
 *                    lowest rank that has it as its owner; all share the list
 *   time_own()       each rank times those that it owns
 *   time_missing()   their choices go to rank 0, which adds them; all share and take the table
 */
#include "train/product_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/product_file.h"
#include "train/run_record.h"
#include "train/session.h"
#include "train/session_products.h"

enum { LIBRARY = 192 };

/* A product that is not in the table, and the rank that times it. */
struct missing {
    int64_t shape[PRODUCT_SHAPE];
    int64_t owner;
};

/* The index of a shape in the table; -1: it is not there. */
static int find(const struct product_table *t, const int64_t *shape)
{
    for (int i = 0; i < t->count; i++)
        if (!memcmp(t->choice[i].shape, shape, sizeof t->choice[i].shape))
            return i;
    return -1;
}

static void add(struct product_table *t, const struct product_choice *choice)
{
    t->choice = array_grow(t->choice, t->count, &t->capacity, sizeof *t->choice);
    t->choice[t->count++] = *choice;
}

/* Broadcast rank 0's table. */
static void share(struct product_table *t, struct world *world)
{
    int count = t->count;
    world_broadcast(world, &count, sizeof count, 0);
    if (world_rank(world)) {
        free(t->choice);
        t->choice = array_make((size_t)count + 1, sizeof *t->choice);
        t->capacity = count + 1;
        t->count = count;
    }
    if (count)
        world_broadcast(world, t->choice, (size_t)count * sizeof *t->choice, 0);
}

/* Do all ranks have the same GPU and library?  Else no choice is one for all. */
static int is_one_library(struct session *s, const char library[LIBRARY])
{
    char *all = array_make((size_t)world_size(s->world), LIBRARY), *other = NULL;
    world_all_gather(s->world, all, library, LIBRARY);
    for (int r = 0; r < world_size(s->world) && !other; r++)
        if (strcmp(all + (size_t)r * LIBRARY, all) != 0)
            other = all + (size_t)r * LIBRARY;
    if (other && !world_rank(s->world))
        log_warn(s->log,
                 "train.tune_products does nothing: ranks have different GPUs or libraries (%s; "
                 "%s)",
                 all, other);
    int same = !other;
    free(all);
    return same;
}

static char *path_of(const struct session *s)
{
    return array_format("%s/%s", s->config.run.dir, PRODUCTS_FILE);
}

/* Let a device compute each product of the table as was chosen.  Returns 0, or -1 with err set. */
static int take_all(const struct product_table *t, struct device *d, struct error *err)
{
    for (int i = 0; i < t->count; i++)
        if (device_product_take(d, &t->choice[i], err))
            return -1;
    return 0;
}

/* Does a new run begin (run.fresh), which has no file yet?  A requeued job goes on with the one
 * that it began. */
static int begins_fresh(const struct session *s)
{
    struct run_record record = {0};
    return s->config.run.fresh && (run_record_read(&record, s->config.run.dir, RUN_RECORD, NULL) ||
                                   !run_record_requeued(&record));
}

/* Read the run's file into the table, which stays empty where the file cannot be used. */
static void read_file(struct product_table *t, struct session *s, const char *library,
                      enum product_table_missing missing)
{
    struct error why = {0};
    char *path = path_of(s);
    int rc = 0;
    if (!world_rank(s->world) && !begins_fresh(s))
        rc = product_file_read(t, library, path, &why);
    rc = world_agree(s->world, rc, &why);
    if (!rc) {
        share(t, s->world);
        rc = world_agree(s->world, take_all(t, s->device, &why), &why);
    }
    if (rc) {
        t->count = 0;
        if (!world_rank(s->world))
            log_warn(s->log, "%s is not used: %s; %s", path, why.text,
                     missing == PRODUCT_IS_TIMED
                         ? "products are timed again"
                         : "products are by the library's first suggestions");
    } else if (t->count && !world_rank(s->world))
        log_info(s->log, "products: %d as chosen in %s", t->count, path);
    free(path);
}

/* The products of this rank that are not in the table, for free(); *count of them. */
static struct missing *list_missing(const struct product_table *t, const struct device *d,
                                    int *count)
{
    int noted = device_products_noted(d);
    struct missing *list = array_make((size_t)noted + 1, sizeof *list);
    *count = 0;
    for (int i = 0; i < noted; i++) {
        device_product_shape(d, i, list[*count].shape);
        *count += find(t, list[*count].shape) < 0;
    }
    return list;
}

/* On rank 0: make of the lists of all ranks one with each product once, owned by the lowest rank
 * that has it.  Returns how many are left in all. */
static int merge(struct missing *all, const size_t *bytes, int ranks)
{
    int count = 0, at = 0;
    for (int r = 0; r < ranks; r++)
        for (size_t n = bytes[r] / sizeof *all; n; n--, at++) {
            int k = 0;
            while (k < count && memcmp(all[k].shape, all[at].shape, sizeof all[k].shape) != 0)
                k++;
            if (k < count)
                continue;
            all[count] = all[at];
            all[count++].owner = r;
        }
    return count;
}

/* The products to be timed and the rank that times each, the same on all ranks, for free().
 * Collective.  NULL with err set, on all ranks. */
static struct missing *agree_missing(const struct product_table *t, struct session *s, int *count,
                                     struct error *err)
{
    int ranks = world_size(s->world), own;
    size_t *bytes = array_make((size_t)ranks, sizeof *bytes);
    struct missing *mine = list_missing(t, s->device, &own);
    char *all = NULL;
    int rc = world_gather(s->world, &all, bytes, mine, (size_t)own * sizeof *mine, 0, err);
    free(mine);
    *count = 0;
    if (!rc && !world_rank(s->world))
        *count = merge((struct missing *)all, bytes, ranks);
    free(bytes);
    if (rc)
        return NULL;
    world_broadcast(s->world, count, sizeof *count, 0);
    struct missing *list = array_make((size_t)*count + 1, sizeof *list);
    if (!world_rank(s->world) && *count)
        memcpy(list, all, (size_t)*count * sizeof *list);
    free(all);
    if (*count)
        world_broadcast(s->world, list, (size_t)*count * sizeof *list, 0);
    return list;
}

/* The number of a shape among those that a device noted; -1: it noted none such. */
static int index_of(const struct device *d, const int64_t *shape)
{
    int64_t other[PRODUCT_SHAPE];
    for (int i = 0; i < device_products_noted(d); i++) {
        device_product_shape(d, i, other);
        if (!memcmp(other, shape, sizeof other))
            return i;
    }
    return -1;
}

/* Time the products that this rank owns, and add the choices to own.  Returns 0, or -1 with err
 * set. */
static int time_own(struct product_table *own, const struct missing *list, int count,
                    const struct session *s, struct error *err)
{
    for (int i = 0; i < count; i++) {
        struct product_choice choice;
        if (list[i].owner != world_rank(s->world))
            continue;
        int rc = device_product_tune(s->device, index_of(s->device, list[i].shape), &choice, err);
        if (rc < 0)
            return -1;
        if (!rc)
            add(own, &choice);
    }
    return 0;
}

/* Log what timing the choices from number `before` on came to, which took ms. */
static void report(const struct product_table *t, int before, const struct session *s, double ms)
{
    int faster = 0;
    double ns = 0, first_ns = 0;
    for (int i = before; i < t->count; i++) {
        faster += t->choice[i].ns < t->choice[i].first_ns;
        ns += (double)t->choice[i].ns;
        first_ns += (double)t->choice[i].first_ns;
    }
    if (t->count > before && !world_rank(s->world))
        log_info(s->log,
                 "products: %d timed in %.1f s; for %d another algorithm is faster than the "
                 "library's first suggestion (one of each: %.3f ms, not %.3f)",
                 t->count - before, ms / 1e3, faster, ns / 1e6, first_ns / 1e6);
}

/* Time the noted products that are not in the table, add them, and have all devices take the table.
 * Collective.  Returns 0, or -1 on all ranks with err set. */
static int time_missing(struct product_table *t, struct session *s, struct error *err)
{
    int64_t start = clock_ns();
    struct product_table own = {0};
    int count, before = t->count;
    struct missing *list = agree_missing(t, s, &count, err);
    if (!list)
        return -1;
    size_t *bytes = array_make((size_t)world_size(s->world), sizeof *bytes), all_bytes = 0;
    char *all = NULL;
    int rc = world_agree(s->world, time_own(&own, list, count, s, err), err) ||
             world_gather(s->world, &all, bytes, own.choice, (size_t)own.count * sizeof *own.choice,
                          0, err);
    for (int r = 0; r < world_size(s->world) && !rc && !world_rank(s->world); r++)
        all_bytes += bytes[r];
    for (size_t i = 0; i < all_bytes / sizeof *t->choice; i++)
        add(t, (const struct product_choice *)all + i);
    if (!rc) {
        share(t, s->world);
        t->is_new = t->count > before;
        rc = world_agree(s->world, take_all(t, s->device, err), err);
    }
    if (!rc)
        report(t, before, s, (double)(clock_ns() - start) / 1e6);
    free(list);
    free(bytes);
    free(all);
    free(own.choice);
    return rc ? -1 : 0;
}

int product_table_choose(struct product_table *t, struct session *s,
                         enum product_table_missing missing, struct error *err)
{
    char library[LIBRARY] = "";
    if (!s->config.train.tune_products || !device_products_library(s->device, library)[0] ||
        !is_one_library(s, library))
        return 0;
    read_file(t, s, library, missing);
    if (missing == PRODUCT_IS_LEFT)
        return 0;
    return world_agree(s->world, session_note_products(s, err), err) || time_missing(t, s, err) ? -1
                                                                                                : 0;
}

int product_table_write(struct product_table *t, const struct session *s, struct error *err)
{
    char library[LIBRARY], *path = path_of(s);
    int rc = 0;
    if (t->is_new)
        rc = product_file_write(t, device_products_library(s->device, library), path, err);
    t->is_new = t->is_new && rc;
    free(path);
    return rc;
}

void product_table_free(struct product_table *t)
{
    free(t->choice);
    *t = (struct product_table){0};
}
