/* test_estimate.c - the published figures of sharded training, and plans held against the formulas
 * behind them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/compare.h"
#include "plan/estimate.h"
#include "tests/unit/rig.h"

/* Megatron-LM's distributed optimizer is stage 1 over fp32 gradients, which is trireme's bf16. */
static const struct estimate_regime megatron = {.params = 2, .grads = 4, .optimizer = 12};

/* Bytes of a parameter with AdamW, computing in dtype: gradients and moments are fp32, and masters
 * too unless the parameters are.  Stage 3 on several ranks keeps no 16-bit parameters: they are
 * made of the masters for each use. */
static struct estimate_regime own_regime(enum dtype dtype, int stage, int ranks)
{
    double number = sizeof(float), moments = 2 * number;
    if (dtype == DTYPE_F32)
        return (struct estimate_regime){number, number, moments};
    double params = stage >= 3 && ranks > 1 ? 0 : (double)dtype_bytes(dtype);
    return (struct estimate_regime){params, number, moments + number};
}

/* Numbers a rank sends in a step, in parameters, with one micro-batch: the limit for many ranks. */
static double volume_of(int stage)
{
    return stage >= 3 ? 3 : 2;
}

static void test_zero_paper(void **state)
{
    static const char *const published[] = {"120.0", "31.4", "16.6", "1.9"};
    for (int stage = 0; stage < 4; stage++) {
        char text[16];
        double bytes = 7.5e9 * estimate_state(&estimate_zero, stage, 64);
        snprintf(text, sizeof text, "%.1f", bytes / 1e9);
        assert_string_equal(text, published[stage]);
        assert_true(estimate_state(&estimate_zero, stage, 1) == 16);
    }
}

/* bf16 parameters and fp32 gradients: 6 + 12 / d bytes, 18 without sharding. */
static void test_megatron(void **state)
{
    static const int ranks[] = {1, 2, 3, 8, 64, 1000};
    struct estimate_regime half = own_regime(DTYPE_BF16, 2, 8), fp32 = own_regime(DTYPE_F32, 3, 8);
    struct estimate_regime cast = own_regime(DTYPE_F16, 3, 8);
    assert_memory_equal(&half, &megatron, sizeof half);
    assert_true(estimate_state(&cast, 3, 8) == 2);
    assert_true(fp32.params == 4 && fp32.grads == 4 && fp32.optimizer == 8);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        assert_true(estimate_state(&megatron, 0, ranks[i]) == 18);
        assert_true(estimate_state(&megatron, 1, ranks[i]) == 6 + 12.0 / ranks[i]);
        assert_true(estimate_state(&fp32, 3, ranks[i]) == 16.0 / ranks[i]);
    }
}

/* Padding of flat parameters: 64 bytes a tensor, of which a block has a dozen, and 64 a shard of a
 * unit. */
static double padding(const struct report *report)
{
    double units = (double)report->config.model.layers + 2;
    return units * 18 * 16 * (12 + report->layout.shape.degree[MESH_SHARD]);
}

static struct compare compare_of(const struct config *config, int ranks, int nodes)
{
    struct error err = {0};
    struct report report;
    struct compare compare;
    struct report_request request = {
        .config = config, .ranks = ranks, .nodes = nodes, .threads = 1};
    if (report_measure(&report, &request, &err))
        fail_msg("%s", err.text);
    compare_make(&compare, &report, 1);
    report_free(&report);
    return compare;
}

static void check_state(const struct compare_row *row, int strategy)
{
    const struct report *report = &row->report;
    const size_t *bytes = report->rank[0].need.pool_bytes;
    int stage = config_sharding[strategy].stage, shards = report->layout.shape.degree[MESH_SHARD];
    struct estimate_regime own = own_regime(report->layout.dtype, stage, shards);
    double stated = (double)report->params * estimate_state(&own, stage, shards);
    double planned = (double)(bytes[POOL_PARAMS] + bytes[POOL_GRADS] + bytes[POOL_OPTIMIZER]);
    assert_true(planned >= stated && planned <= stated + padding(report));
}

/* What a rank keeps of the model, in every strategy, is the formula and padding; with one
 * micro-batch gradients would lie where activations are. */
