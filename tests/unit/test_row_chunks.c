/* test_row_chunks.c - rows that tensor ranks exchange in chunks: products go on beside them, by the
 * waits of the program, and compute the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "tests/unit/faults.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

#define MODEL                                                                     \
    "model.layers=2 model.hidden=16 model.heads=4 model.ffn=24 model.vocab=23 "   \
    "data.seq_len=24 train.global_batch=2 train.micro_batch=1 parallel.tensor=2 " \
    "parallel.tensor_overlap=3 "

/* Per instruction and stream, the last one that has certainly ended before it begins. */
static int (*find_order(const struct program *program))[STREAMS]
{
    int(*before)[STREAMS] = array_make((size_t)program->instrs, sizeof *before);
    int last[STREAMS];
    memset(last, -1, sizeof last);
    memset(before, -1, (size_t)program->instrs * sizeof *before);
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        int wait[STREAMS];
        memcpy(wait, instr->wait, sizeof wait);
        wait[instr->stream] = last[instr->stream];
        for (int s = 0; s < STREAMS; s++) {
            if (wait[s] < 0)
                continue;
            for (int t = 0; t < STREAMS; t++)
                if (before[wait[s]][t] > before[i][t])
                    before[i][t] = before[wait[s]][t];
            if (wait[s] > before[i][s])
                before[i][s] = wait[s];
        }
        last[instr->stream] = i;
    }
    return before;
}

/* Does one of both read what the other makes? */
static int are_linked(const struct graph_node *product, const struct graph_node *exchange)
{
    return product->in[0] == exchange->out[0] || exchange->in[0] == product->out[0];
}

struct pairs {
    int ordered, beside;
};

/* A chunk of a product in RUN i, and of an exchange at k: they must be in order, or the exchange of
 * one chunk goes on while another is multiplied. */
static void check_pair(const struct program *program, int (*before)[STREAMS], int i, int k,
                       const struct segment_step *product, struct pairs *pairs)
{
    const struct instr *run = &program->instr[i], *exchange = &program->instr[k];
    const struct segment *segment = program_segment(program, run->unit, run->phase);
    const struct segment_step *other = segment_exchange(segment, exchange->piece);
    if (product->row_chunks < 2 || other->row_chunks < 2 ||
        !segment_node(segment, product)->op->by_rows ||
        !are_linked(segment_node(segment, product), segment_node(segment, other)))
        return;
    int gathers = exchange->kind == INSTR_GATHER, first = gathers ? k : i, then = gathers ? i : k;
    int gap =
        gathers ? other->row_chunk - product->row_chunk : product->row_chunk - other->row_chunk;
    if (gap == 0)
        assert_true(before[then][program->instr[first].stream] >= first);
    if (gap > 0) {
        assert_true(before[i][exchange->stream] < k);
        assert_true(before[k][run->stream] < i);
    }
    pairs->ordered += gap == 0;
    pairs->beside += gap > 0;
}

static void check_pairs(const struct program *program, struct pairs *pairs)
{
    int(*before)[STREAMS] = find_order(program);
    for (int i = 0; i < program->instrs; i++)
        for (int k = 0; k < program->instrs; k++) {
            const struct instr *run = &program->instr[i], *exchange = &program->instr[k];
            if (run->kind != INSTR_RUN || !instr_is_exchange(exchange) ||
                run->unit != exchange->unit || run->micro != exchange->micro ||
                run->phase != exchange->phase)
                continue;
            const struct segment *segment = program_segment(program, run->unit, run->phase);
            const struct segment_piece *piece = &segment->piece[run->piece];
            for (int s = piece->first; s < piece->end; s++)
                check_pair(program, before, i, k, &segment->step[s], pairs);
        }
    free(before);
}

/* Forward: two gathers and two scatters of a block; backward the same again, and the gathers once
 * more for the gradients of the weights. */
