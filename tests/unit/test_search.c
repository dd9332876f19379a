/* test_search.c - a search finds what planning every candidate finds.
 *
 * Twenty-seven small cases of some hundred candidates each: models, machines, ranks and memories
 * for which other layouts win, some of which fit only with recomputation, more shards or stages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/search.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"

static const struct {
    const char *settings, *machine;
    int ranks, nodes;
    double gib;       /* of each rank */
    const char *wins; /* that the fastest has among its settings; NULL: it is not said */
} cases[] = {
    {"model.preset=llama-10m train.global_batch=32", "h100", 8, 1, 3},
    {"model.preset=llama-10m train.global_batch=32", "h100", 8, 2, 2.2},
    {"model.preset=llama-10m train.global_batch=32", "a100-40", 8, 4, 2},
    {"model.preset=llama-10m train.global_batch=16", "rtx4090", 8, 1, 2.1},
    {"model.preset=llama-124m data.seq_len=512 train.global_batch=32", "h100", 8, 1, 79},
    {"model.preset=llama-124m data.seq_len=512 train.global_batch=32", "h100", 8, 2, 4},
    {"model.preset=llama-124m data.seq_len=512 train.global_batch=32", "a100-80", 8, 4, 3},
    {"model.preset=llama-124m data.seq_len=2048 train.global_batch=16", "h200", 8, 1, 4},
    {"model.preset=llama-124m data.seq_len=2048 train.global_batch=16", "rtx4090", 8, 2, 6},
    {"model.preset=gpt2 data.seq_len=512 train.global_batch=32", "h100", 8, 1, 5},
    {"model.preset=gpt2 data.seq_len=512 train.global_batch=32", "a100-40", 8, 2, 3},
    {"model.preset=gpt2 data.seq_len=1024 train.global_batch=16", "h100", 16, 2, 3},
    {"model.preset=llama-1.3b data.seq_len=2048 train.global_batch=16", "h100", 8, 1, 20},
    {"model.preset=llama-1.3b data.seq_len=2048 train.global_batch=16", "h100", 8, 2, 10},
    {"model.preset=llama-1.3b data.seq_len=2048 train.global_batch=16", "rtx4090", 8, 2, 23.5},
    {"model.preset=llama-1.3b data.seq_len=4096 train.global_batch=8", "a100-40", 8, 1, 39},
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=16", "h100", 8, 1, 79},
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=16", "a100-40", 8, 1, 39},
    {"model.preset=llama3-8b data.seq_len=8192 train.global_batch=8", "h100", 8, 1, 60},
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=8", "h200", 8, 8, 139},
    {"model.preset=qwen3-4b data.seq_len=8192 train.global_batch=64", "h100", 8, 2, 60,
     "HYBRID_SHARD_ZERO2"},
    /* Keys that are refused where nothing is sharded, or in several micro-batches. */
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=2 comm.reduce_dtype=bf16", "h100",
     8, 1, 79, "parallel.tensor=4"},
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=2 train.grad_dtype=bf16", "h100",
     8, 1, 79, "parallel.tensor=4"},
    {"model.preset=llama3-8b data.seq_len=2048 train.global_batch=2 comm.copy_engines=true", "h100",
     8, 1, 79, "parallel.tensor=4"},
    {"model.preset=llama-124m data.seq_len=512 train.global_batch_tokens=16384", "h100", 8, 1, 79,
     NULL},
    /* Ranks that divide one sequence shard as data ranks do. */
    {"model.preset=llama3.1-8b data.seq_len=131072 train.global_batch=1", "h100", 16, 2, 40,
     "parallel.context=16 parallel.strategy=FULL_SHARD"},
    /* Shards of masters have no copy in 16 bits beside them. */
    {"model.preset=llama3-8b model.layers=39 data.seq_len=2048 train.global_batch=8", "h100", 2, 1,
     79.1, "parallel.strategy=FULL_SHARD train.micro_batch=2 recompute=full"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void test_search_finds_the_fastest(void **state)
{
    enum { SAMPLE = 7 };
    int first = getenv("FROM")   ? atoi(getenv("FROM"))
                : rig_is_short() ? SAMPLE
                                 : 0,
        end = rig_is_short() ? SAMPLE + 1 : CASES;
    for (int i = first; i < end; i++) {
        struct machine machine;
        struct search quick, slow;
        struct error err = {0};
        char settings[256];
        snprintf(settings, sizeof settings, "device=cuda precision=bf16 data.train=none.h5 %s",
                 cases[i].settings);
        struct config config = rig_config(settings);
        struct memory_limits limits = {.device_bytes = (size_t)(cases[i].gib * (1 << 30))};
        if (machine_find(&machine, cases[i].machine, &err))
            fail_msg("%s", err.text);
        struct search_request request = {.config = &config,
                                         .ranks = cases[i].ranks,
                                         .nodes = cases[i].nodes,
                                         .threads = 1,
                                         .machine = &machine,
                                         .limits = &limits};
        if (search_find(&quick, &request, &err))
            fail_msg("case %d: %s", i, err.text);
        request.exhaustive = 1;
        if (search_find(&slow, &request, &err))
            fail_msg("case %d: %s", i, err.text);
        print_message("# case %d: %d candidates, %d planned, %d too large: %s\n", i,
                      quick.candidates, quick.planned, slow.too_large, quick.row[0].settings);
        assert_in_range(slow.planned, 180, slow.candidates); /* layouts refuse some */
        assert_true(quick.planned <= slow.planned);
        assert_int_equal(slow.below_bound, 0);
        assert_string_equal(quick.row[0].settings, slow.row[0].settings);
        assert_true(quick.row[0].step_s == slow.row[0].step_s);
        if (cases[i].wins)
            assert_non_null(strstr(quick.row[0].settings, cases[i].wins));
        machine_free(&machine);
    }
}

/* Nothing fits: an error that says so, not a layout. */
static void test_nothing_fits(void **state)
{
    struct machine machine;
    struct search search;
    struct error err = {0};
    struct config config = rig_config("device=cuda precision=bf16 data.train=none.h5 "
                                      "model.preset=llama-10m train.global_batch=4");
    struct memory_limits limits = {.device_bytes = 1 << 20};
    assert_int_equal(machine_find(&machine, "h100", &err), 0);
    const struct search_request request = {.config = &config,
                                           .ranks = 2,
                                           .nodes = 1,
                                           .threads = 1,
                                           .machine = &machine,
                                           .limits = &limits};
    assert_int_equal(search_find(&search, &request, &err), -1);
    assert_non_null(strstr(err.text, "fits the memory"));
    machine_free(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_finds_the_fastest),
        cmocka_unit_test(test_nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
