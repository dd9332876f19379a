/* test_verify_values.c - does verify_values() see that a program computes something else than the
 * step?  Real programs of every strategy, each fault at every place where it can be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "verify/verify.h"
#include "tests/unit/programs.h"
#include "tests/unit/rig.h"
#include "tests/unit/translator.h"

static void refused(const struct program *program, const char *what, int i)
{
    assert_refused(verify_values, program, "wrong value|wrong size|wrong operand", what, i);
}

/* No instruction can be left out, whatever its hazards: on all ranks alike, too. */
static void check_left_out(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr was = program->instr[i];
        if (was.kind == INSTR_RELEASE)
            continue;
        program->instr[i].kind = INSTR_RELEASE;
        program->instr[i].piece = -1; /* nor is it an exchange */
        refused(program, "nothing done", i);
        program->instr[i] = was;
    }
    assert_right(program);
}

static void test_no_instruction_can_be_left_out(void **state)
{
    programs_everywhere(check_left_out);
}

/* Nor a sum over ranks that is taken in the place of a boundary's gradient: nobody but the producer
 * reads it, and no writer follows it. */
static void test_no_sum_of_a_boundary_can_be_left_out(void **state)
{
    struct fleet fleet;
    int sums = 0;
    struct config config =
        programs_config(0, "parallel.tensor=2 train.global_batch=2 model.layers=1");
    fleet_open_model(&fleet, &config, translator_model(&config, TRANSLATOR_CHAIN), 2,
                     PROGRAM_TRAIN);
    const struct program *program = fleet.program[1];
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        const struct segment_step *step =
            instr_is_exchange(instr)
                ? segment_exchange(program_segment(program, instr->unit, instr->phase),
                                   instr->piece)
                : NULL;
        sums += step && segment_input_grad(step->out[0].space) >= 0;
    }
    assert_true(sums > 0);
    check_left_out(fleet.program[1]);
    fleet_close(&fleet);
}

/* Nor of a step of one micro-batch that leaves its update to the next one, where gradients of the
 * step before are as complete as its own, and of these updates alone. */