static void test_products_go_on(void **state)
{
    static const char *const ways[] = {MODEL, MODEL "recompute=full",
                                       MODEL "parallel.schedule=zb_h1 precision=bf16",
                                       MODEL "parallel.tensor_reduce_dtype=fp32 precision=bf16"};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct config config = rig_config(ways[w]);
        struct fleet fleet;
        struct error err = {0};
        struct pairs pairs = {0};
        fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
        if (verify_program(fleet.program[1], &err))
            fail_msg("%s", err.text);
        check_pairs(fleet.program[1], &pairs);
        assert_int_equal(pairs.ordered, pairs.beside); /* of 3 chunks 3 pairs are, and 2 + 1 */
        assert_true(pairs.ordered >= 2 * 2 * 8 * 3);
        fleet_close(&fleet);
    }
}

/* A gather of forward's that backward makes once more, for a product of the weights. */
static int gathers_again(const struct program *program, const struct instr *instr)
{
    if (instr->kind != INSTR_GATHER || !instr_is_exchange(instr) || instr->phase != PHASE_BACKWARD)
        return 0;
    const struct segment *segment = program_segment(program, instr->unit, instr->phase);
    return !segment_node(segment, segment_exchange(segment, instr->piece))->backward;
}

/* Does RUN i compute a gradient of rows, and may it do so while rows of gather k are on their way?
 */
static int is_beside(const struct program *program, int (*before)[STREAMS], int i, int k)
{
    const struct instr *run = &program->instr[i], *gather = &program->instr[k];
    if (run->kind != INSTR_RUN || run->unit != gather->unit || run->micro != gather->micro ||
        run->phase != gather->phase || before[i][gather->stream] >= k ||
        before[k][run->stream] >= i)
        return 0;
    const struct segment *segment = program_segment(program, run->unit, run->phase);
    const struct segment_piece *piece = &segment->piece[run->piece];
    for (int s = piece->first; s < piece->end; s++)
        if (segment_node(segment, &segment->step[s])->op == &op_linear_input_grad)
            return 1;
    return 0;
}

/* Rows that are gathered again travel beside the product before the one that reads them: of a block
 * twice, in 3 chunks. */
static void test_rows_come_again_beside_a_product(void **state)
{
    struct config config = rig_config(MODEL "recompute=gathered");
    struct fleet fleet;
    struct error err = {0};
    int gathers = 0;
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    const struct program *program = fleet.program[0];
    if (verify_program(program, &err))
        fail_msg("%s", err.text);
    int(*before)[STREAMS] = find_order(program);
    for (int k = 0; k < program->instrs; k++) {
        int beside = 0;
        if (!gathers_again(program, &program->instr[k]))
            continue;
        for (int i = 0; i < program->instrs; i++)
            beside += is_beside(program, before, i, k);
        assert_true(beside > 0);
        gathers++;
    }
    assert_int_equal(gathers, 2 * 2 * 2 * 3); /* micro-batches, blocks, products, chunks */
    free(before);
    fleet_close(&fleet);
}

/* Rows in as many chunks, each of a product's steps once and in order. */
static void check_steps(const struct segment *segment)
{
    for (int s = 0; s < segment->steps; s++) {
        const struct segment_step *step = &segment->step[s];
        int chunks = 0;
        for (int k = 0; k < segment->steps; k++)
            if (segment->step[k].node == step->node)
                assert_int_equal(segment->step[k].row_chunk, chunks++);
        assert_int_equal(chunks, step->row_chunks);
    }
}

static void test_every_chunk_is_there(void **state)
{
    struct config config = rig_config(MODEL);
    struct fleet fleet;
    int segments = 0;
    fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
    for (int u = 0; u < fleet.units->count; u++)
        for (int phase = 0; phase < PHASES; phase++) {
            const struct segment *segment = units_segment(fleet.units, u, phase);
            check_steps(segment);
            segments += segment->has_row_chunks;
        }
    assert_true(segments >= 2 * 2);
    fleet_close(&fleet);
}

