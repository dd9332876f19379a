/* ops_check.h - what the tests of ops share: tensors with guards, tolerances, settings. */
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

/* The types that ops work on. */
enum { TYPES = 3 };
extern const enum dtype op_types[TYPES];

/* Elements with a guard behind them that tensor_free() looks at. */
struct tensor {
    enum dtype dt;
    int64_t elems;
    void *data;
};

/* Normal deviates times scale, rounded to dt; the same for the same seed. */
struct tensor tensor_random(enum dtype dt, int64_t elems, uint64_t seed, double scale);

/* NaN everywhere: what an op leaves unwritten shows. */
struct tensor tensor_poisoned(enum dtype dt, int64_t elems);

struct tensor tensor_copy(const struct tensor *t);
void tensor_free(struct tensor *t);
double tensor_get(const struct tensor *t, int64_t i);
void tensor_set(struct tensor *t, int64_t i, double value);
uint64_t tensor_hash(const struct tensor *t);

/* What dt can hold of value, rounded as a result is. */
double rounded(enum dtype dt, double value);

/* Every |got - want| <= tolerance * (|want| + rms of want); denormals may be flushed to 0, but
 * fp16's, which are off by half a step of theirs, 2^-25, at most. */
void check_close(const char *what, const struct tensor *got, const double *want, double tolerance);

/* The same for sums whose terms are of this size, and may cancel. */
void check_terms(const char *what, const struct tensor *got, const double *want, double tolerance,
                 double size);

/* Where results are rounded once to dt: bf16 is off by half a unit, 2^-8 at most, fp16 by 2^-11;
 * fp32 sums of some hundred terms by a few dozen 2^-24. */
double tolerance_of(enum dtype dt);

/* Run test for every level of this machine, every type and 1, 2 and 3 threads.  What it
 * returns is a hash of its results, which must not depend on the threads. */
typedef uint64_t setting_test(struct device *d, enum dtype dt);
void for_each_setting(setting_test *test);

struct device *open_device(const char *level, int threads);

#endif