static void test_nothing_of_updates_beside_forward_can_be_left_out(void **state)
{
    static const struct {
        enum program_kind kind;
        const char *text;
    } rows[] = {
        {PROGRAM_TRAIN, "parallel.strategy=FULL_SHARD precision=bf16"},
        {PROGRAM_TRAIN, "parallel.strategy=FULL_SHARD parallel.accumulate=local"},
        {PROGRAM_TRAIN, "parallel.strategy=NO_SHARD"},
        {PROGRAM_TRAIN,
         "parallel.strategy=FULL_SHARD offload.gradients=disk offload.optimizer=disk"},
        {PROGRAM_TRAIN, "parallel.pipeline=3 model.tie_embeddings=true"},
        {PROGRAM_UPDATE, "parallel.strategy=FULL_SHARD precision=bf16"},
        {PROGRAM_UPDATE,
         "parallel.strategy=SHARD_GRAD_OP offload.gradients=disk offload.optimizer=disk"},
        {PROGRAM_UPDATE, "parallel.pipeline=3 train.freeze=layers.0.*"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        char text[160];
        snprintf(text, sizeof text, "train.overlap_update=true train.global_batch=3 %s",
                 rows[i].text);
        if (strstr(text, "pipeline"))
            strcat(text, " train.global_batch=1");
        struct config config = programs_config(0, text);
        struct fleet fleet;
        fleet_open(&fleet, &config, 3, rows[i].kind);
        assert_int_equal(fleet.layout.micros, 1);
        for (int rank = 0; rank < 3; rank++)
            check_left_out(fleet.program[rank]);
        fleet_close(&fleet);
    }
}

/* A second time, at once; and what is only true the second time. */
static int is_sum(const struct instr *instr)
{
    switch (instr->kind) {
    case INSTR_RUN:
        return instr->accumulate ||
               instr->writes & (space_bit(SPACE_LOSS) | space_bit(SPACE_EXPERT_TOKENS));
    case INSTR_REDUCE: return (int)instr->accumulate;
    case INSTR_ALLREDUCE:
    case INSTR_ADD:
    case INSTR_SEND:
    case INSTR_RECV:
    case INSTR_NORM:
    case INSTR_SCALE:
    case INSTR_MOMENTUM:
    case INSTR_ORTHOGONALIZE:
    case INSTR_UPDATE: return 1;
    default: return 0;
    }
}

static void check_done_twice(struct program *program)
{
    struct instr nothing = *program_add_instr(program, INSTR_RELEASE, STREAM_COMPUTE);
    struct instr *instr = program->instr;
    int done = 0, last = program->instrs - 1;
    for (int i = 0; i < last; i++) {
        if (!is_sum(&instr[i]))
            continue;
        size_t bytes = (size_t)(last - i - 1) * sizeof *instr;
        memmove(&instr[i + 2], &instr[i + 1], bytes);
        instr[i + 1] = instr[i];
        refused(program, "done twice", i);
        memmove(&instr[i + 1], &instr[i + 2], bytes);
        instr[last] = nothing;
        done++;
    }
    program->instrs = last;
    int trained = 0, unit = -1; /* units that have trained flats, which are one behind the other */
    for (int f = 0; f < program->units->flats; f++) {
        const struct flat *flat = &program->units->flat[f];
        if (!state_owns(program->state, f))
            continue;
        trained += flat->trained && flat->unit != unit;
        unit = flat->trained ? flat->unit : unit;
    }
    assert_true(done > (program->micros + 1) * trained);
    assert_right(program);
}

static void test_no_sum_can_be_doubled(void **state)
{
    programs_everywhere(check_done_twice);
}

/* Add where it replaces, replace where it adds. */
static void check_accumulation(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        uint64_t was = instr->accumulate;
        for (int k = 0; k < FLAT_USES; k++)
            for (int s = 0; s < FLAT_SECTIONS; s++)
                if (instr->kind == INSTR_RUN && instr->writes >> (SPACE_GRAD + k) & 1) {
                    instr->accumulate = was ^ segment_adds(k, s);
                    refused(program, "another accumulation", i);
                }
        for (int k = 0; k < BOUNDARY_USES; k++)
            if (instr->kind == INSTR_RUN && instr->writes >> (SPACE_INPUT_GRAD + k) & 1) {
                instr->accumulate = was ^ segment_adds_input(k);
                refused(program, "another accumulation for an input", i);
            }
        if (instr->kind == INSTR_REDUCE) {
            instr->accumulate = !was;
            refused(program, "another accumulation", i);
        }
        instr->accumulate = was;
    }
    assert_right(program);
}

static void test_accumulation_is_as_it_must_be(void **state)
{
    programs_everywhere(check_accumulation);
}

/* A maximum where a sum is meant, and a gradient's sum rounded; or the other way round. */
static void check_reductions(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        enum group_reduction was = program->instr[i].reduction;
        if (program->instr[i].kind != INSTR_ALLREDUCE)
            continue;
        program->instr[i].reduction = was == GROUP_SUM ? GROUP_MAX : GROUP_SUM;
        refused(program, "a maximum", i);
        program->instr[i].reduction = was;
    }
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == INSTR_REDUCE) {
            enum dtype was = program->instr[i].result;
            program->instr[i].result = was == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
            refused(program, "a sum of another format", i);
            program->instr[i].result = was;
        }
    assert_right(program);
}

static void test_sums_are_exact(void **state)
{
    programs_everywhere(check_reductions);
}

/* Over other ranks: those of each axis that has some, and those of none. */
static void check_groups(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        const struct mesh_shape *shape = &program->layout->shape;
        unsigned was = instr->axes;
        for (unsigned axes = 0; was && axes < MESH_SETS; axes++) {
            int is_same = mesh_wide_axes(shape, axes) == mesh_wide_axes(shape, was);
            if (axes == was || (is_same && instr->kind == INSTR_ALLREDUCE))
                continue; /* the same ranks by another name */
            instr->axes = axes;
            refused(program, "another group", i);
        }
        instr->axes = was;
    }
    assert_right(program);
}

