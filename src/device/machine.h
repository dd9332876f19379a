/* machine.h - GPUs by name: memory and speed, for plans without one and for the share of peak. */
#ifndef TRIREME_DEVICE_MACHINE_H
#define TRIREME_DEVICE_MACHINE_H

#include <stddef.h>

#include "base/dtype.h"

struct machine {
    const char *name;    /* as a user says it: "h200" */
    const char *gpu;     /* as the driver names it */
    size_t memory_bytes; /* what CUDA offers to programs */
    /* Dense, without sparsity, at boost clock: floating point operations per second. */
    double bf16_flops; /* tensor cores, fp32 accumulation */
    double fp32_flops; /* no tensor cores: fp32 runs use none */
    double bandwidth;  /* of memory, bytes per second */
};

extern const struct machine machine_rows[];
extern const int machine_count;

/* The row of a user's name, in any case, or NULL. */
const struct machine *machine_find(const char *name);

/* The row of a GPU as the driver names it, or NULL. */
const struct machine *machine_of_gpu(const char *gpu);

/* Operations per second of matrix products in a type. */
double machine_peak(const struct machine *machine, enum dtype dtype);

#endif
