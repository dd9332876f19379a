/* weights_init.c - initial values: functions of (seed, tensor name, index in the whole tensor),
 * never of the layout; magnitudes of adapters, of the rows of the whole matrix that they belong to,
 * wherever that is read from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/nf4.h"
#include "base/philox.h"
#include "base/round.h"
#include "model/adapters.h"
#include "train/weights_private.h"
#include "train/weights.h"

enum { PIECE = 1 << 18 };

/* Fill elements [from, end) of a tensor's box: each is a function of its index in the whole tensor.
 */
static void fill_runs(float *to, uint64_t key, const struct flat_tensor *tensor, int64_t from,
                      int64_t end)
{
    const struct box *box = &tensor->box, whole = box_whole(box->dims, box->whole);
    int64_t run, first;
    for (int64_t at = from; at < end; at += run) {
        run = min_i64(box_run(box, &whole, at, &first), end - at);
        if (tensor->init == INIT_NORMAL)
            philox_fill_normal(to + (at - from), key, (uint64_t)first, run, tensor->std);
        else
            philox_fill_uniform(to + (at - from), key, (uint64_t)first, run, tensor->std);
    }
}

/* The tensor of this name, in whichever flat it is; NULL: there is none.  *is_nf4: is it kept in 4
 * bits? */
static const struct flat_tensor *find_tensor(const struct session *s, const char *name, int *is_nf4)
{
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        int t = flat_find(flat, name);
        *is_nf4 = flat->is_nf4;
        if (t >= 0)
            return &flat->tensor[t];
    }
    return NULL;
}

/* Elements of a whole matrix as they are kept, in *first of values: of 4 bits these are what
 * records stand for, of the blocks that the elements are in.  values: space for 2 * NF4_BLOCK more.
 */
static int fill_kept(weights_fill_part *fill, void *user, struct flat_part part, int is_nf4,
                     float *values, float **first, struct error *err)
{
    unsigned char record[NF4_BYTES];
    int64_t skip = is_nf4 ? part.start % NF4_BLOCK : 0;
    *first = values + skip;
    part.start -= skip;
    part.count = is_nf4 ? round_up(part.count + skip, NF4_BLOCK) : part.count;
    if (fill(user, &part, values, err))
        return -1;
    for (int64_t at = 0; is_nf4 && at < part.count; at += NF4_BLOCK) {
        nf4_encode(record, values + at, NF4_BLOCK);
        nf4_decode(values + at, record, NF4_BLOCK);
    }
    return 0;
}

static float norm_of(const float *row, int64_t columns)
{
    double sum = 0;
    for (int64_t i = 0; i < columns; i++)
        sum += (double)row[i] * row[i];
    return (float)sqrt(sum);
}

int weights_norms_part(const struct session *s, const struct flat_part *part,
                       weights_fill_part *fill, void *user, float *to, struct error *err)
{
    enum { BLOCK = 1 << 20 }; /* elements in memory at a time, or a row */
    char name[MODEL_TENSOR];
    int is_nf4 = 0;
    const struct flat_tensor *found =
        adapters_magnitude_of(part->tensor->name, name) ? find_tensor(s, name, &is_nf4) : NULL;
    if (!found)
        return error_set(err, "%s belongs to no matrix of the model", part->tensor->name);
    struct flat_tensor matrix = *found;
    matrix.box = box_whole(2, found->box.whole);
    matrix.elems = box_elems(&matrix.box);
    int64_t columns = matrix.box.whole[1], most = max_i64(BLOCK / columns, 1);
    int64_t first = part->tensor->box.start[0] + part->start;
    int64_t space = min_i64(most, part->count) * columns + 2 * NF4_BLOCK;
    float *rows = malloc((size_t)space * sizeof *rows), *row;
    int rc = rows ? 0 : error_set(err, "out of memory: rows of %s", name);
    for (int64_t at = 0; !rc && at < part->count; at += most) {
        int64_t count = min_i64(most, part->count - at);
        const struct flat_part some = {
            .tensor = &matrix, .start = (first + at) * columns, .count = count * columns};
        rc = fill_kept(fill, user, some, is_nf4, rows, &row, err);
        for (int64_t i = 0; !rc && i < count; i++)
            to[at + i] = norm_of(row + i * columns, columns);
    }
    free(rows);
    return rc ? -1 : 0;
}

