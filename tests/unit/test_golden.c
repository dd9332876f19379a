/* test_golden.c - trireme against PyTorch and Hugging Face's Llama and GPT-2, whose results are in
 * tests/golden/: logits, loss, every gradient, and ten steps of AdamW, on every CPU level.
 *
 * Both sides are fp32 sums of some hundred terms through a few layers: some dozen units of 2^-24
 * of the largest value.  The bounds leave that about ten times over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "tests/unit/h5_data.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

static struct error err;

/* One golden file with the level and the micro-batch to compute it with. */
struct golden {
    struct h5 *file;
    struct mem mem;
    struct config config;
    struct session *s;
    int64_t batch, seq, vocab;
    int32_t *tokens, *targets; /* of step 0, [batch, seq] */
    int32_t *documents;        /* where packed: of each row, the first row of its document */
    const char *level, *name;
};

static int64_t whole(struct h5 *file, const char *key)
{
    int64_t value = 0;
    assert_int_equal(h5_get_value(file, "/", key, H5_TYPE_I64, &value, &err), 0);
    return value;
}

static double real(struct h5 *file, const char *key)
{
    double value = 0;
    assert_int_equal(h5_get_value(file, "/", key, DTYPE_F64, &value, &err), 0);
    return value;
}

static void *data_of(struct h5 *file, const char *name, int type, struct h5_dataset *dataset)
{
    void *data = NULL;
    if (h5_read(file, name, type, &data, dataset, &err))
        fail_msg("%s", err.text);
    return data;
}

static double number(struct h5 *file, const char *name)
{
    double *data = data_of(file, name, DTYPE_F64, NULL), value = data[0];
    free(data);
    return value;
}

static int is_gpt2(struct h5 *file)
{
    int64_t value = 0;
    return !h5_get_value(file, "/", "gpt2", H5_TYPE_I64, &value, NULL) && value;
}

/* The keys of positions: learned, rotated, or rotated and stretched. */
static void positions_of(struct h5 *file, char text[512])
{
    if (is_gpt2(file)) {
        snprintf(text, 512, " model.family=gpt2 model.max_seq_len=%d",
                 (int)whole(file, "max_seq_len"));
        return;
    }
    int at = snprintf(text, 512, " model.rope_theta=%.17g", real(file, "rope_theta"));
    if (whole(file, "tied")) /* the case with stretched positions */
        snprintf(text + at, 512 - (size_t)at,
                 " model.rope_scaling=llama3 model.rope_factor=%g model.rope_low_freq_factor=%g "
                 "model.rope_high_freq_factor=%g model.rope_original_len=%d",
                 real(file, "rope_factor"), real(file, "rope_low_freq_factor"),
                 real(file, "rope_high_freq_factor"), (int)whole(file, "rope_original_len"));
}

/* The configuration the file describes, every sequence a micro-batch of `micro`; packing: config
 * data.packing. */
static struct config config_of(struct h5 *file, int64_t micro, const char *packing)
{
    static const char *const wholes[] = {"layers",   "hidden", "heads", "kv_heads",
                                         "head_dim", "ffn",    "vocab"};
    static const char *const reals[] = {"lr", "beta1", "beta2", "eps", "weight_decay", "clip"};
    char text[2048], positions[512];
    int at = snprintf(text, sizeof text,
                      "model.norm_eps=%.17g model.tie_embeddings=%d "
                      "data.seq_len=%d train.global_batch=%d train.micro_batch=%d "
                      "train.schedule=constant parallel.strategy=NO_SHARD data.packing=%s",
                      real(file, "norm_eps"), (int)whole(file, "tied"), (int)whole(file, "seq"),
                      (int)whole(file, "batch"), (int)micro, packing);
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " model.%s=%d", wholes[i],
                       (int)whole(file, wholes[i]));
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " train.%s=%.17g", reals[i],
                       real(file, reals[i]));
    positions_of(file, positions);
    snprintf(text + at, sizeof text - (size_t)at, "%s", positions);
    return rig_config(text);
}

/* Step `step`'s inputs, and the tokens one later as targets. */
static void take_step(struct golden *g, int64_t step)
{
    int32_t *all = data_of(g->file, "tokens", DTYPE_I32, NULL);
    for (int64_t b = 0; b < g->batch; b++) {
        const int32_t *row = all + (step * g->batch + b) * (g->seq + 1);
        memcpy(g->tokens + b * g->seq, row, (size_t)g->seq * sizeof *row);
        memcpy(g->targets + b * g->seq, row + 1, (size_t)g->seq * sizeof *row);
    }
    free(all);
}

