/* test_grad_dtype.c - gradients in bf16 (train.grad_dtype): which tensors have them, what bytes
 * they take, what is refused, and that the verifier refuses programs that mix formats or add to
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/rig.h"
#include "verify/verify.h"

#define MODEL                                                                                    \
    "model.layers=2 model.hidden=12 model.heads=2 model.kv_heads=1 model.ffn=20 model.vocab=23 " \
    "data.seq_len=8 train.global_batch=12 precision=bf16 "
#define NARROW "train.grad_dtype=bf16 "

/* Ranks and a layout. */
struct how {
    int ranks;
    const char *text;
};

static const struct how layouts[] = {
    {1, "parallel.strategy=NO_SHARD"},
    {3, "parallel.strategy=NO_SHARD"},
    {3, "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=1000"},
    {3, "parallel.strategy=SHARD_OPTIM"},
    {3, "parallel.strategy=SHARD_GRAD_OP comm.reduce_dtype=bf16"},
    {3, "parallel.strategy=FULL_SHARD model.tie_embeddings=true"},
    {2, "parallel.strategy=FULL_SHARD offload.gradients=disk model.family=gpt2 model.kv_heads=2"},
    {4, "parallel.strategy=HYBRID_SHARD parallel.shard=2 parallel.persist_below=200"},
    {4, "parallel.tensor=2 parallel.strategy=SHARD_OPTIM"},
    {4, "parallel.tensor=2 parallel.strategy=NO_SHARD"},
    {2, "parallel.context=2 parallel.strategy=FULL_SHARD"},
    {1, "parallel.schedule=zb_h1 recompute=full"},
    {2, "parallel.strategy=FULL_SHARD train.freeze=layers.0.* train.optimizer=sgd"},
    {2, "parallel.strategy=FULL_SHARD lora.r=2 lora.target_modules=all-linear"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct config config_of(const char *text, const char *more)
{
    char all[640];
    snprintf(all, sizeof all, MODEL "%s %s", text, more);
    return rig_config(all);
}

static void everywhere(void (*check)(struct fleet *fleet))
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct fleet fleet;
        struct config config = config_of(layouts[i].text, NARROW);
        fleet_open(&fleet, &config, layouts[i].ranks, PROGRAM_TRAIN);
        check(&fleet);
        fleet_close(&fleet);
    }
}

/* ---- which tensors ---- */

static int is_in_bf16(const struct units *units, const char *name)
{
    for (int f = 0; f < units->flats; f++)
        if (flat_find(&units->flat[f], name) >= 0)
            return units->flat[f].grad_dtype == DTYPE_BF16;
    fail_msg("no tensor is called %s", name);
    return 0;
}

/* Matrices of blocks, and not what other ops or other units add to. */
static void test_matrices_of_linear_layers_have_it(void **state)
{
    static const struct {
        const char *text, *narrow[4], *wide[4];
    } models[] = {
        {"",
         {"layers.0.attn.q", "layers.1.attn.v", "layers.1.attn.o", "layers.0.mlp.down"},
         {"embed", "head", "layers.0.norm1", "norm"}},
        {"model.tie_embeddings=true",
         {"layers.0.attn.q", "layers.1.mlp.gate"},
         {"embed", "layers.1.norm2", "norm"}},
        {"model.family=gpt2 model.kv_heads=2",
         {"layers.0.attn.q", "layers.1.mlp.up"},
         {"embed", "layers.0.attn.q.bias", "positions"}},
        {"model.experts=4",
         {"layers.0.attn.q", "layers.1.mlp.router"},
         {"layers.0.mlp.experts.gate_up", "layers.1.mlp.experts.down"}},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct fleet fleet;
        struct config config = config_of(models[i].text, NARROW);
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        for (int k = 0; k < 4 && models[i].narrow[k]; k++)
            assert_true(is_in_bf16(fleet.units, models[i].narrow[k]));
        for (int k = 0; k < 4 && models[i].wide[k]; k++)
            assert_false(is_in_bf16(fleet.units, models[i].wide[k]));
        fleet_close(&fleet);
    }
}

