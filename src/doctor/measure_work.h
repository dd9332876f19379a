/* measure_work.h - timing a piece of work on all ranks at once, and the memory and tables that the
 * parts of trireme doctor --measure share.
 *
 * All ranks do the same work at the same time, as in training.  The work is done once to let
 * libraries choose their kernels, then several times.  A rank's time is the lower quartile of these
 * times, which other programs on the machine disturb less than the mean.  The work's time is that
 * of the slowest rank.
 *
 *     measure.c             measure_run(): the parts below, one after the other, and the file
 *     measure_disk.c        files as of offloaded state
 *     measure_files.c       files beside updates
 *     measure_copies.c      memory, launches, the host
 *     measure_kernels.c     updates, sums, casts
 *     measure_products.c    matrix products by shape
 *     measure_units.c       ops of models
 *     measure_transfers.c   collectives and messages
 *     measure_beside.c      collectives and messages beside products
 *     measure_work.c        timing
 *     measure_show.c        the summary
 */
#ifndef TRIREME_DOCTOR_MEASURE_WORK_H
#define TRIREME_DOCTOR_MEASURE_WORK_H

#include "comm/mesh.h"
#include "comm/world.h"
#include "device/ops.h"
#include "doctor/measure.h"
#include "simulate/machine.h"

/* Least share of its threads' time that a process has where no other program disturbs it. */
#define MEASURE_SHARE 0.8

/* How much is measured: budgets in seconds, and sizes. */
struct measure_limits {
    double products_s;     /* for all products; larger ones are left out where it is too short */
    double units_s;        /* for all units of models; larger ones are left out likewise */
    double work_s;         /* for one kind of work, which is repeated until it is used up, */
    int least, most;       /* but at least and at most so many times */
    double all_s;          /* for everything; work that begins later is done once, or for 10 ms */
    double beside_s;       /* length of work whose speed beside other work is measured */
    double disk_s;         /* for writing a file, and for reading it */
    size_t disk_bytes;     /* most bytes of each rank's file */
    size_t block_bytes;    /* least bytes of measure.block: several times what caches hold */
    size_t memory_bytes;   /* most bytes that an op reads and writes */
    size_t transfer_bytes; /* most bytes of a collective or message */
    int64_t side;          /* most rows or columns of a product's matrices */
};

/* The rule of the updates that are measured. */
extern const struct adamw measure_adamw;

struct measure {
    const struct measure_options *options;
    const struct measure_limits *limits;
    struct world *world;
    struct mem *mem;
    struct device *device;
    int share_gpu;       /* 1: several ranks of a node use one GPU */
    int64_t deadline_ns; /* clock_ns() at which all_s is over */
    int is_late;         /* 1: deadline_ns is over on some rank, as all ranks have agreed */
    double own_share;    /* share of its threads' time that the rank which other programs disturbed
                            most had for products; 0: not known */
    struct device_event *from, *to; /* around a GPU's work; NULL on a CPU */
    struct mesh *mesh;              /* of all ranks, attached to no device; allocates the block */
    char *block;                    /* memory for operands; on CPUs as training has it for transfers
                                       (measure_block()) */
    size_t block_bytes;
    size_t cold;                     /* offsets in block of the next operands: measure_cold(), */
    size_t cold_source, cold_target; /* measure_cold_source(), measure_cold_target() */
    struct machine *machine;         /* what was measured so far */
    int product_capacity, transfer_capacity; /* of machine's tables of products and transfers */
    struct measure_op *op;                   /* rows so far; measure_set_ops() makes machine->op */
    int ops, op_capacity;
};

/* The sums of which a row of machine->op is made. */
struct measure_op {
    char name[MACHINE_OP];
    enum dtype dtype;
    double size;    /* of the op: bytes, or tokens of attention */
    double work;    /* bytes, or operations, of all measurements added to this row */
    double seconds; /* of all of them */
};

/* Work to be timed. */
struct measure_work {
    /* Do the work once, or enqueue it on stream.  Returns 0, or -1 with err set. */
    int (*run)(struct measure *m, void *data, struct error *err);
    void *data;                /* for run */
    enum device_stream stream; /* of a GPU */
};

