/* measure.h - trireme doctor --measure: measuring how fast this machine is at what training does,
 * and writing it as a machine file, which trireme plan --machine reads. */
#ifndef TRIREME_DOCTOR_MEASURE_H
#define TRIREME_DOCTOR_MEASURE_H

#include "comm/world.h"

struct measure_options {
    const char *file;   /* to be written; its name without folder and ending names the machine */
    const char *folder; /* on the disk whose speed is measured; NULL: the working directory */
    int quick;          /* 1: a few small sizes, in seconds: for trying out, not for plans */
};

/* Measure all ranks at once, each on the device that training would choose for it; rank 0 writes
 * the file, prints a summary to stdout, and says on stderr what is being measured.  Starts the
 * world; *world, NULL before, is for world_stop(), also after a failure.  Collective.  Returns 0,
 * or -1 on every rank with err set.  Whether the file can be written is tried before anything is
 * measured, without leaving anything there; after a failure a file of this name is as it was. */
int measure_run(struct world **world, struct mem *mem, const struct measure_options *options,
                struct error *err);

#endif
