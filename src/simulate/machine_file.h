/* machine_file.h - machines by name. */
#ifndef TRIREME_SIMULATE_MACHINE_FILE_H
#define TRIREME_SIMULATE_MACHINE_FILE_H

#include "base/error.h"
#include "simulate/machine.h"

/* The machine of a user's name, in any case, that every build knows, for machine_free().  Returns
 * 0, or -1 with err naming those that are known. */
int machine_find(struct machine *machine, const char *name, struct error *err);

/* The machine of a GPU as the driver names it, for machine_free().  Returns 0, or -1: not known. */
int machine_of_gpu(struct machine *machine, const char *gpu);

/* The names of machines that every build knows, in text of so many bytes, with separator between
 * them.  Returns text. */
const char *machine_names(char *text, size_t size, const char *separator);

#endif
