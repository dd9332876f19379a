/* foreign_model.h - models and checkpoints of other programs, which trireme does not read. */
#ifndef TRIREME_CONFIG_FOREIGN_MODEL_H
#define TRIREME_CONFIG_FOREIGN_MODEL_H

#include "base/error.h"

/* Where a folder without a config.json, or a file, is another program's, set err to name the format
 * and what makes a folder of Hugging Face's files of it, and return -1; else return 0. */
int foreign_model_refuse(const char *path, struct error *err);

#endif
