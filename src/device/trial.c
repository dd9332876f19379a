/* trial.c - one call of an op on both devices, and how far apart the results are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/round.h"
#include "device/trial.h"

enum { ALIGN = 256, GAP = 64, POISON = 0xff };

static const uint64_t seed = 0x73656c66;

const enum dtype trial_formats[TRIAL_FORMATS] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

static size_t bytes_of(const struct trial_tensor *tensor)
{
    return (size_t)tensor->elems * dtype_bytes(tensor->dt);
}

/* ---- opening ---- */

static int open_side(struct trial_side *side, struct device *d, struct mem *mem, struct error *err)
{
    side->d = d;
    side->mem = mem;
    side->block = device_alloc(d, mem, POOL_WORKSPACE, TRIAL_BYTES, err);
    return side->block ? 0 : -1;
}

static void close_side(struct trial_side *side)
{
    device_free(side->d, side->mem, POOL_WORKSPACE, side->scratch_bytes, side->scratch);
    device_free(side->d, side->mem, POOL_WORKSPACE, TRIAL_BYTES, side->block);
}

int trial_open(struct trial *t, struct device *gpu, struct device *cpu, struct mem *mem,
               struct error *err)
{
    *t = (struct trial){0};
    t->before = array_make(TRIAL_BYTES, 1);
    t->want = array_make(TRIAL_BYTES, 1);
    t->got = array_make(TRIAL_BYTES, 1);
    t->again = array_make(TRIAL_BYTES, 1);
    if (!open_side(&t->cpu, cpu, mem, err) && !open_side(&t->gpu, gpu, mem, err))
        return 0;
    trial_close(t);
    return -1;
}

void trial_close(struct trial *t)
{
    close_side(&t->gpu);
    close_side(&t->cpu);
    free(t->before);
    free(t->want);
    free(t->got);
    free(t->again);
}

/* ---- tensors ---- */

void trial_begin(struct trial *t, const char *op, enum dtype dt)
{
    t->op = op;
    t->dt = dt;
    t->count = 0;
}

/* The bytes of the block that are taken, with the gap after each tensor. */
static size_t used_bytes(const struct trial *t)
{
    if (!t->count)
        return 0;
    const struct trial_tensor *last = &t->tensor[t->count - 1];
    return (last->begin + bytes_of(last) + GAP + ALIGN - 1) / ALIGN * ALIGN;
}

static struct trial_tensor *add(struct trial *t, enum trial_use use, enum dtype dt, int64_t elems)
{
    size_t begin = used_bytes(t);
    struct trial_tensor *tensor = &t->tensor[t->count++];
    *tensor = (struct trial_tensor){.use = use, .dt = dt, .elems = elems, .begin = begin};
    tensor->values = t->before + begin;
    assert(t->count <= TRIAL_TENSORS && used_bytes(t) <= TRIAL_BYTES);
    memset(tensor->values, POISON, used_bytes(t) - begin);
    return tensor;
}

static void put(void *values, enum dtype dt, int64_t i, double value)
{
    float narrow = (float)value;
    if (dt == DTYPE_F64)
        ((double *)values)[i] = value;
    else if (dt == DTYPE_F32)
        ((float *)values)[i] = narrow;
    else
        dtype_narrow((char *)values + (size_t)i * dtype_bytes(dt), dt, &narrow, 1);
}

static double get(const struct trial_tensor *tensor, const void *values, int64_t i)
{
    const enum dtype dt = tensor->dt;
    float wide;
    if (tensor->decode)
        return tensor->decode(((const uint8_t *)values)[i]);
    if (dt == DTYPE_F64)
        return ((const double *)values)[i];
    if (dt == DTYPE_F32)
        return ((const float *)values)[i];
    dtype_widen(&wide, (const char *)values + (size_t)i * dtype_bytes(dt), dt, 1);
    return wide;
}

struct trial_tensor *trial_changed(struct trial *t, enum dtype dt, int64_t elems, double scale)
{
    struct trial_tensor *tensor = add(t, TRIAL_NEAR, dt, elems);
    enum { BATCH = 1024 };
    float normal[BATCH];
    for (int64_t i = 0; i < elems; i++) {
        if (i % BATCH == 0)
            philox_fill_normal(normal, seed, t->drawn + (uint64_t)i, BATCH, 1);
        put(tensor->values, dt, i, normal[i % BATCH] * scale);
    }
    t->drawn += (uint64_t)elems;
    return tensor;
}

