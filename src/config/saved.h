/* saved.h - the model of a run directory or of a checkpoint, by the configuration kept there. */
#ifndef TRIREME_CONFIG_SAVED_H
#define TRIREME_CONFIG_SAVED_H

#include "config/config.h"

/* Is a folder a run (config.yaml and checkpoints/), or a checkpoint (meta.json and COMMIT)? */
int saved_has_config(const char *folder);

/* Set the keys model.* that say what the model is, not those that say where it comes from.  0, or
 * -1 with err set. */
int saved_read_config(struct config *config, const char *folder, struct error *err);

/* The folder of Hugging Face's files that a model came from, of which path, a value of model.path,
 * names the first link: that folder itself, or in the hub's cache, or a run or a checkpoint whose
 * own model.path leads on.  1, or 0 and "": it came from none, or from one that is gone. */
int saved_source(const char *path, char folder[CONFIG_TEXT]);

#endif
