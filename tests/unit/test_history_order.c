/* test_history_order.c - the faults in the table of test_history.c that take the right thing of the
 * wrong micro-batch, or at the wrong time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/faults.h"

/* The same RUN or message of another micro-batch, or NULL. */
static const struct instr *same_of_other(const struct program *program, const struct instr *instr)
{
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *other = &program->instr[i];
        if (other->kind == instr->kind && other->unit == instr->unit &&
            other->phase == instr->phase && other->piece == instr->piece &&
            other->flat == instr->flat && other->micro >= 0 && other->micro != instr->micro)
            return other;
    }
    return NULL;
}

/* Each operand of some instructions, that of another micro-batch instead, and the instruction said
 * to be of that one. */
static int take_other(struct program *program, int i, uint64_t slots)
{
    struct instr *instr = &program->instr[i], was = *instr;
    const struct instr *other = same_of_other(program, instr);
    char text[128];
    int spoilt = 0;
    if (!other)
        return 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        int b = slots >> slot & 1 ? other->buffer[slot] : -1;
        if (b < 0 || was.buffer[slot] < 0 || b == was.buffer[slot])
            continue;
        instr->buffer[slot] = b;
        faults_refused(program, " micro ", NULL);
        *instr = was;
        spoilt++;
    }
    instr->micro = other->micro;
    faults_refused(program, instr_text(program, i, text, sizeof text), " micro ");
    *instr = was;
    return spoilt + 1;
}

/* What forward kept for backward (keys and values among it), what pieces hand on, and what ranks
 * bring together of it: of another micro-batch; or not brought together. */
static int spoil_kept(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        if (instr->kind == INSTR_RUN)
            spoilt += take_other(program, i,
                                 space_bit(SPACE_SAVED) | space_bit(SPACE_DEFERRED) |
                                     space_bit(SPACE_CARRY));
        if (!instr_is_exchange(&was))
            continue;
        spoilt += take_other(program, i, space_bit(SLOT_FROM) | space_bit(SLOT_TO));
        faults_leave_out(instr);
        faults_refused(program, " micro ", "head");
        *instr = was;
        spoilt++;
    }
    return spoilt;
}

static void test_what_is_kept(void **state)
{
    faults_everywhere(spoil_kept, 1000);
}

static int spoil_boundaries(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++)
        if (instr_is_message(&program->instr[i]) && program->instr[i].flat < 0)
            spoilt += take_other(program, i, space_bit(SLOT_FROM) | space_bit(SLOT_TO));
    return spoilt;
}

static void test_boundaries_of_others(void **state)
{
    faults_everywhere(spoil_boundaries, 100);
}

static int spoil_data(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == INSTR_LOAD)
            spoilt += take_other(program, i, ~0u);
        else if (program->instr[i].kind == INSTR_RUN)
            spoilt += take_other(program, i, space_bit(SPACE_TOKENS) | space_bit(SPACE_TARGETS));
    return spoilt;
}

static void test_data_of_others(void **state)
{
    faults_everywhere(spoil_data, 100);
}

/* Each weight part, in front of the input part of the same unit and micro-batch. */
static int weight_first(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr weight = program->instr[i];
        int input = 0;
        char text[128];
        if (weight.kind != INSTR_RUN || weight.phase != PHASE_BACKWARD_WEIGHT)
            continue;
        while (input < i && (program->instr[input].kind != INSTR_RUN ||
                             program->instr[input].phase != PHASE_BACKWARD_INPUT ||
                             program->instr[input].unit != weight.unit ||
                             program->instr[input].micro != weight.micro))
            input++;
        if (input == i)
            continue;
        faults_move(program, i, input);
        faults_refused(program, instr_text(program, input, text, sizeof text), NULL);
        faults_move(program, input, i);
        spoilt++;
    }
    return spoilt;
}

static void test_input_part_comes_first(void **state)
{
    faults_everywhere(weight_first, 16);
}

/* The last of what makes or sums a flat's gradient, behind its update. */
static int update_early(struct program *program, int f)
{
    int update = faults_find(program, INSTR_UPDATE, f), last = update;
    while (last >= 0 && !faults_makes_gradient(program, &program->instr[last], f))
        last--;
    const char *name = faults_name(program, f);
    assert_true(last >= 0 && update > 0);
    int is_run =
        program->instr[last].kind == INSTR_RUN; /* what reads its results may miss it first */
    faults_move(program, last, update);
    faults_refused(program, name, is_run ? " micro " : NULL);
    return 1;
}

static int updates_early(struct program *program)
{
    return faults_each_flat(program, update_early);
}

static void test_update_comes_last(void **state)
{
    faults_everywhere(updates_early, 60);
}

/* An update that leaves out what is computed with, and each gather of that. */
static int stay_stale(struct program *program, int f)
{
    int spoilt = 0, update = faults_find(program, INSTR_UPDATE, f);
    struct instr *instr = &program->instr[update], was = *instr;
    if (was.buffer[SLOT_PARAM] >= 0) {
        instr->buffer[SLOT_PARAM] = -1;
        instr->writes &= ~space_bit(SLOT_PARAM);
        faults_refused(program, faults_name(program, f), NULL);
        *instr = was;
        spoilt++;
    }
    for (int i = 0; i < program->instrs; i++) {
        struct instr *gather = &program->instr[i], kept = *gather;
        if (kept.kind != INSTR_GATHER || kept.flat != f)
            continue;
        faults_leave_out(gather);
        faults_refused(program, faults_name(program, f), NULL);
        *gather = kept;
        faults_move(program, update, i); /* what comes after the update is the next step's */
        faults_refused(program, faults_name(program, f), NULL);
        faults_move(program, i, update);
        spoilt++;
    }
    return spoilt;
}

static int stay_stale_all(struct program *program)
{
    return faults_each_flat(program, stay_stale);
}

static void test_parameters_are_fresh(void **state)
{
    faults_everywhere(stay_stale_all, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_kept),      cmocka_unit_test(test_boundaries_of_others),
        cmocka_unit_test(test_data_of_others),    cmocka_unit_test(test_input_part_comes_first),
        cmocka_unit_test(test_update_comes_last), cmocka_unit_test(test_parameters_are_fresh),
    };
    return cmocka_run_group_tests_name("history order", tests, NULL, NULL);
}
