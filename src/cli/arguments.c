/* arguments.c - see arguments.h. */
#include "cli/arguments.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int arguments_config(struct config *config, int argc, char **argv, struct error *err)
{
    const char *path = NULL;
    char **overrides = argv + 1;
    int count = argc - 1;
    if (count && !strchr(overrides[0], '=')) {
        path = *overrides++;
        count--;
    }
    for (int i = 0; i < count; i++)
        if (!strchr(overrides[i], '='))
            return error_set(err, "argument \"%s\" is not key=value; a config file comes first",
                             overrides[i]);
    return config_load(config, path, (const char *const *)overrides, count, err);
}

static void take(int at, int how_many, int *argc, char **argv)
{
    for (int i = at; i + how_many < *argc; i++)
        argv[i] = argv[i + how_many];
    *argc -= how_many;
}

const char *arguments_option(const char *name, int *argc, char **argv)
{
    size_t length = strlen(name);
    for (int i = 1; i < *argc; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, name, length))
            continue;
        if (argument[length] == '=') {
            take(i, 1, argc, argv);
            return argument + length + 1;
        }
        if (!argument[length] && i + 1 < *argc) {
            const char *value = argv[i + 1];
            take(i, 2, argc, argv);
            return value;
        }
    }
    return NULL;
}

int arguments_number(const char *name, int *argc, char **argv, double least, double most,
                     double *value, double otherwise, struct error *err)
{
    const char *text = arguments_option(name, argc, argv);
    *value = otherwise;
    if (!text)
        return 0;
    char *end;
    *value = strtod(text, &end);
    if (*text && !*end && *value >= least && *value <= most)
        return 0;
    return error_set(err, "%s %s: a number from %g to %g is wanted", name, text, least, most);
}

int arguments_count(const char *name, int *argc, char **argv, int64_t least, int64_t most,
                    int64_t *value, int64_t otherwise, struct error *err)
{
    const char *text = arguments_option(name, argc, argv);
    *value = otherwise;
    if (!text)
        return 0;
    char *end;
    double number = strtod(text, &end);
    if (*text && !*end && number >= (double)least && number <= (double)most &&
        number == (double)(int64_t)number) {
        *value = (int64_t)number;
        return 0;
    }
    return error_set(err, "%s %s: a whole number from %" PRId64 " to %" PRId64 " is wanted", name,
                     text, least, most);
}
