/* export_folder.c - see export_folder.h.
 *
 * A folder is refused if a model is in it.  weights_export() writes config.json and the weights;
 * what goes with a model beside these, the files of its tokenizer and of generation, is copied from
 * one folder (find_texts()), which also decides where the ids of special tokens in config.json come
 * from.  A user may name the tokenizer, which may be a file of any name.
 *
 * For a run, rank 0 exports to hf.partial, renames what is at hf (to hf.old if the run wrote it,
 * else to a name that is free), renames hf.partial to hf, and removes hf.old.
 */
#include "train/export_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "config/hf.h"
#include "config/saved.h"
#include "io/disk.h"
#include "model/modules.h"
#include "train/data_chat.h"
#include "train/data_tokenizer.h"
#include "train/run_changes.h"

/* Files that go with a model's weights, and do not change when those are trained: how it generates,
 * and, from the second on, its tokenizer. */
static const char *const beside[] = {
    "generation_config.json",  "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "vocab.json",     "merges.txt",      "added_tokens.json",
    "chat_template.jinja",
};
enum { OF_GENERATION = 1, BESIDE = sizeof beside / sizeof beside[0] };

enum dtype export_folder_dtype(const struct config *config, enum weights_what what)
{
    if (what == EXPORT_ADAPTER || config->precision == PRECISION_FP32) /* adapters are trained so */
        return DTYPE_F32;
    return config->precision == PRECISION_FP16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Are two paths of one folder? */
static int is_same(const char *a, const char *b)
{
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Copy the first `count` files of `beside`, as far as a folder ("": none) has them, to another.
 * Returns 0, or -1 with err set and the files before it copied. */
static int copy_beside(const char *from, const char *to, int count, struct error *err)
{
    int rc = 0, is_elsewhere = from[0] && !is_same(from, to);
    for (int i = 0; !rc && is_elsewhere && i < count; i++) {
        if (!disk_has(from, beside[i]))
            continue;
        char *source = array_format("%s/%s", from, beside[i]);
        char *copy = array_format("%s/%s", to, beside[i]);
        rc = disk_copy(source, copy, err);
        free(source);
        free(copy);
    }
    return rc;
}

/* The first file of a model or an adapter that a folder has; NULL: none. */
static const char *model_file(const char *folder)
{
    static const char *const names[] = {
        "config.json",         "model.safetensors",         "model.safetensors.index.json",
        "adapter_config.json", "adapter_model.safetensors", "pytorch_model.bin",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (disk_has(folder, names[i]))
            return names[i];
    return NULL;
}

/* What an exported model gets of its tokenizer. */
struct texts {
    char folder[CONFIG_TEXT]; /* whose files are copied; "": none are */
    int has_tokenizer;        /* 1: the tokenizer there is that of the run's data */
    char *file;               /* a tokenizer that is copied by itself; NULL: none */
    struct js *ids;           /* ids of special tokens, for config.json */
};

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
static void take_tokenizer(struct texts *texts, const struct tokenizer *tokenizer)
{
    const char *slash = strrchr(tokenizer->path, '/');
    const char *file = slash ? slash + 1 : tokenizer->path;
    if (strcmp(file, "tokenizer.json") != 0) {
        texts->file = array_text(tokenizer->path);
        texts->has_tokenizer = 0;
        return;
    }
    snprintf(texts->folder, sizeof texts->folder, "%.*s",
             slash ? (int)(slash - tokenizer->path) : 1, slash ? tokenizer->path : ".");
    texts->has_tokenizer = 1;
}

/* Find the folder whose files go with the model, and the ids that config.json says of it.  The
 * folder is that of the tokenizer asked for, or of the tokenizer of the data, where it is found and
 * has a file, else that which the model came from; the tokenizer there is taken for that of data
 * without a name of one
 * ("unnamed") alone.  The ids are those in the source model's config.json where the folder is the
 * same one, else those of the tokenizer. */
static int find_texts(struct texts *texts, const char *asked, const struct checkpoint *checkpoint,
                      const struct config *config, struct error *err)
{
    const char *name = run_data_tokenizer(checkpoint->meta);
    int is_unnamed = !name || !strcmp(name, "unnamed");
    struct tokenizer *tokenizer = NULL;
    char source[CONFIG_TEXT];
    int has_source = saved_source(config->model_path, source);
    snprintf(texts->folder, sizeof texts->folder, "%s", source);
    texts->has_tokenizer = is_unnamed;
    if (asked && open_asked(&tokenizer, asked, is_unnamed ? NULL : name, err)) {
        tokenizer_close(tokenizer);
        return -1;
    }
    if (!asked && name)
        data_tokenizer_open(&tokenizer, name, config, NULL);
    if (tokenizer && tokenizer->path)
        take_tokenizer(texts, tokenizer);
    if (has_source && !texts->file && is_same(source, texts->folder)) {
        char *path = array_format("%s/config.json", source);
        texts->ids = js_read(path, err);
        free(path);
    } else {
        texts->ids = ids_of(tokenizer);
    }
    tokenizer_close(tokenizer);
    return texts->ids ? 0 : -1;
}

/* Refuse a folder that holds another tokenizer than the one that is copied to it: other files of
 * its tokenizer, which may lie there, would be taken for the new model's. */
static int check_tokenizer(const struct texts *texts, const char *to, struct error *err)
{
    char *there = array_format("%s/tokenizer.json", to);
    struct tokenizer *new = NULL, *old = NULL;
    const char *from = texts->file ? texts->file : texts->folder;
    int is_copied = texts->file || (texts->has_tokenizer && from[0]);
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

static int copy_texts(const struct texts *texts, const char *to, struct error *err)
{
    int count = texts->has_tokenizer ? BESIDE : OF_GENERATION;
    char *copy = array_format("%s/tokenizer.json", to);
    int rc = copy_beside(texts->folder, to, count, err);
    if (!rc && texts->file)
        rc = disk_copy(texts->file, copy, err);
    free(copy);
    return rc;
}

static int export_model(struct weights_export *how, const char *tokenizer,
                        struct checkpoint *checkpoint, const struct config *config,
                        struct error *err)
{
    struct texts texts = {.file = NULL};
    int rc = find_texts(&texts, tokenizer, checkpoint, config, err);
    how->ids = texts.ids;
    if (!rc)
        rc = check_tokenizer(&texts, how->folder, err) || disk_make_folders(how->folder, err) ||
             weights_export(how, checkpoint, config, err) || copy_texts(&texts, how->folder, err);
    how->ids = NULL;
    js_free(texts.ids);
    free(texts.file);
    return rc ? -1 : 0;
}

int export_folder(struct weights_export *how, const char *tokenizer, struct checkpoint *checkpoint,
                  const struct config *config, struct error *err)
{
    const char *found = model_file(how->folder);
    if (found)
        return error_set(err, "%s holds a model already, %s; name another folder", how->folder,
                         found);
    if (how->what == EXPORT_ADAPTER && hf_is_stacked(config->model_path))
        return error_set(err,
                         "%s is a phi3, in which query, key and value are one matrix, and gate and "
                         "up another: peft would not find the modules of these adapters there; "
                         "--merge writes the whole model",
                         config->model_path);
    if (how->what == EXPORT_MODEL)
        return export_model(how, tokenizer, checkpoint, config, err);
    return disk_make_folders(how->folder, err) || weights_export(how, checkpoint, config, err) ? -1
                                                                                               : 0;
}

/* Warn where the data's tokenizer was not found. */
static void report_tokenizer(struct log *log, const char *folder,
                             const struct checkpoint *checkpoint)
{
    const char *name = run_data_tokenizer(checkpoint->meta);
    int has_files = name && strcmp(name, "bytes") != 0 && strcmp(name, "unnamed") != 0;
    if (has_files && !disk_has(folder, "tokenizer.json"))
        log_warn(log,
                 "%s has no tokenizer: the run's data was made with \"%s\", whose files lie "
                 "neither in model.path nor beside data.train; copy its tokenizer.json there, or "
                 "name it: trireme convert ... --tokenizer FILE",
                 folder, name);
}

/* Warn of ids in the folder's generation_config.json that no token of its tokenizer has: generation
 * by others' programs would begin with one, pad with it, or not stop. */
static void report_ids(struct log *log, const char *folder)
{
    static const struct {
        const char *key;
        enum tokenizer_role role;
    } ids[] = {{.key = "bos_token_id", .role = TOKENIZER_BOS},
               {.key = "eos_token_id", .role = TOKENIZER_EOS},
               {.key = "pad_token_id", .role = TOKENIZER_PAD}};
    struct tokenizer *tokenizer = NULL;
    if (disk_has(folder, "tokenizer.json") && disk_has(folder, "generation_config.json") &&
        !tokenizer_open(&tokenizer, folder, NULL))
        for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
            if (tokenizer->unknown_id[ids[i].role] >= 0)
                log_warn(log,
                         "%s/generation_config.json has %lld as %s, which is the id of no token of "
                         "tokenizer.json; mend it where the tokenizer is from, and here",
                         folder, (long long)tokenizer->unknown_id[ids[i].role], ids[i].key);
    tokenizer_close(tokenizer);
}

/* Warn where an adapter's model has fewer tokens than the run: it has to be resized before peft
 * adds the adapter, and rows of the embedding and the head that the adapter does not have are then
 * others than the run's. */
static void report_vocab(struct log *log, const char *folder, const struct config *config)
{
    const char *saved = config->lora.modules_to_save;
    int64_t vocab = config->model.vocab, base = hf_vocab(config->model_path);
    int has_rows =
        modules_is_listed(saved, "lm_head") && (modules_is_listed(saved, "model.embed_tokens") ||
                                                modules_is_listed(saved, "transformer.wte"));
    if (base && base < vocab)
        log_warn(log,
                 "%s: model.vocab is %lld, and that of %s %lld: the adapter fits it after "
                 "model.resize_token_embeddings(%lld)%s; --merge writes the whole model",
                 folder, (long long)vocab, config->model_path, (long long)base, (long long)vocab,
                 has_rows ? "" : ", whose new rows are others than those of this run");
}

/* Warn where an adapter's model is none that Hugging Face's programs read. */
static void report_base(struct log *log, const char *folder, const struct config *config)
{
    const char *path = config->model_path;
    if (!path[0])
        log_warn(log,
                 "%s: the adapter's model began with random weights, and nobody else has it: write "
                 "the whole model (--merge)",
                 folder);
    else if (!hf_has_config(path))
        log_warn(
            log,
            "%s: the adapter's model, %s, is no folder that Hugging Face's programs read; if "
            "it is a run: trireme convert %s FOLDER, and name FOLDER in adapter_config.json, or "
            "write the whole model (--merge)",
            folder, path, path);
    else
        report_vocab(log, folder, config);
}

void export_folder_report(struct log *log, const char *folder, enum weights_what what,
                          const struct checkpoint *checkpoint, const struct config *config)
{
    char source[CONFIG_TEXT];
    if (what == EXPORT_MODEL) {
        report_tokenizer(log, folder, checkpoint);
        report_ids(log, folder);
    } else {
        report_base(log, folder, config);
    }
    int has_source = what != EXPORT_MODEL && saved_source(config->model_path, source);
    data_chat_report_folder(log, run_data_chat(checkpoint->meta), has_source ? source : folder,
                            folder);
}

/* The name to which an existing folder is moved, for free(): FOLDER.old, emptied first, for the
 * run's own earlier export; a name that nothing has for anything else. */
static char *aside_of(const char *folder, int is_own)
{
    char *old = array_format("%s.old", folder);
    if (is_own && !disk_remove(old, NULL))
        return old;
    free(old);
    return disk_free_name(folder);
}

/* After the new folder has its name: remove what had this name before, or warn of its new name
 * where the run did not write it. */
static void remove_or_report_aside(const char *aside, const char *folder, int is_own,
                                   struct log *log)
{
    struct error why = {0};
    if (!is_own)
        log_warn(log, "%s was there before, and this run does not know it as its own: it is %s now",
                 folder, aside);
    else if (disk_remove(aside, &why))
        log_warn(log, "the export before, %s, could not be removed: %s", aside, why.text);
}

/* Give the folder that was made its final name, and move aside or remove what has that name.
 * Returns 0, or -1 with err set: what had the name has it again, or err says what it is now. */
static int replace(const char *made, const char *folder, int is_own, struct log *log,
                   struct error *err)
{
    char *aside = aside_of(folder, is_own);
    int rc = 0, is_aside = !rename(folder, aside);
    if (!is_aside && errno != ENOENT)
        rc = error_errno(err, "cannot rename %s", folder);
    if (!rc && rename(made, folder)) {
        rc = error_errno(err, "cannot rename %s", made);
        if (is_aside && rename(aside, folder))
            error_prefix(err, "%s is now %s", folder, aside);
        is_aside = 0;
    }
    rc = rc || disk_sync_parent(folder, err) ? -1 : 0;
    if (!rc && is_aside)
        remove_or_report_aside(aside, folder, is_own, log);
    free(aside);
    return rc;
}

/* Export the checkpoint at a path to the run's hf.  Returns 0, or -1 with err set and hf.partial
 * removed. */
static int write_run(const char *path, const struct config *config, int is_own, struct log *log,
                     struct error *err)
{
    struct checkpoint *checkpoint;
    char *folder = array_format("%s/hf", config->run.dir);
    char *made = array_format("%s/hf.partial", config->run.dir);
    struct weights_export how = {.what = config->lora.r ? EXPORT_ADAPTER : EXPORT_MODEL,
                                 .folder = made,
                                 .file_bytes = EXPORT_FILE_GB * INT64_C(1000000000)};
    how.dtype = export_folder_dtype(config, how.what);
    int rc = disk_remove(made, err) || checkpoint_open(&checkpoint, path, err);
    if (!rc) {
        rc = export_folder(&how, NULL, checkpoint, config, err) ||
             replace(made, folder, is_own, log, err);
        if (!rc)
            export_folder_report(log, folder, how.what, checkpoint, config);
        checkpoint_close(checkpoint);
    }
    if (rc)
        disk_remove(made, NULL);
    free(made);
    free(folder);
    return rc ? -1 : 0;
}

int export_folder_of_run(struct world *world, struct log *log, const char *checkpoint,
                         const struct config *config, int is_own, struct error *err)
{
    int rc = world_rank(world) ? 0 : write_run(checkpoint, config, is_own, log, err);
    return world_agree(world, rc ? error_prefix(err, "checkpoint.export_hf") : 0, err);
}
