/* main.c - picking the command, printing its error, ending the process with its exit code. */
#include "cli/command.h"

#include <signal.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/launch.h"
#include "comm/world.h"
#include "config/defines.h"
#include "io/h5.h"

enum { LINE_S = 2 }; /* seconds for the line that another task prints; it takes milliseconds */

static void usage_of(const struct command *command, FILE *out)
{
    fprintf(out, "  trireme %s %s\n      %s\n", command->name, command->usage, command->summary);
}

static void usage(FILE *out)
{
    fprintf(out, "trireme %s - trains language models on clusters\n\nusage:\n", PACKAGE_VERSION);
    for (int i = 0; i < command_count; i++)
        usage_of(&commands[i], out);
    fprintf(out, "\nFirst run:  trireme tokenize TEXT -o text.h5\n"
                 "            trireme train model.preset=llama-tiny data.train=text.h5\n");
}

/* Returns 0, or -1 with err set where what was printed could not be written. */
static int finish_stdout(struct error *err)
{
    errno = EIO; /* what error_errno() says where an earlier write failed and fflush() did not */
    return fflush(stdout) || ferror(stdout) ? error_errno(err, "standard output") : 0;
}

/* Return the exit code of what only prints. */
static int printed(void)
{
    struct error err = {0};
    if (!finish_stdout(&err))
        return EXIT_DONE;
    log_error(NULL, "%s", err.text);
    return EXIT_USAGE;
}

static int help_of(const struct command *command)
{
    usage_of(command, stdout);
    if (command->example)
        printf("\n%s", command->example);
    printf("\nKeys and their meaning: trireme config --show; more: man trireme\n");
    return printed();
}

static int is_one_of(const char *argument, const char *a, const char *b, const char *c)
{
    return !strcmp(argument, a) || !strcmp(argument, b) || !strcmp(argument, c);
}

/* Is --help among the arguments, other than as the text of a prompt? */
static int asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if ((!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) &&
            strcmp(argv[i - 1], "--prompt") != 0)
            return 1;
    return 0;
}

/* Before MPI has started, one task of a launcher says what is wrong with all (launch_check()).  The
 * others wait until its line is out: a launcher ends every task once one has failed. */
static void wait_for_line(void)
{
    if (launch_read().task > 0)
        sleep(LINE_S);
}

/* Run a command and return the exit code.  The lowest rank alone prints the command's error, or the
 * error of writing what the command printed. */
static int run(const struct command *command, int argc, char **argv)
{
    struct app app = {.log = {.level = LOG_INFO, .rank = -1}};
    struct error err = {0};
    int rc = command_check_options(command, argc, argv, &err);
    if (rc && command->collective)
        app_start_world(&app, NULL); /* so that one rank alone prints the error */
    else if (!rc)
        rc = command_check_alone(command, &err) || command->run(&app, argc, argv, &err);
    if (!rc)
        rc = finish_stdout(&err);
    if (rc && err.text[0] && app.log.rank <= 0)
        log_error(&app.log, "%s", err.text);
    else if (rc && !app.world)
        wait_for_line();
    world_stop(app.world);
    log_close(&app.log);
    if (!rc && app.mem.blocks)
        log_warn(&app.log, "%lld counted blocks were not freed", (long long)app.mem.blocks);
    if (!rc)
        return EXIT_DONE;
    return err.code == EXIT_DONE ? EXIT_USAGE : err.code;
}

static int unknown_command(const char *name)
{
    const char *nearest = command_nearest(name);
    if (text_ends_with(name, ".yaml") && !access(name, F_OK)) {
        log_error(NULL, "no command \"%s\"; did you mean trireme train %s?", name, name);
        return EXIT_USAGE;
    }
    log_error(NULL,
              nearest ? "no command \"%s\"; did you mean %s?"
                      : "no command \"%s\"; trireme --help lists them",
              name, nearest);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write, which says so */
    h5_setup();
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (is_one_of(argv[1], "--version", "-V", "-v") || !strcmp(argv[1], "version")) {
        printf("trireme %s\n", PACKAGE_VERSION);
        return printed();
    }
    const char *name = argv[1];
    if (is_one_of(name, "--help", "-h", "help") && argc == 2) {
        usage(stdout);
        return printed();
    }
    if (is_one_of(name, "--help", "-h", "help"))
        name = argv[2];
    const struct command *command = command_find(name);
    if (command && (name != argv[1] || asks_for_help(argc, argv)))
        return help_of(command);
    if (!command)
        return unknown_command(name);
    return run(command, argc - 1, argv + 1);
}
