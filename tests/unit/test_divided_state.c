/* test_divided_state.c - the state of a model whose layers are divided among ranks: it begins with
 * the numbers of the whole model, and what any number of tensor ranks and shards saved, any other
 * loads, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/philox.h"
#include "io/disk.h"
#include "tests/unit/divided.h"
#include "train/weights.h"

#define MODEL                                                                     \
    "model.layers=2 model.hidden=20 model.heads=2 model.kv_heads=2 model.ffn=12 " \
    "model.vocab=51 data.seq_len=12 train.global_batch=2 train.micro_batch=1 "

enum { TENSORS = 4, SHARDS = 2, FLEETS = TENSORS * SHARDS };

static char folder[64];

/* All ranks of a layout, each with its memory. */
struct divided_fleet {
    struct divided d;
    struct session *session; /* per rank */
    struct program *idle;    /* of each rank, with memory but without instructions: no mesh */
    struct mem mem;
};

static void must(int rc, const struct error *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

static void open_fleet(struct divided_fleet *fleet, const char *settings, int tensors, int shards)
{
    struct error err = {0};
    char text[512];
    snprintf(text, sizeof text, "%s %s parallel.shard=%d", MODEL, settings, shards);
    *fleet = (struct divided_fleet){0};
    divided_open(&fleet->d, text, tensors);
    fleet->session = calloc((size_t)fleet->d.ranks, sizeof *fleet->session);
    fleet->idle = calloc((size_t)fleet->d.ranks, sizeof *fleet->idle);
    for (int r = 0; r < fleet->d.ranks; r++) {
        struct session *s = &fleet->session[r];
        const struct program *program = &fleet->idle[r];
        fleet->idle[r] = *fleet->d.program[r];
        fleet->idle[r].instrs = 0;
        *s = (struct session){.config = rig_config(text),
                              .layout = fleet->d.layout,
                              .device = fleet->d.device,
                              .units = fleet->d.units[r],
                              .state = fleet->d.state[r]};
        must(executor_create(&s->executor, s->device, NULL, &fleet->mem, &program, 1, NULL, "",
                             &err),
             &err);
        must(weights_init(s, &err), &err);
    }
}

static void close_fleet(struct divided_fleet *fleet)
{
    for (int r = 0; r < fleet->d.ranks; r++)
        executor_destroy(fleet->session[r].executor);
    free(fleet->session);
    free(fleet->idle);
    divided_close(&fleet->d);
    assert_int_equal(fleet->mem.blocks, 0);
}

static void *at(const struct session *s, int buffer, int64_t elem, enum dtype dtype)
{
    return (char *)executor_buffer(s->executor, &s->state->buffer[buffer]) +
           (size_t)elem * dtype_bytes(dtype);
}

/* What a rank has of a tensor, in order: flats, then tensors. */
typedef void visit_part(const struct session *s, int flat, const struct flat_part *part,
                        void *user);

static void each_part(const struct session *s, visit_part *visit, void *user)
{
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        int64_t start = flat_shard_start(flat, s->state->coord.at[MESH_SHARD]);
        struct flat_part part;
        for (int t = -1;
             (t = flat_next_part(flat, start, start + flat->shard_elems, t, &part)) >= 0;)
            visit(s, f, &part, user);
    }
}

/* Row and column, or the index of a vector, of element i of a part, counted by hand. */
static int64_t place_of(const struct flat_part *part, int64_t i)
{
    const struct box *box = &part->tensor->box;
    int64_t element = part->start + i;
    if (box->dims == 1)
        return box->start[0] + element;
    int64_t row = box->start[0] + element / box->count[1];
    return row * box->whole[1] + box->start[1] + element % box->count[1];
}

/* ---- initial values ---- */

