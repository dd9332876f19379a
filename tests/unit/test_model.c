/* test_model.c - models by name are what their authors published: parameters, operations, names of
 * tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "config/schema.h"
#include "model/model.h"
#include "segment/flat.h"
#include "tests/unit/rig.h"

static struct model *open_model(const char *preset)
{
    struct error err = {0};
    char text[128];
    struct model *model;
    snprintf(text, sizeof text, "model.preset=%s", preset);
    struct config config = rig_config(text);
    if (model_create(&model, &config.model, &err))
        fail_msg("%s", err.text);
    return model;
}

/* As the models' own pages give them, to the last one; all presets but llama-tiny. */
static const struct {
    const char *preset;
    int64_t params;
} published[] = {
    {"llama-10m", 10081600},         {"llama2-7b", 6738415616},     {"llama2-13b", 13015864320},
    {"llama2-70b", 68976648192},     {"llama3-8b", 8030261248},     {"llama3-70b", 70553706496},
    {"llama3.1-8b", 8030261248},     {"llama3.1-70b", 70553706496}, {"llama3.1-405b", 405853388800},
    {"llama3.2-1b", 1235814400},     {"llama3.2-3b", 3212749824},   {"llama-124m", 123587328},
    {"llama-1.3b", 1345423360},      {"gpt2", 124439808},           {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},       {"gpt2-xl", 1557611200},       {"mistral-7b-v0.1", 7241732096},
    {"mistral-7b-v0.3", 7248023552}, {"qwen2.5-0.5b", 494032768},   {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},      {"qwen2.5-7b", 7615616512},    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},    {"qwen2.5-72b", 72706203648},  {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},      {"qwen3-4b", 4022468096},      {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},      {"qwen3-32b", 32762123264},    {"mixtral-8x7b", 46702792704},
    {"qwen3-30b-a3b", 30532122624},  {"llama-tiny-moe", 288064},
};

static void test_parameters(void **state)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct model *model = open_model(published[i].preset);
        assert_int_equal(model_params(model), published[i].params);
        model_destroy(model);
    }
    assert_int_equal(config_preset_count, 1 + sizeof published / sizeof published[0]);
}

/* Parameters and multiplied weights of a configuration, counted by hand. */
struct counts {
    double params, weights;
};

static struct counts count(const struct config_model *c)
{
    double q = (double)(c->heads * c->head_dim), kv = (double)(c->kv_heads * c->head_dim);
    double hidden = (double)c->hidden, table = (double)c->vocab * hidden;
    double layers = (double)c->layers, ffn = (double)c->ffn, gpt2 = !strcmp(c->family, "gpt2");
    double experts = (double)c->experts.count, chosen = (double)c->experts.per_token;
    double forward = (gpt2 ? 2 : 3) * hidden * ffn, router = experts * hidden;
    double layer = hidden * (2 * q + 2 * kv) + (experts ? router + chosen * forward : forward);
    double weights = layers * layer + table;
    double norms = (2 * layers + 1) * hidden * (gpt2 ? 2 : 1);
    double biases = layers * (q + 2 * kv + hidden + ffn + hidden);
    double more = gpt2 ? biases + (double)c->max_seq_len * hidden : 0;
    more += experts ? layers * (experts - chosen) * forward : 0;
    more += layers * (c->qkv_bias * (q + 2 * kv) + c->qk_norm * 2 * (double)c->head_dim);
    return (struct counts){weights + norms + more + (c->tie_embeddings ? 0 : table), weights};
}

/* 6 for each weight that multiplies; attention's scores and mixture are 4 per pair of positions,
 * head and dimension, three times with backward. */
