/* presets.c - the models of model.preset: small ones for trials, and published ones. */
#include "config/schema.h"

#include <ctype.h>
#include <string.h>

/* As published in the models' own configuration files.  head_dim is hidden / heads unless set. */
#define NAMED(text) .preset = text
/* Where a model has no experts their keys keep their defaults. */
#define USUAL .init_std = 0.02, .experts = {.per_token = 2, .norm_topk_prob = 1}
#define LLAMA .family = "llama", .norm_eps = 1e-5, USUAL
/* So many experts, of which a token goes through some. */
#define EXPERTS(all, some) \
    .init_std = 0.02, .experts = {.count = all, .per_token = some, .norm_topk_prob = 1}
#define ROPE(base, how, times)      \
    .rope = {.theta = base,         \
             .scaling = how,        \
             .factor = times,       \
             .low_freq_factor = 1,  \
             .high_freq_factor = 4, \
             .original_len = 8192,  \
             .yarn = {.beta_fast = 32, .beta_slow = 1, .truncate = 1}}
#define UNSCALED(base) ROPE(base, ROPE_SCALING_NONE, 8)
#define LLAMA1         LLAMA, UNSCALED(10000)
#define LLAMA2         LLAMA1, .vocab = 32000, .max_seq_len = 4096
#define LLAMA3         LLAMA, UNSCALED(500000), .vocab = 128256, .max_seq_len = 8192
/* head_dim is 64 in all; fields of rotary positions keep their defaults. */
#define GPT2                                                                    \
    .family = "gpt2", .norm_eps = 1e-5, USUAL, UNSCALED(10000), .vocab = 50257, \
    .max_seq_len = 1024, .tie_embeddings = 1
/* Base models; those that follow instructions have the same sizes. */
#define QWEN .family = "llama", USUAL, UNSCALED(1000000), .vocab = 151936, .norm_eps = 1e-6
#define QWEN25_FROM_14B                                                                            \
    .family = "llama", USUAL, UNSCALED(1000000), .vocab = 152064, .qkv_bias = 1, .norm_eps = 1e-5, \
    .max_seq_len = 131072
#define QWEN25  QWEN, .qkv_bias = 1
#define QWEN3   QWEN, .qk_norm = 1, .head_dim = 128, .kv_heads = 8, .max_seq_len = 40960
#define MISTRAL LLAMA, .max_seq_len = 32768
#define LLAMA31(f) \
    LLAMA, ROPE(500000, ROPE_SCALING_LLAMA3, f), .vocab = 128256, .max_seq_len = 131072

const struct config_model config_presets[] = {
    {NAMED("llama-tiny"), LLAMA1, .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 176,
     .vocab = 512, .max_seq_len = 128},
    {NAMED("llama-tiny-moe"), .family = "llama", .norm_eps = 1e-5, EXPERTS(8, 2), UNSCALED(10000),
     .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 512,
     .max_seq_len = 128},
    {NAMED("llama-10m"), LLAMA1, .layers = 8, .hidden = 320, .heads = 5, .kv_heads = 5, .ffn = 864,
     .vocab = 512, .max_seq_len = 1024, .tie_embeddings = 1},
    {NAMED("llama-124m"), LLAMA1, .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12,
     .ffn = 2048, .vocab = 50304, .max_seq_len = 2048, .tie_embeddings = 1},
    {NAMED("llama-1.3b"), LLAMA2, .layers = 24, .hidden = 2048, .heads = 16, .kv_heads = 16,
     .ffn = 5504},
    {NAMED("llama2-7b"), LLAMA2, .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 32,
     .ffn = 11008},
    {NAMED("llama2-13b"), LLAMA2, .layers = 40, .hidden = 5120, .heads = 40, .kv_heads = 40,
     .ffn = 13824},
    {NAMED("llama2-70b"), LLAMA2, .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8,
     .ffn = 28672},
    {NAMED("llama3-8b"), LLAMA3, .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8,
     .ffn = 14336},
    {NAMED("llama3-70b"), LLAMA3, .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8,
     .ffn = 28672},
    {NAMED("llama3.1-8b"), LLAMA31(8), .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8,
     .ffn = 14336},
    {NAMED("llama3.1-70b"), LLAMA31(8), .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8,
     .ffn = 28672},
    {NAMED("llama3.1-405b"), LLAMA31(8), .layers = 126, .hidden = 16384, .heads = 128,
     .kv_heads = 8, .ffn = 53248},
    {NAMED("llama3.2-1b"), LLAMA31(32), .layers = 16, .hidden = 2048, .heads = 32, .kv_heads = 8,
     .ffn = 8192, .tie_embeddings = 1},
    {NAMED("llama3.2-3b"), LLAMA31(32), .layers = 28, .hidden = 3072, .heads = 24, .kv_heads = 8,
     .ffn = 8192, .tie_embeddings = 1},
    {NAMED("mistral-7b-v0.1"), MISTRAL, UNSCALED(10000), .layers = 32, .hidden = 4096, .heads = 32,
     .kv_heads = 8, .ffn = 14336, .vocab = 32000, .sliding_window = 4096},
    {NAMED("mistral-7b-v0.3"), MISTRAL, UNSCALED(1000000), .layers = 32, .hidden = 4096,
     .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32768},
    {NAMED("mixtral-8x7b"), .family = "llama", .norm_eps = 1e-5, EXPERTS(8, 2), UNSCALED(1000000),
     .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32000,
     .max_seq_len = 32768},
    {NAMED("qwen2.5-0.5b"), QWEN25, .layers = 24, .hidden = 896, .heads = 14, .kv_heads = 2,
     .ffn = 4864, .max_seq_len = 32768, .tie_embeddings = 1},
    {NAMED("qwen2.5-1.5b"), QWEN25, .layers = 28, .hidden = 1536, .heads = 12, .kv_heads = 2,
     .ffn = 8960, .max_seq_len = 131072, .tie_embeddings = 1},
    {NAMED("qwen2.5-3b"), QWEN25, .layers = 36, .hidden = 2048, .heads = 16, .kv_heads = 2,
     .ffn = 11008, .max_seq_len = 32768, .tie_embeddings = 1},
    {NAMED("qwen2.5-7b"), .family = "llama", USUAL, UNSCALED(1000000), .qkv_bias = 1,
     .norm_eps = 1e-6, .vocab = 152064, .layers = 28, .hidden = 3584, .heads = 28, .kv_heads = 4,
     .ffn = 18944, .max_seq_len = 131072},
    {NAMED("qwen2.5-14b"), QWEN25_FROM_14B, .layers = 48, .hidden = 5120, .heads = 40,
     .kv_heads = 8, .ffn = 13824},
    {NAMED("qwen2.5-32b"), QWEN25_FROM_14B, .layers = 64, .hidden = 5120, .heads = 40,
     .kv_heads = 8, .ffn = 27648},
    {NAMED("qwen2.5-72b"), QWEN25_FROM_14B, .layers = 80, .hidden = 8192, .heads = 64,
     .kv_heads = 8, .ffn = 29568},
    {NAMED("qwen3-0.6b"), QWEN3, .layers = 28, .hidden = 1024, .heads = 16, .ffn = 3072,
     .tie_embeddings = 1},
    {NAMED("qwen3-1.7b"), QWEN3, .layers = 28, .hidden = 2048, .heads = 16, .ffn = 6144,
     .tie_embeddings = 1},
    {NAMED("qwen3-4b"), QWEN3, .layers = 36, .hidden = 2560, .heads = 32, .ffn = 9728,
     .tie_embeddings = 1},
    {NAMED("qwen3-8b"), QWEN3, .layers = 36, .hidden = 4096, .heads = 32, .ffn = 12288},
    {NAMED("qwen3-14b"), QWEN3, .layers = 40, .hidden = 5120, .heads = 40, .ffn = 17408},
    {NAMED("qwen3-32b"), QWEN3, .layers = 64, .hidden = 5120, .heads = 64, .ffn = 25600},
    {NAMED("qwen3-30b-a3b"), .family = "llama", .norm_eps = 1e-6, EXPERTS(128, 8),
     UNSCALED(1000000), .vocab = 151936, .qk_norm = 1, .head_dim = 128, .max_seq_len = 40960,
     .layers = 48, .hidden = 2048, .heads = 32, .kv_heads = 4, .ffn = 768},
    {NAMED("gpt2"), GPT2, .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12, .ffn = 3072},
    {NAMED("gpt2-medium"), GPT2, .layers = 24, .hidden = 1024, .heads = 16, .kv_heads = 16,
     .ffn = 4096},
    {NAMED("gpt2-large"), GPT2, .layers = 36, .hidden = 1280, .heads = 20, .kv_heads = 20,
     .ffn = 5120},
    {NAMED("gpt2-xl"), GPT2, .layers = 48, .hidden = 1600, .heads = 25, .kv_heads = 25,
     .ffn = 6400},
};

