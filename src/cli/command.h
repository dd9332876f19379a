/* command.h - one row per command, one file per command. */
#ifndef TRIREME_CLI_COMMAND_H
#define TRIREME_CLI_COMMAND_H

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

struct world;

/* What main() makes and hands to the command. */
struct app {
    struct log log;
    struct mem mem;
    struct world *world; /* NULL until app_start_world() */
};

enum { COMMAND_OPTIONS = 24, COMMAND_ALIASES = 8 };

struct command_option {
    const char *name;  /* "--ranks"; NULL ends a list */
    const char *value; /* the name of its value, "N"; NULL: the option has no value */
    int is_output;     /* 1: the value names a file that is written */
    const char *words; /* the values that there are, "completion all"; NULL: any text */
};

/* Names that other programs have for an option, or for a value that one takes. */
struct command_alias {
    const char *names; /* "--output --out", with '-' for '_'; NULL ends a list */
    const char *here;  /* trireme's name, "-o" */
};

struct command {
    const char *name;
    const char *usage;   /* arguments, after the name */
    const char *summary; /* one line */
    const char *example; /* lines for --help, or NULL */
    struct command_option options[COMMAND_OPTIONS];
    struct command_alias aliases[COMMAND_ALIASES];
    const char *also;  /* names that other programs have for the command, "eval test", or NULL */
    const char *words; /* allowed first arguments, "ls verify", or NULL */
    int takes_keys;    /* 1: the arguments are [CONFIG] [key=value ...] */
    int collective;    /* 1: the command may run on several ranks; one of them prints errors */
    const char *alone; /* not NULL: the command refuses to be one of several tasks of a launcher,
                        * each of which would do all of the work; the text says how to ask for
                        * more than one, "--threads N shares the work" */
    /* Run the command; argv[0] is its name.  Returns 0, or -1 with err set: err->code becomes the
     * exit code, and err->text is printed once, unless it is empty.  A command that started the
     * world returns the same on all ranks. */
    int (*run)(struct app *app, int argc, char **argv, struct error *err);
};

extern const struct command commands[];
extern const int command_count;

/* Find the row of a command; NULL: there is none of this name. */
const struct command *command_find(const char *name);
/* Return the name of the command that was probably meant by a name of none; NULL: none is near. */
const char *command_nearest(const char *name);

/* Check that all arguments that begin with '-' are options of the command, with their values.
 * Returns 0, or -1 with err naming the first that is not, and the option that was probably meant.
 */
int command_check_options(const struct command *command, int argc, char **argv, struct error *err);

/* Where command->alone is set, refuse to be one of several tasks of a launcher.  Returns 0, or -1
 * with err set on task 0, and with an empty text on the other tasks. */
int command_check_alone(const struct command *command, struct error *err);

/* Start the world, app->world, which main() stops, and give the log this process's rank.  Returns
 * 0, or -1 with err (NULL allowed) set. */
int app_start_world(struct app *app, struct error *err);

int command_train(struct app *app, int argc, char **argv, struct error *err);
int command_evaluate(struct app *app, int argc, char **argv, struct error *err);
int command_generate(struct app *app, int argc, char **argv, struct error *err);
int command_tokenize(struct app *app, int argc, char **argv, struct error *err);
int command_plan(struct app *app, int argc, char **argv, struct error *err);
int command_config(struct app *app, int argc, char **argv, struct error *err);
int command_convert(struct app *app, int argc, char **argv, struct error *err);
int command_checkpoint(struct app *app, int argc, char **argv, struct error *err);
int command_tensorboard(struct app *app, int argc, char **argv, struct error *err);
int command_completion(struct app *app, int argc, char **argv, struct error *err);
int command_doctor(struct app *app, int argc, char **argv, struct error *err);

#endif
