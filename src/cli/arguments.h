/* arguments.h - what commands' argument lists share. */
#ifndef TRIREME_CLI_ARGUMENTS_H
#define TRIREME_CLI_ARGUMENTS_H

#include "config/config.h"

enum arguments_use { ARGUMENTS_TRAIN, ARGUMENTS_PLAN, ARGUMENTS_EVALUATE };

/* [CONFIG | RUN | CHECKPOINT] [key=value ...]: argv[0] is skipped; the first argument without '='
 * is a configuration file, the directory of a run, or a checkpoint, whose saved configuration is
 * taken.  A run, or the config.yaml in it, is taken where it lies: run.dir is that place.  To
 * evaluate, what a run says of ranks and device is this machine's instead, a checkpoint becomes
 * checkpoint.resume, and run.dir= alone names a run.  Returns 0, or -1 with err set. */
int arguments_config(struct config *config, enum arguments_use use, int argc, char **argv,
                     struct error *err);

/* Whether path is the directory of a run. */
int arguments_is_run(const char *path);

/* An option with a value, as "--name VALUE" or "--name=VALUE": take it out of argv (argc
 * shrinks) and return it; NULL if absent. */
const char *arguments_option(const char *name, int *argc, char **argv);

/* The same as a number in [least, most]; otherwise if absent.  Returns 0, or -1 with err set. */
int arguments_number(const char *name, int *argc, char **argv, double least, double most,
                     double *value, double otherwise, struct error *err);

/* The same as a whole number. */
int arguments_count(const char *name, int *argc, char **argv, int64_t least, int64_t most,
                    int64_t *value, int64_t otherwise, struct error *err);

#endif