int weights_init_part(void *user, const struct flat_part *part, float *to, struct error *err)
{
    const struct session *s = user;
    const struct flat_tensor *tensor = part->tensor;
    if (tensor->init == INIT_ROW_NORMS)
        return weights_norms_part(s, part, weights_init_part, user, to, err);
    if (tensor->init == INIT_NORMAL || tensor->init == INIT_UNIFORM) {
        uint64_t key = philox_key((uint64_t)s->config.seed, tensor->name);
        fill_runs(to, key, tensor, part->start, part->start + part->count);
        return 0;
    }
    for (int64_t i = 0; i < part->count; i++)
        to[i] = tensor->init == INIT_ONES ? 1.0f : 0.0f;
    return 0;
}

/* Round values in place, from the first to the last, to the format in which they are kept. */
static void narrow(float *values, int64_t elems, enum dtype dtype)
{
    for (int64_t i = 0; i < elems && dtype != DTYPE_F32; i++) {
        uint16_t rounded = dtype == DTYPE_BF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        memcpy((char *)values + (size_t)i * sizeof rounded, &rounded, sizeof rounded);
    }
}

int weights_write(struct session *s, int flat, int64_t at, float *values, int64_t count,
                  struct error *err)
{
    struct weights_slot slots[WEIGHTS_SLOTS];
    if (!weights_slots(s, flat, slots))
        return 0;
    if (slots[0].is_nf4)
        nf4_encode(values, values, count);
    else
        narrow(values, count, slots[0].dtype);
    return executor_write(s->executor, &s->state->buffer[slots[0].buffer],
                          weights_byte_offset(&slots[0], at), values,
                          weights_byte_offset(&slots[0], count), err);
}

/* A shard that is being filled. */
struct filling {
    const struct weights_filler *filler;
    const struct weights_slot *slot;
    char *to;
    int threads;
};

/* Are the numbers filled in where they stay, in fp32? */
static int is_filled_in_place(const struct filling *f)
{
    return f->slot->dtype == DTYPE_F32 && !f->slot->is_nf4;
}

/* Fill a piece of a part.  values: space for its fp32 values, if the shard is in another format. */
static int fill_piece(const struct filling *f, const struct flat_part *piece, float *values,
                      struct error *err)
{
    char *to = f->to + weights_byte_offset(f->slot, piece->at);
    alive_note();
    const struct weights_filler *filler = f->filler;
    enum dtype dtype = f->slot->dtype;
    int may_be_as_stored = filler->fill_as && !f->slot->is_nf4;
    if (is_filled_in_place(f))
        return filler->fill(filler->user, piece, (float *)to, err);
    int rc = may_be_as_stored ? filler->fill_as(filler->user, piece, dtype, to, err) : 1;
    if (rc != 1)
        return rc;
    if (filler->fill(filler->user, piece, values, err))
        return -1;
    if (f->slot->is_nf4)
        nf4_encode(to, values, piece->count);
    else
        dtype_narrow(to, dtype, values, piece->count);
    return 0;
}

