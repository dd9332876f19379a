/* test_families.c - families of decoders against Hugging Face's own code, whose folders and results
 * are in tests/golden/families/ (families.py): logits, loss and every gradient, on every CPU level;
 * and the config.json that is written of them.
 *
 * The models are read by model.path, so that config.json, the names of tensors and what is computed
 * are tested together.  Both sides are fp32: bounds are some ten times what roundings make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <math.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/json.h"
#include "config/hf.h"
#include "tests/unit/h5_data.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

static struct error err;

/* A folder, and the model_type that is written of it: a Mistral without a window is a Llama,
 * and a Phi-3 a Llama whose matrices are taken apart. */
static const struct {
    const char *name, *type, *architecture;
} cases[] = {
    {"llama_linear", "llama", "LlamaForCausalLM"},
    {"llama_yarn", "llama", "LlamaForCausalLM"},
    {"llama_yarn_mscale", "llama", "LlamaForCausalLM"},
    {"llama_yarn_factor", "llama", "LlamaForCausalLM"},
    {"mistral_window", "mistral", "MistralForCausalLM"},
    {"mistral_plain", "llama", "LlamaForCausalLM"},
    {"qwen2_tied", "qwen2", "Qwen2ForCausalLM"},
    {"qwen2_window", "qwen2", "Qwen2ForCausalLM"},
    {"qwen2_yarn", "qwen2", "Qwen2ForCausalLM"},
    {"qwen3_untied", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3_tied", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3_window", "qwen3", "Qwen3ForCausalLM"},
    {"mixtral", "mixtral", "MixtralForCausalLM"},
    {"mixtral_window", "mixtral", "MixtralForCausalLM"},
    {"qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
    {"qwen3_moe_sums", "qwen3_moe", "Qwen3MoeForCausalLM"},
    {"phi3", "llama", "LlamaForCausalLM"},
    {"phi3_window", "mistral", "MistralForCausalLM"},
};
enum { CASES = sizeof cases / sizeof cases[0], BATCH = 2, SEQ = 21, VOCAB = 29 };

struct family {
    const char *name;
    char folder[512];
    struct h5 *expected;
    struct mem mem;
    struct config config;
    struct session *s;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
};

static void *data_of(const struct family *f, const char *name, int type)
{
    void *data = NULL;
    if (h5_read(f->expected, name, type, &data, NULL, &err))
        fail_msg("%s", err.text);
    return data;
}

static void read_tokens(struct family *f)
{
    int32_t *all = data_of(f, "tokens", DTYPE_I32);
    for (int64_t b = 0; b < BATCH; b++) {
        memcpy(f->tokens + b * SEQ, all + b * (SEQ + 1), SEQ * sizeof *all);
        memcpy(f->targets + b * SEQ, all + b * (SEQ + 1) + 1, SEQ * sizeof *all);
    }
    free(all);
}

/* Take weights from the folder, or from the one of gradients within it. */
static void import(struct family *f, const char *within)
{
    size_t most = sizeof f->s->config.model_path;
    int length = snprintf(f->s->config.model_path, most, "%s%s", f->folder, within);
    assert_in_range(length, 1, most - 1);
    if (weights_import(f->s, &err))
        fail_msg("%s: %s", f->name, err.text);
}

static void open_family(struct family *f, int i, const char *level, int micro)
{
    char text[1024], *path;
    *f = (struct family){.name = cases[i].name};
    snprintf(f->folder, sizeof f->folder, "%s/families/%s", GOLDEN_DIR, f->name);
    path = array_format("%s/expected.h5", f->folder);
    if (h5_open(&f->expected, path, &err))
        fail_msg("%s", err.text);
    free(path);
    snprintf(text, sizeof text,
             "model.path=%s data.seq_len=%d train.global_batch=%d train.micro_batch=%d "
             "train.schedule=constant parallel.strategy=NO_SHARD",
             f->folder, SEQ, BATCH, micro);
    f->config = rig_config(text);
    f->s = rig_open(&f->mem, &f->config, level, 1);
    read_tokens(f);
    rig_init(f->s);
    import(f, "");
    rig_refresh(f->s);
}

static void close_family(struct family *f)
{
    session_close(f->s);
    h5_close(f->expected, NULL);
    assert_int_equal(f->mem.blocks, 0);
}

static double logits_off(struct family *f)
{
    float *want = data_of(f, "logits", DTYPE_F32);
    double most = 0;
    for (int64_t row = 0; row < BATCH * SEQ; row++) {
        const float *got = rig_logits(f->s, f->tokens + row / SEQ * SEQ, SEQ, row % SEQ);
        for (int64_t i = 0; i < VOCAB; i++) {
            double off = fabs(got[i] - want[row * VOCAB + i]);
            most = off <= most ? most : off; /* NaN stays */
        }
    }
    free(want);
    return most;
}

/* The largest difference of a tensor's gradient from what the folder of gradients has put in the
 * place of its weights, relative to the largest of these. */
static double gradient_off(struct family *f, int flat, const struct flat_tensor *tensor)
{
    const float *got = rig_state(f->s, flat, RIG_GRAD) + tensor->offset;
    const float *want = rig_state(f->s, flat, RIG_MASTER) + tensor->offset;
    double error = 0, size = 1e-6;
    for (int64_t i = 0; i < tensor->elems; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        error = off <= error ? error : off;
        size = fmax(size, fabs((double)want[i]));
    }
    return error / size;
}

static void check_family(struct family *f, const char *level)
{
    double logits = logits_off(f), most = 0, *loss = data_of(f, "loss", DTYPE_F64);
    struct rig_data data = {f->s->layout.micro_batch, SEQ, f->tokens, f->targets};
    struct step_input input = rig_input(f->s, 1);
    struct step_output output;
    input.load = rig_load;
    input.user = &data;
    if (executor_run_step(f->s->executor, f->s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    import(f, "/grads");
    for (int u = 0; u < f->s->units->flats; u++)
        for (int t = 0; t < f->s->units->flat[u].tensors; t++) {
            const struct flat_tensor *tensor = &f->s->units->flat[u].tensor[t];
            double off = gradient_off(f, u, tensor);
            if (!(off <= 1e-4))
                fail_msg("%s, %s: the gradient of %s is off by %g of its largest value", f->name,
                         level, tensor->name, off);
            most = fmax(most, off);
        }
    double loss_off = fabs(output.loss - loss[0]);
    print_message("%-18s %-8s off: logits %.2g, loss %.2g, gradients %.2g of their largest\n",
                  f->name, level, logits, loss_off, most);
    assert_true(logits <= 1e-4);
    assert_true(loss_off <= 1e-5);
    free(loss);
}

static void test_numbers(void **state)
{
    for (int i = 0; i < CASES; i++)
        for (int level = 0; device_cpu_level(level); level++) {
            struct family f;
            open_family(&f, i, device_cpu_level(level), 1 + level % BATCH);
            check_family(&f, device_cpu_level(level));
            close_family(&f);
        }
}

/* What is written of a model that was read says the same of it. */
static void test_written_config(void **state)
{
    char folder[] = "/tmp/trireme-families-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = array_format("%s/config.json", folder);
    for (int i = 0; i < CASES; i++) {
        char text[1024];
        snprintf(text, sizeof text, "model.path=%s/families/%s data.seq_len=%d", GOLDEN_DIR,
                 cases[i].name, SEQ);
        struct config read = rig_config(text);
        if (hf_write_config(&read, DTYPE_F32, NULL, folder, &err))
            fail_msg("%s", err.text);
        struct js *json = js_read(path, &err);
        assert_string_equal(js_get_string(json, "model_type", ""), cases[i].type);
        assert_string_equal(js_at_string(js_get(json, "architectures"), 0, ""),
                            cases[i].architecture);
        js_free(json);
        snprintf(text, sizeof text, "model.path=%s data.seq_len=%d", folder, SEQ);
        struct config back = rig_config(text);
        assert_memory_equal(&read.model, &back.model, sizeof read.model);
        assert_string_equal(back.model_note, "");
    }
    unlink(path);
    rmdir(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_written_config),
    };
    h5_setup();
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