/* ---- bytes ---- */

static size_t grad_bytes(const struct fleet *fleet, int rank)
{
    const struct state *state = fleet->state[rank];
    size_t bytes = 0;
    for (int b = 0; b < state->buffers; b++)
        if (strstr(state->buffer[b].name, ".grad") && state->buffer[b].whole < 0)
            bytes += state->buffer[b].bytes;
    return bytes;
}

/* On one rank all gradients are there: those in bf16 take half. */
static void test_they_take_half_the_bytes(void **state)
{
    struct fleet wide, narrow;
    struct config config = config_of("", "");
    fleet_open(&wide, &config, 1, PROGRAM_TRAIN);
    config = config_of("", NARROW);
    fleet_open(&narrow, &config, 1, PROGRAM_TRAIN);
    size_t saved = 0;
    for (int f = 0; f < narrow.units->flats; f++)
        if (narrow.units->flat[f].grad_dtype == DTYPE_BF16)
            saved += 2 * (size_t)narrow.units->flat[f].padded;
    assert_true(saved > 0);
    assert_int_equal(grad_bytes(&narrow, 0) + saved, grad_bytes(&wide, 0));
    fleet_close(&wide);
    fleet_close(&narrow);
}

/* ---- what is refused ---- */

/* Compile units for the first place; 0, or -1 with err set. */
static int try_units(const char *more, int ranks, struct error *err)
{
    const struct device_request request = {.kind = DEVICE_CPU, .threads = 1};
    struct config config;
    struct layout layout = {0};
    struct model *model = NULL;
    struct units *units = NULL;
    struct device *device;
    const char *list[32];
    char text[640], *rest = text;
    int count = 0;
    snprintf(text, sizeof text, MODEL NARROW "%s", more);
    while (count < 32 && (list[count] = strtok_r(rest, " ", &rest)))
        count++;
    assert_int_equal(device_open(&device, &request, err), 0);
    int rc = config_load(&config, NULL, list, count, err) ||
             layout_resolve(&layout, &config, ranks, 0, DEVICE_CPU, err) ||
             layout_model(&model, &config, err);
    if (!rc) {
        struct units_request of = layout_units(&layout, &config);
        rc = units_create(&units, model, &of, device, err);
    }
    units_destroy(units);
    model_destroy(model);
    layout_release(&layout);
    device_close(device);
    return rc ? -1 : 0;
}

