/* test_schedule_memory.c - the activations of every rank of a pipeline are those of the
 * micro-batches that its schedule has alive.
 *
 * What a schedule promises is counted from its list of actions and the sizes of segments alone: a
 * micro-batch keeps, of each unit of a stage, its input and what is saved, from forward to the end
 * of backward; where backward is in two parts, from the input to the weight part also what is
 * deferred and the gradients of outputs, while inputs that the weight part does not read are gone.
 * What passes besides, at any time: of one stage on a rank four boundaries at most, of two six:
 * activations and gradients that were received an action ahead, are being sent, or go from unit to
 * unit.
 *
 * The slab has more than what is in use at a time, where micro-batches use one set of buffers after
 * the other (schedule_sets.c): they have the same addresses there, and what is free between them
 * cannot always be used.  That is a sixteenth at most; with recomputation, where less is kept and
 * what passes weighs more, a fifth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/round.h"
#include "plan/report.h"
#include "program/memory.h"
#include "program/schedule.h"
#include "segment/place.h"
#include "tests/unit/rig.h"

static size_t rounded(size_t bytes)
{
    return round_up_bytes(bytes, PLACE_ALIGN);
}

/* What one micro-batch keeps of a stage: until the input part of backward is done, until all of
 * backward is, and from the input part on. */
struct chunk {
    size_t until_input, until_end, deferred;
};

static size_t chunk_bytes(const struct chunk *chunk)
{
    return chunk->until_input + chunk->until_end + chunk->deferred;
}

static void add_unit(struct chunk *chunk, const struct units *units, int u)
{
    const struct unit_boundaries *boundary = &units->boundary[u];
    int is_both = units_kind(units, u)->ends_in_loss && !units->request.splits_loss;
    uint64_t late = units->request.splits_backward && !is_both
                        ? units_segment(units, u, PHASE_BACKWARD_WEIGHT)->reads
                        : 0;
    for (int k = 0; k < boundary->inputs; k++) {
        size_t bytes = rounded(units->boundary[boundary->producer[k]].bytes);
        int is_early = units->request.splits_backward && !(late >> (SPACE_INPUT + k) & 1);
        *(is_early ? &chunk->until_input : &chunk->until_end) += bytes;
    }
    if (is_both) /* it makes all in backward, and keeps its input */
        return;
    chunk->until_end += rounded(units_segment(units, u, PHASE_FORWARD)->saved_bytes);
    if (late >> SPACE_DEFERRED & 1)
        chunk->deferred += rounded(units_segment(units, u, PHASE_BACKWARD_INPUT)->deferred_bytes);
    if (late >> SPACE_OUTPUT_GRAD & 1)
        chunk->deferred += rounded(boundary->bytes);
}

static struct chunk chunk_of(const struct units *units, int stage)
{
    struct units_stage own = units_stage(units, stage);
    struct chunk chunk = {0};
    for (int u = own.first; u < own.first + own.count; u++)
        add_unit(&chunk, units, u);
    return chunk;
}

/* The most bytes that a rank's micro-batches keep at a time. */
static size_t promised(const struct units *units, const struct schedule *s, int rank)
{
    int count;
    size_t alive = 0, most = 0;
    const struct schedule_action *action = schedule_actions(s, rank, &count);
    for (int a = 0; a < count; a++) {
        struct chunk chunk = chunk_of(units, action[a].stage);
        size_t kept = chunk.until_input + chunk.until_end;
        alive += action[a].phase == PHASE_FORWARD ? kept : 0;
        most = alive > most ? alive : most;
        if (action[a].phase == PHASE_BACKWARD_INPUT) /* one goes as the other comes */
            alive = alive - chunk.until_input + chunk.deferred;
        most = alive > most ? alive : most;
        alive -= action[a].phase == PHASE_BACKWARD ? kept : 0;
        alive -= action[a].phase == PHASE_BACKWARD_WEIGHT ? chunk.until_end + chunk.deferred : 0;
    }
    assert_int_equal(alive, 0);
    return most;
}

/* The most bytes of a program's activations that are in use at an instruction. */
static size_t used(const struct program *program)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    int64_t *change = array_make((size_t)program->instrs + 1, sizeof *change);
    int64_t now = 0, most = 0;
    for (int b = 0; b < program->buffers; b++) {
        const struct program_buffer *buffer = &program->buffer[b];
        if (buffer->pool != POOL_ACTIVATIONS || buffer->whole >= 0 || life[b].first < 0)
            continue;
        assert_false(buffer->persistent);
        change[life[b].first] += (int64_t)rounded(buffer->bytes);
        change[life[b].last + 1] -= (int64_t)rounded(buffer->bytes);
    }
    for (int i = 0; i < program->instrs; i++) {
        now += change[i];
        most = now > most ? now : most;
    }
    free(change);
    free(life);
    return (size_t)most;
}

static struct config config_of(const char *row, int ranks, int micros)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=8 model.hidden=32 model.heads=2 model.ffn=48 model.vocab=40 "
             "data.seq_len=16 train.global_batch=%d train.micro_batch=1 parallel.pipeline=%d "
             "parallel.schedule=%s",
             micros, ranks, row);
    return rig_config(text);
}

