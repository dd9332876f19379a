/* test_hf_tensors.c - where Hugging Face's files have experts: their names, and of parts of boxes
 * of them, as ranks hold them, every number, in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/philox.h"
#include "tests/unit/rig.h"
#include "train/hf_tensors.h"

#define MODEL                                                                                   \
    "model.layers=2 model.hidden=32 model.heads=4 model.ffn=12 model.vocab=53 model.experts=3 " \
    "data.seq_len=8 "

static struct error err;

static struct model *open_model(const char *settings)
{
    struct config config = rig_config(settings);
    struct model *model;
    if (model_create(&model, &config.model, &err))
        fail_msg("%s", err.text);
    return model;
}

static const struct {
    const char *settings, *own;
    enum hf_tensors_files files;
    int64_t matrix;
    const char *hf; /* NULL: there is none */
} names[] = {
    {MODEL, "layers.1.mlp.router", HF_MODEL, 0, "model.layers.1.block_sparse_moe.gate.weight"},
    {MODEL, "layers.1.mlp.experts.gate_up", HF_MODEL, 4,
     "model.layers.1.block_sparse_moe.experts.2.w1.weight"},
    {MODEL, "layers.1.mlp.experts.gate_up", HF_MODEL, 3,
     "model.layers.1.block_sparse_moe.experts.1.w3.weight"},
    {MODEL, "layers.10.mlp.experts.down", HF_MODEL, 2,
     "model.layers.10.block_sparse_moe.experts.2.w2.weight"},
    {MODEL "model.qk_norm=true", "layers.0.mlp.router", HF_MODEL, 0,
     "model.layers.0.mlp.gate.weight"},
    {MODEL "model.qk_norm=true", "layers.0.mlp.experts.gate_up", HF_MODEL, 4,
     "model.layers.0.mlp.experts.2.gate_proj.weight"},
    {MODEL "model.qk_norm=true", "layers.0.mlp.experts.gate_up", HF_MODEL, 255,
     "model.layers.0.mlp.experts.127.up_proj.weight"},
    {MODEL "model.qk_norm=true", "layers.0.mlp.experts.down", HF_MODEL, 2,
     "model.layers.0.mlp.experts.2.down_proj.weight"},
    {MODEL, "layers.0.mlp.router", HF_FUSED, 0, "model.layers.0.mlp.gate.weight"},
    {MODEL, "layers.0.mlp.experts.gate_up", HF_FUSED, 0, "model.layers.0.mlp.experts.gate_up_proj"},
    {MODEL, "layers.0.mlp.experts.down", HF_FUSED, 0, "model.layers.0.mlp.experts.down_proj"},
    {MODEL, "layers.0.attn.q", HF_FUSED, 0, "model.layers.0.self_attn.q_proj.weight"},
    {MODEL, "layers.0.mlp.experts.up", HF_MODEL, 0, NULL},
};

static void test_names(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct model *model = open_model(names[i].settings);
        struct model_place place;
        const struct hf_tensors_name name = {names[i].own, names[i].matrix};
        int rc = hf_tensors_place(model, names[i].files, name, &place);
        assert_int_equal(rc, names[i].hf ? 0 : -1);
        if (!rc)
            assert_string_equal(place.name, names[i].hf);
        model_destroy(model);
    }
}

static void test_shapes(void **state)
{
    const struct box box = box_whole(4, (const int64_t[]){3, 2, 12, 32});
    const struct model_place one = {.stacked = 1, .is_matrix = 1}, all = {.stacked = 1};
    int64_t dim[BOX_DIMS];
    assert_int_equal(hf_tensors_shape(&one, HF_MODEL, &box, dim), 2);
    assert_true(dim[0] == 12 && dim[1] == 32);
    assert_int_equal(hf_tensors_shape(&all, HF_FUSED, &box, dim), 3);
    assert_true(dim[0] == 3 && dim[1] == 24 && dim[2] == 32);
    assert_int_equal(hf_tensors_count(&one, &box), 6);
    assert_int_equal(hf_tensors_count(&all, &box), 1);
}

static int64_t below(uint64_t *draw, int64_t count)
{
    return (int64_t)(philox_u64(7, (*draw)++) % (uint64_t)count);
}

/* A box of a tensor of 2 to 4 dimensions, of any part of each. */
static struct box some_box(uint64_t *draw)
{
    struct box box = {.dims = 2 + (int)below(draw, 3)};
    for (int d = 0; d < box.dims; d++) {
        box.whole[d] = 1 + below(draw, 7);
        box.count[d] = 1 + below(draw, box.whole[d]);
        box.start[d] = below(draw, box.whole[d] - box.count[d] + 1);
    }
    return box;
}

/* The number in the whole tensor of element `at` of a box. */
static int64_t number_of(const struct box *box, int64_t at)
{
    int64_t number = 0, weight = 1;
    for (int d = box->dims - 1; d >= 0; d--) {
        number += (box->start[d] + at % box->count[d]) * weight;
        at /= box->count[d];
        weight *= box->whole[d];
    }
    return number;
}

/* Every element of a part is in one run of one stored tensor, and is there the number that it is in
 * the whole tensor. */
static void test_parts(void **state)
{
    uint64_t draw = 0;
    for (int i = 0; i < 3000; i++) {
        const struct box box = some_box(&draw);
        const struct model_place place = {.stacked = 1, .is_matrix = (int)below(&draw, 2)};
        int64_t elems = box_elems(&box), start = below(&draw, elems);
        int64_t count = 1 + below(&draw, elems - start), each = 1;
        char *seen = calloc((size_t)count, 1);
        struct hf_tensors_stored stored = {0};
        for (int d = place.is_matrix ? box.dims - 2 : 0; d < box.dims; d++)
            each *= box.whole[d];
        while (hf_tensors_next_stored(&place, &box, start, count, &stored)) {
            struct hf_tensors_runs runs =
                hf_tensors_runs(&place, &stored.box, stored.start, stored.count);
            struct hf_tensors_run run;
            assert_in_range(stored.matrix, 0, hf_tensors_count(&place, &box) - 1);
            while (hf_tensors_next_run(&runs, INT64_MAX, &run))
                for (int64_t k = 0; k < run.count; k++) {
                    int64_t at = stored.at + run.to + k * run.step;
                    assert_in_range(at, 0, count - 1);
                    assert_int_equal(seen[at]++, 0);
                    assert_true(stored.matrix * each + run.at + k == number_of(&box, start + at));
                }
        }
        assert_null(memchr(seen, 0, (size_t)count));
        free(seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests_name("hf_tensors", tests, NULL, NULL);
}
