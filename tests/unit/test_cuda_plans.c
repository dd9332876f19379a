/* test_cuda_plans.c - cuDNN has a plan for the attention of every model, and it fits the scratch
 * that was planned.
 *
 * Where a GPU is, plans are made for it.  Where none is, they are made for an H200 on paper, by the
 * library's own heuristics and compiler, with the driver of described_gpu.c.  A plan takes one to
 * three seconds: the models of the benchmark are looked at always, all presets and other cards with
 * PLANS=all.
 */
#include "ops_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "config/schema.h"
#include "device/cuda/sdpa.h"
#include "device/cuda/sdpa_graph.h"
#include "device/cuda/state.h"

enum { SKIPPED = 77, PARTED_SEQ = 16384, TILE = 128 };

/* What cuDNN asks GPUs for, as they answer; what is the same for all of these is in describe(). */
static const struct card {
    const char *name;
    int version, processors, shared_bytes, threads, blocks; /* the last three of a processor */
} cards[] = {
    {"NVIDIA H200", 900, 132, 232448, 2048, 32}, /* the first: what else is planned is for it */
    {"NVIDIA A100", 800, 108, 166912, 2048, 32},
    {"NVIDIA RTX A6000", 860, 84, 101376, 1536, 16},
    {"NVIDIA L40S", 890, 142, 101376, 1536, 24},
    {"NVIDIA B200", 1000, 148, 232448, 2048, 32},
    {"NVIDIA GeForce RTX 5090", 1200, 170, 101376, 1536, 24},
};
enum { CARDS = sizeof cards / sizeof cards[0] };

static struct sdpa_target target;
static struct device *gpu; /* NULL: a card on paper */

/* Returns the description, for free(). */
static char *describe(const struct card *card)
{
    return array_format(
        "{\"version\": 1, \"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
        "\"driverVer\": 13000, \"totalGlobalMem\": 150754820096, "
        "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
        "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"warpSize\": 32, "
        "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
        "\"maxCtasPerSM\": %d, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, "
        "\"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
        "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560}",
        card->name, card->version, card->processors, card->shared_bytes, card->blocks,
        card->threads);
}

static void gpu_text(struct sdpa_text *text)
{
    if (gpu) {
        assert_int_equal(sdpa_gpu_write(text, 0), 0);
        return;
    }
    text->text = describe(&cards[0]);
    text->bytes = strlen(text->text);
}

/* ---- for whom the plans are ---- */

/* Its name is looked for before any other of that name, as it is loaded already. */
static int load_driver(void)
{
    char path[4096], *slash;
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 32);
    path[bytes > 0 ? bytes : 0] = 0;
    slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 32, "described_gpu.so");
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        return 0;
    printf("no driver to make plans with: %s\n", dlerror());
    return -1;
}

static int make_target(const struct card *card)
{
    cudnnBackendDescriptor_t *d = &target.properties;
    char *text = describe(card);
    int rc = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, d) ||
             cudnnBackendSetAttribute(*d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, (int64_t)strlen(text), text) ||
             cudnnBackendFinalize(*d);
    free(text);
    if (rc)
        printf("this cuDNN describes GPUs in another way\n");
    return rc ? -1 : 0;
}

static int open_target(void)
{
    struct error err = {0};
    if (access("/dev/nvidiactl", F_OK))
        return load_driver() || make_target(&cards[0]) ? -1 : 0;
    if (device_open(&gpu, &(struct device_request){.kind = DEVICE_CUDA}, &err) ||
        cudnnCreate(&target.handle)) {
        printf("no GPU to make plans for: %s\n", err.text);
        return -1;
    }
    return 0;
}

/* ---- plans ---- */

/* Its bytes with what lies before cuDNN's are no more than was planned, and little less: what is
 * reproducible takes what it needs. */
