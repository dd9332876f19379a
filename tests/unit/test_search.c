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
    /* One micro-batch fits, whose gradients take the place of activations, where two do not. */
    {"model.preset=llama3-8b model.layers=16 data.seq_len=3072 train.global_batch=2", "h100", 1, 1,
     79.1, "train.micro_batch=2 recompute=none"},
    /* Ranks that divide one sequence shard as data ranks do. */
    {"model.preset=llama3.1-8b data.seq_len=131072 train.global_batch=1", "h100", 16, 2, 40,
     "parallel.context=16 parallel.strategy=FULL_SHARD"},
    /* Shards of masters have no copy in 16 bits beside them. */
    {"model.preset=llama3-8b model.layers=39 data.seq_len=2048 train.global_batch=8", "h100", 2, 1,
     79.1, "parallel.strategy=FULL_SHARD train.micro_batch=4 recompute=full"},
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
        assert_in_range(slow.planned, cases[i].ranks > 1 ? 180 : 6,
                        slow.candidates); /* layouts refuse some */
        if (cases[i].ranks > 1) /* else what is planned for its memory alone may be planned again */
            assert_true(quick.planned <= slow.planned);
        assert_int_equal(slow.below_bound, 0);
        assert_string_equal(quick.row[0].settings, slow.row[0].settings);
        assert_true(quick.row[0].step_s == slow.row[0].step_s);
        if (cases[i].wins)
            assert_non_null(strstr(quick.row[0].settings, cases[i].wins));
        machine_free(&machine);
    }
}

static void check_same(const struct config *got, const struct config *wanted)
{
    char a[CONFIG_TEXT], b[CONFIG_TEXT];
    const char *key;
    for (int i = 0; (key = config_key_name(i)); i++)
        if (strcmp(config_value(got, key, a), config_value(wanted, key, b)) != 0)
            fail_msg("%s is %s, not %s", key, config_value(got, key, a),
                     config_value(wanted, key, b));
}

/* A base with keys of its own, as a user gives them, or as the config.yaml of a run has them. */
static void check_pasted(const struct config *base, const char *file, const char *const *given,
                         int count)
{
    enum { MOST = 64 };
    struct machine machine;
    struct search search;
    struct error err = {0};
    struct memory_limits limits = {.device_bytes = rig_machine_bytes("h100")};
    assert_int_equal(machine_find(&machine, "h100", &err), 0);
    const struct search_request request = {.config = base,
                                           .ranks = 16,
                                           .nodes = 2,
                                           .threads = 1,
                                           .machine = &machine,
                                           .limits = &limits};
    if (search_find(&search, &request, &err))
        fail_msg("%s", err.text);
    assert_true(search.rows > 0);
    search.best.parallel.layout = PARALLEL_LAYOUT_GIVEN;
    for (int i = 0; i < search.rows; i++) {
        char text[SEARCH_SETTINGS], *rest = text, *word;
        const char *list[MOST];
        struct config pasted, row;
        int all = count;
        for (int k = 0; k < count; k++) /* given may be NULL */
            list[k] = given[k];
        snprintf(text, sizeof text, "%s", search.row[i].settings);
        while (all < MOST && (word = strtok_r(rest, " ", &rest)))
            list[all++] = word;
        if (config_load(&pasted, file, list, all, &err))
            fail_msg("%s refused: %s", search.row[i].settings, err.text);
        assert_int_equal(search_apply(&row, base, search.row[i].settings), 0);
        check_same(&pasted, &row);
        if (!i)
            check_same(&pasted, &search.best);
    }
    machine_free(&machine);
}

/* What a row says is all that changes: the base with its settings behind it is its layout. */
static void test_settings_pasted_are_the_layout(void **state)
{
    static const char file[] = "test_search.yaml";
    static const char *const odd[] = {
        "",
        "parallel.strategy=HYBRID_SHARD parallel.shard=4",
        "parallel.strategy=FULL_SHARD parallel.replicate=1",
        "parallel.strategy=FULL_SHARD parallel.shard=16 parallel.persist_below=1000",
        "parallel.strategy=NO_SHARD parallel.replicate=16",
        "parallel.pipeline=4 parallel.stages=9,9,9,7",
        "parallel.pipeline=2 parallel.pipeline_reshard=true",
        "parallel.pipeline=4 parallel.schedule=interleaved_1f1b parallel.virtual_stages=4",
        "parallel.layout=auto parallel.pipeline_reshard=true",
        "train.global_batch=0 train.global_batch_tokens=131072",
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        enum { MOST = 16 };
        char text[512], *rest = text, *word;
        const char *given[MOST];
        struct config base, saved;
        struct error err = {0};
        int count = 0;
        snprintf(text, sizeof text,
                 "model.preset=llama3-8b device=cuda precision=bf16 data.seq_len=2048 "
                 "data.train=none.h5 train.micro_batch=1 train.global_batch=64 %s",
                 odd[i]);
        base = rig_config(text);
        while (count < MOST && (word = strtok_r(rest, " ", &rest)))
            given[count++] = word;
        check_pasted(&base, NULL, given, count);
        assert_int_equal(config_write(&base, CONFIG_FOR_USER, file, &err), 0);
        assert_int_equal(config_load(&saved, file, NULL, 0, &err), 0);
        check_pasted(&saved, file, NULL, 0);
        remove(file);
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
        cmocka_unit_test(test_settings_pasted_are_the_layout),
        cmocka_unit_test(test_nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
