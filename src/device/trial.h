/* trial.h - trials: one call of an op on the CPU, and twice on the GPU.
 *
 * A function of a family lists the tensors of a call, in the order in which the call finds them,
 * and a function that makes the call on any device:
 *
 *     trial_begin(t, "swiglu", dt);
 *     trial_near(t, dt, rows * ffn);           at[0]: is written, compared within the bound of dt
 *     trial_read(t, dt, 2 * rows * ffn, 1);    at[1]: random numbers, only read
 *     trial_run(t, swiglu, &sizes);
 *
 * All tensors lie in one block of memory with gaps between, of which nothing may change but what
 * the call writes.  Results have to be near the CPU's, and the same bits the second time.
 */
#ifndef TRIREME_DEVICE_TRIAL_H
#define TRIREME_DEVICE_TRIAL_H

#include "device/ops.h"
#include "device/self_check.h"

enum { TRIAL_TENSORS = 12, TRIAL_BYTES = 1 << 20 };

enum trial_use {
    TRIAL_READ,  /* stays as it is */
    TRIAL_NEAR,  /* compared within a bound */
    TRIAL_EXACT, /* compared to the bit, but for the payload of a NaN */
    TRIAL_LOST,  /* anything */
};

struct trial_tensor {
    enum trial_use use;
    enum dtype dt;
    int64_t elems; /* 0: the op is given NULL */
    int64_t row;   /* elements of a row, whose root mean square is a measure of differences, too; 0:
                      no rows */
    double size;   /* of the terms of sums that may cancel; 0 */
    int64_t skip;  /* element 0 of each so many is not compared, but for being finite; 0: all are */
    double bound;  /* 0: that of its format */
    float (*decode)(uint8_t); /* of codes: what one stands for, which is compared; NULL */
    size_t begin;             /* byte of the block */
    void *values;             /* before the call */
};

/* A device of a trial. */
struct trial_side {
    struct device *d;
    char *block; /* TRIAL_BYTES */
    struct mem *mem;
    void *scratch;
    size_t scratch_bytes;
    int failed;    /* 1, with err set: a library refused the call */
    int no_memory; /* 1, with err set: there is no memory for scratch */
    struct error err;
};

/* args: the caller's; at[i]: tensor i. */
typedef void trial_call(struct trial_side *side, void *const *at, const void *args);

struct trial {
    struct trial_side cpu, gpu;
    struct self_check_row *row; /* what is found out goes here */
    int any_order;              /* 1: other bits the second time are right */
    int dead;                   /* the GPU failed: nothing more is tried */
    int unable;                 /* memory is out, or the CPU failed: nothing can be found out */
    struct error err;
    const char *op;
    enum dtype dt;
    uint64_t drawn;
    int count;
    struct trial_tensor tensor[TRIAL_TENSORS];
    char *before, *want, *got, *again; /* the block on the host, TRIAL_BYTES each */
};

/* Open with devices that stay the caller's.  Returns 0, or -1 with err set. */
int trial_open(struct trial *t, struct device *gpu, struct device *cpu, struct mem *mem,
               struct error *err);
void trial_close(struct trial *t);

/* Begin to list the tensors of a call of an op, whose name stays the caller's. */
void trial_begin(struct trial *t, const char *op, enum dtype dt);

/* Add one: normal deviates times scale, to be read or changed; NaN, to be written; given values;
 * whole numbers from 0 to below bound; NULL.  The tensor may be changed until trial_run(). */
struct trial_tensor *trial_read(struct trial *t, enum dtype dt, int64_t elems, double scale);
struct trial_tensor *trial_changed(struct trial *t, enum dtype dt, int64_t elems, double scale);
struct trial_tensor *trial_near(struct trial *t, enum dtype dt, int64_t elems);
struct trial_tensor *trial_exact(struct trial *t, enum dtype dt, int64_t elems);
struct trial_tensor *trial_copy(struct trial *t, enum dtype dt, int64_t elems, const void *values);
struct trial_tensor *trial_tokens(struct trial *t, int64_t elems, int64_t bound);
void trial_none(struct trial *t);

/* A gradient that is written, or, with accumulate, added to. */
struct trial_tensor *trial_gradient(struct trial *t, int64_t elems, int accumulate);

/* Make the call on both devices and compare; on the CPU alone, for what later calls read, which is
 * then in values of trial_result(). */
void trial_run(struct trial *t, trial_call *call, const void *args);
void trial_reference(struct trial *t, trial_call *call, const void *args);
const void *trial_result(const struct trial *t, int tensor);

/* Scratch of a call.  NULL with side->failed set where there is no memory: do not call. */
void *trial_scratch(struct trial_side *side, size_t bytes);

/* The formats of activations. */
enum { TRIAL_FORMATS = 3 };
extern const enum dtype trial_formats[TRIAL_FORMATS];

#endif