static void one_plan(const char *name, const struct attention *a, enum device_pass pass,
                     enum sdpa_mask mask)
{
    enum { SLACK = 1 << 20 };
    const char *which = pass == DEVICE_BACKWARD ? "backward" : "forward";
    struct error err = {0};
    struct sdpa_plan plan;
    struct sdpa_slice slice = sdpa_slice_of(a, pass);
    size_t planned = cuda_sdpa_scratch(a, pass);
    size_t own = pass == DEVICE_BACKWARD ? sdpa_places_of(a, slice).workspace : 0;
    if (sdpa_plan_make(&plan, a, slice, pass, mask, &target, &err))
        fail_msg("%s over %lld, %s: %s", name, (long long)a->seq, which, err.text);
    printf("%s over %lld, %s%s%s: %lld heads over %lld tokens at a time, engine %lld, %zu of %zu "
           "bytes\n",
           name, (long long)a->seq, which, a->any_order ? " in any order" : "",
           mask == SDPA_ALL ? " below the diagonal" : "", (long long)slice.kv_heads,
           (long long)slice.tokens, (long long)plan.engine, plan.workspace_bytes + own, planned);
    assert_true(plan.workspace_bytes + own <= planned);
    if (pass == DEVICE_BACKWARD && a->seq % TILE == 0 && !a->any_order)
        assert_true(plan.workspace_bytes + own + SLACK >= planned);
    sdpa_plan_drop(&plan);
}

/* A plan for one slice of it, or one for each kind of tile. */
static void has_a_plan(const char *name, const struct attention *a, enum device_pass pass)
{
    struct sdpa_slice slice = sdpa_slice_of(a, pass);
    if (!cuda_sdpa_scratch(a, pass))
        fail_msg("%s over %lld: cuDNN is not asked", name, (long long)a->seq);
    one_plan(name, a, pass, SDPA_CAUSAL);
    if (slice.tokens < a->seq)
        one_plan(name, a, pass, SDPA_ALL);
}

static struct attention attention_of(const struct config_model *m, int64_t seq, int64_t batch,
                                     enum dtype dt)
{
    assert_non_null(m);
    return (struct attention){.dt = dt,
                              .batch = batch,
                              .seq = seq,
                              .heads = m->heads,
                              .kv_heads = m->kv_heads,
                              .head_dim = m->hidden / m->heads,
                              .scale = 0.125f};
}

static void both_ways(const struct config_model *m, int64_t seq, int64_t batch, enum dtype dt)
{
    const struct attention a = attention_of(m, seq, batch, dt);
    has_a_plan(m->preset, &a, DEVICE_FORWARD);
    has_a_plan(m->preset, &a, DEVICE_BACKWARD);
}

/* What tests/bench/gpu_vs_torch trains. */
static void the_benchmark_has_plans(void **state)
{
    both_ways(preset_find("llama3-8b"), 8192, 1, DTYPE_BF16);
    both_ways(preset_find("llama-1.3b"), 2048, 8, DTYPE_BF16);
    both_ways(preset_find("llama-124m"), 2048, 16, DTYPE_BF16);
}

/* What a thread makes and leaves as text, all of it its own. */
struct left {
    struct sdpa_text gpu, text;
    struct attention a;
    enum device_pass pass;
    size_t workspace_bytes;
    int made, written;
    pthread_t thread;
};

static void *leave_text(void *context)
{
    struct left *l = context;
    struct error err = {0};
    struct sdpa_plan plan;
    struct sdpa_target own = {0};
    if (sdpa_gpu_read(&own.properties, &l->gpu))
        return NULL;
    l->made = !sdpa_plan_make(&plan, &l->a, sdpa_slice_of(&l->a, l->pass), l->pass, SDPA_CAUSAL,
                              &own, &err);
    if (l->made) {
        l->workspace_bytes = plan.workspace_bytes;
        l->written = !sdpa_plan_write(&l->text, &plan);
        sdpa_plan_drop(&plan);
    }
    cudnnBackendDestroyDescriptor(own.properties);
    return NULL;
}

/* Several threads make plans at the same time; what is read of them afterwards is the same plans,
 * and of half a text none. */