const int config_preset_count = sizeof config_presets / sizeof config_presets[0];

enum { PLAIN_CHARS = 96 };

/* Copy name into plain in lower case, without '-' and '_'. */
static void make_plain(const char *name, char plain[PLAIN_CHARS])
{
    int used = 0;
    for (; *name && used < PLAIN_CHARS - 1; name++)
        if (*name != '-' && *name != '_')
            plain[used++] = (char)tolower((unsigned char)*name);
    plain[used] = 0;
}

const struct config_model *preset_find(const char *name)
{
    char wanted[PLAIN_CHARS], plain[PLAIN_CHARS];
    make_plain(name, wanted);
    for (int i = 0; i < config_preset_count; i++) {
        make_plain(config_presets[i].preset, plain);
        if (!strcmp(wanted, plain))
            return &config_presets[i];
    }
    return NULL;
}

const struct config_model *preset_within(const char *name)
{
    char longer[PLAIN_CHARS], plain[PLAIN_CHARS];
    const struct config_model *found = NULL;
    size_t longest = 0;
    make_plain(name, longer);
    for (int i = 0; i < config_preset_count; i++) {
        make_plain(config_presets[i].preset, plain);
        if (strstr(longer, plain) && strlen(plain) > longest) {
            found = &config_presets[i];
            longest = strlen(plain);
        }
    }
    return found;
}

int64_t preset_params(const struct config_model *m)
{
    int64_t head_dim = m->head_dim ? m->head_dim : m->hidden / m->heads;
    int64_t query = m->hidden * m->heads * head_dim, kv = m->hidden * m->kv_heads * head_dim;
    int64_t tables = m->vocab * m->hidden * (m->tie_embeddings ? 1 : 2);
    if (!strcmp(m->family, "gpt2")) { /* a bias for each product, norms of two vectors */
        int64_t biases = 3 * m->hidden + m->hidden + m->ffn + m->hidden;
        int64_t block = 4 * query + 2 * m->hidden * m->ffn + biases + 4 * m->hidden;
        return tables + m->max_seq_len * m->hidden + m->layers * block + 2 * m->hidden;
    }
    int64_t layer = 3 * m->hidden * m->ffn; /* feed-forward */
    if (m->experts.count)
        layer = m->experts.count * (layer + m->hidden);
    int64_t block = 2 * query + 2 * kv + layer + 2 * m->hidden;
    if (m->qkv_bias)
        block += (m->heads + 2 * m->kv_heads) * head_dim;
    if (m->qk_norm)
        block += 2 * head_dim;
    return tables + m->layers * block + m->hidden;
}
