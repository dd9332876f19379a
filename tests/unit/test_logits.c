/* test_logits.c - the head's logits in chunks of any rows, in fp32 and bf16, in whole steps.
 *
 * Chunks change the order of fp32 sums in dw alone.  Logits x in bf16 are each off by 2^-9 |x| at
 * most, so that a row's loss log(sum of e^x) - x[target] is off by 2 * 2^-9 max |x|, and a softmax
 * p by a factor of e to that; p - 1 at the target moves by less.
 */
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
#include "base/round.h"
#include "tests/unit/rig.h"

enum { SEQ = 37, BATCH = 5, ROWS = SEQ * BATCH, HIDDEN = 36, VOCAB = 1001, LD = 1024 };

#define MODEL                                                                                 \
    "model.layers=1 model.hidden=36 model.heads=3 model.kv_heads=1 model.ffn=41 "             \
    "model.vocab=1001 data.seq_len=37 train.global_batch=5 train.micro_batch=5 train.clip=0 " \
    "train.warmup_steps=0 train.lr=0.001 "

/* The numbers of one step. */
struct outcome {
    double loss;
    float *dw, *dembed; /* [VOCAB, HIDDEN]: of the head's matrix; of what dh comes to */
    uint64_t state;     /* a hash of it afterwards */
    double most;        /* no logit is larger */
    size_t work_bytes, product_bytes; /* scratch of all; of the head's products */
};

static int32_t tokens[ROWS], targets[ROWS];

static void make_data(void)
{
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(philox_u64(5, (uint64_t)i) % VOCAB);
        targets[i] = i % 5 ? (int32_t)(philox_u64(6, (uint64_t)i) % VOCAB) : -1;
    }
}

static float *state_of(const struct session *s, const char *name, enum rig_state which)
{
    int flat;
    const struct flat_tensor *tensor = rig_tensor(s, name, &flat);
    assert_non_null(tensor);
    return rig_state(s, flat, which) + tensor->offset;
}

/* Make the head's matrix larger, so that logits are what training makes of them.  Returns the most
 * that one can be: a row's length times that of what the last norm puts out. */
static double enlarge_head(const struct session *s)
{
    float *w = state_of(s, "head", RIG_MASTER);
    double most = 0;
    for (int64_t i = 0; i < (int64_t)VOCAB * HIDDEN; i++)
        w[i] *= 40;
    for (int64_t row = 0; row < VOCAB; row++) {
        double squares = 0;
        for (int64_t i = 0; i < HIDDEN; i++)
            squares += (double)w[row * HIDDEN + i] * (double)w[row * HIDDEN + i];
        most = fmax(most, sqrt(squares * HIDDEN));
    }
    rig_refresh(s);
    return most;
}

static float *copy_of(const float *from)
{
    size_t bytes = (size_t)VOCAB * HIDDEN * sizeof *from;
    return memcpy(malloc(bytes), from, bytes);
}

/* What the library wants for the head's products in bf16: much, where it makes them of fp32. */
static size_t product_bytes(struct device *d)
{
    const struct gemm all[] = {
        gemm_dense((struct gemm){DTYPE_BF16, DTYPE_F32, 0, 1, ROWS, VOCAB, HIDDEN, .ldc = LD}),
        gemm_dense((struct gemm){DTYPE_BF16, DTYPE_F32, 1, 0, VOCAB, HIDDEN, ROWS, .lda = LD})};
    return max_bytes(d->ops->gemm_scratch(d, &all[0]), d->ops->gemm_scratch(d, &all[1]));
}

static struct outcome one_step(const char *precision, const char *more)
{
    char text[512];
    snprintf(text, sizeof text, MODEL "precision=%s %s", precision, more);
    struct config config = rig_config(text);
    struct mem mem = {0};
    struct error err = {0};
    struct session *s = rig_open(&mem, &config, NULL, 0);
    struct rig_data data = {BATCH, SEQ, tokens, targets};
    struct step_output output;
    rig_init(s);
    struct outcome o = {.most = enlarge_head(s),
                        .work_bytes = s->units->work_bytes,
                        .product_bytes = product_bytes(s->device)};
    struct step_input input = rig_input(s, 1);
    input.load = rig_load;
    input.user = &data;
    if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s: %s", text, err.text);
    o.loss = output.loss;
    o.dw = copy_of(state_of(s, "head", RIG_GRAD));
    o.dembed = copy_of(state_of(s, "embed", RIG_GRAD));
    o.state = rig_hash(s);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
    return o;
}

static void outcome_free(struct outcome *o)
{
    free(o->dw);
    free(o->dembed);
}

/* Of the whole: the length of the difference over the length. */
static double distance(const float *a, const float *b)
{
    double difference = 0, length = 0;
    for (int64_t i = 0; i < (int64_t)VOCAB * HIDDEN; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        length += (double)b[i] * (double)b[i];
    }
    assert_true(length > 0);
    return sqrt(difference / length);
}

