/* config.c - trireme config: printing what keys mean, and checking a configuration. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "config/schema.h"

/* Print all keys, or those named: keys and groups. */
static int show(int names, char **name, struct error *err)
{
    if (!names)
        config_show(stdout, CONFIG_TEXT_TABLE, NULL);
    for (int i = 0; i < names; i++) {
        if (i)
            putchar('\n');
        if (!config_show(stdout, CONFIG_TEXT_TABLE, name[i]))
            return key_unknown(name[i], err);
    }
    return 0;
}

int command_config(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    if (argc >= 2 && !strcmp(argv[1], "--show"))
        return show(argc - 2, argv + 2, err);
    if (argc < 2)
        return error_set(err,
                         "trireme config takes a CONFIG file or key=value, which it checks, or "
                         "--show, which lists the keys");
    if (arguments_config(&config, ARGUMENTS_PLAN, argc, argv, err))
        return -1;
    config_print(stdout, &config);
    return 0;
}
