/* doctor_gpu.h - trireme doctor's look at GPUs. */
#ifndef TRIREME_DOCTOR_DOCTOR_GPU_H
#define TRIREME_DOCTOR_DOCTOR_GPU_H

#include "doctor/doctor_report.h"

/* Print the GPUs, and whether every rank can have one.  Collective where there is a world. */
void doctor_check_gpus(struct doctor *d);

/* Measure how fast GPUs multiply, copy and transfer; does nothing where a rank has none.
 * Collective.  Returns 0, or -1 on every rank with err set. */
int doctor_measure_gpus(struct doctor *d, struct error *err);

#endif