static void chunks_change_the_order_of_sums_alone(void **state)
{
    static const char *const precisions[] = {"fp32", "bf16", "bf16 train.logits_dtype=bf16",
                                             "fp16 train.loss_scale=1"};
    static const int chunks[] = {1, 7, 64, 100, 184, ROWS, 100000};
    for (int p = 0; p < 4; p++) {
        /* 2^-24 of a sum; in 16 bits a last bit of a logit may make another one of its gradient */
        const double most = p ? 2e-3 : 1e-5;
        struct outcome whole = one_step(precisions[p], "");
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            char more[64];
            snprintf(more, sizeof more, "train.logits_chunk=%d", chunks[i]);
            struct outcome o = one_step(precisions[p], more), again = one_step(precisions[p], more);
            assert_true(fabs(o.loss - whole.loss) < 1e-5 * whole.loss);
            assert_true(distance(o.dw, whole.dw) < most);
            assert_true(distance(o.dembed, whole.dembed) < most);
            assert_true(o.state == again.state && o.loss == again.loss);
            outcome_free(&o);
            outcome_free(&again);
        }
        outcome_free(&whole);
    }
}

static void bf16_logits_are_within_their_rounding(void **state)
{
    struct outcome wide = one_step("bf16", "");
    struct outcome narrow = one_step("bf16", "train.logits_dtype=bf16");
    double off = wide.most * 0x1p-8;
    double loss = fabs(narrow.loss - wide.loss), dw = distance(narrow.dw, wide.dw);
    double dh = distance(narrow.dembed, wide.dembed);
    print_message("logits below %.1f; loss off by %.2g of %.2g, dw by %.2g, dembed by %.2g\n",
                  wide.most, loss, off, dw, dh);
    assert_true(loss > 0 && loss <= off);
    assert_true(dw > 0 && dw <= expm1(off) + 0x1p-8);
    assert_true(loss < 2e-3 && dw < 2e-2 && dh < 4e-2); /* most logits are a tenth of the largest */
    outcome_free(&wide);
    outcome_free(&narrow);
}

/* All that a segment needs but logits is far less here. */
static void memory_is_that_of_the_chunk(void **state)
{
    static const struct {
        const char *more;
        int64_t rows;
    } cases[] = {{"train.logits_chunk=100", 100},
                 {"train.logits_chunk=185", ROWS},
                 {"train.logits_chunk=9999", ROWS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct outcome o = one_step("bf16", cases[i].more);
        size_t logits = (size_t)(cases[i].rows * LD) * sizeof(float);
        size_t others = ROWS * (HIDDEN * 16 + 64) + o.product_bytes;
        assert_true(o.work_bytes >= logits && o.work_bytes < logits + others);
        outcome_free(&o);
    }
}

/* The scratch of a GPU's segments, as it is planned. */
static size_t planned(const char *more)
{
    char text[512];
    snprintf(text, sizeof text, MODEL "precision=bf16 %s", more);
    struct config config = rig_config(text);
    struct layout layout;
    struct device *device;
    struct model *model;
    struct units *units;
    struct error err = {0};
    assert_int_equal(layout_resolve(&layout, &config, 1, 1, DEVICE_CUDA, &err), 0);
    assert_int_equal(layout_model(&model, &config, &err), 0);
    assert_int_equal(
        device_open(&device, &(struct device_request){.kind = DEVICE_CUDA, .planning = 1}, &err),
        0);
    struct units_request request = rig_units(&layout, &config, model);
    assert_int_equal(units_create(&units, model, &request, device, &err), 0);
    size_t bytes = units->work_bytes;
    units_destroy(units);
    model_destroy(model);
    device_close(device);
    layout_release(&layout);
    return bytes;
}

/* CPUs keep a product's sums beside a 16-bit result. */
static void bf16_takes_half_of_it_on_gpus(void **state)
{
    static const int64_t chunks[] = {64, 100, ROWS};
    for (int i = 0; i < 3; i++) {
        char wide[64], narrow[96];
        snprintf(wide, sizeof wide, "train.logits_chunk=%lld", (long long)chunks[i]);
        snprintf(narrow, sizeof narrow, "%s train.logits_dtype=bf16", wide);
        assert_int_equal(planned(wide) - planned(narrow), chunks[i] * LD * 2);
    }
}

static void other_precisions_are_refused(void **state)
{
    static const char *const precisions[] = {"precision=fp32", "precision=fp16"};
    for (int i = 0; i < 2; i++) {
        struct config config;
        struct error err = {0};
        const char *const overrides[] = {"model.preset=llama-tiny", precisions[i],
                                         "train.logits_dtype=bf16"};
        assert_int_equal(config_load(&config, NULL, overrides, 3, &err), -1);
        assert_non_null(strstr(err.text, "train.logits_dtype"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_change_the_order_of_sums_alone),
        cmocka_unit_test(bf16_logits_are_within_their_rounding),
        cmocka_unit_test(memory_is_that_of_the_chunk),
        cmocka_unit_test(bf16_takes_half_of_it_on_gpus),
        cmocka_unit_test(other_precisions_are_refused),
    };
    make_data();
    return cmocka_run_group_tests_name("logits", tests, NULL, NULL);
}
