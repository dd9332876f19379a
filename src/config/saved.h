/* saved.h - the model of a run directory or of a checkpoint, by the configuration kept there. */
#ifndef TRIREME_CONFIG_SAVED_H
#define TRIREME_CONFIG_SAVED_H

#include "config/config.h"

/* Is a folder a run (config.yaml and checkpoints/), or a checkpoint (meta.json and COMMIT)? */
int saved_has_config(const char *folder);

/* Set the keys model.* that say what the model is, not those that say where it comes from.  0, or
 * -1 with err set. */
int saved_read_config(struct config *config, const char *folder, struct error *err);

#endif
