/* arguments.h - what commands' argument lists share. */
#ifndef TRIREME_CLI_ARGUMENTS_H
#define TRIREME_CLI_ARGUMENTS_H

#include "config/config.h"

enum arguments_use { ARGUMENTS_TRAIN, ARGUMENTS_PLAN, ARGUMENTS_EVALUATE };

/* Read [CONFIG | RUN | CHECKPOINT] [key=value ...]. argv[0] is skipped.  The first argument, if it
 * is no setting, is a configuration file, the directory of a run, or a checkpoint, of which the
 * saved configuration is used.  For a run, or the config.yaml in one, run.dir becomes the place
 * where it lies.  ARGUMENTS_EVALUATE: ranks and device are those of this machine, not the saved
 * ones; a checkpoint becomes checkpoint.resume; and run.dir= alone names a run.  Returns 0, or -1
 * with err set. */
int arguments_config(struct config *config, enum arguments_use use, int argc, char **argv,
                     struct error *err);

/* Is the first argument of a command key=value?  A path with a '=' in it, such as sweep/lr=1e-3, is
 * none where it exists and no key's name is before the '='. */
int arguments_is_setting(const char *argument);

/* Is path the directory of a run? */
int arguments_is_run(const char *path);

/* The value of an option "--name VALUE" or "--name=VALUE", the last where it is given more than
 * once; NULL if absent.  All of it is removed from argv (argc shrinks). */
const char *arguments_option(const char *name, int *argc, char **argv);

/* All values of an option that may be given more than once, in their order, into values, of which
 * there is space for `most`.  Returns how many were given; they are removed from argv. */
int arguments_list(const char *name, int *argc, char **argv, const char **values, int most);

/* 1 where an option without a value is given; it is removed from argv. */
int arguments_flag(const char *name, int *argc, char **argv);

/* The same as a number in [least, most]; otherwise if absent.  Returns 0, or -1 with err set. */
int arguments_number(const char *name, int *argc, char **argv, double least, double most,
                     double *value, double otherwise, struct error *err);

/* The same as a whole number. */
int arguments_count(const char *name, int *argc, char **argv, int64_t least, int64_t most,
                    int64_t *value, int64_t otherwise, struct error *err);

#endif
