/* device_arrays.h - for tests of groups on a GPU's memory: values, and arrays on host and device.
 */
#ifndef TRIREME_TESTS_MPI_DEVICE_ARRAYS_H
#define TRIREME_TESTS_MPI_DEVICE_ARRAYS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mesh.h"
#include "device/device.h"
#include "tests/mpi/check.h"

struct rig {
    struct checks c;
    struct device *device;
    struct mesh *mesh;
    struct device_event *event;
    struct mesh_options options;
    struct error said;
};

/* Values whose sums depend on the order: magnitudes from 2^-12 to 2^12, both signs. */
static inline float value(int rank, int64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank + 1) * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float mantissa = 1.0f + (float)(x & 0xffff) / 65536.0f;
    return (x & 0x80000000u ? -1.0f : 1.0f) * ldexpf(mantissa, (int)(x >> 16 & 31) % 25 - 12);
}

/* Round x to dtype. */
static inline float rounded(float x, enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(f32_to_bf16(x))
           : dtype == DTYPE_F16 ? f16_to_f32(f32_to_f16(x))
                                : x;
}

static inline void put(void *data, int64_t at, enum dtype dtype, double x)
{
    if (dtype == DTYPE_BF16)
        ((bf16 *)data)[at] = f32_to_bf16((float)x);
    else if (dtype == DTYPE_F16)
        ((f16 *)data)[at] = f32_to_f16((float)x);
    else if (dtype == DTYPE_F64)
        ((double *)data)[at] = x;
    else
        ((float *)data)[at] = (float)x;
}

static inline double get(const void *data, int64_t at, enum dtype dtype)
{
    return dtype == DTYPE_BF16  ? bf16_to_f32(((const bf16 *)data)[at])
           : dtype == DTYPE_F16 ? f16_to_f32(((const f16 *)data)[at])
           : dtype == DTYPE_F64 ? ((const double *)data)[at]
                                : ((const float *)data)[at];
}

static inline double sent(int rank, int64_t i, enum dtype dtype)
{
    return rounded(value(rank, i), dtype);
}

/* An array on the host and on the device, with GUARD bytes behind it that no transfer may write. */
struct array {
    int64_t elems;
    enum dtype dtype;
    char *host, *device;
};

enum { GUARD = 16 };

static inline size_t array_bytes(const struct array *a)
{
    return (size_t)a->elems * dtype_bytes(a->dtype) + GUARD;
}

static inline struct array array_new(struct rig *r, int64_t elems, enum dtype dtype)
{
    struct array a = {elems, dtype, NULL, NULL};
    a.host = malloc(array_bytes(&a));
    a.device = device_alloc(r->device, &r->c.mem, POOL_WORKSPACE, array_bytes(&a), &r->said);
    if (!a.host || !a.device)
        abort();
    memset(a.host, 0x5a, array_bytes(&a));
    return a;
}

static inline void array_free(struct rig *r, struct array *a)
{
    device_free(r->device, &r->c.mem, POOL_WORKSPACE, array_bytes(a), a->device);
    free(a->host);
}

static inline void array_fill(struct array *a, int rank)
{
    for (int64_t i = 0; i < a->elems; i++)
        put(a->host, i, a->dtype, value(rank, i));
}

static inline void to_device(struct rig *r, struct array *a)
{
    CHECK(&r->c, !device_upload(r->device, a->device, a->host, array_bytes(a), &r->said));
}

/* Copy an array to the host after all work that stream was given, and check its guard. */
static inline void to_host(struct rig *r, struct array *a, enum device_stream stream)
{
    CHECK(&r->c, !device_event_record(r->device, r->event, stream, &r->said));
    CHECK(&r->c, !device_event_wait(r->device, DEVICE_COMPUTE, r->event, &r->said));
    CHECK(&r->c, !device_download(r->device, a->host, a->device, array_bytes(a), &r->said));
    for (int i = 0; i < GUARD; i++)
        CHECK(&r->c, a->host[array_bytes(a) - 1 - (size_t)i] == 0x5a);
}

/* Check that an operation counts as done once it is enqueued, and that nothing failed. */
static inline void done(struct rig *r, struct comm_op *op)
{
    CHECK(&r->c, comm_test(op));
    CHECK(&r->c, !comm_wait(op, &r->said));
    CHECK(&r->c, !device_check(r->device, &r->said));
}

#endif
