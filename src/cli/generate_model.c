/* generate_model.c - the model that generates, and its tokenizer; see generate.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/round.h"
#include "cli/arguments.h"
#include "cli/generate.h"
#include "comm/gpu/gpu.h"
#include "config/hf.h"
#include "config/hub.h"
#include "io/chat_encode.h"
#include "io/disk.h"
#include "train/data_tokenizer.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

enum { CONTEXT = 4096 }; /* tokens of a conversation with a model of a folder, at most */

/* ---- which model ---- */

/* Is it neither a run nor a checkpoint, but a folder with a config.json, or a model of the hub? */
static int is_folder(const char *from)
{
    char folder[CONFIG_TEXT];
    if (disk_has(from, "run.json") || disk_has(from, "checkpoints") || disk_has(from, "COMMIT"))
        return 0;
    return hf_has_config(from) || (access(from, F_OK) && hub_find(from, folder));
}

static int has_setting(const struct generate_options *options, const char *key)
{
    size_t length = strlen(key);
    for (int i = 0; i < options->setting_count; i++)
        if (!strncmp(options->settings[i], key, length) && options->settings[i][length] == '=')
            return 1;
    return 0;
}

/* Choose the precision of a model of a folder: bf16 on a GPU where the files have 16 bits, else
 * fp32. */
static enum config_precision precision_of(const struct config *config, struct world *world)
{
    char folder[CONFIG_TEXT];
    hub_find(config->model_path, folder);
    char *path = array_format("%s/config.json", folder);
    struct js *json = js_read(path, NULL);
    const char *dtype = js_get_string(json, "dtype", js_get_string(json, "torch_dtype", "float32"));
    int is_narrow = !strcmp(dtype, "bfloat16") || !strcmp(dtype, "float16");
    int is_gpu = config->device == CONFIG_DEVICE_CUDA ||
                 (config->device == CONFIG_DEVICE_AUTO && gpu_everywhere(world));
    js_free(json);
    free(path);
    return is_narrow && is_gpu ? PRECISION_BF16 : PRECISION_FP32;
}

/* Append the settings of options, and those of a configuration that trains nothing. */
static int add_settings(const char **list, int count, const struct generate_options *options)
{
    for (int i = 0; i < options->setting_count; i++)
        list[count++] = options->settings[i];
    return arguments_add_untrained(list, count);
}

static int read_folder(struct generate_model *model, struct world *world,
                       const struct generate_options *options, struct error *err)
{
    const char **list =
        array_make((size_t)(2 + options->setting_count + ARGUMENTS_UNTRAINED), sizeof *list);
    char *path = array_format("model.path=%s", options->from);
    int count = 0;
    list[count++] = path;
    list[count++] = "data.seq_len=1"; /* choose_context() sets it when prompts are known */
    count = add_settings(list, count, options);
    int rc = world_agree(world, config_load(&model->config, NULL, list, count, err), err);
    free(path);
    free(list);
    if (rc)
        return -1;
    if (!has_setting(options, "precision"))
        model->config.precision = precision_of(&model->config, world);
    model->has_length = has_setting(options, "data.seq_len");
    return 0;
}

/* Open a checkpoint and read its configuration.  Device, threads, transfers between GPUs and
 * offload.params are not those of training but this machine's, unless settings name them. */
static int read_checkpoint(struct generate_model *model, struct app *app, const char *from,
                           const struct generate_options *options, struct error *err)
{
    struct config *config = &model->config;
    int is_missing = world_rank(app->world) == 0 && access(from, F_OK) && hub_is_name(from);
    if (world_agree(app->world,
                    is_missing ? hub_error_missing(from, "no run, checkpoint or folder", err) : 0,
                    err))
        return -1;
    if (run_checkpoint_open(&model->checkpoint, app->world, from, &app->log, err))
        return -1;
    const char **list = array_make(
        (size_t)(ARGUMENTS_HERE + options->setting_count + ARGUMENTS_UNTRAINED), sizeof *list);
    int count = add_settings(list, arguments_add_here(list, 0), options);
    int rc = run_checkpoint_config(model->checkpoint, config, list, count, err);
    free(list);
    if (!rc && has_setting(options, "model.path") && !config->lora.r)
        rc = error_set(err,
                       "model.path=%.400s has no effect here: the weights are those of %.400s; "
                       "leave out one or the other",
                       config->model_path, model->checkpoint->path);
    if (world_agree(app->world, rc, err))
        return -1;
    if (!has_setting(options, "offload.params"))
        config->offload.params = OFFLOAD_NONE;
    model->has_length = 1;
    return 0;
}

