/* test_large.c - programs as large as they come.  Llama-3-70B on 512 ranks, in every strategy, is
 * compiled for all ranks and passes verification, each rank's program and all together.
 * Llama-3.1-405B on 16,384 ranks is compiled for those that others repeat, and on a mesh of all
 * four axes ranks do repeat them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "plan/report.h"
#include "plan/settings.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

enum { RANKS = 512, NODES = 64 };

static void test_70b(void **state)
{
    struct config config = rig_config("model.preset=llama3-70b precision=bf16 device=cpu "
                                      "data.seq_len=8192 train.global_batch=512 recompute=full");
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        char name[CONFIG_TEXT];
        struct error err = {0};
        struct report report;
        assert_int_equal(settings_strategy(&config, s, &err), 0);
        int64_t start = clock_ns();
        struct report_request request = {
            .config = &config, .ranks = RANKS, .nodes = NODES, .threads = 1};
        if (report_make(&report, &request, &err))
            fail_msg("%s", err.text);
        print_message("# %s: %d instructions on %d ranks compiled and verified in %.1f s\n",
                      settings_strategy_name(s, name), report.rank[0].instrs, RANKS,
                      (double)(clock_ns() - start) / 1e9);
        if (!report.verified)
            fail_msg("%s: %s", name, report.verdict.text);
        assert_int_equal(report.measured, RANKS);
        report_free(&report);
    }
}

/* 16 stages x 4 x 32 x 8 tensor ranks, 128 micro-batches; where it should be short, 16.  The CPU
 * time is printed, and no condition: it says more of a shared machine than of the program. */
static void test_405b(void **state)
{
    enum { ALL = 16384 };
    struct config config =
        rig_config("model.preset=llama3.1-405b precision=bf16 device=cuda data.seq_len=8192 "
                   "recompute=full train.micro_batch=1 train.global_batch=16384 parallel.tensor=8 "
                   "parallel.pipeline=16 parallel.schedule=1f1b parallel.strategy=HYBRID_SHARD "
                   "parallel.shard=32");
    struct error err = {0};
    struct report report;
    struct machine h100;
    assert_int_equal(machine_find(&h100, "h100", &err), 0);
    clock_t start = clock();
    if (rig_is_short())
        config.train.global_batch /= 8;
    struct report_request request = {
        .config = &config, .ranks = ALL, .nodes = ALL / 8, .threads = 1, .speeds = &h100};
    if (report_make(&report, &request, &err))
        fail_msg("%s", err.text);
    double cpu_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("# 405b: %d instructions on %d ranks compiled, verified and played in %.1f s: a "
                  "step is %.3f s on H100s, %.1f %% of their peak\n",
                  report.rank[0].instrs, ALL, cpu_s, report.forecast.step_s,
                  100 * report_mfu(&report, 0));
    if (!report.verified)
        fail_msg("%s", report.verdict.text);
    assert_int_equal(report.measured, ALL);
    for (int r = 0; r < ALL; r++)
        assert_true(report.rank[r].instrs > 0 && report.rank[r].need.device_bytes > 0);
    assert_int_equal(report.forecast.ranks, 16);
    assert_true(report_mfu(&report, 0) > 0.1 && report_mfu(&report, 0) < 0.9);
    machine_free(&h100);
    report_free(&report);
}

/* Along an axis of the data every rank from the second on has the same list and needs the same
 * memory; and all pass verification. */
