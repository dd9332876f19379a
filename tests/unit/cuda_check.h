/* cuda_check.h - an op on a GPU against the same op on the CPU, on fresh random inputs.
 *
 * A test lists the tensors of a call and a function that makes the call on any device.  It is made
 * on the CPU once and on the GPU twice, in memory of exactly the size needed; what it may only read
 * must come back as it was, what it writes must agree, and both GPU runs must give the same bits.
 */
#ifndef TRIREME_TESTS_UNIT_CUDA_CHECK_H
#define TRIREME_TESTS_UNIT_CUDA_CHECK_H

#include "ops_check.h"

enum { SKIPPED = 77, MOST_OPERANDS = 12 };

enum role {
    READ,    /* unchanged afterwards */
    WRITTEN, /* equal within the tolerance of its type */
    EXACT,   /* equal to the bit, but for the payload of a NaN */
    LOST,    /* anything afterwards */
};

struct operand {
    const char *name;
    enum role role;
    enum dtype dt;
    int64_t elems;  /* 0: the op is given NULL */
    int64_t offset; /* elements from an address aligned to 256 */
    void *before;   /* what it holds before the call; check_call() frees it */
    double size;    /* of a sum whose terms do not cancel, where so few are sums that all may */
};

/* Both devices, and where random numbers come from. */
struct check {
    struct device *cpu, *gpu;
    struct mem mem;
    uint64_t seed, drawn;
};

/* The seed is of the time, or TRIREME_TEST_SEED; skips the test without a GPU. */
struct check check_open(void);
void check_close_devices(struct check *c);

/* Normal deviates times scale. */
struct operand random_operand(struct check *c, const char *name, enum dtype dt, int64_t elems,
                              double scale);

/* The same, to be written over. */
struct operand changed_operand(struct check *c, const char *name, enum role role, enum dtype dt,
                               int64_t elems, double scale);

/* NaN in every element. */
struct operand output_operand(const char *name, enum role role, enum dtype dt, int64_t elems);

/* int32 in [0, bound). */
struct operand tokens_operand(struct check *c, const char *name, int64_t elems, int64_t bound);

struct operand copy_operand(const char *name, enum role role, enum dtype dt, int64_t elems,
                            const void *values);

/* A random number. */
uint64_t check_draw(struct check *c);

/* Make the call; at[i] is operand i in memory of d. */
typedef void op_call(struct device *d, struct mem *mem, void *const *at, const void *args);

/* what: printed with sizes when a check fails. */
void check_call(struct check *c, const char *what, op_call *call, const void *args,
                struct operand *operands, int count);

/* Make the call on the GPU alone, with the operands at their offsets and without them: what it
 * writes must have the same bits. */
void check_bits_anywhere(struct check *c, const char *what, op_call *call, const void *args,
                         struct operand *operands, int count);

/* Memory of d for the length of a call, exactly bytes and poisoned; NULL for 0. */
void *check_scratch(struct device *d, struct mem *mem, size_t bytes);
void check_scratch_free(struct device *d, struct mem *mem, size_t bytes, void *scratch);

/* Run the tests, all skipped without a GPU; the exit status of the program. */
#define check_main(name, tests) check_group(name, tests, sizeof(tests) / sizeof(tests)[0])
int check_group(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