/* Fill a part, whose pieces threads take one by one. */
static int fill_part(const struct filling *f, const struct flat_part *part, struct error *err)
{
    const struct weights_filler *filler = f->filler;
    int64_t most = filler->piece ? filler->piece(filler->user, part, f->threads) : 0;
    int failed = 0;
    most = most ? round_up(most, NF4_BLOCK) : PIECE;
#pragma omp parallel num_threads(part->count > most ? f->threads : 1)
    {
        struct error own = {0};
        int in_place = is_filled_in_place(f);
        float *values = in_place ? NULL : malloc((size_t)most * sizeof *values);
        int rc = values || in_place
                     ? 0
                     : error_set(&own, "out of memory: a piece of %s", part->tensor->name);
#pragma omp for schedule(dynamic)
        for (int64_t done = 0; done < part->count; done += most) {
            struct flat_part piece = *part;
            piece.start += done;
            piece.at += done;
            piece.count = min_i64(most, part->count - done);
            if (!rc)
                rc = fill_piece(f, &piece, values, &own);
        }
        free(values);
#pragma omp critical
        if (rc && !failed++)
            *err = own;
    }
    return failed ? -1 : 0;
}

/* Set to zero what of elements [start, end) of a flat, the shard, belongs to no tensor. */
static void clear_pads(const struct filling *f, const struct flat *flat, int64_t start, int64_t end)
{
    for (int i = 0; i < flat->pads; i++) {
        int64_t from = max_i64(flat->pad[i].start, start);
        int64_t to = min_i64(flat->pad[i].start + flat->pad[i].count, end);
        if (from < to)
            memset(f->to + weights_byte_offset(f->slot, from - start), 0,
                   weights_byte_offset(f->slot, to - from));
    }
}

/* Clear and fill a flat: in place where it is memory of this process, else in shard, which is then
 * written there. */
static int fill_flat(struct session *s, int f, const struct weights_filler *filler, void *shard,
                     struct error *err)
{
    const struct flat *flat = &s->units->flat[f];
    struct weights_slot slots[WEIGHTS_SLOTS];
    struct flat_part part;
    int64_t start = state_shard_start(s->state, f), end = start + flat->shard_elems;
    if (!weights_slots(s, f, slots))
        return 0;
    size_t bytes = weights_byte_offset(&slots[0], flat->shard_elems);
    char *plain = weights_plain(s, slots[0].buffer);
    struct filling filling = {.filler = filler,
                              .slot = &slots[0],
                              .to = plain ? plain : shard,
                              .threads = s->device->threads};
    if (weights_clear_but(s, f, slots[0].buffer, err))
        return -1;
    clear_pads(&filling, flat, start, end);
    for (int t = -1; (t = flat_next_part(flat, start, end, t, &part)) >= 0;)
        if (fill_part(&filling, &part, err))
            return -1;
    if (!plain &&
        executor_write(s->executor, &s->state->buffer[slots[0].buffer], 0, shard, bytes, err))
        return -1;
    return weights_refresh(s, f, err);
}

/* Memory for the largest shard that is not in memory of this process; -1 with err set. */
static int make_shard(const struct session *s, void **shard, struct error *err)
{
    struct weights_slot slots[WEIGHTS_SLOTS];
    size_t most = 0;
    for (int f = 0; f < s->units->flats; f++) {
        if (!weights_slots(s, f, slots) || weights_plain(s, slots[0].buffer))
            continue;
        size_t bytes = weights_byte_offset(&slots[0], s->units->flat[f].shard_elems);
        most = bytes > most ? bytes : most;
    }
    *shard = most ? malloc(most) : NULL;
    return !most || *shard
               ? 0
               : error_set(err, "out of memory: %zu bytes for one unit's parameters", most);
}

int weights_fill(struct session *s, const char *flats, const struct weights_filler *filler,
                 struct error *err)
{
    void *shard;
    int rc = make_shard(s, &shard, err);
    for (int f = 0; f < s->units->flats && !rc; f++)
        rc = flats && !flats[f] ? 0 : fill_flat(s, f, filler, shard, err);
    free(shard);
    return rc || device_sync(s->device, err) ? -1 : 0;
}

int weights_init(struct session *s, struct error *err)
{
    const struct weights_filler filler = {.fill = weights_init_part, .user = s};
    return weights_fill(s, NULL, &filler, err);
}