static void test_state_of_plans(void **state)
{
    static const int ranks[] = {1, 3, 4, 64};
    static const char *const precision[] = {"fp32", "bf16"};
    for (int i = 0; i < 8; i++) {
        char text[256];
        int nodes = ranks[i % 4] % 4 ? 1 : ranks[i % 4] / 2;
        snprintf(text, sizeof text,
                 "model.preset=llama-124m data.seq_len=64 device=cpu precision=%s "
                 "train.micro_batch=1 train.global_batch=%d",
                 precision[i / 4], 2 * ranks[i % 4]);
        struct config config = rig_config(text);
        struct compare compare = compare_of(&config, ranks[i % 4], nodes);
        for (int s = 0; s < CONFIG_STRATEGIES; s++) {
            assert_int_equal(compare.row[s].made, nodes > 1 || !config_sharding[s].hybrid);
            if (compare.row[s].made)
                check_state(&compare.row[s], s);
            else
                assert_non_null(strstr(compare.row[s].why.text, "--nodes"));
        }
        compare_free(&compare);
    }
}

/* 2 P, 2 P, 2 P and 3 P for many ranks; what is used twice in a row is gathered once: the embedding
 * has no use for its parameters in backward, nor the head for a second gathering. */
static void test_volumes(void **state)
{
    enum { N = 512 };
    struct config config = rig_config("model.preset=llama3-70b precision=bf16 device=cpu "
                                      "data.seq_len=512 train.global_batch=512");
    struct compare compare = compare_of(&config, N, 64);
    double params = (double)compare.row[0].report.params, ends = 2.0 * 128256 * 8192 / params;
    for (int s = 0; s <= STRATEGY_FULL_SHARD; s++) {
        double wanted = volume_of(s) * (N - 1) / N, got = compare_volume(&compare.row[s]);
        wanted -= s == STRATEGY_FULL_SHARD ? ends : 0;
        assert_true(got > wanted * 0.999 && got < wanted * 1.001);
    }
    /* within a node of 8 the same, and a sum of shards over 64 */
    double hybrid = compare_volume(&compare.row[STRATEGY_HYBRID_SHARD_ZERO2]);
    double wanted = 2 * 7 / 8.0 + 2 * 63 / 64.0 / 8;
    assert_true(hybrid > wanted * 0.999 && hybrid < wanted * 1.001);
    compare_free(&compare);
}

/* The column of the configuration's own strategy is its plan, whichever that is; every rank takes
 * the same memory. */
static void test_columns(void **state)
{
    static const char *const layouts[] = {
        "parallel.strategy=NO_SHARD",
        "parallel.strategy=SHARD_OPTIM train.micro_batch=1",
        "parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local",
        "parallel.strategy=FULL_SHARD recompute=full",
        "parallel.strategy=HYBRID_SHARD parallel.shard=3",
        "parallel.strategy=HYBRID_SHARD_ZERO2",
    };
    for (int i = 0; i < CONFIG_STRATEGIES; i++) {
        char text[256];
        struct report report;
        snprintf(text, sizeof text,
                 "model.preset=llama-tiny device=cpu data.seq_len=32 train.global_batch=13 %s",
                 layouts[i]);
        struct config config = rig_config(text);
        struct report_request request = {.config = &config, .ranks = 6, .nodes = 3, .threads = 1};
        assert_int_equal(report_make(&report, &request, NULL), 0);
        struct compare compare;
        compare_make(&compare, &report, 1);
        for (int s = 0; s < CONFIG_STRATEGIES; s++) {
            assert_int_equal(compare.row[s].chosen, s == i);
            assert_true(compare.row[s].made);
        }
        assert_memory_equal(compare.row[i].report.rank, report.rank, sizeof *report.rank);
        for (int r = 1; r < 6; r++)
            assert_memory_equal(report.rank[r].need.pool_bytes, report.rank[0].need.pool_bytes,
                                sizeof report.rank[0].need.pool_bytes);
        compare_free(&compare);
        report_free(&report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_paper),     cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_state_of_plans), cmocka_unit_test(test_volumes),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
}