static void compare_with_whole(const struct session *s, int f, const struct flat_part *part,
                               void *user)
{
    const struct session *whole = user;
    const float *own = at(s, s->state->flat[f].master, part->at, DTYPE_F32);
    int found = 0;
    for (int g = 0; g < whole->units->flats; g++) {
        const struct flat *flat = &whole->units->flat[g];
        int t = flat_find(flat, part->tensor->name);
        if (t < 0)
            continue;
        found++;
        assert_memory_equal(flat->tensor[t].box.whole, part->tensor->box.whole, 16);
        assert_int_equal(flat->tensor[t].elems, box_elems(&flat->tensor[t].box));
        const float *all =
            at(whole, whole->state->flat[g].master, flat->tensor[t].offset, DTYPE_F32);
        for (int64_t i = 0; i < part->count; i++)
            assert_memory_equal(&own[i], &all[place_of(part, i)], sizeof *own);
    }
    assert_int_equal(found, 1);
}

static void divided_models_begin_alike(void **state)
{
    struct divided_fleet whole;
    open_fleet(&whole, "precision=bf16", 1, 1);
    for (int tensors = 1; tensors <= TENSORS; tensors++)
        for (int shards = 1; shards <= SHARDS; shards++) {
            struct divided_fleet fleet;
            open_fleet(&fleet, "precision=bf16", tensors, shards);
            for (int r = 0; r < fleet.d.ranks; r++)
                each_part(&fleet.session[r], compare_with_whole, &whole.session[0]);
            close_fleet(&fleet);
        }
    close_fleet(&whole);
}

/* ---- checkpoints ---- */

/* Names what is done with the state, and its random numbers. */
struct mark {
    uint64_t seed;
    int writes; /* 1: write the numbers, 0: compare with them */
    int64_t elems;
};

static void visit_numbers(const struct mark *mark, const struct flat_part *part, int kind,
                          float *values)
{
    uint64_t key = philox_key(mark->seed + (uint64_t)kind, part->tensor->name);
    for (int64_t i = 0; i < part->count; i++) {
        float x = (float)(philox_u64(key, (uint64_t)place_of(part, i)) >> 40) * 0x1p-20f - 7;
        if (mark->writes)
            values[i] = x;
        else
            assert_memory_equal(&values[i], &x, sizeof x);
    }
}

static void visit_state(const struct session *s, int f, const struct flat_part *part, void *user)
{
    const struct state_flat *own = &s->state->flat[f];
    struct mark *mark = user;
    mark->elems += part->count;
    visit_numbers(mark, part, 0, at(s, own->master, part->at, DTYPE_F32));
    for (int k = 0; k < OPTIMIZER_SLOTS && own->slot[k] >= 0; k++)
        visit_numbers(mark, part, 1 + k, at(s, own->slot[k], part->at, DTYPE_F32));
}

/* All ranks' pieces, as one world of one writes them: that they cover each tensor once is proven
 * by the writer. */
static void save(struct divided_fleet *fleet, int64_t step)
{
    struct error err = {0};
    struct checkpoint_piece *all = NULL, *pieces[FLEETS];
    int counts[FLEETS], count = 0;
    struct mark mark = {.seed = (uint64_t)step, .writes = 1};
    for (int r = 0; r < fleet->d.ranks; r++) {
        each_part(&fleet->session[r], visit_state, &mark);
        counts[r] = weights_pieces(&fleet->session[r], WEIGHTS_ALL, &pieces[r]);
        all = realloc(all, (size_t)(count + counts[r]) * sizeof *all);
        memcpy(all + count, pieces[r], (size_t)counts[r] * sizeof *all);
        count += counts[r];
    }
    must(checkpoint_save(NULL, folder, step, all, count, NULL, &err), &err);
    for (int r = 0; r < fleet->d.ranks; r++)
        weights_pieces_free(pieces[r], counts[r]);
    free(all);
}

static void load(struct divided_fleet *fleet, int64_t step)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    struct mark mark = {.seed = (uint64_t)step};
    char path[128];
    snprintf(path, sizeof path, "%s/step-%08lld", folder, (long long)step);
    must(checkpoint_open(&checkpoint, path, &err), &err);
    for (int r = 0; r < fleet->d.ranks; r++) {
        must(weights_load(&fleet->session[r], checkpoint, NULL, &err), &err);
        each_part(&fleet->session[r], visit_state, &mark);
    }
    assert_true(mark.elems > 0);
    checkpoint_close(checkpoint);
}

