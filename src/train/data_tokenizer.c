/* data_tokenizer.c - see data_tokenizer.h. */
#include "train/data_tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "config/hub.h"
#include "config/saved.h"

/* Open the tokenizer.json in a folder, or beside a file, if it is the tokenizer of this name.
 * Returns 1, or 0: with err saying why, where there is such a file that cannot be read or is
 * another tokenizer; with err as it was, where there is none. */
static int is_beside(struct tokenizer **tokenizer, const char *path, const char *name,
                     struct error *err)
{
    struct stat info;
    int is_folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    const char *slash = strrchr(path, '/');
    int folder = is_folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    char *file = array_format("%.*s%stokenizer.json", folder, path, folder ? "/" : "");
    int found = *path && !access(file, F_OK) && !tokenizer_open(tokenizer, file, err);
    if (found && strcmp((*tokenizer)->name, name)) {
        error_set(err, "%.400s is \"%.100s\"", file, (*tokenizer)->name);
        tokenizer_close(*tokenizer);
        *tokenizer = NULL;
        found = 0;
    }
    free(file);
    return found;
}

/* Say where the tokenizer was looked for, and from where relative paths begin; why is about the
 * last file that was there.  Returns -1. */
static int refuse_absent(const char *folder, const struct config *config,
                         const struct config_source *files, int count, const struct error *why,
                         struct error *err)
{
    int is_relative = folder[0] && folder[0] != '/';
    char text[600] = "this tokenizer lies neither in model.path";
    for (int i = 0; i < count; i++)
        is_relative |= files[i].path[0] != '/';
    char *here = is_relative ? getcwd(NULL, 0) : NULL;
    if (folder[0])
        text_append(text, sizeof text, " (%.120s)", folder);
    text_append(text, sizeof text, " nor beside data.train");
    if (config->data.train[0])
        text_append(text, sizeof text, " (%.150s)", config->data.train);
    if (here)
        text_append(text, sizeof text, "; relative paths begin at the working directory, %.120s",
                    here);
    free(here);
    return error_set(err, "%s%s%.700s", text, why->text[0] ? ": " : "", why->text);
}

int data_tokenizer_open(struct tokenizer **tokenizer, const char *name, const struct config *config,
                        struct error *err)
{
    struct config_source files[CONFIG_SOURCES];
    struct error why = {0}; /* about the last file that is not this tokenizer */
    char folder[CONFIG_TEXT];
    if (!strcmp(name, "bytes"))
        return tokenizer_open(tokenizer, name, err);
    int count = config_sources(config->data.train, files, NULL);
    if (!saved_source(config->model_path, folder))
        hub_find(config->model_path, folder);
    if (is_beside(tokenizer, folder, name, &why))
        return 0;
    for (int i = 0; i < count; i++)
        if (is_beside(tokenizer, files[i].path, name, &why))
            return 0;
    return refuse_absent(folder, config, files, count, &why, err);
}

int data_tokenizer_has_files(const char *name)
{
    return name && name[0] && strcmp(name, "bytes") != 0 && strcmp(name, "unnamed") != 0;
}

int data_tokenizer_open_named(struct tokenizer **tokenizer, const char *name, struct error *err)
{
    char folder[CONFIG_TEXT];
    int is_missing = !hub_find(name, folder) && access(name, F_OK);
    if (is_missing && strcmp(name, "bytes") && hub_is_name(name) && !text_ends_with(name, ".json"))
        return hub_error_missing(
            name, strchr(name, '/') ? "no file or folder" : "not \"bytes\", and no file or folder",
            err);
    return tokenizer_open(tokenizer, folder, err);
}
