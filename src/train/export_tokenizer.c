/* export_tokenizer.c - see export_tokenizer.h.
 *
 * The tokenizer is the one that a user names, else that of the run's data.  Its folder also has the
 * files of generation, and where that is the folder that the model came from, or the model came
 * from one whose ids of special tokens are those of this tokenizer, config.json gets that model's
 * ids; else those that the tokenizer's own files name.  A tokenizer.json alone does not say which
 * of its tokens ends a text, and transformers builds the model_type's own class from it, which may
 * divide texts otherwise; so a tokenizer_config.json is written where there is none.
 */
#include "train/export_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/json.h"
#include "config/saved.h"
#include "io/disk.h"
#include "train/data_tokenizer.h"
#include "train/run_changes.h"

/* Files that go with a model's weights, and do not change when those are trained. */
#define GENERATION "generation_config.json"
#define TOKENIZER  "tokenizer.json"
#define ROLES      "tokenizer_config.json"
static const char *const tokenizer_files[] = {
    TOKENIZER,
    "tokenizer.model",
    ROLES,
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "chat_template.jinja",
};

/* Are two paths of one folder? */
static int is_same(const char *a, const char *b)
{
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Copy a file, if the folder `from` ("": none) has it and is another than `to`. */
static int copy_one(const char *from, const char *name, const char *to, struct error *err)
{
    if (!from[0] || is_same(from, to) || !disk_has(from, name))
        return 0;
    char *source = array_format("%s/%s", from, name);
    char *copy = array_format("%s/%s", to, name);
    int rc = disk_copy(source, copy, err);
    free(source);
    free(copy);
    return rc;
}

static void add_id(struct js *ids, const char *name, int64_t id)
{
    if (id >= 0)
        js_add_int(ids, name, id);
    else
        js_add_null(ids, name);
}

/* Add the tokens at which generation stops: the one that ends an answer, and the one that ends a
 * document, which may be another. */
static void add_ends(struct js *ids, int64_t answer, int64_t document)
{
    if (answer < 0 || document < 0 || answer == document) {
        add_id(ids, "eos_token_id", answer >= 0 ? answer : document);
        return;
    }
    struct js *list = js_array();
    js_add_int(list, NULL, answer);
    js_add_int(list, NULL, document);
    js_add(ids, "eos_token_id", list);
}

/* The ids of a tokenizer's special tokens, null for one that it does not have; NULL: no tokenizer.
 */
static struct js *ids_of(const struct tokenizer *tokenizer)
{
    struct js *ids = js_object();
    add_id(ids, "bos_token_id", tokenizer ? tokenizer->role[TOKENIZER_BOS] : -1);
    add_ends(ids, tokenizer ? tokenizer->role[TOKENIZER_EOS] : -1,
             tokenizer ? tokenizer->end_of_text : -1);
    add_id(ids, "pad_token_id", tokenizer ? tokenizer->role[TOKENIZER_PAD] : -1);
    return ids;
}

/* Open the tokenizer that a user names; it has to be that of the run's data, `name`, where these
 * name one. */
static int open_asked(struct tokenizer **tokenizer, const char *asked, const char *name,
                      struct error *err)
{
    if (data_tokenizer_open_named(tokenizer, asked, err))
        return error_prefix(err, "--tokenizer");
    if (!(*tokenizer)->path)
        return error_set(err, "--tokenizer %s has no files that could go with the model", asked);
    if (name && strcmp(name, (*tokenizer)->name))
        return error_set(err, "the run's data was made with \"%s\", and --tokenizer %s is \"%s\"",
                         name, asked, (*tokenizer)->name);
    return 0;
}

/* The files of this tokenizer go with the model: those of its folder, or, where it has another name
 * than there, the file alone. */
static void take_tokenizer(struct export_tokenizer *found, const struct tokenizer *tokenizer)
{
    const char *slash = strrchr(tokenizer->path, '/');
    const char *file = slash ? slash + 1 : tokenizer->path;
    if (strcmp(file, "tokenizer.json") != 0) {
        found->file = array_text(tokenizer->path);
        found->has_tokenizer = 0;
        return;
    }
    snprintf(found->folder, sizeof found->folder, "%.*s",
             slash ? (int)(slash - tokenizer->path) : 1, slash ? tokenizer->path : ".");
    found->has_tokenizer = 1;
}

/* Does every id of a model's config.json stand for a token of the tokenizer? */
static int has_ids(const struct tokenizer *tokenizer, const struct js *config)
{
    static const char *const names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    int has = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct js *value = js_get(config, names[i]);
        int64_t id = js_int(value, -1);
        has &= id < 0 || tokenizer_text(tokenizer, id) != NULL;
        for (int k = 0; k < js_length(value); k++)
            has &= tokenizer_text(tokenizer, js_at_int(value, k, -1)) != NULL;
    }
    return has;
}

/* Is a tokenizer that lies elsewhere the one of the model in the folder `source`?  That folder has
 * the same one, or none, and its ids are those of tokens. */
static int is_tokenizer_of(const struct tokenizer *tokenizer, const char *source,
                           const struct js *config)
{
    struct tokenizer *own = NULL;
    int is = !disk_has(source, TOKENIZER) ||
             (!tokenizer_open(&own, source, NULL) && !strcmp(own->name, tokenizer->name));
    tokenizer_close(own);
    return is && has_ids(tokenizer, config);
}