static void any_layout_loads_any(void **state)
{
    static struct divided_fleet fleet[FLEETS];
    for (int i = 0; i < FLEETS; i++)
        open_fleet(&fleet[i], i % 3 ? "precision=bf16" : "precision=fp32 parallel.persist_below=99",
                   1 + i % TENSORS, 1 + i / TENSORS);
    for (int i = 0; i < FLEETS; i++) {
        save(&fleet[i], i);
        for (int k = 0; k < FLEETS; k++)
            load(&fleet[k], i);
    }
    for (int i = 0; i < FLEETS; i++)
        close_fleet(&fleet[i]);
}

/* ---- what the flats say ---- */

static const struct flat *flat_with(const struct units *units, const char *tensor)
{
    for (int f = 0; f < units->flats; f++)
        if (flat_find(&units->flat[f], tensor) >= 0)
            return &units->flat[f];
    fail_msg("no tensor %s", tensor);
    return NULL;
}

static void tensors_of_a_flat_share_a_fate(void **state)
{
    enum { DATA = 1 << MESH_SHARD, TENSOR = 1 << MESH_TENSOR };
    static const struct {
        const char *tensor;
        unsigned divided, sums;
    } rows[] = {{"layers.1.gate", TENSOR, DATA},
                {"layers.1.in.w2", TENSOR, DATA},
                {"layers.1.out.w3", TENSOR, DATA},
                {"layers.1.norm1", 0, DATA},
                {"layers.1.w6", 0, DATA},
                {"layers.1.norm3", 0, DATA | TENSOR},
                {"embed", 0, DATA},
                {"head", TENSOR, DATA}};
    struct divided_fleet fleet;
    open_fleet(&fleet, "parallel.persist_below=99", 2, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct flat *flat = flat_with(fleet.d.units[1], rows[i].tensor);
        assert_int_equal(flat->divided_axes, rows[i].divided);
        assert_int_equal(flat->sum_axes, rows[i].sums);
        assert_int_equal(flat->shard_axes, flat->elems < 99 ? 0 : DATA);
    }
    close_fleet(&fleet);
    open_fleet(&fleet, "", 1, 1);
    assert_ptr_equal(flat_with(fleet.d.units[0], "layers.1.norm3"),
                     flat_with(fleet.d.units[0], "layers.1.gate"));
    for (int f = 0; f < fleet.d.units[0]->flats; f++)
        assert_int_equal(fleet.d.units[0]->flat[f].divided_axes |
                             fleet.d.units[0]->flat[f].sum_axes |
                             fleet.d.units[0]->flat[f].shard_axes,
                         0);
    close_fleet(&fleet);
}

/* Products of whole matrices cannot be taken of parts. */
static void muon_refuses_parts(void **state)
{
    struct divided_fleet fleet;
    struct error err = {0};
    struct units *units;
    open_fleet(&fleet, "", 2, 1);
    struct units_request request = fleet.d.units[1]->request;
    request.optimizer = OPTIMIZER_MUON;
    request.freeze = NULL;
    assert_int_equal(units_create(&units, fleet.d.model, &request, fleet.d.device, &err), -1);
    assert_string_equal(err.text, "layers.0.gate is divided among ranks, and train.optimizer muon "
                                  "works on whole matrices; use adamw");
    close_fleet(&fleet);
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/trireme-divided-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return disk_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divided_models_begin_alike),
        cmocka_unit_test(any_layout_loads_any),
        cmocka_unit_test(tensors_of_a_flat_share_a_fate),
        cmocka_unit_test(muon_refuses_parts),
    };
    return cmocka_run_group_tests_name("divided state", tests, make_folder, remove_folder);
}
