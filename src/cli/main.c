/* main.c - picks the command, prints what went wrong, ends the process. */
#include "cli/command.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "comm/world.h"
#include "config/defines.h"

static const struct command commands[] = {
    {"train", "[CONFIG] [key=value ...]", "train a model", command_train},
    {"evaluate", "[CONFIG] [key=value ...]", "loss of a checkpoint on data.valid",
     command_evaluate},
    {"generate", "CHECKPOINT --prompt TEXT [--tokens N] [--temperature X] [--top-k N] [--seed N]",
     "continue a text", command_generate},
    {"tokenize", "INPUT... [--tokenizer NAME] [--valid FILE.h5 --valid-fraction F] -o FILE.h5",
     "make a token file from texts: files, folders, or - for standard input", command_tokenize},
    {"plan",
     "[CONFIG] [key=value ...] [--ranks N] [--nodes N] [--threads N] [--machine GPU]"
     " [--node-memory GIB] [--json FILE]",
     "memory and communication of every rank, checked, and of every strategy, without running",
     command_plan},
    {"config", "[--show | [CONFIG] [key=value ...]]", "describe the keys, or check a config",
     command_config},
    {"checkpoint", "ls DIR | verify DIR | show DIR", "look at checkpoints", command_checkpoint},
    {"doctor", "", "what was found on this machine, and what is wrong", command_doctor},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void usage_of(const struct command *command, FILE *out)
{
    fprintf(out, "  trireme %s %s\n      %s\n", command->name, command->usage, command->summary);
}

static void usage(FILE *out)
{
    fprintf(out, "trireme %s - trains language models on clusters\n\nusage:\n", PACKAGE_VERSION);
    for (int i = 0; i < COMMANDS; i++)
        usage_of(&commands[i], out);
    fprintf(out, "\nFirst run:  trireme tokenize TEXT -o text.h5\n"
                 "            trireme train model.preset=llama-tiny data.train=text.h5\n");
}

static const struct command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int is_help(const char *argument)
{
    return !strcmp(argument, "--help") || !strcmp(argument, "-h");
}

int app_start_world(struct app *app, struct error *err)
{
    if (world_start(&app->world, &app->mem, err))
        return -1;
    app->log.rank = world_rank(app->world);
    return 0;
}

/* Run one command; its failure is printed by the lowest rank alone. */
static int run(const struct command *command, int argc, char **argv)
{
    struct app app = {.log = {.level = LOG_INFO, .rank = -1}};
    struct error err = {0};
    int rc = command->run(&app, argc, argv, &err);
    if (rc && err.text[0] && app.log.rank <= 0)
        log_error(&app.log, "%s", err.text);
    world_stop(app.world);
    log_close(&app.log);
    if (!rc && app.mem.blocks)
        log_warn(&app.log, "%lld counted blocks were not freed", (long long)app.mem.blocks);
    if (!rc)
        return EXIT_DONE;
    return err.code == EXIT_DONE ? EXIT_USAGE : err.code;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write, which says so */
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return printf("trireme %s\n", PACKAGE_VERSION) < 0;
    if (is_help(argv[1]) || !strcmp(argv[1], "help")) {
        usage(stdout);
        return EXIT_DONE;
    }
    const struct command *command = find(argv[1]);
    if (command && argc > 2 && is_help(argv[2])) {
        usage_of(command, stdout);
        printf("\nKeys and their meaning: trireme config --show; more: man trireme\n");
        return EXIT_DONE;
    }
    if (!command) {
        log_error(NULL, "no command \"%s\"; trireme --help lists them", argv[1]);
        return EXIT_USAGE;
    }
    return run(command, argc - 1, argv + 1);
}