static void test_ranks_repeat_others(void **state)
{
    static const char *const strategies[] = {"FULL_SHARD parallel.persist_below=2000",
                                             "HYBRID_SHARD parallel.shard=3", "NO_SHARD",
                                             "SHARD_OPTIM"};
    for (int s = 0; s < 4; s++) {
        char text[512];
        struct fleet fleet;
        struct error err = {0};
        snprintf(text, sizeof text,
                 "model.layers=3 model.hidden=42 model.heads=6 model.kv_heads=3 model.head_dim=6 "
                 "model.ffn=61 model.vocab=101 data.seq_len=17 "
                 "train.micro_batch=1 train.global_batch=18 parallel.tensor=2 parallel.pipeline=2 "
                 "device=cpu parallel.strategy=%s",
                 strategies[s]);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, 36, PROGRAM_TRAIN);
        const struct mesh_shape *shape = &fleet.layout.shape;
        assert_int_equal(mesh_members(shape, MESH_DATA), 9);
        for (int r = 0; r < fleet.ranks; r++) {
            struct mesh_coord coord = mesh_coord_of_rank(shape, r);
            for (int axis = MESH_REPLICATE; axis <= MESH_SHARD; axis++)
                coord.at[axis] = coord.at[axis] > 1 ? 1 : coord.at[axis];
            const struct program *own = fleet.program[r],
                                 *other = fleet.program[mesh_rank(shape, coord)];
            assert_int_equal(own->instrs, other->instrs);
            assert_memory_equal(own->instr, other->instr, (size_t)own->instrs * sizeof *own->instr);
            assert_memory_equal(own->pool_bytes, other->pool_bytes, sizeof own->pool_bytes);
            if (verify_program(own, &err))
                fail_msg("%s: %s", strategies[s], err.text);
        }
        fleet_close(&fleet);
    }
}

/* Where the units of variants are alike, so are the programs of ranks there, and these pass; sizes
 * that ranks do not divide are noticed. */
static void test_places_repeat_others(void **state)
{
    static const struct {
        const char *text;
        int ranks, alike;
    } rows[] = {
        {"model.heads=8 model.kv_heads=4 model.ffn=64 model.vocab=96 parallel.tensor=4 "
         "parallel.pipeline=2",
         8, 1},
        {"model.heads=8 model.kv_heads=2 model.ffn=64 model.vocab=96 parallel.tensor=4 "
         "parallel.tensor_overlap=2",
         8, 1},
        {"model.heads=8 model.kv_heads=8 model.ffn=64 model.vocab=96 parallel.context=4 "
         "parallel.strategy=SHARD_OPTIM",
         4, 1},
        {"model.heads=8 model.kv_heads=4 model.ffn=62 model.vocab=96 parallel.tensor=4", 4, 0},
        {"model.heads=8 model.kv_heads=4 model.ffn=64 model.vocab=98 parallel.tensor=4", 4, 0},
        {"model.heads=5 model.kv_heads=5 model.ffn=64 model.vocab=96 parallel.tensor=4", 4, 1},
        {"model.heads=6 model.kv_heads=6 model.ffn=64 model.vocab=96 parallel.tensor=4", 4, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct fleet fleet;
        struct error err = {0};
        snprintf(text, sizeof text,
                 "model.layers=3 model.hidden=48 model.head_dim=6 data.seq_len=16 device=cpu "
                 "train.micro_batch=1 train.global_batch=4 %s",
                 rows[i].text);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, rows[i].ranks, PROGRAM_TRAIN);
        int alike = units_are_alike(fleet.variant[1], fleet.variant[2]) &&
                    units_are_alike(fleet.variant[1], fleet.variant[3]);
        assert_int_equal(alike, rows[i].alike);
        for (int r = 3; r < fleet.ranks && alike; r++) {
            const struct program *own = fleet.program[r], *other = fleet.program[r - r % 4 + 1];
            if (r % 4 < 2)
                continue;
            assert_int_equal(own->instrs, other->instrs);
            assert_memory_equal(own->instr, other->instr, (size_t)own->instrs * sizeof *own->instr);
            assert_memory_equal(own->pool_bytes, other->pool_bytes, sizeof own->pool_bytes);
            if (verify_program(own, &err))
                fail_msg("%s: %s", rows[i].text, err.text);
        }
        fleet_close(&fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_repeat_others),
                                       cmocka_unit_test(test_places_repeat_others),
                                       cmocka_unit_test(test_405b), cmocka_unit_test(test_70b)};
    return cmocka_run_group_tests_name("large", tests, NULL, NULL);
}
