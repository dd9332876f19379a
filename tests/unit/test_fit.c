/* test_fit.c - the nearest configuration that has room: against a search of all of them, and the
 * verdicts known of published models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "config/schema.h"
#include "plan/compare.h"
#include "plan/fit.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"

enum { BATCHES = 4, COMBINATIONS = BATCHES * 3 * 4 };

/* All combinations for one number of ranks, gentlest first. */
struct combination {
    char settings[256];
    size_t bytes;
};

static size_t bytes_with(const char *base, const char *settings, int ranks)
{
    char text[640];
    struct report report;
    snprintf(text, sizeof text, "%s %s", base, settings);
    struct config config = rig_config(text);
    struct report_request request = {.config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
    assert_int_equal(report_measure(&report, &request, NULL), 0);
    size_t bytes = report.rank[0].need.host_bytes;
    report_free(&report);
    return bytes;
}

static void all(struct combination combination[COMBINATIONS], const char *base, int ranks)
{
    static const char *const strategy[] = {"", "parallel.strategy=SHARD_OPTIM",
                                           "parallel.strategy=SHARD_GRAD_OP",
                                           "parallel.strategy=FULL_SHARD"};
    static const char *const recompute[] = {"", "recompute=selective", "recompute=full"};
    static const char *const batch[BATCHES] = {"", "train.micro_batch=3", "train.micro_batch=2",
                                               "train.micro_batch=1"};
    for (int i = 0; i < COMBINATIONS; i++) {
        const char *const part[] = {strategy[i % 4], recompute[i / 4 % 3], batch[i / 12]};
        char *text = combination[i].settings;
        text[0] = 0;
        for (int k = 0; k < 3; k++)
            if (part[k][0])
                sprintf(text + strlen(text), "%s%s", text[0] ? " " : "", part[k]);
        combination[i].bytes = bytes_with(base, text, ranks);
    }
}

/* With any amount of room, the search finds the gentlest combination there is. */
static void test_gentlest(void **state)
{
    enum { RANKS = 3 };
    static const char base[] = "model.preset=llama-10m device=cpu data.seq_len=128 "
                               "train.global_batch=15 parallel.strategy=NO_SHARD";
    struct combination list[COMBINATIONS];
    struct config config = rig_config(base);
    all(list, base, RANKS);
    size_t least = list[0].bytes;
    for (int i = 0; i < COMBINATIONS; i++)
        least = list[i].bytes < least ? list[i].bytes : least;
    assert_true(least < list[0].bytes / 4 * 3);
    for (int i = 0; i < COMBINATIONS; i++) {
        struct fit fit;
        struct memory_limits room = {.host_bytes = list[i].bytes};
        int wanted = 0;
        while (list[wanted].bytes > room.host_bytes)
            wanted++;
        fit_find(&fit, &config, RANKS, 1, 1, &room, NULL);
        assert_true(fit.found);
        assert_int_equal(fit.ranks, RANKS);
        assert_string_equal(fit.settings, list[wanted].settings);
        assert_int_equal(fit.takes.host_bytes, list[wanted].bytes);
    }
}

/* Less room than any of them, with all state on disk too: more ranks, and none too many. */
/* What keeps activations of all micro-batches is asked to keep those of one, before anything that
 * costs. */
static void test_a_schedule_that_keeps_less(void **state)
{
    static const char base[] = "model.preset=llama-10m device=cpu data.seq_len=128 "
                               "train.global_batch=15 train.micro_batch=3";
    static const char *const rows[] = {"gpipe", "zb_h1"};
    struct memory_limits room = {.host_bytes = bytes_with(base, "", 1)};
    for (int i = 0; i < 2; i++) {
        char text[256];
        struct fit fit;
        snprintf(text, sizeof text, "%s parallel.schedule=%s", base, rows[i]);
        struct config config = rig_config(text);
        assert_true(bytes_with(text, "", 1) > room.host_bytes);
        fit_find(&fit, &config, 1, 1, 1, &room, NULL);
        assert_true(fit.found);
        assert_string_equal(fit.settings, "parallel.schedule=1f1b");
        assert_int_equal(fit.takes.host_bytes, room.host_bytes);
    }
}

static void test_more_ranks(void **state)
{
    static const char base[] = "model.preset=llama-10m device=cpu data.seq_len=32 "
                               "train.global_batch=2 parallel.strategy=NO_SHARD";
    struct config config = rig_config(base);
    size_t all_of_it = bytes_with(base, "", 2);
    struct fit fit;
    char text[400];
    struct memory_limits room = {.host_bytes = all_of_it / 4};
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found && fit.ranks > 2 && fit.ranks % 2 == 0);
    assert_true(fit.takes.host_bytes <= room.host_bytes);
    assert_true(bytes_with(base, fit.settings, fit.ranks) == fit.takes.host_bytes);
    assert_true(bytes_with(base, "parallel.strategy=FULL_SHARD recompute=full train.micro_batch=1",
                           fit.ranks / 2) > room.host_bytes);
    fit_text(&fit, 2, text, sizeof text);
    assert_non_null(strstr(text, " ranks on "));
    assert_non_null(strstr(text, fit.settings));
    room.host_bytes = 1000;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_false(fit.found);
    assert_non_null(strstr(fit_text(&fit, 2, text, sizeof text), "nothing fits"));
}