/* The golden tensor of the same name under group. */
static float *golden_of(struct golden *g, const char *group, const struct flat_tensor *tensor)
{
    char name[128];
    struct h5_dataset dataset;
    snprintf(name, sizeof name, "%s/%s", group, tensor->name);
    float *data = data_of(g->file, name, DTYPE_F32, &dataset);
    assert_int_equal(dataset.elems, tensor->elems);
    assert_int_equal(dataset.rank, tensor->box.dims);
    return data;
}

static void golden_weights(struct golden *g)
{
    g->s->config.seed = 0;
    rig_init(g->s);
    for (int u = 0; u < g->s->units->count; u++)
        for (int t = 0; t < g->s->units->flat[u].tensors; t++) {
            const struct flat_tensor *tensor = &g->s->units->flat[u].tensor[t];
            float *weight = golden_of(g, "weights", tensor);
            memcpy(rig_state(g->s, u, RIG_MASTER) + tensor->offset, weight,
                   (size_t)tensor->elems * sizeof *weight);
            free(weight);
        }
}

static int load_positions(void *user, const struct step_batch *batch, struct error *why)
{
    const struct golden *g = user;
    int64_t rows = g->s->layout.micro_batch * g->seq;
    for (int64_t i = 0; i < rows; i++) {
        int32_t document = g->documents[batch->micro * rows + i];
        if (batch->positions[0])
            batch->positions[0][i] = (int32_t)(i % g->seq) - document;
        if (batch->documents[0])
            batch->documents[0][i] = document;
    }
    return 0;
}

static int load(void *user, const struct step_batch *batch, struct error *why)
{
    const struct golden *g = user;
    struct rig_data data = {g->s->layout.micro_batch, g->seq, g->tokens, g->targets};
    return rig_load(&data, batch, why);
}