/* ---- its tokenizer ---- */

/* Open the tokenizer that made the run's data; name: as the data names it. */
static int find_trained(struct generate_model *model, const char *name, struct error *err)
{
    struct config config;
    struct error why = {0};
    if (!run_checkpoint_config(model->checkpoint, &config, NULL, 0, &why) &&
        !data_tokenizer_open(&model->tokenizer, name, &config, &why))
        return 0;
    if (!data_tokenizer_open(&model->tokenizer, name, &model->config, NULL)) /* as keys say now */
        return 0;
    return error_set(err,
                     "%s was trained on tokens of \"%.100s\": %.900s; give its tokenizer.json: "
                     "--tokenizer FILE (--tokenizer bytes takes each token below 256 for a byte)",
                     model->checkpoint->path, name, why.text);
}

/* Open the tokenizer of --tokenizer, else that of the model's folder, or of the data that the
 * checkpoint was trained on. */
static int open_tokenizer(struct generate_model *model, struct log *log, const char *asked,
                          struct error *err)
{
    char folder[CONFIG_TEXT];
    const char *trained = model->checkpoint ? run_data_tokenizer(model->checkpoint->meta) : NULL;
    if (!asked && trained)
        return find_trained(model, trained, err);
    hub_find(model->config.model_path, folder);
    if (!asked && !model->checkpoint)
        asked = folder;
    if (data_tokenizer_open_named(&model->tokenizer, asked ? asked : "bytes", err)) {
        struct error why = *err;
        if (asked != folder || disk_has(folder, "tokenizer.json"))
            return -1;
        return error_set(err,
                         "%.700s; name the model's tokenizer: --tokenizer FILE (--tokenizer bytes "
                         "takes each token below 256 for a byte)",
                         why.text);
    }
    if (trained && strcmp(model->tokenizer->name, trained))
        log_warn(log, "%s was trained on tokens of \"%s\", and --tokenizer is \"%s\"",
                 model->checkpoint->path, trained, model->tokenizer->name);
    return 0;
}

/* Find the chat template of this name, of --chat-template; NULL: the one by which the conversations
 * of the run's data are written, else that of the tokenizer's folder. */
static int find_template(struct generate_model *model, struct log *log, const char *name,
                         struct error *err)
{
    char names[256];
    const char *trained = model->checkpoint ? run_data_chat(model->checkpoint->meta) : NULL;
    const struct chat_template *known = trained ? chat_find(trained) : NULL;
    model->chat = name ? chat_find(name) : known;
    if (name && !model->chat)
        return error_set(err, "--chat-template %s: there are %s", name,
                         chat_names(names, sizeof names));
    if (name && trained && strcmp(name, trained) != 0)
        log_warn(log,
                 "%s was trained on conversations by chat template %s, and --chat-template is %s",
                 model->checkpoint->path, trained, name);
    if (!name && trained && !known)
        log_warn(log,
                 "%s was trained on conversations by chat template %s, which this version does not "
                 "know",
                 model->checkpoint->path, trained);
    if (!model->chat && !model->tokenizer->path)
        return error_set(err, "tokenizer %s has no chat template; name one: --chat-template NAME",
                         model->tokenizer->name);
    if (!model->chat && chat_of_tokenizer(&model->chat, model->tokenizer->path, err))
        return -1;
    model->chat_from = name    ? NULL
                       : known ? "the run's data has it"
                               : "the tokenizer's folder has it";
    return chat_encode_check(model->chat, model->tokenizer, err);
}

