/* run_changes.c - compare the settings saved in a checkpoint with those of the start that resumes
 * it.  Every key is compared but those of without_effect[], which change no number of a run by
 * design; the data is compared by its contents (a hash, or a sample of it), so that a file that was
 * moved is no change and other data under the same name is one.  Another model is an error. */
#include "train/run_changes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/round.h"
#include "base/text.h"
#include "train/data_chat.h"
#include "train/lr_schedule.h"
#include "train/run_checkpoint.h"
#include "train/run_length.h"

/* Keys that say which tensors a model has, and their sizes.  The last counts for learned positions
 * alone. */
static const char *const of_tensors[] = {
    "model.family",         "model.layers",   "model.hidden",        "model.heads",
    "model.kv_heads",       "model.head_dim", "model.ffn",           "model.vocab",
    "model.tie_embeddings", "lora.r",         "lora.target_modules", "lora.modules_to_save",
    "lora.use_dora",        "model.qkv_bias", "model.qk_norm",       "model.experts",
    "model.max_seq_len"};
enum { OF_TENSORS = sizeof of_tensors / sizeof of_tensors[0], LEARNED_POSITIONS = OF_TENSORS - 1 };

/* Keys, and beginnings of keys that end in '.' or '_', which change no number of a run by design,
 * or which are compared elsewhere. */
static const char *const without_effect[] = {
    "device",          "recompute",          "parallel.",
    "offload.",        "checkpoint.",        "run.",
    "comm.inter_node", "comm.share_gpu",     "comm.shared_memory",
    "comm.min_ctas",   "comm.max_ctas",      "comm.spare_sms",
    "comm.nvls",       "comm.copy_engines",  "data.train",
    "data.valid",      "model.preset",       "model.path",
    "train.eval_",     "train.micro_batch",  "train.overlap_update",
    "model.init",      "model.loading",      "model.sync_module_states",
    "lora.path",       "model.init_std",     "train.global_batch_tokens",
    "train.early_",    "train.global_batch", "train.split_batches",
    "generate.",       "recompute_every",    "train.attention_bytes",
    "train.optimizer",
};
enum { WITHOUT_EFFECT = sizeof without_effect / sizeof without_effect[0] };

/* Where the weights of a run that begins come from. */
static const char *const of_source[] = {"model.path", "model.init", "lora.path"};

/* The beginning of a text that says what a sample of a file was, in place of a hash of all of it.
 */
static const char sample[] = "sample ";

/* The hash of several files, or of one and how much of it is used. */
static uint64_t hash_together(const struct dataset *data, const uint64_t *of)
{
    struct hash *hash = hash_create();
    for (int f = 0; f < data->files; f++) {
        const struct dataset_file *file = &data->file[f];
        hash_add(hash, &of[f], sizeof of[f]);
        hash_add(hash, &file->slots, sizeof file->slots);
        hash_add(hash, &file->loader.options.samples, sizeof file->loader.options.samples);
    }
    return hash_finish(hash);
}

/* Write to text what the contents of token files are known by (struct run_data); nothing where a
 * file has neither a hash nor a sample. */
static void describe_contents(const struct dataset *data, char *text, size_t bytes)
{
    uint64_t of[CONFIG_SOURCES] = {0};
    int sampled = 0, unknown = !data->files;
    for (int f = 0; f < data->files; f++) {
        struct tokens *tokens = &data->file[f].tokens;
        of[f] = tokens->hash ? tokens->hash : tokens_sample_hash(tokens);
        sampled |= !tokens->hash;
        unknown |= !of[f];
    }
    if (unknown)
        return;
    int is_plain = data->files == 1 && !data->file[0].loader.options.samples;
    snprintf(text, bytes, "%s%016llx", sampled ? sample : "",
             (unsigned long long)(is_plain ? of[0] : hash_together(data, of)));
}

struct run_data run_data_of(const struct dataset *train, const struct dataset *valid)
{
    struct run_data data = {.sequences = train->windows, .valid_sequences = valid->windows};
    describe_contents(train, data.train, sizeof data.train);
    describe_contents(valid, data.valid, sizeof data.valid);
    if (train->files)
        snprintf(data.tokenizer, sizeof data.tokenizer, "%s", train->file[0].tokens.tokenizer);
    snprintf(data.chat, sizeof data.chat, "%s", data_chat_name(train));
    return data;
}

static int is_sample(const char *contents)
{
    return !strncmp(contents, sample, sizeof sample - 1);
}

