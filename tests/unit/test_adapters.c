/* test_adapters.c - a model with adapters against the same model without them, whose matrices are
 * W + factor * B A: the same loss, and gradients that follow from dW by the product rule:
 * dB = factor * dW A^T and dA = factor * B^T dW.  The two share no op of adapters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "model/adapters.h"
#include "model/names.h"
#include "tests/unit/rig.h"

enum { BATCH = 3, SEQ = 11, VOCAB = 23 };

#define SIZES                                                                             \
    "model.layers=2 model.hidden=20 model.heads=4 model.head_dim=6 model.ffn=14 "         \
    "model.vocab=23 data.seq_len=11 train.global_batch=3 train.micro_batch=2 train.lr=0 " \
    "train.weight_decay=0 train.clip=0 model.init_std=0.3 run.threads=1 "

/* Settings of the model, and of its adapters. */
static const struct trial {
    const char *model, *lora;
} trials[] = {
    {"model.family=llama model.kv_heads=2", "lora.r=3 lora.alpha=5"},
    {"model.family=llama model.kv_heads=4 model.tie_embeddings=true",
     "lora.r=2 lora.alpha=7 lora.use_rslora=true lora.target_modules=all-linear"},
    {"model.family=llama model.kv_heads=1",
     "lora.r=5 lora.target_modules=k_proj,up_proj,self_attn.o_proj "
     "lora.modules_to_save=lm_head,down_proj"},
    {"model.family=gpt2 model.tie_embeddings=true", "lora.r=3 lora.alpha=5"},
    {"model.family=gpt2", "lora.r=1 lora.target_modules=all-linear"},
};

static int32_t tokens[4 * SEQ], targets[4 * SEQ];

static float *at(const struct session *s, const char *name, enum rig_state which, int64_t *elems)
{
    int flat;
    const struct flat_tensor *tensor = rig_tensor(s, name, &flat);
    if (!tensor)
        return NULL;
    if (elems)
        *elems = tensor->elems;
    return rig_state(s, flat, which) + tensor->offset;
}

static double step(struct session *s)
{
    struct error err = {0};
    struct rig_data data = {s->layout.micro_batch, SEQ, tokens, targets};
    struct step_input input = rig_input(s, 1);
    struct step_output output;
    input.load = rig_load;
    input.user = &data;
    if (execute(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    return output.loss;
}

static struct session *open_session(struct mem *mem, const char *settings)
{
    struct config config = rig_config(settings);
    struct session *s = rig_open(mem, &config, NULL, 0);
    rig_init(s);
    return s;
}

/* A tensor and its adapter: W [rows, columns], A [rank, columns], B [rows, rank]. */
struct adapted {
    char a[HF_NAME + 8], b[FLAT_NAME + 8];
    int64_t rows, columns, rank;
};

/* That of a tensor of the plain model; 0: it has none. */
static int find(const struct session *s, const struct flat_tensor *w, struct adapted *found)
{
    char first[HF_NAME];
    snprintf(found->b, sizeof found->b, "%s.lora_B", w->name);
    if (!at(s, found->b, RIG_MASTER, NULL))
        return 0;
    model_hf_first(s->model->family, w->name, first);
    snprintf(found->a, sizeof found->a, "%s.lora_A", first);
    assert_non_null(at(s, found->a, RIG_MASTER, NULL));
    found->rows = w->box.whole[0];
    found->columns = w->box.whole[1];
    found->rank = s->config.lora.r;
    return 1;
}

/* Random numbers in place of B's zeros; then W + factor * B A in the plain model, for all W. */
static int merge(struct session *s, struct session *plain)
{
    double factor = adapters_factor(&s->config.lora);
    int merged = 0;
    for (int f = 0; f < plain->units->flats; f++)
        for (int t = 0; t < plain->units->flat[f].tensors; t++) {
            const struct flat_tensor *w = &plain->units->flat[f].tensor[t];
            float *to = rig_state(plain, f, RIG_MASTER) + w->offset;
            struct adapted own;
            memcpy(to, at(s, w->name, RIG_MASTER, NULL), (size_t)w->elems * sizeof *to);
            if (!find(s, w, &own))
                continue;
            float *a = at(s, own.a, RIG_MASTER, NULL), *b = at(s, own.b, RIG_MASTER, NULL);
            philox_fill_normal(b, philox_key(5, own.b), 0, own.rows * own.rank, 0, 0.3f);
            for (int64_t i = 0; i < w->elems; i++) {
                double sum = 0;
                for (int64_t k = 0; k < own.rank; k++)
                    sum += (double)b[i / own.columns * own.rank + k] *
                           a[k * own.columns + i % own.columns];
                to[i] = (float)(to[i] + factor * sum);
            }
            merged++;
        }
    rig_refresh(s);
    rig_refresh(plain);
    return merged;
}

static double distance(const float *got, const double *wanted, int64_t elems)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < elems; i++) {
        most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
        off = fabs(got[i] - wanted[i]) <= off ? off : fabs(got[i] - wanted[i]);
    }
    assert_true(most > 1e-4);
    return off / most;
}

