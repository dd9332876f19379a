/* named_model.h - an argument names a model, or an adapter, and the configuration file describes
 * another one: the file's description gives way.  named_model.c has an example. */
#ifndef TRIREME_CONFIG_NAMED_MODEL_H
#define TRIREME_CONFIG_NAMED_MODEL_H

#include "config/schema.h"

/* The model and the adapters that the file itself names. */
struct named_model {
    int is_named;         /* 1: the file has model.preset or model.path, maybe without a value */
    struct config config; /* defaults, then what model.preset or model.path and lora.path say, as
                             far as that can be read */
};

/* Read what the file itself names into own.  To be called before config_file_drop_rivals(), which
 * may remove these entries.  config: the defaults. */
void named_model_read(struct named_model *own, const struct config_file *file,
                      const struct config *config);

/* Where an argument names a model or an adapter, remove from file the entries that describe the
 * file's own one, and refuse those that describe neither.  named: defaults, then what the
 * argument's model and adapter say; path: of the file, for err.  Returns how many entries were
 * removed (0 where no argument names a model or an adapter), or -1 with err set. */
int named_model_yield(struct config_file *file, const struct named_model *own,
                      const struct config *named, const char *path, struct error *err);

#endif
