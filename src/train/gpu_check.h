/* gpu_check.h - the self-check of GPUs (device/self_check.h) at the start of a run. */
#ifndef TRIREME_TRAIN_GPU_CHECK_H
#define TRIREME_TRAIN_GPU_CHECK_H

#include "base/log.h"
#include "comm/world.h"
#include "config/config.h"
#include "device/self_check.h"

/* Refuse a GPU on which something is wrong that nothing can replace.  Returns -1 with err set; else
 * 0. */
int gpu_check_refuse(const struct self_check *check, const struct device_request *request,
                     struct error *err);

/* Check the GPUs of all ranks, as run.self_check says: with auto those for which no verdicts are
 * kept.  What is found is kept.  Nothing is done for CPUs.  request->replaced gets the families
 * that are wrong on any rank, so that all ranks compute alike; rank 0 warns of them.  Collective.
 * Returns 0, or -1 on every rank with err naming the rank and what is wrong there. */
int gpu_check_all(struct world *world, struct device_request *request, const struct config *config,
                  struct log *log, struct error *err);

#endif
