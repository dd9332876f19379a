/* measure.h - trireme doctor --measure: how fast this machine is at what training does, as a
 * machine file that plans take. */
#ifndef TRIREME_DOCTOR_MEASURE_H
#define TRIREME_DOCTOR_MEASURE_H

#include "comm/world.h"

struct measure_options {
    const char *file;   /* to be written; its name without folder and ending names the machine */
    const char *folder; /* on the disk whose speed is measured; NULL: the working directory */
    int quick;          /* 1: a few small sizes, in seconds: for trying out, not for plans */
};

/* Measure all ranks at once, each on the device that training would choose for it, and let rank 0
 * write the file and print a summary.  What is under way is a line on rank 0's stderr.  Starts the
 * world; *world, NULL before, is for world_stop(), also after a failure.  Collective.
 * Returns 0, or -1 on every rank with err set: a file that cannot be written is found before
 * anything is measured, and nothing is left in its place. */
int measure_run(struct world **world, struct mem *mem, const struct measure_options *options,
                struct error *err);

#endif