/* Where the processes take all of a node, nothing is sought, and nothing said of other ranks. */
static void test_node_taken(void **state)
{
    struct config config = rig_config("model.preset=llama-tiny device=cpu data.seq_len=32");
    size_t process = report_process_bytes(&config, 0);
    struct memory_limits none = {.host_bytes = report_node_share(2 * process, 2, &config, 0)};
    assert_true(none.host_bytes == REPORT_NODE_TAKEN);
    assert_true(report_node_share(2 * process + 4, 2, &config, 0) == 2);
    struct fit fit;
    char text[400];
    fit_find(&fit, &config, 2, 1, 1, &none, NULL);
    assert_true(fit.node_is_taken && !fit.found);
    assert_non_null(strstr(fit_text(&fit, 2, text, sizeof text), "fewer ranks on a node"));
    struct report report = {.config = config, .ranks = 4, .nodes = 2};
    struct error err = {0};
    report_set_node_memory(&report, 2 * process + 4);
    assert_int_equal(report_check_node(&report, &err), 0);
    report_set_node_memory(&report, 0); /* not known */
    assert_int_equal(report_check_node(&report, &err), 0);
    report_set_node_memory(&report, 2 * process);
    assert_int_equal(report_check_node(&report, &err), -1);
    assert_non_null(strstr(err.text, "for 2 ranks"));
    assert_non_null(strstr(err.text, "fewer ranks on a node leave some"));
    report_set_node_memory(&report, process);
    assert_int_equal(report_check_node(&report, &err), -1);
    assert_non_null(strstr(err.text, "take a node that has more"));
}

/* Hybrids keep to hybrids, and take more shards where they must. */
static void test_hybrids(void **state)
{
    static const char base[] = "model.preset=llama-10m device=cpu data.seq_len=8 recompute=full "
                               "train.global_batch=12 train.micro_batch=1 parallel.shard=2 "
                               "parallel.strategy=HYBRID_SHARD_ZERO2";
    struct config config = rig_config(base);
    static const char *const wanted[] = {"", "parallel.strategy=HYBRID_SHARD",
                                         "parallel.strategy=HYBRID_SHARD parallel.shard=4",
                                         "parallel.strategy=HYBRID_SHARD parallel.shard=12"};
    for (int i = 0; i < 4; i++) {
        struct fit fit;
        struct memory_limits room = {.host_bytes = bytes_with(base, wanted[i], 12)};
        fit_find(&fit, &config, 12, 1, 1, &room, NULL);
        assert_true(fit.found);
        assert_int_equal(fit.ranks, 12);
        assert_string_equal(fit.settings, wanted[i]);
    }

    /* The number of copies, where it was given, is part of what has to change. */
    static const char copies[] = "model.preset=llama-10m device=cpu data.seq_len=8 recompute=full "
                                 "train.global_batch=12 train.micro_batch=1 parallel.shard=2 "
                                 "parallel.replicate=6 parallel.strategy=HYBRID_SHARD";
    static const char fewer[] = "parallel.replicate=0 parallel.shard=4";
    struct config given = rig_config(copies);
    struct memory_limits room = {.host_bytes = bytes_with(copies, fewer, 12)};
    struct fit fit;
    fit_find(&fit, &given, 12, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_string_equal(fit.settings, fewer);
}

/* A plan as for GPUs. */
static struct config config_of(const char *settings)
{
    char text[512];
    snprintf(text, sizeof text, "device=cuda precision=bf16 %s", settings);
    return rig_config(text);
}

static struct memory_limits room_of(const char *machine)
{
    return (struct memory_limits){.device_bytes = rig_machine_bytes(machine)};
}

/* Does it fit under any strategy? */
static int fits_somehow(const struct config *config, int ranks, const struct memory_limits *room)
{
    struct report report;
    struct compare compare;
    int any = 0;
    struct report_request request = {.config = config, .ranks = ranks, .nodes = 1, .threads = 1};
    assert_int_equal(report_measure(&report, &request, NULL), 0);
    report.limits = *room;
    compare_make(&compare, &report, 1);
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        struct memory_limits lack = {0};
        if (compare.row[s].made)
            lack = report_lack(&compare.row[s].report, room);
        any |= compare.row[s].made && !lack.device_bytes && !lack.host_bytes;
    }
    compare_free(&compare);
    report_free(&report);
    return any;
}