static void test_operations(void **state)
{
    static const int64_t lengths[] = {1, 7, 1024, 8192};
    for (int i = 0; i < config_preset_count; i++) {
        struct model *model = open_model(config_presets[i].preset);
        const struct config_model *c = &model->config;
        struct counts counts = count(c);
        assert_true((double)model_params(model) == counts.params);
        assert_int_equal(preset_params(&config_presets[i]), model_params(model));
        for (int k = 0; k < 4; k++) {
            if (!strcmp(c->family, "gpt2") && lengths[k] > c->max_seq_len)
                continue; /* no positions for them */
            double seq = (double)lengths[k];
            struct model_flops flops = model_flops_per_token(model, lengths[k], NULL, NULL);
            double square = 12 * (double)(c->layers * c->heads * c->head_dim) * seq;
            double window = c->sliding_window ? fmin((double)c->sliding_window, seq) : seq;
            double pairs = window * (window + 1) / 2 + (seq - window) * window;
            double half = square * pairs / (seq * seq);
            assert_true(fabs(flops.weights / (6 * counts.weights) - 1) < 1e-12);
            assert_true(fabs(flops.full / (6 * counts.weights + square) - 1) < 1e-12);
            assert_true(fabs(flops.causal / (6 * counts.weights + half) - 1) < 1e-12);
        }
        model_destroy(model);
    }
}

/* Freeze units up to a number. */
static void freeze_up_to(const void *user, int unit, struct graph *graph)
{
    for (int i = 0; i < graph->param_count; i++)
        graph->params[i].frozen = unit <= *(const int *)user;
}

/* What is frozen below everything trained is forward alone. */
static void test_frozen_operations(void **state)
{
    static const char *const presets[] = {"llama-tiny", "gpt2", "qwen3-0.6b"};
    const double seq = 64;
    for (int i = 0; i < 3; i++) {
        struct model *model = open_model(presets[i]);
        const struct config_model *c = &model->config;
        double table = (double)c->vocab * (double)c->hidden;
        double weights = count(c).weights, blocks = weights - table;
        double square = 12 * (double)(c->layers * c->heads * c->head_dim) * seq;
        int last = -1;
        struct model_flops all = model_flops_per_token(model, (int64_t)seq, freeze_up_to, &last);
        assert_true(fabs(all.full / (6 * weights + square) - 1) < 1e-12);
        last = 0;
        struct model_flops table_alone =
            model_flops_per_token(model, (int64_t)seq, freeze_up_to, &last);
        /* the first norm is trained, and so queries have the gradient of their input */
        assert_true(table_alone.weights == all.weights);
        last = (int)c->layers;
        struct model_flops but_head =
            model_flops_per_token(model, (int64_t)seq, freeze_up_to, &last);
        /* and with the final norm, the head */
        assert_true(fabs(but_head.weights / (2 * blocks + 6 * table) - 1) < 1e-12);
        assert_true(fabs((but_head.full - but_head.weights) / (square / 3) - 1) < 1e-12);
        model_destroy(model);
    }
}

/* The names checkpoints use, in the order of the chain. */
static void test_names(void **state)
{
    static const char *const first[] = {
        "embed",           "layers.0.norm1",    "layers.0.attn.q", "layers.0.attn.k",
        "layers.0.attn.v", "layers.0.attn.o",   "layers.0.norm2",  "layers.0.mlp.gate",
        "layers.0.mlp.up", "layers.0.mlp.down", "layers.1.norm1",
    };
    static const char *const presets[] = {"llama-tiny", "llama-10m"}; /* the second is tied */
    for (int i = 0; i < 2; i++) {
        struct mem mem = {0};
        char text[64];
        snprintf(text, sizeof text, "model.preset=%s data.seq_len=3", presets[i]);
        struct config config = rig_config(text);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        const struct units *units = s->units;
        int n = 0, flat;
        for (int u = 0; u < units->count && n < 11; u++)
            for (int t = 0; t < units->flat[u].tensors && n < 11; t++)
                assert_string_equal(units->flat[u].tensor[t].name, first[n++]);
        assert_int_equal(n, 11);
        assert_non_null(rig_tensor(s, "norm", &flat));
        assert_int_equal(flat, units->count - 1);
        assert_int_equal(rig_tensor(s, "head", &flat) != NULL, !i);
        const struct flat_tensor *k = rig_tensor(s, "layers.1.attn.k", &flat);
        assert_int_equal(k->box.whole[0], config.model.kv_heads * config.model.head_dim);
        assert_int_equal(k->box.whole[1], config.model.hidden);
        session_close(s);
    }
}

