/* ops_check.h - for tests of ops: tensors with guards, tolerances, and all levels, types and
 * threads. */
#ifndef TRIREME_TESTS_UNIT_OPS_CHECK_H
#define TRIREME_TESTS_UNIT_OPS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "device/ops.h"

/* The types that ops compute in. */
enum { TYPES = 3 };
extern const enum dtype op_types[TYPES];

/* Elements with a guard behind them; tensor_free() fails the test where the guard was written to.
 */
struct tensor {
    enum dtype dt;
    int64_t elems;
    void *data;
};

/* Make a tensor of normal deviates times scale, rounded to dt; the same ones for the same seed. */
struct tensor tensor_random(enum dtype dt, int64_t elems, uint64_t seed, double scale);

/* Make a tensor of NaN, so that elements which an op does not write are found. */
struct tensor tensor_poisoned(enum dtype dt, int64_t elems);

struct tensor tensor_copy(const struct tensor *t);
void tensor_free(struct tensor *t);

/* Fail the test, as i is no element. */
void tensor_outside(const struct tensor *t, int64_t i);

/* One element; here, as some tests read and set a thousand million. */
static inline double tensor_get(const struct tensor *t, int64_t i)
{
    if (i < 0 || i >= t->elems)
        tensor_outside(t, i);
    switch (t->dt) {
    case DTYPE_BF16: return bf16_to_f32(((bf16 *)t->data)[i]);
    case DTYPE_F16: return f16_to_f32(((f16 *)t->data)[i]);
    default: return ((float *)t->data)[i];
    }
}

static inline void tensor_set(struct tensor *t, int64_t i, double value)
{
    switch (t->dt) {
    case DTYPE_BF16: ((bf16 *)t->data)[i] = f32_to_bf16((float)value); break;
    case DTYPE_F16: ((f16 *)t->data)[i] = f32_to_f16((float)value); break;
    default: ((float *)t->data)[i] = (float)value;
    }
}

uint64_t tensor_hash(const struct tensor *t);

/* Round value to dt, as a result is rounded. */
double rounded(enum dtype dt, double value);

/* Check that |got - want| <= tolerance * (|want| + rms of want) for every element.  Denormals may
 * be flushed to 0, except those of fp16, which may be off by half of their step, 2^-25. */
void check_close(const char *what, const struct tensor *got, const double *want, double tolerance);

/* Check the same for sums whose terms are of the size `size`, and may cancel. */
void check_terms(const char *what, const struct tensor *got, const double *want, double tolerance,
                 double size);

/* Return the tolerance of results that are rounded once to dt: bf16 is off by at most half a unit,
 * 2^-8, fp16 by 2^-11; fp32 sums of some hundred terms by a few dozen 2^-24. */
double tolerance_of(enum dtype dt);

/* Run a test for every CPU level of this machine, every type, and 1, 2 and 3 threads.  The test
 * returns a hash of its results, which must not depend on the number of threads. */
typedef uint64_t setting_test(struct device *d, enum dtype dt);
void for_each_setting(setting_test *test);

struct device *open_device(const char *level, int threads);

/* Levels that have kernels of their own for large products, and the operands these take.  Their
 * bits do not depend on the number of threads; the library may cut a sum by it. */
enum { PACKED = 8 };
extern const struct packed {
    const char *level;
    enum dtype dt;
    int64_t least_m; /* of gemm_format.h: products with fewer rows are the library's */
} packed[PACKED];

int level_packs(const char *level, enum dtype dt);

#endif