/* Llama-3-8B, all of it trained, keeps 18 bytes a parameter: 67 GiB on each of two GPUs. */
static void test_8b_on_two_of_24(void **state)
{
    struct memory_limits room = room_of("rtx4090");
    struct config config = config_of("model.preset=llama3-8b data.seq_len=512 recompute=full "
                                     "train.global_batch=2 train.micro_batch=1");
    assert_false(fits_somehow(&config, 2, &room));
    assert_false(fits_somehow(&config, 4, &room));
    assert_true(fits_somehow(&config, 16, &room));
}

/* It does where optimizer and parameters are elsewhere: of CPUs, on disk. */
static void test_8b_on_disk(void **state)
{
    struct config config = rig_config("model.preset=llama3-8b data.seq_len=512 device=cpu "
                                      "precision=bf16 train.global_batch=2");
    struct memory_limits room = {.host_bytes = (size_t)26 << 30};
    struct fit fit;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_int_equal(fit.ranks, 2);
    assert_non_null(strstr(fit.settings, "offload.optimizer=disk"));
    room.host_bytes = (size_t)128 << 30;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_null(strstr(fit.settings, "offload"));
}

/* Where nothing can be kept on disk it comes back into memory, and whatever that takes. */
static void test_8b_without_a_disk(void **state)
{
    struct config config = rig_config("model.preset=llama3-8b data.seq_len=512 device=cpu "
                                      "precision=bf16 train.global_batch=2 "
                                      "parallel.strategy=FULL_SHARD offload.optimizer=disk "
                                      "offload.params=disk offload.path=/none");
    struct memory_limits room = {.host_bytes = (size_t)128 << 30, .no_disk = 1};
    struct fit fit;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_int_equal(fit.ranks, 2);
    assert_string_equal(fit.settings, "offload.optimizer=none offload.params=none offload.path=");
    room.host_bytes = (size_t)26 << 30;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found && fit.ranks > 2);
    assert_null(strstr(fit.settings, "disk"));
    assert_in_range(fit.takes.host_bytes, 1, room.host_bytes);
    room.no_disk = 0; /* 25.5 GiB as it is */
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_int_equal(fit.ranks, 2);
    assert_string_equal(fit.settings, "");
}

/* With the machine's speeds, a smaller micro-batch is nearer than recomputation where it is faster;
 * nothing that fits with another of these two is. */
static void test_by_forecast(void **state)
{
    struct config config = config_of("model.preset=llama2-7b data.seq_len=4096 "
                                     "train.global_batch=128");
    struct memory_limits room = room_of("a100-80");
    struct machine machine;
    struct error err = {0};
    struct fit plain, timed;
    if (machine_find(&machine, "a100-80", &err))
        fail_msg("%s", err.text);
    fit_find(&plain, &config, 8, 1, 1, &room, NULL);
    fit_find(&timed, &config, 8, 1, 1, &room, &machine);
    assert_true(plain.found && timed.found);
    assert_true(plain.tokens_per_s == 0);
    assert_string_equal(plain.settings, "recompute=full");
    assert_string_equal(timed.settings, "train.micro_batch=2");
    for (int recompute = 0; recompute < 3; recompute++)
        for (int batch = 1; batch <= 16; batch *= 2) {
            static const char *const names[] = {"none", "selective", "full"};
            struct report report;
            struct config other = config;
            struct report_request request = {
                .config = &other, .ranks = 8, .nodes = 1, .threads = 1, .speeds = &machine};
            char value[16];
            snprintf(value, sizeof value, "%d", batch);
            if (config_set(&other, "recompute", names[recompute], &err) ||
                config_set(&other, "train.micro_batch", value, &err) ||
                config_finish(&other, &err) || report_measure(&report, &request, &err))
                fail_msg("%s", err.text);
            if (!report_lack(&report, &room).device_bytes)
                assert_true(report_tokens_per_s(&report) <= timed.tokens_per_s);
            report_free(&report);
        }
    machine_free(&machine);
}

/* What needs less with all sequences of a rank at once than one by one, as gradients then take the
 * place of activations. */
static void test_all_at_once(void **state)
{
    static const struct {
        const char *settings, *nearest;
    } cases[] = {
        {"model.layers=16 model.ffn=14400", "recompute=full"},
        {"model.layers=15 train.micro_batch=1", "train.micro_batch=0"},
    };
    for (int i = 0; i < 2; i++) {
        char text[256];
        struct memory_limits room = room_of("h100");
        struct fit fit;
        snprintf(text, sizeof text,
                 "model.preset=llama3-8b data.seq_len=4096 train.global_batch=2 %s",
                 cases[i].settings);
        struct config config = config_of(text);
        fit_find(&fit, &config, 1, 1, 1, &room, NULL);
        assert_true(fit.found);
        assert_int_equal(fit.ranks, 1);
        assert_string_equal(fit.settings, cases[i].nearest);
    }
}

