/* test_fewest.c - the fewest ranks that hold a run: against planning every count, and what the row
 * says against a plan of its settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "plan/fewest.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"

enum { GIB = 1 << 30, MIB = 1 << 20, TRIED = 24 };

/* The reserve of CUDA and its libraries is 0.6 GiB and more. */
static struct machine small(size_t memory_bytes)
{
    struct machine machine;
    struct error err = {0};
    if (machine_find(&machine, "h100", &err))
        fail_msg("%s", err.text);
    machine.memory_bytes = memory_bytes;
    machine.per_node = 4;
    return machine;
}

static int nodes_of(int ranks)
{
    return (ranks + 3) / 4;
}

/* Of a plan with these settings, the most a rank takes; all 0: there is none. */
static struct memory_limits takes(const char *base, const char *settings, int ranks)
{
    char text[1200];
    struct report report;
    snprintf(text, sizeof text, "%s %s", base, settings);
    struct config config = rig_config(text);
    struct report_request request = {
        .config = &config, .ranks = ranks, .nodes = nodes_of(ranks), .threads = 1};
    if (report_measure(&report, &request, NULL))
        return (struct memory_limits){0};
    struct memory_limits most = report_most(&report);
    report_free(&report);
    return most;
}

/* The first count on which some degree of tensor ranks fits; own: the only one, if not 0. */
static int by_trying(const char *base, const char *offload, int own, size_t device_bytes,
                     size_t node_bytes)
{
    struct config base_config = rig_config(base);
    for (int ranks = 1; ranks <= TRIED; ranks += ranks < 4 ? 1 : 4)
        for (int try = 0; try < 2 * (own ? 1 : 3); try++) {
            int micro = try % 2, tensor = own ? own : 1 << try / 2;
            char settings[256];
            snprintf(settings, sizeof settings,
                     "recompute=full train.micro_batch=%d parallel.tensor=%d %s", micro, tensor,
                     offload);
            if (ranks % tensor)
                continue;
            struct memory_limits most = takes(base, settings, ranks);
            size_t a_rank = most.host_bytes + report_process_bytes(&base_config, 0);
            size_t on_node = a_rank * (size_t)(ranks < 4 ? ranks : 4);
            if (most.device_bytes && most.device_bytes <= device_bytes &&
                (!node_bytes || on_node <= node_bytes))
                return ranks;
        }
    return 0;
}

static const char base[] = "model.preset=llama-124m device=cuda precision=bf16 data.seq_len=1024 "
                           "train.global_batch=64 train.micro_batch=4";
static const char *const offloads[FEWEST_ROWS] = {
    "", "offload.optimizer=host", "offload.optimizer=host offload.gradients=host",
    "offload.optimizer=host offload.gradients=host offload.params=host"};

static void check(int own, size_t device_bytes, size_t node_bytes)
{
    char text[512];
    snprintf(text, sizeof text, "%s parallel.tensor=%d", base, own ? own : 1);
    struct machine machine = small(device_bytes);
    struct config config = rig_config(text);
    struct fewest_request request = {
        .config = &config, .machine = &machine, .threads = 1, .node_bytes = node_bytes};
    struct fewest fewest;
    struct error err = {0};
    if (fewest_find(&fewest, &request, &err))
        fail_msg("%s", err.text);
    assert_int_equal(fewest.rows, FEWEST_ROWS);
    for (int i = 0; i < FEWEST_ROWS; i++) {
        const struct fewest_row *row = &fewest.row[i];
        int wanted = by_trying(text, offloads[i], own, device_bytes, node_bytes);
        if (!row->found || row->ranks > TRIED) {
            assert_int_equal(wanted, 0);
            continue;
        }
        assert_int_equal(row->ranks, wanted);
        assert_int_equal(row->nodes, nodes_of(wanted));
        struct memory_limits most = takes(text, row->settings, row->ranks);
        assert_int_equal(most.device_bytes, row->takes.device_bytes);
        assert_int_equal(most.host_bytes, row->takes.host_bytes);
        assert_true(most.device_bytes <= device_bytes);
        assert_true(row->step_s > 0 && row->tokens_per_s > 0);
    }
    machine_free(&machine);
}

/* From a GPU that holds all to one that holds hardly more than the reserve. */
static void test_against_every_count(void **state)
{
    static const int mib[] = {1800, 2000, 3000};
    for (size_t i = 0; i < sizeof mib / sizeof mib[0]; i++)
        check(0, (size_t)mib[i] * MIB, 0);
}

