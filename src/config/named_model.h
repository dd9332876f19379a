/* named_model.h - a model, or an adapter, that an argument names, beside a file that describes
 * another one. */
#ifndef TRIREME_CONFIG_NAMED_MODEL_H
#define TRIREME_CONFIG_NAMED_MODEL_H

#include "config/schema.h"

/* What the file's own model.preset or model.path says of the model, and its lora.path of the
 * adapters. */
struct named_model {
    int is_named;         /* 1: the file has one of these keys, maybe without a value */
    struct config config; /* defaults, and what they say, where that can be read */
};

/* Before arguments take anything out of the file.  config: the defaults. */
void named_model_read(struct named_model *own, const struct config_file *file,
                      const struct config *config);

/* Where an argument names a model, or an adapter: take the file's entries out that describe the
 * file's own one, and refuse those that agree with neither.  named: defaults, and what the argument
 * says; path: of the file, for err.  Returns how many entries it has taken out, or -1 with err set.
 */
int named_model_yield(struct config_file *file, const struct named_model *own,
                      const struct config *named, const char *path, struct error *err);

#endif
