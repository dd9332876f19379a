/* ops_check.c - see ops_check.h. */
#include "ops_check.h"

#include "base/hash.h"
#include "base/philox.h"

const enum dtype op_types[TYPES] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

const struct packed packed[PACKED] = {
    {.level = "amx", .dt = DTYPE_BF16, .least_m = 64},
    {.level = "avx512_bf16", .dt = DTYPE_BF16, .least_m = 384},
    {.level = "avx512", .dt = DTYPE_BF16, .least_m = 64},
    {.level = "avx512", .dt = DTYPE_F16, .least_m = 64},
    {.level = "avx512", .dt = DTYPE_F32, .least_m = 64},
    {.level = "avx2", .dt = DTYPE_BF16, .least_m = 64},
    {.level = "avx2", .dt = DTYPE_F16, .least_m = 64},
    {.level = "avx2", .dt = DTYPE_F32, .least_m = 64},
};

int level_packs(const char *level, enum dtype dt)
{
    for (int i = 0; i < PACKED; i++)
        if (!strcmp(packed[i].level, level) && packed[i].dt == dt)
            return 1;
    return 0;
}

enum { GUARD_BYTES = 64, GUARD = 0xa5, POISON = 0xff };

static struct tensor tensor_new(enum dtype dt, int64_t elems)
{
    size_t bytes = (size_t)elems * dtype_bytes(dt);
    struct tensor t = {dt, elems, aligned_alloc(64, (bytes + GUARD_BYTES + 63) / 64 * 64)};
    assert_non_null(t.data);
    memset((char *)t.data + bytes, GUARD, GUARD_BYTES);
    return t;
}

struct tensor tensor_poisoned(enum dtype dt, int64_t elems)
{
    struct tensor t = tensor_new(dt, elems);
    memset(t.data, POISON, (size_t)elems * dtype_bytes(dt));
    return t;
}

struct tensor tensor_random(enum dtype dt, int64_t elems, uint64_t seed, double scale)
{
    enum { BATCH = 1024 };
    float normal[BATCH];
    struct tensor t = tensor_new(dt, elems);
    for (int64_t first = 0; first < elems; first += BATCH) {
        int64_t count = elems - first < BATCH ? elems - first : BATCH;
        philox_fill_normal(normal, seed, (uint64_t)first, count, 1);
        for (int64_t i = 0; i < count; i++)
            tensor_set(&t, first + i, normal[i] * scale);
    }
    return t;
}

struct tensor tensor_copy(const struct tensor *t)
{
    struct tensor copy = tensor_new(t->dt, t->elems);
    memcpy(copy.data, t->data, (size_t)t->elems * dtype_bytes(t->dt));
    return copy;
}

void tensor_free(struct tensor *t)
{
    const unsigned char *guard = (unsigned char *)t->data + (size_t)t->elems * dtype_bytes(t->dt);
    for (int i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(guard[i], GUARD);
    free(t->data);
    t->data = NULL;
}

void tensor_outside(const struct tensor *t, int64_t i)
{
    fail_msg("element %lld of %lld", (long long)i, (long long)t->elems);
}

uint64_t tensor_hash(const struct tensor *t)
{
    return hash_bytes(t->data, (size_t)t->elems * dtype_bytes(t->dt));
}

double rounded(enum dtype dt, double value)
{
    float one;
    struct tensor t = {dt, 1, &one};
    tensor_set(&t, 0, value);
    return tensor_get(&t, 0);
}

void check_terms(const char *what, const struct tensor *got, const double *want, double tolerance,
                 double size)
{
    const double lost = got->dt == DTYPE_F16 ? 0x1p-25 : 1.2e-38;
    double square = 0;
    for (int64_t i = 0; i < got->elems; i++)
        square += want[i] * want[i];
    double rms = sqrt(square / (double)got->elems);
    for (int64_t i = 0; i < got->elems; i++) {
        double value = tensor_get(got, i);
        if (!(fabs(value - want[i]) <= tolerance * (fabs(want[i]) + rms + size) + lost))
            fail_msg("%s[%lld] of %lld (%s): got %.9g, want %.9g", what, (long long)i,
                     (long long)got->elems, dtype_name(got->dt), value, want[i]);
    }
}

void check_close(const char *what, const struct tensor *got, const double *want, double tolerance)
{
    check_terms(what, got, want, tolerance, 0);
}

double tolerance_of(enum dtype dt)
{
    return dt == DTYPE_BF16 ? 0.004 : dt == DTYPE_F16 ? 0.0005 : 1e-5;
}

struct device *open_device(const char *level, int threads)
{
    struct device *d;
    struct error err = {0};
    if (device_open(&d, &(struct device_request){DEVICE_CPU, threads, 1, level}, &err))
        fail_msg("%s", err.text);
    return d;
}

void for_each_setting(setting_test *test)
{
    for (int level = 0; device_cpu_level(level); level++)
        for (int type = 0; type < TYPES; type++) {
            uint64_t hash[4] = {0};
            for (int threads = 1; threads <= 3; threads++) {
                struct device *d = open_device(device_cpu_level(level), threads);
                hash[threads] = test(d, op_types[type]);
                device_close(d);
                if (hash[threads] != hash[1])
                    fail_msg("level %s, %s: %d threads give other bits than one",
                             device_cpu_level(level), dtype_name(op_types[type]), threads);
            }
        }
}
