/* check_model.c - keys of the model, its weights and its adapters: what follows from others, and
 * combinations that cannot work.
 */
#include "config/hf.h"
#include "config/schema.h"

#include <string.h>

static int too_few(const char *name, int64_t value, struct error *err)
{
    if (value > 0)
        return 0;
    return error_set(err,
                     "%s is not set: name a model (model.preset=llama-tiny) or give "
                     "model.layers, hidden, heads, ffn and vocab; a run is named by its "
                     "directory, as the first argument",
                     name);
}

static int finish_heads(struct config_model *m, struct error *err)
{
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads)
        return error_set(err,
                         "model.heads (%lld) is not a multiple of model.kv_heads (%lld); change "
                         "one, or set model.kv_heads=0, as many as heads",
                         (long long)m->heads, (long long)m->kv_heads);
    if (!m->head_dim && m->hidden % m->heads)
        return error_set(err,
                         "model.hidden (%lld) is not a multiple of model.heads (%lld); change "
                         "one, or set model.head_dim",
                         (long long)m->hidden, (long long)m->heads);
    if (!m->head_dim)
        m->head_dim = m->hidden / m->heads;
    if (m->head_dim % 2)
        return error_set(err,
                         "model.head_dim is %lld, but attention needs an even number (it is "
                         "model.hidden / model.heads unless set)",
                         (long long)m->head_dim);
    return 0;
}

static int check_rope(const struct config_rope *rope, struct error *err)
{
    const struct config_yarn *yarn = &rope->yarn;
    if (rope->scaling == ROPE_SCALING_LLAMA3 && rope->low_freq_factor >= rope->high_freq_factor)
        return error_set(err,
                         "model.rope_low_freq_factor (%g) must be below "
                         "model.rope_high_freq_factor (%g)",
                         rope->low_freq_factor, rope->high_freq_factor);
    if (rope->scaling != ROPE_SCALING_YARN)
        return 0;
    if (yarn->beta_slow > yarn->beta_fast)
        return error_set(err, "model.rope_beta_slow (%g) is above model.rope_beta_fast (%g)",
                         yarn->beta_slow, yarn->beta_fast);
    if (rope->theta <= 1)
        return error_set(err, "model.rope_theta is %g; rope_scaling yarn needs one above 1",
                         rope->theta);
    return 0;
}

static int finish_model(struct config_model *m, struct error *err)
{
    if (too_few("model.layers", m->layers, err) || too_few("model.hidden", m->hidden, err) ||
        too_few("model.heads", m->heads, err) || too_few("model.ffn", m->ffn, err) ||
        too_few("model.vocab", m->vocab, err) || finish_heads(m, err))
        return -1;
    return check_rope(&m->rope, err);
}

/* Refuse keys that model.rope_scaling does not read.  With model.path they may be values of the
 * model's config.json, whose scaling the user replaced: then only keys of yarn are refused. */
