/* modules.h - a model's modules, by their names in Hugging Face's files:
 * "model.layers.3.mlp.up_proj".
 *
 * Users name them by the ends of these: "up_proj", "mlp.up_proj"; lists have commas or spaces
 * between names.
 */
#ifndef TRIREME_MODEL_MODULES_H
#define TRIREME_MODEL_MODULES_H

#include "model/names.h"

/* The module of a tensor of the model.  0, or -1: it has no name there. */
int modules_name(const struct model *model, const char *own, char module[HF_NAME]);

/* The next name of a list, which is moved behind it; 0 where there is none. */
int modules_next(const char **names, char name[HF_NAME]);

/* Is a name the module's, or the end of its path? */
int modules_is_called(const char *module, const char *name);

/* Is one of a list? */
int modules_is_listed(const char *names, const char *module);

#endif
