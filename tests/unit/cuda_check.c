/* cuda_check.c - see cuda_check.h. */
#include "cuda_check.h"

#include <stdio.h>
#include <time.h>

#include "base/philox.h"

enum { POISON = 0xff };

static void require(int failed, const struct error *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

struct check check_open(void)
{
    struct check c = {0};
    struct error err = {0};
    char why[128];
    const char *seed = getenv("TRIREME_TEST_SEED");
    if (device_gpu_count(why) == 0)
        skip();
    c.seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    printf("TRIREME_TEST_SEED=%llu\n", (unsigned long long)c.seed);
    require(device_open(&c.cpu, &(struct device_request){DEVICE_CPU, 2, 1}, &err), &err);
    require(device_open(&c.gpu, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    return c;
}

void check_close_devices(struct check *c)
{
    device_close(c->cpu);
    device_close(c->gpu);
    assert_int_equal(c->mem.blocks, 0);
}

uint64_t check_draw(struct check *c)
{
    return philox_u64(c->seed, c->drawn++);
}

static size_t bytes_of(const struct operand *o)
{
    return (size_t)o->elems * dtype_bytes(o->dt);
}

struct operand output_operand(const char *name, enum role role, enum dtype dt, int64_t elems)
{
    struct operand o = {name, role, dt, elems};
    o.before = malloc(bytes_of(&o));
    assert_non_null(o.before);
    memset(o.before, POISON, bytes_of(&o));
    return o;
}

struct operand copy_operand(const char *name, enum role role, enum dtype dt, int64_t elems,
                            const void *values)
{
    struct operand o = output_operand(name, role, dt, elems);
    memcpy(o.before, values, bytes_of(&o));
    return o;
}

static double get(const struct operand *o, const void *data, int64_t i)
{
    if (o->dt == DTYPE_BF16)
        return bf16_to_f32(((const bf16 *)data)[i]);
    if (o->dt == DTYPE_F16)
        return f16_to_f32(((const f16 *)data)[i]);
    if (o->dt == DTYPE_U8)
        return ((const uint8_t *)data)[i];
    return o->dt == DTYPE_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

struct operand changed_operand(struct check *c, const char *name, enum role role, enum dtype dt,
                               int64_t elems, double scale)
{
    struct operand o = output_operand(name, role, dt, elems);
    uint64_t key = check_draw(c);
    for (int64_t i = 0; i < elems; i++) {
        double value = philox_normal(key, (uint64_t)i) * scale;
        if (dt == DTYPE_BF16)
            ((bf16 *)o.before)[i] = f32_to_bf16((float)value);
        else if (dt == DTYPE_F16)
            ((f16 *)o.before)[i] = f32_to_f16((float)value);
        else if (dt == DTYPE_F64)
            ((double *)o.before)[i] = value;
        else
            ((float *)o.before)[i] = (float)value;
    }
    return o;
}

struct operand random_operand(struct check *c, const char *name, enum dtype dt, int64_t elems,
                              double scale)
{
    return changed_operand(c, name, READ, dt, elems, scale);
}

struct operand tokens_operand(struct check *c, const char *name, int64_t elems, int64_t bound)
{
    struct operand o = output_operand(name, READ, DTYPE_I32, elems);
    uint64_t key = check_draw(c);
    for (int64_t i = 0; i < elems; i++)
        ((int32_t *)o.before)[i] = (int32_t)(philox_u64(key, (uint64_t)i) % (uint64_t)bound);
    return o;
}

void *check_scratch(struct device *d, struct mem *mem, size_t bytes)
{
    struct error err = {0};
    if (bytes == 0)
        return NULL;
    void *host = malloc(bytes), *block = device_alloc(d, mem, POOL_WORKSPACE, bytes, &err);
    require(block == NULL, &err);
    memset(host, POISON, bytes);
    require(device_upload(d, block, host, bytes, &err), &err);
    free(host);
    return block;
}

void check_scratch_free(struct device *d, struct mem *mem, size_t bytes, void *scratch)
{
    struct error err = {0};
    require(device_sync(d, &err), &err);
    device_free(d, mem, POOL_WORKSPACE, bytes, scratch);
}

/* One call on d; after[i] gets what operand i holds then. */
static void make_call(struct device *d, struct mem *mem, op_call *call, const void *args,
                      const struct operand *o, int count, void **after)
{
    struct error err = {0};
    char *block[MOST_OPERANDS] = {0};
    void *at[MOST_OPERANDS] = {0};
    size_t skipped[MOST_OPERANDS];
    for (int i = 0; i < count; i++) {
        skipped[i] = (size_t)o[i].offset * dtype_bytes(o[i].dt);
        if (!o[i].elems)
            continue;
        block[i] = check_scratch(d, mem, skipped[i] + bytes_of(&o[i]));
        at[i] = block[i] + skipped[i];
        require(device_upload(d, at[i], o[i].before, bytes_of(&o[i]), &err), &err);
    }
    call(d, mem, at, args);
    require(device_sync(d, &err), &err);
    for (int i = 0; i < count; i++) {
        after[i] = malloc(bytes_of(&o[i]) + 1);
        if (!o[i].elems)
            continue;
        require(device_download(d, after[i], at[i], bytes_of(&o[i]), &err), &err);
        device_free(d, mem, POOL_WORKSPACE, skipped[i] + bytes_of(&o[i]), block[i]);
    }
}

/* Results are rounded once to bf16 (2^-8 at most, here and there in opposite directions), or to
 * fp16 with three bits more; fp32 arithmetic is in another order than the CPU's, fp64 too. */
static double tolerated(const struct operand *o)
{
    if (o->role == EXACT)
        return 0;
    switch (o->dt) {
    case DTYPE_BF16: return 1e-2;
    case DTYPE_F16: return 1.25e-3;
    case DTYPE_F64: return 1e-12;
    default: return 1e-5;
    }
}

/* The CPU may make fp32 denormals 0; those of fp16 may be a step apart. */
static double smallest(const struct operand *o)
{
    if (o->role == EXACT)
        return 0;
    return o->dt == DTYPE_F16 ? 0x1p-24 : 1.2e-38;
}

static double rms_of(const struct operand *o, const void *data)
{
    double square = 0;
    int64_t numbers = 0;
    for (int64_t i = 0; i < o->elems; i++) {
        double value = get(o, data, i);
        square += isfinite(value) ? value * value : 0;
        numbers += isfinite(value);
    }
    return numbers ? sqrt(square / (double)numbers) : 0;
}

static void compare(const struct check *c, const char *what, const struct operand *o,
                    const void *got, const void *want)
{
    const double step = smallest(o), tolerance = tolerated(o);
    const double rms = fmax(rms_of(o, want), o->size);
    size_t size = dtype_bytes(o->dt);
    for (int64_t i = 0; i < o->elems; i++) {
        double a = get(o, got, i), b = get(o, want, i);
        if (!memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                    size) ||
            (isnan(a) && isnan(b)))
            continue;
        if (o->role == EXACT || !(fabs(a - b) <= tolerance * (fabs(b) + rms) + step))
            fail_msg("%s: %s[%lld] of %lld (%s): GPU %.9g, CPU %.9g (seed %llu)", what, o->name,
                     (long long)i, (long long)o->elems, dtype_name(o->dt), a, b,
                     (unsigned long long)c->seed);
    }
}

void check_call(struct check *c, const char *what, op_call *call, const void *args,
                struct operand *o, int count)
{
    void *want[MOST_OPERANDS], *got[MOST_OPERANDS], *again[MOST_OPERANDS];
    assert_in_range(count, 1, MOST_OPERANDS);
    make_call(c->cpu, &c->mem, call, args, o, count, want);
    make_call(c->gpu, &c->mem, call, args, o, count, got);
    make_call(c->gpu, &c->mem, call, args, o, count, again);
    for (int i = 0; i < count; i++) {
        if (o[i].elems && o[i].role != LOST && memcmp(got[i], again[i], bytes_of(&o[i])))
            fail_msg("%s: %s has other bits the second time (seed %llu)", what, o[i].name,
                     (unsigned long long)c->seed);
        if (o[i].elems && o[i].role == READ && memcmp(got[i], o[i].before, bytes_of(&o[i])))
            fail_msg("%s: %s is only read, but changed", what, o[i].name);
        if (o[i].elems && o[i].role != LOST && o[i].role != READ)
            compare(c, what, &o[i], got[i], want[i]);
        free(want[i]);
        free(got[i]);
        free(again[i]);
        free(o[i].before);
    }
}

void check_bits_anywhere(struct check *c, const char *what, op_call *call, const void *args,
                         struct operand *o, int count)
{
    void *shifted[MOST_OPERANDS], *aligned[MOST_OPERANDS];
    assert_in_range(count, 1, MOST_OPERANDS);
    make_call(c->gpu, &c->mem, call, args, o, count, shifted);
    for (int i = 0; i < count; i++)
        o[i].offset = 0;
    make_call(c->gpu, &c->mem, call, args, o, count, aligned);
    for (int i = 0; i < count; i++) {
        if (o[i].elems && memcmp(shifted[i], aligned[i], bytes_of(&o[i])))
            fail_msg("%s: %s has other bits where it lies elsewhere (seed %llu)", what, o[i].name,
                     (unsigned long long)c->seed);
        free(shifted[i]);
        free(aligned[i]);
        free(o[i].before);
    }
}

int check_group(const char *name, const struct CMUnitTest *tests, size_t count)
{
    char why[128] = "";
    int gpus = device_gpu_count(why);
    if (gpus == 0)
        printf("%s is skipped: %s\n", name, why);
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    return failed ? failed : gpus == 0 ? SKIPPED : 0;
}
