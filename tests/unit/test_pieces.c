/* test_pieces.c - segments that are cut where ranks exchange values: what the pieces hand on, the
 * instructions between them, and that verify notices each of these left out or spoilt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "tests/unit/divided.h"
#include "verify/verify.h"

#define MODEL                                                                     \
    "model.layers=2 model.hidden=20 model.heads=2 model.kv_heads=2 model.ffn=12 " \
    "model.vocab=53 data.seq_len=12 train.global_batch=4 train.micro_batch=2 "    \
    "train.clip=0 precision=fp32 "

static const char *const settings[] = {MODEL, MODEL "recompute=full", MODEL "precision=bf16",
                                       MODEL "recompute=selective parallel.schedule=zb_h1"};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static int count(const struct program *program)
{
    int exchanges = 0;
    for (int i = 0; i < program->instrs; i++)
        exchanges += instr_is_exchange(&program->instr[i]);
    return exchanges;
}

/* Each kind of exchange is there; in a group of one none is, and nothing is carried. */
static void test_exchanges(void **state)
{
    for (int s = 0; s < SETTINGS; s++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            struct divided d;
            struct error err = {0};
            int kinds[INSTR_KINDS] = {0};
            divided_open(&d, settings[s], ranks);
            for (int r = 0; r < ranks; r++)
                if (verify_program(d.program[r], &err) || verify_program(d.evaluate[r], &err))
                    fail_msg("%s", err.text);
            if (verify_ranks((const struct program *const *)d.program, ranks, &err))
                fail_msg("%s", err.text);
            for (int i = 0; i < d.program[0]->instrs; i++)
                kinds[d.program[0]->instr[i].kind] += instr_is_exchange(&d.program[0]->instr[i]);
            assert_int_equal(kinds[INSTR_ALLREDUCE] > 0, ranks > 1);
            assert_int_equal(kinds[INSTR_GATHER] > 0, ranks > 1);
            assert_int_equal(kinds[INSTR_REDUCE] > 0, ranks > 1);
            assert_int_equal(kinds[INSTR_ALLTOALL] > 0, ranks > 1);
            for (int u = 0; u < d.units[0]->count - 1; u++) {
                const struct segment *segment = units_segment(d.units[0], u, PHASE_FORWARD);
                int divided = ranks > 1 && d.model->unit[u].prefix[0] == 'l';
                assert_int_equal(segment->carry_bytes > 0, divided);
                assert_int_equal(segment->pieces, divided ? 7 : 1);
            }
            divided_close(&d);
        }
}

static void assert_refused(const struct divided *d, int i, const char *what)
{
    struct error err = {0};
    char text[112];
    if (verify_program(d->program[1], &err))
        return;
    fail_msg("not noticed: %s at %d (%s)", what, i,
             instr_text(d->program[1], i, text, sizeof text));
}

static void make_idle(struct instr *instr)
{
    enum program_stream stream = instr->stream;
    int wait[STREAMS];
    memcpy(wait, instr->wait, sizeof wait);
    *instr = (struct instr){.kind = INSTR_RELEASE,
                            .stream = stream,
                            .unit = -1,
                            .micro = -1,
                            .piece = -1,
                            .flat = -1,
                            .peer = -1,
                            .first_part = -1};
    memset(instr->buffer, -1, sizeof instr->buffer);
    memcpy(instr->wait, wait, sizeof wait);
}

