/* saved.h - what model a run or a checkpoint has, from the configuration that is kept in it. */
#ifndef TRIREME_CONFIG_SAVED_H
#define TRIREME_CONFIG_SAVED_H

#include "config/config.h"

/* Is a folder a run (config.yaml and checkpoints/), or a checkpoint (meta.json and COMMIT)? */
int saved_has_config(const char *folder);

/* Set those keys model.* that say what the model is, from the configuration kept in folder; the
 * keys of where it came from, such as model.path, stay.  Returns 0, or -1 with err set. */
int saved_read_config(struct config *config, const char *folder, struct error *err);

/* Find the folder of Hugging Face's files that a model came from.  path: a value of model.path.  It
 * is this folder, a name of the hub, or a run or checkpoint whose own model.path is followed in the
 * same way.  Returns 1; or 0 with folder "": the model came from no such folder, or the folder is
 * gone. */
int saved_source(const char *path, char folder[CONFIG_TEXT]);

#endif
