/* data_files.c - see data_files.h. */
#include "train/data_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

/* The files that a key names, and what stat() says of each. */
struct files {
    int count;
    int is_weighted;
    struct config_source *source;
    struct stat *info; /* st_ino 0: the file is not here */
};

static struct files find_files(const char *text)
{
    struct files f = {.source = array_make(CONFIG_SOURCES, sizeof *f.source),
                      .info = array_make(CONFIG_SOURCES, sizeof *f.info)};
    int count = config_sources(text, f.source, NULL);
    f.count = count > 0 ? count : 0;
    f.is_weighted = f.source[0].weight > 0;
    for (int i = 0; i < f.count; i++)
        if (stat(f.source[i].path, &f.info[i]))
            f.info[i] = (struct stat){0};
    return f;
}

static void free_files(struct files *f)
{
    free(f->source);
    free(f->info);
}

/* Returns the number of the first file from `first` on that is `info`, or -1. */
static int find(const struct files *f, int first, const struct stat *info)
{
    for (int i = first; i < f->count; i++)
        if (info->st_ino && f->info[i].st_ino == info->st_ino && f->info[i].st_dev == info->st_dev)
            return i;
    return -1;
}

/* Warn of the first file that is named several times, and each time whole. */
static void warn_repeated(struct log *log, const char *key, const char *whole,
                          const struct files *f)
{
    for (int i = 0; i < f->count; i++) {
        const char *name = f->source[i].path;
        int again = find(f, i + 1, &f->info[i]), times = 1;
        if (again < 0 || f->source[i].samples || f->source[again].samples)
            continue;
        for (int j = again; j >= 0; j = find(f, j + 1, &f->info[i]))
            times++;
        int is_renamed = strcmp(name, f->source[again].path) != 0;
        log_warn(log, "%s names one file %d times (%s%s%s): each %s reads it %d times", key, times,
                 name, is_renamed ? ", also as " : "", is_renamed ? f->source[again].path : "",
                 whole, times);
        return;
    }
}

/* Warn of the first file of data.valid that is also trained on. */
static void warn_learned(struct log *log, const struct files *train, const struct files *valid)
{
    for (int i = 0; i < valid->count; i++) {
        const char *name = valid->source[i].path;
        int same = find(train, 0, &valid->info[i]);
        if (same < 0)
            continue;
        int is_renamed = strcmp(name, train->source[same].path) != 0;
        log_warn(log,
                 "data.valid names %s, which is a file of data.train%s%s: its loss is of what is "
                 "learned, and says little of other text",
                 name, is_renamed ? ", named there " : "",
                 is_renamed ? train->source[same].path : "");
        return;
    }
}

void data_files_warn_valid(struct log *log, const char *valid)
{
    struct files files = find_files(valid);
    warn_repeated(log, "data.valid", "evaluation", &files);
    free_files(&files);
}

void data_files_warn(struct log *log, const struct config_data *data)
{
    struct files train = find_files(data->train), valid = find_files(data->valid);
    if (!train.is_weighted)
        warn_repeated(log, "data.train", "epoch", &train);
    data_files_warn_valid(log, data->valid);
    warn_learned(log, &train, &valid);
    free_files(&train);
    free_files(&valid);
}
