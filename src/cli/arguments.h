/* arguments.h - reading the command lines of commands: a configuration with settings, and options.
 */
#ifndef TRIREME_CLI_ARGUMENTS_H
#define TRIREME_CLI_ARGUMENTS_H

#include "config/config.h"

/* What a configuration is read for. */
enum arguments_use {
    ARGUMENTS_TRAIN,   /* a checkpoint as first argument is an error */
    ARGUMENTS_PLAN,    /* also to print it */
    ARGUMENTS_EVALUATE /* on this machine's device and ranks, not those of the saved configuration,
                        * and without an optimizer */
};

/* Read [CONFIG | RUN | CHECKPOINT] [key=value ...] into config; argv[0] is skipped.  The first
 * argument, if it is not a setting, is
 *   - a configuration file;
 *   - the directory of a run, or the config.yaml in it: the run's configuration is loaded, with
 *     run.dir set to the directory and checkpoint.resume to auto;
 *   - a checkpoint: the configuration saved in it is loaded, with checkpoint.resume set to it.
 * Settings override what is loaded.  With ARGUMENTS_EVALUATE a setting run.dir=RUN alone names a
 * run like the first argument.  Returns 0, or -1 with err set. */
int arguments_config(struct config *config, enum arguments_use use, int argc, char **argv,
                     struct error *err);

/* Append the settings of this machine, which replace those of a run or checkpoint: its device,
 * threads and ranks, whatever the run was trained on.  list has space for ARGUMENTS_HERE more than
 * its count settings.  Returns their number now. */
enum { ARGUMENTS_HERE = 21 };
int arguments_add_here(const char **list, int count);

/* Append the settings of a configuration that trains nothing: the keys of the optimizer, and of
 * the loss that balances experts, at their defaults, so that none of them refuses a layout or a
 * precision.  list has space for ARGUMENTS_UNTRAINED more than its count settings.  Returns their
 * number now. */
enum { ARGUMENTS_UNTRAINED = 11 };
int arguments_add_untrained(const char **list, int count);

/* Is the first argument of a command a setting, key=value?  An existing path with a '=' in it, such
 * as sweep/lr=1e-3, is not, unless a key's name is before the '='. */
int arguments_is_setting(const char *argument);

/* Is path the directory of a run? */
int arguments_is_run(const char *path);

/* Return the value of an option "--name VALUE" or "--name=VALUE", the last one where the option is
 * given more than once, in memory of argv; NULL: the option is absent.  The option and its values
 * are removed from argv, and argc shrinks. */
const char *arguments_option(const char *name, int *argc, char **argv);

/* Copy the values of an option that may be given more than once, in their order, to values, which
 * has space for `most`; further ones are dropped.  All are removed from argv.  Returns how many
 * were given, which may be more than `most`. */
int arguments_list(const char *name, int *argc, char **argv, const char **values, int most);

/* Return 1 where an option without a value is given, else 0; it is removed from argv. */
int arguments_flag(const char *name, int *argc, char **argv);

/* Read the value of an option, as arguments_option() finds it, as a number in [least, most] into
 * *value; where the option is absent, *value is `otherwise`.  Returns 0, or -1 with err set. */
int arguments_number(const char *name, int *argc, char **argv, double least, double most,
                     double *value, double otherwise, struct error *err);

/* Read the value of an option as arguments_number() does, as a whole number. */
int arguments_count(const char *name, int *argc, char **argv, int64_t least, int64_t most,
                    int64_t *value, int64_t otherwise, struct error *err);

#endif