static int open_texts(struct generate_model *model, struct log *log,
                      const struct generate_options *options, struct error *err)
{
    if (open_tokenizer(model, log, options->tokenizer, err))
        return -1;
    if (model->tokenizer->vocab > model->config.model.vocab)
        return error_set(err, "tokenizer %s has %lld tokens, the model knows %lld",
                         model->tokenizer->name, (long long)model->tokenizer->vocab,
                         (long long)model->config.model.vocab);
    if (model->tokenizer->unknown_id[TOKENIZER_EOS] >= 0)
        log_warn(log,
                 "generation_config.json beside %s has %lld as eos_token_id, which is the id of no "
                 "token: texts do not end at it",
                 model->tokenizer->path, (long long)model->tokenizer->unknown_id[TOKENIZER_EOS]);
    return options->is_chat ? find_template(model, log, options->template, err) : 0;
}

int generate_model_open(struct generate_model *model, struct app *app,
                        const struct generate_options *options, struct error *err)
{
    int rank = world_rank(app->world), folder = rank == 0 && is_folder(options->from);
    world_broadcast(app->world, &folder, sizeof folder, 0);
    if (folder ? read_folder(model, app->world, options, err)
               : read_checkpoint(model, app, options->from, options, err))
        return -1;
    return world_agree(app->world, rank ? 0 : open_texts(model, &app->log, options, err), err);
}

void generate_model_close(struct generate_model *model)
{
    checkpoint_close(model->checkpoint);
    tokenizer_close(model->tokenizer);
}

/* ---- its weights ---- */

/* Set the keys of layout and offload for generating: all ranks divide each layer (parallel.tensor).
 * With offload.params to disk, the files lie in the working directory unless a folder is named: the
 * run's own directory may be another user's. */
static int lay_out(struct config *config, int ranks, struct error *err)
{
    enum config_offload_to params = config->offload.params;
    if (config->model.heads < ranks)
        return error_set(err,
                         "generate divides layers among its %d ranks, and model.heads is %lld; "
                         "start it on %lld at most",
                         ranks, (long long)config->model.heads, (long long)config->model.heads);
    if (config->precision == PRECISION_FP8) /* fp8 does not pay for the few rows of a text */
        config->precision = PRECISION_BF16;
    config->parallel = (struct config_parallel){
        .strategy = params == OFFLOAD_NONE ? STRATEGY_NO_SHARD : STRATEGY_FULL_SHARD,
        .shard = 1,
        .replicate = 1,
        .context = 1,
        .tensor = ranks,
        .pipeline = 1,
        .schedule = "naive",
        .prefetch_units = config->parallel.prefetch_units};
    struct config_offload offload = {.params = params};
    memcpy(offload.path, config->offload.path, sizeof offload.path);
    if (params == OFFLOAD_DISK && !offload.path[0])
        snprintf(offload.path, sizeof offload.path, ".");
    config->offload = offload;
    config->train.global_batch = config->train.micro_batch = 1;
    config->train.global_batch_tokens = 0;
    config->train.eval_micro_batch = 0;
    return 0;
}

/* Set the context: `tokens`, or for a conversation (0) CONTEXT, at most the positions that the
 * model knows. */
static void choose_context(struct config *config, int64_t tokens)
{
    int64_t most = config->model.max_seq_len > 0 ? config->model.max_seq_len : CONTEXT;
    config->data.seq_len = min_i64(most, max_i64(tokens ? tokens : CONTEXT, 2));
}

static int load(struct generate_model *model, struct session *s, struct error *err)
{
    if (model->checkpoint)
        return weights_load(s, model->checkpoint, NULL, err);
    if (world_agree(s->world, world_rank(s->world) ? 0 : weights_import_check(s, err), err))
        return -1;
    return weights_import(s, err);
}

int generate_model_load(struct generate_model *model, struct app *app, int64_t tokens,
                        struct session **session, struct error *err)
{
    struct config *config = &model->config;
    if (lay_out(config, world_size(app->world), err))
        return -1;
    if (!model->has_length)
        choose_context(config, tokens);
    if (session_open(session, app->world, &app->log, &app->mem, config, SESSION_GENERATE, NULL,
                     err))
        return -1;
    if (world_agree(app->world, load(model, *session, err), err))
        return -1;
    log_info(&app->log, "generating with %s",
             model->checkpoint ? model->checkpoint->path : config->model_path);
    if (model->chat && model->chat_from)
        log_info(&app->log, "conversations by chat template %s, as %s", chat_name(model->chat),
                 model->chat_from);
    return 0;
}