/* Take the ids of special tokens, and the file of generation, from the model's source where the
 * tokenizer is that model's. */
static int take_ids(struct export_tokenizer *found, const char *source,
                    const struct tokenizer *tokenizer, struct error *err)
{
    char *path = array_format("%s/config.json", source);
    struct js *config = source[0] ? js_read(path, err) : NULL;
    int is_own =
        config && ((!found->file && is_same(source, found->folder)) ||
                   (tokenizer && tokenizer->path && is_tokenizer_of(tokenizer, source, config)));
    int rc = source[0] && !config ? -1 : 0;
    if (!rc)
        found->ids = is_own ? config : ids_of(tokenizer);
    if (!is_own)
        js_free(config);
    const char *from = is_own && !disk_has(found->folder, GENERATION) ? source : found->folder;
    snprintf(found->generation, sizeof found->generation, "%s", from);
    free(path);
    return rc;
}

/* The tokenizer in the folder that the model came from is taken for that of data without a name of
 * one ("unnamed") alone. */
int export_tokenizer_find(struct export_tokenizer *found, const char *asked,
                          const struct checkpoint *checkpoint, const struct config *config,
                          struct error *err)
{
    const char *name = run_data_tokenizer(checkpoint->meta);
    int is_unnamed = !name || !strcmp(name, "unnamed"), rc = 0;
    struct tokenizer *tokenizer = NULL;
    char source[CONFIG_TEXT];
    *found = (struct export_tokenizer){.has_tokenizer = is_unnamed};
    saved_source(config->model_path, source);
    snprintf(found->folder, sizeof found->folder, "%s", source);
    if (asked)
        rc = open_asked(&tokenizer, asked, is_unnamed ? NULL : name, err);
    else if (name)
        data_tokenizer_open(&tokenizer, name, config, NULL);
    if (!rc && tokenizer && tokenizer->path)
        take_tokenizer(found, tokenizer);
    rc = rc || take_ids(found, source, tokenizer, err) ? -1 : 0;
    tokenizer_close(tokenizer);
    return rc;
}

int export_tokenizer_check(const struct export_tokenizer *found, const char *to, struct error *err)
{
    char *there = array_format("%s/tokenizer.json", to);
    struct tokenizer *new = NULL, *old = NULL;
    const char *from = found->file ? found->file : found->folder;
    int is_copied = found->file || (found->has_tokenizer && from[0]);
    int rc = 0;
    if (is_copied && disk_has(to, "tokenizer.json") && !is_same(from, to) &&
        !tokenizer_open(&new, from, NULL) &&
        (tokenizer_open(&old, there, NULL) || strcmp(old->name, new->name) != 0))
        rc = error_set(err,
                       "%s is there, and is not the tokenizer of the model, %s; remove it, or name "
                       "another folder",
                       there, new->name);
    tokenizer_close(old);
    tokenizer_close(new);
    free(there);
    return rc;
}

/* Where a folder has a tokenizer.json and no tokenizer_config.json, write one: the class that takes
 * the file as it is, and the tokens of each role. */
static int write_roles(const char *folder, struct error *err)
{
    static const char *const names[TOKENIZER_ROLES] = {[TOKENIZER_BOS] = "bos_token",
                                                       [TOKENIZER_EOS] = "eos_token",
                                                       [TOKENIZER_PAD] = "pad_token",
                                                       [TOKENIZER_UNK] = "unk_token"};
    struct tokenizer *tokenizer = NULL;
    if (!disk_has(folder, TOKENIZER) || disk_has(folder, ROLES) ||
        tokenizer_open(&tokenizer, folder, NULL))
        return 0;
    struct js *json = js_object();
    js_add_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    js_add_bool(json, "clean_up_tokenization_spaces", 0);
    for (int i = 0; i < TOKENIZER_ROLES; i++) {
        int64_t id = tokenizer->role[i];
        if (id < 0 && i == TOKENIZER_EOS)
            id = tokenizer->end_of_text;
        if (id >= 0)
            js_add_string(json, names[i], tokenizer_text(tokenizer, id));
    }
    char *path = array_format("%s/" ROLES, folder);
    int rc = js_write(json, JS_INDENTED, WHOLE_FILE_DURABLE, path, err);
    js_free(json);
    free(path);
    tokenizer_close(tokenizer);
    return rc;
}

int export_tokenizer_copy(const struct export_tokenizer *found, const char *to, struct error *err)
{
    size_t count = found->has_tokenizer ? sizeof tokenizer_files / sizeof tokenizer_files[0] : 0;
    int rc = copy_one(found->generation, GENERATION, to, err);
    for (size_t i = 0; !rc && i < count; i++)
        rc = copy_one(found->folder, tokenizer_files[i], to, err);
    if (!rc && found->file) {
        char *copy = array_format("%s/" TOKENIZER, to);
        rc = disk_copy(found->file, copy, err);
        free(copy);
    }
    return rc || write_roles(to, err) ? -1 : 0;
}

void export_tokenizer_free(struct export_tokenizer *found)
{
    js_free(found->ids);
    free(found->file);
}
