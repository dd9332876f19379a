/* config.c - trireme config: what the keys mean, and whether a configuration is right. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"

static int finish_output(struct error *err)
{
    if (fflush(stdout) || ferror(stdout))
        return error_errno(err, "standard output");
    return 0;
}

int command_config(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    const char *path = NULL;
    int first = 1;
    if (argc == 2 && !strcmp(argv[1], "--show")) {
        config_show(stdout, CONFIG_TEXT_TABLE);
        return finish_output(err);
    }
    if (argc < 2 || argv[1][0] == '-')
        return error_set(err, "usage: trireme config --show, or trireme config [CONFIG] "
                              "[key=value ...]");
    if (!strchr(argv[1], '='))
        path = argv[first++];
    if (config_load(&config, path, (const char *const *)argv + first, argc - first, err))
        return -1;
    config_print(stdout, &config);
    return finish_output(err);
}
