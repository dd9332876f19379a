/* modules.h - a model's modules, by their names in Hugging Face's files:
 * "model.layers.3.mlp.up_proj".
 *
 * Users name them by the ends of these: "up_proj", "mlp.up_proj", which are whole words, or
 * "*proj", which is letters; lists have commas or spaces between names.
 */
#ifndef TRIREME_MODEL_MODULES_H
#define TRIREME_MODEL_MODULES_H

#include "model/names.h"

/* Find the module of the tensor with the logical name `own`; of experts that of the first one.
 * Returns 0, or -1 if the files have no name for the tensor. */
int modules_name(const struct model *model, const char *own, char module[HF_NAME]);

/* The same of its matrix number `matrix`, where each is a tensor of the files (names.h). */
int modules_name_of(const struct model *model, const char *own, int64_t matrix,
                    char module[HF_NAME]);

/* Copy the first name of the list *names into name, and move *names past it.  Returns 1, or 0 at
 * the end of the list. */
int modules_next(const char **names, char name[HF_NAME]);

/* Is name the module's whole path, or the end of it from a dot on?  Or is what follows a "*" at the
 * beginning of name any end of it? */
int modules_is_called(const char *module, const char *name);

/* Does a name of the list call the module? */
int modules_is_listed(const char *names, const char *module);

#endif
