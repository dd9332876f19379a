/* doctor_gpu.h - trireme doctor's look at GPUs. */
#ifndef TRIREME_CLI_DOCTOR_GPU_H
#define TRIREME_CLI_DOCTOR_GPU_H

#include "cli/doctor_say.h"

/* What GPUs there are, and whether every rank can have one.  Collective where there is a world. */
void doctor_look_at_gpus(struct doctor *d);

/* How fast they multiply, copy and transfer; nothing where a rank has none.  Collective.
 * Returns 0, or -1 on every rank with err set. */
int doctor_look_at_gpu_speed(struct doctor *d, struct error *err);

#endif
