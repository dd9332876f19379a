/* command.h - one row per command, one file per command. */
#ifndef TRIREME_CLI_COMMAND_H
#define TRIREME_CLI_COMMAND_H

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

struct world;

/* What main makes and every command is handed. */
struct app {
    struct log log;
    struct mem mem;
    struct world *world; /* NULL until app_start_world() */
};

enum { COMMAND_OPTIONS = 24, COMMAND_ALIASES = 8 };

struct command_option {
    const char *name;  /* "--ranks"; NULL ends a list */
    const char *value; /* the name of its value, "N"; NULL: it has none */
    int is_output;     /* 1: the value is a file that is written */
};

/* Names that other programs have for an option, or for a value that one takes. */
struct command_alias {
    const char *names; /* "--output --out", with '-' for '_'; NULL ends a list */
    const char *here;  /* "-o" */
};

struct command {
    const char *name;
    const char *usage;   /* arguments, after the name */
    const char *summary; /* one line */
    const char *example; /* lines for --help, or NULL */
    struct command_option options[COMMAND_OPTIONS];
    struct command_alias aliases[COMMAND_ALIASES];
    const char *also;  /* names that other programs have for it, "eval test", or NULL */
    const char *words; /* allowed first arguments, "ls verify", or NULL */
    int takes_keys;    /* 1: [CONFIG] [key=value ...] */
    int collective;    /* 1: may run on several ranks; one of them prints errors */
    const char *alone; /* of a command that a launcher's tasks would each do whole, and is therefore
                        * refused to several: how to ask for more than one; else NULL */
    /* argv[0] is the command's name.  Returns 0, or -1 with err set: err->code becomes the
     * exit code, err->text is printed once.  A command that started the world returns the
     * same outcome on all ranks.  An empty text prints nothing. */
    int (*run)(struct app *app, int argc, char **argv, struct error *err);
};

extern const struct command commands[];
extern const int command_count;

/* The row of a name, or NULL; and the name nearest to one that is none, or NULL. */
const struct command *command_find(const char *name);
const char *command_nearest(const char *name);

/* Are all arguments that begin with '-' options of the command, with their values?  Returns 0, or
 * -1 with err naming the first that is not, and the option that was probably meant. */
int command_check_options(const struct command *command, int argc, char **argv, struct error *err);

/* Refuse to be one of several tasks of a launcher.  Returns 0, or -1 with err set; its text is
 * empty on tasks above 0. */
int command_check_alone(const struct command *command, struct error *err);

/* Start the world and give the log this process's rank. */
int app_start_world(struct app *app, struct error *err);

int command_train(struct app *app, int argc, char **argv, struct error *err);
int command_evaluate(struct app *app, int argc, char **argv, struct error *err);
int command_generate(struct app *app, int argc, char **argv, struct error *err);
int command_tokenize(struct app *app, int argc, char **argv, struct error *err);
int command_plan(struct app *app, int argc, char **argv, struct error *err);
int command_config(struct app *app, int argc, char **argv, struct error *err);
int command_convert(struct app *app, int argc, char **argv, struct error *err);
int command_checkpoint(struct app *app, int argc, char **argv, struct error *err);
int command_completion(struct app *app, int argc, char **argv, struct error *err);
int command_doctor(struct app *app, int argc, char **argv, struct error *err);

#endif