struct trial_tensor *trial_read(struct trial *t, enum dtype dt, int64_t elems, double scale)
{
    struct trial_tensor *tensor = trial_changed(t, dt, elems, scale);
    tensor->use = TRIAL_READ;
    return tensor;
}

struct trial_tensor *trial_near(struct trial *t, enum dtype dt, int64_t elems)
{
    return add(t, TRIAL_NEAR, dt, elems);
}

struct trial_tensor *trial_exact(struct trial *t, enum dtype dt, int64_t elems)
{
    return add(t, TRIAL_EXACT, dt, elems);
}

struct trial_tensor *trial_copy(struct trial *t, enum dtype dt, int64_t elems, const void *values)
{
    struct trial_tensor *tensor = add(t, TRIAL_READ, dt, elems);
    memcpy(tensor->values, values, bytes_of(tensor));
    return tensor;
}

struct trial_tensor *trial_tokens(struct trial *t, int64_t elems, int64_t bound)
{
    struct trial_tensor *tensor = add(t, TRIAL_READ, DTYPE_I32, elems);
    for (int64_t i = 0; i < elems; i++)
        ((int32_t *)tensor->values)[i] = (int32_t)(philox_u64(seed, t->drawn++) % (uint64_t)bound);
    return tensor;
}

void trial_none(struct trial *t)
{
    add(t, TRIAL_READ, DTYPE_F32, 0);
}

struct trial_tensor *trial_gradient(struct trial *t, int64_t elems, int accumulate)
{
    return accumulate ? trial_changed(t, DTYPE_F32, elems, 1) : trial_near(t, DTYPE_F32, elems);
}

/* ---- comparing ---- */

/* Results are rounded once to a 16-bit format, here and there in opposite directions; sums in fp32
 * and fp64 are of up to a few hundred terms, in another order, of exponentials that each GPU
 * approximates in its way.  Products in TF32 in place of fp32 are beyond. */
static double bound_of(const struct trial_tensor *tensor)
{
    if (tensor->use == TRIAL_EXACT)
        return 0;
    if (tensor->bound > 0)
        return tensor->bound;
    switch (tensor->dt) {
    case DTYPE_BF16: return 1e-2;
    case DTYPE_F16: return 1.25e-3;
    case DTYPE_F64: return 1e-12;
    default: return 3e-5;
    }
}

static int is_skipped(const struct trial_tensor *tensor, int64_t i)
{
    return tensor->skip && i % tensor->skip == 0;
}

static double rms(const struct trial_tensor *tensor, const void *values, int64_t first,
                  int64_t count)
{
    double square = 0;
    int64_t finite = 0;
    for (int64_t i = first; i < first + count; i++) {
        double value = get(tensor, values, i);
        if (!isfinite(value) || is_skipped(tensor, i))
            continue;
        square += value * value;
        finite++;
    }
    return finite ? sqrt(square / (double)finite) : 0;
}

/* The largest difference, as a share of the number wanted and of the root mean squares; where those
 * are of rows, too, or four times the share that all differences are of all numbers; infinite where
 * either is no number.  The CPU may make denormals 0. */
static double largest_error(const struct trial_tensor *tensor, const void *got, const void *want)
{
    const size_t size = dtype_bytes(tensor->dt);
    const double step = tensor->dt == DTYPE_F16 ? 0x1p-24 : 1.2e-38;
    const double whole = fmax(rms(tensor, want, 0, tensor->elems), tensor->size);
    double worst = 0, of_row = 0, square = 0;
    for (int64_t i = 0; i < tensor->elems; i++) {
        if (tensor->row && i % tensor->row == 0)
            of_row = rms(tensor, want, i, tensor->row);
        if (!memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                    size))
            continue;
        double a = get(tensor, got, i), b = get(tensor, want, i);
        if ((isnan(a) && isnan(b)) || (is_skipped(tensor, i) && isfinite(a)))
            continue;
        double error = fmax(fabs(a - b) - step, 0) / (fabs(b) + whole + of_row);
        if (tensor->use == TRIAL_EXACT)
            error = fmax(error, 0x1p-149);
        if (!isfinite(a) || !isfinite(b) || !isfinite(error))
            return INFINITY;
        worst = fmax(worst, error);
        square += (a - b) * (a - b);
    }
    double norm = sqrt(square / (double)tensor->elems);
    return tensor->row && whole > 0 ? fmax(worst, 4 * norm / whole) : worst;
}