/* Those of GPT-2, and its first weights: normal deviates, smaller on the way back into the stream,
 * ones for norms, zeros for biases. */
static void test_gpt2(void **state)
{
    static const char *const first[] = {
        "embed",       "positions",   "layers.0.norm1", "layers.0.norm1.bias", "attn.q",
        "attn.k",      "attn.v",      "attn.q.bias",    "attn.k.bias",         "attn.v.bias",
        "attn.o",      "attn.o.bias", "norm2",          "norm2.bias",          "mlp.up",
        "mlp.up.bias", "mlp.down",    "mlp.down.bias",  "layers.1.norm1",
    };
    struct mem mem = {0};
    struct config config = rig_config("model.family=gpt2 model.layers=3 model.hidden=36 "
                                      "model.heads=3 model.ffn=100 model.vocab=301 "
                                      "model.max_seq_len=77 data.seq_len=5");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    int n = 0, flat;
    rig_init(s);
    for (int u = 0; u < s->units->count; u++)
        for (int t = 0; t < s->units->flat[u].tensors; t++) {
            const struct flat_tensor *tensor = &s->units->flat[u].tensor[t];
            const float *w = rig_state(s, u, RIG_MASTER) + tensor->offset;
            double square = 0, elems = (double)tensor->elems, std = 0.02;
            for (int64_t i = 0; i < tensor->elems; i++)
                square += (double)w[i] * w[i];
            if (strstr(tensor->name, "attn.o") || strstr(tensor->name, "mlp.down"))
                std /= sqrt(2 * 3);
            if (strstr(tensor->name, ".bias"))
                std = 0;
            else if (tensor->box.dims == 1)
                std = 1;
            /* the deviation of n numbers is known to 1/sqrt(2n) of itself */
            assert_true(fabs(sqrt(square / elems) - std) <= 4 * std / sqrt(2 * elems));
            if (n < 19)
                assert_non_null(strstr(tensor->name, first[n++]));
        }
    assert_int_equal(n, 19);
    assert_int_equal(rig_tensor(s, "positions", &flat)->box.whole[0], 77);
    assert_non_null(rig_tensor(s, "norm.bias", &flat));
    assert_non_null(rig_tensor(s, "head", &flat));
    session_close(s);
}

/* Rotary frequencies: the ends and the middle of Llama 3.1's stretching, by its definition. */
static void test_stretched_positions(void **state)
{
    enum { HALF = 64 };
    struct model *model = open_model("llama3.1-8b");
    float *table = calloc(2 * 2 * HALF, sizeof *table);
    int kept = 0, slowed = 0, between = 0;
    assert_int_equal(model->const_width, 2 * HALF);
    model->family->table(model, 2, table); /* positions 0 and 1 */
    for (int i = 0; i < HALF; i++) {
        double plain = pow(500000, -2.0 * i / (2 * HALF)), wavelength = 2 * M_PI / plain;
        double angle = atan2(table[2 * HALF + HALF + i], table[2 * HALF + i]);
        assert_true(table[i] == 1 && table[HALF + i] == 0);
        if (wavelength < 8192 / 4.0) {
            assert_true(fabs(angle / plain - 1) < 1e-6);
            kept++;
        } else if (wavelength > 8192 / 1.0) {
            assert_true(fabs(angle / (plain / 8) - 1) < 1e-6);
            slowed++;
        } else {
            assert_true(angle > plain / 8 && angle < plain);
            between++;
        }
    }
    assert_true(kept > 10 && slowed > 10 && between > 1);
    free(table);
    model_destroy(model);
}

static void test_what_is_refused(void **state)
{
    struct error err = {0};
    struct model *model;
    struct config_model config = {.family = "camel", .layers = 1};
    assert_int_equal(model_create(&model, &config, &err), -1);
    assert_non_null(strstr(err.text, "no family \"camel\""));
    config = (struct config_model){.family = "llama"};
    assert_int_equal(model_create(&model, &config, &err), -1);
    assert_non_null(strstr(err.text, "model.layers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),          cmocka_unit_test(test_operations),
        cmocka_unit_test(test_frozen_operations),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_stretched_positions), cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
