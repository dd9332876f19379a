/* export_folder.c - see export_folder.h.
 *
 * A folder is refused if a model is in it.  weights_export() writes config.json and the weights;
 * what goes with a model beside these, the files of its tokenizer and of generation, is found and
 * copied by export_tokenizer.c.
 *
 * For a run, rank 0 exports to hf.partial, renames what is at hf (to hf.old if the run wrote it,
 * else to a name that is free), renames hf.partial to hf, and removes hf.old.
 */
#include "train/export_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "config/hf.h"
#include "config/saved.h"
#include "io/disk.h"
#include "io/tokenizer.h"
#include "model/modules.h"
#include "train/data_chat.h"
#include "train/data_tokenizer.h"
#include "train/export_tokenizer.h"
#include "train/run_changes.h"

enum dtype export_folder_dtype(const struct config *config, enum weights_what what)
{
    if (what == EXPORT_ADAPTER || config->precision == PRECISION_FP32) /* adapters are trained so */
        return DTYPE_F32;
    return config->precision == PRECISION_FP16 ? DTYPE_F16 : DTYPE_BF16;
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

static int export_model(struct weights_export *how, const char *tokenizer,
                        struct checkpoint *checkpoint, const struct config *config,
                        struct error *err)
{
    struct export_tokenizer found;
    int rc = export_tokenizer_find(&found, tokenizer, checkpoint, config, err);
    how->ids = found.ids;
    if (!rc)
        rc = export_tokenizer_check(&found, how->folder, err) ||
             disk_make_folders(how->folder, err) || weights_export(how, checkpoint, config, err) ||
             export_tokenizer_copy(&found, how->folder, err);
    how->ids = NULL;
    export_tokenizer_free(&found);
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
    if (data_tokenizer_has_files(name) && !disk_has(folder, "tokenizer.json"))
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