/* The row keeps the error that is the largest share of its bound. */
static void keep_worst(struct trial *t, double error, double bound)
{
    struct self_check_row *row = t->row;
    double share = bound > 0 ? error / bound : error > 0 ? INFINITY : 0;
    double before = row->bound > 0 ? row->error / row->bound : row->error > 0 ? INFINITY : 0;
    if (row->of[0] && (share < before || (share == before && error <= row->error)))
        return;
    snprintf(row->of, sizeof row->of, "%s %s", t->op, dtype_name(t->dt));
    row->error = error;
    row->bound = bound;
}

static void find_fault(struct trial *t, const char *why)
{
    if (!t->row->why[0])
        snprintf(t->row->why, sizeof t->row->why, "%s %s: %.120s", t->op, dtype_name(t->dt), why);
}

/* Is all as before that the call does not write: what it only reads, and the gaps? */
static int is_untouched(const struct trial *t)
{
    size_t from = 0, end = used_bytes(t);
    for (int i = 0; i <= t->count; i++) {
        const struct trial_tensor *tensor = &t->tensor[i];
        if (i < t->count && tensor->use == TRIAL_READ)
            continue;
        size_t to = i < t->count ? tensor->begin : end;
        if (memcmp(t->got + from, t->before + from, to - from))
            return 0;
        from = i < t->count ? to + bytes_of(tensor) : end;
    }
    return 1;
}

static void compare(struct trial *t)
{
    if (!is_untouched(t))
        find_fault(t, "wrote outside of its results");
    for (int i = 0; i < t->count; i++) {
        const struct trial_tensor *tensor = &t->tensor[i];
        if (tensor->use == TRIAL_READ || tensor->use == TRIAL_LOST || !tensor->elems)
            continue;
        keep_worst(t, largest_error(tensor, t->got + tensor->begin, t->want + tensor->begin),
                   bound_of(tensor));
        if (!t->any_order &&
            memcmp(t->got + tensor->begin, t->again + tensor->begin, bytes_of(tensor)))
            find_fault(t, "other bits the second time");
    }
}

/* ---- calls ---- */

void *trial_scratch(struct trial_side *side, size_t bytes)
{
    enum { STEP = 1 << 20 };
    if (bytes <= side->scratch_bytes)
        return side->scratch;
    device_free(side->d, side->mem, POOL_WORKSPACE, side->scratch_bytes, side->scratch);
    side->scratch_bytes = round_up_bytes(bytes, STEP);
    side->scratch =
        device_alloc(side->d, side->mem, POOL_WORKSPACE, side->scratch_bytes, &side->err);
    if (!side->scratch) {
        side->scratch_bytes = 0;
        side->failed = side->no_memory = 1;
    }
    return side->scratch;
}

/* The call on one device, and what the block holds then; -1, with t->err set: that device failed.
 */
static int make_call(struct trial *t, struct trial_side *side, char *after, trial_call *call,
                     const void *args)
{
    void *at[TRIAL_TENSORS];
    size_t bytes = used_bytes(t);
    side->failed = 0;
    for (int i = 0; i < t->count; i++)
        at[i] = t->tensor[i].elems ? side->block + t->tensor[i].begin : NULL;
    if (device_upload(side->d, side->block, t->before, bytes, &t->err))
        return -1;
    call(side, at, args);
    if (side->failed)
        t->err = side->err;
    if (side->no_memory || (side->failed && side == &t->cpu))
        return -1;
    if (side->failed) {
        find_fault(t, side->err.text);
        t->row->is_refused = 1;
    }
    return device_sync(side->d, &t->err) ||
                   device_download(side->d, after, side->block, bytes, &t->err)
               ? -1
               : 0;
}

void trial_reference(struct trial *t, trial_call *call, const void *args)
{
    if (!t->dead && make_call(t, &t->cpu, t->want, call, args))
        t->dead = t->unable = 1;
}

const void *trial_result(const struct trial *t, int tensor)
{
    return t->want + t->tensor[tensor].begin;
}

void trial_run(struct trial *t, trial_call *call, const void *args)
{
    trial_reference(t, call, args);
    if (t->dead)
        return;
    if (make_call(t, &t->gpu, t->got, call, args) || make_call(t, &t->gpu, t->again, call, args)) {
        t->dead = 1;
        t->unable = t->gpu.no_memory;
        find_fault(t, t->err.text);
        return;
    }
    if (!t->row->why[0])
        compare(t);
}
