/* machine_file.h - machines by name, those that every build knows and those of a file. */
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

/* A machine of a file, for machine_free(); name NULL: the one that it has.  Returns 0, or -1 with
 * err naming file and line. */
int machine_read(struct machine *machine, const char *path, const char *name, struct error *err);

/* What a user says: NAME, of a machine that every build knows, FILE or FILE:NAME.  For
 * machine_free().  Returns 0, or -1 with err. */
int machine_open(struct machine *machine, const char *text, struct error *err);

/* Change the network of a node as a user says it: "8x400Gb", PORTSxRATE, the rate of each, one way,
 * in bits (Gb) or bytes (GB) per second.  Returns 0, or -1 with err. */
int machine_set_network(struct machine *machine, const char *text, struct error *err);

/* Write a machine, its tables too, as a file that machine_read() makes the same machine of; head:
 * lines of comment without "# " at their beginning, or NULL.  The file appears whole or not at all.
 * Returns 0, or -1 with err. */
int machine_write(const struct machine *machine, const char *path, const char *head,
                  struct error *err);

#endif