/* Does an instruction write rows of a boundary that others of its run write too? */
static int writes_rows(const struct program *program, const struct instr *instr)
{
    const uint64_t boundaries =
        space_bit(SPACE_OUTPUT) | (space_bit(SPACE_SAVED) - space_bit(SPACE_INPUT_GRAD));
    if (instr->kind != INSTR_RUN && !instr_is_exchange(instr))
        return 0;
    const struct segment *segment = program_segment(program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    uint64_t writes = instr->kind == INSTR_RUN ? segment->piece[instr->piece].writes
                                               : space_bit(step->out[0].space);
    return segment->has_row_chunks && writes & boundaries;
}

/* Whoever reads a boundary notices that one of those who write its rows is left out. */
static void test_rows_left_out(void **state)
{
    static const char *const ways[] = {MODEL, MODEL "recompute=full",
                                       MODEL "parallel.schedule=zb_h1 precision=bf16"};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct config config = rig_config(ways[w]);
        struct fleet fleet;
        struct error err = {0};
        int left_out = 0;
        fleet_open(&fleet, &config, 2, PROGRAM_TRAIN);
        struct program *program = fleet.program[0];
        for (int i = 0; i < program->instrs; i++) {
            struct instr *instr = &program->instr[i], was = *instr;
            if (!writes_rows(program, instr))
                continue;
            faults_leave_out(instr);
            if (!verify_values(program, &err))
                fail_msg("not noticed: instruction %d", i);
            *instr = was;
            left_out++;
        }
        assert_true(left_out > 2 * 2 * 3);
        if (verify_values(program, &err))
            fail_msg("%s", err.text);
        fleet_close(&fleet);
    }
}

/* Rows that cannot be cut, and overlap that is not wanted. */
static void test_off(void **state)
{
    static const struct {
        const char *settings;
        int chunks, lost;
    } rows[] = {
        {MODEL, 3, 0},
        {MODEL "data.seq_len=23", 1, 3},
        {MODEL "data.seq_len=16", 1, 3},
        {MODEL "data.seq_len=6", 3, 0},
        {MODEL "parallel.tensor_overlap=off", 1, 0},
        {MODEL "parallel.tensor_overlap=8", 1, 8},
        {MODEL "parallel.tensor_overlap=4", 4, 0},
        {MODEL "parallel.tensor_overlap=auto", 1, 0},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct config config = rig_config(rows[r].settings);
        struct layout layout;
        struct error err = {0};
        if (layout_resolve(&layout, &config, 2, 2, DEVICE_CPU, &err))
            fail_msg("%s", err.text);
        assert_int_equal(layout.row_chunks, rows[r].chunks);
        assert_int_equal(layout_lost_overlap(&layout, &config), rows[r].lost);
        layout_release(&layout);
    }
}

/* On GPUs by the rows of a micro-batch. */
static void test_auto(void **state)
{
    static const struct {
        const char *rows;
        int chunks;
    } rows[] = {{"2048", 1}, {"4096", 2}, {"16384", 4}, {"16382", 1}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        char settings[512];
        snprintf(settings, sizeof settings,
                 MODEL "parallel.tensor_overlap=auto model.max_seq_len=16384 data.seq_len=%s",
                 rows[r].rows);
        struct config config = rig_config(settings);
        struct layout layout;
        struct error err = {0};
        if (layout_resolve(&layout, &config, 2, 2, DEVICE_CUDA, &err))
            fail_msg("%s", err.text);
        assert_int_equal(layout.row_chunks, rows[r].chunks);
        layout_release(&layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_go_on),
        cmocka_unit_test(test_rows_come_again_beside_a_product),
        cmocka_unit_test(test_every_chunk_is_there),
        cmocka_unit_test(test_rows_left_out),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_auto),
    };
    return cmocka_run_group_tests_name("row_chunks", tests, NULL, NULL);
}