static void test_sums_are_over_the_right_ranks(void **state)
{
    programs_everywhere(check_groups);
}

/* Do two names stand for some of the same memory? */
static int share(const struct program *program, int b, int c)
{
    const struct program_buffer *one = &program->buffer[b], *other = &program->buffer[c];
    return buffer_root(program, b) == buffer_root(program, c) &&
           one->from < other->from + other->bytes && other->from < one->from + one->bytes;
}

static int reads_what_writes(const struct program *program, const struct instr *reader,
                             const struct instr *writer)
{
    for (int w = 0; w < SLOTS; w++)
        for (int r = 0; r < SLOTS; r++)
            if (writer->writes >> w & 1 && reader->reads >> r & 1 &&
                share(program, writer->buffer[w], reader->buffer[r]))
                return 1;
    return 0;
}

/* Sums over several axes, or of norms, which may be taken in any order. */
static int are_free(const struct instr *one, const struct instr *two)
{
    return one->kind == two->kind &&
           (one->kind == INSTR_NORM || (one->kind == INSTR_ALLREDUCE && one->dtype == DTYPE_F64));
}

/* Neighbours the other way round, where the second reads what the first writes: it comes too
 * early. */
static void check_order(struct program *program)
{
    int moved = 0;
    for (int i = 0; i + 1 < program->instrs; i++) {
        struct instr *one = &program->instr[i], *two = one + 1, was = *one;
        if (!reads_what_writes(program, two, one) || are_free(one, two))
            continue;
        *one = *two;
        *two = was;
        refused(program, "too early", i);
        *two = *one;
        *one = was;
        moved++;
    }
    assert_true(moved > 0);
    assert_right(program);
}

static void test_nothing_comes_too_early(void **state)
{
    programs_everywhere(check_order);
}

/* Another name for the same: the only view of a buffer that is as large. */
static int same_memory(const struct program *program, int b, int c)
{
    return buffer_root(program, b) == buffer_root(program, c) &&
           program->buffer[b].bytes == program->buffer[c].bytes &&
           program->buffer[b].from == program->buffer[c].from;
}

/* Each operand, exchanged for each other buffer of its size.  Where that means the same, as the
 * parameters an earlier gather brought, its time is over, and that is noticed. */
static void check_operands(struct program *program)
{
    static const char hazards[] =
        "wrong value|wrong size|wrong operand|used after release|released in flight|race|"
        "never released|read before written|memory reused";
    int exchanged = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        for (int slot = 0; slot < SLOTS && instr->kind != INSTR_RELEASE; slot++) {
            int was = instr->buffer[slot];
            for (int b = 0; was >= 0 && b < program->buffers; b++) {
                if (same_memory(program, b, was) ||
                    program->buffer[b].bytes != program->buffer[was].bytes ||
                    program->buffer[b].pool != program->buffer[was].pool)
                    continue;
                instr->buffer[slot] = b;
                assert_wrong(program, hazards, program->buffer[b].name, i);
                exchanged++;
            }
            instr->buffer[slot] = was;
        }
    }
    assert_true(exchanged > 0);
    assert_right(program);
}

static void test_every_operand_counts(void **state)
{
    programs_everywhere(check_operands);
}

/* Where it is only allowed to: a REDUCE to its source. */
static int is_result(const struct instr *instr, int slot)
{
    return instr->kind != INSTR_REDUCE || slot != SLOT_FROM;
}

/* Each operand taken away, said to be neither read nor written, and not to be written. */
static void check_missing(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        for (int slot = 0; slot < SLOTS && was.kind != INSTR_RELEASE; slot++) {
            if (was.buffer[slot] < 0)
                continue;
            instr->buffer[slot] = -1;
            refused(program, "an operand missing", i);
            *instr = was;
            if (was.kind == INSTR_RUN && slot == SPACE_WORK)
                continue;
            instr->reads &= ~space_bit(slot);
            instr->writes &= ~space_bit(slot);
            refused(program, "an operand not used", i);
            *instr = was;
            instr->writes &= ~space_bit(slot);
            if (was.writes >> slot & 1 && is_result(&was, slot))
                refused(program, "a result that is not written", i);
            *instr = was;
        }
    }
    assert_right(program);
}