/* Measure how many seconds the work takes when done once.  Collective: ranks without work call it,
 * too, with run NULL, and their times do not count.  Returns 0, or -1 on every rank with err set.
 */
int measure_seconds(struct measure *m, const struct measure_work *work, double *seconds,
                    struct error *err);

/* Agree how many times all ranks do work, which took this rank took_s seconds, within budget_s: as
 * often as the slowest rank can, within limits->least and most.  Where limits->all_s is over on
 * some rank, m->is_late becomes 1, and the budget is 10 ms, the least 1.  rc other than 0 says that
 * the work failed on this rank, with err set.  Collective.  Returns the number, or -1 on every rank
 * with err set. */
int measure_repeats(struct measure *m, int rc, double took_s, double budget_s, struct error *err);

/* Return memory of the block that is probably in no cache: each call returns the memory after that
 * of the call before, and begins again at the end of the block.  bytes: at most m->block_bytes.
 * Aligned to 256. */
void *measure_cold(struct measure *m, size_t bytes);

/* Do the same for what a product reads, in the first two thirds of the block, and for what it
 * writes, in the last third.  They are apart because products of products would soon be infinite,
 * or so small (denormal) that fp32 is many times slower on some processors.  bytes: at most two
 * thirds and one third of m->block_bytes. */
void *measure_cold_source(struct measure *m, size_t bytes);
void *measure_cold_target(struct measure *m, size_t bytes);

/* Fill device memory with numbers of a format, of either sign and from 2^-6 to 2^-5 in size; zeros
 * would be multiplied faster.  Returns 0, or -1 with err set. */
int measure_fill(struct measure *m, void *to, size_t bytes, enum dtype dtype, struct error *err);

/* Make the block at least so large, and fill it with numbers of a format.  Collective.  Returns 0,
 * or -1 on every rank with err set. */
int measure_block(struct measure *m, size_t bytes, enum dtype dtype, struct error *err);

/* Return the formats of products that the device is measured in, with fp8 where it has that;
 * DTYPE_COUNT after the last. */
const enum dtype *measure_product_formats(const struct measure *m);
/* Return the formats of tensors that the device is measured in; DTYPE_COUNT after the last. */
const enum dtype *measure_formats(const struct measure *m);

/* Make the groups of a mesh of this shape on the device, and register the block with them.  *mesh,
 * NULL before, is for measure_close_mesh(), also after a failure.  Collective.  Returns 0, or -1 on
 * every rank with err set. */
int measure_open_mesh(struct measure *m, struct mesh **mesh, struct mesh_shape shape,
                      struct error *err);
void measure_close_mesh(struct measure *m, struct mesh *mesh);

/* Print a line on what is being measured, on rank 0's stderr. */
void measure_progress(const struct measure *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- the parts, which fill m->machine; collective, 0 or -1 on every rank with err set ---- */

int measure_products(struct measure *m, struct error *err);  /* by shape and format */
int measure_units(struct measure *m, struct error *err);     /* ops of models, one after another */
int measure_kernels(struct measure *m, struct error *err);   /* ops of instructions beside RUN */
int measure_transfers(struct measure *m, struct error *err); /* collectives and messages */
int measure_beside(struct measure *m, struct error *err);    /* products beside transfers */
int measure_copies(struct measure *m, struct error *err);    /* memory, launches, the host */
int measure_disk(struct measure *m, struct error *err);      /* where offloaded state would be */
int measure_files(struct measure *m, struct error *err);     /* file copies beside updates */

/* Add a measurement to the row of an op's name, format and size: so much work (bytes, or
 * operations) in so many seconds.  The row's rate is the sum of work by the sum of seconds. */
void measure_add_op(struct measure *m, const char *name, enum dtype dtype, double size, double work,
                    double seconds);
/* Make the table machine->op of what measure_add_op() added. */
void measure_set_ops(struct measure *m);

/* Compute the share of its speed, 0.01 to 1, that each of two works keeps while both are under way.
 * alone[i]: seconds of work i alone; took[i]: its seconds where both begin at once. */
void measure_shares(const double alone[2], const double took[2], double share[2]);

/* Print what was measured, on rank 0. */
void measure_show(const struct measure *m);

#endif
