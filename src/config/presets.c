/* presets.c - models by name: small ones to try things, and published ones to train. */
#include "config/schema.h"

#include <ctype.h>

/* As published in the models' own configuration files.  head_dim is hidden / heads in all. */
#define LLAMA .family = "llama", .norm_eps = 1e-5, .init_std = 0.02
#define UNSCALED                                                             \
    .rope_factor = 8, .rope_low_freq_factor = 1, .rope_high_freq_factor = 4, \
    .rope_original_len = 8192
#define SCALED(f)                                                                \
    .rope_theta = 500000, .rope_scaling = ROPE_SCALING_LLAMA3, .rope_factor = f, \
    .rope_low_freq_factor = 1, .rope_high_freq_factor = 4, .rope_original_len = 8192
#define LLAMA1 LLAMA, UNSCALED, .rope_theta = 10000
#define LLAMA2 LLAMA1, .vocab = 32000, .max_seq_len = 4096
#define LLAMA3 LLAMA, UNSCALED, .rope_theta = 500000, .vocab = 128256, .max_seq_len = 8192
/* head_dim is 64 in all; what is said of rotary positions stays as it is by default. */
#define GPT2                                                                             \
    .family = "gpt2", .norm_eps = 1e-5, .init_std = 0.02, UNSCALED, .rope_theta = 10000, \
    .vocab = 50257, .max_seq_len = 1024, .tie_embeddings = 1
#define LLAMA31(f) LLAMA, SCALED(f), .vocab = 128256, .max_seq_len = 131072

const struct config_model config_presets[] = {
    {"llama-tiny", LLAMA1, .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 176,
     .vocab = 512, .max_seq_len = 128},
    {"llama-10m", LLAMA1, .layers = 8, .hidden = 320, .heads = 5, .kv_heads = 5, .ffn = 864,
     .vocab = 512, .max_seq_len = 1024, .tie_embeddings = 1},
    {"llama-124m", LLAMA1, .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12, .ffn = 2048,
     .vocab = 50304, .max_seq_len = 2048, .tie_embeddings = 1},
    {"llama-1.3b", LLAMA2, .layers = 24, .hidden = 2048, .heads = 16, .kv_heads = 16, .ffn = 5504},
    {"llama2-7b", LLAMA2, .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 32, .ffn = 11008},
    {"llama2-13b", LLAMA2, .layers = 40, .hidden = 5120, .heads = 40, .kv_heads = 40, .ffn = 13824},
    {"llama2-70b", LLAMA2, .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672},
    {"llama3-8b", LLAMA3, .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336},
    {"llama3-70b", LLAMA3, .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672},
    {"llama3.1-8b", LLAMA31(8), .layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8,
     .ffn = 14336},
    {"llama3.1-70b", LLAMA31(8), .layers = 80, .hidden = 8192, .heads = 64, .kv_heads = 8,
     .ffn = 28672},
    {"llama3.1-405b", LLAMA31(8), .layers = 126, .hidden = 16384, .heads = 128, .kv_heads = 8,
     .ffn = 53248},
    {"llama3.2-1b", LLAMA31(32), .layers = 16, .hidden = 2048, .heads = 32, .kv_heads = 8,
     .ffn = 8192, .tie_embeddings = 1},
    {"llama3.2-3b", LLAMA31(32), .layers = 28, .hidden = 3072, .heads = 24, .kv_heads = 8,
     .ffn = 8192, .tie_embeddings = 1},
    {"gpt2", GPT2, .layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12, .ffn = 3072},
    {"gpt2-medium", GPT2, .layers = 24, .hidden = 1024, .heads = 16, .kv_heads = 16, .ffn = 4096},
    {"gpt2-large", GPT2, .layers = 36, .hidden = 1280, .heads = 20, .kv_heads = 20, .ffn = 5120},
    {"gpt2-xl", GPT2, .layers = 48, .hidden = 1600, .heads = 25, .kv_heads = 25, .ffn = 6400},
};

const int config_preset_count = sizeof config_presets / sizeof config_presets[0];

static const char *skip_dashes(const char *s)
{
    while (*s == '-' || *s == '_')
        s++;
    return s;
}

static int same_name(const char *a, const char *b)
{
    for (;;) {
        a = skip_dashes(a);
        b = skip_dashes(b);
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return 0;
        if (!*a)
            return 1;
        a++;
        b++;
    }
}

const struct config_model *preset_find(const char *name)
{
    for (int i = 0; i < config_preset_count; i++)
        if (same_name(config_presets[i].preset, name))
            return &config_presets[i];
    return NULL;
}