void run_data_add(struct js *meta, const struct run_data *data)
{
    struct js *js = js_object();
    if (data->train[0])
        js_add_string(js, "train", data->train);
    if (data->valid[0])
        js_add_string(js, "valid", data->valid);
    if (data->tokenizer[0])
        js_add_string(js, "tokenizer", data->tokenizer);
    if (data->chat[0])
        js_add_string(js, "chat_template", data->chat);
    js_add(meta, "data", js);
}

const char *run_data_tokenizer(const struct js *meta)
{
    return js_get_string(js_get(meta, "data"), "tokenizer", NULL);
}

const char *run_data_chat(const struct js *meta)
{
    return js_get_string(js_get(meta, "data"), "chat_template", NULL);
}

static int differs(const struct config *a, const struct config *b, const char *key)
{
    char one[CONFIG_TEXT], other[CONFIG_TEXT];
    return strcmp(config_value(a, key, one), config_value(b, key, other)) != 0;
}

/* "llama-tiny (2 layers, width 64, vocabulary 512)" */
static void describe(const struct config *config, char *text, size_t bytes)
{
    const struct config_model *m = &config->model;
    snprintf(text, bytes, "%s (%lld layers, width %lld, vocabulary %lld)",
             m->preset[0] ? m->preset : m->family, (long long)m->layers, (long long)m->hidden,
             (long long)m->vocab);
}

int run_changes_model(const struct config *saved, const struct config *asked, struct error *err)
{
    char one[160], other[160], old[CONFIG_TEXT], new[CONFIG_TEXT];
    for (int i = 0; i < OF_TENSORS; i++) {
        const char *key = of_tensors[i];
        if ((i == LEARNED_POSITIONS && strcmp(asked->model.family, "gpt2") != 0) ||
            !differs(saved, asked, key))
            continue;
        describe(saved, one, sizeof one);
        describe(asked, other, sizeof other);
        const char *is = config_value(saved, key, old), *asks = config_value(asked, key, new);
        return error_set(err,
                         "it holds the model %s, and %s is asked for: %s is %.40s there and %.40s "
                         "here; ask for that model, or start another run: run.dir=OTHER",
                         one, strcmp(one, other) ? other : "another one", key,
                         is[0] ? is : "(none)", asks[0] ? asks : "(none)");
    }
    return 0;
}

const char *run_changes_without_effect(int i)
{
    return i < WITHOUT_EFFECT ? without_effect[i] : NULL;
}

static int has_effect(const char *key)
{
    for (int i = 0; i < WITHOUT_EFFECT; i++) {
        size_t length = strlen(without_effect[i]);
        char last = without_effect[i][length - 1];
        if (last == '.' || last == '_' ? !strncmp(key, without_effect[i], length)
                                       : !strcmp(key, without_effect[i]))
            return 0;
    }
    for (int i = 0; i < LEARNED_POSITIONS; i++)
        if (!strcmp(key, of_tensors[i]))
            return 0;
    return 1;
}

/* The sequences that a step of the saved run had; 0: not known. */
static int64_t saved_batch(const struct config *saved, const struct js *meta)
{
    const struct js *mesh = js_get(meta, "mesh");
    int64_t ranks = js_get_int(mesh, "replicate", 0) * js_get_int(mesh, "shard", 0);
    return saved->train.global_batch * (saved->train.split_batches ? 1 : ranks);
}

/* A list of changed settings that is being written. */
struct listing {
    const struct config *saved, *asked;
    char *text;
    size_t bytes;
};

/* Add "key old -> new" and a note to a list. */
static void add(struct listing *list, const char *key, const char *note)
{
    char one[CONFIG_TEXT], other[CONFIG_TEXT];
    const char *old = config_value(list->saved, key, one);
    const char *new = config_value(list->asked, key, other);
    text_join(list->text, list->bytes, ", ", "%s %.120s -> %.120s%s", key, old[0] ? old : "(none)",
              new[0] ? new : "(none)", note);
}

/* Is the data of a key other data than the checkpoint's?  Contents are compared where both are
 * known in the same way, else names: a checkpoint of an older version knows no samples, and a file
 * that was sealed since has a hash now. */
static int is_other_data(const struct config *saved, const struct config *asked, const char *key,
                         const char *known, const char *contents)
{
    int comparable = known[0] && contents[0] && is_sample(known) == is_sample(contents);
    return comparable ? strcmp(known, contents) != 0 : differs(saved, asked, key);
}

