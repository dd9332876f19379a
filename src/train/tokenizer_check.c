/* tokenizer_check.c - see tokenizer_check.h. */
#include "train/tokenizer_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "config/hub.h"
#include "io/disk.h"
#include "io/tokenizer.h"
#include "train/run_changes.h"

const char *tokenizer_check_name(const struct dataset *data)
{
    return data->files ? data->file[0].tokens.tokenizer : "";
}

static int is_known(const char *name)
{
    return name && name[0] && strcmp(name, "unnamed") != 0;
}

int tokenizer_check_data(const struct dataset *train, const struct dataset *valid,
                         struct error *err)
{
    const char *one = tokenizer_check_name(train), *other = tokenizer_check_name(valid);
    if (!is_known(one) || !is_known(other) || !strcmp(one, other))
        return 0;
    return error_set(err,
                     "data.train (%s) was made with tokenizer \"%s\" and data.valid (%s) with "
                     "\"%s\": both need one tokenizer",
                     train->file[0].tokens.path, one, valid->file[0].tokens.path, other);
}

int tokenizer_check_run(const char *made, const struct checkpoint *checkpoint, struct error *err)
{
    const char *trained = run_data_tokenizer(checkpoint->meta);
    if (!is_known(made) || !is_known(trained) || !strcmp(made, trained))
        return 0;
    return error_set(err,
                     "data.train was made with tokenizer \"%s\", and this run was trained with "
                     "\"%s\": the same numbers are other tokens to the model; make the data with "
                     "that one, trireme tokenize --tokenizer, or begin another run, run.dir=NEW, "
                     "from its checkpoint with checkpoint.resume=%s",
                     made, trained, checkpoint->path);
}

/* Read meta.json of a checkpoint, or of the newest one of a run; NULL: path is neither. */
static struct js *read_meta(const char *path)
{
    struct checkpoint_entry *entries;
    struct js *meta = NULL;
    if (disk_has(path, "COMMIT"))
        return checkpoint_read_meta(path, NULL);
    char *folder = array_format("%s/checkpoints", path);
    int count = checkpoint_list(&entries, folder, NULL);
    for (int i = 0; i < count && !meta; i++)
        meta = entries[i].committed ? checkpoint_read_meta(entries[i].path, NULL) : NULL;
    checkpoint_list_free(entries, count > 0 ? count : 0);
    free(folder);
    return meta;
}

/* Does a folder have another tokenizer than `made`?  Its name is put into other. */
static int has_other(const char *folder, const char *made, char *other, size_t bytes)
{
    struct tokenizer *tokenizer = NULL;
    char *file = array_format("%s/tokenizer.json", folder);
    int is_other = 0;
    if (disk_has(folder, "tokenizer.json") && !tokenizer_open(&tokenizer, file, NULL)) {
        snprintf(other, bytes, "%s", tokenizer->name);
        is_other = strcmp(tokenizer->name, made) != 0;
        tokenizer_close(tokenizer);
    }
    free(file);
    return is_other;
}

void tokenizer_check_model(struct log *log, const char *key, const char *made, const char *path)
{
    char folder[CONFIG_TEXT], other[128] = "";
    if (!is_known(made) || !path[0])
        return;
    hub_find(path, folder);
    struct js *meta = read_meta(folder);
    const char *trained = run_data_tokenizer(meta);
    int is_other = meta ? is_known(trained) && strcmp(trained, made) != 0
                        : has_other(folder, made, other, sizeof other);
    if (is_other)
        log_warn(log,
                 "%s was made with tokenizer \"%s\", and the tokenizer of %s is \"%s\": the same "
                 "numbers may be other tokens to the model; trireme tokenize --tokenizer numbers "
                 "them as it does",
                 key, made, path, meta ? trained : other);
    js_free(meta);
}