/* Tensor ranks that the configuration has stay. */
static void test_tensor_ranks_as_asked_for(void **state)
{
    for (int mib = 2450; mib <= 2750; mib += 100)
        check(2, (size_t)mib * MIB, 0);
}

static void test_the_nodes_memory_is_a_limit(void **state)
{
    check(0, (size_t)2250 * MIB, (size_t)1500 * MIB);
}

/* What a row says is all that changes: the base with its settings behind it takes as much. */
static void test_settings_pasted_are_the_row(void **state)
{
    static const char *const odd[] = {
        "parallel.shard=4",
        "parallel.strategy=HYBRID_SHARD parallel.shard=4",
        "parallel.strategy=HYBRID_SHARD_ZERO2 parallel.replicate=2",
        "parallel.strategy=NO_SHARD parallel.replicate=16",
        "parallel.layout=auto",
        "parallel.strategy=SHARD_GRAD_OP parallel.pipeline=2 parallel.stages=8,6",
        "parallel.pipeline=2 parallel.pipeline_reshard=true parallel.shard=2",
    };
    struct machine machine = small((size_t)3000 * MIB);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s %s", base, odd[i]);
        struct config config = rig_config(text);
        struct fewest_request request = {.config = &config, .machine = &machine, .threads = 1};
        struct fewest fewest;
        struct error err = {0};
        if (fewest_find(&fewest, &request, &err))
            fail_msg("%s: %s", odd[i], err.text);
        for (int k = 0; k < FEWEST_ROWS; k++) {
            const struct fewest_row *row = &fewest.row[k];
            char pasted[1200];
            if (!row->found)
                continue;
            struct memory_limits most = takes(text, row->settings, row->ranks);
            assert_int_equal(most.device_bytes, row->takes.device_bytes);
            assert_int_equal(most.host_bytes, row->takes.host_bytes);
            snprintf(pasted, sizeof pasted, "%s %s", text, row->settings);
            config = rig_config(pasted);
            assert_int_equal(config.parallel.layout, PARALLEL_LAYOUT_GIVEN);
        }
    }
    machine_free(&machine);
}

/* On the very bytes that it says it fits, and one less takes more ranks or another layout. */
static void test_to_the_byte(void **state)
{
    struct machine machine = small((size_t)3 * GIB);
    struct config config = rig_config(base);
    struct fewest_request request = {.config = &config, .machine = &machine, .threads = 1};
    struct fewest first, same, less;
    assert_int_equal(fewest_find(&first, &request, NULL), 0);
    struct memory_limits least = takes(base, "recompute=full train.micro_batch=1", 1);
    machine.memory_bytes = least.device_bytes;
    assert_int_equal(fewest_find(&same, &request, NULL), 0);
    assert_int_equal(same.row[0].ranks, 1);
    machine.memory_bytes = least.device_bytes - 1;
    assert_int_equal(fewest_find(&less, &request, NULL), 0);
    assert_true(less.row[0].ranks > 1);
    machine_free(&machine);
}

/* Nothing holds it: an error that names the machine. */
static void test_nothing_fits(void **state)
{
    struct machine machine = small((size_t)100 * MIB);
    struct config config = rig_config(base);
    struct fewest_request request = {.config = &config, .machine = &machine, .threads = 1};
    struct fewest fewest;
    struct error err = {0};
    assert_int_equal(fewest_find(&fewest, &request, &err), -1);
    assert_non_null(strstr(err.text, "4096 ranks of h100"));
    machine_free(&machine);
}

/* Processors have one memory: one row, in which the node's limits. */
static void test_processors(void **state)
{
    static const char cpu[] = "model.preset=llama-10m device=cpu data.seq_len=128 "
                              "train.global_batch=16 train.micro_batch=1";
    struct machine machine = small((size_t)90 * MIB);
    struct config config = rig_config(cpu);
    struct fewest_request request = {.config = &config, .machine = &machine, .threads = 1};
    struct fewest fewest;
    machine.gpu[0] = 0;
    assert_int_equal(fewest_find(&fewest, &request, NULL), 0);
    assert_int_equal(fewest.rows, 1);
    assert_true(fewest.row[0].takes.host_bytes > 0);
    assert_true(fewest.row[0].takes.host_bytes * (size_t)fewest.row[0].ranks <=
                (size_t)fewest.row[0].nodes * 4 * 90 * MIB);
    machine_free(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_count),
        cmocka_unit_test(test_tensor_ranks_as_asked_for),
        cmocka_unit_test(test_the_nodes_memory_is_a_limit),
        cmocka_unit_test(test_settings_pasted_are_the_row),
        cmocka_unit_test(test_to_the_byte),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