static const char *known_contents(const struct js *meta, const char *name)
{
    return js_get_string(js_get(meta, "data"), name, "");
}

static int compare_data(struct listing *list, const char *key, const char *name,
                        const struct js *meta, const char *contents)
{
    if (!is_other_data(list->saved, list->asked, key, known_contents(meta, name), contents))
        return 0;
    add(list, key, differs(list->saved, list->asked, key) ? "" : " (other contents)");
    return 1;
}

/* Has the batch of a step, of all ranks, changed? */
static int compare_batch(struct listing *list, int64_t old, int64_t batch)
{
    if (!old || old == batch)
        return 0;
    text_join(list->text, list->bytes, ", ", "train.global_batch %lld -> %lld%s", (long long)old,
              (long long)batch,
              list->saved->train.split_batches && list->asked->train.split_batches
                  ? ""
                  : " (of all ranks together)");
    return 1;
}

/* Is the value of a key derived from others?  train.steps is where train.epochs is given. */
static int is_derived(const struct listing *list, const char *key)
{
    return !strcmp(key, "train.steps") &&
           (list->saved->train.epochs > 0 || list->asked->train.epochs > 0);
}

/* Does a key only set how long the run is, or its decay?  run_changes_decay() finds where that
 * changes numbers. */
static int sets_length(const char *key)
{
    return !strcmp(key, "train.steps") || !strcmp(key, "train.epochs") ||
           !strcmp(key, "train.decay_steps");
}

int run_changes_text(const struct config *saved, const struct config *asked, int64_t batch,
                     const struct js *meta, const struct run_data *data, char *text, size_t bytes)
{
    struct listing list = {.saved = saved, .asked = asked, .text = text, .bytes = bytes};
    const char *key;
    text[0] = 0;
    int count = compare_data(&list, "data.train", "train", meta, data->train) +
                compare_data(&list, "data.valid", "valid", meta, data->valid) +
                compare_batch(&list, saved_batch(saved, meta), batch);
    for (int i = 0; (key = config_key_name(i)); i++) {
        if (!has_effect(key) || !differs(saved, asked, key) || is_derived(&list, key))
            continue;
        add(&list, key,
            strcmp(key, "train.freeze") ? ""
                                        : " (optimizer state that was not kept begins at zero)");
        count += !sets_length(key);
    }
    return count;
}

/* By how much of the decay two runs may differ at a step that both are at.  With epochs, a run that
 * takes another batch from here on is where it was but for two of its steps. */
static double decay_tolerance(const struct config *saved, const struct config *asked)
{
    int64_t decay = lr_schedule_decay_steps(&asked->train);
    int only_batch = asked->train.epochs > 0 && decay && !differs(saved, asked, "train.epochs") &&
                     !differs(saved, asked, "train.decay_steps");
    return only_batch ? 2 / (double)decay : 0;
}

/* What the learning rate does at the step after a checkpoint's. */
enum rate { RATE_STAYS, RATE_STAYS_ZERO, RATE_JUMPS };

/* Find that out for the step after `at`, and write it to text, where it is to be said; to
 * RATE_JUMPS the caller appends the reason. */
static enum rate compare_rates(const struct config_train *was, const struct config_train *now,
                               const struct run_position *at, char *text, size_t bytes)
{
    int64_t step = at->step - at->scaler.skipped; /* of the schedule */
    double before = lr_schedule_at(was, step), after = lr_schedule_at(now, step + 1);
    if (before != after) {
        snprintf(text, bytes,
                 "the learning rate jumps from %g at step %lld to %g at step %lld: ", before,
                 (long long)at->step, after, (long long)at->step + 1);
        return RATE_JUMPS;
    }
    if (after > 0)
        return RATE_STAYS;
    snprintf(text, bytes,
             "the learning rate of step %lld is 0, as that of step %lld was: it changes no weight",
             (long long)at->step + 1, (long long)at->step);
    return RATE_STAYS_ZERO;
}

/* Write to text how the learning rate of cosine or linear, whose curve depends on the run's end,
 * jumps at the step after `at`; returns 0 where the curve is the one of before, or where settings
 * of the learning rate itself differ, which run_changes_text() lists.  Curves that lie apart by no
 * more than a twentieth of train.lr count as one, with epochs by as much as the curve moves in a
 * step more, because a batch that changes moves the end by a part of a step. */
