/* measure_work.h - what the parts of trireme doctor --measure share: some work, how often it is
 * done, and how long it takes.
 *
 * All ranks do the same work at the same time, as in training.  It is done once to let libraries
 * choose their kernels, then several times.  A rank's time is the lower quartile of these, which
 * other programs on the machine disturb less than the mean; that of the work is the slowest
 * rank's.
 */
#ifndef TRIREME_DOCTOR_MEASURE_WORK_H
#define TRIREME_DOCTOR_MEASURE_WORK_H

#include "comm/mesh.h"
#include "comm/world.h"
#include "device/ops.h"
#include "doctor/measure.h"
#include "simulate/machine.h"

/* Of the processors' time a process has at least so much, where no other program disturbs it. */
#define MEASURE_SHARE 0.8

/* How much is measured. */
struct measure_limits {
    double products_s;   /* for all products: larger ones are left out where it would not do */
    double units_s;      /* for all units of models, the same */
    double work_s;       /* for one kind of work, so often is it done, */
    int least, most;     /* but at least and at most so often */
    double all_s;        /* for everything; what comes later is done once */
    double beside_s;     /* of work whose speed beside other work is measured */
    double disk_s;       /* for writing, and for reading */
    size_t disk_bytes;   /* at most, of each rank */
    size_t block_bytes;  /* of measure_cold(), at least: several times what caches hold */
    size_t memory_bytes; /* most that an op touches */
    size_t transfer_bytes;
    int64_t side; /* of products at most */
};

struct measure {
    const struct measure_options *options;
    const struct measure_limits *limits;
    struct world *world;
    struct mem *mem;
    struct device *device;
    int share_gpu;
    int64_t deadline_ns; /* from which on all is done once, */
    int is_late;         /* as all ranks have agreed */
    double
        own_share; /* of its threads' time, that the slowest rank had for products; 0: not known */
    struct device_event *from, *to; /* of a GPU */
    char *block;                    /* memory for operands */
    size_t block_bytes;
    size_t cold;                     /* where the next operands of measure_cold() are, */
    size_t cold_source, cold_target; /* and of those that products read and write */
    struct machine *machine;
    int product_capacity, transfer_capacity; /* of its tables */
    struct measure_op *op;                   /* from which measure_set_ops() makes the other one */
    int ops, op_capacity;
};

/* Of a row of machine->op. */
struct measure_op {
    char name[MACHINE_OP];
    enum dtype dtype;
    double size, work, seconds;
};

/* Work that is done again and again. */
struct measure_work {
    /* Do it once, or enqueue it.  Returns 0, or -1 with err set. */
    int (*run)(struct measure *m, void *data, struct error *err);
    void *data;
    enum device_stream stream; /* that it is enqueued on */
};

/* Seconds of the work.  Collective: all ranks call it, those without work with run NULL, whose
 * times do not count.  Returns 0, or -1 on every rank with err set. */
int measure_seconds(struct measure *m, const struct measure_work *work, double *seconds,
                    struct error *err);

/* How often work that took a rank so long is done within budget_s, the same on all ranks: once,
 * where the time for everything is over on one of them.  rc other than 0 says that it failed here.
 * Collective.  Returns the number, or -1 on every rank with err set. */
int measure_repeats(struct measure *m, int rc, double took_s, double budget_s, struct error *err);

/* Memory of the device that is in no cache, as far as the block reaches: other memory than that of
 * the calls before.  At most block_bytes; aligned to 256. */
void *measure_cold(struct measure *m, size_t bytes);

/* The same for a product, which reads from the first two thirds of the block and writes to the
 * last: products of products would soon be infinite, or so small (denormal) that fp32 is many times
 * slower on some processors.  At most two thirds and one third of block_bytes. */
void *measure_cold_source(struct measure *m, size_t bytes);
void *measure_cold_target(struct measure *m, size_t bytes);

/* Fill device memory with numbers of a format, of either sign and from 2^-6 to 2^-5 in size: zeros
 * are multiplied faster.  Returns 0, or -1 with err set. */
int measure_fill(struct measure *m, void *to, size_t bytes, enum dtype dtype, struct error *err);

/* Have at least so much in the block, filled with numbers of a format.  Collective.  Returns 0, or
 * -1 on every rank with err set. */
int measure_block(struct measure *m, size_t bytes, enum dtype dtype, struct error *err);

/* The formats of tensors that the device computes with, DTYPE_COUNT at the end; and those of
 * products, with fp8 on GPUs that have it. */
const enum dtype *measure_product_formats(const struct measure *m);
const enum dtype *measure_formats(const struct measure *m);

/* Groups of this shape, on the device, with the block registered with them; measure_close_mesh()
 * also after a failure.  Collective.  Returns 0, or -1 on every rank with err set. */
int measure_open_mesh(struct measure *m, struct mesh **mesh, struct mesh_shape shape,
                      struct error *err);
void measure_close_mesh(struct measure *m, struct mesh *mesh);

/* A line for whoever waits, on rank 0. */
void measure_progress(const struct measure *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- the parts, which fill the machine; collective, 0 or -1 on every rank with err set ---- */

int measure_products(struct measure *m, struct error *err);  /* by shape and format */
int measure_units(struct measure *m, struct error *err);     /* ops of models, as they follow */
int measure_kernels(struct measure *m, struct error *err);   /* ops of instructions */
int measure_transfers(struct measure *m, struct error *err); /* collectives and messages */
int measure_beside(struct measure *m, struct error *err);    /* products and transfers */
int measure_copies(struct measure *m, struct error *err);    /* memory, launches, host */
int measure_disk(struct measure *m, struct error *err);      /* where offloaded state would be */
int measure_files(struct measure *m, struct error *err); /* copies in the page cache and updates */

/* An op of a size did so much work (bytes, or operations) in so many seconds.  What is added to one
 * name, format and size becomes one row: all work by all seconds. */
void measure_add_op(struct measure *m, const char *name, enum dtype dtype, double size, double work,
                    double seconds);
/* Make machine->op of what was added. */
void measure_set_ops(struct measure *m);

/* The shares of their speed that two works keep while both are under way.  Alone they take
 * alone[i]; both begin at once and take took[i]. */
void measure_shares(const double alone[2], const double took[2], double share[2]);

/* Print what was measured, on rank 0. */
void measure_show(const struct measure *m);

#endif