static void test_what_cannot_be_is_refused(void **state)
{
    static const struct {
        int ranks;
        const char *text, *why;
    } wrong[] = {
        {1, "train.micro_batch=4",
         "each rank has 3, whose sum needs fp32: set train.micro_batch=12"},
        {2, "parallel.pipeline=2 train.micro_batch=3", "each rank has 4"},
        {1, "precision=fp32", "of precision bf16, bf16_pure or fp8"},
        {1, "precision=fp16", "of precision bf16, bf16_pure or fp8"},
        {1, "train.optimizer=muon", "train.optimizer muon"},
        {1, "train.freeze=layers.*", "none of those is trained"},
    };
    struct error err = {0};
    if (try_units("", 1, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (!try_units(wrong[i].text, wrong[i].ranks, &err))
            fail_msg("%s is not refused", wrong[i].text);
        if (!strstr(err.text, "train.grad_dtype bf16") || !strstr(err.text, wrong[i].why))
            fail_msg("%s: %s", wrong[i].text, err.text);
    }
}

/* ---- what the verifier refuses ---- */

static void assert_right(const struct program *program)
{
    struct error err = {0};
    if (verify_program(program, &err))
        fail_msg("%s", err.text);
}

static void assert_wrong(const struct program *program, const char *what, int i)
{
    struct error err = {0};
    char text[128] = "";
    instr_text(program, i, text, sizeof text);
    if (!verify_program(program, &err))
        fail_msg("%s at instruction %d (%s) was not noticed", what, i, text);
}

static void check_right(struct fleet *fleet)
{
    for (int r = 0; r < fleet->ranks; r++)
        assert_right(fleet->program[r]);
}

static void test_programs_are_right(void **state)
{
    everywhere(check_right);
}

/* A RUN that adds to a section of a gradient in bf16. */
static void spoil_run(const struct program *program, struct instr *instr, int i)
{
    const struct unit_flats *uses = &program->units->use[instr->unit];
    for (int k = 0; k < uses->count; k++) {
        if (program->units->flat[uses->flat[k]].grad_dtype == DTYPE_F32 ||
            instr->buffer[SPACE_GRAD + k] < 0)
            continue;
        uint64_t accumulate = instr->accumulate, reads = instr->reads;
        instr->accumulate |= segment_adds(k, 0);
        instr->reads |= space_bit(SPACE_GRAD + k);
        assert_wrong(program, "a run that adds to a gradient in bf16", i);
        instr->accumulate = accumulate;
        instr->reads = reads;
    }
}

/* A sum in another format than the gradient's, or one that adds. */
static void spoil_sum(const struct program *program, struct instr *instr, int i)
{
    struct instr was = *instr;
    instr->dtype = was.dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    assert_wrong(program, "a sum in another format", i);
    *instr = was;
    if (instr->kind != INSTR_REDUCE)
        return;
    instr->result = was.result == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    assert_wrong(program, "the result of a sum in another format", i);
    *instr = was;
    instr->accumulate = 1;
    assert_wrong(program, "a sum that adds", i);
    *instr = was;
}

/* A wait left out. */
static void spoil_waits(const struct program *program, struct instr *instr, int i)
{
    for (int s = 0; s < STREAMS; s++) {
        int was = instr->wait[s];
        if (was < 0)
            continue;
        instr->wait[s] = -1;
        assert_wrong(program, "no wait", i);
        instr->wait[s] = was;
    }
}

static int is_of_gradient(const struct instr *instr)
{
    return instr->flat >= 0 && instr->unit < 0 &&
           (instr->kind == INSTR_REDUCE || instr->kind == INSTR_ALLREDUCE);
}

static void check_spoilt(struct fleet *fleet)
{
    struct program *program = fleet->program[fleet->ranks - 1];
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        if (instr->kind == INSTR_RUN)
            spoil_run(program, instr, i);
        if (is_of_gradient(instr))
            spoil_sum(program, instr, i);
        if (is_of_gradient(instr) || instr->kind == INSTR_NORM || instr->kind == INSTR_UPDATE)
            spoil_waits(program, instr, i);
    }
    assert_right(program);
}

static void test_a_wrong_program_is_refused(void **state)
{
    everywhere(check_spoilt);
}

/* The format of a flat is what its products make, and what its buffers have space for. */
static void check_formats(struct fleet *fleet)
{
    for (int f = 0; f < fleet->units->flats; f++) {
        struct flat *flat = &fleet->units->flat[f];
        enum dtype was = flat->grad_dtype;
        if (!flat->trained)
            continue;
        flat->grad_dtype = was == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
        assert_wrong(fleet->program[0], "a flat whose gradient has another format", 0);
        flat->grad_dtype = was;
    }
    assert_right(fleet->program[0]);
}

static void test_a_wrong_format_is_refused(void **state)
{
    everywhere(check_formats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices_of_linear_layers_have_it),
        cmocka_unit_test(test_they_take_half_the_bytes),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_programs_are_right),
        cmocka_unit_test(test_a_wrong_program_is_refused),
        cmocka_unit_test(test_a_wrong_format_is_refused),
    };
    return cmocka_run_group_tests_name("grad_dtype", tests, NULL, NULL);
}