static void test_no_operand_is_missing(void **state)
{
    programs_everywhere(check_missing);
}

/* In another phase than it is; and one of a unit that another rank has. */
static void check_phases(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i];
        enum segment_phase was = instr->phase;
        if (instr->kind != INSTR_RUN)
            continue;
        for (int phase = 0; phase < PHASES; phase++) {
            instr->phase = phase;
            if (phase != (int)was)
                refused(program, "another phase", i);
        }
        instr->phase = was;
        int unit = instr->unit;
        for (instr->unit = -1; instr->unit <= program->units->count; instr->unit++)
            if (instr->unit < 0 || instr->unit == program->units->count ||
                !program_owns(program, instr->unit))
                refused(program, "of a unit that the rank does not have", i);
        instr->unit = unit;
    }
    assert_right(program);
}

static void test_phases_and_stages_are_told_apart(void **state)
{
    programs_everywhere(check_phases);
}

/* Of another unit, flat or micro-batch than it is. */
static void check_places(struct program *program)
{
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        if (was.kind == INSTR_RUN || was.kind == INSTR_LOAD) {
            instr->micro = 1 - was.micro;
            refused(program, "another micro-batch", i);
        }
        *instr = was;
        if (instr_is_message(&was)) {
            instr->micro = was.micro < 0 ? 0 : 1 - was.micro;
            refused(program, "a message of another micro-batch", i);
            *instr = was;
            instr->peer = program->state->coord.at[MESH_PIPELINE];
            refused(program, "a message to itself", i);
            *instr = was;
            instr->elems--;
            refused(program, "a shorter message", i);
            *instr = was;
            instr->unit = was.unit < 0 ? -1 : (was.unit + 1) % program->units->count;
            instr->flat = was.flat < 0 ? -1 : (was.flat + 1) % program->units->flats;
            refused(program, "a message of another unit or flat", i);
            *instr = was;
            instr->phase = was.phase == PHASE_FORWARD ? PHASE_BACKWARD : PHASE_FORWARD;
            if (was.flat < 0)
                refused(program, "a message in the other direction", i);
        }
        *instr = was;
        int counts = was.kind == INSTR_RUN || was.kind == INSTR_GATHER ||
                     was.kind == INSTR_REDUCE || was.kind == INSTR_NORM || was.kind == INSTR_UPDATE;
        if (counts) {
            if (was.kind == INSTR_RUN || instr_is_exchange(&was))
                instr->unit = (was.unit + 1) % program->units->count;
            else
                instr->flat = (was.flat + 1) % program->units->flats;
            refused(program, "another unit or flat", i);
        }
        *instr = was;
    }
    assert_right(program);
}

static void test_units_and_micro_batches_are_told_apart(void **state)
{
    programs_everywhere(check_places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_instruction_can_be_left_out),
        cmocka_unit_test(test_nothing_of_updates_beside_forward_can_be_left_out),
        cmocka_unit_test(test_no_sum_can_be_doubled),
        cmocka_unit_test(test_accumulation_is_as_it_must_be),
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_sums_are_over_the_right_ranks),
        cmocka_unit_test(test_nothing_comes_too_early),
        cmocka_unit_test(test_every_operand_counts),
        cmocka_unit_test(test_no_operand_is_missing),
        cmocka_unit_test(test_no_sum_of_a_boundary_can_be_left_out),
        cmocka_unit_test(test_phases_and_stages_are_told_apart),
        cmocka_unit_test(test_units_and_micro_batches_are_told_apart),
    };
    return cmocka_run_group_tests_name("verify_values", tests, NULL, NULL);
}