static struct step_output run(struct golden *g, int64_t step)
{
    struct step_input input = rig_input(g->s, step);
    struct step_output output;
    input.load = load;
    input.load_positions = load_positions;
    input.user = g;
    if (executor_run_step(g->s->executor, g->s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    return output;
}

/* The largest difference of a tensor of the state, times factor, from the golden one, relative to
 * the largest golden value. */
static double worst(struct golden *g, const char *group, enum rig_state which,
                    const struct flat_tensor *tensor, int flat, double factor)
{
    float *want = golden_of(g, group, tensor);
    const float *got = rig_state(g->s, flat, which) + tensor->offset;
    double error = 0, size = 0;
    for (int64_t i = 0; i < tensor->elems; i++) {
        double off = fabs(got[i] * factor - want[i]);
        error = off <= error ? error : off; /* NaN stays */
        size = fmax(size, fabs(want[i]));
    }
    free(want);
    return error / size;
}

/* The same added to all keys changes no softmax: this gradient is 0 but for roundings, and AdamW
 * makes steps of any length of those. */
static int is_without_effect(const struct flat_tensor *tensor)
{
    size_t length = strlen(tensor->name), end = strlen("attn.k.bias");
    return length >= end && !strcmp(tensor->name + length - end, "attn.k.bias");
}

static void check_zero(struct golden *g, const struct flat_tensor *tensor, int flat)
{
    const float *grad = rig_state(g->s, flat, RIG_GRAD) + tensor->offset;
    for (int64_t i = 0; i < tensor->elems; i++)
        assert_true(fabsf(grad[i]) <= 1e-7f);
}

static double worst_of_all(struct golden *g, const char *group, enum rig_state which, double factor,
                           double tolerance)
{
    double most = 0;
    for (int u = 0; u < g->s->units->count; u++)
        for (int t = 0; t < g->s->units->flat[u].tensors; t++) {
            const struct flat_tensor *tensor = &g->s->units->flat[u].tensor[t];
            if (is_without_effect(tensor)) {
                check_zero(g, tensor, u);
                continue;
            }
            double error = worst(g, group, which, tensor, u, factor);
            if (!(error <= tolerance))
                fail_msg("%s: %s/%s is off by %g of its largest value", g->level, group,
                         tensor->name, error);
            most = fmax(most, error);
        }
    return most;
}

/* Logits of every position, asked for one by one. */
static void check_logits(struct golden *g)
{
    float *want = data_of(g->file, "logits", DTYPE_F32, NULL);
    double most = 0;
    for (int64_t row = 0; row < g->batch * g->seq; row++) {
        const float *got =
            rig_logits(g->s, g->tokens + row / g->seq * g->seq, g->seq, row % g->seq);
        for (int64_t i = 0; i < g->vocab; i++) {
            double off = fabs(got[i] - want[row * g->vocab + i]);
            most = off <= most ? most : off;
        }
    }
    free(want);
    print_message("%-8s logits off by %.2g\n", g->level, most);
    assert_true(most <= 1e-4);
}

/* Gradients in the state are sums over targets, divided by how many there could be. */
static void check_first_step(struct golden *g)
{
    struct step_output output = run(g, 1);
    double off = fabs(output.loss - number(g->file, "loss"));
    double most = worst_of_all(g, "grads", RIG_GRAD, 1, 1e-4);
    print_message("%-8s loss off by %.2g, gradients by %.2g of their largest\n", g->level, off,
                  most);
    assert_true(off <= 1e-5);
    assert_true(output.targets == (double)(g->batch * g->seq));
}

/* Targets that do not count, in a group of `file`: loss, norm and some gradients. */
static void check_some(struct golden *g, struct h5 *file, const char *group)
{
    static const char *const few[] = {"embed", "norm", "layers.0.norm1", "layers.1.attn.k",
                                      "layers.0.mlp.down"};
    struct h5 *own = g->file;
    char name[4][96];
    static const char *const parts[] = {"targets", "loss", "grad_norm", "grads"};
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s/%s", group, parts[i]);
    int32_t *targets = data_of(file, name[0], DTYPE_I32, NULL);
    double count = 0, most = 0;
    for (int64_t i = 0; i < g->batch * g->seq; i++) {
        g->targets[i] = targets[i] < 0 ? -1 : targets[i];
        count += targets[i] >= 0;
    }
    free(targets);
    struct step_output output = run(g, 1);
    double off = fabs(output.loss - number(file, name[1]));
    double norm_off = fabs(output.grad_norm / number(file, name[2]) - 1);
    g->file = file;
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        int flat;
        const struct flat_tensor *tensor = rig_tensor(g->s, few[i], &flat);
        double error =
            worst(g, name[3], RIG_GRAD, tensor, flat, (double)(g->batch * g->seq) / count);
        most = error <= most ? most : error;
    }
    g->file = own;
    print_message("%-8s %s: loss off by %.2g, norm by %.2g, gradients by %.2g\n", g->level, group,
                  off, norm_off, most);
    assert_true(output.targets == count);
    assert_true(off <= 1e-5);
    assert_true(norm_off <= 1e-5);
    assert_true(most <= 1e-4);
}

static void check_masked(struct golden *g)
{
    check_some(g, g->file, "masked");
}

/* Packed documents, which Hugging Face's models are given as a mask and positions. */
static void check_packed(struct golden *g)
{
    struct h5 *file;
    char name[96];
    snprintf(name, sizeof name, "%s/documents", g->name);
    if (h5_open(&file, GOLDEN_DIR "/packed.h5", &err))
        fail_msg("%s", err.text);
    free(g->documents);
    g->documents = data_of(file, name, DTYPE_I32, NULL);
    check_some(g, file, g->name);
    h5_close(file, NULL);
}

static void check_training(struct golden *g)
{
    double *losses = data_of(g->file, "losses", DTYPE_F64, NULL);
    double *norms = data_of(g->file, "grad_norms", DTYPE_F64, NULL);
    double loss_off = 0, norm_off = 0;
    int64_t steps = whole(g->file, "steps");
    assert_int_equal(steps, 10);
    for (int64_t step = 0; step < steps; step++) {
        take_step(g, step);
        struct step_output output = run(g, step + 1);
        loss_off = fmax(loss_off, fabs(output.loss - losses[step]));
        norm_off = fmax(norm_off, fabs(output.grad_norm / norms[step] - 1));
        assert_false(isnan(output.loss) || isnan(output.grad_norm));
    }
    double most = worst_of_all(g, "final", RIG_MASTER, 1, 1e-4);
    print_message("%-8s %d steps: losses off by %.2g, norms by %.2g, weights by %.2g\n", g->level,
                  (int)steps, loss_off, norm_off, most);
    assert_true(loss_off <= 1e-5);
    assert_true(norm_off <= 1e-5);
    free(losses);
    free(norms);
}

static void open_golden(struct golden *g, const char *name, const char *level, int64_t micro,
                        const char *packing)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.h5", GOLDEN_DIR, name);
    *g = (struct golden){.level = level, .name = name};
    if (h5_open(&g->file, path, &err))
        fail_msg("%s", err.text);
    g->batch = whole(g->file, "batch");
    g->seq = whole(g->file, "seq");
    g->vocab = whole(g->file, "vocab");
    g->config = config_of(g->file, micro ? micro : g->batch, packing);
    g->s = rig_open(&g->mem, &g->config, level, 1);
    assert_int_equal(g->s->layout.micros, micro ? g->batch / micro : 1);
    size_t elems = (size_t)(g->batch * g->seq);
    g->tokens = calloc(elems, sizeof *g->tokens);
    g->targets = calloc(elems, sizeof *g->targets);
    take_step(g, 0);
    golden_weights(g);
}