/* What only the optimizer has there does not move the parameters; to GPUs the host is nearer than
 * more GPUs. */
static void test_gpu_without_a_disk(void **state)
{
    struct config config =
        config_of("model.preset=llama3-8b data.seq_len=512 train.global_batch=2 recompute=full "
                  "train.micro_batch=1 parallel.strategy=FULL_SHARD offload.optimizer=disk "
                  "offload.params=host");
    struct memory_limits room = room_of("rtx4090");
    struct fit fit;
    room.no_disk = 1;
    room.host_bytes = (size_t)128 << 30;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_int_equal(fit.ranks, 2);
    assert_non_null(strstr(fit.settings, "offload.optimizer=host"));
    assert_null(strstr(fit.settings, "disk"));
    assert_null(strstr(fit.settings, "none"));
}

/* Of GPUs, in the memory of the node. */
static void test_8b_on_the_host(void **state)
{
    struct memory_limits room = room_of("rtx4090");
    struct config config =
        config_of("model.preset=llama3-8b data.seq_len=512 train.global_batch=2");
    struct config offloaded = config;
    struct error err = {0};
    struct report report;
    struct fit fit;
    offloaded.offload.optimizer = offloaded.offload.params = OFFLOAD_HOST;
    struct report_request request = {.config = &offloaded, .ranks = 2, .nodes = 1, .threads = 1};
    if (config_finish(&offloaded, &err) || report_measure(&report, &request, &err))
        fail_msg("%s", err.text);
    report_free(&report);
    room.host_bytes = (size_t)72 << 30;
    fit_find(&fit, &config, 2, 1, 1, &room, NULL);
    assert_true(fit.found);
    assert_int_equal(fit.ranks, 2);
    assert_non_null(strstr(fit.settings, "offload.optimizer=host offload.gradients=host"));
    assert_null(strstr(fit.settings, "disk"));
    assert_true(fit.takes.device_bytes <= room.device_bytes);
    assert_true(fit.takes.host_bytes > (size_t)60 << 30);
}

static int fits(const struct config *config, int ranks, struct memory_limits room)
{
    struct error err = {0};
    struct report report;
    struct report_request request = {.config = config, .ranks = ranks, .nodes = 1, .threads = 1};
    if (report_measure(&report, &request, &err))
        fail_msg("%s", err.text);
    struct memory_limits lack = report_lack(&report, &room);
    report_free(&report);
    return !lack.device_bytes && !lack.host_bytes;
}

/* GPT2-XL: too much for one GPU of 24 GB with all of it there, whatever the batch; two of them do
 * with stage 3, micro-batches of 16 and blocks of 128, in a node of 60 GB. */
static void test_gpt2_xl(void **state)
{
    struct memory_limits room = room_of("rtx4090");
    struct config one = config_of("model.preset=gpt2-xl data.seq_len=128 train.global_batch=1 "
                                  "parallel.strategy=NO_SHARD recompute=full");
    struct config two = config_of("model.preset=gpt2-xl data.seq_len=128 train.global_batch=32 "
                                  "train.micro_batch=16 parallel.strategy=FULL_SHARD");
    assert_false(fits(&one, 1, room));
    one.parallel.strategy = STRATEGY_FULL_SHARD;
    assert_int_equal(config_finish(&one, NULL), 0);
    assert_false(fits(&one, 1, room));
    assert_true(fits(&two, 2, room));
    room.host_bytes = (size_t)60e9 / 2;
    two.offload.optimizer = two.offload.params = OFFLOAD_HOST;
    struct report report;
    struct report_request request = {.config = &two, .ranks = 2, .nodes = 1, .threads = 1};
    if (report_measure(&report, &request, NULL))
        return; /* said by the test before */
    report_free(&report);
    assert_true(fits(&two, 2, room));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gentlest),
        cmocka_unit_test(test_a_schedule_that_keeps_less),
        cmocka_unit_test(test_more_ranks),
        cmocka_unit_test(test_node_taken),
        cmocka_unit_test(test_hybrids),
        cmocka_unit_test(test_8b_on_two_of_24),
        cmocka_unit_test(test_8b_on_disk),
        cmocka_unit_test(test_gpt2_xl),
        cmocka_unit_test(test_8b_on_the_host),
        cmocka_unit_test(test_8b_without_a_disk),
        cmocka_unit_test(test_by_forecast),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_gpu_without_a_disk),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