/* One field of an exchange, or of a RUN's, spoilt at a time. */
static void spoil_fields(struct divided *d, int i)
{
    struct instr *instr = &d->program[1]->instr[i], was = *instr;
#define SPOIL(change)                  \
    do {                               \
        change;                        \
        assert_refused(d, i, #change); \
        *instr = was;                  \
    } while (0)
    SPOIL(instr->piece++);
    SPOIL(instr->piece--);
    SPOIL(instr->unit++);
    SPOIL(instr->micro++);
    if (instr_is_exchange(instr)) {
        SPOIL(instr->axes = 1u << MESH_SHARD);
        SPOIL(instr->axes = MESH_DATA);
        SPOIL(instr->axes |= 1u << MESH_SHARD);
        SPOIL(instr->axes = 0);
        SPOIL(instr->elems++);
        SPOIL(instr->dtype = was.dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32);
        SPOIL(instr->accumulate = 1);
        SPOIL(instr->result = was.result == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32);
        SPOIL(instr->reduction = was.reduction == GROUP_SUM ? GROUP_MAX : GROUP_SUM);
        SPOIL(instr->kind = was.kind == INSTR_GATHER ? INSTR_REDUCE : INSTR_GATHER);
        SPOIL(instr->phase = was.phase == PHASE_FORWARD ? PHASE_BACKWARD : PHASE_FORWARD);
    }
    if (instr->kind == INSTR_ALLTOALL)
        SPOIL(instr->first_part = -1);
#undef SPOIL
    make_idle(instr);
    assert_refused(d, i, "left out");
    *instr = was;
    for (int s = 0; s < STREAMS; s++)
        if (was.wait[s] >= 0) {
            instr->wait[s] = -1;
            assert_refused(d, i, "a wait left out");
            *instr = was;
        }
}

/* An exchange at another place in what is carried, or of parts that are not equal. */
static void spoil_places(struct divided *d, int i)
{
    struct program *program = d->program[1];
    const struct instr *instr = &program->instr[i];
    for (int slot = SLOT_FROM; slot <= SLOT_TO; slot++) {
        struct program_buffer *buffer =
            instr->buffer[slot] < 0 ? NULL : &program->buffer[instr->buffer[slot]];
        if (!buffer || buffer->whole < 0)
            continue;
        struct program_buffer was = *buffer;
        buffer->from += buffer->from ? -64 : 64;
        buffer->offset = program->buffer[buffer->whole].offset + buffer->from;
        assert_refused(d, i, "another place");
        *buffer = was;
        buffer->bytes -= 4;
        assert_refused(d, i, "another size");
        *buffer = was;
    }
    for (int m = 0; instr->kind == INSTR_ALLTOALL && m < d->ranks; m++) {
        struct comm_part *part = &program->part[instr->first_part + m], was = *part;
        part->send_elems--;
        assert_refused(d, i, "a shorter part");
        *part = was;
        part->send_from += m ? -1 : 1;
        assert_refused(d, i, "another part");
        *part = was;
    }
}

static void test_spoilt(void **state)
{
    for (int s = 0; s < SETTINGS; s++) {
        struct divided d;
        divided_open(&d, settings[s], 2);
        for (int i = 0; i < d.program[1]->instrs; i++) {
            const struct instr *instr = &d.program[1]->instr[i];
            int runs = instr->kind == INSTR_RUN &&
                       program_segment(d.program[1], instr->unit, instr->phase)->pieces > 1;
            if (runs || instr_is_exchange(instr))
                spoil_fields(&d, i);
            if (instr_is_exchange(instr))
                spoil_places(&d, i);
        }
        assert_true(count(d.program[1]) >= 32);
        divided_close(&d);
    }
}

/* What is kept, deferred or carried, a byte too short or too long. */
static void test_sizes(void **state)
{
    static const int spaces[] = {SPACE_SAVED, SPACE_DEFERRED, SPACE_CARRY};
    struct divided d;
    int spoilt[3] = {0};
    divided_open(&d, settings[3], 2);
    for (int i = 0; i < d.program[1]->instrs; i++)
        for (int k = 0; k < 3; k++) {
            const struct instr *instr = &d.program[1]->instr[i];
            int b = instr->kind == INSTR_RUN ? instr->buffer[spaces[k]] : -1;
            for (int more = -1; b >= 0 && more <= 1; more += 2) {
                struct error err = {0};
                d.program[1]->buffer[b].bytes += (size_t)more;
                assert_int_equal(verify_values(d.program[1], &err), -1);
                assert_non_null(strstr(err.text, "wrong size"));
                d.program[1]->buffer[b].bytes -= (size_t)more;
                spoilt[k]++;
            }
        }
    assert_true(spoilt[0] && spoilt[1] && spoilt[2]);
    divided_close(&d);
}

/* What one rank leaves out, the others wait for. */
static void test_left_out_on_one_rank(void **state)
{
    struct divided d;
    divided_open(&d, settings[0], 3);
    for (int i = 0; i < d.program[1]->instrs; i++) {
        struct instr *instr = &d.program[1]->instr[i], was = *instr;
        struct error err = {0};
        if (!instr_is_exchange(instr))
            continue;
        make_idle(instr);
        assert_int_equal(verify_ranks((const struct program *const *)d.program, 3, &err), -1);
        *instr = was;
        instr->piece++;
        assert_int_equal(verify_ranks((const struct program *const *)d.program, 3, &err), -1);
        *instr = was;
        instr->reduction = was.reduction == GROUP_SUM ? GROUP_MAX : GROUP_SUM;
        assert_int_equal(verify_ranks((const struct program *const *)d.program, 3, &err), -1);
        *instr = was;
        instr->result = was.result == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
        assert_int_equal(verify_ranks((const struct program *const *)d.program, 3, &err), -1);
        *instr = was;
    }
    divided_close(&d);
}

/* Are all operands of two runs, but what is carried, in the same places? */
static int lies_alike(const struct program *program, const struct instr *a, const struct instr *b)
{
    for (int s = 0; s < SPACE_COUNT; s++) {
        int one = a->buffer[s], two = b->buffer[s];
        if (s != SPACE_CARRY && (one < 0) + (two < 0) != 2 &&
            ((one < 0) != (two < 0) || program->buffer[one].offset != program->buffer[two].offset))
            return 0;
    }
    return a->kind == INSTR_RUN && b->kind == INSTR_RUN && a->unit == b->unit &&
           a->phase == b->phase && a->piece == b->piece && a->buffer[SPACE_CARRY] >= 0;
}

static int count_apart(const struct program *program, int *alike)
{
    int apart = 0;
    for (int i = 0; i < program->instrs; i++)
        for (int k = 0; k < i; k++) {
            const struct instr *one = &program->instr[k], *two = &program->instr[i];
            if (!lies_alike(program, one, two))
                continue;
            ++*alike;
            apart += program->buffer[one->buffer[SPACE_CARRY]].offset !=
                     program->buffer[two->buffer[SPACE_CARRY]].offset;
        }
    return apart;
}

/* Where all else of two runs lies in the same places, what is carried does: they are recorded once.
 */
static void test_carried_repeats(void **state)
{
    static const char *const text[] = {
        MODEL "train.global_batch=6 train.micro_batch=1",
        MODEL "train.global_batch=6 train.micro_batch=1 recompute=full",
        MODEL "train.global_batch=6 train.micro_batch=1 parallel.schedule=gpipe recompute=full",
        MODEL "train.global_batch=6 train.micro_batch=1 parallel.schedule=zb_h1"};
    for (size_t s = 0; s < sizeof text / sizeof text[0]; s++) {
        struct divided d;
        int alike = 0;
        divided_open(&d, text[s], 2);
        assert_int_equal(count_apart(d.program[1], &alike), 0);
        assert_int_equal(count_apart(d.evaluate[1], &alike), 0);
        assert_true(alike > 100);
        divided_close(&d);
    }
}

/* Squares are counted once, and summed over tensor ranks as the loss is not. */
static void test_counted(void **state)
{
    struct divided d;
    int norms = 0, sums = 0;
    divided_open(&d, settings[0], 2);
    for (int i = 0; i < d.program[1]->instrs; i++) {
        struct instr *instr = &d.program[1]->instr[i], was = *instr;
        if (instr->kind != INSTR_NORM &&
            (instr->kind != INSTR_ALLREDUCE || instr->dtype != DTYPE_F64))
            continue;
        norms += instr->kind == INSTR_NORM;
        make_idle(instr);
        assert_refused(&d, i, "left out");
        *instr = was;
        if (instr->kind == INSTR_NORM)
            continue;
        sums++;
        instr->axes = MESH_DATA;
        assert_refused(&d, i, "over data ranks");
        *instr = was;
        instr->buffer[SLOT_TO] = d.program[1]->state->over_data;
        assert_refused(&d, i, "all sums");
        instr->elems = SUM_COUNT - SUM_OVER_DATA + d.program[1]->units->flats;
        assert_refused(&d, i, "all sums");
        *instr = was;
    }
    assert_int_equal(sums, 1);
    assert_true(norms > 0);
    for (int i = 0; i < d.program[0]->instrs; i++)
        norms -= d.program[0]->instr[i].kind == INSTR_NORM;
    assert_true(norms < 0); /* rank 0 counts what all have, too */
    divided_close(&d);
}

/* A program is refused whose unit does not put together what it divides. */
static void test_not_put_together(void **state)
{
    static const struct graph_group other = {.axes = 1u << MESH_SHARD, .size = 2};
    struct divided d;
    int tried = 0;
    divided_open(&d, settings[0], 2);
    struct unit_kind *kind = &d.units[1]->kind[d.units[1]->kind_of[1]];
    for (int i = 0; i < 2 * kind->train->param_count; i++) {
        struct graph *graph = i % 2 ? kind->evaluate : kind->train;
        struct graph_param *param = &graph->params[i / 2];
        struct graph_group was = param->division.group;
        struct error err = {0};
        if (was.size < 2)
            continue;
        param->division.group = other;
        assert_int_equal(verify_program(i % 2 ? d.evaluate[1] : d.program[1], &err), -1);
        if (!strstr(err.text, "verify: layers.0: ") || !strstr(err.text, "over tensor"))
            fail_msg("%s: %s", param->tensor_name[0], err.text);
        param->division.group = was;
        tried++;
    }
    assert_int_equal(tried, 8);
    divided_close(&d);
}

/* ---- a flat of which two units use a part ----
 *
 *   unit 1   all_reduce(x second up down) own first, of which ranks divide up and down
 *   unit 2   head(x first second), of unit 1's matrices
 *
 * Two units write the gradients of first and second, one that of own: they are two sections.  In
 * backward of unit 1 a sum over ranks comes between first and own, and second. */

static int matrix(struct graph *graph, const char *name, int64_t rows, int64_t columns,
                  struct graph_division division)
{
    struct graph_param param = {.tensors = 1,
                                .tensor_rows = {rows},
                                .dims = 2,
                                .dim = {rows, columns},
                                .division = division};
    snprintf(param.tensor_name[0], GRAPH_NAME, "%s", name);
    return build_param(graph, &param);
}

static void shared_units(struct model *model)
{
    model->units = 3;
    model->unit = array_make(3, sizeof *model->unit);
    for (int u = 0; u < 3; u++)
        model->unit[u] = (struct model_unit){.kind = u, .lender = u == 2 ? 1 : -1};
}

static void shared_graph(const struct model *model, int kind, enum model_purpose purpose,
                         float loss_factor, struct graph *graph)
{
    const struct graph_division whole = {0}, rows = {.group = graph->tensor},
                                columns = {.group = graph->tensor, .dim = 1};
    if (kind == 0) {
        int words = matrix(graph, "words", 9, 4, whole);
        build_output(graph, build_embedding(graph, build_tokens(graph), words));
        return;
    }
    int x = build_input(graph, 4), first = matrix(graph, "first", 4, 4, whole);
    int second = matrix(graph, "second", 4, 4, whole);
    graph->params[0].is_borrowed = graph->params[1].is_borrowed = kind == 2;
    if (kind == 2) {
        int h = build_linear(graph, build_linear(graph, x, first, -1), second, -1);
        int targets = build_targets(graph);
        build_head_loss(graph, h, matrix(graph, "head", 9, 4, whole), targets, loss_factor);
        return;
    }
    int h = build_linear(graph, x, second, -1), up = matrix(graph, "up", 6, 4, rows);
    int down = matrix(graph, "down", 4, 6, columns), own = matrix(graph, "own", 4, 4, whole);
    build_divided(graph, h, graph->tensor);
    h = build_linear(graph, build_linear(graph, h, up, -1), down, -1);
    h = build_exchange(graph, &op_all_reduce, h, graph->tensor);
    build_output(graph, build_linear(graph, build_linear(graph, h, own, -1), first, -1));
}

/* A piece writes one section of two that a piece before it has written: right in the second
 * micro-batch too, where both hold more than this run has made; and wrong where one is written in
 * place of added to, or the other way round. */
static void test_sections_of_pieces(void **state)
{
    static const struct model_family family = {
        .name = "shared", .units = shared_units, .graph = shared_graph};
    struct config config = rig_config(MODEL);
    struct error err = {0};
    struct fleet fleet;
    fleet_open_tensor_rank(&fleet, &config, model_make(&family, &config.model), 2, 0);
    const struct segment *backward = units_segment(fleet.units, 1, PHASE_BACKWARD);
    const struct flat *flat[FLAT_USES];
    units_flats(fleet.units, 1, flat);
    int first = 0, use = 0;
    while (use < fleet.units->use[1].count && flat[use]->sections < 2)
        use++;
    assert_true(use < fleet.units->use[1].count);
    while (!segment_piece_sections(backward, first, use, flat[use]))
        first++;
    assert_int_equal(segment_piece_sections(backward, first, use, flat[use]), 3);
    assert_int_equal(segment_piece_sections(backward, first + 1, use, flat[use]),
                     1 << flat[use]->tensor[flat_find(flat[use], "second")].section);
    assert_int_equal(fleet.program[0]->micros, 2);
    if (verify_program(fleet.program[0], &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < fleet.program[0]->instrs; i++)
        for (int s = 0; s < 2; s++) {
            struct instr *instr = &fleet.program[0]->instr[i];
            if (instr->kind != INSTR_RUN || instr->unit != 1 || instr->phase != PHASE_BACKWARD)
                continue;
            instr->accumulate ^= segment_adds(use, s);
            assert_int_equal(verify_values(fleet.program[0], &err), -1);
            instr->accumulate ^= segment_adds(use, s);
        }
    fleet_close(&fleet);
}

/* Shapes that cannot be exchanged, and ops that exchange nothing, are refused where the graph is
 * built. */
static void test_refused(void **state)
{
    static const struct graph_group three = {.axes = 1u << MESH_TENSOR, .size = 3};
    struct graph *odd = graph_create(1, 4, DTYPE_F32);
    build_exchange(odd, &op_all_to_all, build_input(odd, 5), three);
    assert_non_null(strstr(odd->err.text, "4 rows cannot be divided among 3 ranks"));
    graph_destroy(odd);
    odd = graph_create(1, 4, DTYPE_F32);
    build_exchange(odd, &op_swiglu, build_input(odd, 6), three);
    assert_string_equal(odd->err.text, "swiglu exchanges nothing between ranks");
    graph_destroy(odd);
}

/* A gradient that would have to pass through a maximum is refused by name. */
static void test_no_gradient_of_a_maximum(void **state)
{
    static const struct graph_group three = {.axes = 1u << MESH_TENSOR, .size = 3};
    struct graph *graph = graph_create(1, 4, DTYPE_F32);
    struct error err = {0};
    int x = build_input(graph, 6);
    build_output(graph, build_swiglu(graph, build_exchange(graph, &op_all_reduce_max, x, three)));
    assert_int_equal(autodiff(graph, &err), -1);
    assert_non_null(strstr(err.text, "all_reduce_max: no gradient passes through a maximum"));
    graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_spoilt),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_left_out_on_one_rank),
        cmocka_unit_test(test_carried_repeats),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_not_put_together),
        cmocka_unit_test(test_sections_of_pieces),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_gradient_of_a_maximum),
    };
    return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