static int curve_jumps(const struct config_train *was, const struct config_train *now,
                       const struct run_position *at, char *text, size_t bytes)
{
    int64_t step = at->step - at->scaler.skipped; /* of the schedule */
    int is_same_kind = was->schedule == now->schedule && was->lr == now->lr &&
                       was->min_lr == now->min_lr && was->warmup_steps == now->warmup_steps;
    double decay = (double)max_i64(now->steps + now->ahead - now->warmup_steps, 1);
    double apart = (0.05 + (now->epochs > 0 ? M_PI / 2 / decay : 0)) * now->lr;
    if (!is_same_kind || fabs(lr_schedule_at(now, step) - lr_schedule_at(was, step)) <= apart)
        return 0;
    enum rate rate = compare_rates(was, now, at, text, bytes);
    if (rate == RATE_JUMPS)
        text_append(text, bytes,
                    "train.schedule=%s goes from the warm-up to the run's end, and is another "
                    "curve with another end; wsd can be extended without a jump",
                    now->schedule == SCHEDULE_COSINE ? "cosine" : "linear");
    return rate != RATE_STAYS;
}

int run_changes_decay(const struct config *saved, const struct config *asked, const struct js *meta,
                      const struct run_data *data, const struct run_position *at, char *text,
                      size_t bytes)
{
    struct config_train was = saved->train;
    const struct config_train *now = &asked->train;
    int64_t batch = saved_batch(saved, meta), skipped = at->scaler.skipped;
    int64_t step = at->step - skipped; /* of the schedule */
    int known = !(was.epochs > 0) || (batch && !run_changes_sequences(saved, asked, meta, data) &&
                                      !run_length_set(&was, at, data->sequences, batch, NULL));
    if (!known || at->step >= now->steps)
        return 0;
    if (was.schedule < SCHEDULE_WSD && now->schedule < SCHEDULE_WSD)
        return curve_jumps(&was, now, at, text, bytes);
    double done = lr_schedule_decay_done(&was, step);
    if (fabs(done - lr_schedule_decay_done(now, step)) <= decay_tolerance(saved, asked))
        return 0;
    int64_t stable = was.steps - lr_schedule_decay_steps(&was);
    int64_t stable_now = now->steps - lr_schedule_decay_steps(now);
    enum rate rate = compare_rates(&was, now, at, text, bytes);
    if (rate != RATE_JUMPS)
        return rate == RATE_STAYS_ZERO;
    if (done > 0)
        text_append(text, bytes,
                    "the checkpoint was saved in the decay, which began after step %lld and is "
                    "another one now; a checkpoint of step %lld or before goes on without a jump",
                    (long long)(stable + skipped),
                    (long long)((stable < stable_now ? stable : stable_now) + skipped));
    else
        text_append(text, bytes,
                    "the decay now begins after step %lld, before the checkpoint; with more "
                    "train.steps or fewer train.decay_steps it begins later",
                    (long long)(stable_now + skipped));
    return 1;
}

int run_changes_source(const struct config *saved, const struct config *asked, char *text,
                       size_t bytes)
{
    struct listing list = {.saved = saved, .asked = asked, .text = text, .bytes = bytes};
    int count = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof of_source / sizeof of_source[0]; i++) {
        const char *key = of_source[i];
        char asks[CONFIG_TEXT];
        int is_read =
            asked->lora.r && !strcmp(key, "model.path"); /* where there are adapters, the frozen
                                                            model is read from it in any case */
        if (is_read || !config_value(asked, key, asks)[0] || !differs(saved, asked, key))
            continue;
        add(&list, key, "");
        count++;
    }
    return count;
}

int run_changes_sequences(const struct config *saved, const struct config *asked,
                          const struct js *meta, const struct run_data *data)
{
    return differs(saved, asked, "data.seq_len") || differs(saved, asked, "data.packing") ||
           is_other_data(saved, asked, "data.train", known_contents(meta, "train"), data->train);
}

int run_changes_evaluation(const struct config *saved, const struct config *asked, int64_t batch,
                           const struct js *meta, const struct run_data *data)
{
    static const char *const keys[] = {"data.seq_len", "data.packing", "train.eval_batches"};
    int64_t old = saved_batch(saved, meta);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (differs(saved, asked, keys[i]))
            return 1;
    return (asked->train.eval_batches && old && old != batch) ||
           is_other_data(saved, asked, "data.valid", known_contents(meta, "valid"), data->valid);
}
