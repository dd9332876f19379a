/* shared_settings.h - do all ranks have the same settings, data and run directory?  A stale file on
 * one node, or another argument for one rank, must not train numbers that nobody asked for. */
#ifndef TRIREME_TRAIN_SHARED_SETTINGS_H
#define TRIREME_TRAIN_SHARED_SETTINGS_H

#include "comm/world.h"
#include "config/config.h"
#include "train/run_changes.h"

/* Compare version and build of trireme and every key with those of rank 0, but for keys that a rank
 * may have for itself (config_shared()).  Collective.  Returns 0, or -1 on all ranks with err
 * naming the lowest rank that differs, the key and both values. */
int shared_settings_check(struct world *world, const struct config *config, struct error *err);

/* Compare what this rank's token files contain with rank 0's; config names them.  Collective.
 * Returns 0, or -1 on all ranks with err naming the lowest rank that differs. */
int shared_settings_check_data(struct world *world, const struct config_data *config,
                               const struct run_data *data, struct error *err);

/* Is a folder, which rank 0 can write, the same one for all ranks, and can be written on all nodes?
 * All look for a file that rank 0 makes, and the first rank of each node makes one; none of them
 * stays.  Collective.  Returns 0, or -1 on all ranks with err set. */
int shared_settings_check_folder(struct world *world, const char *folder, struct error *err);

#endif
