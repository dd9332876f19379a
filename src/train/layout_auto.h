/* layout_auto.h - parallel.layout=auto: the layout of a run is found when it starts, for the ranks
 * that it has. */
#ifndef TRIREME_TRAIN_LAYOUT_AUTO_H
#define TRIREME_TRAIN_LAYOUT_AUTO_H

#include "base/log.h"
#include "comm/world.h"
#include "config/config.h"
#include "device/device.h"

/* With parallel.layout=auto set the layout in config: rank 0 searches (plan/search.h) for the
 * fastest one of the world's ranks that fits their memory, on the machine of run.machine; a line in
 * the log says which, and what it is forecast to take.  Else nothing is done. gpu: this rank's,
 * with request->kind DEVICE_CUDA.  Collective.  Returns 0, or -1 on all ranks with err set: the
 * machine is not known, no layout fits. */
int layout_auto_set(struct config *config, struct world *world, struct log *log,
                    const struct device_request *request, struct error *err);

#endif