static int check_rope_keys(const struct config *config, struct error *err)
{
    enum {
        LINEAR = 1 << ROPE_SCALING_LINEAR,
        LLAMA3 = 1 << ROPE_SCALING_LLAMA3,
        YARN = 1 << ROPE_SCALING_YARN
    };
    const struct config_rope *rope = &config->model.rope;
    const struct {
        const void *part; /* of config, with `bytes` bytes */
        size_t bytes;
        unsigned kinds;    /* of scaling that read it */
        const char *names; /* of these kinds */
    } keys[] = {
        {.part = &rope->yarn, .bytes = sizeof rope->yarn, .kinds = YARN, .names = "yarn"},
        {.part = &rope->factor,
         .bytes = sizeof rope->factor,
         .kinds = LINEAR | LLAMA3 | YARN,
         .names = "linear, llama3 or yarn"},
        {.part = &rope->low_freq_factor,
         .bytes = sizeof rope->low_freq_factor,
         .kinds = LLAMA3,
         .names = "llama3"},
        {.part = &rope->high_freq_factor,
         .bytes = sizeof rope->high_freq_factor,
         .kinds = LLAMA3,
         .names = "llama3"},
        {.part = &rope->original_len,
         .bytes = sizeof rope->original_len,
         .kinds = LLAMA3 | YARN,
         .names = "llama3 or yarn"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *name = config_first_set(config, keys[i].part, keys[i].bytes);
        int may_be_of_file = config->model_path[0] && keys[i].kinds != YARN;
        if (name && !may_be_of_file && !(keys[i].kinds >> rope->scaling & 1))
            return error_set(err, "%s is of model.rope_scaling %s; leave it out, or set that", name,
                             keys[i].names);
    }
    return 0;
}

/* Refuse keys of features that GPT-2 does not have, where they were set. */
static int check_gpt2(const struct config *config, struct error *err)
{
    const struct config_model *m = &config->model;
    if (strcmp(m->family, "gpt2") != 0)
        return 0;
    if (m->kv_heads != m->heads)
        return error_set(err,
                         "model.kv_heads is %lld, but in model.family gpt2 each of the %lld heads "
                         "has its own keys and values; leave it out",
                         (long long)m->kv_heads, (long long)m->heads);
    const char *other = m->qkv_bias         ? "qkv_bias"
                        : m->qk_norm        ? "qk_norm"
                        : m->sliding_window ? "sliding_window"
                                            : NULL;
    if (other)
        return error_set(err, "model.%s is of model.family llama; gpt2 is as it is, leave it out",
                         other);
    const char *name = config_first_set(config, &m->rope, sizeof m->rope);
    if (name)
        return error_set(err,
                         "%s is set, but model.family gpt2 learns its positions and rotates none; "
                         "leave it out",
                         name);
    return 0;
}

/* Refuse keys of experts where there are none, and what does not go together with experts. */
static int check_experts(const struct config *config, struct error *err)
{
    const struct config_experts *e = &config->model.experts;
    const char *name = config_first_set(config, e, sizeof *e);
    char text[CONFIG_TEXT];
    if (!e->count && name)
        return error_set(err, "%s is %s, and model.experts, how many there are, 0; set it", name,
                         config_value(config, name, text));
    if (!e->count)
        return 0;
    if (!strcmp(config->model.family, "gpt2"))
        return error_set(err,
                         "model.experts is %lld, and model.family gpt2, which has none; leave it "
                         "out, or take model.family llama",
                         (long long)e->count);
    if (e->per_token > e->count)
        return error_set(err,
                         "model.experts_per_token is %lld, and model.experts %lld: a token goes "
                         "through each expert once at most",
                         (long long)e->per_token, (long long)e->count);
    if (config->train.optimizer == OPTIMIZER_MUON)
        return error_set(err,
                         "train.optimizer is muon, and model.experts %lld: one tensor holds the "
                         "matrices of all experts, which muon does not take apart; use adamw",
                         (long long)e->count);
    if (e->aux_loss > 0 && config->parallel.context > 1)
        return error_set(err,
                         "model.router_aux_loss_coef is %g, and parallel.context %lld: the load is "
                         "counted over whole sequences, and these are divided; leave one out",
                         e->aux_loss, (long long)config->parallel.context);
    return 0;
}

/* Refuse kinds of dropout that model.family llama does not have. */
static int check_dropout(const struct config *config, struct error *err)
{
    const struct config_dropout *d = &config->model.dropout;
    if (!strcmp(config->model.family, "gpt2") || (!d->embed && !d->residual))
        return 0;
    return error_set(err, "model.%s_dropout is of model.family gpt2; leave it out",
                     d->embed ? "embed" : "residual");
}

/* Refuse lora.path without a model: an adapter's folder does not say what its model is. */
static int check_adapted(const struct config *config, struct error *err)
{
    if (config->model.layers || config->model_path[0] || !config->lora.path[0])
        return 0;
    return error_set(err,
                     "lora.path is set, and model.path is missing: the model to which the adapters "
                     "of %.200s belong",
                     config->lora.path);
}

/* Refuse keys of adapters where there are none, and pairs of them that exclude one another. */
static int check_lora(const struct config *config, struct error *err)
{
    const char *name = config_first_set(config, &config->lora, sizeof config->lora);
    enum config_frozen frozen = config->checkpoint.frozen;
    if (frozen == FROZEN_REFERENCE && !config->model_path[0])
        return error_set(err, "checkpoint.frozen is reference, and model.path names no folder to "
                              "refer to; leave it at auto");
    if (!config->lora.r && !name && frozen != FROZEN_AUTO)
        name = "checkpoint.frozen";
    if (config->lora.r || !name)
        return 0;
    return error_set(err, "%s is of adapters, and lora.r, their rank, is 0: there are none; set it",
                     name);
}

/* Refuse checkpoint.export_hf for a model that none of Hugging Face's classes computes. */
static int check_export(const struct config *config, struct error *err)
{
    const struct config_model *m = &config->model;
    if (!config->checkpoint.export_hf)
        return 0;
    if (config->lora.r && config->model_path[0] && hf_is_stacked(config->model_path))
        return error_set(err,
                         "checkpoint.export_hf is set, and peft would not find the adapters' "
                         "modules in %s, a phi3; leave it out, and write the model with `trireme "
                         "convert --merge`",
                         config->model_path);
    if (!strcmp(m->family, "gpt2") && m->heads * m->head_dim != m->hidden)
        return error_set(err,
                         "checkpoint.export_hf is set, and a GPT-2 of Hugging Face's has "
                         "model.head_dim %lld, model.hidden / model.heads; leave one out",
                         (long long)(m->hidden / m->heads));
    char biases[80];
    snprintf(biases, sizeof biases, "model.qkv_bias=true and model.experts=%lld",
             (long long)m->experts.count);
    const char *other = m->qkv_bias && m->qk_norm         ? "model.qkv_bias and model.qk_norm"
                        : m->qkv_bias && m->experts.count ? biases
                        : m->experts.count && !m->qk_norm && !m->experts.norm_topk_prob
                            ? "model.norm_topk_prob=false without model.qk_norm"
                            : NULL;
    return other ? error_set(err,
                             "checkpoint.export_hf is set, and no model of Hugging Face's that "
                             "trireme knows has %s; leave one out",
                             other)
                 : 0;
}

/* Refuse model.init scratch without model.path, where it has no effect, and with adapters, whose
 * frozen weights nobody else would have. */
static int check_init(const struct config *config, struct error *err)
{
    if (config->model_init == INIT_PRETRAINED)
        return 0;
    if (!config->model_path[0])
        return error_set(err,
                         "model.init is scratch, which is of a model.path; without one weights "
                         "are new anyhow");
    if (config->lora.r)
        return error_set(err, "model.init is scratch, and lora.r trains adapters beside weights "
                              "that would stay as the seed made them; leave one out");
    return 0;
}

/* Refuse model.loading node where no weights are read from files. */
static int check_loading(const struct config *config, struct error *err)
{
    if (config->model_loading == LOADING_EACH || config->model_path[0] || config->lora.path[0])
        return 0;
    return error_set(err, "model.loading is node, which is of the files of model.path, and that is "
                          "empty: weights are new; leave it at each");
}

int config_check_model(struct config *config, struct error *err)
{
    return check_adapted(config, err) || finish_model(&config->model, err) ||
                   check_gpt2(config, err) || check_experts(config, err) ||
                   check_dropout(config, err) || check_rope_keys(config, err)
               ? -1
               : 0;
}

int config_check_weights(const struct config *config, struct error *err)
{
    return check_lora(config, err) || check_init(config, err) || check_loading(config, err) ||
                   check_export(config, err)
               ? -1
               : 0;
}

int config_check_training(const struct config *config, struct error *err)
{
    if (config->lora.use_dora && config->lora.dropout > 0)
        return error_set(err,
                         "lora.use_dora with lora.dropout=%g: DoRA is trained without dropout in "
                         "this version of trireme; set lora.dropout=0",
                         config->lora.dropout);
    return 0;
}
