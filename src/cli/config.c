/* config.c - trireme config: printing what keys mean, checking a configuration, translating that of
 * another trainer. */
#include "cli/command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "config/schema.h"
#include "program/layout.h"
#include "segment/units_frozen.h"

/* Answer a name of --show that is neither a key nor a group.  Returns -1 with err set. */
static int unknown(const char *name, struct error *err)
{
    char group[64];
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof group; i++)
        group[i] = (char)tolower((unsigned char)name[i]);
    group[i] = 0;
    return key_is_group(group) ? error_set(err, "no group \"%.60s\"; did you mean %s?", name, group)
                               : key_unknown(name, err);
}

/* Print all keys, or those named: keys and groups. */
static int show(int names, char **name, struct error *err)
{
    if (!names)
        config_show(stdout, CONFIG_TEXT_TABLE, NULL);
    for (int i = 0; i < names; i++) {
        if (i)
            putchar('\n');
        if (!config_show(stdout, CONFIG_TEXT_TABLE, name[i]))
            return unknown(name[i], err);
    }
    return 0;
}

/* Check the keys that name parts of the model, as training does: lora.target_modules,
 * lora.modules_to_save and train.freeze. */
static int check_names(const struct config *config, struct error *err)
{
    struct model *model;
    if (layout_model(&model, config, err))
        return -1;
    int rc = units_check_freeze(model, config->train.freeze, err);
    model_destroy(model);
    return rc;
}

int command_config(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    if (argc >= 2 && !strcmp(argv[1], "--show"))
        return show(argc - 2, argv + 2, err);
    if (argc >= 2 && !strcmp(argv[1], "--translate"))
        return argc == 3 ? config_translate(stdout, argv[2], err)
                         : error_set(err, "config --translate takes one file, of another trainer");
    if (argc < 2)
        return error_set(
            err, "trireme config takes a CONFIG file or key=value, which it checks; --show, "
                 "which lists the keys; or --translate FILE, of another trainer");
    if (arguments_config(&config, ARGUMENTS_PLAN, argc, argv, err) || check_names(&config, err))
        return -1;
    config_print(stdout, &config);
    return 0;
}
