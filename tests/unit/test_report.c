/* test_report.c - what a plan says of a GPU's memory: machines by name, what fits and what does
 * not, and the models a machine was bought for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/report.h"
#include "program/memory.h"
#include "tests/unit/rig.h"

static void test_room(void **state)
{
    struct error err = {0};
    struct memory_need need = {.pool_bytes = {[POOL_PARAMS] = (size_t)3 << 30,
                                              [POOL_COMM] = (size_t)3 << 29,
                                              [POOL_HOST] = (size_t)9 << 30},
                               .staging_bytes = (size_t)1 << 29,
                               .reserve_bytes = (size_t)1 << 29,
                               .device_bytes = (size_t)9 << 29};
    assert_int_equal(memory_fits(&need, need.device_bytes, &err), 0);
    assert_string_equal(err.text, "");
    assert_int_equal(memory_fits(&need, (size_t)4 << 30, &err), -1);
    static const char *const said[] = {"4.50 GiB",     "parameters 3.00",   "communication 1.00",
                                       "reserve 0.50", "4.00 GiB are free", "short by 0.50 GiB"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        assert_non_null(strstr(err.text, said[i]));
    assert_null(strstr(err.text, "host"));
    assert_int_equal(memory_fits(&need, need.device_bytes - 1, &err), -1);
}

/* A rank's sum has every part once: slabs, the staging of transfers, and on a GPU the steps in
 * flight and the reserve. */
static void check_need(const struct report *report, const struct memory_need *need)
{
    const struct mesh_shape *shape = &report->layout.shape;
    const struct mesh_options options = layout_comm(&report->config);
    const struct layout *l = &report->layout;
    size_t sequences = (size_t)(l->micros * l->micro_batch), gpu = (size_t)report->on_gpu;
    size_t inputs = 2 * sequences * (size_t)report->config.data.seq_len * sizeof(int32_t);
    size_t steps = MEMORY_STEPS * need->step_bytes, reserve = need->reserve_bytes, slabs = 0;
    size_t device = mesh_device_staging_bytes(shape, &options);
    size_t host = mesh_host_staging_bytes(shape, &options), groups = mesh_staging_bytes(shape);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        slabs += need->slab_bytes[pool];
    slabs -= need->slab_bytes[POOL_DISK];
    assert_true(slabs && device && host && groups);
    assert_in_range(need->step_bytes, inputs + SUM_COUNT * sizeof(double), inputs + 512);
    assert_int_equal(need->total_bytes, slabs + groups + gpu * (steps + device + host));
    assert_int_equal(need->pool_bytes[POOL_COMM], groups + gpu * device);
    assert_int_equal(need->pool_bytes[POOL_HOST],
                     need->slab_bytes[POOL_HOST] + gpu * (steps + host));
    assert_int_equal(need->host_bytes,
                     gpu ? need->pool_bytes[POOL_HOST] + groups : need->total_bytes);
    assert_int_equal(need->device_bytes, gpu ? need->total_bytes - need->host_bytes + reserve : 0);
    assert_int_equal(reserve > 0, gpu);
}

static void test_need(void **state)
{
    for (int k = 0; k < 4; k++) {
        char text[512];
        struct error err = {0};
        struct report report;
        snprintf(text, sizeof text,
                 "model.layers=3 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
                 "data.seq_len=7 train.global_batch=5 train.micro_batch=2 "
                 "parallel.strategy=HYBRID_SHARD comm.inter_node=mpi offload.optimizer=%s "
                 "device=%s data.valid=none.h5",
                 k & 2 ? "host" : "disk", k & 1 ? "cuda" : "cpu");
        struct config config = rig_config(text);
        struct report_request request = {.config = &config, .ranks = 4, .nodes = 2, .threads = 1};
        if (report_make(&report, &request, &err) || !report.verified)
            fail_msg("%s%s", err.text, report.verdict.text);
        assert_int_equal(report.on_gpu, k & 1);
        for (int r = 0; r < 4; r++)
            check_need(&report, &report.rank[r].need);
        report_free(&report);
    }
}

