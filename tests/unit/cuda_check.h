/* cuda_check.h - comparing an op on a GPU with the same op on the CPU, on fresh random inputs.
 *
 * A test gives the tensors of a call and a function that makes the call on any device.  The call is
 * made once on the CPU and twice on the GPU, in memory of exactly the size needed.  Tensors that
 * the op may only read must come back unchanged, those that it writes must agree, and both runs on
 * the GPU must give the same bits.
 */
#ifndef TRIREME_TESTS_UNIT_CUDA_CHECK_H
#define TRIREME_TESTS_UNIT_CUDA_CHECK_H

#include "ops_check.h"

enum { SKIPPED = 77, MOST_OPERANDS = 12 };

enum role {
    READ,    /* the op must not change it */
    WRITTEN, /* CPU and GPU agree within the tolerance of its type */
    EXACT,   /* CPU and GPU agree to the bit, but for the payload of a NaN */
    LOST,    /* the op may leave anything in it */
};

struct operand {
    const char *name;
    enum role role;
    enum dtype dt;
    int64_t elems;  /* 0: the op is given NULL */
    int64_t offset; /* elements from an address aligned to 256 */
    void *before;   /* its elements before the call, on the host; check_call() frees it */
    double size;    /* least size that the tolerance is relative to, for operands of so few sums
                       that the terms of all of them may cancel; else 0 */
};

/* Both devices, and a source of random numbers. */
struct check {
    struct device *cpu, *gpu;
    struct mem mem;
    uint64_t seed, drawn; /* drawn: random numbers so far */
};

/* Open both devices, with a seed from the clock or TRIREME_TEST_SEED.  Skips the test without a
 * GPU. */
struct check check_open(void);
void check_close_devices(struct check *c);

/* Make an operand of role READ, of normal deviates times scale. */
struct operand random_operand(struct check *c, const char *name, enum dtype dt, int64_t elems,
                              double scale);

/* Make an operand of another role, of normal deviates times scale. */
struct operand changed_operand(struct check *c, const char *name, enum role role, enum dtype dt,
                               int64_t elems, double scale);

/* Make an operand with NaN in every element. */
struct operand output_operand(const char *name, enum role role, enum dtype dt, int64_t elems);

/* Make an operand of int32 in [0, bound). */
struct operand tokens_operand(struct check *c, const char *name, int64_t elems, int64_t bound);

/* Make an operand with a copy of values. */
struct operand copy_operand(const char *name, enum role role, enum dtype dt, int64_t elems,
                            const void *values);

/* Draw a random number. */
uint64_t check_draw(struct check *c);

/* Make a call of an op on device d; at[i] is operand i in memory of d. */
typedef void op_call(struct device *d, struct mem *mem, void *const *at, const void *args);

/* Make the call on both devices and compare as the head of this file says.  what: name of the call,
 * printed with sizes when a check fails.  Frees operands[i].before. */
void check_call(struct check *c, const char *what, op_call *call, const void *args,
                struct operand *operands, int count);

/* Make the call on the GPU alone, with the operands at their offsets and at offset 0: the results
 * must have the same bits. */
void check_bits_anywhere(struct check *c, const char *what, op_call *call, const void *args,
                         struct operand *operands, int count);

/* Allocate exactly `bytes` bytes of d, poisoned, for check_scratch_free(); NULL for 0. */
void *check_scratch(struct device *d, struct mem *mem, size_t bytes);
void check_scratch_free(struct device *d, struct mem *mem, size_t bytes, void *scratch);

/* Run the tests, all skipped without a GPU; the exit status of the program. */
#define check_main(name, tests) check_group(name, tests, sizeof(tests) / sizeof(tests)[0])
int check_group(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