/* Do the micro-batches of a rank have a set of buffers each? */
static int has_sets_of_its_own(const struct program *program)
{
    for (int b = 0; b < program->buffers; b++)
        if (program->buffer[b].pool == POOL_ACTIVATIONS && program->buffer[b].like >= 0)
            return 0;
    return 1;
}

/* How many times the bytes in use the slab has, at most. */
static double check_rank(const struct fleet *fleet, int rank)
{
    const struct program *program = fleet->program[rank];
    const struct schedule *s = fleet->layout.schedule;
    size_t passing = (size_t)(2 + 2 * s->stages / s->ranks) * fleet->units->boundary[0].bytes;
    size_t want = promised(fleet->units, s, rank), most = used(program);
    size_t slab = program->pool_bytes[POOL_ACTIVATIONS];
    assert_in_range(most, want - want / 50, want + passing);
    assert_in_range(slab, most, has_sets_of_its_own(program) ? want + passing : most * 17 / 16);
    return (double)slab / (double)most;
}

/* The same for all ranks of a pipeline that recomputes. */
static double check_recomputed(const char *row, int ranks, int micros, const char *recompute)
{
    struct config config = config_of(row, ranks, micros);
    struct fleet fleet;
    struct error err = {0};
    double worst = 1;
    if (config_set(&config, "recompute", recompute, &err))
        fail_msg("%s", err.text);
    fleet_open(&fleet, &config, ranks, PROGRAM_TRAIN);
    for (int rank = 0; rank < ranks; rank++) {
        size_t most = used(fleet.program[rank]);
        size_t slab = fleet.program[rank]->pool_bytes[POOL_ACTIVATIONS];
        assert_in_range(slab, most, most * 6 / 5);
        worst = fmax(worst, (double)slab / (double)most);
    }
    fleet_close(&fleet);
    return worst;
}

/* Every rank of a row, and the plan's numbers. */
static double check_cell(const char *row, int ranks, int micros)
{
    struct config config = config_of(row, ranks, micros);
    struct report report;
    struct fleet fleet;
    struct error err = {0};
    double worst = 1;
    fleet_open(&fleet, &config, ranks, PROGRAM_TRAIN);
    struct report_request request = {.config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
    if (report_make(&report, &request, &err) || !report.verified)
        fail_msg("%s%s", err.text, report.verdict.text);
    for (int rank = 0; rank < ranks; rank++) {
        double ratio = check_rank(&fleet, rank);
        worst = ratio > worst ? ratio : worst;
        assert_int_equal(report.pipeline[rank].activation_bytes,
                         fleet.program[rank]->pool_bytes[POOL_ACTIVATIONS]);
    }
    report_free(&report);
    fleet_close(&fleet);
    return worst;
}

static void test_activations_are_those_promised(void **state)
{
    static const char *const rows[] = {"naive", "gpipe", "1f1b", "interleaved_1f1b",
                                       "zb_h1", "zb_v"};
    static const int micros[] = {1, 2, 5, 8};
    for (int row = 0; row < 6; row++) {
        double worst = 1;
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int m = 0; m < 4; m++) {
                double ratio = check_cell(rows[row], ranks, micros[m]);
                worst = ratio > worst ? ratio : worst;
            }
        print_message("%s: a slab has at most %.2f times what is in use\n", rows[row], worst);
    }
}

static void test_recomputed_activations(void **state)
{
    static const char *const rows[] = {"1f1b", "interleaved_1f1b", "zb_h1", "zb_v"};
    static const char *const recomputes[] = {"selective", "full"};
    for (int row = 0; row < 4; row++)
        for (int r = 0; r < 2; r++) {
            double worst = 1;
            for (int ranks = 2; ranks <= 4; ranks++)
                for (int micros = 2; micros <= 8; micros += 3)
                    worst = fmax(worst, check_recomputed(rows[row], ranks, micros, recomputes[r]));
            print_message("%s, recompute=%s: at most %.2f times\n", rows[row], recomputes[r],
                          worst);
        }
}

/* The count itself, of lists that are short enough to see: in units of what a chunk keeps. */
static void test_what_is_promised(void **state)
{
    static const struct {
        const char *row;
        int ranks, micros, rank, alive;
    } known[] = {{"naive", 3, 5, 0, 1}, {"gpipe", 3, 5, 1, 5}, {"1f1b", 3, 5, 0, 3},
                 {"1f1b", 3, 2, 0, 2},  {"1f1b", 3, 5, 1, 2},  {"1f1b", 2, 8, 1, 1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct config config = config_of(known[i].row, known[i].ranks, known[i].micros);
        struct fleet fleet;
        fleet_open(&fleet, &config, known[i].ranks, PROGRAM_TRAIN);
        struct chunk chunk = chunk_of(fleet.units, known[i].rank);
        assert_true(chunk.until_end > 5 * rounded(fleet.units->boundary[0].bytes));
        assert_int_equal(promised(fleet.units, fleet.layout.schedule, known[i].rank),
                         (size_t)known[i].alive * chunk_bytes(&chunk));
        fleet_close(&fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_promised),
        cmocka_unit_test(test_activations_are_those_promised),
        cmocka_unit_test(test_recomputed_activations),
    };
    return cmocka_run_group_tests_name("schedule_memory", tests, NULL, NULL);
}