static void plans_of_threads_are_read(void **state)
{
    enum { THREADS = 4, ROUNDS = 3 };
    static const int64_t seq[ROUNDS] = {128, 257, 1024};
    for (int round = 0; round < ROUNDS; round++) {
        struct left l[THREADS] = {0};
        for (int i = 0; i < THREADS; i++) {
            l[i].a = attention_of(preset_find("llama3-8b"), seq[round], 1 + i / 2, DTYPE_BF16);
            l[i].pass = i % 2 ? DEVICE_BACKWARD : DEVICE_FORWARD;
            gpu_text(&l[i].gpu);
            assert_int_equal(pthread_create(&l[i].thread, NULL, leave_text, &l[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(l[i].thread, NULL), 0);
        for (int i = 0; i < THREADS; i++) {
            struct sdpa_plan plan;
            assert_true(l[i].made && l[i].written);
            assert_int_equal(sdpa_plan_read(&plan, &l[i].text, &target), 0);
            assert_int_equal(plan.workspace_bytes, l[i].workspace_bytes);
            sdpa_plan_drop(&plan);
            l[i].text.bytes /= 2;
            assert_int_equal(sdpa_plan_read(&plan, &l[i].text, &target), -1);
            assert_null(plan.plan);
            sdpa_text_free(&l[i].text);
            sdpa_text_free(&l[i].gpu);
        }
    }
}

/* No tensor that cuDNN is given has more than 2^31 elements; a sequence that has more is not given
 * to it. */
static void large_batches_are_divided(void **state)
{
    static const int64_t batch[] = {512, 910, 911, 1024}, of_a_slice[] = {512, 910, 1, 512};
    for (int i = 0; i < 4; i++) { /* a sequence has 1024 x 2304 elements of qkv */
        struct attention a = attention_of(preset_find("gpt2"), 1024, batch[i], DTYPE_BF16);
        assert_int_equal(sdpa_slice_of(&a, DEVICE_FORWARD).batch, of_a_slice[i]);
        assert_true(sdpa_slice_of(&a, DEVICE_BACKWARD).batch <= of_a_slice[i]);
    }
    struct attention a = {DTYPE_BF16, 1, 1 << 18, 64, 8, 128, 0.125f};
    for (enum device_pass pass = DEVICE_FORWARD; pass <= DEVICE_BACKWARD; pass++) {
        assert_non_null(cuda_sdpa_refusal(&a, pass, 91900));
        assert_int_equal(cuda_sdpa_scratch(&a, pass), 0);
    }
    a.kv_heads = 4;
    a.heads = 32;
    assert_null(cuda_sdpa_refusal(&a, DEVICE_FORWARD, 91900));
}

/* With train.reproducible=false a slice's memory grows with the sequence, not with its square: a
 * key head and those that read it are within the usual limit of a slice at any length. */
static void long_sequences_have_plans_in_any_order(void **state)
{
    static const int64_t seq[] = {8192, 32768, 131072}, heads_of_a_slice[] = {8, 4, 1};
    for (int i = 0; i < 3; i++) {
        struct attention a = attention_of(preset_find("llama3-8b"), seq[i], 1, DTYPE_BF16);
        a.any_order = 1;
        assert_int_equal(sdpa_slice_of(&a, DEVICE_BACKWARD).kv_heads, heads_of_a_slice[i]);
        assert_true(cuda_sdpa_scratch(&a, DEVICE_BACKWARD) <= (size_t)1201 << 20);
        has_a_plan("llama3-8b", &a, DEVICE_FORWARD);
        has_a_plan("llama3-8b", &a, DEVICE_BACKWARD);
    }
}

/* Reproducible ones too: in tiles, whose plans are the same at any length. */
static void long_sequences_have_reproducible_plans(void **state)
{
    static const int64_t seq[] = {32768, 65536, 131072}, heads_of_a_slice[] = {2, 1, 1};
    for (int i = 0; i < 3; i++) {
        struct attention a = attention_of(preset_find("llama3-8b"), seq[i], 1, DTYPE_BF16);
        struct sdpa_slice slice = sdpa_slice_of(&a, DEVICE_BACKWARD);
        assert_int_equal(slice.tokens, 8192);
        assert_int_equal(slice.kv_heads, heads_of_a_slice[i]);
        assert_true(cuda_sdpa_scratch(&a, DEVICE_BACKWARD) <= (size_t)1201 << 20);
        has_a_plan("llama3-8b", &a, DEVICE_BACKWARD);
    }
}

static int are_all(void)
{
    const char *which = getenv("PLANS");
    return which && !strcmp(which, "all");
}

/* Each kind of card has engines of its own, which want other memory: with PLANS=all on all cards in
 * both orders, else where dq is summed in any order on one with each engine. */
static void other_cards_have_plans(void **state)
{
    static const struct attention shapes[] = {
        {DTYPE_BF16, 3, 1000, 12, 3, 64, 0.125f},   {DTYPE_BF16, 8, 2048, 16, 16, 128, 0.125f},
        {DTYPE_BF16, 2, 4096, 32, 8, 64, 0.125f},   {DTYPE_F16, 3, 1000, 8, 4, 96, 0.125f},
        {DTYPE_BF16, 1, 8192, 32, 8, 128, 0.0884f},
    };
    const size_t count = are_all() ? sizeof shapes / sizeof shapes[0] : 1;
    cudnnBackendDescriptor_t usual = target.properties;
    if (gpu) {
        printf("skipped: there is a GPU to make plans for\n");
        skip();
    }
    for (int c = 1; c < CARDS; c++) {
        if (!are_all() && cards[c].version != 800 && cards[c].version != 1200)
            continue;
        assert_int_equal(make_target(&cards[c]), 0);
        for (size_t i = 0; i < count; i++)
            for (int any_order = !are_all(); any_order < 2; any_order++) {
                struct attention a = shapes[i];
                a.any_order = any_order;
                has_a_plan(cards[c].name, &a, DEVICE_BACKWARD);
            }
        cudnnBackendDestroyDescriptor(target.properties);
    }
    target.properties = usual;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* At a short sequence, at one that is no multiple of a tile, and at the longest of usual ones. */
static void every_preset_has_plans(void **state)
{
    if (!are_all()) {
        printf("skipped: only with PLANS=all (make check-plans)\n");
        skip();
    }
    for (int i = 0; i < config_preset_count; i++) {
        const struct config_model *m = &config_presets[i];
        both_ways(m, least(m->max_seq_len, 8192), 1, DTYPE_BF16);
        both_ways(m, least(m->max_seq_len, 2048), 2, DTYPE_F16);
        both_ways(m, least(m->max_seq_len, 1000), 3, DTYPE_BF16);
    }
    both_ways(preset_find("llama3.1-8b"), PARTED_SEQ, 1, DTYPE_BF16);
}

/* cuDNN compiles with NVRTC, which a machine may lack. */
static int can_compile(void)
{
    const struct attention a = {DTYPE_BF16, 1, 128, 1, 1, 64, 0.125f};
    struct error err = {0};
    struct sdpa_plan plan;
    if (!sdpa_plan_make(&plan, &a, (struct sdpa_slice){1, 1, a.seq}, DEVICE_FORWARD, SDPA_CAUSAL,
                        &target, &err)) {
        sdpa_plan_drop(&plan);
        return 1;
    }
    if ((dlopen("libnvrtc.so.13", RTLD_NOW) && dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW)) ||
        !strstr(err.text, "compilation"))
        return 1; /* then the tests say what it is */
    printf("the loader finds no NVRTC to compile kernels with: %s\n", err.text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_benchmark_has_plans),
        cmocka_unit_test(large_batches_are_divided),
        cmocka_unit_test(plans_of_threads_are_read),
        cmocka_unit_test(long_sequences_have_plans_in_any_order),
        cmocka_unit_test(long_sequences_have_reproducible_plans),
        cmocka_unit_test(other_cards_have_plans),
        cmocka_unit_test(every_preset_has_plans),
    };
    if (open_target() || !can_compile())
        return SKIPPED;
    int failed = cmocka_run_group_tests_name("cuda plans", tests, NULL, NULL);
    if (target.properties)
        cudnnBackendDestroyDescriptor(target.properties);
    if (target.handle)
        cudnnDestroy(target.handle);
    device_close(gpu);
    return failed;
}