/* dB of one tensor, and what it adds to the gradient of its A. */
static void check_b(const struct session *s, const struct session *plain,
                    const struct flat_tensor *w, const struct adapted *own, double *da)
{
    const float *dw = at(plain, w->name, RIG_GRAD, NULL);
    const float *a = at(s, own->a, RIG_MASTER, NULL), *b = at(s, own->b, RIG_MASTER, NULL);
    double factor = adapters_factor(&s->config.lora);
    double *db = calloc((size_t)(own->rows * own->rank), sizeof *db);
    for (int64_t row = 0; row < own->rows; row++)
        for (int64_t k = 0; k < own->rank; k++)
            for (int64_t c = 0; c < own->columns; c++) {
                double grad = factor * dw[row * own->columns + c];
                db[row * own->rank + k] += grad * a[k * own->columns + c];
                da[k * own->columns + c] += grad * b[row * own->rank + k];
            }
    assert_true(distance(at(s, own->b, RIG_GRAD, NULL), db, own->rows * own->rank) < 2e-5);
    free(db);
}

/* The gradients of all adapters; A's is the sum over the tensors that have it. */
static void check_gradients(const struct session *s, const struct session *plain)
{
    struct adapted own, other;
    for (int f = 0; f < plain->units->flats; f++)
        for (int t = 0; t < plain->units->flat[f].tensors; t++) {
            const struct flat *flat = &plain->units->flat[f];
            if (!find(s, &flat->tensor[t], &own) ||
                strncmp(own.a, flat->tensor[t].name, strlen(own.a) - strlen(".lora_A")) != 0)
                continue;
            int64_t elems = own.rank * own.columns;
            double *da = calloc((size_t)elems, sizeof *da);
            for (int i = 0; i < flat->tensors; i++)
                if (find(s, &flat->tensor[i], &other) && !strcmp(other.a, own.a))
                    check_b(s, plain, &flat->tensor[i], &other, da);
            assert_true(distance(at(s, own.a, RIG_GRAD, NULL), da, elems) < 2e-5);
            free(da);
        }
}

/* Everything is frozen but adapters and what modules_to_save names, whose gradients are the plain
 * model's. */
static int check_others(const struct session *s, const struct session *plain)
{
    int saved = 0;
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        for (int t = 0; t < flat->tensors; t++) {
            const char *name = flat->tensor[t].name;
            assert_int_equal(flat->trained, adapters_train(s->model, name));
            if (!flat->trained || adapters_own(name))
                continue;
            double *wanted = calloc((size_t)flat->tensor[t].elems, sizeof *wanted);
            for (int64_t i = 0; i < flat->tensor[t].elems; i++)
                wanted[i] = at(plain, name, RIG_GRAD, NULL)[i];
            assert_true(distance(at(s, name, RIG_GRAD, NULL), wanted, flat->tensor[t].elems) <
                        2e-5);
            free(wanted);
            saved++;
        }
    }
    return saved;
}

static void merged_models(void **state)
{
    char settings[1024];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        struct mem mem = {0};
        snprintf(settings, sizeof settings, SIZES "%s %s", trials[i].model, trials[i].lora);
        struct session *s = open_session(&mem, settings);
        double begins = step(s); /* B is 0 */
        snprintf(settings, sizeof settings, SIZES "%s", trials[i].model);
        struct session *plain = open_session(&mem, settings);
        assert_true(fabs(step(plain) / begins - 1) < 1e-6);
        assert_true(merge(s, plain) >= 2);
        double loss = step(s), wanted = step(plain);
        assert_true(fabs(loss / wanted - 1) < 1e-6);
        assert_true(fabs(loss / begins - 1) > 1e-3);
        check_gradients(s, plain);
        assert_int_equal(check_others(s, plain), strstr(trials[i].lora, "down_proj") ? 3 : 0);
        session_close(s);
        session_close(plain);
        assert_int_equal(mem.blocks, 0);
    }
}

/* A's first numbers: PyTorch's bound, both signs, and no layer like another. */
static void first_numbers(void **state)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, SIZES "lora.r=4 lora.target_modules=all-linear");
    int64_t elems = 0, others = 0;
    const float *a = at(s, "layers.0.attn.q.lora_A", RIG_MASTER, &elems);
    const float *other = at(s, "layers.1.attn.q.lora_A", RIG_MASTER, &others);
    double bound = 1 / sqrt(20), sum = 0, most = 0;
    assert_int_equal(elems, 4 * 20);
    for (int64_t i = 0; i < elems; i++) {
        assert_true(fabs(a[i]) <= bound && a[i] != other[i]);
        sum += a[i];
        most = fabs(a[i]) > most ? fabs(a[i]) : most;
    }
    assert_true(fabs(sum / (double)elems) < bound / 4 && most > 0.9 * bound);
    const float *b = at(s, "layers.1.mlp.down.lora_B", RIG_MASTER, &elems);
    for (int64_t i = 0; i < elems; i++)
        assert_true(b[i] == 0);
    session_close(s);
}

/* Nothing below the lowest adapter is computed in backward. */
static void frozen_below(void **state)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, SIZES "lora.r=4 lora.target_modules=all-linear");
    for (int u = 0; u < s->units->count; u++) {
        const struct graph *graph = units_kind(s->units, u)->train;
        for (int k = 0; k < graph->inputs; k++)
            assert_int_equal(graph->input[k].frozen, u < 2);
    }
    const struct segment *embed = units_segment(s->units, 0, PHASE_BACKWARD);
    assert_true(rig_flops(embed) == 0 && embed->steps == 0);
    session_close(s);
}

int main(void)
{
    for (int i = 0; i < 4 * SEQ; i++) {
        tokens[i] = (int32_t)(philox_u64(1, (uint64_t)i) % VOCAB);
        targets[i] = i % 7 == 5 ? -1 : (int32_t)(philox_u64(2, (uint64_t)i) % VOCAB);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_models),
        cmocka_unit_test(first_numbers),
        cmocka_unit_test(frozen_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