static void close_golden(struct golden *g)
{
    session_close(g->s);
    h5_close(g->file, NULL);
    free(g->tokens);
    free(g->targets);
    free(g->documents);
    assert_int_equal(g->mem.blocks, 0);
}

/* Every case, on every level, whole and in micro-batches of one sequence. */
static void everywhere(void (*check)(struct golden *), const char *packing)
{
    static const char *const cases[] = {"llama_untied", "llama_tied_scaled", "gpt2"};
    for (int i = 0; i < 3; i++)
        for (int level = 0; device_cpu_level(level); level++)
            for (int64_t micro = 0; micro < 2; micro++) {
                struct golden g;
                open_golden(&g, cases[i], device_cpu_level(level), micro, packing);
                check(&g);
                close_golden(&g);
            }
}

static void test_logits(void **state)
{
    everywhere(check_logits, "stream");
}

static void test_loss_and_gradients(void **state)
{
    everywhere(check_first_step, "stream");
}

static void test_masked_targets(void **state)
{
    everywhere(check_masked, "stream");
}

static void test_packed_documents(void **state)
{
    everywhere(check_packed, "documents");
}

static void test_ten_steps(void **state)
{
    everywhere(check_training, "stream");
}

/* The folder that transformers has saved of the same model: its config.json says what the golden
 * file says, and its weights are the same bits. */
static void test_folders(void **state)
{
    static const char *const names[] = {"llama_tied_scaled", "gpt2"};
    for (int i = 0; i < 2; i++) {
        struct golden g;
        char text[1024];
        const char *source = getenv("srcdir");
        open_golden(&g, names[i], NULL, 1, "stream");
        snprintf(text, sizeof text,
                 "model.path=%s/tests/golden/%s.hf parallel.strategy=NO_SHARD data.seq_len=%d",
                 source ? source : ".", names[i], (int)g.seq);
        struct config config = rig_config(text);
        struct config_model model = config.model, wanted = g.config.model;
        model.init_std = wanted.init_std;
        model.max_seq_len = wanted.max_seq_len;
        if (!strcmp(model.family, "gpt2"))
            model.rope = wanted.rope;
        assert_memory_equal(&model, &wanted, sizeof model);
        g.config.train.global_batch = 1;
        memcpy(g.s->config.model_path, config.model_path, sizeof config.model_path);
        rig_init(g.s);
        if (weights_import(g.s, &err))
            fail_msg("%s", err.text);
        for (int f = 0; f < g.s->units->flats; f++)
            for (int t = 0; t < g.s->units->flat[f].tensors; t++) {
                const struct flat_tensor *tensor = &g.s->units->flat[f].tensor[t];
                float *want = golden_of(&g, "weights", tensor);
                assert_memory_equal(rig_state(g.s, f, RIG_MASTER) + tensor->offset, want,
                                    (size_t)tensor->elems * sizeof *want);
                free(want);
            }
        close_golden(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),           cmocka_unit_test(test_loss_and_gradients),
        cmocka_unit_test(test_masked_targets),   cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_packed_documents), cmocka_unit_test(test_folders),
    };
    h5_setup();
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
