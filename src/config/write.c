/* write.c - printing and writing the effective configuration as YAML that reads back to the same.
 */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/build_id.h"
#include "base/special_file.h"
#include "base/whole_file.h"
#include "config/defines.h"
#include "config/schema.h"

/* Texts stand in double quotes, in which '"' and '\' are escaped.  Nothing else needs it, because
 * values have no control characters (value.c). */
static void write_value(FILE *out, const struct key *key, const char *text)
{
    if (key->type != KEY_TEXT) {
        fprintf(out, " %s\n", text);
        return;
    }
    fputs(" \"", out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputs("\"\n", out);
}

const char *config_value(const struct config *config, const char *key, char *buffer)
{
    const struct key *row = key_find(key);
    return row ? key_text(config, row, buffer) : "";
}

const char *config_key_name(int i)
{
    const struct key *key = key_at(i);
    return key ? key->name : NULL;
}

void config_print(FILE *out, const struct config *config)
{
    char buffer[CONFIG_TEXT];
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        const char *dot = strchr(key->name, '.');
        int group = key_opens_group(i);
        if (group)
            fprintf(out, "%.*s:\n", group, key->name);
        fprintf(out, "%s%s:", dot ? "  " : "", dot ? dot + 1 : key->name);
        write_value(out, key, key_text(config, key, buffer));
    }
}

char *config_shared(const struct config *config)
{
    char buffer[CONFIG_TEXT], build[BUILD_ID];
    char *text = array_format("version=%s, build %s\n", PACKAGE_VERSION, build_id(build));
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (key->by_rank)
            continue;
        char *longer = array_format("%s%s=%s\n", text, key->name, key_text(config, key, buffer));
        free(text);
        text = longer;
    }
    return text;
}

struct config config_given(const struct config *config)
{
    struct config given = *config;
    const struct key *steps = key_find("train.steps");
    if (config->train.epochs > 0)
        key_set(&given, steps, steps->initial, NULL);
    return given;
}

/* The first line of a file: CONFIG_OF_RUN, CONFIG_FOR_USER. */
static const char heading[] = "# The configuration this run was given, complete.\n";
static const char heading_for_user[] = "# A configuration, complete: every key has its value.\n";

/* Is `first` the first line of the file at path? */
static int begins_with(const char *path, const char *first)
{
    char line[sizeof heading + sizeof heading_for_user] = "";
    FILE *file = special_file_kind(path) ? NULL : fopen(path, "r");
    int is_ours = file && fgets(line, sizeof line, file) && !strcmp(line, first);
    if (file)
        fclose(file);
    return is_ours;
}

int config_is_written(const char *path)
{
    return begins_with(path, heading);
}

int config_is_written_for_user(const char *path)
{
    return begins_with(path, heading_for_user);
}

int config_write(const struct config *config, enum config_writing what, const char *path,
                 struct error *err)
{
    struct whole_file file;
    if (whole_file_begin(&file, path, err))
        return -1;
    fputs(what == CONFIG_OF_RUN ? heading : heading_for_user, file.out);
    struct config given = config_given(config);
    config_print(file.out, &given);
    return whole_file_end(&file, WHOLE_FILE_REPORT, err);
}