/* The whole of Llama-3-8B in one step on one GPU. */
static struct report plan_8b(const char *settings)
{
    char text[256];
    struct error err = {0};
    struct report report;
    snprintf(text, sizeof text,
             "model.preset=llama3-8b precision=bf16 train.global_batch=1 device=cuda %s", settings);
    struct config config = rig_config(text);
    struct report_request request = {.config = &config, .ranks = 1, .nodes = 1, .threads = 1};
    if (report_make(&report, &request, &err))
        fail_msg("%s", err.text);
    assert_true(report.verified);
    assert_int_equal(report.on_gpu, 1);
    return report;
}

static void test_the_whole_of_8b(void **state)
{
    size_t h200 = rig_machine_bytes("h200"), h100 = rig_machine_bytes("h100");
    static const char *const lengths[] = {"data.seq_len=4096 recompute=full",
                                          "data.seq_len=8192 recompute=full"};
    const size_t params = 8030261248;
    for (int i = 0; i < 2; i++) {
        struct report report = plan_8b(lengths[i]);
        const size_t *bytes = report.rank[0].need.pool_bytes;
        size_t boundary = (size_t)4096 * (i ? 8192 : 4096) * 2;
        assert_int_equal(bytes[POOL_PARAMS], 2 * params);
        assert_int_equal(bytes[POOL_GRADS], 0);
        assert_int_equal(bytes[POOL_OPTIMIZER], 12 * params);
        /* all gradients, where what forward kept was, and at last the gradient of one activation */
        assert_int_equal(bytes[POOL_ACTIVATIONS], 4 * params + boundary);
        report_set_gpu_memory(&report, "h200", h200);
        assert_int_equal(report_lack(&report, &report.limits).device_bytes, 0);
        report_set_gpu_memory(&report, "h100", h100);
        assert_int_equal(report_lack(&report, &report.limits).device_bytes,
                         report.rank[0].need.device_bytes - h100);
        report_free(&report);
    }
    struct report kept = plan_8b("data.seq_len=8192");
    report_set_gpu_memory(&kept, "h200", h200);
    assert_true(report_lack(&kept, &kept.limits).device_bytes > (size_t)4 << 30);
    report_free(&kept);
}

/* Gradients live in a step only, in the place of what forward keeps for backward, where nothing
 * needs them longer: they then cost those of the head and of one layer alone. */
static void test_gradients_take_the_place_of_activations(void **state)
{
    static const char *const keeps[] = {"train.global_batch=2 train.micro_batch=1",
                                        "train.overlap_update=true", "offload.gradients=host"};
    struct report passing = plan_8b("model.layers=16 data.seq_len=8192");
    const size_t *bytes = passing.rank[0].need.pool_bytes;
    size_t all = 4 * (size_t)passing.params, head = (size_t)4 * 4096 * 128256;
    size_t layer = (all - 2 * head) / 16;
    assert_int_equal(bytes[POOL_GRADS], 0);
    for (int i = 0; i < 3; i++) {
        char settings[128];
        snprintf(settings, sizeof settings, "model.layers=16 data.seq_len=8192 %s", keeps[i]);
        struct report kept = plan_8b(settings);
        const size_t *more = kept.rank[0].need.pool_bytes;
        size_t gradients = more[i == 2 ? POOL_HOST : POOL_GRADS];
        assert_true(gradients >= all);
        if (i < 2)
            assert_in_range(bytes[POOL_ACTIVATIONS] - more[POOL_ACTIVATIONS], head,
                            head + layer + (1 << 20));
        report_free(&kept);
    }
    report_free(&passing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_need),
        cmocka_unit_test(test_the_whole_of_8b),
        cmocka_unit_test(test_gradients_take_the_place_of_activations),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
